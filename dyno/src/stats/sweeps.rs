//! CPU per hit from slices: one value for each configuration and round, from those of its sweeps.
//!
//! A slice of a mode is compared with the slices of its host that stand nearest to it, before and after, at the moment
//! between them: what the machine did to all of them drops out. A server is compared with the untouched one by the
//! slices of both that stand nearest to each other. What a mode saves is then taken from the untouched server, so that
//! what provider and shim cost themselves is in no comparison but their own. The sweeps of a round share their servers,
//! so that rounds are what an interval is made from: starts of one server differ.

use std::collections::BTreeMap;

use super::bootstrap::Column;
use super::robust::trimmed_mean;
use crate::store::{Block, Kind, Record, Slice};

/// The costs of each configuration by round, nanoseconds per hit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SweepCosts {
    columns: Vec<Column>,
    sweeps: u32,
}

/// The slices of one configuration in one sweep: the middle of each, microseconds after the start, and its cost.
pub(super) type Points = Vec<(f64, f64)>;

/// With so many slices of another server, those that stand nearest, a slice is compared.
const NEAREST: usize = 3;

/// The slices of one sweep by configuration.
type Sweep = BTreeMap<usize, Points>;

impl SweepCosts {
    /// From usable blocks. `None`: there are no slices.
    pub(super) fn of<'a>(record: &Record, blocks: impl Iterator<Item = &'a Block>) -> Option<SweepCosts> {
        let mut rounds: BTreeMap<u32, BTreeMap<u32, Sweep>> = BTreeMap::new();
        for block in blocks {
            for slice in block.slices.iter().filter(|slice| slice.hits > 0) {
                let sweep = rounds.entry(block.round).or_default().entry(slice.sweep_number).or_default();
                sweep.entry(block.configuration).or_default().push(point(slice));
            }
        }
        let as_is = record.configurations.iter().position(|configuration| configuration.kind == Kind::AsIs)?;
        let rounds: Vec<Vec<Sweep>> = rounds.into_values().map(|sweeps| sweeps.into_values().collect()).collect();
        let column = |index: usize| {
            let host = record.configurations[index].host_number;
            rounds.iter().map(|sweeps| cost_in_round(sweeps, as_is, index, host)).collect()
        };
        let columns = (0..record.configurations.len()).map(column).collect();
        let sweeps = rounds.iter().map(Vec::len).sum::<usize>() as u32;
        (sweeps > 0).then_some(SweepCosts { columns, sweeps })
    }

    /// Those of one configuration.
    pub(super) fn of_configuration(&self, index: usize) -> &Column {
        &self.columns[index]
    }

    /// How many sweeps there were.
    pub(super) fn sweeps(&self) -> u32 {
        self.sweeps
    }
}

/// The cost of a configuration in a round, nanoseconds per hit: that of the untouched server, times the ratio of both.
fn cost_in_round(sweeps: &[Sweep], as_is: usize, index: usize, host: Option<usize>) -> Option<f64> {
    let of_as_is: Vec<f64> = sweeps.iter().filter_map(|sweep| mean_cost(sweep.get(&as_is)?)).collect();
    let ratio = match host {
        None if index == as_is => 1.0,
        None => ratio_to(sweeps, as_is, index)?,
        Some(host) => 1.0 - ratio_to(sweeps, as_is, host)? * saved_of_host(sweeps, host, index)?,
    };
    Some(trimmed_mean(&of_as_is)? * ratio)
}

/// The cost of a server as a multiple of the untouched one's: each slice of that is compared with those of the other
/// that stand nearest to it, since a machine changes within some tenths of a second.
fn ratio_to(sweeps: &[Sweep], as_is: usize, index: usize) -> Option<f64> {
    let of_sweep = |sweep: &Sweep| -> Vec<f64> {
        let (Some(of_as_is), Some(own)) = (sweep.get(&as_is), sweep.get(&index)) else { return Vec::new() };
        of_as_is.iter().filter_map(|(at, cost)| Some(mean_cost(&nearest(own, *at))? / cost)).collect()
    };
    trimmed_mean(&sweeps.iter().flat_map(of_sweep).collect::<Vec<_>>())
}

