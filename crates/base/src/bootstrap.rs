//! Paired bootstrap over rounds.
//!
//! Every quantity reported is a linear combination of trimmed means of columns (one column per configuration, one value
//! per round). All of them are computed from the *same* resample of rounds, so that differences and remainders have
//! intervals of their own and sums hold in each resample, not only on average.

use serde::{Deserialize, Deserializer, Serialize};

use crate::distribution::{CONFIDENCE, normal_cdf, student_t_two_sided};
use crate::random::SplitMix64;
use crate::robust::{quantile, sorted, trimmed_each_end, trimmed_mean};
use crate::units::{UNDECIDED, format_interval_with, never_minus_zero};

/// Number of resamples for a report.
pub const RESAMPLES: usize = 10_000;
/// Seed of the resampling: fixed, so that the same record always gives the same numbers.
pub const SEED: u64 = 0x0074_6c73_6479_6e6f;

/// One value per round; `None` where the block was missing or invalid.
pub type Column = Vec<Option<f64>>;

/// A value with its 95 % interval, in the unit of the columns. The ends are infinite (JSON: null) when fewer than two
/// rounds are there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The point estimate, in the unit of the estimated quantity.
    #[serde(deserialize_with = "or_nan")]
    pub value: f64,
    /// Lower end of the 95 % interval.
    #[serde(deserialize_with = "or_lowest")]
    pub low: f64,
    /// Upper end of the 95 % interval.
    #[serde(deserialize_with = "or_highest")]
    pub high: f64,
}

fn or_nan<'d, D: Deserializer<'d>>(number: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(number)?.unwrap_or(f64::NAN))
}

fn or_lowest<'d, D: Deserializer<'d>>(number: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(number)?.unwrap_or(f64::NEG_INFINITY))
}

fn or_highest<'d, D: Deserializer<'d>>(number: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(number)?.unwrap_or(f64::INFINITY))
}

impl Estimate {
    /// A value of which no interval is known.
    pub const fn without_interval(value: f64) -> Estimate {
        Estimate { value, low: f64::NEG_INFINITY, high: f64::INFINITY }
    }

    /// A value made of so many units, with the interval that its values in resamples of them give ([`resample`]).
    pub fn of_resamples(value: f64, sample: Vec<f64>, units: usize) -> Estimate {
        let sample = sorted(&sample);
        let tail = if units < 2 { 0.5 } else { expanded_tail(units) };
        match (quantile(&sample, tail), quantile(&sample, 1.0 - tail)) {
            (Some(low), Some(high)) if units >= 2 => Estimate { value, low, high },
            _ => Estimate::without_interval(value),
        }
    }

    /// It has a value: something was measured.
    pub fn is_known(&self) -> bool {
        self.value.is_finite()
    }

    /// Itself, if it has a value.
    pub fn known(self) -> Option<Estimate> {
        self.is_known().then_some(self)
    }

    /// Both ends of its interval are known: it is of two units or more.
    pub fn has_interval(&self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }

    /// As charts draw it: an interval that is not known has no length.
    #[must_use]
    pub fn drawn(self) -> Estimate {
        let end = |end: f64| if end.is_finite() { end } else { self.value };
        Estimate { low: end(self.low), high: end(self.high), ..self }
    }

    /// The lower and the upper end of the interval.
    pub fn interval(&self) -> [f64; 2] {
        [self.low, self.high]
    }

    /// Half of the width of its interval.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// The ends as text, each formatted by `format`.
    pub fn ends(&self, format: impl Fn(f64) -> String) -> String {
        format_interval_with(self.low, self.high, format)
    }

    /// The value with its interval as text, each number formatted by `format`: `412 [400, 424]`.
    pub fn with_interval(&self, format: impl Fn(f64) -> String) -> String {
        self.in_unit("", format)
    }

    /// The same with a unit behind the value: `412 µs [400, 424]`. Without an interval no number is told.
    pub fn in_unit(&self, unit: &str, format: impl Fn(f64) -> String) -> String {
        match self.has_interval() {
            true => format!("{}{unit} {}", never_minus_zero(format(self.value)), self.ends(&format)),
            false => UNDECIDED.to_owned(),
        }
    }

