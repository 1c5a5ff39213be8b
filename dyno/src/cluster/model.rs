//! The cluster experiment as data: what TOML files hold and what the flags of `tlsdyno cluster` build.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_tls::Effort;

use super::cell::Cell;
use crate::experiment::job::WorkloadSpec;
use crate::experiment::model::{Experiment, Measure, Server, ServerName, Tls};
use crate::servers::dispatcher::Policy;
use crate::servers::{ServerKind, SessionCache, TicketKeys};

/// Most backends: a machine holds no more servers that are still worth comparing.
const BACKENDS_MAX: u32 = 64;
/// Most cells: each has a dispatcher of its own, and a block in every round.
const CELLS_MAX: usize = 240;
/// A block of an open loop is not shorter than this: arrivals scatter.
pub(super) const OPEN_BLOCK_MIN: Duration = Duration::from_millis(800);
/// Connections that are due on average in the shortest block of an open loop: without any, a block says nothing.
const ARRIVALS_MIN: f64 = 20.0;
/// Most clients at once.
const CLIENTS_MAX: u32 = 4096;

/// One cluster experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterExperiment {
    /// What the experiment is to answer, one sentence.
    pub question: String,
    /// The cluster.
    pub cluster: Cluster,
    /// TLS as the servers are configured and as the clients offer it.
    #[serde(default)]
    pub tls: Tls,
    /// What is requested.
    #[serde(default = "default_workload")]
    pub workload: WorkloadSpec,
    /// How it is requested.
    #[serde(default)]
    pub traffic: Traffic,
    /// How long and where it is measured.
    #[serde(default)]
    pub measure: Measure,
    /// What a paper published of the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Published>,
}

/// What a paper published of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Authors, journal, figure.
    pub source: String,
    /// What is not as in the paper.
    #[serde(default)]
    pub differences: Vec<String>,
    /// What it says.
    #[serde(default, rename = "statement")]
    pub statements: Vec<Statement>,
}

/// A ratio of throughputs that a paper gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// In words.
    pub text: String,
    /// The policy in the numerator.
    pub policy: Policy,
    /// Its reuse, per cent.
    pub reuse_percent: f64,
    /// The policy in the denominator.
    pub over_policy: Policy,
    /// Its reuse, per cent.
    pub over_reuse_percent: f64,
    /// The least and the most that the paper's numbers allow.
    pub times: [f64; 2],
}

/// Servers and dispatchers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// The servers behind the dispatchers.
    pub server: ServerName,
    /// How many of them.
    pub backends: u32,
    /// CPU time that each of them may use, in CPUs: it gives the cluster a defined capacity. 0: no limit; absent: chosen, so that all of them
    /// fit on the CPUs that they share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_cpus: Option<f64>,
    /// Plain HTTP, without TLS: what dispatching makes of the servers' caches of files instead of their sessions.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
    /// Size of the cache for which the misses of each plain backend are computed, bytes; absent: as much as holds every object once in the caches of
    /// all backends together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// What the servers share of their sessions; each is a cluster of its own.
    pub sessions: Vec<Sharing>,
    /// The dispatchers, each before each cluster. The first is what the others are compared with.
    pub policies: Vec<Policy>,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster {
            server: ServerName::Nginx,
            backends: 3,
            backend_cpus: None,
            plain: false,
            cache_bytes: None,
            sessions: vec![Sharing::Own],
            policies: vec![Policy::RoundRobin, Policy::Session],
        }
    }
}

/// What the servers of a cluster share of their sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// nothing: each server has caches and ticket keys of its own
    #[default]
    Own,
    /// the keys of session tickets
    TicketKeys,
    /// a memcached server that keeps the sessions (apache), and no tickets
    Memcached,
    /// a redis server that keeps the sessions (apache), and no tickets
    Redis,
}

