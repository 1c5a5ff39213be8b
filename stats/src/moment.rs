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

use super::covariance::{mean, means, relative, slope};
use super::pace::{BLOCKS_MIN, per_hit};
use super::statement::Metric;
use tlsdyno_record::store::Block;

/// How far into the past and the future a moment reaches: the one of these that explains most, seconds.
const REACHES_S: [f64; 5] = [0.1, 0.2, 0.5, 1.0, 2.0];
/// Blocks on either side that are looked at.
const NEIGHBOURS: usize = 30;
/// How often means of configurations, moments and what traffic explains are found by turns, each without what the
/// others explain. They hardly move after the second time.
const TURNS: usize = 4;
/// Of a configuration's blocks those tell little whose times scatter: how much they do is told by them and, as if they
/// were so many, by all blocks.
const BLOCKS_LIKE_ALL: f64 = 8.0;
/// Traffic whose bytes per hit vary by less than this part of their mean (root mean square) explains nothing.
const TRAFFIC_LEAST: f64 = 0.01;

/// How the time per hit goes with the moment and the traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Standard deviation of the time per hit between blocks of one configuration, as a part of their mean.
    pub spread: f64,
    /// The same without what the moment and the traffic explain.
    pub unexplained_fraction: f64,
    /// Start of each block, nanoseconds, ascending, and what both added to its time per hit, nanoseconds.
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
        let met = Met {
            deviations: relative(&costs, &means_ns, &configurations),
            traffic: traffic(&blocks, &configurations),
            groups: configurations.iter().map(|configuration| group(*configuration)).collect(),
            middles_s: blocks.iter().map(|block| middle_s(block)).collect(),
            configurations,
        };
        let explained = REACHES_S
            .into_iter()
            .map(|reach_s| met.explained(reach_s))
            .map(|explained| (root_mean_square(&met.centred(&explained)), explained))
            .min_by(|(a, _), (b, _)| a.total_cmp(b));
        let (unexplained_fraction, explained) = explained?;
        let excess = |(block, part): (&&Block, f64)| (block.started_ns, part * means_ns[block.configuration]);
        Some(Moment {
            spread: root_mean_square(&met.deviations),
            unexplained_fraction,
            excess_ns: blocks.iter().zip(explained).map(excess).collect(),
        })
    }

    /// What is to be taken from the time per hit of this block to have it at the mean moment and with the mean traffic,
    /// nanoseconds.
    pub(super) fn excess_ns(&self, block: &Block) -> f64 {
        let found = self.excess_ns.binary_search_by_key(&block.started_ns, |(started_ns, _)| *started_ns);
        found.map_or(0.0, |at| self.excess_ns[at].1)
    }

    /// What reports say of it.
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

fn middle_s(block: &Block) -> f64 {
    (block.started_ns as f64 + block.elapsed_ns as f64 / 2.0) / 1e9
}

/// What blocks, in the order of time, met.
struct Met {
    /// Their times per hit, relative to the mean of their configuration, less 1.
    deviations: Vec<f64>,
    /// The same of their bytes per hit.
    traffic: Vec<f64>,
    configurations: Vec<usize>,
    groups: Vec<usize>,
    middles_s: Vec<f64>,
}

impl Met {
    /// What moment and traffic explain of each deviation.
    fn explained(&self, reach_s: f64) -> Vec<f64> {
        let mut by_moment = vec![0.0; self.deviations.len()];
        let mut by_traffic = by_moment.clone();
        let mut weights = vec![1.0; self.deviations.len()];
        for _ in 0..TURNS {
            by_traffic = self.by_traffic(&self.centred(&by_moment));
            let left = self.centred(&sum(&by_moment, &by_traffic));
            by_moment = self.by_moment(&sum(&left, &by_moment), &weights, reach_s);
            weights = self.weights(&self.centred(&sum(&by_moment, &by_traffic)));
        }
        // The mean moment is that of all blocks.
        let level = mean(by_moment.iter().copied());
        by_moment.iter().zip(&by_traffic).map(|(moment, traffic)| moment - level + traffic).collect()
    }

    /// A multiple, found by least squares, of the mean deviation of the blocks around each, the nearer the heavier,
    /// without its own.
    fn by_moment(&self, deviations: &[f64], weights: &[f64], reach_s: f64) -> Vec<f64> {
        let around: Vec<f64> = (0..deviations.len()).map(|at| self.around(deviations, weights, reach_s, at)).collect();
        let multiple = slope(&around, deviations).max(0.0);
        around.iter().map(|value| multiple * value).collect()
    }

