//! CPU per hit from slices: one value for each configuration and round, from those of its sweeps.
//!
//! A slice of a mode is compared with the slices of its host that stand nearest to it, before and after, at the moment
//! between them: what the machine did to all of them drops out. A server is compared with the untouched one by the
//! slices of both that stand nearest to each other. What a mode saves is then taken from the untouched server, so that
//! what provider and shim cost themselves is in no comparison but their own. The sweeps of a round share their servers,
//! and starts of one server differ: `rows` makes intervals of that.

use std::collections::BTreeMap;
use std::ops::Range;

use tlsdyno_record::model::{ConfigurationModel, Experiment};
use tlsdyno_record::store::{Block, Record, Role, Slice};

use super::bootstrap::Column;
use super::covariance::slope;
use super::robust::{mean, quantile, sorted, trimmed_each_end, trimmed_mean};
use super::rows::{Rows, Sliced};
use super::scatter::Scatter;

/// A slice: its middle, microseconds after the start, its cost, nanoseconds per hit, and its hits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    at_us: f64,
    ns: f64,
    hits: f64,
}

type Points = Vec<Seen>;

/// Minimum standard deviation of bytes per hit between sweeps, as a part of their mean, for traffic to count as varied:
/// the mean is then dominated by few slices.
const VARIED: f64 = 0.1;
/// Minimum number of rounds for a relation of costs to bytes.
const ROUNDS_OF_TRAFFIC: usize = 4;

/// Number of slices of another server, nearest in time, with which a slice is compared.
const NEAREST: usize = 3;

type Sweep = BTreeMap<usize, Points>;

#[derive(Clone, Debug, PartialEq)]
pub struct Sweeps {
    rounds: Vec<Vec<Sweep>>,
    numbers: Vec<u32>,
    /// Slices differ in their traffic, so that each is weighted by its cost.
    is_varied: bool,
}

/// A slice's measurement of one configuration, or of a part of its cost that has an index of its own.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub round: u32,
    pub sweep_number: u32,
    /// Configuration in the record, or part of its cost.
    pub index: usize,
    /// Middle of the slice, microseconds after the start.
    pub at_us: f64,
    pub ns: f64,
    pub hits: f64,
}

impl Point {
    pub fn of(block: &Block, slice: &Slice) -> Point {
        Point {
            round: block.round,
            sweep_number: slice.sweep_number,
            index: block.configuration,
            at_us: slice.started_us as f64 + f64::from(slice.elapsed_us) / 2.0,
            ns: slice.server_cpu_ns as f64 / f64::from(slice.hits),
            hits: f64::from(slice.hits),
        }
    }
}

impl Sweeps {
    pub fn of(points: impl Iterator<Item = Point>) -> Sweeps {
        let mut rounds: BTreeMap<u32, BTreeMap<u32, Sweep>> = BTreeMap::new();
        for Point { round, sweep_number, index, at_us, ns, hits } in points {
            let sweep = rounds.entry(round).or_default().entry(sweep_number).or_default();
            sweep.entry(index).or_default().push(Seen { at_us, ns, hits });
        }
        let (numbers, rounds) =
            rounds.into_iter().map(|(number, sweeps)| (number, sweeps.into_values().collect())).unzip();
        Sweeps { rounds, numbers, is_varied: false }
    }

    pub fn of_record(record: &Record) -> Sweeps {
        Sweeps::of_blocks(record.blocks.iter().filter(|block| block.valid))
    }