impl Sharing {
    /// The name on command lines, in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Sharing::Own => "own",
            Sharing::TicketKeys => "ticket-keys",
            Sharing::Memcached => "memcached",
            Sharing::Redis => "redis",
        }
    }

    /// The cache that one server keeps for all of them, where they share one.
    pub const fn session_server(self) -> Option<SessionCache> {
        match self {
            Sharing::Own | Sharing::TicketKeys => None,
            Sharing::Memcached => Some(SessionCache::Memcached),
            Sharing::Redis => Some(SessionCache::Redis),
        }
    }

    /// The servers' TLS settings with this sharing.
    pub fn applied(self, tls: &Tls) -> Tls {
        let tls = tls.clone();
        match self {
            Sharing::Own => Tls { ticket_keys: TicketKeys::Own, ..tls },
            Sharing::TicketKeys => Tls { ticket_keys: TicketKeys::Shared, tickets: true, ..tls },
            // Tickets with own keys would be preferred to the shared cache.
            Sharing::Memcached | Sharing::Redis => Tls {
                session_cache: self.session_server().unwrap_or(tls.session_cache),
                tickets: false,
                ticket_keys: TicketKeys::Own,
                ..tls
            },
        }
    }
}

/// How the workload is requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Traffic {
    /// Percentages of each client's connections that offer one of its sessions again.
    pub reuse_percent: Vec<f64>,
    /// Clients at once, each with one connection after the other, in a closed loop. With rates: the most at once, one number.
    pub clients: Vec<u32>,
    /// Connections a second in an open loop, arrivals independent of each other; empty: closed loop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rates_per_s: Vec<f64>,
    /// Percentages of the clients that share one address, as behind a proxy; the others have each their own.
    pub behind_one_address_percent: Vec<f64>,
    /// Requests on each connection.
    pub requests_per_connection: u32,
    /// `honest`, `lean`, `floor`.
    pub effort: String,
    /// Time-out of a connection without progress, milliseconds.
    pub timeout_ms: u64,
}

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic {
            reuse_percent: vec![0.0, 50.0, 80.0, 100.0],
            clients: vec![24],
            rates_per_s: Vec::new(),
            behind_one_address_percent: vec![0.0],
            requests_per_connection: 1,
            effort: Effort::Lean.to_string(),
            timeout_ms: 10_000,
        }
    }
}

fn default_workload() -> WorkloadSpec {
    WorkloadSpec::Specweb96 { users: 50_000, seed: 1, requests_per_user: 10 }
}

impl Default for ClusterExperiment {
    fn default() -> ClusterExperiment {
        ClusterExperiment {
            question: "What does each way of dispatching make of this cluster?".to_owned(),
            cluster: Cluster::default(),
            tls: Tls::default(),
            workload: default_workload(),
            traffic: Traffic::default(),
            measure: Measure::default(),
            paper: None,
        }
    }
}

impl ClusterExperiment {
    /// Reads an experiment file, which lies in `directory`: relative paths in it are relative to the file.
    ///
    /// # Errors
    /// It is no such TOML, or asks for what cannot be.
    pub fn from_toml(text: &str, directory: &Path) -> Result<ClusterExperiment> {
        let mut experiment: ClusterExperiment = toml::from_str(text)?;
        if let WorkloadSpec::Trace { path, .. } | WorkloadSpec::Har { path, .. } = &mut experiment.workload {
            *path = directory.join(&*path);
        }
        experiment.check()?;
        Ok(experiment)
    }

