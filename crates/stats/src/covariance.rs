//! What an analysis of covariance (Fisher 1932) is made of: deviations from the means of groups, and slopes.

/// NaN for a group without values.
pub(super) fn means(values: &[f64], groups: &[usize]) -> Vec<f64> {
    let groups_total = groups.iter().max().map_or(0, |last| last + 1);
    let of_group =
        |wanted| values.iter().zip(groups).filter(move |(_, group)| **group == wanted).map(|(value, _)| *value);
    (0..groups_total).map(|group| mean(of_group(group))).collect()
}

/// Deviations from the mean of the own group, as parts of it.
pub(super) fn relative(values: &[f64], means: &[f64], groups: &[usize]) -> Vec<f64> {
    values.iter().zip(groups).map(|(value, group)| value / means[*group] - 1.0).collect()
}

/// NaN without values.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}

/// The slope of `y` over `x`, by least squares through the origin; 0 where `x` does not vary.
pub(super) fn slope(x: &[f64], y: &[f64]) -> f64 {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let squares = product(x, x);
    if squares > 0.0 { product(x, y) / squares } else { 0.0 }
}
