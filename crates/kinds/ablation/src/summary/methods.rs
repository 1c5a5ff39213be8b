//! The cost of each stage by each method, side by side, and whether they agree.

use std::collections::BTreeSet;

use serde::Serialize;
use tlsdyno_record::store::{Configuration, Role};
use tlsdyno_stats::bootstrap::{Column, Estimate};
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::rows::Rows;
use tlsdyno_stats::statement::{FEW_ROUNDS, Lies, Metric};
use tlsdyno_tls::{Stage, StageSet};

use super::counts::{Counts, Instructions, stages_of};

/// Name of the stages cipher and MAC together, where no method can separate them.
pub const RECORD_PROTECTION: &str = "record_protection";

/// Two methods agree about a stage if they differ by at most this part of its cost,
const AGREE_PART: f64 = 0.1;
/// or by at most so many nanoseconds of CPU time per hit.
const AGREE_NS: f64 = 5_000.0;

/// Whether two methods say the same of a stage: within 10 %, or 5 µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The whole interval of their difference lies within the bounds, or the estimate does and the interval holds 0.
    Agree,
    /// The whole interval lies beyond one of them.
    Differ,
    Undecided,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ByMethods {
    pub stage: String,
    /// Server CPU time per hit saved without the stage, nanoseconds.
    pub removing: Option<Estimate>,
    /// Server CPU time per hit added with the stage computed twice, nanoseconds.
    pub doubling: Option<Estimate>,
    pub difference: Option<Estimate>,
    /// `None` unless both methods measured the stage.
    pub agreement: Option<Agreement>,
    pub counting: Option<Instructions>,
}

pub(super) struct Doubled {
    pub stages: StageSet,
    /// As a part of the cost of a hit as is, by round or sweep.
    pub share: Column,
    pub added_ns: Column,
    pub configurations: Vec<usize>,
}

pub(super) fn name(stages: StageSet) -> String {
    if stages == StageSet::RECORDS { RECORD_PROTECTION.to_owned() } else { stages.to_string() }
}

pub(super) fn doubled(rounds: &Rounds, as_is: usize, metric: Metric) -> Vec<Doubled> {
    let set = |role: &Role| if let Role::Doubled(stages) = role { Some((*stages, role.clone())) } else { None };
    let sets = rounds.record().configurations.iter().filter_map(|configuration| set(&configuration.role));
    sets.filter_map(|(stages, role)| doubling(rounds, as_is, metric, stages, &role)).collect()
}

pub(super) fn all_doubled(rounds: &Rounds, as_is: usize, metric: Metric) -> Option<Doubled> {
    let all = doubled(rounds, as_is, metric);
    let stages = all.iter().fold(StageSet::NONE, |stages, one| stages.union(one.stages));
    doubling(rounds, as_is, metric, stages, &Role::AllDoubled)
}

/// The cost of records doubled less that of records copied; of others less that with nothing doubled.
fn doubling(rounds: &Rounds, as_is: usize, metric: Metric, stages: StageSet, role: &Role) -> Option<Doubled> {
    let twice = rounds.find(role)?;
    let copies = rounds.find(&Role::Copies).filter(|_| stages.contains(Stage::Cipher));
    // In sweeps a mode's cost is told as the untouched server's with what the mode adds.
    let idle =
        if metric == Metric::Cpu && rounds.sweeps() > 0 { Some(as_is) } else { rounds.find(&Role::NothingDoubled) };
    let once = copies.or(idle)?;
    let costs = rounds.costs(&[as_is, once, twice], metric);
    let column = |value: fn(f64, f64, f64) -> f64| -> Column {
        costs
            .iter()
            .map(|costs| costs.as_deref().and_then(|costs| costs.first_chunk()).map(|[a, b, c]| value(*a, *b, *c)))
            .collect()
    };
    let share = column(|as_is, once, twice| (twice - once) / as_is);
    share.iter().any(Option::is_some).then(|| Doubled {
        stages,
        share,
        added_ns: column(|_, once, twice| twice - once),
        configurations: if once == as_is { vec![twice] } else { vec![once, twice] },
    })
}