/// What a mode saves, as a part of its host's cost. Each slice is a value of its own: one that the machine disturbed is
/// left out without the others of its sweep.
fn saved_of_host(sweeps: &[Sweep], host: usize, index: usize) -> Option<f64> {
    let of_sweep = |sweep: &Sweep| -> Vec<f64> {
        let (Some(of_host), Some(own)) = (sweep.get(&host), sweep.get(&index)) else { return Vec::new() };
        own.iter().filter_map(|(at, cost)| Some(1.0 - cost / cost_at(of_host, *at)?)).collect()
    };
    trimmed_mean(&sweeps.iter().flat_map(of_sweep).collect::<Vec<_>>())
}

/// The points that stand nearest to a moment.
fn nearest(points: &Points, moment: f64) -> Points {
    let mut points = points.clone();
    points.sort_by(|a, b| (a.0 - moment).abs().total_cmp(&(b.0 - moment).abs()));
    points.truncate(NEAREST);
    points
}

/// A value in a round, where each sweep tells one: the cost of the base times the trimmed mean of the ratios to it.
/// What the machine does from sweep to sweep drops out of the ratios.
pub(super) fn value_in_round<S>(
    sweeps: &[S],
    base: impl Fn(&S) -> Option<f64>,
    cost: impl Fn(&S) -> Option<f64>,
) -> Option<f64> {
    let of_base: Vec<f64> = sweeps.iter().filter_map(&base).collect();
    let ratios: Vec<f64> = sweeps.iter().filter_map(|sweep| Some(cost(sweep)? / base(sweep)?)).collect();
    Some(trimmed_mean(&of_base)? * trimmed_mean(&ratios)?)
}

pub(super) fn point(slice: &Slice) -> (f64, f64) {
    let middle = slice.started_us as f64 + f64::from(slice.elapsed_us) / 2.0;
    (middle, slice.server_cpu_ns as f64 / f64::from(slice.hits))
}

pub(super) fn mean_cost(points: &Points) -> Option<f64> {
    (!points.is_empty()).then(|| points.iter().map(|(_, cost)| cost).sum::<f64>() / points.len() as f64)
}

/// What a mode saves against its host, on average over its slices.
pub(super) fn mean_saving(host: &Points, own: &Points) -> Option<f64> {
    let savings: Option<Vec<f64>> = own.iter().map(|(at, cost)| Some(cost_at(host, *at)? - cost)).collect();
    let savings = savings.filter(|savings| !savings.is_empty())?;
    Some(savings.iter().sum::<f64>() / savings.len() as f64)
}

