//! `tlsdyno report`: a record once more, as table, HTML, JSON or CSV.

use std::path::PathBuf;

use anyhow::{Context, Result};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::output;
use tlsdyno_record::store::{self, Record};

use crate::kinds::table::Table;
use crate::report::{Style, csv};

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

impl Args {
    /// The record named on the command line; [`Fault::Input`] if there is none.
    pub fn record(&self) -> Result<Record> {
        store::find(&self.record).or_fault(Fault::Input)
    }

    /// Prints and writes the record as the flags say.
    pub fn show(&self, kinds: &Table, record: &Record) -> Result<Exit> {
        let is_text = !self.json && !self.csv;
        let report = self.output.clone().or_else(|| is_text.then(|| PathBuf::from("report.html")));
        if let Some(path) = &report {
            std::fs::write(path, kinds.html(record)?)
                .with_context(|| format!("failed to write {}; name another file with --output", path.display()))?;
        }
        output::print(match (self.json, self.csv) {
            (true, _) => kinds.json_text(record)? + "\n",
            (_, true) => csv::blocks(record),
            _ => kinds.terminal_text(record, Style::of_stdout())?,
        })?;
        if let Some(path) = report {
            tell!("Wrote {}.", path.display());
        }
        Ok(Exit::Done)
    }
}
