//! The contract between the runner and the load process (`tlsdyno load --job FILE`).
//!
//! The job file is JSON. The load process then reads one command per line on standard input and answers each with one line on
//! standard output: `{"run": …}` with `{"outcome": …}` or `{"error": …}`. End of input ends the process. Before the first
//! command it writes `{"ready": {"users": …, "requests": …}}`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tlsdyno_tls::{Script, Scripts};

/// What the load process needs to know once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The workload; both processes make it from this description.
    pub workload: WorkloadSpec,
    /// The targets, one for each configuration.
    pub targets: Vec<TargetSpec>,
    /// How connections are used.
    pub connections: ConnectionsSpec,
}

/// A reproducible description of a workload (`dyno/trace` makes the workload from it).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkloadSpec {
    /// Synthetic, to the aggregates of Coarfa et al. 2006 section 2.2.1.
    Ecommerce {
        /// Number of users (sessions).
        users: u32,
        /// Seed of the random choices.
        seed: u64,
    },
    /// Synthetic, to the aggregates of the department trace, Coarfa et al. 2006 section 2.2.2.
    Department {
        /// 1.0 is the paper's size: 100,000 hits, about 11,000 sessions, corpus about 530 MB.
        scale: f64,
        /// Seed of the random choices.
        seed: u64,
    },
    /// An access log in common or combined format, plain or gzip.
    Trace {
        /// The log.
        path: PathBuf,
        /// Client addresses, prefixes (`10.0.0.0/8`) or user-agent substrings that are left out; `crawlers` is a preset.
        #[serde(default)]
        exclude: Vec<String>,
        /// How its lines are read as traffic.
        #[serde(default)]
        replay: ReplaySpec,
    },
    /// Synthetic: the files of SPECweb96, Apostolopoulos et al. 2000.
    Specweb96 {
        /// Number of users.
        users: u32,
        /// Seed of the random choices.
        seed: u64,
        /// Requests of each user. Of every hundred requests exactly as many go to each class of files as published; blocks can be cut between
        /// users.
        #[serde(default = "hundred", skip_serializing_if = "is_hundred")]
        requests_per_user: u32,
    },
    /// Synthetic: 25 objects in two pages, Mraz et al. 2002 section 4.5.
    Cdnow {
        /// Number of users, of 25 requests each.
        users: u32,
    },
    /// What a browser recorded (HTTP Archive).
    Har {
        /// The recording.
        path: PathBuf,
        /// How it is replayed.
        #[serde(flatten)]
        har: HarSpec,
    },
    /// One object over and over: `tlsdyno load URL`.
    Url {
        /// Path and query.
        path: String,
        /// Size of the object if the docroot is ours; `None` for anybody's server.
        bytes: Option<u64>,
        /// Users.
        users: u32,
        /// Requests each user makes before it starts anew.
        requests_per_user: u32,
    },
}

/// Requests of a SPECweb96 user unless a file says otherwise.
pub const fn hundred() -> u32 {
    100
}

fn is_hundred(requests: &u32) -> bool {
    *requests == hundred()
}

impl WorkloadSpec {
    /// How far requests may get ahead of each other in the order of the log, if the workload is one and that is bounded.
    pub fn window(&self) -> Option<u32> {
        match self {
            WorkloadSpec::Trace { replay, .. } => Some(replay.window).filter(|window| *window > 0),
            _ => None,
        }
    }
}

/// How a browser's recording is replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HarSpec {
    /// Users, each of which visits all its pages.
    pub users: u32,
    /// The site whose requests are replayed, `https://HOST[:PORT]`; `None`: that of the first request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// What is requested.
    pub names: NamesSpec,
}

impl Default for HarSpec {
    fn default() -> Self {
        Self { users: 1_000, origin: None, names: NamesSpec::default() }
    }
}

/// Under which names the objects of a log or recording are requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamesSpec {
    /// Those of files made for them, which `trace::write_docroot` writes.
    #[default]
    Files,
    /// Those recorded, from a server that has such objects; what it answers may differ in length.
    AsRecorded,
}

/// How the lines of an access log are read as traffic (docs/WORKLOADS.md gives the reasons for the defaults).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplaySpec {
    /// The order within one user's requests.
    pub order: OrderSpec,
    /// When a user's session is forgotten, so that its next handshake is full.
    pub sessions: SessionsSpec,
    /// A user's connection closes after this long without a request, seconds. 75 is nginx's default `keepalive_timeout`.
    pub keep_alive_s: u32,
    /// What is requested.
    #[serde(skip_serializing_if = "is_default")]
    pub names: NamesSpec,
    /// How far requests may get ahead of each other in the order of the log; 0: as far as their users come. 10,000 was enough for 60
    /// clients in Coarfa et al. 2006 section 2.2.2.
    pub window: u32,
    /// Only so many bytes of the file are read; `None`: all there are. A log that a server still writes to is the same for
    /// every process only up to here (`trace::make` fills it in).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_bytes: Option<u64>,
}

