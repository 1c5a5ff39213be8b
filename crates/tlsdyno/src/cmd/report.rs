//! `tlsdyno report`: a record once more, as table, HTML, JSON or CSV.

use std::path::PathBuf;

use anyhow::Context;

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::kinds;
use crate::report::{Style, csv};
use crate::store;

/// Show a record again: print its table and write report.html, or print JSON or CSV
///
/// For example `tlsdyno report last -o nginx.html`, or `tlsdyno report 3fd1 --csv > blocks.csv`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A record: its id as in `tlsdyno list`, the beginning of one, `last`, or a file saved when the store failed
    #[arg(default_value = "last", value_name = "RECORD")]
    record: String,
    /// Write the HTML report to this file [default: report.html; with --json or --csv: none]
    #[arg(short, long, alias = "report", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the results as one JSON object (docs/FORMAT.md)
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the measured blocks as comma-separated values
    #[arg(long)]
    csv: bool,
}

/// Prints and writes what was asked for.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let record = store::find(&args.record).or_fault(Fault::Input)?;
    let output = args.output.clone().or_else(|| (!args.json && !args.csv).then(|| PathBuf::from("report.html")));
    if let Some(path) = &output {
        std::fs::write(path, kinds::html(&record)?)
            .with_context(|| format!("failed to write {}; name another file with --output", path.display()))?;
    }
    let text = if args.json {
        kinds::json_text(&record)? + "\n"
    } else if args.csv {
        csv::blocks(&record)
    } else {
        kinds::terminal_text(&record, Style::of_stdout())?
    };
    crate::output::print(text)?;
    if let Some(path) = output {
        tell!("Wrote {}.", path.display());
    }
    Ok(Exit::Done)
}
