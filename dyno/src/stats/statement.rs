//! What is stated of the costs of configurations, and how sure it is.

use serde::Serialize;

use super::bootstrap::Estimate;

/// Fewer rounds than this give a rough interval only, which is said.
pub const FEW_ROUNDS: u32 = 5;

/// What "cost of a hit" means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Server CPU time per hit.
    Cpu,
    /// Time per hit at saturation: the reciprocal of hits per second, the papers' own metric.
    Throughput,
}

impl Metric {
    /// Both, in the order of reports: CPU leads because it stands noisy and shared machines.
    pub const ALL: [Metric; 2] = [Metric::Cpu, Metric::Throughput];
}

/// Whether the interval excludes 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The 95 % interval excludes 0: the sign is known.
    Resolved,
    /// It does not, or there are too few rounds to say so: more rounds or a quieter machine are needed to say anything.
    Undecided,
}

/// A difference between configurations that is no share, in per cent of the server as is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Cost in what.
    pub metric: Metric,
    /// Point estimate.
    pub percent: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Whether the interval excludes 0.
    pub verdict: Verdict,
}

impl Difference {
    /// Of an estimate from so many rounds. Below [`FEW_ROUNDS`] nothing is resolved: all of 4 rounds lie on one side of
    /// 0 by chance once in 8 times.
    pub(super) fn of(estimate: Estimate, metric: Metric, rounds: u32) -> Difference {
        let resolved = rounds >= FEW_ROUNDS && estimate.excludes_zero();
        let verdict = if resolved { Verdict::Resolved } else { Verdict::Undecided };
        let Estimate { value: percent, low, high } = estimate.scaled(100.0);
        Difference { metric, percent, low, high, verdict }
    }
}

/// What can be said of a number against the one it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The whole interval lies above.
    Bigger,
    /// The whole interval lies below.
    Smaller,
    /// Neither, or too few rounds to say.
    Undecided,
}

/// How many times the hits per second of one configuration another one serves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Point estimate.
    pub times: f64,
    /// Lower end of the 95 % interval; 0 with fewer than two rounds.
    pub low: f64,
    /// Upper end; `inf` (JSON: null) with fewer than two rounds.
    pub high: f64,
    /// Whether it lies above or below 1.
    pub direction: Direction,
    /// Something else than the server limited the configuration in the denominator: the true ratio may be smaller.
    pub at_most: bool,
    /// The same of the configuration in the numerator: the true ratio may be larger.
    pub at_least: bool,
}

impl Ratio {
    /// The ratio whose logarithm was estimated from so many rounds.
    pub(super) fn of_logarithm(estimate: Estimate, pairs: u32, at_most: bool, at_least: bool) -> Ratio {
        let (low, high) = (estimate.low.exp(), estimate.high.exp());
        let direction = match () {
            () if pairs < FEW_ROUNDS => Direction::Undecided,
            () if low > 1.0 && !at_most => Direction::Bigger,
            () if high < 1.0 && !at_least => Direction::Smaller,
            () => Direction::Undecided,
        };
        Ratio { times: estimate.value.exp(), low, high, direction, at_most, at_least }
    }
}
