//! Which part of the cost of a hit belongs to which stage.

use serde::Serialize;
use tlsdyno_record::model::ShareModel;
use tlsdyno_record::store::Role;
use tlsdyno_tls::Stage;

use super::bootstrap::{Column, Combination, RESAMPLES, SEED, estimate};
use super::methods::{self, Doubled};
use super::papers::{relative_cost, relative_throughput, share_saved};
use super::rounds::Rounds;
use super::statement::{Difference, Direction, Metric, Part, Verdict};

/// Name of the share that is left between the stages and plain HTTP: where slices measured it, what a hit costs with
/// all stages off, less plain HTTP.
pub const OTHER_TLS: &str = "other_tls";
/// Name of what the same server needs for the same work without TLS.
pub const PLAIN_HTTP: &str = "plain_http";
/// Name of what the stages leave when there was no plain-HTTP side: other TLS and the server itself.
pub const REST: &str = "rest";

/// Name of what switching all stages off saves beyond the sum of what each saves alone, where the share that is left
/// was measured with all of them off. Below 0 the stages' costs overlap.
pub const TOGETHER: &str = "together";

/// Name of what named shares leave of 100 %: interactions, and shares that could not be measured. Below 0 they overlap.
pub const MISSING: &str = "missing_to_100";

/// The part of the cost of a hit that belongs to one stage, in per cent of the server as is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// A stage, [`OTHER_TLS`], [`TOGETHER`], [`PLAIN_HTTP`] or [`REST`]; where the experiment names its shares, such a
    /// name or [`MISSING`].
    pub stage: String,
    /// Cost in what.
    pub metric: Metric,
    /// Point estimate.
    pub percent: f64,
    /// The point estimate can be: a share lies between 0 and 100 %. `false`: noise, or a limit elsewhere, gave it.
    pub known: bool,
    /// Lower end of the 95 % interval; `-inf` (JSON: null) with fewer than two rounds.
    pub low: f64,
    /// Upper end; `inf` (JSON: null) with fewer than two rounds.
    pub high: f64,
    /// Whether the interval excludes 0. A number that cannot be is never resolved.
    pub verdict: Verdict,
    /// A block behind it was limited by the client: the percentage is a bound, not an estimate.
    pub bound: bool,
    /// Of [`OTHER_TLS`], [`REST`] and [`MISSING`]: the stages or named shares without a share of their own, whose cost
    /// is in this one.
    pub without: Vec<String>,
    /// It is what is left, not what a step saves: no candidate for the costliest operation.
    pub left: bool,
}

/// Everything that compares configurations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Per metric: the stages in the order of the record, what is left, what only all stages together save, plain HTTP;
    /// or the experiment's named shares, then what is missing. The sum per metric is 100 %. Empty where neither a stage
    /// nor plain HTTP was compared: then there is nothing to divide.
    pub shares: Vec<Share>,
    /// Per metric: the sum of the stages minus what switching all off saves. Above 0 the stages' costs overlap, so
    /// that the shares together promise more than removing everything gives; below 0 they only show together.
    pub interaction: Vec<Difference>,
    /// Per metric: what the loaded provider costs with nothing switched off. Above 0 the instrument makes the server
    /// dearer.
    pub instrument: Vec<Difference>,
}

impl Shares {
    /// Computes the shares of a record, by each metric that was measured. Without a usable "as is" block there are
    /// none.
    pub fn of(rounds: &Rounds) -> Shares {
        let mut all = Shares::default();
        if let Some(as_is) = rounds.find(&Role::AsIs) {
            // Where there are no blocks, nothing is known of hits per second.
            for metric in Metric::ALL.into_iter().filter(|metric| rounds.pairs(as_is, as_is, *metric) > 0) {
                let named = rounds.experiment().map_or(&[][..], |experiment| &experiment.shares);
                let comparison = match named {
                    [] => Comparison::of_stages(rounds, as_is, metric),
                    named => Comparison::named(named, rounds, as_is, metric),
                };
                all.add(&comparison, rounds, as_is, metric);
            }
        }
        all
    }