    /// The mean of the blocks before and after this one, weighted by their weights and `exp(−distance / reach)`.
    fn around(&self, values: &[f64], weights: &[f64], reach_s: f64, at: usize) -> f64 {
        let neighbours = at.saturating_sub(NEIGHBOURS)..values.len().min(at + NEIGHBOURS + 1);
        let (sum, all) = neighbours.filter(|other| *other != at).fold((0.0, 0.0), |(sum, all), other| {
            let distance_s = (self.middles_s[other] - self.middles_s[at]).abs();
            let weight = weights[other] * (-distance_s / reach_s).exp();
            (sum + weight * values[other], all + weight)
        });
        if all > 0.0 { sum / all } else { 0.0 }
    }

    /// What a block counts for its neighbours: the reciprocal of what its configuration's blocks scatter by besides.
    fn weights(&self, left: &[f64]) -> Vec<f64> {
        let squares: Vec<f64> = left.iter().map(|value| value * value).collect();
        let of_all = mean(squares.iter().copied());
        if of_all <= 0.0 {
            return vec![1.0; left.len()];
        }
        let total = 1 + self.configurations.iter().max().map_or(0, |last| *last);
        let [mut sums, mut counts] = [BLOCKS_LIKE_ALL * of_all, BLOCKS_LIKE_ALL].map(|start| vec![start; total]);
        for (square, configuration) in squares.iter().zip(&self.configurations) {
            sums[*configuration] += square;
            counts[*configuration] += 1.0;
        }
        self.configurations.iter().map(|configuration| counts[*configuration] / sums[*configuration]).collect()
    }

    /// What bytes per hit explain, by least squares for each group.
    fn by_traffic(&self, deviations: &[f64]) -> Vec<f64> {
        if root_mean_square(&self.traffic) < TRAFFIC_LEAST {
            return vec![0.0; deviations.len()];
        }
        let of_group = |values: &[f64], wanted: usize| -> Vec<f64> {
            values.iter().zip(&self.groups).filter(|(_, group)| **group == wanted).map(|(value, _)| *value).collect()
        };
        let groups = self.groups.iter().max().map_or(0, |last| last + 1);
        let slopes: Vec<f64> =
            (0..groups).map(|group| slope(&of_group(&self.traffic, group), &of_group(deviations, group))).collect();
        self.traffic.iter().zip(&self.groups).map(|(traffic, group)| slopes[*group] * traffic).collect()
    }

    /// The deviations without what is `explained`, from the mean that is left of their configuration.
    fn centred(&self, explained: &[f64]) -> Vec<f64> {
        let left: Vec<f64> = self.deviations.iter().zip(explained).map(|(all, part)| all - part).collect();
        let own_means = means(&left, &self.configurations);
        left.iter().zip(&self.configurations).map(|(value, own)| value - own_means[*own]).collect()
    }
}

/// Bytes per hit of each block, relative to the mean of its configuration, less 1; 0 where answers are empty.
fn traffic(blocks: &[&Block], configurations: &[usize]) -> Vec<f64> {
    let bytes: Vec<f64> = blocks.iter().map(|block| block.body_bytes as f64 / block.hits as f64).collect();
    let means = means(&bytes, configurations);
    let relative = relative(&bytes, &means, configurations);
    relative.into_iter().map(|value| if value.is_finite() { value } else { 0.0 }).collect()
}

fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn root_mean_square(values: &[f64]) -> f64 {
    mean(values.iter().map(|value| value * value)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_base::random::SplitMix64;
    use tlsdyno_record::store::Slice;

    const CONFIGURATIONS: usize = 24;
    const ROUNDS: usize = 20;

    /// What the machine is slower by at a moment: it moves between two paces, each for some seconds.
    fn slower(second: f64) -> f64 {
        if ((second / 3.0).floor() as u64).is_multiple_of(2) { 0.8 } else { 1.2 }
    }

    /// Time per hit without the moment, nanoseconds.
    fn cost_ns(configuration: usize) -> f64 {
        1e5 + 1e4 * configuration as f64
    }

    /// Rounds in random order; `noise` is each block's own.
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
    fn blocks_that_scatter_tell_their_neighbours_little() {
        let mut random = SplitMix64::new(7);
        let mut blocks = blocks(0.0);
        // Two of three configurations are noisy.
        for block in blocks.iter_mut().filter(|block| block.configuration % 3 != 0) {
            block.elapsed_ns = (block.elapsed_ns as f64 * (1.0 + 0.5 * random.normal()).max(0.2)) as u64;
        }
        let moment = Moment::of(blocks.iter(), |configuration| configuration).unwrap();
        let scatter = |configuration| {
            let times = times_ns(&blocks, configuration, |block| moment.excess_ns(block));
            root_mean_square(&relative(&times, &[mean(times.iter().copied())], &vec![0; times.len()]))
        };
        let of_quiet = mean((0..CONFIGURATIONS).step_by(3).map(scatter));
        // 0.15 where all blocks count alike.
        assert!(of_quiet < 0.13, "{of_quiet}");
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
        assert!(
            moment.unexplained_fraction > 0.95 * moment.spread,
            "{} of {}",
            moment.unexplained_fraction,
            moment.spread
        );
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
