//! What the record of a profile holds beside its blocks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tlsdyno_native::Clock;
use tlsdyno_tls::StageSet;

use super::caches::{CountedCaches, Work};
use super::file::{Cell, Handshakes, ProfileExperiment};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileRecord {
    pub experiment: ProfileExperiment,
    pub cells: Vec<Cell>,
    /// What calls were timed with.
    pub clock: Clock,
    /// Time of one reading of the clock, picoseconds.
    pub clock_reading_ps: u64,
    /// Time in the kernel was sampled too; `None`: no sampling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sees_kernel: Option<bool>,
    /// Instructions by kind of handshake; empty: not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<CountedAreas>,
}

/// Instructions in user space per hit, counted under valgrind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountedAreas {
    pub handshakes: Handshakes,
    /// Instructions by area; what runs within a stage counts to the area of stages, whichever file it is in.
    pub areas: BTreeMap<String, f64>,
    /// Within calls into the provider, by stage.
    pub stages: BTreeMap<String, f64>,
    /// Instructions of a hit without TLS, by area; empty: not counted.
    pub plain: BTreeMap<String, f64>,
    /// Within calls into the provider, by stage, with the caches of this machine; empty: not simulated.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stages_work: BTreeMap<String, Work>,
    /// Work of a hit, with the caches of each processor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CountedCaches>,
}

impl CountedAreas {
    /// Instructions within the calls of these stages.
    pub fn of_stages(&self, stages: StageSet) -> f64 {
        stages.iter().filter_map(|stage| self.stages.get(stage.name())).sum()
    }

    /// Work within their calls with the caches of this machine; `None`: not simulated.
    pub fn work_of(&self, stages: StageSet) -> Option<Work> {
        let works = stages.iter().filter_map(|stage| self.stages_work.get(stage.name()));
        works.copied().reduce(Work::plus)
    }
}
