//! `tlsdyno compare`: whether one load was faster than another, for people and for gates in continuous integration.

mod bencher;
mod servers;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use tlsdyno_ablation::page::compared as costs;
use tlsdyno_ablation::summary::{Summary as Costs, compared_shares};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::output;
use tlsdyno_record::model::{ChangeLimit, Experiment};
use tlsdyno_record::store::load_run::{FORMAT, Summary};
use tlsdyno_record::store::machine::unlike;
use tlsdyno_record::store::{Machine, OfKind, Record, Store};
use tlsdyno_report::markdown;
use tlsdyno_runner::kinds::flags::number;
use tlsdyno_runner::report::circumstances;
use tlsdyno_runner::report::document::{Document, Section};
use tlsdyno_runner::report::terminal::{self, Style};
use tlsdyno_stats::compared::{
    Comparison, Gate, RUN_TO_RUN_PERCENT, Sample, Word, gate, repeats, single_runs, verdict,
};
use tlsdyno_stats::statement::Direction;

use crate::LoadRecord;
use crate::compared::{self, Scatter};
use crate::summary::{LoadSummary, sample_of_point, sample_of_whole, samples, samples_of_run};

/// Compare loads: faster, slower or undecided; or the costs that two records of `ablate` tell
///
/// What is compared are files of `tlsdyno load --output FILE.json`, or records by their ids (`tlsdyno list`): several
/// repeats on either side of `--`, of which each run is one sample. With one run on each side only what no equal runs
/// differ by is called a difference. With --run two builds of a server are started side by side and loaded in turn.
///
/// Of two records of one experiment (`ablate`, `run`) each share of CPU time per hit is compared: bigger, smaller or
/// undecided.
///
/// Exit code 10: the second is slower in hits/s or in a latency; 0 otherwise, or with --strict 11 where nothing is
/// decided.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  for i in 1 2 3 4; do                  # take turns: what drifts meets both
    tlsdyno load https://localhost:8443/ -k --output a$i.json
    tlsdyno load https://localhost:9443/ -k --output b$i.json
  done
  tlsdyno compare a?.json -- b?.json --tolerance 2
  tlsdyno load https://localhost:8443/ -k --against https://localhost:9443/
  tlsdyno compare --run './nginx-old -p {dir} -c nginx.conf' --run './nginx-new -p {dir} -c nginx.conf'")]
pub struct Args {
    /// The earlier results: files, or ids of records; of two without `--` the second is the later one
    #[arg(value_name = "FIRST", required_unless_present = "run")]
    first: Vec<PathBuf>,

    /// The later results, behind `--`
    #[arg(last = true, value_name = "SECOND")]
    second: Vec<PathBuf>,

    #[command(flatten)]
    servers: servers::Servers,

    #[command(flatten)]
    gates: Gates,

    #[command(flatten)]
    shown: Shown,
}

/// What is shown of a comparison.
#[derive(Debug, clap::Args)]
struct Shown {
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,

    /// Print the table as Markdown, for a comment on a pull request
    #[arg(long, conflicts_with = "json")]
    markdown: bool,

    /// Also write the second load's values and changes to this file, in Bencher Metric Format (bencher.dev)
    #[arg(long, value_name = "FILE")]
    bencher: Option<PathBuf>,
}

/// What makes a comparison fail.
#[derive(Debug, clap::Args)]
pub struct Gates {
    /// Changes up to so many percent are no difference [default: 0; with --run 2, which two starts of one build may
    /// differ by]
    #[arg(long, value_name = "PERCENT")]
    #[arg(value_parser = number("a number of per cent from 0 to 1,000", 0.0..=1e3))]
    pub tolerance: Option<f64>,

    /// Exit code 11 where nothing is decided
    #[arg(long)]
    pub strict: bool,

    /// Fail with exit code 12 where a change is shown to be beyond this limit, for example 'cpu/hit > +3%',
    /// 'hits/s < -5%', 'p99 > +20%' or, counted, 'instructions > +1%' (several times); only the limits decide then
    #[arg(long, value_name = "LIMIT")]
    pub fail_if: Vec<ChangeLimit>,
}

