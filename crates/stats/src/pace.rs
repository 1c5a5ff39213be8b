//! What the machine's pace explains of the costs of blocks, and the costs without it.
//!
//! The pace is sampled with fixed work on the server's CPUs while a block runs. Where no configuration changes it,
//! regressing the costs on it (analysis of covariance, Fisher 1932) makes intervals narrower and moves no difference in
//! expectation: what it moves is what the paces that the configurations met by chance differed by. Where configurations
//! do change it (a server that fills the caches slows the sampling itself), costs stay as they were measured.

use std::collections::BTreeMap;

use serde::Serialize;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_record::store::Block;

use super::bootstrap::SEED;
use super::covariance::{mean, means, relative, slope};
use super::statement::Metric;

/// Minimum number of blocks for a relation of cost to pace.
pub(super) const BLOCKS_MIN: usize = 8;
/// Largest credible sensitivity: no work depends much more on the pace than the sampled one.
const SENSITIVITY_MAX: f64 = 1.5;
/// Number of random orders of the randomisation test. Where fewer than [`ORDERS_AS_LARGE`] of them differ as much as
/// the measured order, configurations are said to change the pace.
const ORDERS: usize = 399;
const ORDERS_AS_LARGE: usize = 4;

/// Relation of costs to the pace: a pace 1 % longer than the mean makes them `sensitivity` % higher than their mean.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pace {
    /// Mean over the blocks, picoseconds per step.
    pub mean_ps: f64,
    /// Standard deviation between blocks, as a part of the mean.
    pub spread: f64,
    /// Configurations differ in pace by more than chance explains: then nothing is corrected.
    pub is_changed: bool,
    pub cpu: Fit,
    pub elapsed: Fit,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fit {
    /// Relative change of the cost for a relative change of the pace.
    pub sensitivity: f64,
    /// Part of the variance between blocks of one configuration that this explains, 0 to 1.
    pub explained: f64,
    #[serde(skip)]
    means_ns: Vec<f64>,
}

impl Pace {
    /// From usable blocks. `None` where too few were sampled. Configurations differ in cost for good reasons, so that
    /// only deviations from the means of each count.
    pub(super) fn of<'a>(blocks: impl Iterator<Item = &'a Block>) -> Option<Pace> {
        let sampled: Vec<&Block> = blocks.filter(|block| block.pace_ps > 0 && block.slices.is_empty()).collect();
        if sampled.len() < BLOCKS_MIN {
            return None;
        }
        let paces: Vec<f64> = sampled.iter().map(|block| block.pace_ps as f64).collect();
        let configurations: Vec<usize> = sampled.iter().map(|block| block.configuration).collect();
        let is_changed = is_changed(&sampled);
        let deviations = relative(&paces, &means(&paces, &configurations), &configurations);
        let fit = |metric| {
            let costs: Vec<f64> = sampled.iter().map(|block| per_hit(block, metric)).collect();
            let fit = Fit::of(&deviations, &costs, &configurations);
            if is_changed { Fit { sensitivity: 0.0, explained: 0.0, ..fit } } else { fit }
        };
        let mean_ps = mean(paces.iter().copied());
        let variance = mean(paces.iter().map(|pace| (pace / mean_ps - 1.0).powi(2)));
        let (cpu, elapsed) = (fit(Metric::Cpu), fit(Metric::Throughput));
        Some(Pace { mean_ps, spread: variance.sqrt(), is_changed, cpu, elapsed })
    }

    /// Correction to subtract from the cost of a hit in this block for the mean pace, nanoseconds. In proportion to the
    /// mean cost of the block's configuration: a part of the cost that does not depend on the pace is kept.
    pub(super) fn excess_ns(&self, block: &Block, metric: Metric) -> f64 {
        let fit = match metric {
            Metric::Cpu => &self.cpu,
            Metric::Throughput => &self.elapsed,
        };
        if block.pace_ps == 0 {
            return 0.0;
        }
        fit.sensitivity * fit.means_ns[block.configuration] * (block.pace_ps as f64 / self.mean_ps - 1.0)
    }

    pub fn sentence(&self) -> String {
        if self.is_changed {
            return format!(
                "The machine's pace varied by {:.1} % (standard deviation) between blocks, and differed between \
                 configurations by more than chance: they change it themselves, so that costs are told as they were \
                 measured.",
                self.spread * 100.0
            );
        }
        format!(
            "The machine's pace varied by {:.1} % (standard deviation) between blocks; costs are told at its mean, \
             which explains {:.0} % of what blocks of one configuration differed by in CPU per hit and {:.0} % in \
             time per hit.",
            self.spread * 100.0,
            self.cpu.explained * 100.0,
            self.elapsed.explained * 100.0
        )
    }
}

