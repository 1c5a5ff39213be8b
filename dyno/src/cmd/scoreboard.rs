//! `tlsdyno scoreboard`: what became of the papers' claims, from records.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::report::{Style, scoreboard, terminal};
use crate::store::Record;

/// Show what became of the papers' claims: each with the paper's number, ours and its interval, from records
///
/// For example `tlsdyno scoreboard 3fd1 77ab --markdown`. Records of experiments without a paper's numbers say nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Records, as for `tlsdyno report`
    #[arg(value_name = "RECORD", required = true)]
    records: Vec<String>,
    /// Write it as one HTML page
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print Markdown tables
    #[arg(long)]
    markdown: bool,
}

/// Prints and writes it.
pub fn run(args: &Args) -> Result<Exit> {
    let records: Vec<Record> = args
        .records
        .iter()
        .map(|which| super::report::find(which).with_context(|| format!("record {which}")).or_fault(Fault::Input))
        .collect::<Result<_>>()?;
    let document = scoreboard::document(&records);
    if let Some(path) = &args.output {
        std::fs::write(path, crate::report::html::page(&document)?)
            .with_context(|| format!("failed to write {}; name another file with --output", path.display()))?;
    }
    crate::output::print(match args.markdown {
        true => scoreboard::markdown(&records),
        false => terminal::text(&document, Style::of_stdout()),
    })?;
    Ok(Exit::Done)
}
