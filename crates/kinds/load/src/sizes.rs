//! Where a hit is its data more than its connection: the size of the object at which both cost the server as much. Two
//! ways of connecting are swept over sizes; the one that connects for every hit costs the connection more.

use serde::Serialize;
use tlsdyno_base::bootstrap::{Column, Estimate, RESAMPLES, SEED, estimate_function};
use tlsdyno_record::store::{Block, Record};
use tlsdyno_stats::rounds::Rounds;

use crate::LoadRecord;
use crate::file::{LoadExperiment, SIZES};

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Crossing {
    /// Bytes, interpolated between the measured sizes; infinite beyond them.
    pub bytes: Estimate,
}

impl Crossing {
    /// `None` unless the sweep has sizes and `close = [true, false]`.
    pub fn of(record: &Record) -> Option<Crossing> {
        let experiment = &record.kind_part.of::<LoadRecord>()?.experiment;
        let pairs = pairs(experiment)?;
        let rounds = Rounds::of(record);
        let cpu_ns = |block: &Block| {
            let is_known = block.server_cpu_ns > 0 && block.hits > 0;
            is_known.then(|| block.server_cpu_ns as f64 / block.hits as f64)
        };
        let of = |(_, points): &(u64, [usize; 2])| points.map(|point| rounds.values(point, cpu_ns));
        let columns: Vec<Column> = pairs.iter().flat_map(of).collect();
        let sizes: Vec<f64> = pairs.iter().map(|(bytes, _)| *bytes as f64).collect();
        let bytes = estimate_function(&columns, |costs| crossing(&sizes, costs), RESAMPLES, SEED);
        Some(Crossing { bytes })
    }
}

/// The sizes, ascending, each with the indices of its points: a connection for every hit, and kept connections.
fn pairs(experiment: &LoadExperiment) -> Option<Vec<(u64, [usize; 2])>> {
    let points = experiment.points();
    let swept = experiment.sweep.keys().map(String::as_str).eq(["close", SIZES]);
    let with = |bytes: u64, close: bool| {
        let is_it = |flags: &[String]| flags.iter().any(|flag| flag == "--close") == close;
        points.iter().position(|point| point.object_bytes == Some(bytes) && is_it(&point.flags))
    };
    let mut sizes: Vec<u64> = points.iter().filter_map(|point| point.object_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let pairs = sizes.into_iter().map(|bytes| Some((bytes, [with(bytes, true)?, with(bytes, false)?])));
    pairs.collect::<Option<Vec<_>>>().filter(|pairs| swept && pairs.len() > 1)
}

/// Size at which the cost of an object's bytes on a kept connection, beyond the smallest object, reaches the cost of
/// connecting. `costs`: for each size of a hit with connecting, and without; interpolated by a power law.
fn crossing(sizes: &[f64], costs: &[f64]) -> f64 {
    let least = costs[1];
    // Above 1 the data cost more.
    let ratio = |at: usize| (costs[2 * at + 1] - least).max(f64::MIN_POSITIVE) / (costs[2 * at] - costs[2 * at + 1]);
    let beyond = |at: &usize| ratio(*at) >= 1.0 || ratio(*at) < 0.0;
    let Some(at) = (1..sizes.len()).find(beyond) else { return f64::INFINITY };
    if at == 1 || ratio(at) < 0.0 {
        // The one before has no data to compare with.
        return if at == 1 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    let part = -ratio(at - 1).ln() / (ratio(at).ln() - ratio(at - 1).ln());
    sizes[at - 1] * (sizes[at] / sizes[at - 1]).powf(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 6] = [1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0];

    /// The crossing for a simulated cost of a connection and of a byte, ns.
    fn found(connection: f64, byte: f64) -> f64 {
        let of = |bytes: &f64| [40_000.0 + connection + byte * bytes, 40_000.0 + byte * bytes];
        crossing(&SIZES, &SIZES.iter().flat_map(of).collect::<Vec<f64>>())
    }

    #[test]
    fn it_lies_where_bytes_cost_what_a_connection_does() {
        for (connection, byte) in [(500_000.0, 2.0), (50_000.0, 0.8), (150_000.0, 3.0)] {
            let (expected, found) = (connection / byte + 1024.0, found(connection, byte));
            assert!((found / expected - 1.0).abs() < 0.02, "{found} instead of {expected}");
        }
        assert_eq!(found(500_000.0, 0.1), f64::INFINITY, "beyond a megabyte");
        assert_eq!(found(500_000.0, 0.0), f64::INFINITY);
        assert_eq!(found(100.0, 5.0), f64::NEG_INFINITY, "below the second size");
    }

    #[test]
    fn two_ways_of_connecting_are_paired_by_size() {
        let text = "question = \"q?\"\nurl = \"https://localhost/object\"\n[server]\n[sweep]\n\
                    object_bytes = [4096, 1024]\nclose = [true, false]\n";
        let experiment: LoadExperiment = toml::from_str(text).unwrap();
        assert_eq!(pairs(&experiment), Some(vec![(1024, [1, 3]), (4096, [0, 2])]));
        let experiment = LoadExperiment { sweep: Default::default(), ..experiment };
        assert_eq!(pairs(&experiment), None);
    }
}