/// The cost at a moment, on the line between the points before and after it; beyond the ends that of the nearest.
fn cost_at(points: &Points, at: f64) -> Option<f64> {
    let before = points.iter().filter(|point| point.0 <= at).max_by(|a, b| a.0.total_cmp(&b.0));
    let after = points.iter().filter(|point| point.0 > at).min_by(|a, b| a.0.total_cmp(&b.0));
    match (before, after) {
        (Some(before), Some(after)) => Some(before.1 + (after.1 - before.1) * (at - before.0) / (after.0 - before.0)),
        (one, other) => one.or(other).map(|point| point.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Configuration, Preflight};
    use tlsdyno_tls::{Stage, StageSet};

    fn record() -> Record {
        let configuration = |name: &str, kind, host| Configuration {
            name: name.to_owned(),
            noop: StageSet::NONE,
            kind,
            tls: true,
            host_number: host,
            preflight: Preflight::default(),
            valid: true,
            warnings: Vec::new(),
        };
        let mut record = Record::begun_now("?", 1);
        record.configurations = vec![
            configuration("as is", Kind::AsIs, None),
            configuration("no kdf", Kind::StageOff(Stage::Kdf), Some(2)),
            configuration("nothing off", Kind::Loaded, None),
        ];
        record
    }

    fn block(round: u32, configuration: usize, slices: &[(u32, u64, u64)]) -> Block {
        let slice = |&(sweep, started_us, cost_us): &(u32, u64, u64)| Slice {
            sweep_number: sweep,
            started_us,
            elapsed_us: 10_000,
            server_cpu_ns: cost_us * 10_000,
            hits: 10,
            handshakes_full: 10,
        };
        Block { round, configuration, slices: slices.iter().map(slice).collect(), ..Block::default() }
    }

    #[test]
    fn a_mode_is_compared_with_its_neighbours() {
        let blocks = [
            block(0, 0, &[(1, 0, 100)]),
            block(1, 0, &[(2, 200_000, 110)]),
            // The machine slows down by 10 µs per 20 ms.
            block(0, 2, &[(1, 20_000, 104), (1, 60_000, 124)]),
            block(1, 2, &[(2, 220_000, 110)]),
            block(0, 1, &[(1, 40_000, 57)]),
            block(1, 1, &[(2, 240_000, 99)]),
        ];
        let costs = SweepCosts::of(&record(), blocks.iter()).unwrap();
        let rounded = |index: usize| -> Vec<f64> {
            costs.of_configuration(index).iter().map(|cost| cost.unwrap().round()).collect()
        };
        assert_eq!(rounded(0), [100e3, 110e3]);
        assert_eq!(rounded(2), [114e3, 110e3]);
        // 114 at the time of the slice, 57 in it: half of 114 saved. Without a point behind it, the nearest counts.
        assert_eq!(rounded(1), [43e3, 99e3]);
    }

    #[test]
    fn servers_are_compared_where_they_stand_next_to_each_other() {
        // Within the sweep the machine becomes half as fast; the host costs a tenth more than the untouched server.
        let of_host: Vec<_> = (1..7).map(|number| (1, number * 20_000, if number < 4 { 110 } else { 220 })).collect();
        let blocks = [block(0, 0, &[(1, 0, 100), (1, 140_000, 200)]), block(0, 2, &of_host)];
        let costs = SweepCosts::of(&record(), blocks.iter()).unwrap();
        let ratio = costs.of_configuration(2)[0].unwrap() / costs.of_configuration(0)[0].unwrap();
        assert!((ratio - 1.1).abs() < 1e-9, "{ratio}");
    }

    #[test]
    fn a_disturbed_slice_is_left_out_without_its_sweep() {
        let of_host: Vec<_> = (0..6).map(|number| (1, number * 20_000, 100)).collect();
        let own = [(1, 10_000, 60), (1, 30_000, 60), (1, 50_000, 900), (1, 70_000, 60), (1, 90_000, 60)];
        let blocks = [block(0, 0, &[(1, 0, 100)]), block(0, 2, &of_host), block(0, 1, &own)];
        let costs = SweepCosts::of(&record(), blocks.iter()).unwrap();
        assert!((costs.of_configuration(1)[0].unwrap() - 60e3).abs() < 1e-6, "{costs:?}");
    }

    #[test]
    fn the_sweeps_of_a_round_are_one_value_of_ratios() {
        // The machine is half as fast in the second sweep.
        let blocks =
            [block(7, 0, &[(1, 0, 100), (2, 100_000, 200)]), block(7, 2, &[(1, 20_000, 110), (2, 120_000, 220)])];
        let costs = SweepCosts::of(&record(), blocks.iter()).unwrap();
        assert_eq!((costs.sweeps(), costs.of_configuration(0)), (2, &vec![Some(150e3)]));
        let of_host = costs.of_configuration(2)[0].unwrap();
        assert!((of_host - 165e3).abs() < 1e-6, "{of_host}");
    }

    #[test]
    fn a_sweep_that_lacks_one_side_says_nothing_of_the_other() {
        let blocks = [block(0, 0, &[(1, 0, 100)]), block(0, 2, &[(2, 0, 100)]), block(0, 1, &[(1, 0, 80), (2, 0, 80)])];
        let costs = SweepCosts::of(&record(), blocks.iter()).unwrap();
        assert_eq!(*costs.of_configuration(1), [None]);
        assert_eq!(SweepCosts::of(&record(), [Block::default()].iter()), None);
    }
}
