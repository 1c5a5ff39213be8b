//! What a cluster experiment may ask for; what it may not is refused with the remedy.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use tlsdyno_engine::dispatch::Policy as Rule;
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_record::model::{Policy, Quantity, ServerName};
use tlsdyno_runner::run::check::questions::{check_measure, check_paper};
use tlsdyno_runner::run::check::workers::FarLoad;
use tlsdyno_runner::run::check::{CheckExperiment, check_sessions};
use tlsdyno_traffic::machines::carried::NETWORK_IS_HERE;
use tlsdyno_traffic::network::check_address;

use crate::cluster::cell::Cell;
use crate::cluster::file::{Cluster, ClusterExperiment, OPEN_BLOCK_MIN, Sharing, Traffic};

/// Most backends: a machine holds no more servers that are still worth comparing.
const BACKENDS_MAX: u32 = 64;
const PROCESSES_MAX: u32 = 256;
/// Most cells: each has a dispatcher of its own, and a block in every round.
const CELLS_MAX: usize = 240;
/// Connections that are due on average in the shortest block of an open loop: without any, a block says nothing.
const ARRIVALS_MIN: f64 = 20.0;
const CLIENTS_MAX: u32 = 4096;

impl ClusterExperiment {
    /// Fills in what follows from what a file says. A path of a log or a recording is relative to `directory`.
    pub fn complete(&mut self, directory: &Path) -> Result<()> {
        if let WorkloadSpec::Trace { path, .. } | WorkloadSpec::Har { path, .. } = &mut self.workload {
            *path = directory.join(&*path);
        }
        self.check()
    }

    /// Refuses what cannot be measured, with the remedy.
    pub fn check(&self) -> Result<()> {
        let Cluster { server, backends, backend_cpus, sessions, policies, processes, .. } = &self.cluster;
        ensure!(
            !server.is_users_own(),
            "a cluster starts several servers of one kind; your own server command is one (--server-command is for \
             `tlsdyno ablate`)"
        );
        ensure!((1..=BACKENDS_MAX).contains(backends), "--backends must be between 1 and {BACKENDS_MAX}");
        ensure!(
            backend_cpus.is_none_or(|cpus| (0.0..=64.0).contains(&cpus)),
            "--backend-cpus is CPU time of each backend in CPUs, for example 0.3, or 0 for no limit"
        );
        some_and_different("--policies", policies, |policy| policy.name().to_owned())?;
        ensure!(
            *backends == 1 || !policies.contains(&Policy::Direct),
            "policy direct has no dispatcher that could choose among {backends} backends; give --backends 1"
        );
        ensure!(
            processes.is_none_or(|processes| (1..=PROCESSES_MAX).contains(&processes)),
            "--processes must be between 1 and {PROCESSES_MAX}"
        );
        let timeouts = &self.cluster.dispatcher_timeouts_s;
        ensure!(timeouts.iter().all(|seconds| *seconds > 0), "--dispatcher-timeouts are whole seconds, 1 at least");
        ensure!(
            timeouts.is_empty() || policies.iter().all(|policy| matches!(policy, Policy::Own(Rule::Session))),
            "--dispatcher-timeouts are how long `tlsdyno dispatch` remembers sessions; give --policies session alone"
        );
        some_and_different("--sessions", sessions, |sharing| sharing.name().to_owned())?;
        ensure!(
            !self.cluster.database || *server == ServerName::Builtin,
            "--database has the built-in server ask PostgreSQL for pages; give --server builtin"
        );
        self.check_front_ends()?;
        self.check_plain()?;
        for sharing in sessions {
            self.check_sharing(*sharing)?;
        }
        self.traffic.check()?;
        self.check_workers()?;
        check_measure(&self.measure, "experiments with one server at a time; a cluster's servers stay")?;
        let cells = self.cells().len();
        ensure!(
            cells <= CELLS_MAX,
            "policies, sessions, reuse, load and addresses make {cells} cells, at most {CELLS_MAX} make sense; give \
             fewer of some of them"
        );
        self.as_experiment(self.cluster.server, self.cluster.sessions[0]).check()?;
        self.check_paper()
    }

