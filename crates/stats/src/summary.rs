//! What each configuration did, and what the reader must know before believing it.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;
use tlsdyno_base::histogram::{self, Percentiles, percentiles};
use tlsdyno_record::store::warning::{self, code};
use tlsdyno_record::store::{Block, Preflight, Record, Role, Warning};
use tlsdyno_tls::StageSet;

use super::bootstrap::{Column, Estimate, estimate_column};
use super::robust::trimmed_mean;
use super::rounds::Rounds;
use super::statement::{FEW_ROUNDS, Metric};

/// What one configuration did, over its usable blocks. Rates and costs are 20 % trimmed means over rounds with 95 %
/// intervals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConfigurationSummary {
    pub name: String,
    /// Name of the configuration of which this is a variant on another machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    pub noop: StageSet,
    #[serde(rename = "kind")]
    pub role: Role,
    pub blocks: u32,
    pub hits_per_second: Estimate,
    /// The client limited a block: hits per second are a lower bound.
    pub client_bound: bool,
    pub server_cpu_ns_per_hit: Estimate,
    pub client_cpu_ns_per_hit: f64,
    /// CPU time per hit of servers that the server needs beside it (HAProxy's backend, memcached, redis), nanoseconds;
    /// 0 without any.
    pub companion_cpu_ns_per_hit: f64,
    pub hits: u64,
    pub body_bytes: u64,
    pub connections: u64,
    pub handshakes_full: u64,
    /// Resumed handshakes (accepted by the server).
    pub handshakes_resumed: u64,
    pub hits_per_handshake: Option<f64>,
    pub hits_per_full_handshake: Option<f64>,
    /// Connections that the plan wanted to resume.
    pub resumed_intended: u64,
    /// Connections whose ClientHello carried a session.
    pub resumed_offered: u64,
    pub errors: BTreeMap<String, u64>,
    pub latency_ns: BTreeMap<String, Percentiles>,
    /// Whether its numbers may be used: its preflight passed, and a block, if there is any, passed its checks.
    pub valid: bool,
    /// There was no time to start it: nothing was measured.
    #[serde(skip)]
    pub is_left_out: bool,
    pub warnings: Vec<String>,
    /// Merged over blocks, nanoseconds, for curves.
    #[serde(skip)]
    pub phases: BTreeMap<String, Histogram<u64>>,
}

impl ConfigurationSummary {
    pub fn of(rounds: &Rounds, index: usize) -> ConfigurationSummary {
        let record = rounds.record();
        let configuration = &record.configurations[index];
        let rates: Column = rounds.cost(index, Metric::Throughput).into_iter().map(|ns| ns.map(f64::recip)).collect();
        let blocks = || rounds.of_configuration(index);
        let sum = |field: fn(&Block) -> u64| blocks().map(field).sum::<u64>();
        let each = |many: u64| (many > 0).then(|| sum(|block| block.hits) as f64 / many as f64);
        let mut errors = BTreeMap::new();
        for block in record.blocks.iter().filter(|block| block.configuration == index) {
            for (kind, count) in &block.errors {
                *errors.entry(kind.clone()).or_default() += count;
            }
        }
        let models = rounds.experiment().into_iter().flat_map(|experiment| &experiment.configurations);
        let base = models.into_iter().find(|model| model.name == configuration.name);
        let (full, resumed) = (sum(|block| block.handshakes_full), sum(|block| block.resumed_accepted));
        let phases = merge_phases(rounds, index);
        ConfigurationSummary {
            name: configuration.name.clone(),
            base: base.and_then(|model| model.base.clone()),
            noop: configuration.noop,
            role: configuration.role.clone(),
            blocks: blocks().count() as u32,
            hits_per_second: estimate_column(&rates).scaled(1e9),
            client_bound: rounds.client_bound(&[index]),
            server_cpu_ns_per_hit: rounds.rows(Metric::Cpu).estimate(&rounds.cost(index, Metric::Cpu)),
            client_cpu_ns_per_hit: mean_of(&rounds.client_cost(index)),
            companion_cpu_ns_per_hit: companion_cpu_ns(rounds, index),
            hits: sum(|block| block.hits),
            body_bytes: sum(|block| block.body_bytes),
            connections: sum(|block| block.connections),
            handshakes_full: full,
            handshakes_resumed: resumed,
            hits_per_handshake: each(full + resumed),
            hits_per_full_handshake: each(full),
            resumed_intended: sum(|block| block.resumed_intended),
            resumed_offered: sum(|block| block.resumed_offered),
            errors,
            latency_ns: phases.iter().map(|(phase, histogram)| (phase.clone(), percentiles(histogram))).collect(),
            valid: configuration.valid && !all_invalid(record, index),
            is_left_out: !configuration.valid && configuration.preflight == Preflight::default(),
            warnings: configuration_warnings(record, index).iter().map(Warning::to_string).collect(),
            phases,
        }
    }
}

fn mean_of(column: &Column) -> f64 {
    trimmed_mean(&column.iter().flatten().copied().collect::<Vec<f64>>()).unwrap_or(f64::NAN)
}

/// CPU time per hit of the servers beside the server, nanoseconds. Read at the ends of blocks, not of slices.
fn companion_cpu_ns(rounds: &Rounds, index: usize) -> f64 {
    let blocks = rounds.of_configuration(index).filter(|block| block.slices.is_empty());
    let (ns, hits) = blocks.fold((0, 0), |(ns, hits), block| (ns + block.companion_cpu_ns, hits + block.hits));
    ns as f64 / hits.max(1) as f64
}