    /// Value and ends multiplied by a positive `factor`.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Estimate {
        self.map(|number| number * factor)
    }

    /// How many times another estimate this one is, with the widest interval that both allow.
    #[must_use]
    pub fn divided_by(self, by: Estimate) -> Estimate {
        Estimate { value: self.value / by.value, low: self.low / by.high, high: self.high / by.low }
    }

    /// Value and ends as an ascending function has them.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Estimate {
        Estimate { value: change(self.value), low: change(self.low), high: change(self.high) }
    }

    /// The difference to another estimate whose errors are independent: its interval reaches as far as the distances
    /// to the ends of both intervals, squared and added (Zou and Donner 2008, "Construction of confidence limits about
    /// effect measures", section 2).
    #[must_use]
    pub fn less(self, other: Estimate) -> Estimate {
        let value = self.value - other.value;
        // `f64::hypot` would ask for the C library's of 2022 (glibc 2.35).
        let root = |one: f64, two: f64| (one * one + two * two).sqrt();
        let below = root(self.value - self.low, other.high - other.value);
        let above = root(self.high - self.value, other.value - other.low);
        Estimate { value, low: value - below, high: value + above }
    }
}

/// `constant + Σ weight · trimmed mean of column`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Combination {
    /// A summand that depends on no column.
    pub constant: f64,
    /// Index of a column and its weight.
    pub terms: Vec<(usize, f64)>,
}

impl Combination {
    /// The trimmed mean of one column.
    pub fn column(index: usize) -> Combination {
        Combination { constant: 0.0, terms: vec![(index, 1.0)] }
    }

    fn value(&self, means: &[f64]) -> f64 {
        self.constant + self.terms.iter().map(|&(column, weight)| weight * means[column]).sum::<f64>()
    }
}

/// Estimates each combination from `columns` (all of the same length), with intervals.
///
/// The interval is the percentile interval with the small-sample expansion of Hesterberg (What Teachers Should Know
/// About the Bootstrap, The American Statistician 69(4), 2015): with n rounds the percentiles are taken at
/// `Φ(−√(n/(n−1)) · t)` instead of 2.5 %, `t` being Student's quantile, because plain percentile intervals are too
/// narrow for few rounds.
pub fn estimate(columns: &[Column], combinations: &[Combination], resamples: usize, seed: u64) -> Vec<Estimate> {
    let points: Vec<f64> = columns.iter().map(|column| trimmed_mean(&present(column)).unwrap_or(f64::NAN)).collect();
    let of_means =
        |means: &[f64]| combinations.iter().map(|combination| combination.value(means)).collect::<Vec<f64>>();
    let samples = resampled_means(columns, of_means, resamples, seed);
    let estimate = |(at, combination): (usize, &Combination)| {
        let rounds = combination.terms.iter().map(|&(column, _)| present(&columns[column]).len()).min().unwrap_or(0);
        let sample = samples.iter().map(|values| values[at]).collect();
        Estimate::of_resamples(combination.value(&points), sample, rounds)
    };
    combinations.iter().enumerate().map(estimate).collect()
}

/// Estimates the trimmed mean of one column.
pub fn estimate_column(column: &Column) -> Estimate {
    estimate(std::slice::from_ref(column), &[Combination::column(0)], RESAMPLES, SEED)[0]
}

/// Estimates a sum of trimmed means of columns, each with its weight, as reports do. What is estimated of the same
/// rounds has the same resamples, so that sums hold in each of these.
pub fn estimate_sum(terms: &[(&Column, f64)]) -> Estimate {
    let columns: Vec<Column> = terms.iter().map(|(column, _)| (*column).clone()).collect();
    let terms = terms.iter().enumerate().map(|(index, (_, weight))| (index, *weight)).collect();
    estimate(&columns, &[Combination { constant: 0.0, terms }], RESAMPLES, SEED)[0]
}

