//! Which part of the cost of a hit belongs to which stage.

use serde::Serialize;
use tlsdyno_record::model::ShareModel;
use tlsdyno_record::store::Role;
use tlsdyno_stats::bootstrap::{Column, Estimate};
use tlsdyno_stats::papers::{relative_cost, relative_throughput, share_saved};
use tlsdyno_stats::remainders::{MISSING, OTHER_TLS, PLAIN_HTTP, REST, TOGETHER};
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::statement::{Difference, Direction, Metric, PartOfWhole, Verdict};
use tlsdyno_tls::{Stage, StageSet};

use super::methods::{self, Doubled};

/// The part of the cost of a hit that belongs to one stage, in per cent of the server as is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// A stage, [`OTHER_TLS`], [`TOGETHER`], [`PLAIN_HTTP`] or [`REST`]; where the experiment names its shares, such a
    /// name or [`MISSING`].
    pub stage: String,
    pub metric: Metric,
    pub percent: f64,
    /// The point estimate lies between 0 and 100 %, as a share must. `false`: noise, or a limit elsewhere, gave it.
    pub known: bool,
    /// Lower end of the 95 % interval; `-inf` (JSON: null) with fewer than two rounds.
    pub low: f64,
    /// Upper end; `inf` (JSON: null) with fewer than two rounds.
    pub high: f64,
    /// An impossible number is never resolved.
    pub verdict: Verdict,
    /// A block behind it was limited by the client: the percentage is a bound, not an estimate.
    pub bound: bool,
    /// Of [`OTHER_TLS`], [`REST`] and [`MISSING`]: the stages or named shares that were not measured, whose cost this
    /// includes.
    pub without: Vec<String>,
    /// A remainder, not saved by a step: no candidate for the costliest operation.
    pub left: bool,
}

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
    /// By each metric that was measured. Empty without a usable "as is" block.
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
        for quantity in &comparison.quantities {
            let terms: Vec<(&Column, f64)> = quantity.terms.iter().map(|(column, weight)| (column, *weight)).collect();
            let estimate = rounds.rows(metric).estimate_sum(&terms).map(|sum| quantity.constant + sum);
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
        let widths = self.by(Metric::Cpu).filter(counts).map(|share| share.estimate().half_width());
        widths.reduce(f64::max).filter(|widest| widest.is_finite())
    }

    pub fn by(&self, metric: Metric) -> impl Iterator<Item = &Share> {
        self.shares.iter().filter(move |share| share.metric == metric)
    }
}

impl Share {
    fn of(of: &Difference, stage: &str, bound: bool, without: Vec<String>, left: bool) -> Share {
        let stage = stage.to_owned();
        let Difference { metric, percent, low, high, verdict } = *of;
        let share = Share { stage, metric, percent, known: true, low, high, verdict, bound, without, left };
        let known = matches!(share.part(), PartOfWhole::Number(_));
        Share { known, verdict: if known { verdict } else { Verdict::Undecided }, ..share }
    }

    pub fn estimate(&self) -> Estimate {
        Estimate { value: self.percent, low: self.low, high: self.high }
    }

    pub fn part(&self) -> PartOfWhole {
        // What is saved together, or missing, may be less than nothing.
        if [TOGETHER, MISSING].contains(&self.stage.as_str()) && self.estimate().is_known() {
            return PartOfWhole::Number(self.percent);
        }
        PartOfWhole::of(self.percent, [self.low, self.high])
    }

    /// The interval excludes 0, but there are too few rounds to call the share resolved.
    pub fn is_of_few_rounds(&self) -> bool {
        let excludes_zero = Direction::new([self.low, self.high], 0.0) != Direction::Undecided;
        self.known && self.verdict == Verdict::Undecided && excludes_zero
    }

    pub fn is_step(&self) -> bool {
        !self.left
    }
}

enum Place {
    Share { name: String, left: bool },
    Interaction,
    Instrument,
}

struct Quantity {
    place: Place,
    constant: f64,
    terms: Vec<(Column, f64)>,
    configurations: Vec<usize>,
}

/// Saving of a stage, or of stages that no method can separate.
struct Step {
    name: String,
    stages: StageSet,
    /// As a part of the cost of a hit as is, by row.
    saved: Column,
    configurations: Vec<usize>,
}