impl Default for ReplaySpec {
    fn default() -> Self {
        Self {
            order: OrderSpec::Total,
            sessions: SessionsSpec::LifetimeS(300),
            keep_alive_s: 75,
            names: NamesSpec::Files,
            window: 10_000,
            first_bytes: None,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The order within one user's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderSpec {
    /// One after the other, as in the log (Coarfa et al. 2006 section 2.2.2).
    Total,
    /// A document and the embedded objects that follow it within two seconds are one page: fetched together over several
    /// connections.
    Pages,
}

/// When a user of an access log forgets its TLS session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionsSpec {
    /// Never: only the first handshake of an address is full (Coarfa et al. 2006 section 2.2.2).
    PerAddress,
    /// After this long without a request, seconds. 300 is nginx's default `ssl_session_timeout` and mod_ssl's
    /// `SSLSessionCacheTimeout`.
    LifetimeS(u32),
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
    pub reuse: ReuseSpec,
    /// How it is loaded.
    #[serde(default)]
    pub load: TargetLoad,
}

/// Client-side TLS of one target. Names as people type them (`tlsdyno_tls` parses them).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSpec {
    /// `1.2`, `1.3`; empty: both.
    pub versions: Vec<String>,
    /// OpenSSL or IANA names; empty: the client's own list.
    pub suites: Vec<String>,
    /// `X25519`, `P-256`, `P-384`; empty: the client's own list.
    pub groups: Vec<String>,
    /// `honest`, `lean`, `floor`.
    pub effort: String,
    /// Stages replaced by no-ops.
    pub noop: Vec<String>,
    /// Offer encrypt-then-MAC.
    pub encrypt_then_mac: bool,
    /// Offer TLS 1.2 tickets.
    pub tickets: bool,
    /// Send the first request as early data where a session allows it (TLS 1.3).
    #[serde(default)]
    pub early_data: bool,
    /// The universal session of a perfect cache (`Session::to_bytes`, base64).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universal: Option<String>,
    /// Flights of full and resumed handshakes, for skeletons and fast resumption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scripts: Option<ScriptsSpec>,
    /// PEM file of trusted roots (honest); `None`: the system's.
    pub ca_file: Option<PathBuf>,
}

/// The scripts of one target; see `tlsdyno_tls::Scripts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptsSpec {
    /// Of a full handshake.
    pub full: ScriptSpec,
    /// Of a resumed one; `None`: sessions are not resumed.
    pub resumed: Option<ScriptSpec>,
}

/// The flights of one kind of handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptSpec {
    /// Bytes of each flight, the client's first, then alternating.
    pub flights: Vec<u32>,
    /// After so many flights the client may send data.
    pub ready_after: usize,
}

impl From<&Scripts> for ScriptsSpec {
    fn from(scripts: &Scripts) -> ScriptsSpec {
        let spec = |script: &Script| ScriptSpec { flights: script.flights.clone(), ready_after: script.ready_after };
        ScriptsSpec { full: spec(&scripts.full), resumed: scripts.resumed.as_ref().map(spec) }
    }
}

impl From<&ScriptsSpec> for Scripts {
    fn from(spec: &ScriptsSpec) -> Scripts {
        let script = |spec: &ScriptSpec| Script { flights: spec.flights.clone(), ready_after: spec.ready_after };
        Scripts { full: script(&spec.full), resumed: spec.resumed.as_ref().map(script) }
    }
}

/// When connections resume sessions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReuseSpec {
    /// As the workload and its users' sessions say.
    Always,
    /// Never: every handshake is full.
    Never,
    /// This share of connections, 0 to 1.
    Share(f64),
    /// This share of each client's connections, with sessions of its own (`tlsdyno_engine::load::Resumption::ShareOfEach`).
    ShareOfEach(f64),
}

/// How a target is loaded, where that is not as the job says for all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetLoad {
    /// Most connections open at once.
    pub connections: Option<u32>,
    /// Open loop: pages that are begun in a second, arrivals independent of each other. `None`: closed loop.
    pub rate_per_s: Option<f64>,
    /// Local addresses of the clients, in turn; empty: the system's choice.
    pub sources: Vec<IpAddr>,
}

/// How connections are used; see `tlsdyno_engine::load::Connections`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionsSpec {
    /// Most connections open at once.
    pub total: u32,
    /// Most connections of one user.
    pub per_user: u32,
    /// The first handshake of a page completes before the others open.
    pub first_alone: bool,
    /// Requests per connection; `None`: no limit.
    pub requests_each: Option<u32>,
    /// Time-out without progress, nanoseconds.
    pub timeout_ns: u64,
    /// Pause before each wait for events, nanoseconds.
    pub batch_ns: u64,
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
        /// Where the target listens by now, if it was started anew since the job was written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<SocketAddr>,
        /// The users over and over for so long, with these arrivals where the loop is open; `None`: once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timed: Option<Timed>,
    },
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
    },
    /// A block is done.
    Outcome(Box<OutcomeRecord>),
    /// A command could not be carried out.
    Error {
        /// What went wrong and what to do.
        message: String,
    },
}

/// [`tlsdyno_engine::load::Outcome`] in JSON: integers in base units, histograms in the V2 serialisation of HdrHistogram, base64.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    #[serde(default)]
    pub early_offered: u64,
    /// Connections on which the server took them.
    #[serde(default)]
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
    #[serde(default)]
    pub statuses: BTreeMap<u16, u64>,
    /// TLS fault text to count.
    pub tls_faults: BTreeMap<String, u64>,
    /// Negotiated parameters to count.
    pub negotiated: BTreeMap<String, u64>,
    /// The run ended early because nothing succeeded any more.
    #[serde(default)]
    pub gave_up: bool,
    /// Requests of an open loop that were due and that no client was free for.
    #[serde(default)]
    pub unserved: u64,
    /// The run was stopped before its end.
    pub stopped: bool,
}