    fn add(&mut self, comparison: &Comparison, rounds: &Rounds, as_is: usize, metric: Metric) {
        let combinations: Vec<Combination> =
            comparison.quantities.iter().map(|quantity| quantity.combination.clone()).collect();
        let estimates = estimate(&comparison.columns, &combinations, RESAMPLES, SEED);
        for (quantity, estimate) in comparison.quantities.iter().zip(estimates) {
            let pairs =
                quantity.configurations.iter().map(|&other| rounds.pairs(as_is, other, metric)).min().unwrap_or(0);
            let difference = Difference::of(estimate, metric, pairs);
            match &quantity.place {
                Place::Share { name: stage, left } => {
                    let involved = [&[as_is], quantity.configurations.as_slice()].concat();
                    let bound = metric == Metric::Throughput && rounds.client_bound(&involved);
                    let collects = [OTHER_TLS, REST, MISSING].contains(&stage.as_str());
                    let without = if collects { comparison.unmeasured.clone() } else { Vec::new() };
                    self.shares.push(Share::of(&difference, stage, bound, without, *left));
                }
                Place::Interaction => self.interaction.push(difference),
                Place::Instrument => self.instrument.push(difference),
            }
        }
    }

    /// Named shares of the time per hit of the configuration `as_is`, and what is missing.
    pub(super) fn by_time(models: &[ShareModel], rounds: &Rounds, as_is: &str) -> Vec<Share> {
        let mut all = Shares::default();
        if let Some(as_is) = rounds.named(as_is).filter(|_| !models.is_empty()) {
            let comparison = Comparison::named(models, rounds, as_is, Metric::Throughput);
            all.add(&comparison, rounds, as_is, Metric::Throughput);
        }
        all.shares
    }

    /// The widest interval of a share by CPU, to one side, in percentage points. `None`: there is none, or one of them
    /// has no end. A difference from the sum of the steps has the errors of all of them, and does not count: what is
    /// left, unless it was measured itself, and what the steps save only together.
    pub fn widest_points(&self) -> Option<f64> {
        let left_was_measured = self.by(Metric::Cpu).any(|share| share.stage == TOGETHER);
        let counts = |share: &&Share| share.is_step() || left_was_measured && share.stage != TOGETHER;
        let widths = self.by(Metric::Cpu).filter(counts).map(|share| (share.high - share.low) / 2.0);
        widths.reduce(f64::max).filter(|widest| widest.is_finite())
    }

    /// The shares by one metric.
    pub fn by(&self, metric: Metric) -> impl Iterator<Item = &Share> {
        self.shares.iter().filter(move |share| share.metric == metric)
    }
}

impl Share {
    fn of(of: &Difference, stage: &str, bound: bool, without: Vec<String>, left: bool) -> Share {
        let stage = stage.to_owned();
        let Difference { metric, percent, low, high, verdict } = *of;
        let share = Share { stage, metric, percent, known: true, low, high, verdict, bound, without, left };
        let known = matches!(share.part(), Part::Number(_));
        Share { known, verdict: if known { verdict } else { Verdict::Undecided }, ..share }
    }

    /// What is known of it.
    pub fn part(&self) -> Part {
        // What is saved together, or missing, may be less than nothing.
        if [TOGETHER, MISSING].contains(&self.stage.as_str()) && self.percent.is_finite() {
            return Part::Number(self.percent);
        }
        Part::of(self.percent, [self.low, self.high])
    }

    /// What makes it undecided is that it is of too few rounds: its interval excludes 0.
    pub fn is_of_few_rounds(&self) -> bool {
        let excludes_zero = Direction::of([self.low, self.high], 0.0) != Direction::Undecided;
        self.known && self.verdict == Verdict::Undecided && excludes_zero
    }

    /// It is what a step saves, not what is left.
    pub fn is_step(&self) -> bool {
        !self.left
    }
}

/// Where an estimate belongs.
enum Place {
    Share { name: String, left: bool },
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
    /// Stages or named shares that have no share: not selected, or their configuration cannot be used.
    unmeasured: Vec<String>,
}

impl Comparison {
    const EMPTY: Comparison = Comparison { columns: Vec::new(), quantities: Vec::new(), unmeasured: Vec::new() };

