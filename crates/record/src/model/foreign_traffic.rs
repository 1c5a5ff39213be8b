//! Traffic that is not tlsdyno's: a staging server under its users' own load.

use serde::{Deserialize, Serialize};
use tlsdyno_base::choice::{percent, positive_percent};

/// The server is loaded by others while stages are computed twice (docs/DOUBLING.md, "Under your own traffic").
#[derive(clap::Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForeignTraffic {
    // Per cent of what the server would use without.
    /// Most CPU time that doubling may add
    #[arg(long = "at-most", id = "at_most", value_name = "P%", default_value = "10%")]
    #[arg(value_parser = percent, requires = "foreign_traffic")]
    pub at_most_percent: f64,
    // By their median time.
    /// Doubling ends when requests of tlsdyno's own take longer than before by more than this, or fail
    #[arg(long = "latency-within", id = "latency_within", value_name = "P%", default_value = "100%")]
    #[arg(value_parser = positive_percent, requires = "foreign_traffic")]
    pub latency_within_percent: f64,
    /// Let other hosts reach the server while stages are computed twice: TLS is as secure as ever, and takes more CPU
    /// time
    #[arg(long, requires = "foreign_traffic")]
    pub open_listen: bool,
}

impl Default for ForeignTraffic {
    fn default() -> ForeignTraffic {
        ForeignTraffic { at_most_percent: 10.0, latency_within_percent: 100.0, open_listen: false }
    }
}
