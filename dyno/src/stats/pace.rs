//! What the machine's pace explains of the costs of blocks, and the costs without it.
//!
//! The pace is sampled with fixed work on the server's CPUs while a block runs, so that no configuration can change it: regressing the costs
//! on it (analysis of covariance, Fisher 1932) makes intervals narrower and moves no difference in the mean.

use serde::Serialize;

use super::shares::Metric;
use crate::store::Block;

/// Fewer blocks than this tell no relation.
const BLOCKS_MIN: usize = 8;
/// No work is that much more sensitive than the sampled one: what says so is chance.
const EXPONENT_MAX: f64 = 1.5;

/// How costs go with the pace: `cost ∝ pace ^ exponent`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pace {
    /// Geometric mean over the blocks, picoseconds a step.
    pub mean_ps: f64,
    /// Standard deviation between blocks, of the logarithm: about the relative one.
    pub spread: f64,
    /// Of server CPU per hit.
    pub cpu: Fit,
    /// Of the time per hit.
    pub elapsed: Fit,
}

/// The relation of one kind of cost to the pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Fit {
    /// The cost goes with this power of the pace.
    pub exponent: f64,
    /// Part of the variance between blocks of one configuration that this explains, 0 to 1.
    pub explained: f64,
}

impl Pace {
    /// From usable blocks. `None` where too few were sampled. Configurations differ in cost for good reasons, so that only deviations
    /// from the means of each count.
    pub(super) fn of<'a>(blocks: impl Iterator<Item = &'a Block>) -> Option<Pace> {
        let sampled: Vec<&Block> = blocks.filter(|block| block.pace_ps > 0).collect();
        if sampled.len() < BLOCKS_MIN {
            return None;
        }
        let paces: Vec<f64> = sampled.iter().map(|block| (block.pace_ps as f64).ln()).collect();
        let configurations: Vec<usize> = sampled.iter().map(|block| block.configuration).collect();
        let deviations = within(&paces, &configurations);
        let fit = |metric| {
            let costs: Vec<f64> = sampled.iter().map(|block| per_hit(block, metric).ln()).collect();
            Fit::of(&deviations, &within(&costs, &configurations))
        };
        let mean = mean(&paces);
        let variance = paces.iter().map(|pace| (pace - mean).powi(2)).sum::<f64>() / paces.len() as f64;
        Some(Pace {
            mean_ps: mean.exp(),
            spread: variance.sqrt(),
            cpu: fit(Metric::Cpu),
            elapsed: fit(Metric::Throughput),
        })
    }

    /// What a cost of this block is to be multiplied by, to become what it would have been at the mean pace.
    pub(super) fn correction(&self, block: &Block, metric: Metric) -> f64 {
        let fit = match metric {
            Metric::Cpu => self.cpu,
            Metric::Throughput => self.elapsed,
        };
        if block.pace_ps == 0 { 1.0 } else { (self.mean_ps / block.pace_ps as f64).powf(fit.exponent) }
    }

    /// What reports say of it.
    pub fn sentence(&self) -> String {
        format!(
            "The machine's pace varied by {:.1} % (standard deviation) between blocks; costs are told at its mean, which explains {:.0} % of what \
             blocks of one configuration differed by in CPU per hit and {:.0} % in time per hit.",
            self.spread * 100.0,
            self.cpu.explained * 100.0,
            self.elapsed.explained * 100.0
        )
    }
}

impl Fit {
    /// Least squares through the origin.
    fn of(paces: &[f64], costs: &[f64]) -> Fit {
        let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let (paces_squared, costs_squared) = (sum(paces, paces), sum(costs, costs));
        if paces_squared <= 0.0 || costs_squared <= 0.0 {
            return Fit::default();
        }
        let exponent = (sum(paces, costs) / paces_squared).clamp(0.0, EXPONENT_MAX);
        let left: f64 = paces.iter().zip(costs).map(|(pace, cost)| (cost - exponent * pace).powi(2)).sum();
        Fit { exponent, explained: (1.0 - left / costs_squared).max(0.0) }
    }
}

/// CPU or elapsed time per hit, nanoseconds. Usable blocks have hits.
pub(super) fn per_hit(block: &Block, metric: Metric) -> f64 {
    let ns = match metric {
        Metric::Cpu => block.server_cpu_ns,
        Metric::Throughput => block.elapsed_ns,
    };
    ns as f64 / block.hits as f64
}

/// The values as deviations from the mean of their own group.
fn within(values: &[f64], groups: &[usize]) -> Vec<f64> {
    let of_group = |wanted: usize| -> Vec<f64> {
        values.iter().zip(groups).filter(|(_, group)| **group == wanted).map(|(value, _)| *value).collect()
    };
    let groups_total = groups.iter().max().map_or(0, |last| last + 1);
    let means: Vec<f64> = (0..groups_total).map(|group| mean(&of_group(group))).collect();
    values.iter().zip(groups).map(|(value, group)| value - means[*group]).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::prng::SplitMix64;

    /// Blocks of two configurations, the second twice as expensive, on a machine whose pace varies by 30 %.
    fn blocks(sensitivity: f64, noise: f64) -> Vec<Block> {
        let mut random = SplitMix64::new(7);
        (0..400)
            .map(|number| {
                let pace = (0.3 * random.normal()).exp();
                let cost =
                    if number % 2 == 0 { 1e5 } else { 2e5 } * pace.powf(sensitivity) * (noise * random.normal()).exp();
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

    #[test]
    fn the_exponent_and_what_it_explains_are_found() {
        let blocks = blocks(0.9, 0.05);
        let pace = Pace::of(blocks.iter()).unwrap();
        assert!((pace.cpu.exponent - 0.9).abs() < 0.03, "{pace:?}");
        // 0.27² of 0.27² + 0.05².
        assert!((pace.cpu.explained - 0.967).abs() < 0.01, "{pace:?}");
        assert!(pace.elapsed.exponent < 1e-9, "the same time for each block: {pace:?}");
        assert!((pace.spread - 0.3).abs() < 0.03);
    }

    #[test]
    fn corrected_costs_keep_their_level_and_lose_their_spread() {
        let blocks = blocks(1.0, 0.01);
        let pace = Pace::of(blocks.iter()).unwrap();
        for (configuration, cost) in [(0, 1e5), (1, 2e5)] {
            let costs: Vec<f64> = blocks
                .iter()
                .filter(|block| block.configuration == configuration)
                .map(|block| per_hit(block, Metric::Cpu) * pace.correction(block, Metric::Cpu))
                .collect();
            assert!((mean(&costs) / cost - 1.0).abs() < 0.05, "about the mean pace: {}", mean(&costs));
            let widest = costs.iter().map(|one| (one / mean(&costs) - 1.0).abs()).fold(0.0, f64::max);
            assert!(widest < 0.05, "{widest}");
        }
    }

    #[test]
    fn what_was_not_sampled_is_left_as_it_is() {
        let mut blocks = blocks(1.0, 0.01);
        blocks[0].pace_ps = 0;
        let pace = Pace::of(blocks.iter()).unwrap();
        assert_eq!(pace.correction(&blocks[0], Metric::Cpu), 1.0);
        assert_eq!(Pace::of(blocks[..BLOCKS_MIN].iter()), None, "one of them was not sampled");
    }

    #[test]
    fn a_pace_that_explains_nothing_changes_nothing() {
        let blocks = blocks(0.0, 0.1);
        let pace = Pace::of(blocks.iter()).unwrap();
        assert!(pace.cpu.exponent < 0.04 && pace.cpu.explained < 0.02, "{pace:?}");
    }
}
