//! Servers and dispatchers of a cluster experiment: started once, all up together, ended together.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use tlsdyno_engine::load::{Connections, Expect, Pacing, Pause, Plan, Spread, Target};
use tlsdyno_tls::{Config, Settings};

use super::locality::{self, Cache, Logs};
use super::place::Placement;
use crate::exchange::exchange;
use crate::fault::{Fault, OrFault};
use crate::kinds::cluster::cell::Cell;
use crate::kinds::cluster::file::{ClusterExperiment, Sharing};
use crate::model::{ClientModel, Policy};
use crate::run::credentials::{Credentials, HOST};
use crate::run::hardware::quota_check;
use crate::run::load_process::LoadProcess;
use crate::run::preflight::negotiated::Asked;
use crate::run::request::plain_get;
use crate::run::testbed::{log_tail, make_site, stop_all};
use crate::servers::cpu::at_rest;
use crate::servers::dispatcher::{self, Dispatcher};
use crate::servers::{self, Instance, RunDirectory, ServerSpec};
use crate::store::Locality;
use crate::trace::Site;

/// How long a dispatcher may take until it has counted the last connections of a block.
const COUNTED_WITHIN: Duration = Duration::from_millis(500);
/// Pause between two looks at its counts.
const COUNTING_STEP: Duration = Duration::from_millis(2);

/// The servers that share their sessions in one way.
pub struct Group {
    /// What they share.
    pub sharing: Sharing,
    /// They are the plain limit of a cluster with TLS.
    is_plain_limit: bool,
    /// The clients' settings; `None`: plain HTTP.
    settings: Option<Settings>,
    /// What their handshakes must come to.
    asked: Asked,
    /// The servers.
    pub backends: Vec<Instance>,
    /// The server that keeps the sessions of all of them, where they share one.
    pub session_server: Option<Instance>,
    /// What was checked of the servers, a sentence each.
    checks: Vec<String>,
    /// What the servers are asked for, where they log it.
    logs: Option<Logs>,
}

/// A cell with its dispatcher. Each cell has one of its own: a dispatcher evens out what it did before, so that with a
/// common one the traffic of one block would decide where the next one's connections go.
pub struct CellUnderTest {
    /// The cell.
    pub cell: Cell,
    /// What was checked of it before measuring, a sentence each.
    pub checks: Vec<String>,
    /// Its servers, an index into [`ClusterTestbed::groups`].
    pub group: usize,
    /// Its dispatcher; `None`: clients connect to the one server.
    pub dispatcher: Option<Dispatcher>,
    /// It speaks TLS.
    pub has_tls: bool,
    /// The computed cache of each backend; none where the servers do not log what they are asked for.
    caches: Vec<Cache>,
}

/// CPU times and counts so far; differences of two of them count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the dispatcher, nanoseconds.
    pub dispatcher_ns: u64,
    /// Of each backend, nanoseconds.
    pub backends_ns: Vec<u64>,
    /// Of the servers that backends need beside them, nanoseconds.
    pub companions_ns: u64,
    /// Connections passed to each backend, by the dispatcher's count; empty without one.
    pub connections: Vec<u64>,
}

/// Everything that is started and written before the first block.
pub struct ClusterTestbed {
    /// The workload and its files.
    pub site: Site,
    /// The clusters, in the order of the experiment.
    pub groups: Vec<Group>,
    /// The cells, in the order of the experiment.
    pub cells: Vec<CellUnderTest>,
    /// Where everything runs.
    pub placement: Placement,
    /// The address that clients connect to.
    ip: IpAddr,
    /// Size of the cache that is computed for each backend that logs what it is asked for.
    cache_bytes: u64,
    credentials: Credentials,
    // Last: servers must be stopped before their directory goes.
    directory: RunDirectory,
}

impl Drop for ClusterTestbed {
    /// Ends dispatchers, then servers, then what these need, each all at once: one after the other would take seconds.
    fn drop(&mut self) {
        let dispatchers = self.cells.drain(..).filter_map(|tested| Some(tested.dispatcher?.instance)).collect();
        let (mut backends, mut session_servers) = (Vec::new(), Vec::new());
        for group in &mut self.groups {
            session_servers.extend(group.session_server.take());
            backends.append(&mut group.backends);
        }
        [dispatchers, backends, session_servers].into_iter().for_each(stop_all);
    }
}