    /// The stages that the record replaces one by one, what is left, and plain HTTP.
    fn of_stages(rounds: &Rounds, as_is: usize, metric: Metric) -> Comparison {
        let record = rounds.record();
        let comparable = |role: &Role| rounds.find(role).filter(|&index| rounds.pairs(as_is, index, metric) > 0);
        // With T = 1/c the saved share is the papers' T_as_is · (1/T_on − 1/T_off), for CPU and for time alike.
        let saved = |index| rounds.paired(as_is, index, metric, |before, after| share_saved(1.0 / before, 1.0 / after));
        let relative =
            |index| rounds.paired(as_is, index, metric, |before, after| relative_throughput(1.0 / before, 1.0 / after));

        let mut comparison = Comparison::EMPTY;
        let mut stages = Vec::new();
        let mut stage_configurations = Vec::new();
        let mut unmeasured = Stage::PROVIDER.to_vec();
        // The stages of the shim contain those of the provider: beside them they would be counted twice.
        let of_provider = |stage: &Stage| Stage::PROVIDER.contains(stage);
        let roles = || record.configurations.iter().map(|configuration| &configuration.role);
        let any_of_provider = roles().any(|role| matches!(role, Role::StageOff(stage) if of_provider(stage)));
        for role in roles() {
            if let (Role::StageOff(stage), Some(index)) = (role, comparable(role))
                && (of_provider(stage) || !any_of_provider)
            {
                let column = comparison.column(saved(index));
                comparison.share(stage.name(), false, Combination::column(column), vec![index]);
                stages.push(column);
                stage_configurations.push(index);
                unmeasured.retain(|other| other != stage);
            }
        }
        // Where stages are replaced too, the methods stand side by side (`methods.rs`) and these are the shares.
        let doubled = if stages.is_empty() { methods::doubled(rounds, as_is, metric) } else { Vec::new() };
        for Doubled { stages: of_step, share, configurations, .. } in &doubled {
            let column = comparison.column(share.clone());
            comparison.share(&methods::name(*of_step), false, Combination::column(column), configurations.clone());
            stages.push(column);
            stage_configurations.extend(configurations);
            unmeasured.retain(|other| !of_step.contains(*other));
        }
        comparison.unmeasured = unmeasured.iter().map(Stage::to_string).collect();
        let stage_terms = |weight: f64| stages.iter().map(move |&column| (column, weight));

        let plain = comparable(&Role::PlainHttp).map(|index| (comparison.column(relative(index)), index));
        let all = match doubled.is_empty() {
            true => {
                comparable(&Role::AllOff).map(|index| (saved(index), vec![index], record.configurations[index].noop))
            }
            false => methods::all_doubled(rounds, as_is, metric).map(|all| (all.share, all.configurations, all.stages)),
        };
        let all = all.map(|(values, configurations, of_all)| (comparison.column(values), configurations, of_all));
        let all_configurations = all.iter().flat_map(|(_, configurations, _)| configurations);
        let with_all: Vec<usize> = stage_configurations.iter().chain(all_configurations).copied().collect();
        // By slices all together is known as well as each stage alone, while the sum of the stages has the errors of
        // all.
        let measured = all
            .as_ref()
            .filter(|(.., of_all)| rounds.sweeps() > 0 && of_all.iter().all(|stage| !unmeasured.contains(&stage)));
        if !stages.is_empty() || plain.is_some() {
            let saved_terms = measured.map_or(stage_terms(-1.0).collect(), |(column, ..)| vec![(*column, -1.0)]);
            let terms = saved_terms.into_iter().chain(plain.map(|(column, _)| (column, -1.0))).collect();
            let involved =
                measured.map_or(stage_configurations.clone(), |(_, configurations, _)| configurations.clone());
            let involved = involved.into_iter().chain(plain.map(|(_, index)| index)).collect();
            let name = if plain.is_some() { OTHER_TLS } else { REST };
            comparison.share(name, true, Combination { constant: 1.0, terms }, involved);
        }
        if let Some((column, ..)) = measured {
            let terms = stage_terms(-1.0).chain([(*column, 1.0)]).collect();
            comparison.share(TOGETHER, true, Combination { constant: 0.0, terms }, with_all.clone());
        }
        if let Some((column, index)) = plain {
            comparison.share(PLAIN_HTTP, true, Combination::column(column), vec![index]);
        }
        if let Some((column, ..)) = all {
            let terms = stage_terms(1.0).chain([(column, -1.0)]).collect();
            comparison.quantity(Place::Interaction, Combination { constant: 0.0, terms }, with_all);
        }
        comparison.instrument(rounds, as_is, metric);
        comparison
    }