    /// The experiment as a file that [`ClusterExperiment::from_toml`] reads back.
    ///
    /// # Errors
    /// A value that TOML cannot hold.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// Refuses what cannot be measured, with the remedy.
    ///
    /// # Errors
    /// What contradicts itself.
    pub fn check(&self) -> Result<()> {
        let Cluster { server, backends, backend_cpus, sessions, policies, .. } = &self.cluster;
        ensure!(
            *server != ServerName::Command,
            "a cluster starts several servers of one kind; your own server command is one (--server-command is for `tlsdyno ablate`)"
        );
        ensure!((1..=BACKENDS_MAX).contains(backends), "--backends must be between 1 and {BACKENDS_MAX}");
        ensure!(
            backend_cpus.is_none_or(|cpus| (0.0..=64.0).contains(&cpus)),
            "--backend-cpus is CPU time of each backend in CPUs, for example 0.3, or 0 for no limit"
        );
        some_and_different("--policies", policies, |policy| policy.name().to_owned())?;
        some_and_different("--sessions", sessions, |sharing| sharing.name().to_owned())?;
        self.check_plain()?;
        for sharing in sessions {
            self.check_sharing(*sharing)?;
        }
        self.traffic.check()?;
        ensure!(self.measure.time_s >= 1.0, "--time must be at least 1 second");
        ensure!(
            !self.measure.fresh_servers && self.measure.turns == 1,
            "`fresh_servers` and `turns` are for experiments with one server at a time; a cluster's servers stay"
        );
        let cells = self.cells().len();
        ensure!(
            cells <= CELLS_MAX,
            "policies, sessions, reuse, load and addresses make {cells} cells, at most {CELLS_MAX} make sense; give fewer of some of them"
        );
        self.as_experiment(self.cluster.sessions[0]).check()?;
        self.check_paper()
    }

    /// What belongs to plain clusters only, and what to those with TLS only.
    fn check_plain(&self) -> Result<()> {
        let Cluster { plain, cache_bytes, sessions, policies, .. } = &self.cluster;
        if !plain {
            ensure!(
                !policies.contains(&Policy::Lard),
                "policy lard reads requests, which TLS hides from a dispatcher; add --plain (`plain = true` in a file), or take `session`"
            );
            ensure!(cache_bytes.is_none(), "--cache-bytes is for the access logs of plain clusters; add --plain");
            return Ok(());
        }
        if let Some(policy) = policies.iter().find(|policy| policy.needs_tls()) {
            bail!(
                "policy {} reads TLS hellos, and --plain has none; take round-robin, least-connections, source-address, or lard",
                policy.name()
            );
        }
        ensure!(
            sessions[..] == [Sharing::Own] && self.traffic.reuse_percent[..] == [0.0],
            "--plain has no sessions to share or to offer again; leave --sessions and --reuse away (`reuse_percent = [0]` in a file)"
        );
        ensure!(cache_bytes.is_none_or(|bytes| bytes > 0), "--cache-bytes must be at least 1");
        ensure!(
            !policies.contains(&Policy::Lard) || !matches!(self.workload, WorkloadSpec::Url { .. }),
            "policy lard sends all requests for one object to one backend; give a workload of many objects, for example --workload specweb96"
        );
        Ok(())
    }

    fn check_sharing(&self, sharing: Sharing) -> Result<()> {
        use crate::servers::Wanted;
        let tls = sharing.applied(&self.tls);
        let wanted = Wanted {
            session_cache: tls.session_cache,
            tickets: tls.tickets,
            ticket_keys: tls.ticket_keys,
            early_data: tls.early_data,
            tls13: tls.version == "1.3",
        };
        ensure!(
            tls.is_resumable(),
            "these servers hand out no sessions at all; drop --no-tickets or --session-cache off"
        );
        wanted
            .refuse_unable(&self.server_kind(), 1)
            .map_err(|error| error.context(format!("sessions = `{}`", sharing.name())))
    }

    fn check_paper(&self) -> Result<()> {
        for statement in self.paper.iter().flat_map(|paper| &paper.statements) {
            let sides =
                [(statement.policy, statement.reuse_percent), (statement.over_policy, statement.over_reuse_percent)];
            for (policy, reuse) in sides {
                ensure!(
                    self.cluster.policies.contains(&policy) && self.traffic.reuse_percent.contains(&reuse),
                    "the paper's statement `{}` is about {} with {reuse} % reuse, which is not measured",
                    statement.text,
                    policy.name()
                );
            }
        }
        Ok(())
    }

    /// The driver of the servers.
    pub fn server_kind(&self) -> ServerKind {
        self.as_experiment(Sharing::Own).server_kind()
    }

