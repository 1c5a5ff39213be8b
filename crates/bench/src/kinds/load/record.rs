//! What the record of a load experiment holds beside its blocks.

use serde::{Deserialize, Serialize};
use tlsdyno_record::store::Reuse;
use tlsdyno_record::store::load_run::Summary;

use crate::kinds::load::file::LoadExperiment;

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
    /// The log that is laid over a curve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LoggedReuse>,
}

/// The reuse that an access log would give.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedReuse {
    /// Path of the log as given.
    pub path: String,
    /// Its requests.
    pub hits: u64,
    /// Percent reuse by hits, by session lifetime and limit.
    pub reuse: Reuse,
}
