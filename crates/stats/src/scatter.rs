//! What a difference scatters by: slices, sweeps, and starts of the servers.

use serde::Serialize;

use super::robust::{mean, winsor_ends};

/// What a difference scatters by: the standard deviations of three nested causes, and what each makes of the variance
/// of the mean (variance components by the method of moments: Searle, Casella and McCulloch, *Variance Components*,
/// 1992, chapter 3). The values are Winsorised as those are that the trimmed mean is made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scatter {
    /// From slice to slice of one sweep, microseconds.
    pub slices_us: f64,
    /// From sweep to sweep within one start of the servers, microseconds.
    pub sweeps_us: f64,
    /// From start to start of the servers, microseconds.
    pub starts_us: f64,
    /// Part of the variance of the mean that comes from slices, per cent.
    pub of_slices_percent: f64,
    /// Part that comes from sweeps, per cent.
    pub of_sweeps_percent: f64,
    /// Part that comes from starts, per cent.
    pub of_starts_percent: f64,
}

impl Scatter {
    /// From values by round and sweep, in a unit of so many microseconds. `None`: fewer than two rounds, no round with
    /// two sweeps, or no sweep with two slices.
    pub(super) fn of(mut rounds: Vec<Vec<Vec<f64>>>, unit_us: f64) -> Option<Scatter> {
        let all: Vec<f64> = rounds.iter().flatten().flatten().copied().collect();
        let (low, high) = winsor_ends(&all)?;
        rounds.iter_mut().flatten().flatten().for_each(|value| *value = value.clamp(low, high));
        let within = pooled_variance(rounds.iter().flatten().map(Vec::as_slice))?;
        let of_sweeps: Vec<Vec<f64>> =
            rounds.iter().map(|sweeps| sweeps.iter().map(|values| mean(values)).collect()).collect();
        let sweeps_seen = pooled_variance(of_sweeps.iter().map(Vec::as_slice))?;
        let of_rounds: Vec<f64> = of_sweeps.iter().map(|means| mean(means)).collect();
        let rounds_seen = pooled_variance([of_rounds.as_slice()].into_iter())?;
        let (rounds, sweeps) = (of_rounds.len() as f64, of_sweeps.iter().map(Vec::len).sum::<usize>() as f64);
        let [slices_each, sweeps_each] = [all.len() as f64 / sweeps, sweeps / rounds];
        let between_sweeps = (sweeps_seen - within / slices_each).max(0.0);
        let between_starts = (rounds_seen - sweeps_seen / sweeps_each).max(0.0);
        let of_mean = [within / all.len() as f64, between_sweeps / sweeps, between_starts / rounds];
        let [of_slices, of_sweeps, of_starts] =
            of_mean.map(|part| part / of_mean.iter().sum::<f64>().max(f64::MIN_POSITIVE) * 100.0);
        Some(Scatter {
            slices_us: within.sqrt() * unit_us,
            sweeps_us: between_sweeps.sqrt() * unit_us,
            starts_us: between_starts.sqrt() * unit_us,
            of_slices_percent: of_slices,
            of_sweeps_percent: of_sweeps,
            of_starts_percent: of_starts,
        })
    }
}

fn pooled_variance<'a>(groups: impl Iterator<Item = &'a [f64]>) -> Option<f64> {
    let (mut squares, mut degrees) = (0.0, 0);
    for group in groups {
        let mean = mean(group);
        squares += group.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        degrees += group.len() - 1;
    }
    (degrees > 0).then(|| squares / degrees as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_base::random::SplitMix64;

    #[test]
    fn scatter_is_told_apart_by_its_causes() {
        let mut random = SplitMix64::new(5);
        let mut rounds = Vec::new();
        for _ in 0..400 {
            let start = 1.0 * random.normal();
            let sweep = |random: &mut SplitMix64| {
                let sweep = start + 2.0 * random.normal();
                (0..4).map(|_| sweep + 4.0 * random.normal()).collect()
            };
            rounds.push((0..5).map(|_| sweep(&mut random)).collect());
        }
        let scatter = Scatter::of(rounds, 1.0).unwrap();
        // Winsorising takes a part of all three.
        let near = |found: f64, injected: f64| (found / injected - 0.75).abs() < 0.2;
        assert!(
            near(scatter.slices_us, 4.0) && near(scatter.sweeps_us, 2.0) && near(scatter.starts_us, 1.0),
            "{scatter:?}"
        );
        // 16 / 8000, 4 / 2000 and 1 / 400: 31, 31 and 38 %.
        let percents = [scatter.of_slices_percent, scatter.of_sweeps_percent, scatter.of_starts_percent];
        assert!((percents.iter().sum::<f64>() - 100.0).abs() < 1e-9 && percents.iter().all(|one| *one > 15.0));
        assert_eq!(Scatter::of(vec![vec![vec![1.0, 2.0]]], 1.0), None);
        assert_eq!(Scatter::of(Vec::new(), 1.0), None);
    }
}
