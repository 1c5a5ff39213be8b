//! What the record of handshakes step by step holds beside its blocks.

use serde::{Deserialize, Serialize};

use super::file::{StepsCell, StepsExperiment};

/// The steps of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsRecord {
    /// What was asked for.
    pub experiment: StepsExperiment,
    /// The cells, in the order of the configurations.
    pub cells: Vec<StepsCell>,
}