pub fn all_invalid(record: &Record, index: usize) -> bool {
    let mut blocks = record.blocks.iter().filter(|block| block.configuration == index).peekable();
    blocks.peek().is_some() && blocks.all(|block| !block.valid)
}

/// A configuration's own warnings and those of its blocks, each code once. Counts are added up over the blocks. Other
/// texts of one code differ from block to block in their numbers only: the first one is said, the others counted.
pub fn configuration_warnings(record: &Record, index: usize) -> Vec<Warning> {
    let blocks = || record.blocks.iter().filter(|block| block.configuration == index);
    let with = |code: &'static str| blocks().filter(move |block| block.warnings.iter().any(|of| of.code == code));
    let mut warnings = record.configurations[index].warnings.clone();
    if with(code::REUSE).next().is_some() {
        let sum = |value: fn(&Block) -> u64| with(code::REUSE).map(value).sum();
        warnings.retain(|warning| warning.code != code::REUSE);
        warnings.push(warning::reuse(
            sum(|block| block.resumed_intended),
            sum(|block| block.resumed_offered),
            sum(|block| block.resumed_accepted),
        ));
    }
    warnings.extend(failures(with(code::ERRORS)));
    let mut others: BTreeMap<&str, (&Warning, u32)> = BTreeMap::new();
    let is_summed = |warning: &&Warning| [code::REUSE, code::ERRORS].contains(&warning.code.as_str());
    for warning in blocks().flat_map(|block| &block.warnings).filter(|warning| !is_summed(warning)) {
        others.entry(&warning.code).or_insert((warning, 0)).1 += 1;
    }
    warnings.extend(others.into_values().map(|(first, times)| match times {
        1 => first.clone(),
        _ => Warning { what: format!("{} (and {} more like it)", first.what, times - 1), ..first.clone() },
    }));
    warnings
}

/// The histograms of each phase over the usable blocks of a configuration. One that cannot be read is left out: a
/// latency curve less is better than no report, and the record still holds it.
pub fn merge_phases(rounds: &Rounds, index: usize) -> BTreeMap<String, Histogram<u64>> {
    let mut merged: BTreeMap<String, Histogram<u64>> = BTreeMap::new();
    for (phase, text) in rounds.of_configuration(index).flat_map(|block| &block.phases) {
        let Some(histogram) = histogram::decode(text) else {
            continue;
        };
        match merged.get_mut(phase) {
            // Adding only fails when the sum cannot hold the values; the target resizes itself.
            Some(sum) => sum.add(&histogram).unwrap_or_default(),
            None => {
                let mut first = histogram;
                first.auto(true);
                merged.insert(phase.clone(), first);
            }
        }
    }
    merged
}

/// Warns of fewer rounds than decide anything; `None` with as many.
pub fn few_rounds(record: &Record, rounds: u32) -> Option<Warning> {
    let what = format!(
        "only {rounds} complete {}: an interval from fewer than 5 is a rough guess, and nothing is called resolved",
        if rounds == 1 { "round" } else { "rounds" }
    );
    let warning = Warning::new("few_rounds", what).with_remedy(time_for(record, rounds, FEW_ROUNDS));
    (rounds < FEW_ROUNDS).then_some(warning)
}

/// Says how long to measure for `wanted` rounds or sweeps, by the time that those took which were measured.
pub fn time_for(record: &Record, measured: u32, wanted: u32) -> String {
    let begun_ns = record.blocks.iter().map(|block| block.started_ns).min().unwrap_or(0);
    let ended_ns = record.blocks.iter().map(|block| block.started_ns + block.elapsed_ns).max().unwrap_or(0);
    // One more, for the bound cuts the last one.
    let needed_s = (ended_ns - begun_ns) as f64 / 1e9 * f64::from(wanted + 1) / f64::from(measured.max(1));
    format!("Measure longer: --time {:.0} or more.", 10.0 * (needed_s / 10.0).ceil().max(1.0))
}

/// Warns of steal time above 2 % of the time of the machine's CPUs.
pub fn stolen(record: &Record) -> Option<Warning> {
    let steal_ns: u64 = record.blocks.iter().map(|block| block.steal_ns).sum();
    let elapsed_ns: u64 = record.blocks.iter().map(|block| block.elapsed_ns).sum();
    let available_ns = elapsed_ns.saturating_mul(u64::from(record.manifest.cpus.max(1)));
    // The clock that tells it ticks a hundred times a second.
    let what = format!(
        "the hypervisor took {:.1} CPU seconds in {:.1} seconds: hits per second suffer, CPU per hit less",
        steal_ns as f64 / 1e9,
        elapsed_ns as f64 / 1e9
    );
    let warning = || Warning::new("steal", what).with_remedy("Measure on a quieter or dedicated machine.");
    (steal_ns > available_ns / 50 && steal_ns >= 100_000_000).then(warning)
}

pub fn failures<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Vec<Warning> {
    let (mut requests, mut counts) = (0, BTreeMap::<&str, u64>::new());
    for block in blocks {
        requests += block.hits;
        for (kind, count) in &block.errors {
            *counts.entry(kind).or_default() += count;
        }
    }
    requests += counts.values().sum::<u64>();
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    counts.map(|(kind, count)| warning::errors(kind, count, requests)).collect()
}