/// Estimates what `of` makes of the trimmed means of `columns`, with an interval like that of [`estimate`]. It may be
/// infinite for some means, so that the ends are values that it took, not something between two.
pub fn estimate_function(columns: &[Column], f: impl Fn(&[f64]) -> f64, resamples: usize, seed: u64) -> Estimate {
    let points: Vec<f64> = columns.iter().map(|column| trimmed_mean(&present(column)).unwrap_or(f64::NAN)).collect();
    let rounds = columns.iter().map(|column| present(column).len()).min().unwrap_or(0);
    let value = f(&points);
    let mut sample = resampled_means(columns, f, resamples, seed);
    if rounds < 2 || sample.is_empty() {
        return Estimate::without_interval(value);
    }
    sample.sort_unstable_by(f64::total_cmp);
    let tail = expanded_tail(rounds);
    let end = |q: f64| sample[(q * (sample.len() - 1) as f64).round() as usize];
    Estimate { value, low: end(tail), high: end(1.0 - tail) }
}

/// The probability cut off at each end for `rounds` (at least 2) rounds.
pub fn expanded_tail(rounds: usize) -> f64 {
    let n = rounds as f64;
    normal_cdf(-(n / (n - 1.0)).sqrt() * student_t_two_sided(CONFIDENCE, n - 1.0))
}

/// What `of` makes of each resample: as many units as there are, drawn with replacement. It is told how often each unit
/// was drawn. Where it answers `None` the resample says nothing and another one is drawn in its place, up to a limit.
pub fn resample<T>(units: usize, resamples: usize, seed: u64, mut f: impl FnMut(&[usize]) -> Option<T>) -> Vec<T> {
    const DRAWS_EACH: usize = 20;
    let mut random = SplitMix64::new(seed);
    let mut counts = vec![0; units];
    let draw = |_| {
        counts.fill(0);
        (0..units).for_each(|_| counts[random.below(units)] += 1);
        f(&counts)
    };
    (0..resamples * DRAWS_EACH).filter_map(draw).take(resamples).collect()
}

/// What `of` makes of the trimmed means of the columns in each resample of rounds. Nothing where a column is empty.
fn resampled_means<T>(columns: &[Column], f: impl Fn(&[f64]) -> T, resamples: usize, seed: u64) -> Vec<T> {
    let rounds = columns.first().map_or(0, Vec::len);
    if rounds == 0 || columns.iter().any(|column| present(column).is_empty()) {
        return Vec::new();
    }
    let orders: Vec<Vec<(usize, f64)>> = columns.iter().map(ascending).collect();
    let mut means = vec![0.0; columns.len()];
    resample(rounds, resamples, seed, |counts| {
        for (mean, order) in means.iter_mut().zip(&orders) {
            *mean = weighted_trimmed_mean(order, counts)?;
        }
        Some(f(&means))
    })
}

/// The trimmed mean of a resample: `order` is the column in ascending order with the round of each value, `counts` how
/// often each round was drawn. Walking the sorted column once is what makes 10,000 resamples cheap.
fn weighted_trimmed_mean(order: &[(usize, f64)], counts: &[usize]) -> Option<f64> {
    let drawn: usize = order.iter().map(|&(round, _)| counts[round]).sum();
    let cut = trimmed_each_end(drawn);
    let kept = drawn - 2 * cut;
    if kept == 0 {
        return None;
    }
    let (mut skip, mut take, mut sum) = (cut, kept, 0.0);
    for &(round, value) in order {
        let skipped = counts[round].min(skip);
        skip -= skipped;
        let used = (counts[round] - skipped).min(take);
        take -= used;
        sum += used as f64 * value;
    }
    Some(sum / kept as f64)
}

fn present(column: &Column) -> Vec<f64> {
    column.iter().flatten().copied().collect()
}

