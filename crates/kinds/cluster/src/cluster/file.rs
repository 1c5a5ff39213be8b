//! The cluster experiment as data: what TOML files hold and what the flags of `tlsdyno cluster` build.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use clap::builder::ArgPredicate;
use serde::{Deserialize, Serialize};
use tlsdyno_base::choice::{choice, percent};
use tlsdyno_engine::dispatch;
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_record::model::{
    ComparisonModel, ConfigurationModel, Experiment, Measure, Network, Paper, Policy, Server, ServerName, SessionCache,
    TicketKeys, Tls, WorkersModel,
};
use tlsdyno_runner::kinds::flags::rate;
use tlsdyno_servers::Proxy;
use tlsdyno_tls::{Effort, named};

use crate::cluster::cell::{Cell, Role};
use crate::cluster::front::Way;

/// A block of an open loop is not shorter than this: arrivals scatter.
pub const OPEN_BLOCK_MIN: Duration = Duration::from_millis(800);
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterExperiment {
    /// What the experiment is to answer, one sentence.
    pub question: String,
    pub cluster: Cluster,
    /// TLS as the servers are configured and as the clients offer it.
    #[serde(default)]
    pub tls: Tls,
    #[serde(default = "default_workload")]
    pub workload: WorkloadSpec,
    #[serde(default)]
    pub traffic: Traffic,
    #[serde(default)]
    pub measure: Measure,
    /// Who makes the load, if that is not this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkersModel>,
    /// What is between the load and whatever clients connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// How many times the hits per second of one cell (`session, 80 % reuse`) another has by a paper.
    #[serde(default, rename = "comparison", skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<ComparisonModel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Paper>,
}

/// Servers and dispatchers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Cluster")]
pub struct Cluster {
    /// The servers behind the dispatchers
    #[arg(long, default_value_t = ServerName::Nginx, value_parser = choice(ServerName::configured()))]
    pub server: ServerName,
    /// How many of them
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub backends: u32,
    /// Front ends that end TLS before backends without it; several numbers are compared. 0: the backends end it
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with = "plain")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub front_ends: Vec<u32>,
    /// What the front ends are
    #[arg(long, default_value_t, value_parser = choice(Proxy::FRONT_ENDS), requires = "front_ends")]
    #[serde(skip_serializing_if = "is_usual_front_end")]
    pub front_end: Proxy,
    /// How connections are spread over the front ends; several are compared
    #[arg(long, value_parser = choice(Policy::all()), value_name = "POLICIES", value_delimiter = ',')]
    #[arg(default_value = "round-robin", requires = "front_ends")]
    #[serde(skip_serializing_if = "is_usual_spread")]
    pub spread: Vec<Policy>,
    /// CPU time that each backend, and each front end, may use, in CPUs; 0: no limit [default: all fit on the CPUs
    /// that they share]
    #[arg(long, value_name = "CPUS", value_parser = cpus_of_one)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_cpus: Option<f64>,
    /// Plain HTTP instead of TLS: locality of the files that each backend is asked for, instead of sessions
    #[arg(long, conflicts_with_all = ["tls", "suite", "cert", "no_tickets", "session_cache"])]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
    /// Plain HTTP beside TLS, as its limit, by the first policy that needs no sessions, and by lard
    #[arg(long, conflicts_with = "plain")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain_limit: bool,
    /// Each page is a row of PostgreSQL, which a backend asks for with one SELECT for each request (--server builtin)
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub database: bool,
    /// Worker processes of each server (HAProxy: threads) [default: 1; of Apache prefork as many as clients need]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Size of the cache for which misses are computed from each plain backend's access log [default: all of them
    /// together hold every object once]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// What the servers share of their sessions; several are compared
    #[arg(long, value_parser = choice(Sharing::ALL), value_name = "WHAT", value_delimiter = ',', default_value = "own")]
    pub sessions: Vec<Sharing>,
    /// How connections are dispatched, the one that the others are compared with first
    #[arg(long, value_parser = choice(Policy::all()), value_name = "POLICIES", value_delimiter = ',')]
    #[arg(default_value_ifs([
        ("plain", ArgPredicate::from("true"), "round-robin,lard"),
        ("front_ends", ArgPredicate::IsPresent, "round-robin,uri-hash,lard"),
    ]))]
    #[arg(default_value = "round-robin,session")]
    pub policies: Vec<Policy>,
    /// How long our dispatcher remembers which backend holds a session, whole seconds; several are compared. Goes with
    /// --session-timeout and --pause
    #[arg(long = "dispatcher-timeouts", value_name = "SECONDS", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dispatcher_timeouts_s: Vec<u32>,
    /// The address of this machine that whatever clients connect to listens on, for workers elsewhere: dispatchers,
    /// and with policy `direct` the server. `None`: loopback, as the other servers.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

fn is_usual_front_end(front_end: &Proxy) -> bool {
    *front_end == Proxy::default()
}

/// How connections are spread over front ends where nothing is said of it.
pub const USUAL_SPREAD: Policy = Policy::Own(dispatch::Policy::RoundRobin);

