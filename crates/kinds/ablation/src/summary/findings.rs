//! What an experiment answers beside shares: throughput relative to plain HTTP, comparisons of two configurations,
//! remedies, accelerators, and connection setup against data exchange.
//!
//! Ratios of hits per second are geometric: the trimmed mean over rounds of the logarithm, so that a/b and b/a say the
//! same.

use serde::Serialize;
use tlsdyno_record::model::{ComparisonModel, ConfigurationModel, Experiment, RemedyModel, SessionCache};
use tlsdyno_record::store::{Configuration, Record, Role};
use tlsdyno_stats::bootstrap::{Column, Estimate};
use tlsdyno_stats::papers::share_saved;
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::statement::{Difference, Direction, Metric, Ratio};
use tlsdyno_tls::Stage;

use super::accelerators::{Prediction, predictions};
use super::share_ranges::{self, ShareRange};

/// Throughput of a configuration as a part of plain HTTP's (Coarfa et al. 2006 figure 10).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Relative {
    pub configuration: String,
    /// Hits per second of the configuration by those of plain HTTP.
    pub ratio: Ratio,
    /// CPU per hit of plain HTTP by that of the configuration: stays valid where the client is the limit.
    pub by_cpu: Ratio,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonFinding {
    pub question: String,
    pub a: String,
    pub b: String,
    /// Hits per second of `b` by those of `a`; `None` where one of them was not measured.
    pub ratio: Option<Ratio>,
    /// CPU per hit of `a` by that of `b`.
    pub by_cpu: Option<Ratio>,
    /// Metric that tells which of them serves more: hits per second, or CPU per hit where something else than the
    /// server limited these.
    pub decided_by: Option<Metric>,
    /// The two are builds of one server, started by different commands.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub of_builds: bool,
    /// They differ by a quota of CPU time: the quota's own ratio comes out, whatever the server is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_construction: bool,
    pub paper: Option<String>,
    /// The paper's claim as a range of a ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published_times: Option<[f64; 2]>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RemedyFinding {
    pub name: String,
    /// With the remedy; `over` is without it.
    pub configuration: String,
    pub over: String,
    pub bound: bool,
    /// Hits per second with it by those without; `None` where it was not measured.
    pub ratio: Option<Ratio>,
    /// CPU per hit without it by that with it.
    pub by_cpu: Option<Ratio>,
    /// Metric that tells the gain: hits per second, or CPU per hit where something else than the server limited these
    /// and the processors are the same. `None`: it was not measured, or comes out by construction.
    pub told_by: Option<Metric>,
    /// The base is the server as is, which does not have the remedy yet: only such gains can be compared with each
    /// other.
    pub over_as_is: bool,
    /// It differs from its base by a quota of CPU time: the quota's own ratio comes out, whatever the server is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_construction: bool,
    /// The server as is has it already: nothing is to be done.
    pub in_place: bool,
    /// Processing power with it by that without, where these differ: adding processors cannot gain more than that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors_times: Option<f64>,
    /// Of one real processor's work, the part for which several must wait for each other. Emulated ones tell nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contention: Option<Estimate>,
}

impl RemedyFinding {
    /// It takes part in the ranking: it can be had, it is not there yet, and it is measured against the server as is.
    pub fn competes(&self) -> bool {
        self.over_as_is && !self.in_place && !self.bound
    }

    pub fn gain(&self) -> Option<Ratio> {
        match self.told_by? {
            Metric::Throughput => self.ratio,
            Metric::Cpu => self.by_cpu,
        }
    }

    /// The gain exceeds that of the added processors: then something else changed too.
    pub fn is_doubtful(&self) -> bool {
        self.processors_times.zip(self.ratio).is_some_and(|(most, ratio)| most > 1.0 && ratio.low > most)
    }
}

