//! `repeat-series`: whether an interval holds for another run. Runs one experiment again and again, in several sittings
//! if wanted, keeps the records, and counts how many intervals of each share hold the mean of all runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::progress::tell;
use crate::statistics::{extremes, mean_and_error, median};
use crate::tlsdyno;

/// Which experiment how often, and where its records stay.
#[derive(clap::Args)]
pub struct Series {
    /// Runs to add to those of earlier sittings; 0: only count
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: usize,
    /// How long each measures
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    seconds: f64,
    /// Where the records are; a series has a file of its own
    #[arg(long, value_name = "FILE", default_value = "target/repeat-series.sqlite")]
    store: PathBuf,
    /// Flags of `tlsdyno ablate`, or a file or name for `tlsdyno run` [default: ablate of nginx, RSA-2048, TLS 1.3,
    /// full handshakes]
    #[arg(last = true, value_name = "ARGUMENT")]
    experiment: Vec<String>,
}

/// What one run says of one share, per cent of the server's CPU time.
#[derive(Clone, Copy)]
struct Estimate {
    percent: f64,
    /// Ends of the interval of this run alone.
    low: f64,
    high: f64,
    /// Ends of the interval that is to hold for other runs too; the run's own until enough runs are known.
    others_low: f64,
    others_high: f64,
}

impl Estimate {
    fn half_width(self) -> f64 {
        (self.high - self.low) / 2.0
    }

    fn is_for_others(self) -> bool {
        self.others_low < self.low || self.others_high > self.high
    }
}

/// The shares of one run by name.
type Run = BTreeMap<String, Estimate>;

/// The bars: of 20 intervals at least 17 hold the mean of all runs, for each share of more than 3 %; 18 on average.
/// Judged is the interval that a reader is given for other runs.
const HOLD_SHARE: f64 = 0.85;
const HOLD_SHARE_ON_AVERAGE: f64 = 0.9;
const SHARE_LEAST_PERCENT: f64 = 3.0;

/// Runs the series and prints a Markdown table over all records of the store.
///
/// # Errors
/// A run fails, the store holds fewer than two runs, or a bar is missed.
pub fn run(series: &Series) -> Result<()> {
    let program = tlsdyno::built()?;
    let of = |series: &Series| {
        let mut tlsdyno = Command::new(&program);
        tlsdyno.env("TLSDYNO_STORE", &series.store);
        tlsdyno
    };
    for number in 0..series.runs {
        tell(&format!("run {} of {}", number + 1, series.runs));
        // An order of slices of its own for each run, of later sittings too.
        let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().to_string();
        let output = of(series).args(arguments(series)).args(["--no-report", "--seed", &seed]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "run {} of {}: {said}", number + 1, series.runs);
        let last = shares(of(series), "last")?;
        // What was measured is said at once: a series takes long, and may be cut short.
        tell("");
        eprintln!("{} of {}: {}", number + 1, series.runs, in_short(&last));
    }
    let listed = tlsdyno::json(of(series).args(["list", "--json"]))?;
    let ids = listed.as_array().context("the list is no array")?.iter().filter_map(|record| record["id"].as_str());
    let runs: Vec<Run> = ids.map(|id| shares(of(series), id)).collect::<Result<_>>()?;
    ensure!(runs.len() > 1, "{} holds {} runs; two at least can be compared", series.store.display(), runs.len());
    let (text, missed) = table(&runs);
    print!("{text}");
    ensure!(missed == 0, "{missed} bars missed");
    Ok(())
}

fn arguments(series: &Series) -> Vec<String> {
    let seconds = series.seconds.to_string();
    let default = ["--server", "nginx", "--cert", "rsa-2048", "--tls", "1.3", "--reuse", "0%"].map(str::to_owned);
    match series.experiment.as_slice() {
        [file, rest @ ..] if !file.starts_with('-') => {
            let own = ["run", file, "--time", &seconds].map(str::to_owned);
            [own.as_slice(), rest].concat()
        }
        flags => {
            let flags = if flags.is_empty() { default.as_slice() } else { flags };
            let own = ["ablate", "--until", "0", "--time", &seconds].map(str::to_owned);
            [own.as_slice(), flags].concat()
        }
    }
}

