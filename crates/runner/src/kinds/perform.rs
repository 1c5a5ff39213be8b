//! Running an experiment of any kind and showing its result.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use tlsdyno_base::exit::{self, Exit};
use tlsdyno_base::interrupt;
use tlsdyno_record::store::Record;
use tlsdyno_record::store::warning::code;
use tlsdyno_report::markdown;

use super::{AnyExperiment, AnySummary, Kind, Progress};
use crate::report::document::Document;
use crate::report::{Style, html, terminal};
use crate::run::runner::Finished;

/// Where results go, and what else can be done with an experiment.
#[derive(clap::Args, Clone, Debug)]
pub struct OutputArgs {
    /// Where results go.
    #[command(flatten)]
    pub results: ResultArgs,
    /// Print the experiment as TOML and run nothing
    #[arg(long, help_heading = "Output")]
    pub print_experiment: bool,
}

/// Where results go.
#[derive(clap::Args, Clone, Debug)]
pub struct ResultArgs {
    /// Print one JSON object (docs/FORMAT.md) instead of the table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print the table as Markdown, to be pasted into an issue
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub markdown: bool,
    /// Where the report goes; if it cannot be written there, nothing is measured and the exit code is 1
    #[arg(long, alias = "output", value_name = "FILE", default_value = "report.html", help_heading = "Output")]
    report: PathBuf,
    /// Write no report
    #[arg(long, help_heading = "Output")]
    no_report: bool,
}

impl ResultArgs {
    /// `report`: path of the report; `None`: no report.
    pub fn of(json: bool, report: Option<PathBuf>) -> ResultArgs {
        ResultArgs { json, markdown: false, no_report: report.is_none(), report: report.unwrap_or_default() }
    }

    /// `None`: no report is wanted.
    pub fn report(&self) -> Option<&Path> {
        (!self.no_report).then_some(self.report.as_path())
    }
}

/// Runs an experiment that was checked and shows its result, or prints it as TOML, as `output` says.
pub fn perform(
    experiment: &dyn AnyExperiment,
    output: &OutputArgs,
    run: &dyn Fn(&AtomicBool, &mut Progress) -> Result<Finished>,
) -> Result<Exit> {
    if output.print_experiment {
        return tlsdyno_base::output::answer(experiment.to_toml()?);
    }
    perform_and_keep(experiment.kind(), &output.results, run, None).map(|(exit, _)| exit)
}

/// Makes the document that is shown in place of a record's own.
pub type Shown<'a> = dyn Fn(&Record, &dyn AnySummary) -> Document + 'a;

/// As [`perform`], and returns the result. `document`: shown in place of the record's own.
pub fn perform_and_keep(
    kind: &'static dyn Kind,
    output: &ResultArgs,
    run: &dyn Fn(&AtomicBool, &mut Progress) -> Result<Finished>,
    document: Option<&Shown>,
) -> Result<(Exit, Record)> {
    output.report().map_or(Ok(()), refuse_unwritable)?;
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    let mut progress = Progress::of(kind);
    let result = run(&stop, &mut progress);
    progress.clear();
    let finished = result?;
    let record = &finished.record;
    // Once for all that is shown: it takes long for many rounds.
    let summary = kind.summary(record)?;
    let document = document.map_or_else(|| summary.document(record), |document| document(record, summary.as_ref()));
    show(&document, output, || Ok(summary.json(record)))?;
    Ok((exit_of(&finished, summary.as_ref()), finished.record))
}

/// Shows a result as `output` says: a report file, and a table or Markdown or `json`.
pub fn show(document: &Document, output: &ResultArgs, json: impl FnOnce() -> Result<String>) -> Result<()> {
    let report = output.report();
    // The file first: who closes the pipe of the table still gets the report. A report that fails does not cost the
    // table.
    let written = report.map_or(Ok(()), |path| write_report(document, path));
    let mut text = match (output.json, output.markdown) {
        (true, _) => json()? + "\n",
        (false, true) => markdown::text(document),
        (false, false) => terminal::text(document, Style::of_stdout()),
    };
    if let Some(path) = report.filter(|_| written.is_ok() && !output.json && !output.markdown) {
        text.push_str(&format!("\nReport: {}\n", path.display()));
    }
    tlsdyno_base::output::print(text)?;
    written
}

fn write_report(document: &Document, path: &Path) -> Result<()> {
    std::fs::write(path, html::page(document)?).with_context(|| {
        format!("failed to write the report {}; `tlsdyno report` writes it again from the store", path.display())
    })
}

/// Exit code by whether the record holds what was asked for. The result's warnings have said what failed.
fn exit_of(finished: &Finished, summary: &dyn AnySummary) -> Exit {
    let record = &finished.record;
    let invalid = record.configurations.iter().any(|configuration| !configuration.valid)
        || record.blocks.iter().any(|block| !block.valid)
        || record.warnings.iter().any(|warning| warning.code == code::MISSED)
        || summary.is_contradicted(record);
    match &finished.cut_short {
        Some(error) => exit::code_of(error),
        // What was not kept cannot be looked at again, so that it is told before what was not as asked.
        None if !finished.stored => Exit::Store,
        None if invalid => Exit::Invalid,
        None => Exit::Done,
    }
}

/// Checks before minutes of measuring that the report can be written.
pub fn refuse_unwritable(path: &Path) -> Result<()> {
    let existed = path.exists();
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("the report cannot be written to {}; choose another --report FILE", path.display()))?;
    if !existed {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}
