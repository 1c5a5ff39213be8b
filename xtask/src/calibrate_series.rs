//! `calibrate-series`: how often calibrations are right. Runs `tlsdyno doctor --calibrate` many times and holds A/A and
//! the injected costs against what must be shown: intervals that hold the truth, are narrow, and are not biased.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::progress::tell;
use crate::statistics::{mean_and_error, median};
use crate::tlsdyno;

/// How many calibrations of how many seconds, on which server.
#[derive(clap::Args)]
pub struct Series {
    /// Calibrations; at least two
    #[arg(long, value_name = "N", default_value_t = 40)]
    runs: usize,
    /// How long each takes; at least one second
    #[arg(long, value_name = "S", default_value_t = 20.0)]
    seconds: f64,
    /// The server that is calibrated on
    #[arg(long, value_name = "NAME", default_value = "nginx")]
    server: String,
    /// The type of its certificate
    #[arg(long = "cert", value_name = "TYPE", default_value = "p-256")]
    certificate: String,
}

/// What one calibration says of one injected cost.
#[derive(Clone, Copy, Deserialize)]
struct Recovered {
    injected_us: f64,
    measured_us: f64,
    low_us: f64,
    high_us: f64,
    /// What the same burn comes to in a bare server without the instrument; of A/A nothing.
    #[serde(default)]
    alone_us: f64,
}

impl Recovered {
    fn half_width_us(&self) -> f64 {
        (self.high_us - self.low_us) / 2.0
    }
}

/// A burn in a bare server.
#[derive(Deserialize)]
struct Alone {
    injected_us: f64,
    measured_us: f64,
}

/// The bars: of 40 intervals of A/A at least 36 hold 0; the median half-width is at most 5 µs; the mean bias is at most
/// the larger of 3 % and two standard errors. The truth of a burn is what it comes to in a bare server.
const HOLD_SHARE: f64 = 0.9;
const HALF_WIDTH_MAX_US: f64 = 5.0;
const BIAS_SHARE_MAX: f64 = 0.03;
const STANDARD_ERRORS: f64 = 2.0;

/// Runs the series and prints a Markdown table.
///
/// # Errors
/// A calibration fails, or a bar is missed.
pub fn run(series: &Series) -> Result<()> {
    ensure!(series.runs > 1 && series.seconds >= 1.0, "at least two runs of a second each");
    let tlsdyno = tlsdyno::built()?;
    // Not the user's store: these are no experiments of his.
    let place = tempfile::tempdir()?;
    let mut rows: Vec<Vec<Recovered>> = Vec::new();
    for number in 0..series.runs {
        tell(&format!("calibration {} of {}", number + 1, series.runs));
        let seconds = series.seconds.to_string();
        let mut command = Command::new(&tlsdyno);
        command
            .args(["doctor", "--calibrate", "--dry", "--json", "--slices", "0", "--time", &seconds])
            .args(["--server", &series.server, "--cert", &series.certificate])
            .env("TLSDYNO_STORE", place.path().join("store.sqlite"));
        let row = recovered(tlsdyno::json(&mut command)?)?;
        // What was measured is said at once: a series takes long, and may be cut short.
        tell("");
        eprintln!("{} of {}: {}", number + 1, series.runs, in_short(&row));
        rows.push(row);
    }
    eprintln!();
    let (text, missed) = table(&rows, series);
    print!("{text}");
    ensure!(missed == 0, "{missed} bars missed");
    Ok(())
}

/// Injected and measured costs with their half-widths, microseconds.
fn in_short(row: &[Recovered]) -> String {
    let one = |one: &Recovered| {
        let Recovered { injected_us, measured_us, alone_us, .. } = one;
        format!("{injected_us} → {measured_us:.1} ± {:.1}, alone {alone_us:.1}", one.half_width_us())
    };
    row.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn recovered(mut result: Value) -> Result<Vec<Recovered>> {
    let mut rows: Vec<Recovered> = serde_json::from_value(result["calibration"]["recovered"].take())
        .context("no calibration in what tlsdyno printed")?;
    let alone: Vec<Alone> = serde_json::from_value(result["alone"].take()).context("no burn alone")?;
    for row in rows.iter_mut().filter(|row| row.injected_us != 0.0) {
        let of_same = alone.iter().find(|alone| alone.injected_us == row.injected_us);
        row.alone_us = of_same.with_context(|| format!("no burn alone of {} µs", row.injected_us))?.measured_us;
    }
    Ok(rows)
}

/// The table, a row for each injected cost, and how many bars are missed.
fn table(rows: &[Vec<Recovered>], series: &Series) -> (String, usize) {
    let mut text = format!(
        "{} calibrations of {} s on {}, certificate {}\n\n",
        rows.len(),
        series.seconds,
        series.server,
        series.certificate
    );
    text += "| injected µs | mean µs | in a bare server µs | intervals that hold that | mean bias µs | standard error \
             µs | median half-width µs | |\n";
    text += "|---:|---:|---:|---:|---:|---:|---:|---|\n";
    let mut missed = 0;
    let most_misses = ((1.0 - HOLD_SHARE) * rows.len() as f64 + 1e-9).floor() as usize;
    for column in 0..rows[0].len() {
        let of: Vec<Recovered> = rows.iter().map(|row| row[column]).collect();
        let each = |figure: fn(&Recovered) -> f64| of.iter().map(figure).collect::<Vec<f64>>();
        let injected = of[0].injected_us;
        let (mean, _) = mean_and_error(&each(|one| one.measured_us));
        let (alone, _) = mean_and_error(&each(|one| one.alone_us));
        let (bias, error) = mean_and_error(&each(|one| one.measured_us - one.alone_us));
        let held = of.iter().filter(|one| one.low_us <= alone && alone <= one.high_us).count();
        let half_width = median(&each(Recovered::half_width_us));
        let misses = [
            injected == 0.0 && rows.len() - held > most_misses,
            injected > 0.0 && half_width > HALF_WIDTH_MAX_US,
            injected > 0.0 && bias.abs() > (BIAS_SHARE_MAX * injected).max(STANDARD_ERRORS * error),
        ];
        let missed_here = misses.iter().filter(|missed| **missed).count();
        missed += missed_here;
        let verdict = if missed_here == 0 { "met" } else { "MISSED" };
        let name = if injected == 0.0 { "0 (A/A)".to_owned() } else { injected.to_string() };
        let count = rows.len();
        text += &format!(
            "| {name} | {mean:.1} | {alone:.1} | {held} of {count} | {bias:+.1} | {error:.1} | {half_width:.1} | \
             {verdict} |\n"
        );
    }
    (text, missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_held_and_missed() {
        let (server, certificate) = ("nginx".to_owned(), "p-256".to_owned());
        let series = Series { runs: 40, seconds: 20.0, server, certificate };
        let row = |bias: f64| {
            [0.0, 50.0].map(|injected| Recovered {
                injected_us: injected,
                measured_us: injected + bias,
                low_us: injected + bias - 4.0,
                high_us: injected + bias + 4.0,
                alone_us: injected,
            })
        };
        let of = |biases: &[f64]| table(&biases.iter().map(|bias| row(*bias).to_vec()).collect::<Vec<_>>(), &series).1;
        assert_eq!(of(&[1.0, -1.0, 2.0, -2.0]), 0);
        // Intervals that miss the truth count for A/A, the bias for the injected cost.
        assert_eq!(of(&[5.0, 5.1, 5.2, 5.3]), 2);
    }
}