/// Connection setup against data exchange (Coarfa et al. 2006 section 3.10), in per cent of the cost of a hit as is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetupAndData {
    pub metric: Metric,
    /// Cost of TLS: as is less plain HTTP.
    pub whole: Difference,
    /// Cost of connection setup: as is less minimal set-up.
    pub setup: Difference,
    /// Cost of data exchange: as is less plain data.
    pub data: Difference,
    /// The whole less setup and data. Above 0: costs that stay when either is gone; below 0: costs that go with either.
    pub discrepancy: Difference,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    /// Configurations against plain HTTP, in the order of the record. Empty without plain HTTP.
    #[serde(rename = "relative_to_plain_http")]
    pub relative: Vec<Relative>,
    pub comparisons: Vec<ComparisonFinding>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub share_ranges: Vec<ShareRange>,
    pub accelerators: Vec<Prediction>,
    /// Over the server as is: largest proven gain first, then those undecided, then losses, then those that were not
    /// measured. Then those with a base of their own in the same order, and last those that the server has already.
    /// Reports add to each what the server needs for it.
    #[serde(skip)]
    pub remedies: Vec<RemedyFinding>,
    /// Per metric; empty unless minimal set-up, plain data and plain HTTP were measured.
    pub setup_and_data: Vec<SetupAndData>,
    /// Stages of the record that have no share, as their configuration failed its checks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unmeasured: Vec<Unmeasured>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unmeasured {
    pub stage: Stage,
    pub why: String,
}

impl Findings {
    pub(super) fn of(rounds: &Rounds) -> Findings {
        let record = rounds.record();
        let Some(experiment) = rounds.experiment() else {
            return Findings::default();
        };
        let as_is = record.configurations.iter().find(|configuration| configuration.role == Role::AsIs);
        let as_is = as_is.map_or("", |configuration| configuration.name.as_str());
        let mut remedies: Vec<RemedyFinding> =
            experiment.remedies.iter().map(|remedy| remedy_answer(experiment, remedy, as_is, rounds)).collect();
        remedies.sort_by(|a, b| rank(b).partial_cmp(&rank(a)).unwrap_or(std::cmp::Ordering::Equal));
        Findings {
            relative: relative(rounds),
            comparisons: experiment
                .comparisons
                .iter()
                .map(|model| comparison_answer(experiment, model, rounds))
                .collect(),
            share_ranges: share_ranges::of(rounds),
            accelerators: predictions(experiment, rounds),
            remedies,
            setup_and_data: setup_and_data(rounds),
            unmeasured: unmeasured(record),
        }
    }
}

fn unmeasured(record: &Record) -> Vec<Unmeasured> {
    let failed = record.configurations.iter().filter(|configuration| !configuration.valid);
    let of = |configuration: &Configuration| {
        let Role::StageOff(stage) = configuration.role else { return None };
        let why = configuration.preflight.failed.first()?.clone();
        Stage::PROVIDER.contains(&stage).then_some(Unmeasured { stage, why })
    };
    failed.filter_map(of).collect()
}

fn relative(rounds: &Rounds) -> Vec<Relative> {
    let Some(plain) = rounds.find(&Role::PlainHttp) else {
        return Vec::new();
    };
    let others = rounds.record().configurations.iter().filter(|configuration| configuration.role != Role::PlainHttp);
    others
        .filter_map(|configuration| {
            let index = rounds.named(&configuration.name)?;
            let [ratio, by_cpu] = [Metric::Throughput, Metric::Cpu].map(|metric| rounds.times(plain, index, metric));
            Some(Relative { configuration: configuration.name.clone(), ratio: ratio?, by_cpu: by_cpu? })
        })
        .collect()
}

fn comparison_answer(experiment: &Experiment, model: &ComparisonModel, rounds: &Rounds) -> ComparisonFinding {
    let [ratio, by_cpu] = named_times(rounds, &model.a, &model.b);
    let limited = ratio.is_some_and(|ratio| ratio.at_most || ratio.at_least);
    let by_construction = differ_by_quota(experiment, &model.a, &model.b);
    let decides = |ratio: &Option<Ratio>| ratio.is_some_and(|ratio| ratio.direction != Direction::Undecided);
    ComparisonFinding {
        question: model.question.clone(),
        a: model.a.clone(),
        b: model.b.clone(),
        ratio,
        by_cpu,
        of_builds: of_builds(experiment, model),
        by_construction,
        decided_by: match () {
            () if by_construction => None,
            () if decides(&ratio) => Some(Metric::Throughput),
            () if limited && decides(&by_cpu) && cpu_is_capacity(experiment, &model.a, &model.b) => Some(Metric::Cpu),
            () => None,
        },
        paper: model.paper.clone(),
        published_times: model.published_times,
    }
}

