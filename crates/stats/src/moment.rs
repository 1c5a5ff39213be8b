//! What the time per hit of blocks owes to the moment at which they ran and to the traffic that they had, and the times
//! without it.
//!
//! An experiment on several machines has dozens of blocks in a round, in random order, each of another configuration,
//! all with the same traffic. What is common to blocks that ran one after the other is the moment: how fast the machine
//! was. So the blocks before and after a block tell how dear its moment was, as the sampled pace does elsewhere
//! (`pace.rs`). Where sessions of a log differ much in size, rounds differ in bytes per hit. An analysis of covariance
//! (Fisher 1932) takes both from the time of a block. Since the order is random and the traffic the same, this moves no
//! difference in expectation.

use serde::Serialize;
use tlsdyno_record::store::Block;

use super::covariance::{mean, means, relative, slope};
use super::pace::{BLOCKS_MIN, per_hit};
use super::statement::Metric;

/// The farther a block is in the order of time, the less it tells of a moment: `exp(−distance / reach)`, in blocks.
const REACH_BLOCKS: f64 = 2.0;
/// Number of blocks on either side that are averaged.
const NEIGHBOURS: usize = 10;

/// Minimum variation of bytes per hit (root mean square, as a part of the mean) for traffic to explain anything.
const TRAFFIC_LEAST: f64 = 0.01;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Standard deviation of the time per hit between blocks of one configuration, as a part of their mean.
    pub spread: f64,
    /// `spread` without what the moment and the traffic explain.
    pub unexplained_fraction: f64,
    /// Start of each block, nanoseconds, ascending, and its excess of time per hit due to moment and traffic,
    /// nanoseconds.
    #[serde(skip)]
    excess_ns: Vec<(u64, f64)>,
}

impl Moment {
    /// From usable blocks; those of slices are left out. `None` where there are too few. What traffic explains is found
    /// for all configurations of a `group` together: those that are one on several machines.
    pub(super) fn of<'a>(blocks: impl Iterator<Item = &'a Block>, group: impl Fn(usize) -> usize) -> Option<Moment> {
        let mut blocks: Vec<&Block> = blocks.filter(|block| block.slices.is_empty()).collect();
        if blocks.len() < BLOCKS_MIN {
            return None;
        }
        blocks.sort_by_key(|block| block.started_ns);
        let configurations: Vec<usize> = blocks.iter().map(|block| block.configuration).collect();
        let costs: Vec<f64> = blocks.iter().map(|block| per_hit(block, Metric::Throughput)).collect();
        let means_ns = means(&costs, &configurations);
        let deviations = relative(&costs, &means_ns, &configurations);
        let groups: Vec<usize> = configurations.iter().map(|configuration| group(*configuration)).collect();
        let by_traffic = by_traffic(&blocks, &configurations, &groups, &deviations);
        let by_moment = by_moment(&less(&deviations, &by_traffic));
        let explained: Vec<f64> = by_moment.iter().zip(&by_traffic).map(|(moment, traffic)| moment + traffic).collect();
        let left = less(&deviations, &explained);
        let own_means = means(&left, &configurations);
        let unexplained = left.iter().zip(&configurations).map(|(value, own)| value - own_means[*own]);
        let excess = |(block, part): (&&Block, &f64)| (block.started_ns, part * means_ns[block.configuration]);
        Some(Moment {
            spread: root_mean_square(deviations.iter().copied()),
            unexplained_fraction: root_mean_square(unexplained),
            excess_ns: blocks.iter().zip(&explained).map(excess).collect(),
        })
    }

    /// Correction to subtract from the time per hit of this block for the mean moment and the mean traffic,
    /// nanoseconds.
    pub(super) fn excess_ns(&self, block: &Block) -> f64 {
        let found = self.excess_ns.binary_search_by_key(&block.started_ns, |(started_ns, _)| *started_ns);
        found.map_or(0.0, |at| self.excess_ns[at].1)
    }

    pub fn sentence(&self) -> String {
        format!(
            "Hits per second are told at the mean moment and for the mean traffic: blocks of one configuration \
             differed by {:.1} % (standard deviation) in time per hit, and by {:.1} % without what their neighbours \
             in time had in common with them and what bytes per hit explain.",
            self.spread * 100.0,
            self.unexplained_fraction * 100.0
        )
    }
}

/// A multiple, found by least squares, of the mean deviation of the blocks around each. The mean moment is that of all
/// blocks.
fn by_moment(deviations: &[f64]) -> Vec<f64> {
    let around: Vec<f64> = (0..deviations.len()).map(|at| around(deviations, at)).collect();
    let multiple = slope(&around, deviations).max(0.0);
    let level = mean(around.iter().copied());
    around.iter().map(|value| multiple * (value - level)).collect()
}

/// What bytes per hit, relative to the mean of the configuration, explain: by least squares for each group.
fn by_traffic(blocks: &[&Block], configurations: &[usize], groups: &[usize], deviations: &[f64]) -> Vec<f64> {
    // Answers may be empty.
    let bytes: Vec<f64> = blocks.iter().map(|block| 1.0 + block.body_bytes as f64 / block.hits as f64).collect();
    let traffic = relative(&bytes, &means(&bytes, configurations), configurations);
    if root_mean_square(traffic.iter().copied()) < TRAFFIC_LEAST {
        return vec![0.0; blocks.len()];
    }
    let of_group = |values: &[f64], wanted: usize| -> Vec<f64> {
        values.iter().zip(groups).filter(|(_, group)| **group == wanted).map(|(value, _)| *value).collect()
    };
    let slope_of = |group: usize| slope(&of_group(&traffic, group), &of_group(deviations, group));
    let slopes: Vec<f64> = (0..groups.iter().max().map_or(0, |last| last + 1)).map(slope_of).collect();
    traffic.iter().zip(groups).map(|(traffic, group)| slopes[*group] * traffic).collect()
}