    /// What belongs to plain clusters only, and what to those with TLS only.
    fn check_plain(&self) -> Result<()> {
        let Cluster { plain, cache_bytes, sessions, policies, .. } = &self.cluster;
        ensure!(
            !plain || !self.cluster.plain_limit,
            "--plain-limit sets plain HTTP beside TLS; with --plain there is nothing else"
        );
        ensure!(
            !self.cluster.plain_limit || !self.cluster.plain_policies().is_empty(),
            "--plain-limit needs a policy that plain HTTP can pass, for example round-robin; these read TLS hellos"
        );
        if !plain {
            ensure!(
                self.cluster.has_front_ends() || !policies.contains(&Policy::Own(Rule::Lard)),
                "policy lard reads requests, which TLS hides from a dispatcher; add --front-ends 1, which end TLS \
                 before it, or --plain (`plain = true` in a file), or take `session`"
            );
            ensure!(
                cache_bytes.is_none() || self.cluster.has_front_ends(),
                "--cache-bytes is for the access logs of plain clusters; add --plain or --front-ends 1"
            );
            return Ok(());
        }
        if let Some(policy) = policies.iter().find(|policy| policy.needs_tls()) {
            bail!(
                "policy {} reads TLS hellos, and --plain has none; take round-robin, least-connections, \
                 source-address, or lard",
                policy.name()
            );
        }
        ensure!(
            sessions[..] == [Sharing::Own] && self.traffic.reuse_percent[..] == [0.0],
            "--plain has no sessions to share or to offer again; leave --sessions and --reuse away (`reuse_percent = \
             [0]` in a file)"
        );
        ensure!(cache_bytes.is_none_or(|bytes| bytes > 0), "--cache-bytes must be at least 1");
        ensure!(
            !policies.contains(&Policy::Own(Rule::Lard)) || !matches!(self.workload, WorkloadSpec::Url { .. }),
            "policy lard sends all requests for one object to one backend; give a workload of many objects, for \
             example --workload specweb96"
        );
        Ok(())
    }

    fn check_sharing(&self, sharing: Sharing) -> Result<()> {
        let front_end = self.cluster.front_end.server().filter(|_| self.cluster.has_front_ends());
        let backend =
            (!self.cluster.has_front_ends() || self.cluster.front_ends.contains(&0)).then_some(self.cluster.server);
        for server in front_end.into_iter().chain(backend) {
            let one = self.as_experiment(server, sharing);
            ensure!(
                one.tls.is_resumable(),
                "these servers hand out no sessions at all; drop --no-tickets or --session-cache off"
            );
            let checked = check_sessions(&one, one.server.kind, &one.tls, 1);
            checked.map_err(|error| error.context(format!("sessions = `{}`", sharing.name())))?;
        }
        Ok(())
    }

    /// Whether workers can make the load. On loopback each client has its address however many workers there are; from
    /// other machines all clients of a worker have that of the worker.
    fn check_workers(&self) -> Result<()> {
        let clients = self.traffic.clients.iter().copied().min().unwrap_or(1);
        let several = self.workers.as_ref().is_some_and(|workers| workers.count() > 1);
        ensure!(
            !self.traffic.checks || !several,
            "--checks measures one client alone, whom several workers cannot divide; leave it out, or all workers but \
             one"
        );
        let far = FarLoad {
            workers: self.workers.as_ref(),
            address: self.cluster.address,
            clients: (clients, "--clients"),
            window: self.workload.window(),
            has_small_keys: !self.cluster.plain && self.tls.certificate().is_small_rsa(),
            effort: self.traffic.effort,
        };
        far.check()?;
        if let Some(network) = &self.network {
            network.check().map_err(anyhow::Error::msg)?;
            ensure!(self.workers.is_none(), NETWORK_IS_HERE);
            check_address((self.cluster.ip(), 0).into())?;
        }
        if self.has_addresses() {
            return Ok(());
        }
        let mut all = self.cluster.policies.iter().chain(&self.cluster.spread);
        if let Some(policy) = all.find(|policy| policy.needs_addresses()) {
            bail!(
                "policy {} decides by clients' addresses, and at {} all clients of a worker, or of a network, have \
                 one; leave the policy out, or the address and the network: on 127.0.0.1 each client has an address of \
                 its own",
                policy.name(),
                self.cluster.ip()
            );
        }
        ensure!(
            self.traffic.behind_one_address_percent[..] == [0.0],
            "--behind-one-address gives clients addresses of loopback; at {} they have those of their workers or \
             network: leave it out",
            self.cluster.ip()
        );
        Ok(())
    }

    /// The paper's numbers may name only what this experiment measures.
    fn check_paper(&self) -> Result<()> {
        let cells = self.cells();
        for comparison in &self.comparisons {
            let known = |name: &String| cells.iter().any(|cell| cell.short_name() == *name);
            let unknown = [&comparison.a, &comparison.b].into_iter().find(|name| !known(name));
            ensure!(
                unknown.is_none() && comparison.published_times.is_some(),
                "comparison `{}` needs two cells that are measured, as `session, 80 % reuse`, and `published_times`{}",
                comparison.question,
                unknown.map_or(String::new(), |name| format!("; `{name}` is none"))
            );
        }
        let names: Vec<String> = cells.iter().map(Cell::reuse_name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let rows = [(Quantity::HitsPerS, &names[..]), (Quantity::LatencyMs, &names[..])];
        self.paper.as_ref().map_or(Ok(()), |paper| check_paper(paper, &rows))
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
            "--rates are connections a second, {} at least: arrivals are independent, and the shortest block must \
             have some",
            rate_min()
        );
        ensure!(
            !self.checks || !self.rates_per_s.is_empty(),
            "--checks (`checks = true` in a file) is for an open loop; give --rates"
        );
        ensure!(
            self.pause_ms.is_none_or(|mean_ms| mean_ms > 0) && (self.pause_ms.is_none() || self.rates_per_s.is_empty()),
            "--pause is a time above 0 between two connections of a client in a closed loop; leave out --rates"
        );
        ensure!(self.requests_per_connection > 0, "--requests-per-connection must be at least 1");
        Ok(())
    }
}

