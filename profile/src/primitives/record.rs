//! What the record of primitives holds beside its blocks. In a block `hits` are calls, `body_bytes` their bytes, and
//! `server_cpu_ns` the CPU time of the process that calls.

use serde::{Deserialize, Serialize};

use crate::primitives::file::{PrimitiveCell, PrimitivesExperiment};

/// The primitives of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrimitivesRecord {
    /// What was asked for.
    pub experiment: PrimitivesExperiment,
    /// The cells, in the order of the configurations.
    pub cells: Vec<PrimitiveCell>,
    /// The file that was measured.
    pub libcrypto: String,
    /// The version that it says it has.
    pub libcrypto_version: String,
}