    /// The shares that the experiment names, and what is missing to 100 %.
    fn named(models: &[ShareModel], rounds: &Rounds, as_is: usize, metric: Metric) -> Comparison {
        let mut comparison = Comparison::EMPTY;
        let (mut terms, mut all) = (Vec::new(), Vec::new());
        for model in models {
            let indices: Option<Vec<usize>> =
                [Some(&model.on), model.off.as_ref()].into_iter().flatten().map(|name| rounds.named(name)).collect();
            let values = indices.as_ref().map(|indices| rounds.costs(&[&[as_is], indices.as_slice()].concat(), metric));
            let Some((indices, values)) = indices.zip(values).filter(|(_, values)| values.iter().any(Option::is_some))
            else {
                comparison.unmeasured.push(model.name.clone());
                continue;
            };
            let share = |costs: &Vec<f64>| match costs[..] {
                [as_is, on, off] => relative_cost(1.0 / as_is, 1.0 / on, 1.0 / off),
                [as_is, left] => relative_throughput(1.0 / as_is, 1.0 / left),
                _ => f64::NAN,
            };
            let column = comparison.column(values.iter().map(|costs| costs.as_ref().map(share)).collect());
            comparison.share(&model.name, model.off.is_none(), Combination::column(column), indices.clone());
            terms.push((column, -1.0));
            all.extend(indices);
        }
        if !terms.is_empty() {
            comparison.share(MISSING, true, Combination { constant: 1.0, terms }, all);
        }
        comparison.instrument(rounds, as_is, metric);
        comparison
    }

    fn instrument(&mut self, rounds: &Rounds, as_is: usize, metric: Metric) {
        let loaded = rounds.find(&Role::Loaded).or_else(|| rounds.find(&Role::NothingDoubled));
        if let Some(index) = loaded.filter(|&index| rounds.pairs(as_is, index, metric) > 0) {
            let saved = rounds.paired(as_is, index, metric, |before, after| share_saved(1.0 / before, 1.0 / after));
            let column = self.column(saved);
            self.quantity(Place::Instrument, Combination { constant: 0.0, terms: vec![(column, -1.0)] }, vec![index]);
        }
    }

    fn column(&mut self, column: Column) -> usize {
        self.columns.push(column);
        self.columns.len() - 1
    }

    fn share(&mut self, name: &str, left: bool, combination: Combination, configurations: Vec<usize>) {
        self.quantity(Place::Share { name: name.to_owned(), left }, combination, configurations);
    }

    fn quantity(&mut self, place: Place, combination: Combination, configurations: Vec<usize>) {
        self.quantities.push(Quantity { place, combination, configurations });
    }
}

#[cfg(test)]
mod tests {
    use super::super::bootstrap::Estimate;
    use super::*;

    fn share(stage: &str, value: f64, half: f64, rounds: u32) -> Share {
        let estimate = Estimate { value, low: value - half, high: value + half };
        Share::of(&Difference::of(estimate, Metric::Cpu, rounds), stage, false, Vec::new(), false)
    }

    #[test]
    fn nothing_is_resolved_that_cannot_be() {
        assert_eq!(share("kdf", 0.09, 0.01, 5).verdict, Verdict::Resolved);
        for (value, half) in [(-0.085, 0.02), (-1.337, 0.1), (1.2, 0.1)] {
            let impossible = share("cipher", value, half, 5);
            assert!(!impossible.known && impossible.verdict == Verdict::Undecided, "{impossible:?}");
            assert_eq!(impossible.part() == Part::NotKnown, value < 0.0 || value - half > 1.0, "{impossible:?}");
        }
        // What is saved only together may be less than nothing.
        assert_eq!(share(TOGETHER, -0.05, 0.01, 5).verdict, Verdict::Resolved);
    }

    #[test]
    fn of_few_rounds_it_is_said_why_nothing_is_resolved() {
        let few = share("kdf", 0.09, 0.01, 4);
        assert!(few.verdict == Verdict::Undecided && few.is_of_few_rounds());
        assert!(!share("kdf", 0.09, 0.10, 4).is_of_few_rounds() && !share("kdf", 0.09, 0.01, 5).is_of_few_rounds());
        let one = share("kdf", 0.09, f64::INFINITY, 1);
        assert!(one.verdict == Verdict::Undecided && !one.is_of_few_rounds());
    }
}
