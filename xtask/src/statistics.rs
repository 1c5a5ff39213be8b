//! What the figures of several rounds come to.

use tlsdyno_base::robust::{mean_and_variance, quantile, sorted};

/// The middle of the values; of an even count, the mean of the two in the middle. There must be one at least.
pub fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5).expect("there is a value")
}

/// The least and the largest value; infinite ones for none.
pub fn extremes(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &one| (least.min(one), most.max(one)))
}

/// The mean and its standard error, of two values at least.
pub fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let (mean, variance) = mean_and_variance(values);
    (mean, (variance / values.len() as f64).sqrt())
}

/// What the figures of each round are of those of others in the same round.
pub fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
}

/// The narrowest pair of order statistics that covers the median with at least 95 % (sign test; Conover, Practical
/// Nonparametric Statistics, section 3.2). Fewer than six values have none.
pub fn interval_of_median(values: &[f64]) -> [f64; 2] {
    let (sorted, count) = (sorted(values), values.len());
    let (mut cut, mut term, mut outside) = (0, 0.5_f64.powi(count as i32), 0.5_f64.powi(count as i32));
    // `outside`: the chance that at most `cut` of the values lie below the median.
    loop {
        term *= (count - cut) as f64 / (cut + 1) as f64;
        if 2.0 * (outside + term) > 0.05 {
            return [sorted[cut], sorted[count - 1 - cut]];
        }
        outside += term;
        cut += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_sign_test() {
        // Coverage from tables of the binomial distribution: 6 values 1 to 6 (96.9 %), 9 values 2 to 8 (96.1 %), 20
        // values 6 to 15 (95.9 %).
        for (count, expected) in [(6, [1.0, 6.0]), (9, [2.0, 8.0]), (20, [6.0, 15.0])] {
            let values: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            assert_eq!(interval_of_median(&values), expected);
        }
    }

    #[test]
    fn medians_of_even_and_odd_counts() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
        assert_eq!(median(&[3.0, 1.0, 2.0, 10.0]), 2.5);
    }
}