impl Fit {
    /// Least squares through the origin, on deviations of costs from the means of their configurations.
    fn of(paces: &[f64], costs: &[f64], configurations: &[usize]) -> Fit {
        let means_ns = means(costs, configurations);
        let costs = relative(costs, &means_ns, configurations);
        let costs_squared: f64 = costs.iter().map(|cost| cost * cost).sum();
        if costs_squared <= 0.0 {
            return Fit { means_ns, ..Fit::default() };
        }
        let sensitivity = slope(paces, &costs).clamp(0.0, SENSITIVITY_MAX);
        let left: f64 = paces.iter().zip(&costs).map(|(pace, cost)| (cost - sensitivity * pace).powi(2)).sum();
        Fit { sensitivity, explained: (1.0 - left / costs_squared).max(0.0), means_ns }
    }
}

/// Whether configurations differ in pace by more than chance has it, at a level of 1 %: their order in a round is
/// random, so that any other order within the rounds is as likely where they do not (randomisation test, Fisher 1935).
fn is_changed(blocks: &[&Block]) -> bool {
    let mut rounds: BTreeMap<u32, Vec<&Block>> = BTreeMap::new();
    for block in blocks {
        rounds.entry(block.round).or_default().push(block);
    }
    let configurations: Vec<usize> = rounds.values().flatten().map(|block| block.configuration).collect();
    // By logarithms, so that a slow moment counts no more than a fast one.
    let mut paces: Vec<Vec<f64>> =
        rounds.values().map(|round| round.iter().map(|block| (block.pace_ps as f64).ln()).collect()).collect();
    for round in &mut paces {
        let own = mean(round.iter().copied());
        round.iter_mut().for_each(|pace| *pace -= own);
    }
    let total = 1 + configurations.iter().max().map_or(0, |last| *last);
    let between = |paces: &[Vec<f64>]| {
        let mut sums = vec![(0.0, 0u32); total];
        for (pace, configuration) in paces.iter().flatten().zip(&configurations) {
            let (sum, count) = &mut sums[*configuration];
            (*sum, *count) = (*sum + pace, *count + 1);
        }
        sums.iter().filter(|(_, count)| *count > 0).map(|(sum, count)| sum * sum / f64::from(*count)).sum::<f64>()
    };
    let measured = between(&paces);
    let mut random = SplitMix64::new(SEED);
    let as_large = (0..ORDERS).filter(|_| {
        paces.iter_mut().for_each(|round| random.shuffle(round));
        between(&paces) >= measured
    });
    as_large.count() < ORDERS_AS_LARGE
}

