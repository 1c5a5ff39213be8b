//! What second computations cost a server under somebody else's traffic: least squares over intervals of 20 to 100 ms.
//!
//! The CPU time of an interval is what its handshakes, records and bytes take, and what was computed twice in it. The
//! doubler counts all of them, so that nothing need be known of the traffic. Modes change at random: whatever else
//! varies is the same with and without.

use std::collections::BTreeMap;
use std::iter;

use serde::Serialize;
use tlsdyno_base::least_squares;
use tlsdyno_record::store::{Interval, Record, of_interval};
use tlsdyno_stats::bootstrap::{Estimate, RESAMPLES, SEED, resample};
use tlsdyno_tls::{Stage, StageSet};

use super::methods::name;

/// Length of a group of intervals that resampling keeps together, microseconds: traffic varies over seconds.
const GROUP_US: u64 = 2_000_000;
const GROUPS_LEAST: usize = 5;
/// Number of resamples, fewer than usual: each needs a regression.
const DRAWN: usize = RESAMPLES / 5;

/// Regression of the server's CPU time on its traffic and on the work that doubling added.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Traffic {
    pub stages: Vec<TrafficShare>,
    pub intervals: u64,
    pub server_cpu_ns: u64,
    /// Counted by the doubler.
    pub handshakes_full: u64,
    pub record_bytes: u64,
    /// CPU time that doubling added, per cent of the CPU time without it.
    pub added_percent: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrafficShare {
    /// A stage, or `record_protection`.
    pub stage: String,
    /// Per cent of the server's CPU time without what was added.
    pub percent: Estimate,
    pub ns_per_call: f64,
    pub calls: u64,
}

/// Sums over some intervals: of the normal equations, and totals.
#[derive(Clone, Debug)]
struct Sums {
    products: Vec<Vec<f64>>,
    with_cpu: Vec<f64>,
    cpu_ns: f64,
    totals: Vec<f64>,
}

/// Number of regressors without doubling: time, and all counters.
const USUAL: usize = 1 + of_interval::CALLS;
const REGRESSORS: usize = USUAL + of_interval::CALLS + 1;
const COPIES: usize = REGRESSORS - 1;

impl Traffic {
    pub fn of(record: &Record) -> Option<Traffic> {
        let mut groups: BTreeMap<u64, Sums> = BTreeMap::new();
        let mut intervals = 0;
        for interval in record.blocks.iter().flat_map(|block| &block.intervals) {
            groups.entry(interval.started_us / GROUP_US).or_insert_with(Sums::none).add_interval(interval);
            intervals += 1;
        }
        let groups: Vec<Sums> = groups.into_values().collect();
        let all = Sums::of(groups.iter());
        let coefficients = all.solved()?;
        let sets = doubled_sets(&all);
        let point = shares(&all, &coefficients, &sets);
        let drawn = resampled(&groups, &sets);
        let without = all.without_added(&coefficients);
        let share = |(at, (stages, kinds)): (usize, &(StageSet, Vec<usize>))| {
            let calls = all.totals[1 + kinds[0]];
            let percent = match groups.len() {
                0..GROUPS_LEAST => Estimate::without_interval(point[at]),
                units => Estimate::of_resamples(point[at], drawn.iter().map(|shares| shares[at]).collect(), units),
            };
            let ns_per_call = point[at] / 100.0 * without / calls.max(1.0);
            TrafficShare { stage: name(*stages), percent, ns_per_call, calls: calls as u64 }
        };
        let stages = sets.iter().enumerate().map(share).collect();
        Some(Traffic {
            stages,
            intervals,
            server_cpu_ns: all.cpu_ns as u64,
            handshakes_full: all.totals[1 + of_interval::of(Stage::Authentication)] as u64,
            record_bytes: all.totals[1 + of_interval::BYTES] as u64,
            added_percent: 100.0 * (all.cpu_ns - without) / without,
        })
    }
}