impl ClusterTestbed {
    /// Makes workload, files and certificate. Starts nothing yet. `say` is told what is being done.
    pub fn prepare(
        experiment: &ClusterExperiment,
        placement: Placement,
        say: &mut dyn FnMut(&str),
    ) -> Result<ClusterTestbed> {
        let directory = RunDirectory::create()?;
        let site = make_site(&experiment.workload, directory.path(), say)?;
        say("making certificates");
        let credentials = Credentials::create(experiment.tls.certificate(), directory.path())?;
        let backends = experiment.cluster.backends;
        let cache_bytes =
            experiment.cluster.cache_bytes.unwrap_or_else(|| locality::enough_for_all_together(&site, backends));
        Ok(ClusterTestbed {
            site,
            groups: Vec::new(),
            cells: Vec::new(),
            placement,
            ip: experiment.cluster.ip(),
            cache_bytes,
            credentials,
            directory,
        })
    }

    /// Starts the servers that share their sessions in this way, or those of the plain limit, and checks that quotas
    /// are in force.
    ///
    /// # Errors
    /// One of them does not start; what it said.
    pub fn start_group(
        &mut self,
        experiment: &ClusterExperiment,
        sharing: Sharing,
        is_plain_limit: bool,
    ) -> Result<()> {
        let tls = sharing.applied(&experiment.tls);
        let plain = experiment.cluster.plain || is_plain_limit;
        let settings = match plain {
            true => None,
            false => Some(self.credentials.client_settings(&tls, experiment.traffic.effort)),
        };
        let session_server = match sharing.session_server().filter(|_| !is_plain_limit) {
            Some(cache) => {
                let cpu = Some(self.placement.dispatcher);
                servers::start_session_server(cache, cpu, self.directory.path()).or_fault(Fault::Server)?
            }
            None => None,
        };
        let address = session_server.as_ref().map(Instance::address);
        let (backends, checks) = (Vec::new(), Vec::new());
        let asked = Asked::of(&tls);
        let mut group =
            Group { sharing, is_plain_limit, settings, asked, backends, session_server, checks, logs: None };
        for &cpu in &self.placement.backends {
            let spec = ServerSpec {
                tls: (!plain).then(|| self.credentials.server_tls(&tls)),
                log_objects: experiment.cluster.plain,
                workers: experiment.cluster.processes.unwrap_or(1),
                prefork_processes: experiment.cluster.processes,
                cpus: vec![cpu],
                quota_cpus: self.placement.backend_cpus,
                companion_cpu: Some(self.placement.dispatcher),
                connections: experiment.traffic.clients.iter().copied().max().unwrap_or(1),
                ip: experiment.cluster.backend_ip(),
                session_server: address,
                ..ServerSpec::new(experiment.cluster.server, self.directory.path().join("docroot"))
            };
            let number = group.backends.len() + 1;
            let started = servers::start(&spec, self.directory.path())
                .with_context(|| format!("failed to start backend {number}"))
                .or_fault(Fault::Server)?;
            if let Some(quota) = started.quota() {
                let check = quota_check(quota);
                let said = format!("backend {number}: {}: {}", check.name, check.seen);
                ensure!(check.passed, "{said}");
                group.checks.push(said);
            }
            group.backends.push(started);
        }
        let logs: Option<Vec<&Path>> = group.backends.iter().map(Instance::object_log).collect();
        group.logs = logs.map(|logs| Logs::new(logs.into_iter()));
        self.groups.push(group);
        Ok(())
    }

