//! `tlsdyno compare`: whether one load run was faster than another, for people and for gates in continuous integration.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::load::summary::{FORMAT, Summary};
use crate::report::circumstances;
use crate::report::document::{Cell, Column, Content, Document, Field, Section, Table, Tone};
use crate::report::terminal::{self, Style};
use crate::stats::load::{Comparison, QUANTITIES, Sample, Word, compare, samples, samples_of_run};
use crate::store::Store;
use crate::units::{format_duration, format_interval_with, format_rate};

/// Compare two load results, files of `tlsdyno load --output FILE.json` or records: faster, slower or undecided
///
/// The slices of the runs, or the blocks of each point, are compared; the interval (95 %) is that of the second by the
/// first. Exit code 10: the
/// second is slower in hits/s or in a latency; 0 otherwise, or with --strict 11 where nothing is decided.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  tlsdyno load https://localhost:8443/ -k --output before.json   # then change something
  tlsdyno load https://localhost:8443/ -k --output after.json
  tlsdyno compare before.json after.json --tolerance 2")]
pub struct Args {
    /// The earlier result: a file, or the id of a record (`tlsdyno list`)
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
    let pairs = pairs(&first, &second).or_fault(Fault::Input)?;
    let (mut comparisons, mut remarks) = (Vec::new(), Vec::new());
    for (a, b) in &pairs {
        let found = compare(&a.samples, &b.samples, [&a.name, &b.name], args.tolerance).or_fault(Fault::Input)?;
        let point = (pairs.len() > 1).then(|| a.name.clone());
        comparisons.extend(found.into_iter().map(|comparison| Comparison { point: point.clone(), ..comparison }));
        remarks.extend(a.run.as_ref().zip(b.run.as_ref()).into_iter().flat_map(|(a, b)| differences(a, b)));
    }
    let verdict = verdict(&comparisons);
    if args.json {
        let object =
            serde_json::json!({"format": 1, "verdict": verdict, "comparisons": comparisons, "warnings": remarks});
        super::print(super::json_of(&object)?)?;
    } else {
        let sections = [
            table(&comparisons),
            circumstances::warnings(remarks),
            Section::default().text(format!("the second is: {verdict}")),
        ];
        super::print(terminal::text(&Document::of(sections), Style::of_stdout()))?;
    }
    Ok(match verdict {
        Word::Slower => Exit::Slower,
        Word::Undecided if args.strict => Exit::Undecided,
        Word::Faster | Word::Undecided => Exit::Done,
    })
}

/// What is compared with its like.
struct Measured {
    name: String,
    samples: Vec<Sample>,
    /// What the run printed, where it was one.
    run: Option<Summary>,
}

/// A file that `tlsdyno load --output` wrote, or a record by its id.
fn read(which: &Path) -> Result<Vec<Measured>> {
    let text = which.to_string_lossy();
    // Ids hold no dot and no slash, so a file cannot be mistaken for one.
    if which.exists() || text.contains(['.', '/']) {
        let run = read_file(which)?;
        return Ok(vec![Measured { name: run.url.clone(), samples: samples_of_run(&run), run: Some(run) }]);
    }
    let record = Store::open_for_reading()?.load(&text)?;
    let load = record.load.as_ref();
    let load = load.with_context(|| format!("record {text} is not one of a load: `tlsdyno report {text}` shows it"))?;
    let points = record.configurations.iter().enumerate();
    Ok(points
        .map(|(index, of)| Measured {
            name: of.name.clone(),
            samples: samples(&record, index),
            run: load.runs.get(index).cloned(),
        })
        .collect())
}

fn read_file(path: &Path) -> Result<Summary> {
    let text = std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    let summary: Summary = serde_json::from_str(&text)
        .with_context(|| format!("{} is no result of `tlsdyno load --output FILE.json`", path.display()))?;
    ensure!(summary.format == FORMAT, "{} has format {}, this tlsdyno reads {FORMAT}", path.display(), summary.format);
    Ok(summary)
}

/// The points of both: of two that have one each these, whatever they are called.
fn pairs<'a>(first: &'a [Measured], second: &'a [Measured]) -> Result<Vec<(&'a Measured, &'a Measured)>> {
    if let ([first], [second]) = (first, second) {
        return Ok(vec![(first, second)]);
    }
    let partner = |point: &Measured| second.iter().find(|other| other.name == point.name);
    let pairs: Vec<_> = first.iter().filter_map(|point| Some((point, partner(point)?))).collect();
    ensure!(!pairs.is_empty(), "the two records have no point in common");
    Ok(pairs)
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
    let fields: [Field<Comparison>; _] = [
        (Column::words(""), |of| of.quantity.to_owned()),
        (Column::number("first"), |of| value(of, of.first)),
        (Column::number("second"), |of| value(of, of.second)),
        (Column::number("change"), |of| signed(of.change_percent)),
        (Column::interval(), |of| format_interval_with(of.low_percent, of.high_percent, signed)),
        (Column::words(""), |of| of.word.to_string()),
    ];
    let mut table = Table::of(fields, comparisons);
    for (number, comparison) in comparisons.iter().enumerate().rev().filter(|(number, _)| number % QUANTITIES == 0) {
        // A sweep's points stand above what is said of them.
        table.rows.splice(number..number, comparison.point.iter().map(|point| vec![point_cell(point)]));
    }
    Section::default().with(Content::Table(table))
}

fn point_cell(name: &str) -> Cell {
    Cell::from(name).toned(Tone::Strong)
}

fn value(of: &Comparison, value: f64) -> String {
    if of.quantity == "hits/s" { format_rate(value) } else { format_duration(value) }
}

fn signed(percent: f64) -> String {
    format!("{percent:+.1} %")
}