    fn of_blocks<'a>(blocks: impl Iterator<Item = &'a Block>) -> Sweeps {
        Sweeps::of(blocks.flat_map(|block| {
            let slices = block.slices.iter().filter(|slice| slice.hits > 0);
            slices.map(move |slice| Point::of(block, slice))
        }))
    }

    /// Scatter of a mode's cost, `hit_us` being the cost of its host's hit. `None`: too few slices.
    pub fn scatter(&self, host: usize, mode: usize, hit_us: f64) -> Option<Scatter> {
        let of_round = |sweeps: &Vec<Sweep>| -> Vec<Vec<f64>> {
            let parts =
                |sweep| parts_of_host(sweep, host, mode).into_iter().map(|(part, _)| part).collect::<Vec<f64>>();
            sweeps.iter().map(parts).filter(|parts| !parts.is_empty()).collect()
        };
        Scatter::of(self.rounds.iter().map(of_round).filter(|sweeps| !sweeps.is_empty()).collect(), hit_us)
    }

    pub fn count(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }

    pub fn numbered(&self, column: &Column) -> BTreeMap<u32, f64> {
        self.numbers.iter().zip(column).filter_map(|(number, value)| Some((*number, (*value)?))).collect()
    }

    pub fn has(&self, index: usize) -> bool {
        self.rounds.iter().flatten().any(|sweep| sweep.contains_key(&index))
    }

    /// The cost of a server by round, nanoseconds per hit: that of the base, times the ratio of both.
    pub fn costs(&self, base: usize, server: usize) -> Column {
        self.by_round(base, |sweeps| self.ratio_to(sweeps, base, server))
    }

    /// Cost of the host less that of a mode, by round, nanoseconds per hit.
    pub fn savings(&self, base: usize, host: usize, mode: usize) -> Column {
        self.by_round(base, |sweeps| {
            Some(self.ratio_to(sweeps, base, host)? * (1.0 - self.part_of_host(sweeps, host, mode)?))
        })
    }

    /// A part of its host's cost, by round, nanoseconds per hit.
    pub fn parts(&self, base: usize, host: usize, part: usize) -> Column {
        self.by_round(base, |sweeps| Some(self.ratio_to(sweeps, base, host)? * self.part_of_host(sweeps, host, part)?))
    }

    /// Appends to the rounds each of them without a part of its sweeps.
    fn leave_parts_out(&mut self) -> Sliced {
        let counts: Vec<usize> = self.rounds.iter().map(Vec::len).collect();
        let (sliced, left_out) = Sliced::of(&counts);
        let without = |(round, part): (usize, Range<usize>)| {
            let sweeps = &self.rounds[round];
            [&sweeps[..part.start], &sweeps[part.end..]].concat()
        };
        let without: Vec<Vec<Sweep>> = left_out.into_iter().map(without).collect();
        self.rounds.extend(without);
        sliced
    }

    fn costs_of(&self, record: &Record, as_is: usize, index: usize) -> Column {
        let Some(host) = record.configurations[index].host_number else { return self.costs(as_is, index) };
        let untouched = untouched(record, index).unwrap_or(as_is);
        let each = self.costs(as_is, untouched).into_iter().zip(self.savings(as_is, host, index));
        each.map(|(whole, saved)| Some(whole? - saved?)).collect()
    }

    /// Multiples of the cost of the base, which `times` computes from the sweeps of a round.
    fn by_round(&self, base: usize, times: impl Fn(&[Sweep]) -> Option<f64>) -> Column {
        let of_base = |sweeps: &[Sweep]| -> Option<f64> {
            self.mean(sweeps.iter().filter_map(|sweep| {
                let points = sweep.get(&base)?;
                Some((mean_cost(points)?, points[0].hits))
            }))
        };
        self.rounds.iter().map(|sweeps| Some(of_base(sweeps)? * times(sweeps)?)).collect()
    }

    /// The cost of a server as a multiple of the base's: each slice of that is compared with those of the other that
    /// stand nearest to it, since a machine changes within some tenths of a second.
    fn ratio_to(&self, sweeps: &[Sweep], base: usize, server: usize) -> Option<f64> {
        if base == server {
            return Some(1.0);
        }
        let of_sweep = |sweep: &Sweep| -> Vec<(f64, Seen)> {
            let (Some(of_base), Some(own)) = (sweep.get(&base), sweep.get(&server)) else { return Vec::new() };
            // The middle one: a disturbed slice stands near to several of the other server's.
            let ratio = |seen: &Seen| Some((middle_cost(&nearest(own, seen.at_us))? / seen.ns, *seen));
            of_base.iter().filter_map(ratio).collect()
        };
        let ratios = sweeps.iter().flat_map(of_sweep);
        if self.is_varied {
            return self.mean(ratios.map(|(ratio, seen)| (ratio, seen.ns * seen.hits)));
        }
        // The mean of ratios is above 1 for two equal servers, the more so the busier the machine is: one that is
        // twice and one that is half make 1.25. A ratio of means is not.
        let mut ratios: Vec<(f64, Seen)> = ratios.collect();
        ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
        let cut = trimmed_each_end(ratios.len());
        let kept = ratios.get(cut..ratios.len() - cut).unwrap_or_default();
        let (sum, base) =
            kept.iter().fold((0.0, 0.0), |(sum, base), (ratio, seen)| (sum + ratio * seen.ns, base + seen.ns));
        (base > 0.0).then(|| sum / base)
    }

    /// Cost of a mode, or of what was measured in it, as a part of its host's cost.
    fn part_of_host(&self, sweeps: &[Sweep], host: usize, index: usize) -> Option<f64> {
        self.mean(sweeps.iter().flat_map(|sweep| parts_of_host(sweep, host, index)))
    }

    /// Of values with weights. Each slice is a value of its own, and all count alike: one that the machine disturbed is
    /// left out without the others of its sweep. Where traffic is varied, the dearest slices are no disturbance but
    /// those with the largest answers: there it is the mean by weight.
    fn mean(&self, values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
        if !self.is_varied {
            return trimmed_mean(&values.map(|(value, _)| value).collect::<Vec<_>>());
        }
        let (sum, weights) =
            values.fold((0.0, 0.0), |(sum, weights), (value, weight)| (sum + value * weight, weights + weight));
        (weights > 0.0).then(|| sum / weights)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct SweepCosts {
    columns: Vec<Column>,
    rows: Rows,
    sweeps: u32,
}

impl SweepCosts {
    /// From usable blocks. `None`: there are no slices.
    pub fn of<'a>(record: &Record, blocks: impl Iterator<Item = &'a Block>) -> Option<SweepCosts> {
        let as_is = record.configurations.iter().position(|configuration| configuration.role == Role::AsIs)?;
        let blocks: Vec<&Block> = blocks.collect();
        let mut sweeps = Sweeps::of_blocks(blocks.iter().copied());
        let traffic = Traffic::of(&blocks, as_is, &sweeps);
        sweeps.is_varied = traffic.is_varied;
        let count = sweeps.count() as u32;
        // The line through costs over traffic is one through whole rounds.
        let rows = if traffic.is_varied { Rows::Rounds } else { Rows::Sliced(sweeps.leave_parts_out()) };
        let column = |index| traffic.at_the_mean(sweeps.costs_of(record, as_is, index));
        let columns = (0..record.configurations.len()).map(column).collect();
        (count > 0).then_some(SweepCosts { columns, rows, sweeps: count })
    }

    pub fn of_configuration(&self, index: usize) -> &Column {
        &self.columns[index]
    }

    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    pub fn sweeps(&self) -> u32 {
        self.sweeps
    }
}

