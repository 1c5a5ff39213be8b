//! Whether one load is faster than another: repeats against repeats, rounds that hold both, or one run against one.
//!
//! What differs between two runs of the same thing (other programs on the machine, where memory lies) is not to be seen
//! within one of them: its slices are no sample of runs. So the sample is the run, or the round that holds both sides.
//! One run against one has no such sample, and says only what is beyond all that equal runs were seen to differ by.
//!
//! Several quantities are compared and one is enough to decide, so that each of n has an interval of
//! 1 − (1 − 0.95) / n (Bonferroni): together they are right 95 times in 100.
//!
//! Rounds hold both sides, but of each side one start only, and two starts of one program differ. What they may differ
//! by is no difference of the two ([`START_TO_START`]); of CPU time per hit, which no other program and no queue
//! changes, that is least, so that it finds what the others cannot.
//!
//! Circle: two loads are compared by the samples that their summaries have, and a record of several holds the
//! comparison.

use anyhow::{Result, ensure};
use serde::Serialize;
use tlsdyno_base::distribution::{CONFIDENCE, student_t_two_sided};
use tlsdyno_record::model::{ChangeLimit, ComparedQuantity};
use tlsdyno_tls::named;

use super::bootstrap::Estimate;
use super::robust::{mean_and_variance, trimmed_each_end, trimmed_mean, winsorised};

/// Minimum number of slices for an estimate of how a run scatters.
pub const SLICES_MIN: usize = 5;
/// Tolerance between two runs of the same thing on a busy machine, per cent: equal runs of six seconds differed by up
/// to 17 % beside other work (2026-11-22, two shared CPUs).
pub const RUN_TO_RUN_PERCENT: f64 = 20.0;
/// Tolerance of the CPU time per hit between two starts of one build, per cent: memory is laid out differently.
pub const CPU_START_TO_START_PERCENT: f64 = 2.0;

