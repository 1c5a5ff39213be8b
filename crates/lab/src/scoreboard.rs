//! `tlsdyno scoreboard`: what became of the papers' claims, from records.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::output;
use tlsdyno_record::store;
use tlsdyno_runner::kinds::files;
use tlsdyno_runner::report::scoreboard::{self, Entry};
use tlsdyno_runner::report::{Style, html, terminal};

use crate::KINDS;

/// Show what became of the papers' claims: each with the paper's number, ours and its interval, from records
///
/// For example `tlsdyno scoreboard 3fd1 77ab --markdown`. Records of experiments without a paper's numbers say nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Records, as for `tlsdyno report`, or files that --json wrote
    #[arg(value_name = "RECORD", required_unless_present = "splice")]
    records: Vec<String>,
    /// Write it as one HTML page
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print Markdown tables
    #[arg(long)]
    markdown: bool,
    /// Print it as JSON, small enough to lie beside a page that quotes it
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Make the tables of these pages anew from the files that they name (docs/FORMAT.md)
    #[arg(long, value_name = "PAGE", num_args = 1.., conflicts_with_all = ["records", "markdown", "json", "output"])]
    splice: Vec<PathBuf>,
}

pub fn run(args: &Args) -> Result<Exit> {
    for page in &args.splice {
        splice(page).with_context(|| format!("in {}", page.display())).or_fault(Fault::Input)?;
    }
    if !args.splice.is_empty() {
        return Ok(Exit::Done);
    }
    let found = args.records.iter().map(|which| entries(which).with_context(|| format!("record {which}")));
    let found: Vec<Vec<Entry>> = found.collect::<Result<_>>().or_fault(Fault::Input)?;
    let entries: Vec<Entry> = found.into_iter().flatten().collect();
    let document = scoreboard::document(&entries);
    if let Some(path) = &args.output {
        std::fs::write(path, html::page(&document)?)
            .with_context(|| format!("failed to write {}; name another file with --output", path.display()))?;
    }
    output::print(match (args.markdown, args.json) {
        (true, _) => scoreboard::markdown(&entries),
        (_, true) => serde_json::to_string_pretty(&entries)? + "\n",
        _ => terminal::text(&document, Style::of_stdout()),
    })?;
    Ok(Exit::Done)
}

/// Entries of a record of any kind, or of a file that holds them already.
fn entries(which: &str) -> Result<Vec<Entry>> {
    let record = match store::find(which) {
        Ok(record) => record,
        Err(error) => return scoreboard::read(Path::new(which)).map_err(|_| error.into()),
    };
    let experiment = files::named_in(&record.manifest.command_line);
    Ok(Entry::of(&record, experiment, KINDS.summary(&record)?.beside_paper()).into_iter().collect())
}

fn splice(path: &Path) -> Result<()> {
    let page = std::fs::read_to_string(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let made = scoreboard::splice(&page, folder)?;
    if made != page {
        std::fs::write(path, made)?;
        tell!("Wrote {}.", path.display());
    }
    Ok(())
}
