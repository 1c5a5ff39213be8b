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
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/7");

/// A silence of this length ends what both have with each other, in nanoseconds.
pub const SILENCE_NS_MAX: u64 = 5_000_000_000;

/// How often the coordinator says a word, and a worker has to answer, in nanoseconds.
pub const WORD_EVERY_NS: u64 = 1_000_000_000;

/// A line to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToWorker {
    /// It takes part.
    Welcome {
        /// Its number, from 1.
        number: u32,
    },
    /// It does not.
    Refused {
        /// Why, and what to do.
        reason: String,
        /// It may be otherwise soon.
        #[serde(default)]
        may_ask_again: bool,
    },
    /// To be answered at once: a sign of life, and how far the clocks are apart.
    Ping {
        /// Comes back with the answer.
        number: u64,
    },
    /// A part of the data that it wants.
    Data {
        /// Of what, as it was called.
        hash: String,
        /// The next bytes, base64.
        bytes: String,
        /// There are no more.
        is_last: bool,
    },
    /// What it is to do.
    Load(Box<LoadPlan>),
    /// All are ready.
    Begin {
        /// The moment, in nanoseconds of its own monotonic clock.
        at_ns: u64,
    },
    /// From which address does it connect there?
    Route {
        /// A server that it will load.
        to: SocketAddr,
    },
    /// How is it going?
    Ask,
    /// What it sees of the CPU time of the processes that it was started for.
    Look(Look),
    /// End the run; what was measured counts.
    Stop,
    /// There is nothing more to do.
    Bye,
}

/// A line from a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromWorker {
    /// The first line.
    Hello {
        /// [`VERSION`].
        version: String,
        /// The secret of the run.
        secret: String,
        /// Its machine and process, for people.
        name: String,
        /// How many loops it has.
        loops: u32,
    },
    /// The answer to a ping.
    Pong {
        /// That of the ping.
        number: u64,
        /// Its monotonic clock, nanoseconds.
        at_ns: u64,
    },
    /// The answer to a route.
    ConnectsFrom {
        /// Its own address.
        ip: IpAddr,
    },
    /// A sign of life: a long line is on its way to it.
    Here,
    /// The data that it lacks for what it is to do.
    Wants {
        /// As the load calls them.
        hashes: Vec<String>,
    },
    /// How it is going.
    Progress {
        /// The sum of its loops.
        snapshot: Box<Snapshot>,
        /// The latencies since the last time.
        latencies: Box<RecordedLatencies>,
    },
    /// What it sees of these processes, or why it sees nothing.
    Seen(Result<Seen, String>),
    /// What came of it.
    Reply(Reply),
}

/// A question about the processes of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Look {
    /// Their CPU time so far.
    Clock,
    /// The same once they rest; no time: processes were replaced meanwhile, as by a reload, and were looked for again.
    AtRest,
    /// Do they come to rest soon after work?
    Rests,
    /// Are they others than before? From here on those are read.
    Changed,
    /// Have they a control group of their own? From here on its account is read.
    OwnGroup,
    /// The command line of the first, and whether they are read by their control group.
    About,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// To [`Look::Clock`] and [`Look::AtRest`]: CPU time, nanoseconds.
    CpuNs(Option<u64>),
    /// To [`Look::Rests`], [`Look::Changed`] and [`Look::OwnGroup`]: whether it is so.
    IsSo(bool),
    /// To [`Look::About`].
    About {
        /// The command line of the first process.
        command: String,
        /// They are read by their control group.
        by_group: bool,
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
    /// All loops of the load.
    pub loops: u32,
    /// The sessions that its loops have of earlier loads. `None`: they bring none.
    pub held: Option<Held>,
    /// Somebody watches.
    pub watched: bool,
    /// And wants latencies.
    pub latencies: bool,
}
