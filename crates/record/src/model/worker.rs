//! The contract between the coordinator of a load on several machines and its workers (`tlsdyno worker`).
//!
//! Workers dial. Over TLS each side writes JSON objects, one a line. A worker begins with `hello`; the coordinator
//! answers `welcome` or `refused`. For each run it says `load`, then the data that the worker `wants`; the worker
//! answers with the [`Reply`] that `tlsdyno load --job` gives too: `ready`, and after `begin` an `outcome` for each of
//! its loops, or an `error`. A worker beside a server is asked to `look` at its processes, and tells what it has
//! `seen`. In between both may say a word at any time, and each must now and then.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tlsdyno_engine::load::{RecordedLatencies, Snapshot};

use super::job::{Held, Reply};
use super::packed::PackedPlan;

/// What both must have the same of: version of the tool, and of this contract.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/8");

/// A silence of this length ends what both have with each other, in nanoseconds.
pub const SILENCE_NS_MAX: u64 = 5_000_000_000;

/// How often the coordinator says a word, and a worker has to answer, in nanoseconds.
pub const WORD_EVERY_NS: u64 = 1_000_000_000;

/// A line to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToWorker {
    /// The worker takes part.
    Welcome {
        /// Number of the worker, from 1.
        number: u32,
    },
    /// The worker does not take part.
    Refused {
        /// Why the worker is refused, and what to do.
        reason: String,
        /// The worker may be taken soon, and may ask again.
        #[serde(default)]
        may_ask_again: bool,
    },
    /// A question to be answered at once: a sign of life, and how far the clocks are apart.
    Ping {
        /// Number that comes back with the answer.
        number: u64,
    },
    /// A part of the data that the worker wants.
    Data {
        /// Hash by which the worker asked for the data.
        hash: String,
        /// The next bytes of the data, base64.
        bytes: String,
        /// These are the last bytes of the data.
        is_last: bool,
    },
    /// The part of a load that the worker is to make.
    Load(Box<LoadPlan>),
    /// All workers are ready: the load begins.
    Begin {
        /// The moment at which the load begins, nanoseconds of the worker's own monotonic clock.
        at_ns: u64,
    },
    /// Asks from which address the worker connects to a server.
    Route {
        /// A server that it will load.
        to: SocketAddr,
    },
    /// Asks how the load is going.
    Ask,
    /// Asks what the worker sees of the CPU time of the processes that it was started for.
    Look(Look),
    /// End the run; what was measured counts.
    Stop,
    /// There is nothing more to do: the worker ends.
    Bye,
}

/// A line from a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromWorker {
    /// The first line of a worker.
    Hello {
        /// [`VERSION`] of the worker.
        version: String,
        /// The secret of the run.
        secret: String,
        /// The worker's machine and process, for people.
        name: String,
        /// How many loops the worker has.
        loops: u32,
    },
    /// The answer to [`ToWorker::Ping`].
    Pong {
        /// Number of the ping that is answered.
        number: u64,
        /// The worker's monotonic clock, nanoseconds.
        at_ns: u64,
    },
    /// The answer to [`ToWorker::Route`].
    ConnectsFrom {
        /// Address from which the worker connects to that server.
        ip: IpAddr,
    },
    /// A sign of life while a long line is on its way to the worker.
    Here,
    /// The data that the worker lacks for its part of the load.
    Wants {
        /// Hashes of the data, as the load calls them.
        hashes: Vec<String>,
    },
    /// How the load is going: the answer to [`ToWorker::Ask`].
    Progress {
        /// The sum over the worker's loops.
        snapshot: Box<Snapshot>,
        /// The latencies since the last such line.
        latencies: Box<RecordedLatencies>,
    },
    /// What the worker sees of the processes, or why it sees nothing: the answer to [`ToWorker::Look`].
    Seen(Result<Seen, String>),
    /// What came of the load, as the load process tells it.
    Reply(Reply),
}

/// A question about the processes of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Look {
    /// CPU time of the processes so far.
    Clock,
    /// CPU time of the processes once they rest; no time: they were replaced meanwhile, as by a reload, and were looked
    /// for again.
    AtRest,
    /// Whether the processes come to rest soon after work.
    Rests,
    /// Whether the processes are others than before. From here on those are read.
    Changed,
    /// Processes begin and end with connections. From here on the account of their control group is read, or what
    /// their parents waited for; whether that can be.
    ForEach,
    /// The command line of the first process, and how the CPU time is read.
    About,
}

/// The answer to a [`Look`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// To [`Look::Clock`] and [`Look::AtRest`]: CPU time, nanoseconds.
    CpuNs(Option<u64>),
    /// To [`Look::Rests`], [`Look::Changed`] and [`Look::ForEach`]: whether it is so.
    IsSo(bool),
    /// The answer to [`Look::About`].
    About {
        /// The command line of the first process.
        command: String,
        /// How their CPU time is read: `processes`, `cgroup` or `waited`.
        accounting: String,
    },
}

/// What a worker is to do: its part of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPlan {
    /// The plan of all loops together.
    pub packed: PackedPlan,
    /// Loops of the load that come before this worker's.
    pub before_count: u32,
    /// Number of all loops of the load.
    pub loops: u32,
    /// The sessions that its loops have of earlier loads. `None`: they bring none.
    pub held: Option<Held>,
    /// Somebody watches how the run is going.
    pub watched: bool,
    /// Who watches wants latencies, too.
    pub latencies: bool,
}
