//! Whether two records of one question tell the same: the shares of the one beside those of the other, and what a hit
//! costs as is.
//!
//! The two were measured apart, so that their errors are independent.

use tlsdyno_base::distribution::{CONFIDENCE, student_t_two_sided};
use tlsdyno_record::store::Role;
use tlsdyno_stats::bootstrap::Estimate;
use tlsdyno_stats::statement::{Direction, FEW_ROUNDS, Metric, SideBySide};

use super::Summary;
use super::between_runs::BetweenRuns;
use super::shares::Share;

/// Name of the server's CPU time per hit as is, nanoseconds; its change is a percentage.
pub const CPU_PER_HIT: &str = "cpu_per_hit_ns";

/// Degrees of freedom from which on Student's t is the normal distribution.
const MANY: f64 = 100_000.0;

/// What both records have, in the order of the first. A change of less than `tolerance` percentage points is undecided.
pub fn compared(first: &Summary, second: &Summary, tolerance: f64) -> Vec<SideBySide> {
    let cost = |of: &Summary| {
        let as_is = of.configuration(&Role::AsIs)?;
        as_is.server_cpu_ns_per_hit.known()
    };
    let shares: Vec<(&str, [Estimate; 2])> = first
        .shares
        .by(Metric::Cpu)
        .filter_map(|share| {
            let other = second.shares.by(Metric::Cpu).find(|other| other.stage == share.stage)?;
            Some((share.stage.as_str(), [known(share, &first.between_runs), known(other, &second.between_runs)]))
        })
        .collect();
    let costs = cost(first).zip(cost(second));
    let quantities = (shares.len() + usize::from(costs.is_some())) as f64;
    let coverage = 1.0 - (1.0 - CONFIDENCE) / quantities.max(1.0);
    let wider = student_t_two_sided(coverage, MANY) / student_t_two_sided(CONFIDENCE, MANY);
    let few = [first, second].iter().any(|of| of.rounds.max(of.sweeps) < FEW_ROUNDS);
    let change = |stage: &str, [first, second]: [Estimate; 2], difference: Estimate| {
        let direction = match () {
            () if few => Direction::Undecided,
            () if difference.low > tolerance => Direction::Bigger,
            () if difference.high < -tolerance => Direction::Smaller,
            () => Direction::Undecided,
        };
        SideBySide { stage: stage.to_owned(), first, second, difference, direction }
    };
    let of_cost = costs.map(|(a, b)| {
        let logarithm = |of: Estimate| of.map(|value| value.max(1.0).ln());
        let percent = |value: f64| 100.0 * value.exp_m1();
        change(CPU_PER_HIT, [a, b], less(logarithm(b), logarithm(a), wider).map(percent))
    });
    let of_shares = shares.into_iter().map(|(stage, both)| change(stage, both, less(both[1], both[0], wider)));
    of_cost.into_iter().chain(of_shares).collect()
}

/// A share with its interval: that which holds for other runs too, where enough of them were made.
fn known(share: &Share, between_runs: &[BetweenRuns]) -> Estimate {
    let own = share.estimate();
    let of_runs = between_runs.iter().find(|of| of.stage == share.stage);
    of_runs.map_or(own, |of| Estimate { low: of.low, high: of.high, ..own })
}

/// `a` less `b`, each half of the interval wider by this factor.
fn less(a: Estimate, b: Estimate, wider: f64) -> Estimate {
    let Estimate { value, low, high } = a.less(b);
    Estimate { value, low: value - wider * (value - low), high: value + wider * (high - value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_a_difference_are_as_far_as_both_ends() {
        let of = |value, low, high| Estimate { value, low, high };
        let change = less(of(20.0, 17.0, 24.0), of(10.0, 6.0, 13.0), 1.0);
        let expected = [10.0 - 3.0f64.hypot(3.0), 10.0 + 4.0f64.hypot(4.0)];
        let is_near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
        assert!(change.value == 10.0 && change.interval().iter().zip(&expected).all(is_near), "{change:?}");
        let unknown = less(of(20.0, f64::NEG_INFINITY, f64::INFINITY), of(10.0, 9.0, 11.0), 2.0);
        assert_eq!([unknown.low, unknown.high], [f64::NEG_INFINITY, f64::INFINITY]);
    }
}