fn ascending(column: &Column) -> Vec<(usize, f64)> {
    let mut order: Vec<(usize, f64)> =
        column.iter().enumerate().filter_map(|(round, value)| value.map(|value| (round, value))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::verdict::Direction;

    const SCIPY_TAIL: f64 = 0.009722406900079611;
    const SCIPY_INTERVAL: (f64, f64) = (3.271428571428572, 32.31428571428571);
    const VALUES: [f64; 11] = [3.1, 4.7, 1.2, 9.9, 5.5, 2.8, 7.3, 100.0, 6.1, 4.4, 3.9];

    fn column(values: &[f64]) -> Column {
        values.iter().copied().map(Some).collect()
    }

    fn one(values: &[f64]) -> Estimate {
        estimate(&[column(values)], &[Combination::column(0)], RESAMPLES, SEED)[0]
    }

    #[test]
    fn agrees_with_scipy() {
        // SciPy 1.17.1; tail is Φ(−√(11/10) · t(0.975, 10)):
        // tail = norm.cdf(-(11/10)**.5 * t.ppf(.975, 10))
        // bootstrap((v,), lambda x, axis: trim_mean(x, .2, axis=axis), n_resamples=1_000_000, batch=10_000,
        //           confidence_level=1 - 2*tail, method="percentile", rng=1)
        assert!((expanded_tail(11) - SCIPY_TAIL).abs() < 1e-9);
        let got = one(&VALUES);
        assert!((got.value - 5.0).abs() < 1e-12);
        assert!((got.low - SCIPY_INTERVAL.0).abs() < 0.08, "{got:?}");
        assert!((got.high - SCIPY_INTERVAL.1).abs() < 1.0, "{got:?}");
    }

    #[test]
    fn no_number_is_told_without_its_interval() {
        let short = |value: f64| format!("{value:.0}");
        let known = Estimate { value: 412.0, low: 400.0, high: 424.0 };
        assert_eq!(known.with_interval(short), "412 [400, 424]");
        assert_eq!(known.in_unit(" µs", short), "412 µs [400, 424]");
        for open in [Estimate::without_interval(412.0), Estimate { high: f64::NAN, ..known }] {
            assert_eq!([open.with_interval(short), open.in_unit(" µs", short)], ["undecided", "undecided"]);
        }
    }

    #[test]
    fn too_few_rounds_claim_nothing() {
        let got = one(&[4.0]);
        assert_eq!((got.value, got.low, got.high), (4.0, f64::NEG_INFINITY, f64::INFINITY));
        assert_eq!(got.direction(), Direction::Undecided);
        let nothing = estimate(&[vec![None, None]], &[Combination::column(0)], 100, SEED)[0];
        assert!(nothing.value.is_nan() && nothing.low.is_infinite());
    }

    #[test]
    fn a_missing_block_costs_only_its_own_column() {
        let columns =
            [column(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), vec![Some(1.0), None, Some(3.0), Some(2.0), None, Some(1.5)]];
        let got = estimate(&columns, &[Combination::column(0), Combination::column(1)], 2_000, SEED);
        assert!((got[0].value - 3.5).abs() < 1e-12);
        assert!((got[1].value - 1.875).abs() < 1e-12);
        assert!(got.iter().all(|estimate| estimate.low.is_finite() && estimate.low < estimate.value));
    }

    /// Costs of a simulated experiment: drift common to a round, noise of each block, and now and then a disturbed
    /// block.
    fn simulated_shares(rounds: usize, random: &mut SplitMix64) -> [Column; 3] {
        let mut shares = [vec![], vec![], vec![]];
        for _ in 0..rounds {
            let drift = (0.2 * random.normal()).exp();
            let mut measured = |true_cost: f64| {
                let disturbed = if random.below(20) == 0 { 1.0 + random.uniform() } else { 1.0 };
                true_cost * drift * (1.0 + 0.03 * random.normal()) * disturbed
            };
            let [as_is, large_off, small_off, plain] = [300.0, 180.0, 294.0, 60.0].map(&mut measured);
            shares[0].push(Some(1.0 - large_off / as_is));
            shares[1].push(Some(1.0 - small_off / as_is));
            shares[2].push(Some(plain / as_is));
        }
        shares
    }

    /// Of 400 simulated experiments about 95 % must give intervals that hold the truth: 40 %, 2 %, 20 % and, left over,
    /// 38 %.
    #[test]
    fn intervals_cover_the_truth_as_often_as_they_say() {
        let rest = Combination { constant: 1.0, terms: vec![(0, -1.0), (1, -1.0), (2, -1.0)] };
        let quantities = [Combination::column(0), Combination::column(1), Combination::column(2), rest];
        for (rounds, at_least) in [(6, 0.93), (12, 0.93), (40, 0.93)] {
            let mut random = SplitMix64::new(42 + rounds as u64);
            let mut covered = [0u32; 4];
            for _ in 0..400 {
                let columns = simulated_shares(rounds, &mut random);
                let estimates = estimate(&columns, &quantities, 1_000, random.next_u64());
                for ((count, estimate), truth) in covered.iter_mut().zip(estimates).zip([0.40, 0.02, 0.20, 0.38]) {
                    *count += u32::from(estimate.low <= truth && truth <= estimate.high);
                }
            }
            let share = covered.map(|count| f64::from(count) / 400.0);
            assert!(share.iter().all(|&share| share >= at_least), "{rounds} rounds: covered {share:?}");
            eprintln!("{rounds} rounds: covered {share:?}");
        }
    }

    /// Measuring that stops at the first look at which the interval is narrow enough (`--until`) must not stop at
    /// intervals that are too narrow by chance: of 250 runs about 95 % must hold the truth.
    #[test]
    fn intervals_at_which_measuring_stopped_cover_the_truth_too() {
        const SWEEPS_BETWEEN_LOOKS: usize = 60;
        let mut random = SplitMix64::new(5);
        let (mut covered, mut looks) = (0u32, Vec::new());
        for _ in 0..250 {
            let mut values = Vec::new();
            for look in 1..=12 {
                for _ in 0..SWEEPS_BETWEEN_LOOKS {
                    let disturbed = if random.below(20) == 0 { 5.0 } else { 1.0 };
                    values.push(40.0 + 10.0 * disturbed * random.normal());
                }
                if look < 3 {
                    continue;
                }
                let asked = [Combination::column(0)];
                let estimate = estimate(&[column(&values)], &asked, 500, random.next_u64())[0];
                if (estimate.high - estimate.low) / 2.0 <= 1.0 || look == 12 {
                    covered += u32::from(estimate.low <= 40.0 && 40.0 <= estimate.high);
                    looks.push(look);
                    break;
                }
            }
        }
        let different: std::collections::BTreeSet<i32> = looks.iter().copied().collect();
        assert!(different.len() > 2, "it stops at different looks: {different:?}");
        assert!(f64::from(covered) / 250.0 >= 0.92, "{covered} of 250");
        eprintln!("covered {covered} of 250, stopped at looks {different:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_remainder_and_its_parts_add_up(
            a in prop::collection::vec(0.0..1.0f64, 8),
            b in prop::collection::vec(0.0..1.0f64, 8),
        ) {
            let rest = Combination { constant: 1.0, terms: vec![(0, -1.0), (1, -1.0)] };
            let asked = [Combination::column(0), Combination::column(1), rest];
            let got = estimate(&[column(&a), column(&b)], &asked, 200, 3);
            prop_assert!((got.iter().map(|estimate| estimate.value).sum::<f64>() - 1.0).abs() < 1e-12);
        }

        #[test]
        fn scale_passes_through(values in prop::collection::vec(-1.0..1.0f64, 2..20), scale in 0.1..50.0f64) {
            let scaled: Vec<f64> = values.iter().map(|x| x * scale).collect();
            let (plain, scaled) = (one(&values), one(&scaled));
            prop_assert!((plain.low * scale - scaled.low).abs() < 1e-9 * scale);
            prop_assert!((plain.high * scale - scaled.high).abs() < 1e-9 * scale);
        }

        #[test]
        fn an_interval_holds_its_estimate(values in prop::collection::vec(-1.0..1.0f64, 5..20)) {
            let got = one(&values);
            prop_assert!(got.low <= got.value + 1e-12 && got.value <= got.high + 1e-12);
        }
    }
}
