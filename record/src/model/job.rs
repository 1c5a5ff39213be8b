//! The contract between the runner and the load process (`tlsdyno load --job FILE`).
//!
//! The job file is JSON. The load process then reads one command per line on standard input and answers each with one
//! line on standard output: `{"run": …}` with `{"outcome": …}` or `{"error": …}`. End of input ends the process,
//! and where workers make the load, the block under way too. Before the first command it writes
//! `{"ready": {"users": …, "requests": …}}`. A block with a lead-in has a line more, once it is known when it begins:
//! `{"begun": {"at_ns": …}}`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tlsdyno_engine::load::{Connections, Life, Resumption, Slice, WindowUse};
use tlsdyno_tls::{Effort, Group, Scripts, StageSet, Suite, Version};

use super::workload::WorkloadSpec;
use super::{ClientModel, WorkersModel};
use tlsdyno_base::fault::{Fault, fault_of};

/// What the load process needs to know once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The workload; both processes make it from this description.
    pub workload: WorkloadSpec,
    /// Each request of the workload is a user by itself.
    #[serde(default)]
    pub requests_alone: bool,
    /// What clients bring that the targets ask for.
    #[serde(default)]
    pub client: ClientModel,
    /// The targets, one for each configuration.
    pub targets: Vec<TargetSpec>,
    /// How connections are used.
    pub connections: Connections,
    /// Who makes the load, if that is not the load process itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkersModel>,
}

/// One target.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// Name of the configuration, for messages.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Host header and server name.
    pub host: String,
    /// TLS; `None` is plain HTTP.
    pub tls: Option<TlsSpec>,
    /// When connections resume sessions.
    pub reuse: Resumption,
    /// How it is loaded.
    #[serde(default)]
    pub load: TargetLoad,
}

/// Client-side TLS of one target.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSpec {
    /// Versions offered; empty: both.
    pub versions: Vec<Version>,
    /// Suites offered; empty: the client's own list.
    pub suites: Vec<Suite>,
    /// Groups offered; empty: the client's own list, which has no hybrids.
    pub groups: Vec<Group>,
    /// How much the client does.
    pub effort: Effort,
    /// Stages replaced by no-ops.
    pub noop: StageSet,
    /// Offer encrypt-then-MAC.
    pub encrypt_then_mac: bool,
    /// Offer TLS 1.2 tickets.
    pub tickets: bool,
    /// Send the first request as early data where a session allows it (TLS 1.3).
    #[serde(default)]
    pub early_data: bool,
    /// Take RSA keys below 2048 bits from this target, which is on loopback.
    #[serde(default)]
    pub small_rsa_keys: bool,
    /// The universal session of a perfect cache (`Session::to_bytes`, base64).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universal: Option<String>,
    /// Flights of full and resumed handshakes, for skeletons and fast resumption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scripts: Option<Scripts>,
    /// PEM file of trusted roots (honest); `None`: the system's.
    pub ca_file: Option<PathBuf>,
}

/// How a target is loaded, where that is not as the job says for all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetLoad {
    /// Most connections open at once.
    pub connections: Option<u32>,
    /// Open loop: pages that are begun in a second, arrivals independent of each other. `None`: closed loop.
    pub rate_per_s: Option<f64>,
    /// Closed loop: mean of the exponential pauses between two connections of a client, milliseconds; `None`: it does
    /// not pause.
    pub pause_ms: Option<u64>,
    /// Time before each timed block in which clients connect and nothing counts, milliseconds; then what completes in
    /// the block's time counts, and nothing after it. 0: all counts.
    pub lead_in_ms: u64,
    /// Clients keep their sessions, and the counts by which they resume, from block to block.
    pub keeps_sessions: bool,
    /// Local addresses of the clients, in turn; empty: the system's choice.
    pub sources: Vec<IpAddr>,
    /// Servers that take the connections in turn, in place of the target's address; empty: that one.
    pub servers: Vec<SocketAddr>,
    /// Each client stays with one of these servers.
    pub server_of_client: bool,
    /// Requests for each full handshake, on kept connections; `None`: as `reuse` says.
    pub hits_per_handshake: Option<u32>,
}

