//! Estimators of location that a few disturbed blocks cannot move.

/// Share of the values left out at each end by [`trimmed_mean`].
pub const TRIM: f64 = 0.2;

/// How many of `n` sorted values are left out at each end.
pub const fn trimmed_each_end(n: usize) -> usize {
    // TRIM · n, rounded down, in integers so that 0.2 · 5 is 1 on every machine.
    n / 5
}

/// The mean of what remains when the lowest and the highest 20 % of the values are left out (Tukey and McLaughlin
/// 1963).
///
/// A block disturbed by another program moves a mean at will and a median wastes a third of the information of quiet
/// blocks; the 20 % trimmed mean stands up to a fifth of disturbed rounds on either side and loses little when there
/// are none (Wilcox, Introduction to Robust Estimation and Hypothesis Testing, 2012, section 3.3). `None` without
/// values.
pub fn trimmed_mean(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let cut = trimmed_each_end(sorted.len());
    let kept = &sorted[cut..sorted.len() - cut];
    (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
}

/// The least and the largest value that a trimmed mean keeps. `None` without values.
pub fn winsor_ends(values: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(values);
    let cut = trimmed_each_end(sorted.len());
    Some((*sorted.get(cut)?, sorted[sorted.len() - 1 - cut]))
}

/// The values, in their order, with those that a trimmed mean leaves out replaced by the nearest that it keeps: its
/// error is computed from these.
pub fn winsorised(values: &[f64]) -> Vec<f64> {
    let ends = winsor_ends(values);
    ends.map_or(Vec::new(), |(low, high)| values.iter().map(|value| value.clamp(low, high)).collect())
}

/// The mean and the variance (by n − 1) of values.
pub fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let mean = mean(values);
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0))
}

/// The mean of values; not a number without any.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The quantile `q` (0 to 1) of ascending values, linear between order statistics (type 7 of Hyndman and Fan 1996, the
/// default of NumPy and R). `None` without values.
pub fn quantile(ascending: &[f64], q: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = at.ceil() as usize;
    Some(ascending[below] + (ascending[above] - ascending[below]) * (at - below as f64))
}

/// The values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Golden values, SciPy 1.17.1 and NumPy 2.4.6:
    /// `python3 -c "import scipy.stats as s, numpy as n; v=[3.1,4.7,1.2,9.9,5.5,2.8,7.3,100.0,6.1,4.4,3.9];
    /// print(s.trim_mean(v,.2), n.quantile(v,[.025,.3,.5,.975]))"`
    const VALUES: [f64; 11] = [3.1, 4.7, 1.2, 9.9, 5.5, 2.8, 7.3, 100.0, 6.1, 4.4, 3.9];

    const SCIPY_TRIM_MEAN: f64 = 5.0;
    const SCIPY_QUANTILES: [(f64, f64); 4] = [(0.025, 1.6), (0.3, 3.9), (0.5, 4.7), (0.975, 77.475)];

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * b.abs().max(1.0)
    }

    #[test]
    fn agrees_with_scipy() {
        assert!(close(trimmed_mean(&VALUES).unwrap(), SCIPY_TRIM_MEAN));
        for (q, expected) in SCIPY_QUANTILES {
            assert!(close(quantile(&sorted(&VALUES), q).unwrap(), expected), "{q}");
        }
    }

    #[test]
    fn nothing_gives_nothing() {
        assert_eq!((trimmed_mean(&[]), quantile(&[], 0.5)), (None, None));
    }

    proptest! {
        #[test]
        fn order_does_not_matter_and_scale_passes_through(
            mut values in prop::collection::vec(-1e6..1e6f64, 1..40),
            scale in 0.01..100.0f64,
        ) {
            let before = trimmed_mean(&values).unwrap();
            let scaled: Vec<f64> = values.iter().map(|x| x * scale).collect();
            prop_assert!((trimmed_mean(&scaled).unwrap() - before * scale).abs() <= 1e-6 * scale);
            values.reverse();
            prop_assert_eq!(trimmed_mean(&values).unwrap(), before);
        }
    }
}