impl Gates {
    /// Exit code after a comparison that was printed. Prints the limits on changes that are not kept.
    pub fn exit(&self, verdict: Word, comparisons: &[Comparison]) -> Exit {
        let mut end = match verdict {
            _ if !self.fail_if.is_empty() => Exit::Done,
            Word::Slower => Exit::Slower,
            Word::Undecided if self.strict => Exit::Undecided,
            Word::Faster | Word::Undecided => Exit::Done,
        };
        for of_limit in gate(&self.fail_if, comparisons) {
            let (said, of_it) = match of_limit {
                Gate::Kept => continue,
                Gate::Broken(said) => (said, Exit::Limit),
                Gate::Undecided(said) if self.strict && end == Exit::Done => (said, Exit::Undecided),
                Gate::Undecided(said) => (said, end),
            };
            tell!("tlsdyno: {said}");
            end = of_it;
        }
        end
    }
}

pub fn run(args: &Args) -> Result<Exit> {
    let tolerance = args.gates.tolerance.unwrap_or(0.0);
    if let Some(experiment) = args.servers.experiment()? {
        return servers::run(&experiment, &args.servers, &args.gates, &args.shown);
    }
    let (first, second) = sides(&args.first, &args.second).or_fault(Fault::Usage)?;
    if let Some(records) = of_shares(first, second).or_fault(Fault::Input)? {
        return compare_shares(&records, args, tolerance);
    }
    let read_all = |side: &[PathBuf]| side.iter().map(|which| read(which)).collect::<Result<Vec<_>>>();
    let (first, second) = (read_all(first).or_fault(Fault::Input)?, read_all(second).or_fault(Fault::Input)?);
    let (comparisons, remarks) = compare_all(&first, &second, tolerance).or_fault(Fault::Input)?;
    let verdict = verdict(&comparisons);
    let scatter = if first.len() == 1 && second.len() == 1 { Scatter::Slices } else { Scatter::Repeats };
    let object = json!({"format": 1, "verdict": verdict, "comparisons": comparisons, "warnings": remarks});
    let table = compared::table(&comparisons, scatter);
    print(&args.shown, &object, table, remarks, compared::sentence(&comparisons))?;
    args.shown.write(&comparisons)?;
    Ok(args.gates.exit(verdict, &comparisons))
}

impl Shown {
    /// Writes the file that was asked for.
    fn write(&self, comparisons: &[Comparison]) -> Result<()> {
        let Some(path) = &self.bencher else { return Ok(()) };
        std::fs::write(path, output::json_of(&bencher::metrics(comparisons))?).with_context(|| {
            format!("the metrics cannot be written to {}; choose another --bencher FILE", path.display())
        })
    }
}

fn print(shown: &Shown, object: &Value, table: Section, remarks: Vec<String>, sentence: String) -> Result<()> {
    let document =
        Document::from_sections([table, circumstances::warnings(remarks), Section::default().text(sentence)]);
    output::print(match (shown.json, shown.markdown) {
        (true, _) => output::json_of(object)?,
        (_, true) => markdown::text(&document),
        _ => terminal::text(&document, Style::of_stdout()),
    })
}

/// The files on either side of `--`; without it two files are one on each side.
fn sides<'a>(first: &'a [PathBuf], second: &'a [PathBuf]) -> Result<(&'a [PathBuf], &'a [PathBuf])> {
    match (first, second) {
        ([a, b], []) => Ok((std::slice::from_ref(a), std::slice::from_ref(b))),
        (_, []) => anyhow::bail!("say which results are the later ones: tlsdyno compare A1 A2 A3 -- B1 B2 B3"),
        both => Ok(both),
    }
}

/// `None`: `which` is a file, whose name contains a dot or a slash.
fn record(which: &Path) -> Result<Option<Record>> {
    let text = which.to_string_lossy();
    if which.exists() || text.contains(['.', '/']) {
        return Ok(None);
    }
    Ok(Some(Store::open_for_reading()?.load(&text)?))
}

/// Two records with shares; `None`: the arguments are something else.
fn of_shares(first: &[PathBuf], second: &[PathBuf]) -> Result<Option<[Record; 2]>> {
    let ([first], [second]) = (first, second) else { return Ok(None) };
    let both = record(first)?.zip(record(second)?);
    let is_of_stages = |of: &Record| matches!(of.kind_part.field(), "" | Experiment::FIELD);
    let tell_shares = |of: &(Record, Record)| is_of_stages(&of.0) && is_of_stages(&of.1);
    Ok(both.filter(tell_shares).map(<[Record; 2]>::from))
}

