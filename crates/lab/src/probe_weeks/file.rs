//! A simulation of `tlsdyno probe`, as data: real servers whose rounds are measured on this machine, behind networks
//! that are played, for weeks of virtual time.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::{Measure, Server, Tls};

use super::network::Network;

/// What a file with a table `probe` says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeExperiment {
    /// What is asked, in one sentence ending in a question mark.
    pub question: String,
    pub probe: Robot,
    /// How long real rounds are measured at all servers together, and the seed of what is drawn.
    #[serde(default)]
    pub measure: Measure,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Robot {
    /// The time between two rounds at a site.
    pub every: Option<Time>,
    /// How many days of virtual time.
    pub days: u32,
    /// Where the rounds are kept, for `tlsdyno probe report` and `serve`: a new SQLite file. Without it nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<PathBuf>,
    /// How long single rounds are kept; `None`: 7 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_rounds: Option<Time>,
    pub site: Vec<SimulatedSite>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedSite {
    pub name: String,
    /// The server whose rounds are measured.
    #[serde(default)]
    pub server: Server,
    #[serde(default)]
    pub tls: Tls,
    #[serde(default)]
    pub network: Network,
    /// What a full handshake took longer on the machines of that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_handshake_more: Option<Time>,
    /// What the answer took longer: the server's work, or more objects than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_more: Option<Time>,
}
