//! What the record of a load experiment holds beside its blocks.

use serde::{Deserialize, Serialize};

use crate::load::summary::Summary;
use crate::model::load_experiment::LoadExperiment;

/// The load experiment of a record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadRecord {
    /// The experiment. Of `tlsdyno load` and `tlsdyno reuse` the flags are in the record's command line.
    pub experiment: LoadExperiment,
    /// Where each configuration was measured in one run: what `tlsdyno load --json` prints of it, in the order of the
    /// configurations. Empty where rounds were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Summary>,
    /// Connections that saturate each configuration of a curve, in the order of the configurations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<u32>,
}
