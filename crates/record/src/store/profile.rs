//! What a block of a profile holds besides.

use serde::{Deserialize, Serialize};
use tlsdyno_native::ProfileCounts;

use super::samples::Samples;
use super::steps::StepsBlock;

/// What a block of a profile holds besides: of cells whose calls are timed, or whose CPU is sampled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileBlock {
    /// What was counted in all slices of the block.
    pub counts: ProfileCounts,
    /// Nanoseconds of each slice by stage, in the order of [`Stage::PROVIDER`](tlsdyno_tls::Stage::PROVIDER): one for
    /// each slice of the block. Older records have fewer stages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages_ns: Vec<Vec<u64>>,
    /// Samples of all slices of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Samples>,
    /// Steps of its handshakes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepsBlock>,
}