fn less(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

fn around(values: &[f64], at: usize) -> f64 {
    let neighbours = at.saturating_sub(NEIGHBOURS)..values.len().min(at + NEIGHBOURS + 1);
    let (sum, weights) = neighbours.filter(|other| *other != at).fold((0.0, 0.0), |(sum, weights), other| {
        let weight = (-(other.abs_diff(at) as f64) / REACH_BLOCKS).exp();
        (sum + weight * values[other], weights + weight)
    });
    sum / weights
}

fn root_mean_square(values: impl Iterator<Item = f64>) -> f64 {
    mean(values.map(|value| value * value)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_base::random::SplitMix64;
    use tlsdyno_record::store::Slice;

    const CONFIGURATIONS: usize = 24;
    const ROUNDS: usize = 20;

    /// Slowdown of a simulated machine: it moves between two paces, each for some seconds.
    fn slower(second: f64) -> f64 {
        if ((second / 3.0).floor() as u64).is_multiple_of(2) { 0.8 } else { 1.2 }
    }

    fn cost_ns(configuration: usize) -> f64 {
        1e5 + 1e4 * configuration as f64
    }

    fn blocks(noise: f64) -> Vec<Block> {
        let mut random = SplitMix64::new(11);
        let mut now_ns = 0u64;
        let all: Vec<usize> = (0..CONFIGURATIONS).collect();
        let order: Vec<usize> = (0..ROUNDS).flat_map(|_| random.shuffled(&all)).collect();
        let mut block = |configuration: usize| {
            let per_hit = cost_ns(configuration) * slower(now_ns as f64 / 1e9) * (1.0 + noise * random.normal());
            let elapsed_ns = (per_hit * 500.0) as u64;
            let block = Block { configuration, hits: 500, started_ns: now_ns, elapsed_ns, ..Block::default() };
            now_ns += elapsed_ns + 10_000_000;
            block
        };
        order.into_iter().map(&mut block).collect()
    }

    fn times_ns(blocks: &[Block], configuration: usize, excess_ns: impl Fn(&Block) -> f64) -> Vec<f64> {
        let of = blocks.iter().filter(|block| block.configuration == configuration);
        of.map(|block| per_hit(block, Metric::Throughput) - excess_ns(block)).collect()
    }

    #[test]
    fn what_neighbours_have_in_common_is_taken_away() {
        let blocks = blocks(0.03);
        let moment = Moment::of(blocks.iter(), |configuration| configuration).unwrap();
        assert!((moment.spread - 0.2).abs() < 0.03, "{moment:?}");
        // Blocks between two paces keep a part.
        assert!(moment.unexplained_fraction < 0.09, "{} of {}", moment.unexplained_fraction, moment.spread);
        // Medians have no part of the few blocks between two paces.
        let level = |configuration| {
            let mut times = times_ns(&blocks, configuration, |block| moment.excess_ns(block));
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2] / cost_ns(configuration)
        };
        let levels: Vec<f64> = (0..CONFIGURATIONS).map(level).collect();
        let of_all = mean(levels.iter().copied());
        assert!((of_all - 1.0).abs() < 0.05, "near the mean moment: {of_all}");
        assert!(levels.iter().all(|one| (one / of_all - 1.0).abs() < 0.04), "no difference is moved: {levels:?}");
    }

    #[test]
    fn noise_of_the_blocks_own_stays() {
        let mut random = SplitMix64::new(5);
        let mut blocks = blocks(0.0);
        for block in &mut blocks {
            let per_hit = cost_ns(block.configuration) * (1.0 + 0.1 * random.normal());
            block.elapsed_ns = (per_hit * block.hits as f64) as u64;
        }
        let moment = Moment::of(blocks.iter(), |configuration| configuration).unwrap();
        assert!(moment.unexplained_fraction > 0.95 * moment.spread, "{moment:?}");
    }

    #[test]
    fn what_a_round_draws_of_a_log_is_taken_away() {
        let mut random = SplitMix64::new(3);
        let mut blocks = blocks(0.0);
        for round in blocks.chunks_mut(CONFIGURATIONS) {
            let larger = 1.0 + 0.4 * random.normal().clamp(-2.0, 2.0);
            for block in round {
                // Half of the configurations send nearly nothing but bytes.
                let part = if block.configuration % 2 == 0 { 0.8 } else { 0.2 };
                let noise = 1.0 + 0.02 * random.normal();
                let per_hit = cost_ns(block.configuration) * (1.0 + part * (larger - 1.0)) * noise;
                block.body_bytes = (larger * 1e4 * block.hits as f64) as u64;
                block.elapsed_ns = (per_hit * block.hits as f64) as u64;
            }
        }
        let moment = Moment::of(blocks.iter(), |configuration| configuration % 2).unwrap();
        assert!(
            moment.spread > 0.15 && moment.unexplained_fraction < 0.03,
            "{} of {}",
            moment.unexplained_fraction,
            moment.spread
        );
    }

    #[test]
    fn few_blocks_and_those_of_slices_have_no_moment() {
        let mut blocks = blocks(0.03);
        blocks[0].slices = vec![Slice::default()];
        assert_eq!(Moment::of(blocks[..BLOCKS_MIN].iter(), |configuration| configuration), None, "one is of slices");
        assert_eq!(Moment::of(blocks[1..BLOCKS_MIN].iter(), |configuration| configuration), None);
        let moment = Moment::of(blocks.iter(), |configuration| configuration).unwrap();
        assert_eq!(moment.excess_ns(&blocks[0]), 0.0, "not among them");
    }
}