    /// One server of a cluster as the main job sees it: what is shared with it is checked and described there.
    pub fn as_experiment(&self, sharing: Sharing) -> Experiment {
        let mut experiment = Experiment {
            question: self.question.clone(),
            server: Server { kind: self.cluster.server, ..Server::default() },
            tls: sharing.applied(&self.tls),
            workload: self.workload.clone(),
            measure: self.measure.clone(),
            ..Experiment::default()
        };
        experiment.load.effort = self.traffic.effort.clone();
        experiment.load.timeout_ms = self.traffic.timeout_ms;
        experiment.configurations = vec![crate::experiment::model::ConfigurationModel::as_is()];
        experiment
    }

    /// Everything that is measured, each with the coordinates that distinguish it; the baseline policy first.
    pub fn cells(&self) -> Vec<Cell> {
        let traffic = &self.traffic;
        let mut cells = Vec::new();
        for &sharing in &self.cluster.sessions {
            for &policy in &self.cluster.policies {
                for &behind in &traffic.behind_one_address_percent {
                    for &reuse in &traffic.reuse_percent {
                        let cell = |clients, rate_per_s| Cell {
                            sharing,
                            policy,
                            behind_one_address_percent: behind,
                            reuse_percent: reuse,
                            clients,
                            rate_per_s,
                        };
                        match traffic.rates_per_s[..] {
                            [] => cells.extend(traffic.clients.iter().map(|&clients| cell(clients, None))),
                            ref rates => {
                                let most = traffic.clients.iter().copied().max().unwrap_or(1);
                                cells.extend(rates.iter().map(|&rate| cell(most, Some(rate))));
                            }
                        }
                    }
                }
            }
        }
        cells
    }
}

impl Traffic {
    fn check(&self) -> Result<()> {
        let percentages =
            [("--reuse", &self.reuse_percent), ("--behind-one-address", &self.behind_one_address_percent)];
        for (flag, list) in percentages {
            some_and_different(flag, list, ToString::to_string)?;
            ensure!(
                list.iter().all(|percent| (0.0..=100.0).contains(percent)),
                "{flag} takes percentages between 0 and 100"
            );
        }
        some_and_different("--clients", &self.clients, ToString::to_string)?;
        ensure!(
            self.clients.iter().all(|clients| (1..=CLIENTS_MAX).contains(clients)),
            "--clients must be between 1 and {CLIENTS_MAX}"
        );
        ensure!(
            self.rates_per_s.is_empty() || self.clients.len() == 1,
            "with --rates the load is the rate; give one number of --clients, the most at once"
        );
        ensure!(
            self.rates_per_s.iter().all(|rate| *rate >= rate_min() && *rate <= 1e6),
            "--rates are connections a second, {} at least: arrivals are independent, and the shortest block must have some",
            rate_min()
        );
        ensure!(self.requests_per_connection > 0, "--requests-per-connection must be at least 1");
        self.effort.parse::<Effort>()?;
        Ok(())
    }
}

/// Connections a second with which the shortest block has arrivals enough.
fn rate_min() -> f64 {
    ARRIVALS_MIN / OPEN_BLOCK_MIN.as_secs_f64()
}

