//! `tlsdyno compare`: whether one load run was faster than another, for people and for gates in continuous integration.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::load::compare::{Comparison, Word, compare};
use crate::load::summary::{FORMAT, Summary};
use crate::report::circumstances;
use crate::report::document::{Column, Content, Document, Field, Section, Table};
use crate::report::terminal::{self, Style};
use crate::units::{format_duration, format_interval_with, format_rate};

/// Compare two results of `tlsdyno load --output FILE.json`: faster, slower or undecided
///
/// The slices of the runs are compared; the interval (95 %) is that of the second run by the first. Exit code 10: the
/// second is slower in hits/s or in a latency; 0 otherwise, or with --strict 11 where nothing is decided.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  tlsdyno load https://localhost:8443/ -k --output before.json   # then change something
  tlsdyno load https://localhost:8443/ -k --output after.json
  tlsdyno compare before.json after.json --tolerance 2")]
pub struct Args {
    /// The earlier result
    first: PathBuf,

    /// The later result
    second: PathBuf,

    /// Changes up to so many percent are no difference
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    tolerance: f64,

    /// Exit code 11 where nothing is decided
    #[arg(long)]
    strict: bool,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Compares and prints.
pub fn run(args: &Args) -> Result<Exit> {
    ensure!(args.tolerance >= 0.0, "--tolerance must not be negative");
    let (first, second) = (read(&args.first).or_fault(Fault::Input)?, read(&args.second).or_fault(Fault::Input)?);
    let comparisons = compare(&first, &second, args.tolerance).or_fault(Fault::Input)?;
    let remarks = differences(&first, &second);
    let verdict = verdict(&comparisons);
    if args.json {
        let object =
            serde_json::json!({"format": 1, "verdict": verdict, "comparisons": comparisons, "warnings": remarks});
        println!("{object:#}");
    } else {
        let sections = [
            table(&comparisons),
            circumstances::warnings(remarks),
            Section::default().text(format!("the second is: {verdict}")),
        ];
        print!("{}", terminal::text(&Document::of(sections), Style::of_stdout()));
    }
    Ok(match verdict {
        Word::Slower => Exit::Slower,
        Word::Undecided if args.strict => Exit::Undecided,
        Word::Faster | Word::Undecided => Exit::Done,
    })
}

fn read(path: &Path) -> Result<Summary> {
    let text = std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    let summary: Summary = serde_json::from_str(&text)
        .with_context(|| format!("{} is no result of `tlsdyno load --output FILE.json`", path.display()))?;
    ensure!(summary.format == FORMAT, "{} has format {}, this tlsdyno reads {FORMAT}", path.display(), summary.format);
    Ok(summary)
}

/// Slower in anything is slower: a gate should not let a latency through for a gain in throughput.
fn verdict(comparisons: &[Comparison]) -> Word {
    let any = |word| comparisons.iter().any(|comparison| comparison.word == word);
    match (any(Word::Slower), any(Word::Faster)) {
        (true, _) => Word::Slower,
        (false, true) => Word::Faster,
        (false, false) => Word::Undecided,
    }
}

/// What makes the two runs different loads, or one of them doubtful.
fn differences(first: &Summary, second: &Summary) -> Vec<String> {
    let mut remarks = Vec::new();
    let asked = |summary: &Summary| {
        (
            summary.effort.clone(),
            summary.reuse_percent_asked,
            summary.rate_per_second_asked,
            summary.hits_per_handshake_asked,
        )
    };
    if asked(first) != asked(second) {
        remarks.push("effort, reuse or rate differ: these are different loads".to_owned());
    }
    if !first.negotiated.keys().eq(second.negotiated.keys()) {
        remarks.push("other TLS parameters were negotiated: version, suite or group changed".to_owned());
    }
    for (which, summary) in [("first", first), ("second", second)] {
        if !summary.errors.is_empty() {
            remarks.push(format!("the {which} run had errors"));
        }
        remarks.extend(summary.warnings.iter().map(|warning| format!("the {which} run: {warning}")));
    }
    remarks
}

fn table(comparisons: &[Comparison]) -> Section {
    let fields: [Field<Comparison>; 6] = [
        (Column::words(""), |of| of.quantity.to_owned()),
        (Column::number("first"), |of| value(of, of.first)),
        (Column::number("second"), |of| value(of, of.second)),
        (Column::number("change"), |of| signed(of.change_percent)),
        (Column::interval(), |of| format_interval_with(of.low_percent, of.high_percent, signed)),
        (Column::words(""), |of| of.word.to_string()),
    ];
    Section::default().with(Content::Table(Table::of(fields, comparisons)))
}

fn value(of: &Comparison, value: f64) -> String {
    if of.quantity == "hits/s" { format_rate(value) } else { format_duration(value) }
}

fn signed(percent: f64) -> String {
    format!("{percent:+.1} %")
}
