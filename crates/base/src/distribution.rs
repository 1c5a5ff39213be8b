//! The distribution functions that intervals need.

use std::f64::consts::TAU;

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Probability with which an interval covers the true value.
pub const CONFIDENCE: f64 = 0.95;

/// Probability that a standard normal variable is at most `x`; absolute error below 1e-14.
///
/// Series of Marsaglia, Evaluating the Normal Distribution, Journal of Statistical Software 11(4), 2004.
pub fn normal_cdf(x: f64) -> f64 {
    if x.abs() > 8.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut sum, mut term, mut k) = (x, x, 1.0);
    while term.abs() > 1e-17 {
        k += 2.0;
        term *= x * x / k;
        sum += term;
    }
    0.5 + sum * (-0.5 * x * x).exp() / TAU.sqrt()
}

/// Quantile function of the standard normal distribution.
pub fn normal_quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(p)
}

/// The value that Student's t with so many degrees of freedom, at least one, stays below in magnitude with probability
/// `coverage`.
pub fn student_t_two_sided(coverage: f64, degrees: f64) -> f64 {
    let distribution = StudentsT::new(0.0, 1.0, degrees).expect("there is at least one degree of freedom");
    distribution.inverse_cdf(0.5 + 0.5 * coverage)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SciPy 1.17.1: `scipy.stats.t.ppf(.975, k)`.
    #[test]
    fn t_agrees_with_scipy() {
        for (degrees, expected) in [
            (1, 12.706204736174694),
            (2, 4.302652729749462),
            (3, 3.1824463052837078),
            (4, 2.7764451051977934),
            (5, 2.5705818356363146),
            (9, 2.262157162798205),
            (19, 2.0930240544083087),
            (30, 2.0422724563012378),
            (99, 1.9842169515864174),
        ] {
            let got = student_t_two_sided(0.95, f64::from(degrees));
            assert!((got - expected).abs() < 1e-10 * expected, "{degrees}: {got} {expected}");
        }
    }

    /// SciPy 1.17.1: `scipy.stats.norm.cdf(x)`.
    #[test]
    fn normal_agrees_with_scipy() {
        for (x, expected) in [
            (-18.0, 0.0),
            (-4.0, 3.167124183311986e-05),
            (-2.5, 0.006209665325776132),
            (-1.96, 0.024997895148220435),
            (0.0, 0.5),
            (1.5, 0.9331927987311419),
            (9.0, 1.0),
        ] {
            assert!((normal_cdf(x) - expected).abs() < 1e-14, "{x}");
        }
    }
}
