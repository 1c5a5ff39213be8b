//! Instructions per hit of each configuration, as counted under valgrind, and what stages come to by them.

use serde::Serialize;
use tlsdyno_tls::{Stage, StageSet};

use crate::store::{Kind, Record};

/// The instructions of a hit in user space, of all configurations that were counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counts {
    /// Each configuration, in the order of the record.
    pub configurations: Vec<Count>,
    /// The largest departure of a round from the mean of its configuration, per cent; `None`: one round only.
    pub spread_percent: Option<f64>,
}

/// The instructions of one configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Count {
    /// Name of the configuration.
    pub name: String,
    /// Instructions per hit, mean over rounds; `None`: it was not counted.
    pub instructions_per_hit: Option<f64>,
}

/// Instructions that belong to a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Instructions {
    /// Per hit, what is saved without the stage.
    pub removing: Option<f64>,
    /// Per hit, what is added with the stage computed twice.
    pub doubling: Option<f64>,
    /// The first of these that is there, per cent of the untouched server's.
    pub percent: f64,
}

impl Counts {
    /// `None`: nothing was counted.
    pub fn of(record: &Record) -> Option<Counts> {
        let per_hit = |index: usize| -> Vec<f64> {
            let of = record.blocks.iter().filter(|block| block.configuration == index && block.valid && block.hits > 0);
            of.filter_map(|block| Some(block.instructions? as f64 / block.hits as f64)).collect()
        };
        let mean = |counts: &[f64]| counts.iter().sum::<f64>() / counts.len() as f64;
        let all: Vec<Vec<f64>> = (0..record.configurations.len()).map(per_hit).collect();
        if all.iter().all(Vec::is_empty) {
            return None;
        }
        let departure = |counts: &Vec<f64>| {
            let mean = mean(counts);
            counts.iter().map(|count| 100.0 * (count / mean - 1.0).abs()).fold(0.0, f64::max)
        };
        let repeated = all.iter().filter(|counts| counts.len() > 1);
        let spread_percent = repeated.map(departure).reduce(f64::max);
        let count = |(configuration, counts): (&crate::store::Configuration, &Vec<f64>)| Count {
            name: configuration.name.clone(),
            instructions_per_hit: (!counts.is_empty()).then(|| mean(counts)),
        };
        Some(Counts { configurations: record.configurations.iter().zip(&all).map(count).collect(), spread_percent })
    }

    /// Of the configuration with this number.
    pub fn per_hit(&self, index: usize) -> Option<f64> {
        self.configurations.get(index)?.instructions_per_hit
    }

    /// What was counted of these stages; `None`: nothing.
    pub(super) fn of_stages(&self, record: &Record, stages: StageSet) -> Option<Instructions> {
        let find = |is: &dyn Fn(&Kind) -> bool| record.configurations.iter().position(|of| is(&of.kind));
        let as_is = self.per_hit(find(&|kind| *kind == Kind::AsIs)?)?;
        let without = record
            .configurations
            .iter()
            .position(|of| of.noop == stages && matches!(of.kind, Kind::StageOff(_) | Kind::Several(_) | Kind::AllOff));
        let removing = without.and_then(|index| {
            let with = record.configurations[index].host_number.map_or(Some(as_is), |host| self.per_hit(host));
            Some(with? - self.per_hit(index)?)
        });
        let twice = find(&|kind| *kind == Kind::Doubled(stages));
        let doubling = twice.and_then(|index| {
            let copies = find(&|kind| *kind == Kind::Copies).filter(|_| stages.contains(Stage::Cipher));
            let once = copies.or_else(|| find(&|kind| *kind == Kind::NothingDoubled))?;
            Some(self.per_hit(index)? - self.per_hit(once)?)
        });
        let percent = 100.0 * removing.or(doubling)? / as_is;
        Some(Instructions { removing, doubling, percent })
    }
}
