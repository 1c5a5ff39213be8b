//! Traffic that is not tlsdyno's: a staging server under its users' own load.

use serde::{Deserialize, Serialize};

/// The server is loaded by others while stages are computed twice (docs/DOUBLING.md, "Under your own traffic").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForeignTraffic {
    /// Most CPU time that doubling may add, per cent of what the server would use without.
    pub at_most_percent: f64,
    /// Doubling ends when the median time of tlsdyno's own probes exceeds that of before by more than this, per cent.
    pub latency_within_percent: f64,
    /// Other hosts may reach the server meanwhile.
    pub open_listen: bool,
}

impl Default for ForeignTraffic {
    fn default() -> ForeignTraffic {
        ForeignTraffic { at_most_percent: 10.0, latency_within_percent: 100.0, open_listen: false }
    }
}