impl From<Doubled> for Step {
    fn from(Doubled { stages, share: saved, configurations, .. }: Doubled) -> Step {
        Step { name: methods::name(stages), stages, saved, configurations }
    }
}

fn steps(rounds: &Rounds, as_is: usize, metric: Metric) -> (Vec<Step>, Option<Step>) {
    let record = rounds.record();
    // With T = 1/c the saved share is the papers' T_as_is · (1/T_on − 1/T_off), for CPU and for time alike.
    let step = |role: &Role, name: &str, stages: StageSet| {
        let index = comparable(rounds, as_is, metric, role)?;
        let saved = rounds.paired(as_is, index, metric, |before, after| share_saved(1.0 / before, 1.0 / after));
        Some(Step { name: name.to_owned(), stages, saved, configurations: vec![index] })
    };
    // The stages of the shim contain those of the provider: beside them they would be counted twice.
    let of_provider = |stage: &Stage| Stage::PROVIDER.contains(stage);
    let stages = || {
        record.configurations.iter().filter_map(|configuration| match &configuration.role {
            Role::StageOff(stage) => Some(*stage),
            _ => None,
        })
    };
    let any_of_provider = stages().any(|stage| of_provider(&stage));
    let counted = stages().filter(|stage| of_provider(stage) || !any_of_provider);
    let replaced: Vec<Step> =
        counted.filter_map(|stage| step(&Role::StageOff(stage), stage.name(), StageSet::NONE.with(stage))).collect();
    // Where stages are replaced too, the methods stand side by side (`methods.rs`) and these are the shares.
    let doubled = if replaced.is_empty() { methods::doubled(rounds, as_is, metric) } else { Vec::new() };
    if !doubled.is_empty() {
        let all = methods::all_doubled(rounds, as_is, metric).map(Step::from);
        return (doubled.into_iter().map(Step::from).collect(), all);
    }
    let all_off = record.configurations.iter().find(|configuration| configuration.role == Role::AllOff);
    (replaced, all_off.and_then(|all| step(&Role::AllOff, &all.name, all.noop)))
}

/// `None` unless it can be compared with the server as is by this metric.
fn comparable(rounds: &Rounds, as_is: usize, metric: Metric, role: &Role) -> Option<usize> {
    rounds.find(role).filter(|&index| rounds.pairs(as_is, index, metric) > 0)
}

/// A named share for each round, as a part of the cost of a hit of `as_is`, and the configurations it is of. `None`: no
/// round has all of them.
pub(super) fn column_of(
    model: &ShareModel,
    rounds: &Rounds,
    as_is: usize,
    metric: Metric,
) -> Option<(Column, Vec<usize>)> {
    let names = [Some(&model.on), model.off.as_ref()];
    let indices: Vec<usize> = names.into_iter().flatten().map(|name| rounds.named(name)).collect::<Option<_>>()?;
    let share = |costs: &Vec<f64>| match costs[..] {
        [as_is, on, off] => relative_cost(1.0 / as_is, 1.0 / on, 1.0 / off),
        [as_is, left] => relative_throughput(1.0 / as_is, 1.0 / left),
        _ => f64::NAN,
    };
    let costs = rounds.costs(&[&[as_is], indices.as_slice()].concat(), metric);
    let column: Column = costs.iter().map(|costs| costs.as_ref().map(share)).collect();
    column.iter().any(Option::is_some).then_some((column, indices))
}

#[derive(Default)]
struct Comparison {
    quantities: Vec<Quantity>,
    /// Stages or named shares without a share: not selected, or their configuration cannot be used.
    unmeasured: Vec<String>,
}

