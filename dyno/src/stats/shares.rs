//! Which part of the cost of a hit belongs to which stage.

use serde::Serialize;
use tlsdyno_tls::Stage;

use super::bootstrap::{Column, Combination, Estimate, RESAMPLES, SEED, estimate};
use super::papers::{relative_throughput, share_saved};
use super::rounds::Rounds;
use super::summary::FEW_ROUNDS;
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
    /// It does not, or there are too few rounds to say so: more rounds or a quieter machine are needed to say anything.
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
    /// Of [`OTHER_TLS`] and [`REST`]: the stages without a share of their own, whose cost is in this one.
    pub without: Vec<String>,
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
    /// Per metric: the stages in the order of the record, then what is left, then plain HTTP. The sum per metric is 100
    /// %. Empty where neither a stage nor plain HTTP was compared: then there is nothing to divide.
    pub shares: Vec<Share>,
    /// Per metric: the sum of the stages minus what switching all off saves. Above 0 the stages' costs overlap, so that
    /// the shares together promise more than removing everything gives; below 0 they only show together.
    pub interaction: Vec<Difference>,
    /// Per metric: what the loaded provider costs with nothing switched off. Above 0 the instrument makes the server
    /// dearer.
    pub instrument: Vec<Difference>,
}

impl Shares {
    /// Computes the shares of a record. Without a usable "as is" block there are none.
    pub fn of(record: &Record) -> Shares {
        let mut all = Shares::default();
        let rounds = Rounds::of(record);
        if let Some(as_is) = rounds.find(&Kind::AsIs) {
            for metric in Metric::ALL {
                all.add(&Comparison::new(record, &rounds, as_is, metric), &rounds, as_is, metric);
            }
        }
        all
    }

    fn add(&mut self, comparison: &Comparison, rounds: &Rounds, as_is: usize, metric: Metric) {
        let combinations: Vec<Combination> =
            comparison.quantities.iter().map(|quantity| quantity.combination.clone()).collect();
        let estimates = estimate(&comparison.columns, &combinations, RESAMPLES, SEED);
        for (quantity, estimate) in comparison.quantities.iter().zip(estimates) {
            let Estimate { value: percent, low, high } = estimate.scaled(100.0);
            let pairs = quantity.configurations.iter().map(|&other| rounds.pairs(as_is, other)).min().unwrap_or(0);
            // Below FEW_ROUNDS nothing is resolved: all of 4 rounds lie on one side of 0 by chance once in 8 times.
            let verdict =
                if pairs >= FEW_ROUNDS && estimate.excludes_zero() { Verdict::Resolved } else { Verdict::Undecided };
            let difference = Difference { metric, percent, low, high, verdict };
            match &quantity.place {
                Place::Share(stage) => {
                    let involved = [&[as_is], quantity.configurations.as_slice()].concat();
                    let bound = metric == Metric::Throughput && rounds.client_bound(&involved);
                    let without =
                        if [OTHER_TLS, REST].contains(&stage.as_str()) { comparison.unmeasured() } else { Vec::new() };
                    self.shares.push(Share {
                        stage: stage.clone(),
                        metric,
                        percent,
                        low,
                        high,
                        verdict,
                        bound,
                        without,
                    });
                }
                Place::Interaction => self.interaction.push(difference),
                Place::Instrument => self.instrument.push(difference),
            }
        }
    }

    /// The shares by one metric.
    pub fn by(&self, metric: Metric) -> impl Iterator<Item = &Share> {
        self.shares.iter().filter(move |share| share.metric == metric)
    }
}

impl Share {
    /// It is the share of a stage, not of what is left or of plain HTTP.
    pub fn is_stage(&self) -> bool {
        ![OTHER_TLS, PLAIN_HTTP, REST].contains(&self.stage.as_str())
    }
}

/// Where an estimate belongs.
enum Place {
    Share(String),
    Interaction,
    Instrument,
}

/// Something to estimate.
struct Quantity {
    place: Place,
    combination: Combination,
    /// The configurations that it compares with the server as is.
    configurations: Vec<usize>,
}

/// What can be compared by one metric: the values per round, and what to make of them.
struct Comparison {
    columns: Vec<Column>,
    quantities: Vec<Quantity>,
}

impl Comparison {
    fn new(record: &Record, rounds: &Rounds, as_is: usize, metric: Metric) -> Comparison {
        let comparable = |kind: &Kind| rounds.find(kind).filter(|&index| rounds.pairs(as_is, index) > 0);
        // With T = 1/c the saved share is the papers' T_as_is · (1/T_on − 1/T_off), for CPU and for time alike.
        let saved = |index| rounds.paired(as_is, index, metric, |before, after| share_saved(1.0 / before, 1.0 / after));
        let relative =
            |index| rounds.paired(as_is, index, metric, |before, after| relative_throughput(1.0 / before, 1.0 / after));

        let mut comparison = Comparison { columns: Vec::new(), quantities: Vec::new() };
        let mut stages = Vec::new();
        for kind in record.configurations.iter().map(|configuration| &configuration.kind) {
            if let (Kind::StageOff(stage), Some(index)) = (kind, comparable(kind)) {
                let column = comparison.column(saved(index));
                comparison.quantity(Place::Share(stage.clone()), Combination::column(column), vec![index]);
                stages.push((column, index));
            }
        }
        let stage_terms = |weight: f64| stages.iter().map(move |&(column, _)| (column, weight));
        let stage_configurations: Vec<usize> = stages.iter().map(|&(_, index)| index).collect();

        let plain = comparable(&Kind::PlainHttp).map(|index| (comparison.column(relative(index)), index));
        let compared = !stages.is_empty() || plain.is_some();
        let left = stage_terms(-1.0).chain(plain.map(|(column, _)| (column, -1.0))).collect();
        let without = stage_configurations.iter().copied().chain(plain.map(|(_, index)| index)).collect();
        let name = if plain.is_some() { OTHER_TLS } else { REST };
        if compared {
            comparison.quantity(Place::Share(name.to_owned()), Combination { constant: 1.0, terms: left }, without);
        }
        if let Some((column, index)) = plain {
            comparison.quantity(Place::Share(PLAIN_HTTP.to_owned()), Combination::column(column), vec![index]);
        }
        if let Some(index) = comparable(&Kind::AllOff) {
            let column = comparison.column(saved(index));
            let terms = stage_terms(1.0).chain([(column, -1.0)]).collect();
            let involved = [stage_configurations.as_slice(), &[index]].concat();
            comparison.quantity(Place::Interaction, Combination { constant: 0.0, terms }, involved);
        }
        if let Some(index) = comparable(&Kind::Loaded) {
            let column = comparison.column(saved(index));
            comparison.quantity(
                Place::Instrument,
                Combination { constant: 0.0, terms: vec![(column, -1.0)] },
                vec![index],
            );
        }
        comparison
    }

    /// The stages that have no share: not selected, or their configuration cannot be used.
    fn unmeasured(&self) -> Vec<String> {
        let measured = |stage: &str| {
            self.quantities.iter().any(|quantity| matches!(&quantity.place, Place::Share(name) if name == stage))
        };
        Stage::PROVIDER.iter().map(|stage| stage.name()).filter(|name| !measured(name)).map(str::to_owned).collect()
    }

    fn column(&mut self, column: Column) -> usize {
        self.columns.push(column);
        self.columns.len() - 1
    }

    fn quantity(&mut self, place: Place, combination: Combination, configurations: Vec<usize>) {
        self.quantities.push(Quantity { place, combination, configurations });
    }
}
