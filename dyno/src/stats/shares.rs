//! Which part of the cost of a hit belongs to which stage.

use serde::Serialize;

use super::bootstrap::{Combination, Estimate, RESAMPLES, SEED, estimate};
use super::papers::{relative_throughput, share_saved};
use super::rounds::Rounds;
use crate::store::{Kind, Record};

/// Name of the share that is left between the stages and plain HTTP.
pub const OTHER_TLS: &str = "other_tls";
/// Name of what the same server needs for the same work without TLS.
pub const PLAIN_HTTP: &str = "plain_http";
/// Name of what the stages leave when there was no plain-HTTP side: other TLS and the server itself.
pub const REST: &str = "rest";

/// What "cost of a hit" means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Server CPU time per hit.
    Cpu,
    /// Time per hit at saturation: the reciprocal of hits per second, the papers' own metric.
    Throughput,
}

impl Metric {
    /// Both, in the order of reports: CPU leads because it stands noisy and shared machines.
    pub const ALL: [Metric; 2] = [Metric::Cpu, Metric::Throughput];
}

/// Whether the interval excludes 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The 95 % interval excludes 0: the sign is known.
    Resolved,
    /// It does not: more rounds or a quieter machine are needed to say anything.
    Undecided,
}

/// The part of the cost of a hit that belongs to one stage, in per cent of the server as is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// A stage, [`OTHER_TLS`], [`PLAIN_HTTP`] or [`REST`].
    pub stage: String,
    /// Cost in what.
    pub metric: Metric,
    /// Point estimate.
    pub percent: f64,
    /// Lower end of the 95 % interval; `-inf` (JSON: null) with fewer than two rounds.
    pub low: f64,
    /// Upper end; `inf` (JSON: null) with fewer than two rounds.
    pub high: f64,
    /// Whether the interval excludes 0.
    pub verdict: Verdict,
    /// A block behind it was limited by the client: the percentage is a bound, not an estimate.
    pub bound: bool,
}

/// A difference between configurations that is no share, in per cent of the server as is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Cost in what.
    pub metric: Metric,
    /// Point estimate.
    pub percent: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Whether the interval excludes 0.
    pub verdict: Verdict,
}

/// Everything that compares configurations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    /// Per metric: the stages in the order of the record, then what is left, then plain HTTP. The sum per metric is 100 %.
    pub shares: Vec<Share>,
    /// Per metric: the sum of the stages minus what switching all off saves. Above 0 the stages' costs overlap, so that the shares
    /// together promise more than removing everything gives; below 0 they only show together.
    pub interaction: Vec<Difference>,
    /// Per metric: what the loaded provider costs with nothing switched off. Above 0 the instrument makes the server dearer.
    pub instrument: Vec<Difference>,
}

impl Shares {
    /// Computes the shares of a record. Without a usable "as is" block there are none.
    pub fn of(record: &Record) -> Shares {
        let mut all = Shares::default();
        let rounds = Rounds::of(record);
        if let Some(as_is) = rounds.find(&Kind::AsIs) {
            for metric in Metric::ALL {
                all.add(record, &rounds, as_is, metric);
            }
        }
        all
    }

    fn add(&mut self, record: &Record, rounds: &Rounds, as_is: usize, metric: Metric) {
        let stages: Vec<(&str, usize)> = record
            .configurations
            .iter()
            .filter_map(|configuration| match &configuration.kind {
                Kind::StageOff(stage) => rounds
                    .find(&configuration.kind)
                    .map(|index| (stage.as_str(), index)),
                _ => None,
            })
            .filter(|&(_, index)| rounds.pairs(as_is, index) > 0)
            .collect();
        let [plain, all_off, loaded] = [Kind::PlainHttp, Kind::AllOff, Kind::Loaded].map(|kind| {
            rounds
                .find(&kind)
                .filter(|&index| rounds.pairs(as_is, index) > 0)
        });

        // With T = 1/c the saved share is the papers' T_as_is · (1/T_on − 1/T_off), for CPU and for time alike.
        let saved = |index| {
            rounds.paired(as_is, index, metric, |before, after| {
                share_saved(1.0 / before, 1.0 / after)
            })
        };
        let relative = |index| {
            rounds.paired(as_is, index, metric, |before, after| {
                relative_throughput(1.0 / before, 1.0 / after)
            })
        };
        let mut columns: Vec<_> = stages.iter().map(|&(_, index)| saved(index)).collect();
        let mut add_column = |column| {
            columns.push(column);
            columns.len() - 1
        };
        let plain_column = plain.map(|index| add_column(relative(index)));
        let all_off_column = all_off.map(|index| add_column(saved(index)));
        let loaded_column = loaded.map(|index| add_column(saved(index)));

        let stage_terms = |weight: f64| (0..stages.len()).map(move |column| (column, weight));
        let left = Combination {
            constant: 1.0,
            terms: stage_terms(-1.0)
                .chain(plain_column.map(|column| (column, -1.0)))
                .collect(),
        };
        let mut combinations: Vec<Combination> =
            (0..stages.len()).map(Combination::column).collect();
        combinations.push(left);
        combinations.extend(plain_column.map(Combination::column));
        combinations.extend(all_off_column.map(|column| Combination {
            constant: 0.0,
            terms: stage_terms(1.0).chain([(column, -1.0)]).collect(),
        }));
        combinations.extend(loaded_column.map(|column| Combination {
            constant: 0.0,
            terms: vec![(column, -1.0)],
        }));

        let mut estimates = estimate(&columns, &combinations, RESAMPLES, SEED)
            .into_iter()
            .map(|estimate| estimate.scaled(100.0));
        let mut take = || estimates.next().expect("one estimate per combination");
        let bound = |others: &[usize]| {
            metric == Metric::Throughput && rounds.client_bound(&[&[as_is], others].concat())
        };

        for &(stage, index) in &stages {
            self.shares
                .push(share(stage, metric, take(), bound(&[index])));
        }
        let every: Vec<usize> = stages
            .iter()
            .map(|&(_, index)| index)
            .chain(plain)
            .collect();
        self.shares.push(share(
            if plain.is_some() { OTHER_TLS } else { REST },
            metric,
            take(),
            bound(&every),
        ));
        if let Some(plain) = plain {
            self.shares
                .push(share(PLAIN_HTTP, metric, take(), bound(&[plain])));
        }
        if all_off.is_some() {
            self.interaction.push(difference(metric, take()));
        }
        if loaded.is_some() {
            self.instrument.push(difference(metric, take()));
        }
    }

    /// The shares by one metric.
    pub fn by(&self, metric: Metric) -> impl Iterator<Item = &Share> {
        self.shares
            .iter()
            .filter(move |share| share.metric == metric)
    }
}

impl Share {
    /// It is the share of a stage, not of what is left or of plain HTTP.
    pub fn is_stage(&self) -> bool {
        ![OTHER_TLS, PLAIN_HTTP, REST].contains(&self.stage.as_str())
    }
}

fn verdict(estimate: &Estimate) -> Verdict {
    if estimate.excludes_zero() {
        Verdict::Resolved
    } else {
        Verdict::Undecided
    }
}

fn share(stage: &str, metric: Metric, estimate: Estimate, bound: bool) -> Share {
    let Estimate { value, low, high } = estimate;
    Share {
        stage: stage.to_owned(),
        metric,
        percent: value,
        low,
        high,
        verdict: verdict(&estimate),
        bound,
    }
}

fn difference(metric: Metric, estimate: Estimate) -> Difference {
    let Estimate { value, low, high } = estimate;
    Difference {
        metric,
        percent: value,
        low,
        high,
        verdict: verdict(&estimate),
    }
}