/// A list must hold something, and nothing twice.
fn some_and_different<T>(flag: &str, list: &[T], name: impl Fn(&T) -> String) -> Result<()> {
    ensure!(!list.is_empty(), "{flag} names nothing");
    let mut seen = BTreeSet::new();
    for item in list {
        let name = name(item);
        ensure!(seen.insert(name.clone()), "{flag} names {name} twice");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_survives_the_round_trip_and_refuses_unknown_keys() {
        let experiment = ClusterExperiment {
            traffic: Traffic { rates_per_s: vec![100.0], ..Traffic::default() },
            ..ClusterExperiment::default()
        };
        let text = experiment.to_toml().unwrap();
        assert_eq!(ClusterExperiment::from_toml(&text, Path::new("/")).unwrap(), experiment);
        for table in ["[cluster]\n", "[cluster]\n[traffic]\n", "[cluster]\n[tls]\n", "[cluster]\n[measure]\n"] {
            let text = format!("question = \"q\"\n{table}surprise = 1\n");
            let error = ClusterExperiment::from_toml(&text, Path::new("/")).unwrap_err().to_string();
            assert!(error.contains("surprise"), "{table}: {error}");
        }
    }

    #[test]
    fn cells_are_every_combination_with_the_baseline_first() {
        let mut experiment = ClusterExperiment::default();
        let cells = experiment.cells();
        assert_eq!(cells.len(), 8);
        assert!(cells[..4].iter().all(|cell| cell.policy == Policy::RoundRobin));
        experiment.traffic.behind_one_address_percent = vec![0.0, 100.0];
        experiment.traffic.rates_per_s = vec![50.0, 100.0, 200.0];
        experiment.cluster.sessions = vec![Sharing::Own, Sharing::TicketKeys];
        assert_eq!(experiment.cells().len(), 2 * 2 * 2 * 4 * 3);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        let with = |edit: &dyn Fn(&mut ClusterExperiment)| {
            let mut experiment = ClusterExperiment::default();
            edit(&mut experiment);
            format!("{:#}", experiment.check().unwrap_err())
        };
        assert!(with(&|e| e.cluster.server = ServerName::Command).contains("tlsdyno ablate"));
        assert!(with(&|e| e.cluster.backends = 0).contains("--backends"));
        assert!(with(&|e| e.cluster.policies = vec![Policy::Session; 2]).contains("session twice"));
        assert!(with(&|e| e.cluster.sessions = vec![Sharing::Memcached]).contains("nginx has no session cache"));
        assert!(with(&|e| e.traffic.reuse_percent = vec![101.0]).contains("between 0 and 100"));
        assert!(
            with(&|e| e.tls = Tls { tickets: false, session_cache: SessionCache::Off, ..Tls::default() })
                .contains("no sessions at all")
        );
        assert!(
            with(&|e| {
                e.traffic.rates_per_s = vec![1.0];
                e.traffic.clients = vec![1, 2];
            })
            .contains("--rates")
        );
        assert!(
            with(&|e| e.traffic.rates_per_s = vec![100.0, 24.0]).contains("--rates are connections a second, 25 at")
        );
        assert!(with(&|e| e.tls.suite = Some("AES128-SHA".into())).contains("--tls 1.2"));
        assert!(with(&|e| e.cluster.policies = vec![Policy::Lard]).contains("--plain"));
        assert!(with(&|e| e.cluster.cache_bytes = Some(1)).contains("--plain"));
        let plain = |e: &mut ClusterExperiment| {
            e.cluster.plain = true;
            e.cluster.policies = vec![Policy::RoundRobin, Policy::Lard];
            e.traffic.reuse_percent = vec![0.0];
        };
        let plain_with = |edit: &dyn Fn(&mut ClusterExperiment)| {
            with(&|e| {
                plain(e);
                edit(e);
            })
        };
        assert!(plain_with(&|e| e.cluster.policies = vec![Policy::HaproxyStick]).contains("reads TLS hellos"));
        assert!(plain_with(&|e| e.traffic.reuse_percent = vec![80.0]).contains("no sessions"));
        assert!(plain_with(&|e| e.cluster.sessions = vec![Sharing::TicketKeys]).contains("no sessions"));
        assert!(plain_with(&|e| e.cluster.cache_bytes = Some(0)).contains("--cache-bytes"));
        let object = WorkloadSpec::Url { path: "/o".to_owned(), bytes: Some(1), users: 9, requests_per_user: 1 };
        assert!(plain_with(&|e| e.workload = object.clone()).contains("--workload specweb96"));
        let mut good = ClusterExperiment::default();
        plain(&mut good);
        good.check().unwrap();
        ClusterExperiment::default().check().unwrap();
        let slow = Traffic { rates_per_s: vec![25.0], ..Traffic::default() };
        ClusterExperiment { traffic: slow, ..ClusterExperiment::default() }.check().unwrap();
    }
}