fn doubled_sets(all: &Sums) -> Vec<(StageSet, Vec<usize>)> {
    let of_stage = |stage| {
        let bytes = (stage == Stage::Cipher).then_some(of_interval::BYTES);
        iter::once(of_interval::of(stage)).chain(bytes)
    };
    let kinds = StageSet::groups().map(|stages| (stages, stages.iter().flat_map(of_stage).collect::<Vec<usize>>()));
    kinds.filter(|(_, kinds)| all.totals[USUAL + kinds[0]] > 0.0).collect()
}

/// Per cent of the CPU time without what doubling added.
fn shares(sums: &Sums, coefficients: &[f64], sets: &[(StageSet, Vec<usize>)]) -> Vec<f64> {
    let without = sums.without_added(coefficients);
    let share = |(stages, kinds): &(StageSet, Vec<usize>)| {
        let computed: f64 = kinds.iter().map(|kind| coefficients[USUAL + kind] * sums.totals[1 + kind]).sum();
        let records = sums.totals[1 + of_interval::of(Stage::Cipher)];
        let copied = if stages.contains(Stage::Cipher) { coefficients[COPIES] * records } else { 0.0 };
        100.0 * (computed - copied) / without
    };
    sets.iter().map(share).collect()
}

fn resampled(groups: &[Sums], sets: &[(StageSet, Vec<usize>)]) -> Vec<Vec<f64>> {
    resample(groups.len(), DRAWN, SEED, |counts| {
        let drawn = groups.iter().zip(counts).flat_map(|(group, count)| iter::repeat_n(group, *count));
        let drawn = Sums::of(drawn);
        Some(shares(&drawn, &drawn.solved()?, sets))
    })
}

impl Sums {
    fn none() -> Sums {
        Sums {
            products: vec![vec![0.0; REGRESSORS]; REGRESSORS],
            with_cpu: vec![0.0; REGRESSORS],
            cpu_ns: 0.0,
            totals: vec![0.0; REGRESSORS],
        }
    }