/// Every stage that a method tells something of, where the record has several methods, or counts.
pub(super) fn by_methods(rounds: &Rounds, counts: Option<&Counts>) -> Vec<ByMethods> {
    let record = rounds.record();
    let as_is = rounds.find(&Role::AsIs);
    let doubled = as_is.map_or_else(Vec::new, |as_is| doubled(rounds, as_is, Metric::Cpu));
    let removed = as_is.map_or_else(Vec::new, |as_is| removed(rounds, as_is));
    let counted = record.configurations.iter().filter_map(|configuration| stages_of(&configuration.role));
    let counted: Vec<StageSet> = counts.iter().flat_map(|_| counted.clone()).collect();
    if counts.is_none() && (doubled.is_empty() || removed.is_empty()) {
        return Vec::new();
    }
    let timed = removed.iter().map(|(stages, _)| *stages).chain(doubled.iter().map(|one| one.stages));
    let mut sets: Vec<StageSet> = timed.chain(counted).collect();
    let place = |stages: &StageSet| {
        let stages: BTreeSet<Stage> = stages.iter().collect();
        (stages.last().copied(), stages.len())
    };
    sets.sort_by_key(place);
    sets.dedup();
    let row = |stages: StageSet| {
        let removed = removed.iter().find(|(of, _)| *of == stages).map(|(_, column)| column);
        let doubled = doubled.iter().find(|one| one.stages == stages).map(|one| &one.added_ns);
        let counting = counts.and_then(|counts| counts.told_of(record, stages));
        ByMethods { counting, ..side_by_side(rounds.rows(Metric::Cpu), stages, removed, doubled) }
    };
    sets.into_iter().map(row).collect()
}

/// What is saved without a set of stages, nanoseconds per hit: of stages alone and of those that are doubled together.
fn removed(rounds: &Rounds, as_is: usize) -> Vec<(StageSet, Column)> {
    let record = rounds.record();
    let doubled = |stages: StageSet| {
        record.configurations.iter().any(|configuration| configuration.role == Role::Doubled(stages))
    };
    let of = |(index, configuration): (usize, &Configuration)| {
        let stages = configuration.noop;
        let is_step = match configuration.role {
            Role::StageOff(_) => true,
            Role::Several(_) | Role::AllOff => doubled(stages),
            _ => false,
        };
        let column = rounds.paired(as_is, index, Metric::Cpu, |as_is, without| as_is - without);
        (is_step && configuration.valid && column.iter().any(Option::is_some)).then_some((stages, column))
    };
    record.configurations.iter().enumerate().filter_map(of).collect()
}

fn side_by_side(rows: &Rows, stages: StageSet, removed: Option<&Column>, doubled: Option<&Column>) -> ByMethods {
    let [removing, doubling] = [removed, doubled].map(|column| column.map(|column| rows.estimate(column)));
    let both = removed.zip(doubled).map(|(removed, doubled)| {
        let difference = rows.estimate_sum(&[(doubled, 1.0), (removed, -1.0)]);
        let pairs = rows.pairs(&[removed, doubled]);
        (difference, pairs)
    });
    let largest = removing.iter().chain(&doubling).map(|cost| cost.value.abs()).fold(0.0, f64::max);
    ByMethods {
        stage: name(stages),
        removing,
        doubling,
        difference: both.map(|(difference, _)| difference),
        agreement: both.map(|(difference, pairs)| agreement(difference, pairs, largest)),
        counting: None,
    }
}

fn agreement(difference: Estimate, pairs: u32, largest_ns: f64) -> Agreement {
    let bound = (AGREE_PART * largest_ns).max(AGREE_NS);
    match Lies::new(difference.interval(), [-bound, bound]) {
        _ if pairs < FEW_ROUNDS => Agreement::Undecided,
        Lies::Within => Agreement::Agree,
        Lies::Above | Lies::Below => Agreement::Differ,
        Lies::Across => Agreement::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_agree_within_a_tenth_or_five_microseconds() {
        let difference = |value, half| Estimate { value, low: value - half, high: value + half };
        assert_eq!(agreement(difference(4e3, 0.5e3), 9, 10e3), Agreement::Agree);
        assert_eq!(agreement(difference(20e3, 5e3), 9, 300e3), Agreement::Agree);
        assert_eq!(agreement(difference(4e3, 6e3), 9, 10e3), Agreement::Undecided);
        assert_eq!(agreement(difference(0.0, f64::INFINITY), 9, 10e3), Agreement::Undecided);
        assert_eq!(agreement(difference(40e3, 5e3), 9, 300e3), Agreement::Differ);
        assert_eq!(agreement(difference(-40e3, 5e3), 9, 300e3), Agreement::Differ);
        assert_eq!(agreement(difference(40e3, 15e3), 9, 300e3), Agreement::Undecided);
        assert_eq!(agreement(difference(40e3, 5e3), 4, 300e3), Agreement::Undecided);
    }

    #[test]
    fn stages_that_stand_together_have_one_name() {
        assert_eq!(name([Stage::Mac, Stage::Cipher].into_iter().collect()), "record_protection");
        assert_eq!(name([Stage::Kdf].into_iter().collect()), "kdf");
    }
}