/// The shares of a record by CPU time, with the instrument.
fn shares(mut tlsdyno: Command, id: &str) -> Result<Run> {
    let report = tlsdyno::json(tlsdyno.args(["report", id, "--json"]))?;
    let list = |key: &str| report[key].as_array().map_or(&[][..], Vec::as_slice);
    let named = list("shares").iter().map(|share| (share["stage"].as_str().unwrap_or("?"), share));
    let instrument = list("instrument").iter().map(|one| ("instrument", one));
    let by_cpu = named.chain(instrument).filter(|(_, one)| one["metric"] == "cpu");
    by_cpu
        .map(|(name, one)| {
            let number = |key: &str| one[key].as_f64().with_context(|| format!("no {key} of {name} in record {id}"));
            let (percent, low, high) = (number("percent")?, number("low")?, number("high")?);
            let over_runs = list("between_runs").iter().find(|of| of["stage"] == name);
            let end = |key: &str, own: f64| over_runs.and_then(|of| of[key].as_f64()).unwrap_or(own);
            let (others_low, others_high) = (end("low", low), end("high", high));
            Ok((name.to_owned(), Estimate { percent, low, high, others_low, others_high }))
        })
        .collect()
}

fn in_short(run: &Run) -> String {
    let one = |(name, one): (&String, &Estimate)| format!("{name} {:.1} ± {:.1}", one.percent, one.half_width());
    run.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The table, a row for each share, and how many bars are missed.
fn table(runs: &[Run]) -> (String, usize) {
    let mut text = format!("{} runs; per cent of CPU time\n\n", runs.len());
    text += "| share | mean | standard deviation | least | most | own intervals that hold the mean | those for other \
             runs | half-width, median | widest | for other runs, median | |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n";
    let (mut missed, mut held_of_judged) = (0, Vec::new());
    for name in runs[0].keys() {
        let of: Vec<Estimate> = runs.iter().filter_map(|run| run.get(name).copied()).collect();
        if of.len() < 2 {
            continue;
        }
        let count = of.len();
        let percents: Vec<f64> = of.iter().map(|one| one.percent).collect();
        let (mean, error) = mean_and_error(&percents);
        let deviation = error * (count as f64).sqrt();
        let (least, most) = extremes(&percents);
        let held_alone = of.iter().filter(|one| one.low <= mean && mean <= one.high).count();
        let held = of.iter().filter(|one| one.others_low <= mean && mean <= one.others_high).count();
        let widths: Vec<f64> = of.iter().map(|one| one.half_width()).collect();
        let others = of.iter().filter(|one| one.is_for_others());
        let others: Vec<f64> = others.map(|one| (one.others_high - one.others_low) / 2.0).collect();
        let others = if others.is_empty() { "–".to_owned() } else { format!("{:.2}", median(&others)) };
        let verdict = if mean < SHARE_LEAST_PERCENT {
            ""
        } else {
            let share = held as f64 / count as f64;
            held_of_judged.push(share);
            missed += usize::from(share < HOLD_SHARE);
            if share < HOLD_SHARE { "MISSED" } else { "met" }
        };
        let (middle, widest) = (median(&widths), extremes(&widths).1);
        text += &format!(
            "| {name} | {mean:.2} | {deviation:.2} | {least:.1} | {most:.1} | {held_alone} of {count} | {held} of \
             {count} | {middle:.2} | {widest:.2} | {others} | {verdict} |\n"
        );
    }
    let average = held_of_judged.iter().sum::<f64>() / held_of_judged.len().max(1) as f64;
    missed += usize::from(average < HOLD_SHARE_ON_AVERAGE);
    let percent = average * 100.0;
    text += &format!("\nOf shares above {SHARE_LEAST_PERCENT} %, {percent:.0} % of the intervals hold the mean.\n");
    (text, missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_miss_the_mean_are_counted() {
        let run = |percent: f64, half: f64| {
            let (low, high) = (percent - half, percent + half);
            let one = Estimate { percent, low, high, others_low: low, others_high: high };
            let small = Estimate { percent: percent / 100.0, low: -9.0, high: -8.0, ..one };
            Run::from([("kdf".to_owned(), one), ("mac".to_owned(), small)])
        };
        let runs = |half: f64| [39.0, 40.0, 41.0].map(|percent| run(percent, half));
        assert_eq!(table(&runs(1.5)).1, 0);
        let (text, missed) = table(&runs(0.5));
        assert_eq!(missed, 2, "one share, and the average");
        let line = "| kdf | 40.00 | 1.00 | 39.0 | 41.0 | 1 of 3 | 1 of 3 | 0.50 | 0.50 | – | MISSED |";
        assert!(text.contains(line), "{text}");
        let wider = |run: &Run| {
            let with = |half: f64, one: &Estimate| {
                let (others_low, others_high) = (one.percent - half, one.percent + half);
                Estimate { others_low, others_high, ..*one }
            };
            run.iter().map(|(name, one)| (name.clone(), with(2.0, one))).collect::<Run>()
        };
        let (text, missed) = table(&runs(0.5).iter().map(wider).collect::<Vec<_>>());
        assert!(missed == 0 && text.contains("| 1 of 3 | 3 of 3 | 0.50 | 0.50 | 2.00 | met |"), "{text}");
        assert!(text.contains("| mac | 0.40 |"), "shares that are too small are not judged: {text}");
    }
}