/// Connections a second with which the shortest block has arrivals enough.
fn rate_min() -> f64 {
    ARRIVALS_MIN / OPEN_BLOCK_MIN.as_secs_f64()
}

/// A list must hold something, and nothing twice.
pub(super) fn some_and_different<T>(flag: &str, list: &[T], name: impl Fn(&T) -> String) -> Result<()> {
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
    use tlsdyno_tls::Suite;

    use super::*;
    use tlsdyno_record::model::{SessionCache, Tls, WorkersModel};

    #[test]
    fn an_experiment_survives_the_round_trip_and_refuses_unknown_keys() {
        let experiment = ClusterExperiment {
            traffic: Traffic { rates_per_s: vec![100.0], ..Traffic::default() },
            ..ClusterExperiment::default()
        };
        let text = toml::to_string(&experiment).unwrap();
        assert_eq!(toml::from_str::<ClusterExperiment>(&text).unwrap(), experiment);
        for table in ["[cluster]\n", "[cluster]\n[traffic]\n", "[cluster]\n[tls]\n", "[cluster]\n[measure]\n"] {
            let text = format!("question = \"q\"\n{table}surprise = 1\n");
            let error = toml::from_str::<ClusterExperiment>(&text).unwrap_err().to_string();
            assert!(error.contains("surprise"), "{table}: {error}");
        }
    }

    /// Why the default experiment is refused, once it is edited.
    fn with(edit: &dyn Fn(&mut ClusterExperiment)) -> String {
        let mut experiment = ClusterExperiment::default();
        edit(&mut experiment);
        format!("{:#}", experiment.check().unwrap_err())
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        assert!(with(&|e| e.cluster.server = ServerName::Command).contains("tlsdyno ablate"));
        assert!(with(&|e| e.cluster.backends = 0).contains("--backends"));
        assert!(with(&|e| e.cluster.policies = vec![Policy::Own(Rule::Session); 2]).contains("session twice"));
        assert!(with(&|e| e.cluster.sessions = vec![Sharing::Memcached]).contains("nginx has no session cache"));
        assert!(with(&|e| e.traffic.reuse_percent = vec![101.0]).contains("between 0 and 100"));
        assert!(
            with(&|e| e.tls = Tls { tickets: false, session_cache: Some(SessionCache::Off), ..Tls::default() })
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
        assert!(with(&|e| e.tls.suite = Some(Suite::RsaAes128Sha)).contains("--tls 1.2"));
        assert!(with(&|e| e.cluster.policies = vec![Policy::Own(Rule::Lard)]).contains("--plain"));
        assert!(with(&|e| e.cluster.cache_bytes = Some(1)).contains("--plain"));
        ClusterExperiment::default().check().unwrap();
        let slow = Traffic { rates_per_s: vec![25.0], ..Traffic::default() };
        ClusterExperiment { traffic: slow, ..ClusterExperiment::default() }.check().unwrap();
    }

    #[test]
    fn in_plain_http_nothing_of_tls_can_be_asked_for() {
        let plain = |e: &mut ClusterExperiment| {
            e.cluster.plain = true;
            e.cluster.policies = vec![Policy::Own(Rule::RoundRobin), Policy::Own(Rule::Lard)];
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
    }

    #[test]
    fn workers_need_clients_for_each_and_an_address() {
        let workers = |count| Some(WorkersModel { workers: Some(count), ..WorkersModel::default() });
        assert!(
            with(&|e| {
                e.workers = workers(9);
                e.traffic.clients = vec![32, 8];
            })
            .contains("8 clients cannot be divided among 9 workers; raise --clients")
        );
        let checked = |count| {
            let traffic = Traffic { rates_per_s: vec![50.0], checks: true, ..Traffic::default() };
            ClusterExperiment { workers: workers(count), traffic, ..ClusterExperiment::default() }.check()
        };
        assert!(checked(2).unwrap_err().to_string().contains("--checks"));
        checked(1).unwrap();
        let on = WorkersModel { on: vec!["host".to_owned()], ..WorkersModel::default() };
        assert!(with(&|e| e.workers = Some(on.clone())).contains("--address"));
        assert!(with(&|e| e.cluster.address = "127.0.0.1".parse().ok()).contains("`address` is for"));
    }
}