/// Compares the shares of two records, and prints.
fn compare_shares(records: &[Record; 2], args: &Args, tolerance: f64) -> Result<Exit> {
    let of_loads =
        [("--fail-if limits", !args.gates.fail_if.is_empty()), ("--bencher tells", args.shown.bencher.is_some())];
    if let Some((what, _)) = of_loads.iter().find(|(_, given)| *given) {
        return Err(anyhow!("{what} changes of loads, and these are other records")).or_fault(Fault::Usage);
    }
    let [first, second] = records.each_ref().map(Costs::of);
    let mut changes = compared_shares::compared(&first, &second, tolerance);
    let machines = records.each_ref().map(|record| record.manifest.machine.as_ref());
    if unlike(machines[0], machines[1]).is_some_and(|of| of.is_known) {
        // The shares are of each machine; a time is not compared.
        changes.retain(|change| change.stage != compared_shares::CPU_PER_HIT);
    }
    ensure!(!changes.is_empty(), "the records have no share in common");
    let remarks = circumstances::changed(&records[0], &records[1]);
    let undecided = changes.iter().all(|change| change.direction == Direction::Undecided);
    let object = json!({"format": 1, "shares": changes, "warnings": remarks});
    print(&args.shown, &object, costs::shares(&changes), remarks, costs::shares_sentence(&changes))?;
    Ok(if undecided && args.gates.strict { Exit::Undecided } else { Exit::Done })
}

/// A run, or a point of a record.
struct LoadResult {
    name: String,
    machine: Option<Machine>,
    slices: Vec<Sample>,
    /// All of it as one sample.
    whole: Option<Sample>,
    /// Output of the run; `None`: a point.
    run: Option<Summary>,
}

/// From a file by `tlsdyno load --output`, or a record by its id.
fn read(which: &Path) -> Result<Vec<LoadResult>> {
    let text = which.to_string_lossy();
    let Some(record) = record(which)? else {
        let run = read_file(which)?;
        let (slices, whole) = (samples_of_run(&run), sample_of_whole(&run));
        return Ok(vec![LoadResult {
            name: run.url.clone(),
            machine: run.machine.clone(),
            slices,
            whole,
            run: Some(run),
        }]);
    };
    let summary = LoadSummary::of(&record);
    let summary = summary.with_context(|| {
        format!("record {text} is not one of a load; of others two are compared, if both tell shares of CPU per hit")
    })?;
    let points = summary.points.iter().enumerate();
    Ok(points
        .map(|(index, point)| LoadResult {
            name: point.name.clone(),
            machine: record.manifest.machine.clone(),
            slices: samples(&record, index),
            whole: sample_of_point(point),
            run: record.kind_part.of::<LoadRecord>().and_then(|load| load.runs.get(index)).cloned(),
        })
        .collect())
}

fn read_file(path: &Path) -> Result<Summary> {
    let text = tlsdyno_base::input::text(path)?;
    let summary: Summary = serde_json::from_str(&text)
        .with_context(|| format!("{} is no result of `tlsdyno load --output FILE.json`", path.display()))?;
    ensure!(summary.format == FORMAT, "{} has format {}, this tlsdyno reads {FORMAT}", path.display(), summary.format);
    Ok(summary)
}