fn of_builds(experiment: &Experiment, comparison: &ComparisonModel) -> bool {
    let of = |name: &str| experiment.configurations.iter().find(|model| model.name == name);
    let pair = of(&comparison.a).zip(of(&comparison.b));
    pair.is_some_and(|(a, b)| a.server_command != b.server_command)
}

/// Whether the one of the two that needs less CPU per hit could also serve more hits: both have the same processors,
/// and do all of their work on them.
fn cpu_is_capacity(experiment: &Experiment, a: &str, b: &str) -> bool {
    let of = |name: &str| experiment.configurations.iter().find(|model| model.name == name);
    let alone = |model: &ConfigurationModel| {
        let cache = model.tls.applied(&experiment.tls).session_cache();
        model.accelerator.is_none() && !matches!(cache, SessionCache::Memcached | SessionCache::Redis)
    };
    of(a).zip(of(b)).is_some_and(|(a, b)| a.processors == b.processors && alone(a) && alone(b))
}

/// Whether emulated processors are all or part of what the two differ by.
fn differ_by_quota(experiment: &Experiment, a: &str, b: &str) -> bool {
    let of = |name: &str| experiment.configurations.iter().find(|model| model.name == name);
    let processors = |name: &str| of(name).map(|model| model.processors.unwrap_or_default());
    processors(a).zip(processors(b)).is_some_and(|(a, b)| a != b && (a.speed != 1.0 || b.speed != 1.0))
}

fn remedy_answer(experiment: &Experiment, model: &RemedyModel, as_is: &str, rounds: &Rounds) -> RemedyFinding {
    let over = model.over.clone().unwrap_or_else(|| as_is.to_owned());
    let [ratio, by_cpu] = named_times(rounds, &over, &model.configuration);
    let of = |name: &str| experiment.configurations.iter().find(|model| model.name == name);
    let processors = |name: &str| {
        let processors = of(name)?.processors.unwrap_or_default();
        Some(f64::from(processors.count) * processors.speed)
    };
    let limited = ratio.is_none_or(|ratio| ratio.at_most || ratio.at_least);
    let by_construction = differ_by_quota(experiment, &over, &model.configuration);
    let told_by = match limited && cpu_is_capacity(experiment, &over, &model.configuration) && by_cpu.is_some() {
        true => Some(Metric::Cpu),
        false => ratio.filter(|_| !by_construction).map(|_| Metric::Throughput),
    };
    let times = processors(&model.configuration).zip(processors(&over)).map(|(after, before)| after / before);
    let is_real = |name: &str| of(name).is_some_and(|model| model.processors.is_none_or(|of| of.speed == 1.0));
    let are_real = is_real(&over) && is_real(&model.configuration) && processors(&over) == Some(1.0);
    let real = ratio.filter(|of| are_real && !limited && of.low > 0.0 && of.high.is_finite());
    RemedyFinding {
        name: model.title().to_owned(),
        configuration: model.configuration.clone(),
        over_as_is: over == as_is,
        by_construction,
        in_place: of(&model.configuration).is_some_and(ConfigurationModel::is_untouched),
        processors_times: times.filter(|times| *times != 1.0),
        contention: real.zip(times).filter(|(_, times)| *times > 1.0).map(|(gained, times)| contention(gained, times)),
        over,
        bound: model.bound,
        ratio,
        by_cpu,
        told_by,
    }
}

/// The universal scalability law (Gunther, "Guerrilla Capacity Planning", 2007, section 4.4): n processors do
/// n / (1 + σ (n − 1) + κ n (n − 1)) times the work of one. Two points tell one of its parameters, so that what is lost
/// to caches that are kept the same (κ) is in σ.
fn contention(gained: Ratio, processors: f64) -> Estimate {
    let of = |times: f64| (processors / times - 1.0) / (processors - 1.0);
    Estimate { value: of(gained.times), low: of(gained.high), high: of(gained.low) }
}

