//! What the runs of an experiment on this machine say together.

use tlsdyno_base::units::{format_date, format_interval, format_percent};
use tlsdyno_record::store::Record;
use tlsdyno_stats::Summary;
use tlsdyno_stats::between_runs::{BetweenRuns, RUNS_LEAST};

use crate::report::document::{Column, Field, Section, Table};
use crate::report::text::stage_label;

/// The shares over all runs, where there were enough.
pub(super) fn section(record: &Record, summary: &Summary) -> Option<Section> {
    let runs = summary.between_runs.iter().map(|of| of.runs).max()?;
    let first = record.manifest.earlier_runs.first()?;
    let name = Column::words(format!("{runs} runs here"));
    let fields: [Field<BetweenRuns>; _] = [
        (name, |of| stage_label(&of.stage)),
        (Column::number("this run"), |of| format_percent(of.percent)),
        (Column::number("95 %, any run"), |of| format_interval(of.low, of.high)),
        (Column::number("mean of all"), |of| format_percent(of.mean_percent)),
        (Column::number("least"), |of| format_percent(of.least_percent)),
        (Column::number("most"), |of| format_percent(of.most_percent)),
    ];
    let meaning = format!(
        "Shares of CPU time per hit in the {runs} runs of this experiment that this machine has made since {}. The \
         95 % interval here has what runs differ by in it; the one above holds for this run.",
        format_date(first.created_unix_s as i64)
    );
    let table = Table::of(fields, &summary.between_runs);
    let title = "Over several runs";
    Some(Section::titled("between-runs", title).table(table.columns, table.rows).notes([meaning]))
}

/// What must be done to know what runs differ by. `None` where it is known, or there are no shares.
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

/// `fourth`; only those that are told.
fn ordinal(run: usize) -> String {
    match run {
        1 => "first".to_owned(),
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        4 => "fourth".to_owned(),
        more => format!("{more}th"),
    }
}