    /// Starts the dispatcher of a cell, and checks that an object comes whole through it and is counted.
    ///
    /// # Errors
    /// It does not start, or a check fails; [`Fault::Server`].
    pub fn start_cell(&mut self, cell: &Cell) -> Result<()> {
        let is_its = |group: &Group| group.sharing == cell.sharing && group.is_plain_limit == cell.plain;
        let group = self.groups.iter().position(is_its);
        let group = group.context("the cell's cluster was not started")?;
        let addresses: Vec<SocketAddr> = self.groups[group].backends.iter().map(Instance::address).collect();
        let (cpu, policy) = (self.placement.dispatcher, cell.policy);
        let mut dispatcher = match policy {
            Policy::Direct => None,
            _ => {
                let timeout_s = cell.dispatcher_timeout_s;
                let started = dispatcher::start(policy, &addresses, self.ip, cpu, timeout_s, self.directory.path());
                Some(started.or_fault(Fault::Server)?)
            }
        };
        let passed = self.pass_through(&self.groups[group], dispatcher.as_mut());
        let passed = passed.with_context(|| match policy {
            Policy::Direct => "the server does not work".to_owned(),
            _ => format!("the dispatcher `{}` does not work", policy.name()),
        });
        let checks = self.groups[group].checks.iter().cloned().chain([passed.or_fault(Fault::Server)?]).collect();
        let caches = self.groups[group].logs.iter().flat_map(|_| vec![Cache::new(self.cache_bytes); addresses.len()]);
        let caches = caches.collect();
        let has_tls = self.groups[group].settings.is_some();
        self.cells.push(CellUnderTest { cell: cell.clone(), checks, group, dispatcher, has_tls, caches });
        Ok(())
    }

    fn pass_through(&self, group: &Group, mut dispatcher: Option<&mut Dispatcher>) -> Result<String> {
        let (request, Expect { body_bytes, .. }) = plain_get(&self.site.workload, HOST);
        let before: u64 = match &mut dispatcher {
            Some(dispatcher) => dispatcher.connections()?.iter().sum(),
            None => 0,
        };
        let config = group.settings.clone().map(|settings| Config::new(settings).map(Arc::new)).transpose()?;
        let entry = dispatcher.as_ref().map_or(&group.backends[0], |dispatcher| &dispatcher.instance);
        let answer = exchange(entry.address(), config.as_ref(), None, &request);
        let answer = answer.map_err(|failure| anyhow!("{failure}{}", log_tail(entry)))?;
        group.asked.require(&answer)?;
        ensure!(answer.status == 200, "a server behind it answered with status {}", answer.status);
        ensure!(
            body_bytes.is_none_or(|bytes| bytes == answer.body_bytes),
            "an object of {} bytes came with {}",
            body_bytes.unwrap_or(0),
            answer.body_bytes
        );
        let Some(dispatcher) = dispatcher else {
            return Ok(format!("an object of {} bytes came whole", answer.body_bytes));
        };
        let after = counted(dispatcher, before + 1)?;
        ensure!(
            after.iter().sum::<u64>() == before + 1,
            "it counted {} connections in place of one",
            after.iter().sum::<u64>() - before
        );
        Ok(format!("an object of {} bytes came whole, by one connection", answer.body_bytes))
    }

    /// CPU times and counts of a cell's cluster, read when it has come to rest: the last closes are still its work.
    /// `connections`: wait until the dispatcher has counted so many.
    ///
    /// # Errors
    /// A process has died ([`Fault::Server`]), or cannot be accounted for.
    pub fn usage(&mut self, index: usize, connections: Option<u64>) -> Result<Usage> {
        let mut usage = at_rest(|| self.cpu(index))?;
        if let Some(dispatcher) = &mut self.cells[index].dispatcher {
            usage.connections = counted(dispatcher, connections.unwrap_or(0))?;
        }
        Ok(usage)
    }

    /// Where the clients of a cell connect to.
    pub fn address(&self, index: usize) -> SocketAddr {
        let tested = &self.cells[index];
        let server = || &self.groups[tested.group].backends[0];
        tested.dispatcher.as_ref().map_or_else(server, |dispatcher| &dispatcher.instance).address()
    }