impl Comparison {
    fn of_stages(rounds: &Rounds, as_is: usize, metric: Metric) -> Comparison {
        let (steps, all) = steps(rounds, as_is, metric);
        let is_measured = |stage: &Stage| steps.iter().any(|step| step.stages.contains(*stage));
        let unmeasured: Vec<Stage> = Stage::PROVIDER.into_iter().filter(|stage| !is_measured(stage)).collect();
        let mut comparison =
            Comparison { unmeasured: unmeasured.iter().map(Stage::to_string).collect(), ..Comparison::default() };
        for step in &steps {
            comparison.share(&step.name, false, 0.0, vec![(step.saved.clone(), 1.0)], step.configurations.clone());
        }
        let of_steps = |weight: f64| steps.iter().map(move |step| (step.saved.clone(), weight));
        let configurations: Vec<usize> = steps.iter().flat_map(|step| step.configurations.clone()).collect();
        let of_all = all.iter().flat_map(|all| all.configurations.clone());
        let with_all: Vec<usize> = configurations.iter().copied().chain(of_all).collect();
        let plain = comparable(rounds, as_is, metric, &Role::PlainHttp).map(|index| {
            let relative = |before: f64, after: f64| relative_throughput(1.0 / before, 1.0 / after);
            (rounds.paired(as_is, index, metric, relative), index)
        });
        // By slices all together is known as well as each stage alone, while the sum of the stages has the errors of
        // all.
        let is_whole = |all: &&Step| rounds.sweeps() > 0 && !all.stages.iter().any(|one| unmeasured.contains(&one));
        let measured = all.as_ref().filter(is_whole);
        if !steps.is_empty() || plain.is_some() {
            let saved = measured.map_or(of_steps(-1.0).collect(), |all| vec![(all.saved.clone(), -1.0)]);
            let of_plain = plain.iter().map(|(column, _)| (column.clone(), -1.0));
            let involved = measured.map_or(configurations, |all| all.configurations.clone());
            let involved = involved.into_iter().chain(plain.iter().map(|(_, index)| *index)).collect();
            let name = if plain.is_some() { OTHER_TLS } else { REST };
            comparison.share(name, true, 1.0, saved.into_iter().chain(of_plain).collect(), involved);
        }
        if let Some(all) = measured {
            let terms = of_steps(-1.0).chain([(all.saved.clone(), 1.0)]).collect();
            comparison.share(TOGETHER, true, 0.0, terms, with_all.clone());
        }
        if let Some((column, index)) = plain {
            comparison.share(PLAIN_HTTP, true, 0.0, vec![(column, 1.0)], vec![index]);
        }
        if let Some(all) = &all {
            let terms = of_steps(1.0).chain([(all.saved.clone(), -1.0)]).collect();
            comparison.quantity(Place::Interaction, 0.0, terms, with_all);
        }
        comparison.instrument(rounds, as_is, metric);
        comparison
    }

    fn named(models: &[ShareModel], rounds: &Rounds, as_is: usize, metric: Metric) -> Comparison {
        let mut comparison = Comparison::default();
        let (mut terms, mut all) = (Vec::new(), Vec::new());
        for model in models {
            let Some((column, indices)) = column_of(model, rounds, as_is, metric) else {
                comparison.unmeasured.push(model.name.clone());
                continue;
            };
            comparison.share(&model.name, model.off.is_none(), 0.0, vec![(column.clone(), 1.0)], indices.clone());
            terms.push((column, -1.0));
            all.extend(indices);
        }
        if !terms.is_empty() {
            comparison.share(MISSING, true, 1.0, terms, all);
        }
        comparison.instrument(rounds, as_is, metric);
        comparison
    }

    fn instrument(&mut self, rounds: &Rounds, as_is: usize, metric: Metric) {
        let loaded = rounds.find(&Role::Loaded).or_else(|| rounds.find(&Role::NothingDoubled));
        if let Some(index) = loaded.filter(|&index| rounds.pairs(as_is, index, metric) > 0) {
            let saved = rounds.paired(as_is, index, metric, |before, after| share_saved(1.0 / before, 1.0 / after));
            self.quantity(Place::Instrument, 0.0, vec![(saved, -1.0)], vec![index]);
        }
    }

    fn share(&mut self, name: &str, left: bool, constant: f64, terms: Vec<(Column, f64)>, configurations: Vec<usize>) {
        self.quantity(Place::Share { name: name.to_owned(), left }, constant, terms, configurations);
    }

    fn quantity(&mut self, place: Place, constant: f64, terms: Vec<(Column, f64)>, configurations: Vec<usize>) {
        self.quantities.push(Quantity { place, constant, terms, configurations });
    }
}

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_stats::Estimate;

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
            assert_eq!(impossible.part() == PartOfWhole::NotKnown, value < 0.0 || value - half > 1.0, "{impossible:?}");
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