fn is_usual_spread(spread: &[Policy]) -> bool {
    spread == [USUAL_SPREAD]
}

/// The value of --backend-cpus: one number, for all backends are alike.
fn cpus_of_one(text: &str) -> Result<f64, String> {
    let cpus = text.parse::<f64>().ok().filter(|cpus| (0.0..=1024.0).contains(cpus));
    cpus.ok_or_else(|| {
        "no number of CPUs that each backend may use; write for example 0.5, or 0 for no limit".to_owned()
    })
}

impl Cluster {
    pub fn ip(&self) -> IpAddr {
        self.address.unwrap_or(LOOPBACK)
    }

    pub fn has_dispatcher(&self) -> bool {
        self.policies.iter().any(|policy| *policy != Policy::Direct)
    }

    /// Whether each client can have an address of its own: those of loopback are free for that, in IPv4. Elsewhere
    /// clients have the address of the machine that they are on.
    pub fn has_addresses(&self) -> bool {
        matches!(self.ip(), IpAddr::V4(ip) if ip.is_loopback())
    }

    /// The one that servers listen on: that of the dispatchers where clients connect to the server itself.
    pub fn backend_ip(&self) -> IpAddr {
        if self.policies.contains(&Policy::Direct) { self.ip() } else { LOOPBACK }
    }
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

named! {
    /// What the servers of a cluster share of their sessions.
    #[derive(Default)]
    pub enum Sharing: "sharing of sessions" {
        /// nothing: each server has caches and ticket keys of its own
        #[default]
        Own = "own",
        /// the keys of session tickets
        TicketKeys = "ticket-keys",
        /// a memcached server that keeps the sessions (apache), and no tickets
        Memcached = "memcached",
        /// a redis server that keeps the sessions (apache), and no tickets
        Redis = "redis",
    }
}

impl Sharing {
    /// The cache that one server keeps for all of them, where they share one.
    pub const fn session_server(self) -> Option<SessionCache> {
        match self {
            Sharing::Own | Sharing::TicketKeys => None,
            Sharing::Memcached => Some(SessionCache::Memcached),
            Sharing::Redis => Some(SessionCache::Redis),
        }
    }

    pub fn applied(self, tls: &Tls) -> Tls {
        let tls = tls.clone();
        match self {
            Sharing::Own => Tls { ticket_keys: Some(TicketKeys::Own), ..tls },
            Sharing::TicketKeys => Tls { ticket_keys: Some(TicketKeys::Shared), tickets: true, ..tls },
            // Tickets with own keys would be preferred to the shared cache.
            Sharing::Memcached | Sharing::Redis => Tls {
                session_cache: self.session_server().or(tls.session_cache),
                tickets: false,
                ticket_keys: Some(TicketKeys::Own),
                ..tls
            },
        }
    }
}

/// How the workload is requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Traffic")]
pub struct Traffic {
    /// Percentages of each client's connections that offer one of its sessions again
    #[arg(id = "reuse", long = "reuse", value_name = "PERCENT", value_delimiter = ',', value_parser = percent)]
    #[arg(default_value_if("plain", "true", "0"), default_value = "0,50,80,100")]
    pub reuse_percent: Vec<f64>,
    /// Clients at once, each with one connection after the other; several numbers give latency against throughput.
    /// With --rates the most at once
    #[arg(short, long, value_name = "N", value_delimiter = ',', default_value = "24")]
    pub clients: Vec<u32>,
    /// Open loop: connections a second, arrivals independent of each other; several give latency against load
    #[arg(id = "rates", long = "rates", value_name = "RATES", value_delimiter = ',', value_parser = rate)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rates_per_s: Vec<f64>,
    /// With --rates, at each reuse: also a closed loop of all clients and one client at the smallest rate, with which
    /// saturation and light load must agree
    #[arg(long, requires = "rates")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checks: bool,
    /// Percentages of the clients that share one address, as behind a proxy; the others have each their own
    #[arg(long = "behind-one-address", value_name = "PERCENT", value_delimiter = ',', value_parser = percent)]
    #[arg(default_value = "0")]
    pub behind_one_address_percent: Vec<f64>,
    /// Mean of exponential pauses between two connections of a client
    #[arg(long = "pause", value_name = "TIME", value_parser = milliseconds, conflicts_with = "rates")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<u64>,
    /// Requests on each connection
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub requests_per_connection: u32,
    /// How much the client does
    #[arg(long, value_name = "EFFORT", default_value_t = Effort::Lean, value_parser = choice(Effort::ALL))]
    pub effort: Effort,
    /// Time-out of a connection without progress, milliseconds.
    #[arg(skip = 10_000_u64)]
    pub timeout_ms: u64,
}

fn milliseconds(text: &str) -> Result<u64, String> {
    text.parse::<Time>().map(|time| time.0.as_millis() as u64)
}

pub(super) fn default_workload() -> WorkloadSpec {
    WorkloadSpec::Specweb96 { users: 50_000, seed: 1, requests_per_user: 10 }
}

impl ClusterExperiment {
    /// Whether each client has an address of its own: not in a network, where all have that of its end.
    pub fn has_addresses(&self) -> bool {
        self.cluster.has_addresses() && self.network.is_none()
    }

