//! What the runs of an experiment on this machine say together.

use tlsdyno_base::units::{format_date, format_interval, format_percent};
use tlsdyno_record::store::Record;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::Section;
use tlsdyno_runner::report::text::stage_label;

use crate::summary::Summary;
use crate::summary::between_runs::RUNS_LEAST;

/// The shares over all runs; `None`: too few runs.
pub(super) fn section(record: &Record, summary: &Summary) -> Option<Section> {
    let runs = summary.between_runs.iter().map(|of| of.runs).max()?;
    let first = record.manifest.earlier_runs.first()?;
    let rows = Rows::new(&summary.between_runs)
        .words(format!("{runs} runs here"), |of| stage_label(&of.stage))
        .number("this run", |of| format_percent(of.percent))
        .number("95 %, any run", |of| format_interval(of.low, of.high))
        .number("mean of all", |of| format_percent(of.mean_percent))
        .number("least", |of| format_percent(of.least_percent))
        .number("most", |of| format_percent(of.most_percent));
    let meaning = format!(
        "Shares of CPU time per hit in the {runs} runs of this experiment that this machine has made since {}. The \
         95 % interval here has what runs differ by in it; the one above holds for this run.",
        format_date(first.created_unix_s as i64)
    );
    Some(Section::titled("between-runs", "Over several runs").rows(rows).notes([meaning]))
}

/// How to learn the variation between runs. `None`: it is known, or there are no shares.
pub(super) fn remark(record: &Record, summary: &Summary) -> Option<String> {
    let run = record.manifest.earlier_runs.len() + 1;
    let is_unknown = !summary.shares.shares.is_empty() && summary.between_runs.is_empty() && run < RUNS_LEAST;
    is_unknown.then(|| {
        format!(
            "The intervals hold for this run, the {} of this experiment on this machine; from the {} on the report \
             also says what runs differ by.",
            ordinal(run),
            ordinal(RUNS_LEAST)
        )
    })
}

/// `fourth`; only for the numbers that occur.
fn ordinal(run: usize) -> String {
    match run {
        1 => "first".to_owned(),
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        4 => "fourth".to_owned(),
        more => format!("{more}th"),
    }
}
