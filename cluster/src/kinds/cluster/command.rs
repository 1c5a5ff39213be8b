//! `tlsdyno cluster`: several servers behind dispatchers, under traffic that offers its sessions again. Flags build the
//! same experiment that TOML files hold.

use std::path::PathBuf;

use anyhow::Result;
use tlsdyno_tls::Effort;

use crate::choice::{choice, flags_of};
use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::kinds::cluster::Clusters;
use crate::kinds::cluster::file::{Cluster, ClusterExperiment, Sharing, Traffic};
use crate::kinds::flags::{FarArgs, RepeatArgs, ServerTlsArgs, TimeArgs, percent};
use crate::kinds::perform::OutputArgs;
use crate::kinds::{AnyExperiment, find};
use crate::model::workload::WorkloadSpec;
use crate::model::{Policy, ServerName, Tls};
use crate::time::Time;
use crate::trace::flags::WorkloadChoice;

/// Requests of a user of the single object; it only matters that blocks can be cut anywhere.
const REQUESTS_PER_USER: u32 = 4;
/// Users of the single object: more than any experiment uses up.
const USERS: u32 = 200_000;

/// What each way of dispatching makes of a cluster: throughput, latency, sessions kept, balance, CPU
///
/// Starts several servers with caches of their own and a dispatcher of each policy before them, sweeps the share of
/// connections that offer a session again, and compares the policies with the first one in paired rounds
/// (Apostolopoulos et al. 2000, Figure 9). Where servers share CPUs each has a quota of CPU time, so that the cluster
/// has a defined capacity.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  tlsdyno cluster --server nginx --backends 3 --policies round-robin,session --reuse 0,50,80,100
  tlsdyno cluster --policies round-robin,source-address,session --behind-one-address 0,100 --reuse 80
  tlsdyno cluster --server apache --tls 1.2 --no-tickets --sessions own,memcached --policies haproxy-stick,session
  tlsdyno cluster --plain --workload specweb96 --policies round-robin,least-connections,lard
  tlsdyno cluster --config apostolopoulos-2000-fig9")]
pub struct Args {
    /// Take everything from this TOML file, or from an experiment that comes with tlsdyno (`tlsdyno run` does the
    /// same)
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = flags_of::<Flags>())]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten, next_help_heading = "Several machines")]
    far: FarArgs,
}

/// What a file says instead.
#[derive(clap::Args, Clone, Debug)]
struct Flags {
    /// The servers behind the dispatchers
    #[arg(long, default_value_t = ServerName::Nginx)]
    #[arg(value_parser = choice(ServerName::configured()), help_heading = "Cluster")]
    server: ServerName,
    /// How many of them
    #[arg(long, value_name = "N", default_value_t = Cluster::default().backends, help_heading = "Cluster")]
    backends: u32,
    /// CPU time that each backend may use, in CPUs; 0: no limit [default: all fit on the CPUs that they share]
    #[arg(long, value_name = "CPUS", value_parser = cpus_of_one, help_heading = "Cluster")]
    backend_cpus: Option<f64>,
    /// Plain HTTP instead of TLS: locality of the files that each backend is asked for, instead of sessions
    #[arg(long, conflicts_with_all = ["tls", "suite", "cert", "no_tickets", "session_cache"], help_heading = "Cluster")]
    plain: bool,
    /// Plain HTTP beside TLS, as its limit
    #[arg(long, conflicts_with = "plain", help_heading = "Cluster")]
    plain_limit: bool,
    /// Worker processes of each server (HAProxy: threads) [default: 1; of Apache prefork as many as clients need]
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    processes: Option<u32>,
    /// Size of the cache for which misses are computed from each plain backend's access log [default: all of them
    /// together hold every object once]
    #[arg(long, value_name = "BYTES", help_heading = "Cluster")]
    cache_bytes: Option<u64>,
    /// What the servers share of their sessions; several are compared
    #[arg(
        long,
        value_parser = choice(Sharing::ALL),
        value_name = "WHAT",
        value_delimiter = ',',
        default_value = "own",
        help_heading = "Cluster"
    )]
    sessions: Vec<Sharing>,
    /// How connections are dispatched, the one that the others are compared with first
    #[arg(
        long,
        value_parser = choice(Policy::all()),
        value_name = "POLICIES",
        value_delimiter = ',',
        default_value_if("plain", "true", "round-robin,lard"),
        default_value = "round-robin,session",
        help_heading = "Cluster"
    )]
    policies: Vec<Policy>,

    /// How long our dispatcher remembers which backend holds a session, whole seconds; several are compared. Goes with
    /// --session-timeout and --pause
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', help_heading = "Cluster")]
    dispatcher_timeouts: Vec<u32>,
    /// How long servers keep a session, whole seconds [default: an hour]
    #[arg(long, value_name = "SECONDS", help_heading = "TLS")]
    session_timeout: Option<u32>,
    /// Mean of exponential pauses between two connections of a client
    #[arg(long, value_name = "TIME", conflicts_with = "rates", help_heading = "Traffic")]
    pause: Option<Time>,
    /// Percentages of each client's connections that offer one of its sessions again
    #[arg(
        long,
        value_name = "PERCENT",
        value_delimiter = ',',
        value_parser = percent,
        default_value_if("plain", "true", "0"),
        default_value = "0,50,80,100",
        help_heading = "Traffic"
    )]
    reuse: Vec<f64>,
    /// Clients at once, each with one connection after the other; several numbers give latency against throughput
    #[arg(short, long, value_name = "N", value_delimiter = ',', default_value = "24", help_heading = "Traffic")]
    clients: Vec<u32>,
    /// Open loop: connections a second, arrivals independent of each other; several give latency against load
    #[arg(long, value_name = "RATES", value_delimiter = ',', help_heading = "Traffic")]
    rates: Vec<f64>,
    /// With --rates, at each reuse: also a closed loop of all clients and one client at the smallest rate, with which
    /// saturation and light load must agree
    #[arg(long, requires = "rates", help_heading = "Traffic")]
    checks: bool,
    /// Percentages of the clients that share one address, as behind a proxy; the others have each their own
    #[arg(
        long,
        value_name = "PERCENT",
        value_delimiter = ',',
        value_parser = percent,
        default_value = "0",
        help_heading = "Traffic"
    )]
    behind_one_address: Vec<f64>,
    /// Requests on each connection
    #[arg(
        long,
        value_name = "N",
        default_value_t = Traffic::default().requests_per_connection,
        help_heading = "Traffic"
    )]
    requests_per_connection: u32,
    /// Size of the one object that is requested
    #[arg(long, value_name = "BYTES", default_value_t = 7168, conflicts_with = "workload", help_heading = "Traffic")]
    size: u64,
    /// Many objects instead of one; which sessions are offered again --reuse alone decides
    #[arg(long, value_enum, help_heading = "Traffic")]
    workload: Option<WorkloadChoice>,
    /// How much the client does
    #[arg(long, value_name = "EFFORT", default_value_t = Effort::Lean)]
    #[arg(value_parser = choice(Effort::ALL), help_heading = "Traffic")]
    effort: Effort,

    #[command(flatten)]
    tls: ServerTlsArgs,

    #[command(flatten)]
    time: TimeArgs<60, 20>,
    #[command(flatten)]
    repeat: RepeatArgs,
}