/// Variation of the traffic between rounds. In a sweep all configurations have the same traffic.
#[derive(Debug, Default)]
struct Traffic {
    /// Bytes per hit in each round, relative to the mean of all hits, less 1.
    deviations: Vec<f64>,
    is_varied: bool,
}

impl Traffic {
    fn of(blocks: &[&Block], configuration: usize, sweeps: &Sweeps) -> Traffic {
        let mut rounds: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
        for block in blocks.iter().filter(|block| block.configuration == configuration && !block.slices.is_empty()) {
            let [bytes, hits] = rounds.entry(block.round).or_default();
            *bytes += block.body_bytes;
            *hits += block.hits;
        }
        let sum = |part: usize| rounds.values().map(|sums| sums[part]).sum::<u64>() as f64;
        let mean = sum(0) / sum(1);
        if rounds.len() < ROUNDS_OF_TRAFFIC || rounds.len() != sweeps.rounds.len() || !mean.is_normal() {
            return Traffic::default();
        }
        let deviations: Vec<f64> =
            rounds.values().map(|[bytes, hits]| *bytes as f64 / *hits as f64 / mean - 1.0).collect();
        let squares = deviations.iter().map(|deviation| deviation * deviation).sum::<f64>();
        // The mean of n sweeps varies by the root of n less than they do.
        let of_sweeps =
            (squares / deviations.len() as f64).sqrt() * (sweeps.count() as f64 / rounds.len() as f64).sqrt();
        Traffic { deviations, is_varied: of_sweeps >= VARIED }
    }

    /// The costs that the rounds would have had with the mean traffic: costs go with bytes per hit by a straight line
    /// (analysis of covariance). Else a trimmed mean would leave out the rounds with the largest answers.
    fn at_the_mean(&self, column: Column) -> Column {
        if !self.is_varied {
            return column;
        }
        let known = column.iter().zip(&self.deviations).filter_map(|(cost, deviation)| Some(((*cost)?, *deviation)));
        let (costs, deviations): (Vec<f64>, Vec<f64>) = known.unzip();
        let centred = |values: &[f64]| values.iter().map(|value| value - mean(values)).collect::<Vec<f64>>();
        let slope = slope(&centred(&deviations), &centred(&costs));
        column.iter().zip(&self.deviations).map(|(cost, deviation)| Some((*cost)? - slope * deviation)).collect()
    }
}

