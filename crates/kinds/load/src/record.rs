//! What the record of a load experiment holds beside its blocks.

use serde::{Deserialize, Serialize};
use tlsdyno_record::store::Reuse;
use tlsdyno_record::store::load_run::Summary;

use crate::file::LoadExperiment;

/// The load experiment of a record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadRecord {
    pub experiment: LoadExperiment,
    /// Outcome of each configuration that was measured in one run, as `tlsdyno load --json` prints it, in the order of
    /// the configurations. Empty where rounds were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Summary>,
    /// Number of connections that saturates each configuration of a curve, in the order of the configurations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<u32>,
    /// An access log that is compared with a curve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LoggedReuse>,
}

/// The reuse that an access log would give.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedReuse {
    pub path: String,
    pub hits: u64,
    /// Percent reuse by hits, by session lifetime and limit.
    pub reuse: Reuse,
}