/// Compares every point that all results have, and collects warnings.
fn compare_all(
    first: &[Vec<LoadResult>],
    second: &[Vec<LoadResult>],
    tolerance: f64,
) -> Result<(Vec<Comparison>, Vec<String>)> {
    let results = || first.iter().chain(second);
    let alone = results().all(|points| points.len() == 1);
    let of = |points: &'_ Vec<LoadResult>, name: &str| points.iter().position(|point| alone || point.name == name);
    let (mut comparisons, mut remarks) = (Vec::new(), of_machines(results())?);
    for point in &first[0] {
        let side = |results: &'_ [Vec<LoadResult>]| -> Option<Vec<usize>> {
            results.iter().map(|points| of(points, &point.name)).collect()
        };
        let (Some(a), Some(b)) = (side(first), side(second)) else { continue };
        let pick = |results: &'_ [Vec<LoadResult>], places: &[usize]| -> Vec<Sample> {
            results.iter().zip(places).filter_map(|(points, place)| points[*place].whole).collect()
        };
        let found = match (&first, &second) {
            ([one], [other]) => {
                let (one, other) = (&one[a[0]], &other[b[0]]);
                single_runs(&one.slices, &other.slices, [&one.name, &other.name], tolerance)?
            }
            _ => repeats(&pick(first, &a), &pick(second, &b), tolerance),
        };
        let name = (!alone).then(|| point.name.clone());
        comparisons.extend(found.into_iter().map(|comparison| Comparison { point: name.clone(), ..comparison }));
        let runs = [("first", first, a), ("second", second, b)];
        for (which, results, places) in runs {
            for (number, (points, place)) in (1..).zip(results.iter().zip(places)) {
                let which =
                    if results.len() > 1 { format!("{which} side's run {number}") } else { format!("{which} run") };
                remarks.extend(point.run.iter().zip(&points[place].run).flat_map(|(a, b)| differences(a, b, &which)));
            }
        }
    }
    ensure!(!comparisons.is_empty(), "the results have no point in common");
    remarks.extend(of_design(first.len(), second.len()));
    let mut seen = std::collections::BTreeSet::new();
    remarks.retain(|remark| seen.insert(remark.clone()));
    Ok((comparisons, remarks))
}

/// What is not known of the machines of results. Those of unlike CPUs are refused: a gate would judge the machine.
fn of_machines<'a>(mut results: impl Iterator<Item = &'a Vec<LoadResult>>) -> Result<Vec<String>> {
    let machine = |points: &'a Vec<LoadResult>| points.first().and_then(|point| point.machine.as_ref());
    let first = results.next().and_then(machine);
    let unlike: Vec<_> = results.filter_map(|points| unlike(first, machine(points))).collect();
    unlike.iter().find(|of| of.is_known).map_or(Ok(()), |of| Err(anyhow!("{of}")))?;
    Ok(unlike.iter().map(ToString::to_string).collect())
}

/// Limits of a comparison of so many runs on either side.
fn of_design(first: usize, second: usize) -> Option<String> {
    match (first, second) {
        (1, 1) => Some(format!(
            "one run on each side does not show what equal runs differ by, so that only changes beyond \
             {RUN_TO_RUN_PERCENT} % are called one. Repeat both in turn (tlsdyno compare A1 A2 A3 -- B1 B2 B3), or \
             load them in turn in one go (tlsdyno load URL --against URL)"
        )),
        (1, _) | (_, 1) => Some("a side with one run has no scatter, so that nothing is decided. Repeat it".to_owned()),
        _ => None,
    }
}

/// Differences of a run's load from the first run's, and reasons to doubt it.
fn differences(first: &Summary, run: &Summary, which: &str) -> Vec<String> {
    let mut remarks = Vec::new();
    if (&first.effort, first.asked) != (&run.effort, run.asked) {
        remarks.push("effort, reuse or rate differ: these are different loads".to_owned());
    }
    if !first.outcome.negotiated.keys().eq(run.outcome.negotiated.keys()) {
        remarks.push("other TLS parameters were negotiated: version, suite or group changed".to_owned());
    }
    if !run.outcome.errors.is_empty() {
        remarks.push(format!("the {which} had errors"));
    }
    remarks.extend(run.warnings.iter().map(|warning| format!("the {which}: {warning}")));
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_of_unlike_cpus_are_not_compared() {
        let of = |machine: Option<&Machine>| {
            let machine = machine.cloned();
            vec![LoadResult { name: String::new(), machine, slices: Vec::new(), whole: None, run: None }]
        };
        let told = |first, second| of_machines([of(first), of(second)].iter());
        let plain = Machine::of_cpuinfo("flags: aes");
        let better = Machine::of_cpuinfo("flags: aes vaes");
        assert_eq!(told(Some(&plain), Some(&plain)).unwrap(), [""; 0]);
        assert!(told(Some(&plain), Some(&better)).unwrap_err().to_string().contains("only the second has vaes"));
        assert!(told(Some(&plain), None).unwrap()[0].contains("a record does not say"));
    }
}