named! {
    /// What the second is by comparison.
    pub enum Word: "word" {
        /// The whole interval is on the good side.
        Faster = "faster",
        /// The whole interval is on the bad side.
        Slower = "slower",
        /// The interval holds both, or what lies beyond is within the tolerance.
        Undecided = "undecided",
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub hits_per_second: f64,
    pub latency_ns_p50: f64,
    pub latency_ns_p99: f64,
    /// CPU time of the server's processes by hits, nanoseconds; `None`: they are not on this machine, or not known.
    pub server_cpu_ns_per_hit: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub point: Option<String>,
    pub quantity: ComparedQuantity,
    /// Geometric mean over the samples of the first load; hits/s or nanoseconds. `None`: only the change is known.
    pub first: Option<f64>,
    pub second: Option<f64>,
    /// The second by the first, minus one, percent. All intervals of a comparison hold together in 95 % of cases.
    pub change_percent: Estimate,
    pub word: Word,
}

/// Slower in anything is slower: a gate should not let a latency through for a gain in throughput.
pub fn verdict(comparisons: &[Comparison]) -> Word {
    let any = |word| comparisons.iter().any(|comparison| comparison.word == word);
    match (any(Word::Slower), any(Word::Faster)) {
        (true, _) => Word::Slower,
        (false, true) => Word::Faster,
        (false, false) => Word::Undecided,
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    /// The change is shown to be beyond the limit, or was not measured; the text says which quantity.
    Broken(String),
    Undecided(String),
    Kept,
}

/// The worst outcome of all comparisons, and the texts of all limits that are not kept.
pub fn gate(limits: &[ChangeLimit], comparisons: &[Comparison]) -> Vec<Gate> {
    let of_limit = |limit: &ChangeLimit| {
        let found: Vec<&Comparison> = comparisons.iter().filter(|of| of.quantity == limit.quantity).collect();
        if found.is_empty() {
            return vec![Gate::Broken(format!("{limit} fails: not measured"))];
        }
        found.into_iter().map(|of| gate_of(limit, of)).collect()
    };
    limits.iter().flat_map(of_limit).collect()
}

fn gate_of(limit: &ChangeLimit, of: &Comparison) -> Gate {
    let Estimate { value, low, high } = of.change_percent;
    let point = of.point.as_ref().map_or_else(String::new, |point| format!("{point}: "));
    let it = format!("{point}it is {value:+.1} % [{low:+.1}, {high:+.1}]");
    let [beyond, within] = match limit.fails_above {
        true => [low > limit.percent, high <= limit.percent],
        false => [high < limit.percent, low >= limit.percent],
    };
    match (beyond, within) {
        (true, _) => Gate::Broken(format!("{limit} fails: {it}")),
        (_, true) => Gate::Kept,
        _ => Gate::Undecided(format!("{limit} is undecided: {it}")),
    }
}

#[derive(Clone, Copy)]
struct Quantity {
    is: ComparedQuantity,
    more_is_better: bool,
    of: fn(&Sample) -> Option<f64>,
    start_to_start_percent: f64,
}

const COMPARED: [Quantity; 4] = [
    Quantity {
        is: ComparedQuantity::CpuPerHit,
        more_is_better: false,
        of: |sample| sample.server_cpu_ns_per_hit,
        start_to_start_percent: CPU_START_TO_START_PERCENT,
    },
    Quantity {
        is: ComparedQuantity::HitsPerSecond,
        more_is_better: true,
        of: |sample| Some(sample.hits_per_second),
        start_to_start_percent: 5.0,
    },
    Quantity {
        is: ComparedQuantity::LatencyP50,
        more_is_better: false,
        of: |sample| Some(sample.latency_ns_p50),
        start_to_start_percent: 10.0,
    },
    Quantity {
        is: ComparedQuantity::LatencyP99,
        more_is_better: false,
        of: |sample| Some(sample.latency_ns_p99),
        start_to_start_percent: 20.0,
    },
];

fn known<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> Vec<Quantity> {
    COMPARED.into_iter().filter(|quantity| samples.clone().all(|sample| (quantity.of)(sample).is_some())).collect()
}

/// Coverage of each interval so that all of them together hold in 95 % of cases (Bonferroni).
fn coverage(quantities: &[Quantity]) -> f64 {
    1.0 - (1.0 - CONFIDENCE) / quantities.len().max(1) as f64
}

/// Compares repeats of one load with repeats of another, each run as a whole. With fewer than two runs on a side the
/// intervals have no end.
pub fn repeats(first: &[Sample], second: &[Sample], tolerance_percent: f64) -> Vec<Comparison> {
    let quantities = known(first.iter().chain(second));
    let compare = |quantity: &Quantity| {
        let [a, b] = [first, second].map(|runs| Location::of(&logarithms(runs.iter(), quantity)));
        word(quantity, [a.mean, b.mean], b.less(&a, coverage(&quantities)), tolerance_percent)
    };
    quantities.iter().map(compare).collect()
}

/// Compares two servers that were loaded in the same rounds, each started once.
pub fn rounds(pairs: &[[Sample; 2]]) -> Vec<Comparison> {
    let known = |quantity: &Quantity| -> Vec<[Sample; 2]> {
        let has_both = |pair: &&[Sample; 2]| pair.iter().all(|sample| (quantity.of)(sample).is_some());
        pairs.iter().filter(has_both).copied().collect()
    };
    // A server whose processes come and go has CPU time in few rounds, and those may be the quiet ones.
    let quantities: Vec<Quantity> =
        COMPARED.into_iter().filter(|quantity| 2 * known(quantity).len() > pairs.len()).collect();
    let compare = |quantity: &Quantity| {
        let known = known(quantity);
        let [a, b] = [0, 1].map(|side| logarithms(known.iter().map(|pair| &pair[side]), quantity));
        let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - a).collect();
        let ends = Location::of(&differences).interval(coverage(&quantities));
        word(quantity, [a, b].map(|values| Location::of(&values).mean), ends, quantity.start_to_start_percent)
    };
    quantities.iter().map(compare).collect()
}

/// Compares one run with one, by their slices. What is less than [`RUN_TO_RUN_PERCENT`] is undecided.
///
/// # Errors
/// A run has too few slices; `names` says which run that is.
pub fn single_runs(
    first: &[Sample],
    second: &[Sample],
    names: [&str; 2],
    tolerance_percent: f64,
) -> Result<Vec<Comparison>> {
    for (slices, name) in [first, second].into_iter().zip(names) {
        let count = slices.len();
        ensure!(
            count >= SLICES_MIN,
            "the run of {name} has {count} slices with hits, but {SLICES_MIN} are needed to tell how it scatters; run \
             it longer"
        );
    }
    let compare = |quantity: &Quantity| {
        let [a, b] = [first, second].map(|slices| Location::of(&logarithms(slices.iter(), quantity)));
        word(quantity, [a.mean, b.mean], b.less(&a, CONFIDENCE), tolerance_percent.max(RUN_TO_RUN_PERCENT))
    };
    Ok(known(first.iter().chain(second)).iter().map(compare).collect())
}

fn logarithms<'a>(samples: impl Iterator<Item = &'a Sample>, quantity: &Quantity) -> Vec<f64> {
    samples.filter_map(quantity.of).map(|value| value.max(1e-9).ln()).collect()
}

