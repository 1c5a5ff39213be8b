//! One server on two libraries: what each stage costs on either, and which of them makes the difference.
//!
//! Circle: rounds are made from sweeps, and these ask here which server is the untouched one on a library.

use serde::Serialize;
use tlsdyno_record::model::{ConfigurationModel, Experiment};
use tlsdyno_record::store::{LibraryUsed, Record, Role};
use tlsdyno_stats::bootstrap::Column;
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::rows::Rows;
use tlsdyno_stats::statement::{Direction, Metric, SideBySide, direction};
use tlsdyno_tls::Stage;

pub const WHOLE: &str = "whole";
/// Row name of the cost of a hit with all measured stages off: the rest of the library, the server and the kernel.
pub const REMAINDER: &str = "remainder";

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Libraries {
    pub first: String,
    pub second: String,
    pub rows: Vec<SideBySide>,
}

impl Libraries {
    /// `None` where one library only was measured, or the two not in the same rounds.
    pub(super) fn of(rounds: &Rounds) -> Option<Libraries> {
        let record = rounds.record();
        let models = models(record);
        let [first, second] = [rounds.find(&Role::AsIs)?, models.iter().position(is_untouched_on_other)?];
        if !record.configurations.get(second)?.valid || rounds.pairs(first, second, Metric::Cpu) == 0 {
            return None;
        }
        let saved = |whole: usize, without: usize| rounds.paired(whole, without, Metric::Cpu, |a, b| a - b);
        let mut named: Vec<(String, [Column; 2])> =
            vec![(WHOLE.to_owned(), [first, second].map(|index| rounds.cost(index, Metric::Cpu)))];
        let mut all_off = None;
        let mut count = 0;
        for (index, configuration) in record.configurations.iter().enumerate() {
            let is_usable = |index: &usize| record.configurations[*index].valid && configuration.valid;
            let Some(twin) = twin(models, index).filter(is_usable) else { continue };
            match &configuration.role {
                // Those of the shim contain these.
                Role::StageOff(stage) if Stage::PROVIDER.contains(stage) => {
                    named.push((stage.name().to_owned(), [saved(first, index), saved(second, twin)]));
                    count += 1;
                    all_off = all_off.or(Some((index, twin)));
                }
                Role::AllOff => all_off = Some((index, twin)),
                _ => {}
            }
        }
        let is_all = |(index, _): &(usize, usize)| count == 1 || record.configurations[*index].role == Role::AllOff;
        if let Some((index, twin)) = all_off.filter(is_all) {
            named.push((REMAINDER.to_owned(), [index, twin].map(|index| rounds.cost(index, Metric::Cpu))));
        }
        let [first, second] = versions(record, models.get(second)?);
        Some(Libraries {
            first,
            second,
            rows: named.into_iter().map(|named| row(rounds.rows(Metric::Cpu), named)).collect(),
        })
    }

    pub fn whole(&self) -> &SideBySide {
        &self.rows[0]
    }

    /// The part of a hit that makes most of the difference of the whole, among those that certainly differ in the same
    /// direction. `None`: no part does.
    pub fn to_blame(&self) -> Option<&SideBySide> {
        let sign = Direction::new([self.whole().difference.value; 2], 0.0);
        let part = |row: &&SideBySide| row.direction == sign && sign != Direction::Undecided;
        let size = |row: &&SideBySide| row.difference.value.abs();
        self.rows[1..].iter().filter(part).max_by(|a, b| size(a).total_cmp(&size(b)))
    }
}

fn models(record: &Record) -> &[ConfigurationModel] {
    record.kind_part.of::<Experiment>().map_or(&[], |experiment| &experiment.configurations)
}

fn is_untouched_on_other(model: &ConfigurationModel) -> bool {
    model.library.is_some() && model.without_library().is_untouched()
}

fn twin(models: &[ConfigurationModel], index: usize) -> Option<usize> {
    let nameless = |model: &ConfigurationModel| ConfigurationModel { name: String::new(), ..model.without_library() };
    let model = models.get(index).filter(|model| model.library.is_none())?;
    models.iter().position(|other| other.library.is_some() && nameless(other) == nameless(model))
}