    fn of<'a>(groups: impl Iterator<Item = &'a Sums>) -> Sums {
        let mut sum = Sums::none();
        let add = |into: &mut [f64], values: &[f64]| into.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        for group in groups {
            for (into, row) in sum.products.iter_mut().zip(&group.products) {
                add(into, row);
            }
            add(&mut sum.with_cpu, &group.with_cpu);
            add(&mut sum.totals, &group.totals);
            sum.cpu_ns += group.cpu_ns;
        }
        sum
    }

    /// Weighted by its length: the variance of CPU time grows with it.
    fn add_interval(&mut self, interval: &Interval) {
        let mut values = vec![f64::from(interval.elapsed_us)];
        values.extend(interval.counts.iter().map(|count| *count as f64));
        let weight = 1.0 / f64::from(interval.elapsed_us.max(1));
        let cpu_ns = interval.server_cpu_ns as f64;
        for (row, a) in values.iter().enumerate() {
            for (column, b) in values.iter().enumerate() {
                self.products[row][column] += weight * a * b;
            }
            self.with_cpu[row] += weight * a * cpu_ns;
            self.totals[row] += a;
        }
        self.cpu_ns += cpu_ns;
    }

    fn without_added(&self, coefficients: &[f64]) -> f64 {
        self.cpu_ns - (USUAL..REGRESSORS).map(|at| coefficients[at] * self.totals[at]).sum::<f64>()
    }

    /// Cost of each regressor. `None`: the sums do not determine it.
    fn solved(&self) -> Option<Vec<f64>> {
        least_squares::solved(&self.products, &self.with_cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_base::random::SplitMix64;
    use tlsdyno_record::model::{Experiment, ForeignTraffic};
    use tlsdyno_record::store::Block;

    /// Traffic of a known price: 300 µs for a signature, 40 for a key operation, 2 for a record and 1 ns for each of
    /// its bytes, 50 µs for whatever else a handshake takes; a copy of a record costs 0.5 µs.
    fn record(seconds: u64, noise: f64) -> Record {
        use of_interval::{BYTES, CALLS};
        let stages = [Stage::Authentication, Stage::KeyAgreement, Stage::Cipher, Stage::Kdf];
        let [full_at, agreement_at, records_at, kdf_at] = stages.map(of_interval::of);
        let mut random = SplitMix64::new(4);
        let mut record = Record::begun_now("?", 1);
        let foreign_traffic = Some(ForeignTraffic::default());
        record.kind_part = Experiment { foreign_traffic, ..Experiment::default() }.into();
        let mut block = Block::default();
        let mut at_us = 0;
        while at_us < seconds * 1_000_000 {
            let elapsed_us = 20_000 + random.below(80_000) as u32;
            let full = random.below(30) as u64;
            let all = full + random.below(20) as u64;
            let records = all * 4;
            let bytes = all * (2_000 + random.below(3_000) as u64);
            let mut counts = [0; of_interval::LENGTH];
            let calls =
                [(full_at, full), (agreement_at, 4 * all), (records_at, records), (BYTES, bytes), (kdf_at, 30 * all)];
            calls.iter().for_each(|(kind, count)| counts[*kind] = *count);
            let price = [(full_at, 300e3), (agreement_at, 40e3), (records_at, 2e3), (BYTES, 1.0), (kdf_at, 1e3)];
            let cost = |kind: usize, count: u64| price.iter().find(|(of, _)| *of == kind).unwrap().1 * count as f64;
            let mut cpu_ns = calls.iter().map(|(kind, count)| cost(*kind, *count)).sum::<f64>() + 50e3 * all as f64;
            match random.below(5) {
                0 => [full_at].iter().for_each(|kind| counts[CALLS + kind] = counts[*kind]),
                1 => [agreement_at].iter().for_each(|kind| counts[CALLS + kind] = counts[*kind]),
                2 => [records_at, BYTES].iter().for_each(|kind| counts[CALLS + kind] = counts[*kind]),
                3 => counts[2 * CALLS] = records,
                _ => {}
            }
            cpu_ns += calls.iter().map(|(kind, _)| cost(*kind, counts[CALLS + kind])).sum::<f64>();
            cpu_ns += 500.0 * (counts[2 * CALLS] + counts[CALLS + records_at]) as f64;
            cpu_ns *= 1.0 + noise * random.normal();
            let server_cpu_ns = cpu_ns as u64;
            block.intervals.push(Interval { started_us: at_us, elapsed_us, server_cpu_ns, counts });
            at_us += u64::from(elapsed_us);
        }
        record.blocks = vec![block];
        record
    }

    #[test]
    fn known_prices_are_found() {
        let found = Traffic::of(&record(60, 0.0)).unwrap();
        let of = |stage: &str| found.stages.iter().find(|share| share.stage == stage).unwrap();
        assert!((of("authentication").ns_per_call / 300e3 - 1.0).abs() < 1e-3, "{found:?}");
        assert!((of("key_agreement").ns_per_call / 40e3 - 1.0).abs() < 1e-3, "{found:?}");
        assert_eq!(found.stages.len(), 3);
        assert!(found.added_percent > 5.0 && found.added_percent < 40.0, "{found:?}");
    }

    #[test]
    fn intervals_hold_the_truth_under_noise() {
        let exact = Traffic::of(&record(60, 0.0)).unwrap();
        let found = Traffic::of(&record(60, 0.1)).unwrap();
        for (share, exact) in found.stages.iter().zip(&exact.stages) {
            let (found, truth) = (share.percent, exact.percent.value);
            assert!(found.low < truth && truth < found.high, "{share:?} {exact:?}");
            assert!(found.half_width() < 6.0, "{share:?}");
        }
    }
}
