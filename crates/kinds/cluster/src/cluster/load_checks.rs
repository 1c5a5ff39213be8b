//! What an open loop must agree with: a closed loop of all clients where it saturates, and one client alone where it is
//! light (Apostolopoulos et al. 2000, Figures 4 and 5).

use serde::Serialize;
use tlsdyno_base::histogram::{self, percentiles};
use tlsdyno_record::store::Block;
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::statement::{Metric, Ratio};

use crate::cluster::cell::{Cell, Role};

/// Phase whose latency counts from the time at which a request was due.
pub const DUE_PHASE: &str = "scheduled_response";

/// A line of an open loop beside what it must agree with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadCheck {
    /// The policy and the reuse of the line.
    pub line: String,
    /// Hits per second at the largest rate by those of a closed loop of all clients.
    pub saturation: Option<Ratio>,
    /// Median latency at the smallest rate by that of one client alone at that rate.
    pub light_latency: Option<Ratio>,
}

pub(super) fn all(rounds: &Rounds, cells: &[Cell]) -> Vec<LoadCheck> {
    let capacities = cells.iter().enumerate().filter(|(_, cell)| cell.role == Role::Capacity);
    capacities.map(|(index, capacity)| check(rounds, cells, index, capacity)).collect()
}

fn check(rounds: &Rounds, cells: &[Cell], capacity_at: usize, capacity: &Cell) -> LoadCheck {
    let of_line = |cell: &Cell| {
        Cell { rate_per_s: None, clients: capacity.clients, role: Role::Capacity, ..cell.clone() } == *capacity
    };
    let line = || cells.iter().enumerate().filter(|(_, cell)| of_line(cell));
    let rate = |cell: &Cell| cell.rate_per_s.unwrap_or(0.0);
    let points = || line().filter(|(_, cell)| cell.role == Role::Point);
    let fullest = points().max_by(|(_, a), (_, b)| rate(a).total_cmp(&rate(b)));
    let lightest = points().min_by(|(_, a), (_, b)| rate(a).total_cmp(&rate(b)));
    let alone = line().find(|(_, cell)| cell.role == Role::Alone);
    // What distinguishes the line from others.
    let lines: Vec<Cell> = cells.iter().filter(|cell| cell.role == Role::Capacity).cloned().collect();
    let name = Cell { role: Role::Point, ..capacity.clone() }.traffic(&lines);
    LoadCheck {
        line: format!("{}, {}", capacity.way_name(), name),
        saturation: fullest.and_then(|(index, _)| rounds.times(capacity_at, index, Metric::Throughput)),
        light_latency: alone.zip(lightest).and_then(|((alone, _), (light, _))| {
            Ratio::of_columns(&rounds.values(alone, median), &rounds.values(light, median))
        }),
    }
}

fn median(block: &Block) -> Option<f64> {
    let found = percentiles(&histogram::decode(block.phases.get(DUE_PHASE)?)?);
    (found.count > 0 && found.p50 > 0).then_some(found.p50 as f64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hdrhistogram::Histogram;

    use super::*;
    use crate::cluster::summary::ClusterSummary;
    use crate::cluster::summary::samples::{block, experiment, record};

    /// 100/s, then what checks it: half of the closed loop's hits, and a median one and a half times as long.
    #[test]
    fn saturation_and_light_load_are_told_by_what_they_must_agree_with() {
        let mut experiment = experiment(Some(100.0));
        experiment.traffic.checks = true;
        let mut record = record(experiment);
        let lasting = |ms: u64| {
            let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
            histogram.record_n(ms * 1_000_000, 100).unwrap();
            BTreeMap::from([(DUE_PHASE.to_owned(), histogram::encode(&histogram))])
        };
        for round in 0..6 {
            for (configuration, hits, ms) in [(0, 1000, 3), (1, 2000, 9), (2, 90, 2)] {
                record.blocks.push(Block { hits, phases: lasting(ms), ..block(configuration, round, 800) });
            }
        }
        let checks = ClusterSummary::of(&record).unwrap().checks;
        assert_eq!(checks.len(), 2, "a line for each policy");
        let found = &checks[0];
        assert_eq!(found.line, "round-robin, 80 % reuse");
        assert!((found.saturation.unwrap().times - 0.5).abs() < 1e-9, "{found:?}");
        assert!((found.light_latency.unwrap().times - 1.5).abs() < 0.01, "{found:?}");
        assert_eq!(checks[1].saturation, None, "nothing was measured of it");
    }
}
