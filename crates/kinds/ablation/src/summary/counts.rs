//! Instructions per hit of each configuration, as counted under valgrind, and what stages come to by them.

use std::collections::BTreeSet;

use serde::Serialize;
use tlsdyno_base::units::format_percent;
use tlsdyno_record::store::warning::code;
use tlsdyno_record::store::{Block, Configuration, Record, Role, Warning};
use tlsdyno_tls::{Stage, StageSet};

/// Lowest possible share, percentage points (negated): what takes the place of a stage costs something itself.
const BELOW_NOTHING: f64 = 5.0;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counts {
    pub configurations: Vec<Count>,
    /// The largest departure of a round from the mean of its configuration, per cent; `None`: one round only.
    pub spread_percent: Option<f64>,
    /// The largest departure of a stage's share in a round from its mean, percentage points of the untouched server's
    /// instructions; `None`: one round only, or no stages.
    pub shares_spread_percent: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Count {
    pub name: String,
    /// Instructions per hit, mean over rounds; `None`: it was not counted.
    pub instructions_per_hit: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Instructions {
    pub removing_per_hit: Option<f64>,
    pub doubling_per_hit: Option<f64>,
    pub percent: f64,
}

impl Counts {
    pub fn of(record: &Record) -> Option<Counts> {
        let counts = Counts::of_rounds(record, |_| true)?;
        let counted = record.blocks.iter().filter(|block| block.instructions.is_some());
        let rounds: BTreeSet<u32> = counted.map(|block| block.round).collect();
        let each: Vec<Counts> =
            rounds.iter().filter_map(|round| Counts::of_rounds(record, |other| other == *round)).collect();
        let spread_percent = (0..record.configurations.len()).filter_map(|index| {
            let mean = counts.per_hit(index)?;
            departure(each.iter().filter_map(|round| Some(round.per_hit(index)? / mean * 100.0)))
        });
        let spread_percent = spread_percent.reduce(f64::max);
        let shares_spread_percent = record.configurations.iter().filter_map(|configuration| {
            let stages = stages_of(&configuration.role)?;
            departure(each.iter().filter_map(|round| Some(round.of_stages(record, stages)?.percent)))
        });
        let shares_spread_percent = shares_spread_percent.reduce(f64::max);
        Some(Counts { spread_percent, shares_spread_percent, ..counts })
    }

    fn of_rounds(record: &Record, is_wanted: impl Fn(u32) -> bool) -> Option<Counts> {
        let per_hit = |index: usize| {
            let is_of = |block: &&Block| block.configuration == index && block.valid && is_wanted(block.round);
            let of = record.blocks.iter().filter(is_of).filter(|block| block.hits > 0);
            let counts: Vec<f64> =
                of.filter_map(|block| Some(block.instructions? as f64 / block.hits as f64)).collect();
            (!counts.is_empty()).then(|| counts.iter().sum::<f64>() / counts.len() as f64)
        };
        let count = |(index, configuration): (usize, &Configuration)| Count {
            name: configuration.name.clone(),
            instructions_per_hit: per_hit(index),
        };
        let configurations: Vec<Count> = record.configurations.iter().enumerate().map(count).collect();
        let is_counted = configurations.iter().any(|count| count.instructions_per_hit.is_some());
        is_counted.then_some(Counts { configurations, spread_percent: None, shares_spread_percent: None })
    }

    /// Warns of stages whose share is impossible (above 100 % or below 0), which no report tells.
    pub fn impossible(&self, record: &Record) -> Option<Warning> {
        let of = |stages: StageSet| {
            let percent = self.of_stages(record, stages)?.percent;
            let names: Vec<&str> = stages.iter().map(|stage| stage.name()).collect();
            let name = names.join(" and ").replace('_', " ");
            is_impossible(percent).then(|| format!("{name} {}", format_percent(percent)))
        };
        let told: Vec<String> =
            record.configurations.iter().filter_map(|of_one| of(stages_of(&of_one.role)?)).collect();
        let what = format!(
            "counts that cannot be a share of the server's instructions are left out ({}): the server did not do the \
             same work with and without the stage; count more requests, or read its log",
            told.join(", ")
        );
        (!told.is_empty()).then(|| Warning::new(code::MISSED, what))
    }

    pub fn per_hit(&self, index: usize) -> Option<f64> {
        self.configurations.get(index)?.instructions_per_hit
    }

    /// `None`: not counted, or impossible.
    pub(super) fn told_of(&self, record: &Record, stages: StageSet) -> Option<Instructions> {
        self.of_stages(record, stages).filter(|counted| !is_impossible(counted.percent))
    }

    fn of_stages(&self, record: &Record, stages: StageSet) -> Option<Instructions> {
        let find = |is: &dyn Fn(&Role) -> bool| record.configurations.iter().position(|of| is(&of.role));
        let as_is = self.per_hit(find(&|role| *role == Role::AsIs)?)?;
        let without = record
            .configurations
            .iter()
            .position(|of| of.noop == stages && matches!(of.role, Role::StageOff(_) | Role::Several(_) | Role::AllOff));
        let removing = without.and_then(|index| {
            let with = record.configurations[index].host_number.map_or(Some(as_is), |host| self.per_hit(host));
            Some(with? - self.per_hit(index)?)
        });
        let twice = find(&|role| *role == Role::Doubled(stages));
        let doubling = twice.and_then(|index| {
            let copies = find(&|role| *role == Role::Copies).filter(|_| stages.contains(Stage::Cipher));
            let once = copies.or_else(|| find(&|role| *role == Role::NothingDoubled))?;
            Some(self.per_hit(index)? - self.per_hit(once)?)
        });
        let percent = 100.0 * removing.or(doubling)? / as_is;
        Some(Instructions { removing_per_hit: removing, doubling_per_hit: doubling, percent })
    }
}

/// `None`: the configuration has no stage replaced or doubled.
pub(super) fn stages_of(role: &Role) -> Option<StageSet> {
    match role {
        Role::StageOff(stage) => Some(StageSet::NONE.with(*stage)),
        Role::Doubled(stages) => Some(*stages),
        _ => None,
    }
}

fn is_impossible(percent: f64) -> bool {
    !(-BELOW_NOTHING..=100.0).contains(&percent)
}

fn departure(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let largest = values.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max);
    (values.len() > 1).then_some(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instructions per hit in each of two rounds: of the server as is, of its host with nothing off, and of the host
    /// without authentication.
    fn record(rounds: [[u64; 3]; 2]) -> Record {
        let configuration = |name: &str, role, noop, host_number| Configuration {
            role,
            noop,
            host_number,
            ..Configuration::setting(name, true, Vec::new())
        };
        let off = StageSet::NONE.with(Stage::Authentication);
        let mut record = Record::begun_now("?", 1);
        record.configurations = vec![
            configuration("as is", Role::AsIs, StageSet::NONE, None),
            configuration("nothing off", Role::Loaded, StageSet::NONE, None),
            configuration("no authentication", Role::StageOff(Stage::Authentication), off, Some(1)),
        ];
        for (round, counts) in rounds.into_iter().enumerate() {
            for (configuration, instructions) in counts.into_iter().enumerate() {
                let block = Block { round: round as u32, configuration, hits: 10, valid: true, ..Block::default() };
                record.blocks.push(Block { instructions: Some(instructions * 10), ..block });
            }
        }
        record
    }

    #[test]
    fn rounds_differ_in_shares_by_more_than_in_counts() {
        let counts = Counts::of(&record([[1_000, 1_000, 480], [1_000, 1_010, 510]])).unwrap();
        // 52 and 50 per cent; the counts of "no authentication" depart by 3 per cent of their mean.
        assert!((counts.shares_spread_percent.unwrap() - 1.0).abs() < 1e-9, "{counts:?}");
        assert!((counts.spread_percent.unwrap() - 100.0 * 15.0 / 495.0).abs() < 1e-9, "{counts:?}");
        let one_round = Record { blocks: record([[1_000, 1_000, 480]; 2]).blocks[..3].to_vec(), ..record([[1; 3]; 2]) };
        let counts = Counts::of(&one_round).unwrap();
        assert_eq!((counts.spread_percent, counts.shares_spread_percent), (None, None));
    }

    #[test]
    fn shares_that_cannot_be_are_not_told() {
        let off = StageSet::NONE.with(Stage::Authentication);
        let percent = |with: u64, without: u64| {
            let record = record([[1_000, with, without]; 2]);
            let counts = Counts::of(&record).unwrap();
            let told = counts.told_of(&record, off).map(|counted| counted.percent);
            assert_eq!(told.is_none(), counts.impossible(&record).is_some());
            told
        };
        assert_eq!(percent(1_000, 480), Some(52.0));
        assert_eq!(percent(1_000, 1_020), Some(-2.0));
        assert_eq!(percent(1_100, 35), None);
        assert_eq!(percent(1_000, 1_100), None);
    }
}