/// A mode's cost as a part of its host's in each slice of one sweep, and the host's cost of the slice's hits.
fn parts_of_host(sweep: &Sweep, host: usize, index: usize) -> Vec<(f64, f64)> {
    let (Some(of_host), Some(own)) = (sweep.get(&host), sweep.get(&index)) else { return Vec::new() };
    let part = |seen: &Seen| {
        let whole_ns = cost_at(of_host, seen.at_us)?;
        Some((seen.ns / whole_ns, whole_ns * seen.hits))
    };
    own.iter().filter_map(part).collect()
}

fn nearest(points: &Points, moment: f64) -> Points {
    let mut points = points.clone();
    points.sort_by(|a, b| (a.at_us - moment).abs().total_cmp(&(b.at_us - moment).abs()));
    points.truncate(NEAREST);
    points
}

fn middle_cost(points: &Points) -> Option<f64> {
    quantile(&sorted(&points.iter().map(|seen| seen.ns).collect::<Vec<f64>>()), 0.5)
}

fn mean_cost(points: &Points) -> Option<f64> {
    (!points.is_empty()).then(|| points.iter().map(|seen| seen.ns).sum::<f64>() / points.len() as f64)
}

/// The cost at a moment, on the line between the points before and after it; beyond the ends that of the nearest.
fn cost_at(points: &Points, at_us: f64) -> Option<f64> {
    let before = points.iter().filter(|point| point.at_us <= at_us).max_by(|a, b| a.at_us.total_cmp(&b.at_us));
    let after = points.iter().filter(|point| point.at_us > at_us).min_by(|a, b| a.at_us.total_cmp(&b.at_us));
    match (before, after) {
        (Some(before), Some(after)) => {
            Some(before.ns + (after.ns - before.ns) * (at_us - before.at_us) / (after.at_us - before.at_us))
        }
        (one, other) => one.or(other).map(|point| point.ns),
    }
}

