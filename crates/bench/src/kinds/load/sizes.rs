//! Where a hit is its data more than its connection: the size of the object at which both cost the server as much. Two
//! ways of connecting are swept over sizes; the one that connects for every hit costs the connection more.

use serde::Serialize;
use tlsdyno_base::bootstrap::{Column, Estimate, RESAMPLES, SEED, estimate_function};
use tlsdyno_record::store::{Block, Record};
use tlsdyno_stats::rounds::Rounds;

use crate::kinds::load::LoadRecord;
use crate::kinds::load::file::{LoadExperiment, SIZES};

/// The size at which a hit's bytes cost as much as its connection with the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Crossing {
    /// Bytes, between the sizes that were measured; infinite where it is beyond them.
    pub bytes: Estimate,
}

impl Crossing {
    /// Of a record whose sweep has sizes and two ways of connecting, `close = [true, false]`; `None` of another.
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

/// The sizes, ascending, each with the places of its points: connecting for every hit, and over kept connections.
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

/// Where what the bytes of a kept connection cost beyond the smallest object reaches what a connection costs. `costs`
/// are those of a hit with a connection and without, for each size; between two sizes both grow by a power.
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

    /// What is found where a connection costs so much, and each byte so much, in ns.
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
