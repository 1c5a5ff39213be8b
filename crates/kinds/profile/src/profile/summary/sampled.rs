//! What the samples of a profile say: each group's part of all samples, times what a hit costs.

use std::collections::{BTreeMap, BTreeSet};

use tlsdyno_base::units::format_percent;
use tlsdyno_record::store::Record;
use tlsdyno_record::store::samples::{Area, Group, PERIOD_NS, Samples};
use tlsdyno_stats::bootstrap::{Estimate, SEED, resample};
use tlsdyno_stats::robust::trimmed_mean;
use tlsdyno_tls::StageSet;

use super::{SampledSummary, Spent};
use crate::profile::CountedAreas;
use crate::profile::file::Cell;

/// Number of functions in the report.
const FUNCTIONS_TOLD: usize = 10;
/// Number of resamples of rounds for the interval of each group of samples, of which there are dozens.
const RESAMPLES_OF_SAMPLES: usize = 1_000;

/// Minimum part of the server's CPU time that samples must stand for.
const SEEN_LEAST: f64 = 0.7;

/// Samples of one cell, round by round.
pub(super) struct SeenRounds {
    rounds: Vec<SeenRound>,
    all: Samples,
    /// Cost of a hit over all rounds, nanoseconds.
    whole_ns: f64,
}

/// Samples of one cell in one round.
struct SeenRound {
    samples: Samples,
    /// Cost of a hit in this round, nanoseconds; `None`: no slice measured it.
    whole_ns: Option<f64>,
}

impl SeenRounds {
    /// From a hit's cost in each round, and over all rounds. `None`: no samples. Fails where the samples stand for too
    /// little of the server's work.
    pub(super) fn of(
        record: &Record,
        cells: &[Cell],
        cell: Cell,
        whole: &BTreeMap<u32, f64>,
        whole_ns: f64,
    ) -> Result<Option<SeenRounds>, String> {
        let mut rounds: BTreeMap<u32, Samples> = BTreeMap::new();
        let mut all = Samples::default();
        let mut cpu_ns = 0;
        for block in record.blocks.iter().filter(|block| block.valid && cells[block.configuration] == cell) {
            let samples = block.profile.iter().filter_map(|profile| profile.samples.as_ref());
            for samples in samples.filter(|samples| samples.count() > 0) {
                rounds.entry(block.round).or_default().add(samples);
                all.add(samples);
                cpu_ns += block.slices.iter().map(|slice| slice.server_cpu_ns).sum::<u64>();
            }
        }
        let seen = ((all.count() + all.lost_count) * PERIOD_NS) as f64 / cpu_ns.max(1) as f64;
        if !rounds.is_empty() && seen < SEEN_LEAST {
            let (seen, cell) = (format_percent(seen * 100.0), cell.to_string());
            return Err(format!("\"{cell}\": samples stand for {seen} of the server's CPU time, and are left out"));
        }
        let of_round = |(number, samples)| SeenRound { samples, whole_ns: whole.get(&number).copied() };
        let rounds: Vec<SeenRound> = rounds.into_iter().map(of_round).collect();
        Ok((!rounds.is_empty()).then_some(SeenRounds { rounds, all, whole_ns }))
    }

    /// The cost of those samples that `of` counts: their part of all, times what a hit costs. The interval is that of a
    /// bootstrap over rounds, of both factors together: a round that is dear may be dear for these samples.
    fn cost(&self, of: impl Fn(&Samples) -> u64) -> Estimate {
        let counted = |round: &SeenRound| (of(&round.samples), round.samples.count(), round.whole_ns);
        let rounds: Vec<(u64, u64, Option<f64>)> = self.rounds.iter().map(counted).collect();
        cost_of(&rounds, self.whole_ns)
    }

    pub(super) fn of_stages(&self, stages: StageSet) -> Estimate {
        self.cost(in_groups(|group| {
            group.area == Area::Stages && stages.iter().any(|stage| group.part == stage.name())
        }))
    }

    /// Cost of some groups, beside their cost without TLS.
    fn spent(&self, name: &str, plain: Option<&SeenRounds>, is_it: impl Fn(&Group) -> bool) -> Spent {
        let of = in_groups(is_it);
        let ns = self.cost(&of);
        let tls_ns = plain.map(|plain| ns.less(plain.cost(&of)));
        Spent { name: name.to_owned(), ns, tls_ns, instructions_count: None, parts: Vec::new() }
    }