/// `first`, `second` and `difference` are logarithms.
fn word(quantity: &Quantity, [first, second]: [f64; 2], difference: Estimate, tolerance: f64) -> Comparison {
    let change_percent = difference.map(|logarithm| 100.0 * logarithm.exp_m1());
    let word = match (change_percent.low > tolerance, change_percent.high < -tolerance) {
        (false, false) => Word::Undecided,
        (bigger, _) if bigger == quantity.more_is_better => Word::Faster,
        _ => Word::Slower,
    };
    let [first, second] = [first, second].map(|mean| Some(mean.exp()));
    Comparison { point: None, quantity: quantity.is, first, second, change_percent, word }
}

/// The 20 % trimmed mean of values with its standard error (Tukey and McLaughlin 1963; Yuen 1974): one disturbed run
/// of five moves it little. Of fewer than five values it is their mean.
#[derive(Clone, Copy, Debug)]
struct Location {
    mean: f64,
    /// Square of the standard error; infinite with fewer than two values.
    squared_error: f64,
    degrees: f64,
}

impl Location {
    fn of(values: &[f64]) -> Location {
        let (count, cut) = (values.len(), trimmed_each_end(values.len()));
        let mean = trimmed_mean(values).unwrap_or(f64::NAN);
        if count < 2 {
            return Location { mean, squared_error: f64::INFINITY, degrees: 1.0 };
        }
        let (_, variance) = mean_and_variance(&winsorised(values));
        let kept = (count - 2 * cut) as f64;
        let squared_error = variance * (count - 1) as f64 / (kept * (kept - 1.0));
        Location { mean, squared_error, degrees: kept - 1.0 }
    }

    fn interval(&self, coverage: f64) -> Estimate {
        if !self.squared_error.is_finite() {
            return Estimate::without_interval(self.mean);
        }
        let half = student_t_two_sided(coverage, self.degrees.floor().max(1.0)) * self.squared_error.sqrt();
        Estimate { value: self.mean, low: self.mean - half, high: self.mean + half }
    }