/// Versions of both libraries; where these are equal, with the paths.
fn versions(record: &Record, second: &ConfigurationModel) -> [String; 2] {
    let manifest = &record.manifest;
    let used = |of_second: bool| {
        manifest.libraries.iter().find(|used| (Some(&used.prefix) == second.library.as_ref()) == of_second)
    };
    let short = |version: &str| version.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let [first, other] = [used(false), used(true)];
    let versions =
        [first, other].map(|used| used.map_or_else(|| short(&manifest.openssl_version), |of| short(&of.version)));
    if versions[0] != versions[1] {
        return versions;
    }
    let place = |used: Option<&LibraryUsed>, system: &str| {
        used.map_or_else(|| system.to_owned(), |used| used.prefix.display().to_string())
    };
    [format!("{} in {}", versions[0], place(first, "the system")), format!("{} in {}", versions[1], place(other, ""))]
}

fn row(rows: &Rows, (stage, [first, second]): (String, [Column; 2])) -> SideBySide {
    let pairs = rows.pairs(&[&first, &second]);
    let difference = rows.estimate_sum(&[(&second, 1.0), (&first, -1.0)]);
    let direction = direction(difference, pairs);
    SideBySide { stage, first: rows.estimate(&first), second: rows.estimate(&second), difference, direction }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_record::model::{Experiment, Server};
    use tlsdyno_record::store::{Block, Configuration, KindPart};

    /// Of a hit of 100 µs authentication takes 30 on the first library; on the second the whole takes 20 more.
    fn record(second_authentication_us: u64) -> Record {
        let libraries = vec!["/a".into(), "/b".into()];
        let mut experiment = Experiment { server: Server { libraries, ..Server::default() }, ..Experiment::default() };
        experiment.configurations = experiment.ablation(&[Stage::Authentication]);
        experiment.fill();
        let mut record = Record::begun_now("?", 1);
        let roles = [Role::AsIs, Role::StageOff(Stage::Authentication), Role::PlainHttp, Role::Setting, Role::Setting];
        let named = experiment.configurations.iter().zip(roles);
        let configuration = |(model, role): (&ConfigurationModel, Role)| Configuration {
            role,
            noop: model.noop,
            ..Configuration::setting(&model.name, true, Vec::new())
        };
        record.configurations = named.map(configuration).collect();
        record.kind_part = KindPart::from(experiment);
        let costs_us = [100, 70, 10, 120, 120 - second_authentication_us];
        for round in 0..8 {
            for (configuration, cost_us) in costs_us.into_iter().enumerate() {
                // A pace of its own in each round.
                let server_cpu_ns = (cost_us * 100 + u64::from(round)) * 1_000;
                let block = Block { round, configuration, server_cpu_ns, hits: 100, elapsed_ns: 1, ..Block::default() };
                record.blocks.push(Block { valid: true, ..block });
            }
        }
        record.finished = true;
        record
    }

    #[test]
    fn the_stage_that_makes_the_difference_is_named() {
        let libraries = Libraries::of(&Rounds::of(&record(45))).unwrap();
        let told: Vec<(&str, i64, Direction)> = libraries
            .rows
            .iter()
            .map(|row| (row.stage.as_str(), (row.difference.value / 1e3).round() as i64, row.direction))
            .collect();
        let expected = [
            (WHOLE, 20, Direction::Bigger),
            ("authentication", 15, Direction::Bigger),
            (REMAINDER, 5, Direction::Bigger),
        ];
        assert_eq!(told, expected);
        assert_eq!(libraries.to_blame().map(|row| row.stage.as_str()), Some("authentication"));
        // A stage that became cheaper is not what made the whole dearer.
        let libraries = Libraries::of(&Rounds::of(&record(5))).unwrap();
        assert_eq!(libraries.rows[1].direction, Direction::Smaller);
        assert_eq!(libraries.to_blame().map(|row| row.stage.as_str()), Some(REMAINDER));
    }

    #[test]
    fn one_library_is_no_comparison() {
        let mut record = record(30);
        record.configurations[3].valid = false;
        assert_eq!(Libraries::of(&Rounds::of(&record)), None);
        assert_eq!(Libraries::of(&Rounds::of(&Record::begun_now("?", 1))), None);
    }
}