/// Sorts remedies: over the server as is, over others, in place; within these proven gains, undecided, losses, not
/// measured; within each by size.
fn rank(remedy: &RemedyFinding) -> (u8, u8, f64) {
    let base = match (remedy.in_place, remedy.over_as_is) {
        (true, _) => 0,
        (false, false) => 1,
        (false, true) => 2,
    };
    let (direction, times) = match remedy.gain() {
        None => (0, 0.0),
        Some(ratio) => match ratio.direction {
            Direction::Smaller => (1, ratio.times),
            // Of a bound from above nothing is known.
            Direction::Undecided => (2, if ratio.at_most { 0.0 } else { ratio.times }),
            Direction::Bigger => (3, ratio.times),
        },
    };
    (base, direction, times)
}

fn named_times(rounds: &Rounds, a: &str, b: &str) -> [Option<Ratio>; 2] {
    let pair = rounds.named(a).zip(rounds.named(b));
    [Metric::Throughput, Metric::Cpu].map(|metric| pair.and_then(|(a, b)| rounds.times(a, b, metric)))
}

fn setup_and_data(rounds: &Rounds) -> Vec<SetupAndData> {
    let find = |stage| rounds.find(&Role::StageOff(stage));
    let found = [rounds.find(&Role::AsIs), rounds.find(&Role::PlainHttp), find(Stage::Setup), find(Stage::Marshalling)];
    let [Some(as_is), Some(plain), Some(setup), Some(data)] = found else {
        return Vec::new();
    };
    Metric::ALL.map(|metric| parts(rounds, as_is, [plain, setup, data], metric)).into()
}

fn parts(rounds: &Rounds, as_is: usize, without: [usize; 3], metric: Metric) -> SetupAndData {
    let saved = |index| rounds.paired(as_is, index, metric, |before, after| share_saved(1.0 / before, 1.0 / after));
    let [whole, setup, data] = without.map(saved);
    let pairs = without.map(|index| rounds.pairs(as_is, index, metric)).into_iter().min().unwrap_or(0);
    let difference = |terms: &[(&Column, f64)]| Difference::of(rounds.rows(metric).estimate_sum(terms), metric, pairs);
    SetupAndData {
        metric,
        whole: difference(&[(&whole, 1.0)]),
        setup: difference(&[(&setup, 1.0)]),
        data: difference(&[(&data, 1.0)]),
        discrepancy: difference(&[(&whole, 1.0), (&setup, -1.0), (&data, -1.0)]),
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_record::model::Processors;

    use super::*;

    #[test]
    fn what_processors_gain_less_than_their_number_is_contention() {
        let of = |times, low, high| Ratio {
            times,
            low,
            high,
            direction: Direction::Bigger,
            at_most: false,
            at_least: false,
        };
        let two = contention(of(1.6, 1.0, 2.0), 2.0);
        assert_eq!([two.value, two.low, two.high], [0.25, 0.0, 1.0]);
        // Amdahl's law with a quarter that is not shared out: 4 / (1 + 3/4).
        let four = contention(of(4.0 / 1.75, 2.0, 4.0), 4.0);
        assert!((four.value - 0.25).abs() < 1e-9 && four.low == 0.0);
    }

    #[test]
    fn a_quota_brings_its_own_ratio() {
        let model = |name: &str, count, speed| ConfigurationModel {
            name: name.to_owned(),
            processors: Some(Processors { count, speed }),
            ..ConfigurationModel::default()
        };
        let real = ConfigurationModel { name: "real".to_owned(), ..ConfigurationModel::default() };
        let configurations = vec![model("slow", 1, 0.3), model("two slow", 2, 0.3), model("two", 2, 1.0), real];
        let experiment = Experiment { configurations, ..Experiment::default() };
        let differ = |a, b| differ_by_quota(&experiment, a, b);
        assert!(differ("slow", "two slow") && differ("real", "slow") && differ("two slow", "two"));
        assert!(!differ("slow", "slow") && !differ("real", "two") && !differ("real", "gone"));
    }
}
