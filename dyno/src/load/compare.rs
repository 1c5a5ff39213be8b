//! Whether one load run was faster than another: effects with intervals, and one of three words.

use std::fmt;

use anyhow::{Result, ensure};
use serde::Serialize;
use tlsdyno_engine::load::Slice;

use crate::distribution::{CONFIDENCE, student_t_two_sided};
use crate::load::summary::Summary;

/// Fewer slices with hits than this say nothing about how a run scatters.
pub const SLICES_MIN: usize = 5;

/// What the second run is by comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// The whole interval is on the good side.
    Faster,
    /// The whole interval is on the bad side.
    Slower,
    /// The interval holds both, or what lies beyond is within the tolerance.
    Undecided,
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Word::Faster => "faster",
            Word::Slower => "slower",
            Word::Undecided => "undecided",
        })
    }
}

/// One quantity of two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Its name.
    pub quantity: &'static str,
    /// Geometric mean over the slices of the first run; hits/s or nanoseconds.
    pub first: f64,
    /// The same of the second.
    pub second: f64,
    /// The second by the first, minus one, percent.
    pub change_percent: f64,
    /// Lower end of its 95 % interval.
    pub low_percent: f64,
    /// Upper end.
    pub high_percent: f64,
    /// In a word.
    pub word: Word,
}

/// Compares throughput and latencies of two runs; changes within `tolerance_percent` are no difference.
///
/// The slices of a run are its sample; the interval is Welch's for the difference of the means of logarithms (Welch
/// 1947), so that it is one of the ratio. Slices of one run are not independent of each other where the server drifts:
/// repeat runs to see that.
///
/// # Errors
/// A run has too few slices.
pub fn compare(first: &Summary, second: &Summary, tolerance_percent: f64) -> Result<Vec<Comparison>> {
    for summary in [first, second] {
        let with_hits = summary.slices.iter().filter(|slice| slice.hits > 0).count();
        ensure!(
            with_hits >= SLICES_MIN,
            "the run of {} has {with_hits} slices with hits, but {SLICES_MIN} are needed to tell how it scatters; run \
             it longer",
            summary.url
        );
    }
    type Quantity = (&'static str, bool, fn(&Slice) -> f64);
    let quantities: [Quantity; 3] = [
        ("hits/s", true, |slice| slice.hits as f64 * 1e9 / slice.elapsed_ns as f64),
        ("latency p50", false, |slice| slice.latency_ns_p50 as f64),
        ("latency p99", false, |slice| slice.latency_ns_p99 as f64),
    ];
    let logarithms = |summary: &Summary, of: fn(&Slice) -> f64| -> Vec<f64> {
        summary.slices.iter().filter(|slice| slice.hits > 0).map(|slice| of(slice).max(1e-9).ln()).collect()
    };
    Ok(quantities
        .into_iter()
        .map(|(quantity, more_is_better, of)| {
            let (a, b) = (Sample::of(&logarithms(first, of)), Sample::of(&logarithms(second, of)));
            comparison(quantity, more_is_better, &a, &b, tolerance_percent)
        })
        .collect())
}

struct Sample {
    n: f64,
    mean: f64,
    /// Squared standard error of the mean.
    error2: f64,
}

impl Sample {
    fn of(values: &[f64]) -> Sample {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Sample { n, mean, error2: variance / n }
    }
}

fn comparison(quantity: &'static str, more_is_better: bool, a: &Sample, b: &Sample, tolerance: f64) -> Comparison {
    let difference = b.mean - a.mean;
    let error2 = a.error2 + b.error2;
    let degrees = if error2 > 0.0 {
        error2.powi(2) / (a.error2.powi(2) / (a.n - 1.0) + b.error2.powi(2) / (b.n - 1.0))
    } else {
        a.n + b.n - 2.0
    };
    let half = student_t_two_sided(CONFIDENCE, degrees.floor().max(1.0) as usize) * error2.sqrt();
    let percent = |logarithm: f64| 100.0 * logarithm.exp_m1();
    let (low, high) = (percent(difference - half), percent(difference + half));
    let word = match (low > tolerance, high < -tolerance) {
        (true, _) if more_is_better => Word::Faster,
        (_, true) if more_is_better => Word::Slower,
        (true, _) => Word::Slower,
        (_, true) => Word::Faster,
        (false, false) => Word::Undecided,
    };
    let change_percent = percent(difference);
    let (first, second) = (a.mean.exp(), b.mean.exp());
    Comparison { quantity, first, second, change_percent, low_percent: low, high_percent: high, word }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden values: `scipy.stats.ttest_ind(b, a, equal_var=False).confidence_interval()` of the same lists has these
    /// ends.
    #[test]
    fn the_interval_is_welchs() {
        let a = Sample::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        let b = Sample::of(&[3.0, 4.0, 5.0, 6.0, 7.0]);
        // Equal variances: t(0.975, 8) = 2.306004, standard error 1.
        let got = comparison("x", true, &a, &b, 0.0);
        let ends = [(got.low_percent / 100.0).ln_1p(), (got.high_percent / 100.0).ln_1p()];
        assert!((ends[0] + 0.306_004).abs() < 1e-4 && (ends[1] - 4.306_004).abs() < 1e-4, "{ends:?}");
        assert_eq!(got.word, Word::Undecided);
    }

    #[test]
    fn words_depend_on_the_direction_and_the_tolerance() {
        let sample = |mean: f64| Sample { n: 50.0, mean: mean.ln(), error2: 1e-6 };
        let word =
            |better, first, second, tolerance| comparison("x", better, &sample(first), &sample(second), tolerance).word;
        assert_eq!(word(true, 100.0, 110.0, 0.0), Word::Faster);
        assert_eq!(word(true, 100.0, 90.0, 0.0), Word::Slower);
        assert_eq!(word(false, 100.0, 110.0, 0.0), Word::Slower);
        assert_eq!(word(false, 100.0, 90.0, 0.0), Word::Faster);
        assert_eq!(word(true, 100.0, 98.0, 5.0), Word::Undecided);
        assert_eq!(word(true, 100.0, 100.1, 0.0), Word::Undecided);
    }
}
