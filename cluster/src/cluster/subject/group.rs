//! The servers of a cluster that share their sessions in one way, and the cells that they serve.

use std::path::Path;

use anyhow::{Context, Result};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_record::model::{Policy, Tls};
use tlsdyno_record::store::Locality;
use tlsdyno_servers::{Instance, ServerSpec, start_session_server};

use super::locality::{Cache, Logs};
use crate::cluster::cell::Cell;
use crate::cluster::file::{ClusterExperiment, Sharing};
use crate::several_machines::testbed::{Route, Testbed, server};

/// Servers that share their sessions in one way.
pub struct Group {
    sharing: Sharing,
    /// They are the plain limit of a cluster with TLS.
    is_plain_limit: bool,
    /// As they are configured; `None`: plain HTTP.
    pub tls: Option<Tls>,
    /// The machines.
    pub backends: Vec<usize>,
    /// The one that keeps the sessions of all of them, where they share one.
    session_server: Option<usize>,
    /// What the servers are asked for, where they log it.
    logs: Option<Logs>,
}

impl Group {
    /// Starts the servers.
    ///
    /// # Errors
    /// One of them does not start, with what it said; a quota is not in force.
    pub fn start(
        testbed: &mut Testbed,
        experiment: &ClusterExperiment,
        sharing: Sharing,
        is_plain_limit: bool,
    ) -> Result<Group> {
        let plain = experiment.cluster.plain || is_plain_limit;
        let tls = (!plain).then(|| sharing.applied(&experiment.tls));
        let dispatcher_cpu = Some(testbed.placement.dispatcher);
        let session_server = match sharing.session_server().filter(|_| !plain) {
            Some(cache) => {
                let start = move |run: &Path| {
                    start_session_server(cache, dispatcher_cpu, run)?.context("a shared cache has a server")
                };
                Some(testbed.start(format!("{} of all backends", sharing.name()), true, Box::new(start))?)
            }
            None => None,
        };
        let mut group = Group { sharing, is_plain_limit, tls, backends: Vec::new(), session_server, logs: None };
        for (number, cpu) in (1..).zip(testbed.placement.machines.clone()) {
            let spec = ServerSpec {
                tls: group.tls.as_ref().map(|tls| testbed.credentials.server_tls(tls)),
                log_objects: experiment.cluster.plain,
                workers: experiment.cluster.processes.unwrap_or(1),
                prefork_processes: experiment.cluster.processes,
                cpus: vec![cpu],
                quota_cpus: testbed.placement.quota_cpus,
                companion_cpu: dispatcher_cpu,
                connections: experiment.traffic.clients.iter().copied().max().unwrap_or(1),
                ip: experiment.cluster.backend_ip(),
                session_server: session_server.map(|number| testbed.machine(number).address()),
                ..ServerSpec::new(experiment.cluster.server, testbed.docroot())
            };
            group.backends.push(testbed.start(format!("backend {number}"), false, server(spec))?);
        }
        let logs = group.backends.iter().map(|&number| testbed.machine(number)).map(Instance::object_log);
        group.logs = logs.collect::<Option<Vec<&Path>>>().map(|logs| Logs::new(logs.into_iter()));
        Ok(group)
    }

    /// Passes over what was logged so far.
    ///
    /// # Errors
    /// A log cannot be read.
    pub fn skip_logs(&mut self) -> Result<()> {
        self.logs.iter_mut().try_for_each(Logs::skip)
    }

    /// What each backend was asked for since, once they have logged `requests`, by these caches. `None`: they log
    /// nothing, or not so many.
    ///
    /// # Errors
    /// A log cannot be read.
    pub fn locality(&mut self, caches: &mut [Cache], requests: u64) -> Result<Option<Vec<Locality>>> {
        let Some(logs) = &mut self.logs else { return Ok(None) };
        let Some(texts) = logs.lines_of(requests)? else { return Ok(None) };
        caches.iter_mut().zip(&texts).map(|(cache, lines)| cache.replay(lines)).collect::<Result<_>>().map(Some)
    }
}

/// A cell with its dispatcher. Each cell has one of its own: a dispatcher evens out what it did before, so that with a
/// common one the traffic of one block would decide where the next one's connections go.
pub struct CellUnderTest {
    /// The cell.
    pub cell: Cell,
    /// What was checked of it before measuring, a sentence each.
    pub checks: Vec<String>,
    /// The number of its group.
    pub group: usize,
    /// Its dispatcher and servers.
    pub route: Route,
    /// The computed cache of each backend; none where the servers do not log what they are asked for.
    pub caches: Vec<Cache>,
}

impl CellUnderTest {
    /// Starts the dispatcher, and checks that an object comes whole through it and is counted. `cache_bytes`: size of
    /// the cache that is computed for each backend.
    ///
    /// # Errors
    /// It does not start, or a check fails; [`Fault::Server`].
    pub fn start(testbed: &mut Testbed, groups: &[Group], cell: &Cell, cache_bytes: u64) -> Result<CellUnderTest> {
        let is_its = |group: &Group| group.sharing == cell.sharing && group.is_plain_limit == cell.plain;
        let number = groups.iter().position(is_its).context("the cell's cluster was not started")?;
        let group = &groups[number];
        let (ends, behind) = (group.backends.clone(), group.session_server.into_iter().collect());
        let mut route = Route { dispatcher: None, ends, behind };
        let (policy, name) = (cell.policy, cell.policy.name());
        if policy != Policy::Direct {
            let title = format!("dispatcher {name}, {} sessions", cell.sharing.name());
            route.dispatcher = Some(testbed.dispatch(title, policy, route.ends.clone(), cell.dispatcher_timeout_s)?);
        }
        let passed = testbed.pass_through(&route, group.tls.as_ref()).with_context(|| match policy {
            Policy::Direct => "the server does not work".to_owned(),
            _ => format!("the dispatcher `{name}` does not work"),
        });
        let checks = testbed.checks(&route).into_iter().chain([passed.or_fault(Fault::Server)?]).collect();
        let caches = group.logs.iter().flat_map(|_| vec![Cache::new(cache_bytes); route.ends.len()]).collect();
        Ok(CellUnderTest { cell: cell.clone(), checks, group: number, route, caches })
    }
}
