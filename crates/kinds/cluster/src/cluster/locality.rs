//! What each cell of a plain cluster asked its backends for: working sets, and what a cache would miss.

use serde::Serialize;
use tlsdyno_record::store::{Block, Locality};
use tlsdyno_stats::Estimate;
use tlsdyno_stats::bootstrap::{Column, estimate_column, estimate_sum};
use tlsdyno_stats::rounds::Rounds;

/// Locality of one cell over its blocks. Misses are computed, from the access log of each backend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LocalitySummary {
    pub cache_bytes: u64,
    /// Different objects that a backend was asked for in a block, mean over the backends.
    pub objects: Estimate,
    /// Bytes of these different objects, mean over the backends.
    pub object_bytes: Estimate,
    /// Part of the requests that the caches would miss, per cent.
    pub miss_percent: Estimate,
    pub backends: Vec<BackendLocality>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BackendLocality {
    /// Requests, summed over the blocks.
    pub requests: u64,
    /// Requests that its cache would miss, summed over the blocks.
    pub misses: u64,
    /// Different objects in a block, mean over the blocks.
    pub objects: f64,
    /// Bytes of these different objects, mean over the blocks.
    pub object_bytes: f64,
}

impl BackendLocality {
    /// Part of its requests that its cache would miss, per cent; not a number without any.
    pub fn miss_percent(&self) -> f64 {
        100.0 * self.misses as f64 / self.requests as f64
    }
}

/// Its backends, where all of them logged their requests.
fn of_block(block: &Block) -> Option<Vec<Locality>> {
    let backends = &block.cluster.as_ref()?.backends;
    backends.iter().map(|backend| backend.locality).collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
}

impl LocalitySummary {
    /// Locality of one configuration over its blocks; `None` where no block has access logs.
    pub(super) fn of(rounds: &Rounds, index: usize) -> Option<LocalitySummary> {
        let blocks: Vec<Vec<Locality>> = rounds.of_configuration(index).filter_map(of_block).collect();
        let cache_bytes = blocks.first()?.first()?.cache_bytes;
        let sum = |all: &[Locality], field: fn(&Locality) -> u64| all.iter().map(field).sum::<u64>() as f64;
        let mean = |field| move |all: &[Locality]| sum(all, field) / all.len() as f64;
        let value = |of: &dyn Fn(&[Locality]) -> f64, factor: f64| {
            let column = rounds.values(index, |block| Some(of(&of_block(block)?)).filter(|value| value.is_finite()));
            estimate_column(&column).scaled(factor)
        };
        Some(LocalitySummary {
            cache_bytes,
            objects: value(&mean(|one: &Locality| one.objects), 1.0),
            object_bytes: value(&mean(|one: &Locality| one.object_bytes), 1.0),
            miss_percent: estimate_column(&missed_percent(rounds, index)),
            backends: each(&blocks),
        })
    }
}

/// Part of the requests of each round that the caches would miss, per cent.
fn missed_percent(rounds: &Rounds, index: usize) -> Column {
    let sum = |all: &[Locality], field: fn(&Locality) -> u64| all.iter().map(field).sum::<u64>() as f64;
    let missed = |all: Vec<Locality>| 100.0 * sum(&all, |one| one.misses) / sum(&all, |one| one.requests);
    rounds.values(index, |block| of_block(block).map(missed).filter(|percent| percent.is_finite()))
}

/// How much more of the requests the caches would miss than those of the baseline in the same rounds, in percentage
/// points. `None` without access logs of both.
pub(super) fn more_missed_points(rounds: &Rounds, baseline: usize, index: usize) -> Option<Estimate> {
    let [less, more] = [baseline, index].map(|index| missed_percent(rounds, index));
    let points = estimate_sum(&[(&more, 1.0), (&less, -1.0)]);
    points.value.is_finite().then_some(points)
}

fn each(blocks: &[Vec<Locality>]) -> Vec<BackendLocality> {
    let mut each = vec![BackendLocality::default(); blocks.first().map_or(0, Vec::len)];
    for block in blocks {
        for (total, one) in each.iter_mut().zip(block) {
            total.requests += one.requests;
            total.misses += one.misses;
            total.objects += one.objects as f64 / blocks.len() as f64;
            total.object_bytes += one.object_bytes as f64 / blocks.len() as f64;
        }
    }
    each
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::summary::ClusterSummary;
    use crate::cluster::summary::samples::{block, experiment, record};

    #[test]
    fn blocks_without_logs_are_in_no_mean() {
        let mut record = record(experiment(None));
        let logged = |round, objects| {
            let mut block = block(1, round, 0);
            for (number, backend) in (1..).zip(&mut block.cluster.as_mut().unwrap().backends) {
                let misses = 10 * number;
                backend.locality =
                    Some(Locality { requests: 100, objects, object_bytes: 1000 * objects, misses, cache_bytes: 5000 });
            }
            block
        };
        record.blocks = vec![logged(0, 10), logged(1, 20), block(1, 2, 0), block(0, 0, 0)];
        let summary = ClusterSummary::of(&record).unwrap();
        assert_eq!(summary.cells[0].locality, None);
        let found = summary.cells[1].locality.as_ref().unwrap();
        assert_eq!((found.cache_bytes, found.objects.value, found.object_bytes.value), (5000, 15.0, 15_000.0));
        assert!((found.miss_percent.value - 15.0).abs() < 1e-9);
        let [first, second] = found.backends[..] else { panic!("{found:?}") };
        assert_eq!((first.requests, first.misses, first.objects, second.miss_percent()), (200, 20, 15.0, 20.0));
    }

    /// Caches fill from round to round, by far more than policies differ: the pairs tell what intervals of each do not.
    #[test]
    fn misses_are_compared_in_the_same_rounds() {
        let mut record = record(experiment(None));
        let logged = |configuration, round: u32, misses| {
            let mut block = block(configuration, round, 0);
            for backend in &mut block.cluster.as_mut().unwrap().backends {
                let cache_bytes = 5000;
                backend.locality =
                    Some(Locality { requests: 100, objects: 9, object_bytes: 9000, misses, cache_bytes });
            }
            block
        };
        let round =
            |round: u32| [logged(0, round, 80 - 9 * u64::from(round)), logged(1, round, 68 - 9 * u64::from(round))];
        record.blocks = (0..6).flat_map(round).collect();
        let summary = ClusterSummary::of(&record).unwrap();
        let [first, second] = [0, 1].map(|index| summary.cells[index].locality.as_ref().unwrap().miss_percent);
        assert!(second.high > first.low, "{first:?} {second:?}");
        let more = summary.cells[1].against.as_ref().unwrap().more_missed_points.unwrap();
        assert!((more.value + 12.0).abs() < 1e-9 && more.high < -11.9, "{more:?}");
    }
}