/// Runs the experiment of the flags or of the file.
pub fn run(args: &Args) -> Result<Exit> {
    let mut experiment = match &args.config {
        None => args.flags.experiment(),
        Some(which) => find::<ClusterExperiment>(&Clusters, which, "a cluster").or_fault(Fault::Input)?,
    };
    args.far.give(&mut experiment.workers, &mut experiment.cluster.address);
    experiment.perform(&args.output)
}

/// The value of --backend-cpus: one number, for all backends are alike.
fn cpus_of_one(text: &str) -> Result<f64, String> {
    let cpus = text.parse::<f64>().ok().filter(|cpus| cpus.is_finite() && *cpus >= 0.0);
    cpus.ok_or_else(|| {
        "no number of CPUs that each backend may use; write for example 0.5, or 0 for no limit".to_owned()
    })
}

impl Flags {
    /// The experiment that these flags describe.
    fn experiment(&self) -> ClusterExperiment {
        let names: Vec<&str> = self.policies.iter().map(|policy| policy.name()).collect();
        let question = match &names[..] {
            [one] => format!("What does {one} make of a cluster of {} servers?", self.backends),
            [first, others @ ..] => format!(
                "What does {} make of a cluster of {} servers, beside {first}?",
                others.join(" or "),
                self.backends
            ),
            [] => ClusterExperiment::default().question,
        };
        ClusterExperiment {
            question,
            cluster: Cluster {
                server: self.server,
                backends: self.backends,
                backend_cpus: self.backend_cpus,
                plain: self.plain,
                plain_limit: self.plain_limit,
                processes: self.processes,
                cache_bytes: self.cache_bytes,
                sessions: self.sessions.clone(),
                policies: self.policies.clone(),
                dispatcher_timeouts_s: self.dispatcher_timeouts.clone(),
                address: None,
            },
            tls: Tls { session_timeout_s: self.session_timeout, ..self.tls.tls() },
            workload: self.workload_spec(),
            traffic: Traffic {
                reuse_percent: self.reuse.clone(),
                clients: self.clients.clone(),
                rates_per_s: self.rates.clone(),
                checks: self.checks,
                behind_one_address_percent: self.behind_one_address.clone(),
                pause_ms: self.pause.map(|mean| mean.0.as_millis() as u64),
                requests_per_connection: self.requests_per_connection,
                effort: self.effort,
                ..Traffic::default()
            },
            measure: self.repeat.measure(self.time.seconds()),
            workers: None,
            paper: None,
        }
    }

    fn workload_spec(&self) -> WorkloadSpec {
        let object = || WorkloadSpec::Url {
            path: "/object".to_owned(),
            bytes: Some(self.size),
            users: USERS,
            requests_per_user: REQUESTS_PER_USER,
        };
        match self.workload {
            None => object(),
            // Short users, so that blocks can be cut where the time allows.
            Some(WorkloadChoice::Specweb96) => ClusterExperiment::default().workload,
            Some(workload) => workload.spec(None, 0.1, 1),
        }
    }
}