/// Index of the untouched server on the library of this configuration, where that is not the experiment's.
pub fn untouched(record: &Record, index: usize) -> Option<usize> {
    let models = &record.kind_part.of::<Experiment>()?.configurations;
    let library = models.get(index)?.library.as_ref()?;
    let is_untouched = |model: &ConfigurationModel| model.without_library().is_untouched();
    models.iter().position(|model| model.library.as_ref() == Some(library) && is_untouched(model))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_base::random::SplitMix64;
    use tlsdyno_record::store::Configuration;
    use tlsdyno_tls::Stage;

    fn record() -> Record {
        let configuration = |name: &str, role, host_number| Configuration {
            role,
            host_number,
            ..Configuration::setting(name, true, Vec::new())
        };
        let mut record = Record::begun_now("?", 1);
        record.configurations = vec![
            configuration("as is", Role::AsIs, None),
            configuration("no kdf", Role::StageOff(Stage::Kdf), Some(2)),
            configuration("nothing off", Role::Loaded, None),
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
    fn equal_servers_cost_the_same_on_a_busy_machine() {
        let mut random = SplitMix64::new(52);
        let mut slices = |started_us: u64| -> Vec<(u32, u64, u64)> {
            let mut cost =
                |sweep: u32| (10_000.0 * (0.6 * random.normal()).exp(), u64::from(sweep) * 200_000 + started_us);
            (0..10_000).map(|sweep| (sweep, cost(sweep))).map(|(sweep, (cost, at))| (sweep, at, cost as u64)).collect()
        };
        let blocks = [block(0, 0, &slices(0)), block(0, 2, &slices(10_000))];
        let costs = SweepCosts::of(&record(), blocks.iter()).unwrap();
        let ratio = costs.of_configuration(2)[0].unwrap() / costs.of_configuration(0)[0].unwrap();
        assert!((ratio - 1.0).abs() < 0.02, "{ratio}");
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
    fn parts_and_savings_are_told_at_the_pace_of_their_moment() {
        // The host costs a tenth more than the base; the machine becomes half as fast between two sweeps. A part is a
        // fifth of its host, a mode three quarters.
        let point = |sweep_number, index, at_us, ns| Point { round: 0, sweep_number, index, at_us, ns, hits: 10.0 };
        let sweep = |sweep, pace: f64| {
            let costs = [(0, 0.0, 100.0), (1, 20.0, 110.0), (2, 30.0, 22.0), (3, 40.0, 82.5), (1, 60.0, 110.0)];
            costs.map(|(index, at_us, ns)| point(sweep, index, at_us, pace * ns))
        };
        let sweeps = Sweeps::of([sweep(1, 1.0), sweep(2, 2.0)].into_iter().flatten());
        let one = |column: Column| column[0].unwrap();
        assert!((one(sweeps.costs(0, 0)) - 150.0).abs() < 1e-9 && (one(sweeps.costs(0, 1)) - 165.0).abs() < 1e-9);
        assert!((one(sweeps.parts(0, 1, 2)) - 33.0).abs() < 1e-9, "{:?}", sweeps.parts(0, 1, 2));
        assert!((one(sweeps.savings(0, 1, 3)) - 41.25).abs() < 1e-9, "{:?}", sweeps.savings(0, 1, 3));
        assert_eq!(sweeps.parts(0, 1, 9), [None]);
    }

    #[test]
    fn the_sweeps_of_a_round_are_one_value_of_ratios() {
        // The machine is half as fast in the second sweep.
        let blocks =
            [block(7, 0, &[(1, 0, 100), (2, 100_000, 200)]), block(7, 2, &[(1, 20_000, 110), (2, 120_000, 220)])];
        let costs = SweepCosts::of(&record(), blocks.iter()).unwrap();
        // Behind the round are those without one of its sweeps.
        assert_eq!((costs.sweeps(), costs.of_configuration(0)), (2, &vec![Some(150e3), Some(200e3), Some(100e3)]));
        let of_host = costs.of_configuration(2)[0].unwrap();
        assert!((of_host - 165e3).abs() < 1e-6, "{of_host}");
    }

    /// One sweep in ten has answers fifty times as large as the others'. A hit takes 100 µs and what its bytes take, of
    /// which the mode saves half.
    #[test]
    fn large_answers_count_as_much_as_they_cost() {
        let mut random = SplitMix64::new(9);
        let (mut blocks, mut all_us) = (Vec::new(), Vec::new());
        for round in 0..12 {
            let bytes_us: Vec<u64> = (0..30).map(|_| if random.below(10) == 0 { 1_000 } else { 20 }).collect();
            let whole = |start_us: u64, cost_us: fn(u64) -> u64| -> Block {
                let sweeps = bytes_us.iter().zip(0u32..);
                let slices: Vec<_> = sweeps
                    .map(|(us, sweep)| (sweep, u64::from(sweep) * 100_000 + start_us, 100 + cost_us(*us)))
                    .collect();
                Block { body_bytes: bytes_us.iter().sum::<u64>() * 10_000, hits: 300, ..block(round, 0, &slices) }
            };
            blocks.push(whole(0, |us| us));
            blocks.push(Block { configuration: 2, ..whole(20_000, |us| us) });
            blocks.push(Block { configuration: 1, ..whole(40_000, |us| us / 2) });
            all_us.extend(bytes_us);
        }
        let bytes_us = all_us.iter().sum::<u64>() as f64 / all_us.len() as f64;
        let costs = SweepCosts::of(&record(), blocks.iter()).unwrap();
        let mean_us =
            |index| trimmed_mean(&costs.of_configuration(index).iter().flatten().copied().collect::<Vec<_>>());
        for (index, expected_us) in [(0, 100.0 + bytes_us), (2, 100.0 + bytes_us), (1, 100.0 + bytes_us / 2.0)] {
            let found_us = mean_us(index).unwrap() / 1e3;
            assert!((found_us / expected_us - 1.0).abs() < 1e-3, "{index}: {found_us} of {expected_us}");
        }
    }

    #[test]
    fn a_sweep_that_lacks_one_side_says_nothing_of_the_other() {
        let blocks = [block(0, 0, &[(1, 0, 100)]), block(0, 2, &[(2, 0, 100)]), block(0, 1, &[(1, 0, 80), (2, 0, 80)])];
        let costs = SweepCosts::of(&record(), blocks.iter()).unwrap();
        assert_eq!(*costs.of_configuration(1), [None; 3]);
        assert_eq!(SweepCosts::of(&record(), [Block::default()].iter()), None);
    }
}
