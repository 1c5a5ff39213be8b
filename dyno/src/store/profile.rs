//! What a block of a profile holds besides.

use serde::{Deserialize, Serialize};
use tlsdyno_tls::Stage;

use super::samples::Samples;
use super::steps::StepsBlock;
use crate::native::ProfileCounts;

/// What a block of a profile holds besides: of cells whose calls are timed, or whose CPU is sampled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileBlock {
    /// What was counted in all slices of the block.
    pub counts: ProfileCounts,
    /// Nanoseconds of each slice by stage, in the order of [`Stage::PROVIDER`]: one for each slice of the block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages_ns: Vec<[u64; Stage::PROVIDER.len()]>,
    /// Samples of all slices of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Samples>,
    /// Steps of its handshakes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepsBlock>,
}
