//! The contract between the runner and the load process (`tlsdyno load --job FILE`).
//!
//! The job file is JSON. The load process writes `{"ready": {…}}`, then reads one command ([`Run`]) per line on
//! standard input and answers each with one line on standard output: `{"outcome": …}` or `{"error": …}`. End of input
//! ends the process, and where workers make the load, the block under way too. A block with a lead-in has a line more,
//! once it is known when it begins: `{"begun": {"at_ns": …}}`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use tlsdyno_base::fault::{Fault, fault_of};
use tlsdyno_engine::load::{Outcome, Until};

use super::packed::PackedPlan;
use super::{ClientModel, Network, WorkersModel};

/// What the load process needs to know once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The plans, one for each configuration. Which users take part, until when and where the server listens is said by
    /// each command.
    pub plans: Vec<PackedPlan>,
    /// The data that the plans name by hash, base64.
    pub data: BTreeMap<String, String>,
    /// What clients bring that the servers ask for.
    #[serde(default)]
    pub client: ClientModel,
    /// Who makes the load, if that is not the load process itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkersModel>,
    /// What is between the load process and the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
}

/// A line to the load process: one block.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Index into [`Job::plans`].
    pub plan_number: usize,
    /// Where the target listens by now.
    pub address: SocketAddr,
    /// Which users of the workload take part.
    pub users: Range<u32>,
    /// When it ends; a time is without the lead-in.
    pub until: Until,
    /// Seed of what is random in it: arrivals and pauses.
    pub seed: u64,
    /// The sessions that it has of earlier runs. `None`: it begins without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
}

/// Sessions that are held from run to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// The number of the store that a run takes its sessions from and leaves them in.
    pub number: u64,
    /// Stores that nobody needs any more.
    pub dropped_numbers: Vec<u64>,
    /// The run is one of thousands, as short as a slice: it begins soon, and its outcome is without histograms.
    pub is_slice: bool,
}

/// A block of a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Length of the block, nanoseconds.
    pub for_ns: u64,
    /// Seed of the random distances of arrivals.
    pub seed: u64,
}

/// A line from the load process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Commands may come; of a worker: its part of the load can begin.
    Ready(Makers),
    /// A block with a lead-in begins, or will in a moment.
    Begun {
        /// When, nanoseconds of this machine's monotonic clock. What counts begins a lead-in later.
        at_ns: u64,
    },
    /// A block is done.
    Outcome {
        /// Which of a worker's loops did it, for people; empty: all that there are.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        name: String,
        /// What came of the block.
        outcome: Box<Outcome>,
        /// If workers were lost: the addresses that connections of the others come from.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sources: Vec<IpAddr>,
    },
    /// A command could not be carried out.
    Error {
        /// What went wrong and what to do.
        message: String,
        /// Whose fault it is, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },
}

/// Who makes the load, where workers do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Makers {
    /// Addresses that connections come from, where others than this machine make them.
    pub sources: Vec<IpAddr>,
    /// How long a word to the furthest of them and its answer take, nanoseconds.
    pub trip_ns: u64,
    /// How many loops they have; each needs a user of its own. 0: this machine makes the load.
    pub loops: u32,
}

impl Reply {
    /// The reply that this went wrong.
    pub fn of_error(error: &anyhow::Error) -> Reply {
        Reply::Error { message: format!("{error:#}"), fault: fault_of(error) }
    }
}
