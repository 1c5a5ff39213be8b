//! Load experiments in numbers: each point by itself, and one record against another.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::bootstrap::{Column, Combination, RESAMPLES, SEED, estimate};
use super::curve::CurveSummary;
use super::log_on_curve::LogOnCurve;
use super::summary::{self, ConfigurationSummary};
use crate::histogram::{self, Percentiles, percentiles};
use crate::load::summary::Summary;
use crate::store::{Block, Record, Warning};

/// Fewer samples than this say nothing about how a run scatters.
pub const SAMPLES_MIN: usize = 5;
/// What [`compare`] compares of each pair.
pub const QUANTITIES: usize = 3;
/// The phases whose latency counts: of an open loop from the intended send time.
const PHASES: [&str; 2] = ["scheduled_response", "whole_response"];

/// A slice of a run, or a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Hits by elapsed time.
    pub hits_per_second: f64,
    /// Median latency, nanoseconds.
    pub latency_ns_p50: f64,
    /// The 99th percentile of the same.
    pub latency_ns_p99: f64,
}

/// The slices of a run in which something was served.
pub fn samples_of_run(run: &Summary) -> Vec<Sample> {
    let served = run.slices.iter().filter(|slice| slice.hits > 0);
    served
        .map(|slice| Sample {
            hits_per_second: slice.hits as f64 * 1e9 / slice.elapsed_ns.max(1) as f64,
            latency_ns_p50: slice.latency_ns_p50 as f64,
            latency_ns_p99: slice.latency_ns_p99 as f64,
        })
        .collect()
}

/// The samples of a configuration: the slices of its run, or its blocks. Empty where the record is of another kind.
pub fn samples(record: &Record, index: usize) -> Vec<Sample> {
    let Some(load) = &record.load else { return Vec::new() };
    if let Some(run) = load.runs.get(index) {
        return samples_of_run(run);
    }
    record.blocks.iter().filter(|block| block.configuration == index && block.valid).filter_map(sample_of).collect()
}

fn sample_of(block: &Block) -> Option<Sample> {
    let phase = PHASES.iter().find_map(|phase| block.phases.get(*phase))?;
    let latency = percentiles(&histogram::decode(phase)?);
    Some(Sample {
        hits_per_second: block.hits as f64 * 1e9 / block.elapsed_ns.max(1) as f64,
        latency_ns_p50: latency.p50 as f64,
        latency_ns_p99: latency.p99 as f64,
    })
}

/// A point of a load experiment.
#[derive(Clone, Debug, Serialize)]
pub struct PointSummary {
    /// Its name.
    pub name: String,
    /// Hits per second of elapsed time.
    pub hits_per_second: f64,
    /// Lower end of its 95 % interval; `null`: too few samples.
    pub hits_per_second_low: f64,
    /// Upper end.
    pub hits_per_second_high: f64,
    /// The client's CPU was full: hits per second are a lower bound.
    pub client_bound: bool,
    /// Completed requests.
    pub hits: u64,
    /// Full handshakes.
    pub handshakes_full: u64,
    /// Resumed handshakes.
    pub handshakes_resumed: u64,
    /// Failed requests and connections by kind.
    pub errors: BTreeMap<String, u64>,
    /// Latency of whole responses, of an open loop from the intended send time; `null` without a hit.
    pub latency_ns: Option<Percentiles>,
    /// What the reader must know about it.
    pub warnings: Vec<String>,
}

/// A load experiment.
#[derive(Clone, Debug)]
pub struct LoadSummary {
    /// The points, in the order of the record.
    pub points: Vec<PointSummary>,
    /// Curves over percent reuse; empty where the record is of something else.
    pub curves: Vec<CurveSummary>,
    /// A log laid over the curve by hits.
    pub log: Option<LogOnCurve>,
    /// Rounds measured.
    pub rounds: u32,
    /// The record's own warnings.
    pub warnings: Vec<Warning>,
}

impl LoadSummary {
    /// Sums a record up, if it is one of a load experiment.
    pub fn of(record: &Record) -> Option<LoadSummary> {
        record.load.as_ref()?;
        let summary = summary::Summary::of(record);
        let points = summary.configurations.into_iter().enumerate();
        let points = points.map(|(index, of)| point(record, index, of)).collect();
        let curves = CurveSummary::all(record);
        let log = LogOnCurve::of(record, &curves);
        Some(LoadSummary { points, curves, log, rounds: summary.rounds, warnings: record.warnings.clone() })
    }
}

fn point(record: &Record, index: usize, of: ConfigurationSummary) -> PointSummary {
    let column: Column = samples(record, index).iter().map(|sample| Some(sample.hits_per_second)).collect();
    let interval = estimate(&[column], &[Combination::column(0)], RESAMPLES, SEED)[0];
    let run = record.load.as_ref().and_then(|load| load.runs.get(index));
    PointSummary {
        // What a run printed is its whole throughput; over blocks it is the mean.
        hits_per_second: run.map_or(interval.value, |run| run.hits_per_second),
        hits_per_second_low: interval.low,
        hits_per_second_high: interval.high,
        latency_ns: PHASES.iter().find_map(|phase| of.latency_ns.get(*phase)).cloned(),
        warnings: run.map_or(of.warnings, |run| run.warnings.clone()),
        name: of.name,
        client_bound: of.client_bound,
        hits: of.hits,
        handshakes_full: of.handshakes_full,
        handshakes_resumed: of.handshakes_resumed,
        errors: of.errors,
    }
}