pub(super) fn per_hit(block: &Block, metric: Metric) -> f64 {
    let ns = match metric {
        Metric::Cpu => block.server_cpu_ns,
        Metric::Throughput => block.elapsed_ns,
    };
    ns as f64 / block.hits as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_base::random::SplitMix64;

    const COSTS_NS: [f64; 2] = [1e5, 2e5];

    /// Blocks of two configurations, the second twice as expensive, on a machine whose pace is one of two. `steady_ns`
    /// of a hit do not go with the pace.
    fn blocks(steady_ns: f64, noise: f64) -> Vec<Block> {
        let mut random = SplitMix64::new(7);
        (0..400)
            .map(|number| {
                let pace = if random.below(2) == 0 { 0.7 } else { 1.3 };
                let cost = steady_ns + (COSTS_NS[number % 2] - steady_ns) * pace;
                let cost = cost * (1.0 + noise * random.normal());
                Block {
                    configuration: number % 2,
                    hits: 100,
                    server_cpu_ns: (cost * 100.0) as u64,
                    elapsed_ns: 10_000_000,
                    pace_ps: (pace * 50_000.0) as u64,
                    ..Block::default()
                }
            })
            .collect()
    }

    fn corrected(blocks: &[Block], pace: &Pace, configuration: usize) -> Vec<f64> {
        let of = blocks.iter().filter(|block| block.configuration == configuration);
        of.map(|block| per_hit(block, Metric::Cpu) - pace.excess_ns(block, Metric::Cpu)).collect()
    }

    #[test]
    fn the_sensitivity_and_what_it_explains_are_found() {
        let blocks = blocks(0.0, 0.05);
        let pace = Pace::of(blocks.iter()).unwrap();
        assert!((pace.cpu.sensitivity - 1.0).abs() < 0.03, "{pace:?}");
        // 0.3² of 0.3² + 0.05².
        assert!((pace.cpu.explained - 0.973).abs() < 0.01, "{pace:?}");
        assert!(pace.elapsed.sensitivity < 1e-9, "the same time for each block: {pace:?}");
        assert!((pace.spread - 0.3).abs() < 0.03);
    }

    #[test]
    fn corrected_costs_keep_their_level_and_lose_their_spread() {
        let blocks = blocks(0.0, 0.01);
        let pace = Pace::of(blocks.iter()).unwrap();
        for (configuration, cost) in COSTS_NS.into_iter().enumerate() {
            let costs = corrected(&blocks, &pace, configuration);
            let mean = mean(costs.iter().copied());
            assert!((mean / cost - 1.0).abs() < 0.02, "about the mean pace: {mean}");
            let widest = costs.iter().map(|one| (one / mean - 1.0).abs()).fold(0.0, f64::max);
            assert!(widest < 0.06, "{widest}");
        }
    }

    #[test]
    fn only_what_the_mean_paces_differed_by_is_moved() {
        let blocks = blocks(8e4, 0.001);
        let pace = Pace::of(blocks.iter()).unwrap();
        for configuration in [0, 1] {
            let raw = mean(
                blocks.iter().filter(|one| one.configuration == configuration).map(|one| per_hit(one, Metric::Cpu)),
            );
            let own =
                mean(blocks.iter().filter(|one| one.configuration == configuration).map(|one| one.pace_ps as f64));
            // What the configuration's own mean pace was off by is all that may be moved.
            let moved = mean(corrected(&blocks, &pace, configuration).into_iter()) - raw;
            let expected = -pace.cpu.sensitivity * raw * (own / pace.mean_ps - 1.0);
            assert!((moved - expected).abs() < 1.0, "{moved} {expected}");
        }
    }

    #[test]
    fn a_pace_that_configurations_change_corrects_nothing() {
        let mut blocks = blocks(0.0, 0.01);
        assert!(!Pace::of(blocks.iter()).unwrap().is_changed);
        let mut slow = |factor: f64| {
            for (number, block) in (0..).zip(&mut blocks) {
                block.round = number / 4;
                block.pace_ps = (block.pace_ps as f64 * if block.configuration == 1 { factor } else { 1.0 }) as u64;
            }
            let pace = Pace::of(blocks.iter()).unwrap();
            (pace.is_changed, blocks.iter().all(|block| pace.excess_ns(block, Metric::Cpu) == 0.0))
        };
        assert_eq!(slow(1.01), (false, false), "a thirtieth of what the pace varies by may be chance");
        assert_eq!(slow(1.25), (true, true));
    }

    #[test]
    fn what_was_not_sampled_is_left_as_it_is() {
        let mut blocks = blocks(0.0, 0.01);
        blocks[0].pace_ps = 0;
        let pace = Pace::of(blocks.iter()).unwrap();
        assert_eq!(pace.excess_ns(&blocks[0], Metric::Cpu), 0.0);
        assert_eq!(Pace::of(blocks[..BLOCKS_MIN].iter()), None, "one of them was not sampled");
    }
}
