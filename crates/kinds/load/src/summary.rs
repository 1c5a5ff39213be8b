//! Load experiments in numbers: each point by itself. `compared` has one against another.

use std::collections::BTreeSet;

use anyhow::Result;
use serde::Serialize;
use tlsdyno_base::histogram::{self, Percentiles, percentiles};
use tlsdyno_engine::load::Slice;
use tlsdyno_record::store::load_run::Summary;
use tlsdyno_record::store::{Block, Record, Warning};
use tlsdyno_stats::ConfigurationSummary;
use tlsdyno_stats::bootstrap::{Column, Estimate, estimate_column};
use tlsdyno_stats::compared::{self, Comparison, Sample};
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::summary::few_rounds;

use crate::LoadRecord;
use crate::curve::log::LogOnCurve;
use crate::curve::summary::CurveSummary;
use crate::sizes::Crossing;

const PHASES: [&str; 2] = ["scheduled_response", "whole_response"];

/// `server_cpu_ns_per_hit`: nanoseconds; `None`: not known.
fn sample(hits_per_second: f64, latency: &Percentiles, server_cpu_ns_per_hit: Option<f64>) -> Sample {
    let (latency_ns_p50, latency_ns_p99) = (latency.p50 as f64, latency.p99 as f64);
    Sample { hits_per_second, latency_ns_p50, latency_ns_p99, server_cpu_ns_per_hit }
}

/// Slices of a run with at least one hit.
pub fn samples_of_run(run: &Summary) -> Vec<Sample> {
    let of_slice = |slice: &Slice| {
        let (p50, p99) = (slice.latency_ns_p50, slice.latency_ns_p99);
        let latency = Percentiles { p50, p99, ..Percentiles::default() };
        sample(slice.hits as f64 * 1e9 / slice.elapsed_ns.max(1) as f64, &latency, None)
    };
    run.outcome.slices.iter().filter(|slice| slice.hits > 0).map(of_slice).collect()
}

/// The whole run as one sample; `None` without a hit.
pub fn sample_of_whole(run: &Summary) -> Option<Sample> {
    let latency = run.latency().filter(|_| run.outcome.hits > 0)?;
    Some(sample(run.hits_per_second, latency, None))
}

/// The whole point as one sample; `None` without a hit.
pub fn sample_of_point(point: &ConfigurationSummary) -> Option<Sample> {
    let latency = latency(point).filter(|_| point.hits > 0)?;
    Some(sample(point.hits_per_second.value, latency, None))
}

/// Samples of two configurations in each round that has both.
fn paired(record: &Record, [first, second]: [usize; 2]) -> Vec<[Sample; 2]> {
    let of = |configuration: usize, round: u32| {
        let block = |block: &&Block| block.configuration == configuration && block.round == round && block.valid;
        record.blocks.iter().find(block).and_then(sample_of)
    };
    let rounds: BTreeSet<u32> = record.blocks.iter().map(|block| block.round).collect();
    rounds.into_iter().filter_map(|round| Some([of(first, round)?, of(second, round)?])).collect()
}

/// The slices of its run, or its blocks. Empty where the record is of another kind.
pub fn samples(record: &Record, index: usize) -> Vec<Sample> {
    let Some(load) = record.kind_part.of::<LoadRecord>() else { return Vec::new() };
    if let Some(run) = load.runs.get(index) {
        return samples_of_run(run);
    }
    record.blocks.iter().filter(|block| block.configuration == index && block.valid).filter_map(sample_of).collect()
}

fn sample_of(block: &Block) -> Option<Sample> {
    let phase = PHASES.iter().find_map(|phase| block.phases.get(*phase))?;
    let latency = percentiles(&histogram::decode(phase)?);
    let is_known = block.server_cpu_ns > 0 && block.hits > 0;
    let cpu_ns = is_known.then(|| block.server_cpu_ns as f64 / block.hits as f64);
    Some(sample(block.hits as f64 * 1e9 / block.elapsed_ns.max(1) as f64, &latency, cpu_ns))
}

#[derive(Clone, Debug, Serialize)]
pub struct LoadSummary {
    pub points: Vec<ConfigurationSummary>,
    /// Steepness of the surges of full handshakes of each point's one run, per second; empty where the course was not
    /// kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub surges_full_per_second: Vec<f64>,
    /// Curves over percent reuse; empty where the record has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<CurveSummary>,
    /// A log compared with the curve by hits.
    #[serde(rename = "log_on_curve", skip_serializing_if = "Option::is_none")]
    pub log: Option<LogOnCurve>,
    /// The second of two URLs that were loaded in turn, against the first.
    #[serde(rename = "comparisons", skip_serializing_if = "Vec::is_empty")]
    pub against: Vec<Comparison>,
    /// With sizes in the sweep: size at which the bytes cost as much as the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crossing: Option<Crossing>,
    #[serde(skip)]
    pub rounds: u32,
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

impl LoadSummary {
    /// Fails on a record of another kind.
    pub fn of(record: &Record) -> Result<LoadSummary> {
        let load = record.kind_part.understood::<LoadRecord>()?;
        let surges_full_per_second =
            if load.experiment.one_run { load.runs.iter().map(surge).collect() } else { Vec::new() };
        let rounds = Rounds::of(record);
        let indices = 0..record.configurations.len();
        let points = indices.map(|index| point(record, index, ConfigurationSummary::of(&rounds, index))).collect();
        let curves = CurveSummary::all(record);
        let log = LogOnCurve::of(record, &curves);
        let against =
            if load.experiment.against.is_some() { compared::rounds(&paired(record, [0, 1])) } else { Vec::new() };
        let rounds = rounds.told();
        let few = if load.runs.is_empty() { few_rounds(record, rounds) } else { None };
        let warnings = record.warnings.iter().cloned().chain(few).collect();
        let crossing = Crossing::of(record);
        Ok(LoadSummary { points, surges_full_per_second, curves, log, against, crossing, rounds, warnings })
    }
}

/// Adds numbers of the one run of a point.
fn point(record: &Record, index: usize, of: ConfigurationSummary) -> ConfigurationSummary {
    let column: Column = samples(record, index).iter().map(|sample| Some(sample.hits_per_second)).collect();
    let hits_per_second = estimate_column(&column);
    match record.kind_part.of::<LoadRecord>().and_then(|load| load.runs.get(index)) {
        // What a run printed is its whole throughput; over blocks it is the mean.
        Some(run) => ConfigurationSummary {
            hits_per_second: Estimate { value: run.hits_per_second, ..hits_per_second },
            warnings: run.warnings.clone(),
            ..of
        },
        None => ConfigurationSummary { hits_per_second, ..of },
    }
}

/// Maximum of full handshakes a second in two neighbouring slices. The first slice does not count: in it all clients
/// arrive.
fn surge(run: &Summary) -> f64 {
    let sum = |pair: &[Slice], of: fn(&Slice) -> u64| pair.iter().map(of).sum::<u64>() as f64;
    let full_per_second =
        |pair: &[Slice]| sum(pair, |slice| slice.handshakes_full) * 1e9 / sum(pair, |slice| slice.elapsed_ns).max(1.0);
    run.outcome.slices.windows(2).skip(1).map(full_per_second).fold(0.0, f64::max)
}

/// Of whole responses, in an open loop from the intended send time; `None` without a hit.
pub fn latency(of: &ConfigurationSummary) -> Option<&Percentiles> {
    PHASES.iter().find_map(|phase| of.latency_ns.get(*phase))
}