/// What the second is by comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// The whole interval is on the good side.
    Faster,
    /// The whole interval is on the bad side.
    Slower,
    /// The interval holds both, or what lies beyond is within the tolerance.
    Undecided,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Word::Faster => "faster",
            Word::Slower => "slower",
            Word::Undecided => "undecided",
        })
    }
}

/// One quantity of two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The point, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
    /// Its name.
    pub quantity: &'static str,
    /// Geometric mean over the samples of the first run; hits/s or nanoseconds.
    pub first: f64,
    /// The same of the second.
    pub second: f64,
    /// The second by the first, minus one, percent.
    pub change_percent: f64,
    /// Lower end of its 95 % interval.
    pub low_percent: f64,
    /// Upper end.
    pub high_percent: f64,
    /// In a word.
    pub word: Word,
}

/// Compares throughput and latencies of two runs; changes within `tolerance_percent` are no difference.
///
/// The means of logarithms are compared, so that the interval is one of the ratio: by the bootstrap of all reports,
/// over the samples of both runs. Slices of one run are not independent of each other where the server drifts: repeat
/// runs, or measure rounds, to see that.
///
/// # Errors
/// A run has too few samples; `names` says which run that is.
pub fn compare(
    first: &[Sample],
    second: &[Sample],
    names: [&str; 2],
    tolerance_percent: f64,
) -> Result<Vec<Comparison>> {
    for (samples, name) in [first, second].into_iter().zip(names) {
        let count = samples.len();
        ensure!(
            count >= SAMPLES_MIN,
            "the run of {name} has {count} slices with hits, but {SAMPLES_MIN} are needed to tell how it scatters; run \
             it longer"
        );
    }
    type Quantity = (&'static str, bool, fn(&Sample) -> f64);
    let quantities: [Quantity; QUANTITIES] = [
        ("hits/s", true, |sample| sample.hits_per_second),
        ("latency p50", false, |sample| sample.latency_ns_p50),
        ("latency p99", false, |sample| sample.latency_ns_p99),
    ];
    let compared = quantities.map(|(quantity, more_is_better, of)| {
        let values = |samples: &[Sample]| samples.iter().map(of).collect::<Vec<f64>>();
        comparison(quantity, more_is_better, &values(first), &values(second), tolerance_percent)
    });
    Ok(compared.into())
}

fn comparison(
    quantity: &'static str,
    more_is_better: bool,
    first: &[f64],
    second: &[f64],
    tolerance: f64,
) -> Comparison {
    // Nothing pairs a sample of one run with one of the other: each is a row of its own.
    let nothing = |samples: &[f64]| vec![None; samples.len()];
    let logarithms = |samples: &[f64]| -> Column { samples.iter().map(|value| Some(value.max(1e-9).ln())).collect() };
    let columns = [[logarithms(first), nothing(second)].concat(), [nothing(first), logarithms(second)].concat()];
    let difference = Combination { constant: 0.0, terms: vec![(1, 1.0), (0, -1.0)] };
    let wanted = [Combination::column(0), Combination::column(1), difference];
    let estimates = estimate(&columns, &wanted, RESAMPLES, SEED);
    let percent = |logarithm: f64| 100.0 * logarithm.exp_m1();
    let (low, high) = (percent(estimates[2].low), percent(estimates[2].high));
    let word = match (low > tolerance, high < -tolerance) {
        (false, false) => Word::Undecided,
        (bigger, _) if bigger == more_is_better => Word::Faster,
        _ => Word::Slower,
    };
    Comparison {
        point: None,
        quantity,
        first: estimates[0].value.exp(),
        second: estimates[1].value.exp(),
        change_percent: percent(estimates[2].value),
        low_percent: low,
        high_percent: high,
        word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(mean: f64) -> Vec<f64> {
        (0..50).map(|number| mean * (1.0 + 0.002 * f64::from(number % 5 - 2))).collect()
    }

    #[test]
    fn words_depend_on_the_direction_and_the_tolerance() {
        let word =
            |better, first, second, tolerance| comparison("x", better, &around(first), &around(second), tolerance).word;
        assert_eq!(word(true, 100.0, 110.0, 0.0), Word::Faster);
        assert_eq!(word(true, 100.0, 90.0, 0.0), Word::Slower);
        assert_eq!(word(false, 100.0, 110.0, 0.0), Word::Slower);
        assert_eq!(word(false, 100.0, 90.0, 0.0), Word::Faster);
        assert_eq!(word(true, 100.0, 98.0, 5.0), Word::Undecided);
        assert_eq!(word(true, 100.0, 100.02, 0.0), Word::Undecided);
    }

    #[test]
    fn the_interval_is_about_that_of_two_independent_samples() {
        // Standard error of a mean of 50 values with a deviation of 0.283 %: 0.04 %; of the difference 0.057 %.
        let found = comparison("x", true, &around(100.0), &around(101.0), 0.0);
        assert!((found.change_percent - 1.0).abs() < 1e-3, "{found:?}");
        let half = (found.high_percent - found.low_percent) / 2.0;
        assert!((0.08..0.2).contains(&half), "{found:?}");
        let few = [Sample { hits_per_second: 1.0, latency_ns_p50: 1.0, latency_ns_p99: 1.0 }; 4];
        assert!(compare(&few, &few, ["a", "b"], 0.0).unwrap_err().to_string().contains("4 slices"));
    }
}