    fn cpu(&mut self, index: usize) -> Result<Usage> {
        let tested = &mut self.cells[index];
        let name = format!("the dispatcher `{}`", tested.cell.policy.name());
        let mut usage = Usage::default();
        if let Some(dispatcher) = &mut tested.dispatcher {
            usage.dispatcher_ns = living_cpu_ns(&mut dispatcher.instance, &name)?;
        }
        let group = &mut self.groups[tested.group];
        for (number, backend) in (1..).zip(&mut group.backends) {
            usage.backends_ns.push(living_cpu_ns(backend, &format!("backend {number}"))?);
            usage.companions_ns += backend.companions_cpu_ns()?.iter().map(|(_, ns)| ns).sum::<u64>();
        }
        if let Some(server) = &mut group.session_server {
            usage.companions_ns += living_cpu_ns(server, "the server that keeps the sessions")?;
        }
        Ok(usage)
    }

    /// What the servers of a cell have logged so far belongs to no block.
    ///
    /// # Errors
    /// A log cannot be read.
    pub fn skip_logs(&mut self, index: usize) -> Result<()> {
        let group = self.cells[index].group;
        self.groups[group].logs.iter_mut().try_for_each(Logs::skip)
    }

    /// What each backend of a cell was asked for since, once they have logged `requests`. `None`: they log nothing, or
    /// not so many.
    ///
    /// # Errors
    /// A log cannot be read.
    pub fn locality(&mut self, index: usize, requests: u64) -> Result<Option<Vec<Locality>>> {
        let tested = &mut self.cells[index];
        let Some(logs) = &mut self.groups[tested.group].logs else { return Ok(None) };
        let Some(texts) = logs.lines_of(requests)? else { return Ok(None) };
        tested.caches.iter_mut().zip(&texts).map(|(cache, lines)| cache.replay(lines)).collect::<Result<_>>().map(Some)
    }

    /// Starts the load process for all cells.
    pub fn start_load(&self, experiment: &ClusterExperiment) -> Result<LoadProcess> {
        let traffic = &experiment.traffic;
        let connections = Connections {
            total: 1,
            per_user: 1,
            first_alone: true,
            requests_each: Some(traffic.requests_per_connection),
            timeout_ns: traffic.timeout_ms * 1_000_000,
            batch_ns: 0,
        };
        let pause =
            |mean_ms: u64| Pacing::Pauses(Pause { mean_ns: mean_ms * 1_000_000, spread: Spread::Exponential, seed: 0 });
        let plan = |(index, tested): (usize, &CellUnderTest)| -> Result<Plan> {
            let compile = |settings: &Settings| Config::new(settings.clone()).map(Arc::new);
            let tls = self.groups[tested.group].settings.as_ref().map(compile).transpose()?;
            let target = Target { address: self.address(index), host: HOST.to_owned(), tls };
            let plan = Plan::new(target, Arc::clone(&self.site.workload), connections);
            let plan =
                Plan { pacing: traffic.pause_ms.map_or(plan.pacing, pause), window: self.site.spec.window(), ..plan };
            Ok(tested.cell.loaded(plan, experiment.cluster.has_addresses()))
        };
        let plans: Vec<Plan> = self.cells.iter().enumerate().map(plan).collect::<Result<_>>()?;
        let (workers, directory) = (experiment.workers.as_ref(), self.directory.path());
        LoadProcess::start(&plans, &ClientModel::default(), workers, directory, self.placement.load)
    }

    /// What the logs of a cell's dispatcher and servers end with, as the end of an error message.
    pub fn log_tail(&self, index: usize) -> String {
        let tested = &self.cells[index];
        let backends = &self.groups[tested.group].backends;
        tested.dispatcher.iter().map(|dispatcher| &dispatcher.instance).chain(backends).map(log_tail).collect()
    }
}

fn living_cpu_ns(instance: &mut Instance, name: &str) -> Result<u64> {
    instance.living_cpu_ns(|instance, obituary| format!("{name}: {obituary}{}", log_tail(instance)))
}

/// The dispatcher's counts as soon as they add up to `wanted`, or as they are when it takes too long.
fn counted(dispatcher: &mut Dispatcher, wanted: u64) -> Result<Vec<u64>> {
    let limit = Instant::now() + COUNTED_WITHIN;
    loop {
        let counts = dispatcher.connections()?;
        if counts.iter().sum::<u64>() >= wanted || Instant::now() > limit {
            return Ok(counts);
        }
        std::thread::sleep(COUNTING_STEP);
    }
}