/// A line to the load process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// One block: these users of the workload once, or over and over for some time, against this target.
    Run {
        /// Index into [`Job::targets`].
        target: usize,
        /// First user.
        users_from: u32,
        /// One past the last user.
        users_to: u32,
        /// Each of them so many times, unless `timed` says otherwise.
        #[serde(default = "once", skip_serializing_if = "is_once")]
        laps: u64,
        /// Where the target listens by now, if it was started anew since the job was written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<SocketAddr>,
        /// The users over and over for so long, with these arrivals where the loop is open; `None`: once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timed: Option<Timed>,
        /// The number of the store that this run takes its sessions from and leaves them in, of this target's; such a
        /// run is one of thousands, and its outcome is without histograms. `None`: a store of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        store: Option<u32>,
    },
}

fn once() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_once(laps: &u64) -> bool {
    *laps == once()
}

/// A block of a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    /// Its length, nanoseconds.
    pub for_ns: u64,
    /// Seed of the random distances of arrivals.
    pub seed: u64,
}

/// A line from the load process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The workload is made, commands may come.
    Ready {
        /// Users in the workload.
        users: u32,
        /// Requests in the workload.
        requests: u32,
        /// Addresses that connections come from, where others than this machine make them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sources: Vec<IpAddr>,
        /// How long a word to the furthest of these and its answer take, nanoseconds.
        #[serde(default, skip_serializing_if = "is_default")]
        trip_ns: u64,
        /// How many loops these have; each needs a user of its own. 0: this machine makes the load.
        #[serde(default, skip_serializing_if = "is_default")]
        loops: u32,
    },
    /// A block with a lead-in begins, or will in a moment.
    Begun {
        /// When, nanoseconds of this machine's monotonic clock. What counts begins a lead-in later.
        at_ns: u64,
    },
    /// A block is done.
    Outcome(Box<OutcomeRecord>),
    /// A command could not be carried out.
    Error {
        /// What went wrong and what to do.
        message: String,
        /// Whose fault it is, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<Fault>,
    },
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Reply {
    /// That this went wrong.
    pub fn of_error(error: &anyhow::Error) -> Reply {
        Reply::Error { message: format!("{error:#}"), fault: fault_of(error) }
    }
}

/// [`tlsdyno_engine::load::Outcome`] in JSON: integers in base units, histograms in the V2 serialisation of
/// HdrHistogram, base64.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OutcomeRecord {
    /// Completed requests whose whole response was as expected.
    pub hits: u64,
    /// Body bytes received.
    pub body_bytes: u64,
    /// Connections opened.
    pub connections: u64,
    /// Full handshakes.
    pub handshakes_full: u64,
    /// Connections the plan wanted to resume.
    pub resumed_intended: u64,
    /// Connections whose ClientHello carried a session.
    pub resumed_offered: u64,
    /// Connections on which the server took the session.
    pub resumed_accepted: u64,
    /// Connections whose ClientHello offered early data.
    pub early_offered: u64,
    /// Connections on which the server took them.
    pub early_accepted: u64,
    /// Duration, nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time of the client, nanoseconds.
    pub client_cpu_ns: u64,
    /// Phase name to histogram (nanoseconds), V2 serialisation in base64.
    pub phases: BTreeMap<String, String>,
    /// Error kind to count.
    pub errors: BTreeMap<String, u64>,
    /// Status code to count of complete responses.
    pub statuses: BTreeMap<u16, u64>,
    /// TLS fault text to count.
    pub tls_faults: BTreeMap<String, u64>,
    /// Negotiated parameters to count.
    pub negotiated: BTreeMap<String, u64>,
    /// The run ended early because nothing succeeded any more.
    pub gave_up: bool,
    /// Requests of an open loop that were due and that no client was free for.
    pub unserved: u64,
    /// The run was stopped before its end.
    pub stopped: bool,
    /// Which of a worker's loops this was, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// When it began, nanoseconds of the monotonic clock of its machine.
    pub began_ns: u64,
    /// Handshakes with a HelloRetryRequest.
    pub retried_count: u64,
    /// Redirects followed.
    pub redirects_followed: u64,
    /// Redirects that came when the run ended.
    pub redirects_unfinished: u64,
    /// How the window of a trace was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowUse>,
    /// The run in slices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
    /// The latencies of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slice_latencies: Vec<String>,
    /// The connections of the first clients.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<Life>,
    /// How busy each of the loops was that made it, CPU time by time, where they were others' loops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub busy_fraction: Vec<f64>,
    /// Workers that were lost in it, and what became of the load: it is less than what was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<String>,
    /// If there are any: the addresses that connections of the others come from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<IpAddr>,
}