    /// One server of a cluster, of this kind, as the main job sees it: what is shared with it is checked and described
    /// there.
    pub fn as_experiment(&self, kind: ServerName, sharing: Sharing) -> Experiment {
        let mut experiment = Experiment {
            question: self.question.clone(),
            server: Server { kind, ..Server::default() },
            tls: sharing.applied(&self.tls),
            workload: self.workload.clone(),
            measure: self.measure.clone(),
            ..Experiment::default()
        };
        experiment.load.effort = self.traffic.effort;
        experiment.load.timeout_ms = self.traffic.timeout_ms;
        experiment.configurations = vec![ConfigurationModel::as_is()];
        experiment
    }

    /// What the backends of this cell share of their sessions; `None`: they have plain HTTP.
    pub fn backends_share(&self, cell: &Cell) -> Option<Sharing> {
        (!self.cluster.plain && !cell.plain && cell.front.is_none()).then_some(cell.sharing)
    }

    /// Everything that is measured, each with the coordinates that distinguish it; the baseline policy first.
    pub fn cells(&self) -> Vec<Cell> {
        let traffic = &self.traffic;
        let mut cells = Vec::new();
        for &sharing in &self.cluster.sessions {
            for way in self.cluster.ways() {
                for &behind in &traffic.behind_one_address_percent {
                    for &reuse in &traffic.reuse_percent {
                        cells.extend(self.loaded(sharing, way, behind, Some(reuse)));
                    }
                }
            }
        }
        let plain = if self.cluster.plain_limit { self.cluster.plain_policies() } else { Vec::new() };
        for policy in plain {
            let behind = traffic.behind_one_address_percent.first().copied().unwrap_or(0.0);
            cells.extend(self.loaded(self.cluster.sessions[0], (policy, None), behind, None));
        }
        cells
    }

    /// The cells of a way at one reuse, or in plain HTTP, under each load.
    fn loaded(&self, sharing: Sharing, way: Way, behind: f64, reuse_percent: Option<f64>) -> Vec<Cell> {
        let ((policy, front), traffic) = (way, &self.traffic);
        let cell = |(clients, rate_per_s, role), dispatcher_timeout_s| Cell {
            sharing,
            policy,
            front,
            behind_one_address_percent: behind,
            reuse_percent: reuse_percent.unwrap_or(0.0),
            plain: reuse_percent.is_none(),
            dispatcher_timeout_s,
            clients,
            rate_per_s,
            role,
        };
        let most = traffic.clients.iter().copied().max().unwrap_or(1);
        let mut loads: Vec<(u32, Option<f64>, Role)> = match traffic.rates_per_s[..] {
            [] => traffic.clients.iter().map(|&clients| (clients, None, Role::Point)).collect(),
            ref rates => rates.iter().map(|&rate| (most, Some(rate), Role::Point)).collect(),
        };
        if traffic.checks {
            let lightest = traffic.rates_per_s.iter().copied().min_by(f64::total_cmp);
            loads.extend([(most, None, Role::Capacity), (1, lightest, Role::Alone)]);
        }
        let timeouts: Vec<Option<u32>> = match self.cluster.dispatcher_timeouts_s[..] {
            ref timeouts if !timeouts.is_empty() && policy.needs_tls() => timeouts.iter().copied().map(Some).collect(),
            _ => vec![None],
        };
        let each = |timeout: &Option<u32>| {
            let timeout = *timeout;
            loads.iter().map(move |load| cell(*load, timeout)).collect::<Vec<_>>()
        };
        timeouts.iter().flat_map(each).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_every_combination_with_the_baseline_first() {
        let mut experiment = ClusterExperiment::default();
        let cells = experiment.cells();
        assert_eq!(cells.len(), 8);
        assert!(cells[..4].iter().all(|cell| cell.policy.name() == "round-robin"));
        experiment.traffic.behind_one_address_percent = vec![0.0, 100.0];
        experiment.traffic.rates_per_s = vec![50.0, 100.0, 200.0];
        experiment.cluster.sessions = vec![Sharing::Own, Sharing::TicketKeys];
        assert_eq!(experiment.cells().len(), 2 * 2 * 2 * 4 * 3);
        experiment.cluster.plain_limit = true;
        let cells = experiment.cells();
        assert_eq!(cells.len(), 2 * 2 * 2 * 4 * 3 + 3, "plain HTTP once at each rate");
        assert!(cells[96..].iter().all(|cell| cell.plain && cell.policy.name() == "round-robin"));
        experiment.cluster.sessions.truncate(1);
        experiment.traffic = Traffic { rates_per_s: vec![50.0, 25.0], checks: true, ..Traffic::default() };
        let cells = experiment.cells();
        assert_eq!(cells.len(), (2 * 4 + 1) * (2 + 2));
        let names: Vec<String> = cells[..4].iter().map(|cell| cell.name(&cells)).collect();
        let of = |load: &str| format!("round-robin, 0 % reuse, {load}");
        assert_eq!(names, ["50/s", "25/s", "closed loop", "25/s by one client"].map(of));
    }
}