    /// The difference to another, independent location with its interval (Welch 1947).
    fn less(&self, other: &Location, coverage: f64) -> Estimate {
        let squared_error = self.squared_error + other.squared_error;
        let part = |of: &Location| of.squared_error.powi(2) / of.degrees;
        let degrees = squared_error.powi(2) / (part(self) + part(other)).max(f64::MIN_POSITIVE);
        Location { mean: self.mean - other.mean, squared_error, degrees }.interval(coverage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_base::random::SplitMix64;

    fn sample(value: f64) -> Sample {
        Sample {
            hits_per_second: value,
            latency_ns_p50: 1e9 / value,
            latency_ns_p99: 3e9 / value,
            server_cpu_ns_per_hit: None,
        }
    }

    fn around(mean: f64) -> Vec<Sample> {
        (0..50).map(|number| sample(mean * (1.0 + 0.002 * f64::from(number % 5 - 2)))).collect()
    }

    #[test]
    fn words_depend_on_the_direction_and_the_tolerance() {
        let words = |first, second, tolerance| {
            repeats(&around(first), &around(second), tolerance).iter().map(|of| of.word).collect::<Vec<_>>()
        };
        assert_eq!(words(100.0, 110.0, 0.0), [Word::Faster; 3]);
        assert_eq!(words(100.0, 90.0, 0.0), [Word::Slower; 3]);
        assert_eq!(words(100.0, 98.0, 5.0), [Word::Undecided; 3]);
        assert_eq!(words(100.0, 100.02, 0.0), [Word::Undecided; 3]);
    }

    #[test]
    fn a_limit_is_broken_by_what_is_beyond_it_for_certain() {
        let of = |low: f64, high: f64| Comparison {
            point: None,
            quantity: ComparedQuantity::CpuPerHit,
            first: Some(1.0),
            second: Some(1.0),
            change_percent: Estimate { value: 4.0, low, high },
            word: Word::Undecided,
        };
        let gate = |text: &str, low, high| gate(&[text.parse().unwrap()], &[of(low, high)]).remove(0);
        let broken = gate("cpu/hit > +3%", 3.1, 5.0);
        assert_eq!(broken, Gate::Broken("cpu/hit > +3% fails: it is +4.0 % [+3.1, +5.0]".to_owned()));
        assert!(matches!(gate("cpu/hit > +3%", 2.9, 5.0), Gate::Undecided(_)));
        assert_eq!(gate("cpu/hit > +3%", 1.0, 2.5), Gate::Kept);
        assert_eq!([gate("cpu/hit < -3%", -2.0, 5.0), gate("cpu/hit < -3%", -2.9, 0.0)], [Gate::Kept, Gate::Kept]);
        assert!(matches!(gate("p99 > +3%", 0.0, 1.0), Gate::Broken(said) if said.contains("not measured")));
    }

    #[test]
    fn one_run_against_one_tells_only_what_no_equal_runs_differ_by() {
        let single = |second| single_runs(&around(100.0), &around(second), ["a", "b"], 0.0).unwrap()[0].word;
        assert_eq!([single(86.0), single(70.0), single(115.0)], [Word::Undecided, Word::Slower, Word::Undecided]);
        let few = [sample(1.0); 4];
        assert!(single_runs(&few, &few, ["a", "b"], 0.0).unwrap_err().to_string().contains("4 slices"));
        let runs = repeats(&[sample(100.0)], &[sample(50.0), sample(51.0)], 0.0);
        assert_eq!(verdict(&runs), Word::Undecided, "a side with one run has no scatter");
    }

    /// `scipy.stats.ttest_ind([4.6, 4.61, 4.62], [4.55, 4.56, 4.59, 4.6], equal_var=False)
    /// .confidence_interval(1 - .05 / 3)` with SciPy's own fractional degrees of freedom gives a half width of 0.0505;
    /// ours rounds degrees down.
    #[test]
    fn the_interval_is_welchs() {
        let of = |values: &[f64]| Location::of(values);
        let found = of(&[4.6, 4.61, 4.62]).less(&of(&[4.55, 4.56, 4.59, 4.6]), 1.0 - 0.05 / 3.0);
        assert!((found.value - 0.035).abs() < 1e-12);
        let half = found.half_width();
        assert!((0.045..0.062).contains(&half), "{half}");
    }

    /// Both designs keep their promise where runs scatter, starts differ and the machine drifts.
    #[test]
    fn equal_loads_are_seldom_told_apart_and_slower_ones_are() {
        const TRIALS: usize = 1000;
        let mut random = SplitMix64::new(7);
        let (mut wrong, mut found) = ([0; 2], [0; 2]);
        for _ in 0..TRIALS {
            let mut scatter = |spread: f64| (spread * random.normal()).exp();
            for (slower, count) in [(1.0, &mut wrong), (0.95, &mut found)] {
                let start = scatter(0.005);
                let mut pair = || {
                    let pace = scatter(0.1);
                    [pace, pace * slower * start].map(|speed| {
                        let cpu = Some(1e6 / (speed * scatter(0.02)));
                        Sample { server_cpu_ns_per_hit: cpu, ..sample(1000.0 * speed * scatter(0.1)) }
                    })
                };
                let pairs: Vec<[Sample; 2]> = (0..40).map(|_| pair()).collect();
                count[0] += usize::from(verdict(&rounds(&pairs)) != Word::Undecided);
                let mut runs =
                    |factor: f64| (0..4).map(|_| sample(1000.0 * factor * scatter(0.01))).collect::<Vec<_>>();
                count[1] += usize::from(verdict(&repeats(&runs(1.0), &runs(slower), 0.0)) != Word::Undecided);
            }
        }
        assert!(wrong.iter().all(|wrong| *wrong < TRIALS * 6 / 100), "{wrong:?} of {TRIALS} equal ones");
        assert!(found.iter().all(|found| *found > TRIALS * 90 / 100), "{found:?} of {TRIALS} slower ones");
    }

    #[test]
    fn cpu_time_that_few_rounds_have_decides_nothing() {
        let with = |cpu| [Some(1.0), cpu].map(|ns| Sample { server_cpu_ns_per_hit: ns, ..sample(100.0) });
        let names = |pairs: &[[Sample; 2]]| rounds(pairs).iter().map(|of| of.quantity).collect::<Vec<_>>();
        assert_eq!(names(&[with(Some(2.0)), with(Some(2.0)), with(None)])[0], ComparedQuantity::CpuPerHit);
        assert_eq!(names(&[with(Some(2.0)), with(None), with(None)])[0], ComparedQuantity::HitsPerSecond);
        assert_eq!(verdict(&rounds(&[])), Word::Undecided);
    }
}
