//! What is stated of the costs of configurations, and how sure it is.

use serde::Serialize;
use tlsdyno_tls::named;

use super::bootstrap::{Column, Estimate, estimate_column};
pub use tlsdyno_base::verdict::{Direction, Lies};

/// Below this number of rounds, intervals are rough, and reports say so.
pub const FEW_ROUNDS: u32 = 5;

named! {
    /// What "cost of a hit" means, in the order of reports: CPU leads because it stands noisy and shared machines.
    pub enum Metric: "metric" {
        /// Server CPU time per hit.
        Cpu = "cpu",
        /// Time per hit at saturation: the reciprocal of hits per second, the papers' own metric.
        Throughput = "throughput",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The 95 % interval excludes 0: the sign is known.
    Resolved,
    /// The interval holds 0, or there are too few rounds: more rounds or a quieter machine are needed.
    Undecided,
}

/// A difference between configurations that is not a share, in per cent of the server as is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    pub metric: Metric,
    pub percent: f64,
    /// End of the 95 % interval.
    pub low: f64,
    pub high: f64,
    pub verdict: Verdict,
}

impl Difference {
    pub fn of(estimate: Estimate, metric: Metric, rounds: u32) -> Difference {
        let resolved = direction(estimate, rounds) != Direction::Undecided;
        let verdict = if resolved { Verdict::Resolved } else { Verdict::Undecided };
        let Estimate { value: percent, low, high } = estimate.scaled(100.0);
        Difference { metric, percent, low, high, verdict }
    }

    pub fn is_of_few_rounds(&self) -> bool {
        self.verdict == Verdict::Undecided && Direction::new([self.low, self.high], 0.0) != Direction::Undecided
    }

    pub fn estimate(&self) -> Estimate {
        Estimate { value: self.percent, low: self.low, high: self.high }
    }

    pub fn part(&self) -> PartOfWhole {
        PartOfWhole::of(self.percent, [self.low, self.high])
    }
}

/// On which side of 0 an estimate from so many rounds lies. Below [`FEW_ROUNDS`] nothing is decided: all of 4 rounds
/// lie on one side of 0 by chance once in 8 times.
pub fn direction(estimate: Estimate, rounds: u32) -> Direction {
    if rounds >= FEW_ROUNDS { estimate.direction() } else { Direction::Undecided }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideBySide {
    pub stage: String,
    pub first: Estimate,
    pub second: Estimate,
    /// The second less the first, in per cent or in the unit of both.
    pub difference: Estimate,
    pub direction: Direction,
}

/// A part of a whole, in per cent. Noise, or a limit elsewhere, can give an impossible number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PartOfWhole {
    Number(f64),
    /// The number is below 0; this, the end of its interval, is the most that it can be.
    AtMost(f64),
    /// The number is above 100; this, the end of its interval, is the least that it can be.
    AtLeast(f64),
    /// The whole interval is impossible.
    NotKnown,
}

impl PartOfWhole {
    pub fn of(percent: f64, [low, high]: [f64; 2]) -> PartOfWhole {
        let can_be = |end: f64| (0.0..=100.0).contains(&end);
        match () {
            () if can_be(percent) => PartOfWhole::Number(percent),
            () if percent < 0.0 && can_be(high) && high > 0.0 => PartOfWhole::AtMost(high),
            () if percent > 100.0 && can_be(low) && low > 0.0 => PartOfWhole::AtLeast(low),
            () => PartOfWhole::NotKnown,
        }
    }
}

/// Hits per second of one configuration by those of another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub times: f64,
    /// Lower end of the 95 % interval; 0 with fewer than two rounds.
    pub low: f64,
    /// Upper end; `inf` (JSON: null) with fewer than two rounds.
    pub high: f64,
    pub direction: Direction,
    /// Something else than the server limited the configuration in the denominator: the true ratio may be smaller.
    pub at_most: bool,
    /// The same for the configuration in the numerator: the true ratio may be larger.
    pub at_least: bool,
}

impl Ratio {
    pub fn estimate(&self) -> Estimate {
        Estimate { value: self.times, low: self.low, high: self.high }
    }

    pub fn is_bound(&self) -> bool {
        self.at_most || self.at_least
    }

    /// In the rounds that have both; `None` without any.
    pub fn of_columns(by: &Column, of: &Column) -> Option<Ratio> {
        let logarithms: Column = by.iter().zip(of).map(|(by, of)| Some(((*of)? / (*by)?).ln())).collect();
        let pairs = logarithms.iter().flatten().count() as u32;
        (pairs > 0).then(|| Ratio::of_logarithm(estimate_column(&logarithms), pairs, false, false))
    }

    pub fn of_logarithm(estimate: Estimate, pairs: u32, at_most: bool, at_least: bool) -> Ratio {
        let (low, high) = (estimate.low.exp(), estimate.high.exp());
        let direction = match Direction::new([low, high], 1.0) {
            Direction::Bigger if pairs >= FEW_ROUNDS && !at_most => Direction::Bigger,
            Direction::Smaller if pairs >= FEW_ROUNDS && !at_least => Direction::Smaller,
            _ => Direction::Undecided,
        };
        Ratio { times: estimate.value.exp(), low, high, direction, at_most, at_least }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_part_is_no_number() {
        let infinite = [f64::NEG_INFINITY, f64::INFINITY];
        assert_eq!(PartOfWhole::of(12.0, infinite), PartOfWhole::Number(12.0));
        assert_eq!(PartOfWhole::of(-133.7, infinite), PartOfWhole::NotKnown);
        assert_eq!(PartOfWhole::of(545.3, infinite), PartOfWhole::NotKnown);
        assert_eq!(PartOfWhole::of(-8.5, [-12.9, -1.9]), PartOfWhole::NotKnown);
        assert_eq!(PartOfWhole::of(-0.3, [-1.2, 0.6]), PartOfWhole::AtMost(0.6));
        assert_eq!(PartOfWhole::of(104.0, [97.0, 111.0]), PartOfWhole::AtLeast(97.0));
        assert_eq!(PartOfWhole::of(f64::NAN, [0.0, 1.0]), PartOfWhole::NotKnown);
    }
}