    pub(super) fn summary(
        &self,
        sampling_ns: Estimate,
        plain: Option<&SeenRounds>,
        counted: Option<&CountedAreas>,
    ) -> SampledSummary {
        let groups: BTreeSet<&Group> =
            self.all.groups.keys().chain(plain.iter().flat_map(|plain| plain.all.groups.keys())).collect();
        let area = |area: Area| {
            let part = |group: &Group| Spent {
                instructions_count: counted
                    .filter(|_| area == Area::Stages)
                    .and_then(|counted| counted.stages.get(&group.part).copied()),
                ..self.spent(&group.part, plain, |of| of == group)
            };
            let mut parts: Vec<Spent> =
                groups.iter().filter(|group| group.area == area).map(|group| part(group)).collect();
            parts.sort_by(|a, b| b.ns.value.total_cmp(&a.ns.value));
            let instructions_count = counted.and_then(|counted| counted.areas.get(area.name()).copied());
            Spent { instructions_count, parts, ..self.spent(area.name(), plain, |group| group.area == area) }
        };
        let mut functions: Vec<(&String, &u64)> = self.all.functions.iter().collect();
        functions.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
        let function = |(name, _): &(&String, &u64)| Spent {
            name: (*name).clone(),
            ns: self.cost(|seen| seen.functions.get(*name).copied().unwrap_or(0)),
            tls_ns: None,
            instructions_count: None,
            parts: Vec::new(),
        };
        let named_percent = plain.map(|plain| {
            let tls_ns = |wanted: fn(&Group) -> bool| {
                let of = in_groups(|group| group.area != Area::Stages && wanted(group));
                self.cost(&of).value - plain.cost(&of).value
            };
            tls_ns(Group::is_named) / tls_ns(|_| true) * 100.0
        });
        SampledSummary {
            samples: self.all.count(),
            named_percent,
            sampling_ns,
            whole_ns: self.whole_ns,
            areas: Area::ALL.into_iter().map(area).filter(|area| !area.parts.is_empty()).collect(),
            functions: functions.iter().take(FUNCTIONS_TOLD).map(function).collect(),
            stacks: self.all.stacks.clone(),
        }
    }
}

/// Counts the samples of some groups.
fn in_groups(is_it: impl Fn(&Group) -> bool) -> impl Fn(&Samples) -> u64 {
    move |samples| samples.groups.iter().filter(|(group, _)| is_it(group)).map(|(_, count)| count).sum()
}

/// From rounds with their samples of a group, all their samples, and what a hit cost in them.
fn cost_of(rounds: &[(u64, u64, Option<f64>)], whole_ns: f64) -> Estimate {
    let part = |counts: &[usize]| {
        let sum = |samples: fn(&(u64, u64, Option<f64>)) -> u64| {
            rounds.iter().zip(counts).map(|(round, count)| samples(round) * *count as u64).sum::<u64>()
        };
        sum(|round| round.0) as f64 / sum(|round| round.1).max(1) as f64
    };
    let cost = |counts: &[usize]| {
        let wholes = rounds.iter().zip(counts).flat_map(|(round, count)| std::iter::repeat_n(round.2, *count));
        let wholes: Vec<f64> = wholes.flatten().collect();
        Some(part(counts) * trimmed_mean(&wholes).unwrap_or(whole_ns))
    };
    let sample = resample(rounds.len(), RESAMPLES_OF_SAMPLES, SEED, cost);
    Estimate::of_resamples(part(&vec![1; rounds.len()]) * whole_ns, sample, rounds.len())
}

#[cfg(test)]
mod tests {
    use tlsdyno_base::random::SplitMix64;

    use super::*;

    /// Profiles of servers that differ from start to start in what a hit costs, and that spend a quarter of it, or
    /// 100 us of it, in the group. Gives what their intervals hold the truth of, and what they would if the cost of a
    /// hit were known.
    fn covered(rounds: usize, is_a_quarter: bool, random: &mut SplitMix64) -> (f64, f64) {
        const PROFILES: u32 = 150;
        const SAMPLES: f64 = 3_000.0;
        let (mut covered, mut as_if_known) = (0, 0);
        for _ in 0..PROFILES {
            let mut round = || {
                let whole = 400e3 * (1.0 + 0.05 * random.normal());
                let part = if is_a_quarter { 0.25 } else { 100e3 / whole };
                let some = SAMPLES * part + (SAMPLES * part * (1.0 - part)).sqrt() * random.normal();
                (some as u64, SAMPLES as u64, Some(whole * (1.0 + 0.01 * random.normal())))
            };
            let seen: Vec<_> = (0..rounds).map(|_| round()).collect();
            let whole_ns = trimmed_mean(&seen.iter().filter_map(|(.., whole)| *whole).collect::<Vec<_>>()).unwrap();
            let known: Vec<_> = seen.iter().map(|(some, all, _)| (*some, *all, Some(whole_ns))).collect();
            let holds = |of: Estimate| u32::from(of.low <= 100e3 && 100e3 <= of.high);
            covered += holds(cost_of(&seen, whole_ns));
            as_if_known += holds(cost_of(&known, whole_ns));
        }
        (f64::from(covered) / f64::from(PROFILES), f64::from(as_if_known) / f64::from(PROFILES))
    }

    #[test]
    fn intervals_cover_the_truth_as_often_as_they_say() {
        let mut random = SplitMix64::new(9);
        let (of_part, as_if_known) = covered(8, true, &mut random);
        let (of_rest, _) = covered(8, false, &mut random);
        eprintln!("covered {of_part} and {of_rest}; with a whole without error {as_if_known}");
        assert!(of_part >= 0.88 && of_rest >= 0.88, "{of_part} {of_rest}");
        assert!(as_if_known < 0.88, "what a hit costs has an error too: {as_if_known}");
    }
}
