//! The servers of a cluster that share their sessions in one way, and the cells that they serve.

use std::path::Path;

use anyhow::{Context, Result};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_record::model::{Policy, Tls};
use tlsdyno_record::store::Locality;
use tlsdyno_servers::{Instance, Origin, ServerSpec, database, start_proxy, start_session_server};

use super::locality::{Cache, Logs};
use crate::cluster::cell::Cell;
use crate::cluster::file::{ClusterExperiment, Sharing};
use crate::cluster::front::Front;
use crate::several_machines::testbed::{Route, Start, Testbed, server};

/// Servers that share their sessions in one way.
pub struct Group {
    /// `None`: plain HTTP.
    pub sharing: Option<Sharing>,
    pub backends: Vec<usize>,
    /// What all of them need: a server that keeps their sessions, a database.
    behind: Vec<usize>,
    /// What the servers are asked for, where they log it.
    logs: Option<Logs>,
}

impl Group {
    /// Starts the servers. `sharing`: of those that end TLS; `None`: plain HTTP.
    ///
    /// # Errors
    /// One of them does not start, with what it said; a quota is not in force.
    pub fn start(testbed: &mut Testbed, experiment: &ClusterExperiment, sharing: Option<Sharing>) -> Result<Group> {
        let dispatcher_cpu = Some(testbed.placement.dispatcher);
        let mut for_all = |name: &str, start: Start| testbed.start(format!("{name} of all backends"), true, start);
        let session_server = sharing.and_then(|sharing| Some((sharing, sharing.session_server()?)));
        let session_server = session_server.map(|(sharing, cache)| {
            let start = move |run: &Path| {
                start_session_server(cache, dispatcher_cpu, run)?.context("a shared cache has a server")
            };
            for_all(sharing.name(), Box::new(start))
        });
        let session_server = session_server.transpose()?;
        let cluster = &experiment.cluster;
        let start = move |run: &Path| database::start_database(dispatcher_cpu, run);
        let database = cluster.database.then(|| for_all("database", Box::new(start))).transpose()?;
        let tls = sharing.map(|sharing| sharing.applied(&experiment.tls));
        let mut group = Group { sharing, backends: Vec::new(), behind: Vec::new(), logs: None };
        group.behind.extend(session_server.into_iter().chain(database));
        for (number, cpu) in (1..).zip(testbed.placement.machines[..cluster.backends as usize].to_vec()) {
            let spec = ServerSpec {
                tls: tls.as_ref().map(|tls| testbed.credentials.server_tls(tls)),
                http2: tls.as_ref().is_some_and(|tls| tls.http2),
                log_objects: cluster.plain || cluster.has_front_ends(),
                workers: cluster.processes.unwrap_or(1),
                prefork_processes: cluster.processes,
                cpus: vec![cpu],
                quota_cpus: testbed.placement.quota_cpus,
                companion_cpu: dispatcher_cpu,
                connections: experiment.traffic.clients.iter().copied().max().unwrap_or(1),
                ip: Some(cluster.backend_ip()),
                session_server: session_server.map(|number| testbed.machine(number).address()),
                database: database.map(|number| database::settings_of(testbed.machine(number))),
                ..ServerSpec::new(cluster.server, testbed.docroot())
            };
            group.backends.push(testbed.start(format!("backend {number}"), false, server(spec))?);
        }
        let logs = group.backends.iter().map(|&number| testbed.machine(number)).map(Instance::object_log);
        group.logs = logs.collect::<Option<Vec<&Path>>>().map(|logs| Logs::new(logs.into_iter()));
        Ok(group)
    }

    /// Passes over what was logged so far.
    pub fn skip_logs(&mut self) -> Result<()> {
        self.logs.iter_mut().try_for_each(Logs::skip)
    }

    /// What each backend was asked for since, once they have logged `requests`, by these caches. `None`: they log
    /// nothing, or not so many.
    pub fn locality(&mut self, caches: &mut [Cache], requests: u64) -> Result<Option<Vec<Locality>>> {
        let Some(logs) = &mut self.logs else { return Ok(None) };
        let Some(texts) = logs.lines_of(requests)? else { return Ok(None) };
        caches.iter_mut().zip(&texts).map(|(cache, lines)| cache.replay(lines)).collect::<Result<_>>().map(Some)
    }
}

/// A cell with its dispatchers and front ends, which are its own: a dispatcher evens out what it did before, so that
/// with a common one the traffic of one block would decide where the next one's connections go.
pub struct CellUnderTest {
    pub cell: Cell,
    /// What was checked of it before measuring, a sentence each.
    pub checks: Vec<String>,
    pub group: usize,
    /// TLS as its clients meet it; `None`: plain HTTP.
    pub tls: Option<Tls>,
    pub route: Route,
    /// The computed cache of each backend; none where the servers do not log what they are asked for.
    pub caches: Vec<Cache>,
}

impl CellUnderTest {
    /// Starts dispatchers and front ends, and checks that an object comes whole through them and is counted.
    /// `cache_bytes`: size of the cache that is computed for each backend.
    ///
    /// # Errors
    /// One of them does not start, or a check fails; [`Fault::Server`].
    pub fn start(
        testbed: &mut Testbed,
        experiment: &ClusterExperiment,
        groups: &[Group],
        cell: &Cell,
        cache_bytes: u64,
    ) -> Result<CellUnderTest> {
        let sharing = experiment.backends_share(cell);
        let number = groups.iter().position(|group| group.sharing == sharing);
        let number = number.context("the cell's cluster was not started")?;
        let group = &groups[number];
        let has_tls = !experiment.cluster.plain && !cell.plain;
        let tls = has_tls.then(|| cell.sharing.applied(&experiment.tls));
        let (ends, behind) = (group.backends.clone(), group.behind.clone());
        let mut route = Route { ends, behind, ..Route::default() };
        let (policy, name) = (cell.policy, cell.way_name());
        if !matches!(policy, Policy::Direct | Policy::UriHash) {
            let title = format!("dispatcher {name}, {} sessions", cell.sharing.name());
            // Behind front ends nobody else may come to it: it has no TLS.
            let ip = if cell.front.is_some() { experiment.cluster.backend_ip() } else { testbed.ip };
            let (ends, timeout_s) = (route.ends.clone(), cell.dispatcher_timeout_s);
            route.dispatcher = Some(testbed.dispatch(title, (policy, ip), ends, timeout_s)?);
        }
        if let (Some(front), Some(tls)) = (cell.front, &tls) {
            route = behind_front_ends(testbed, experiment, cell, (front, tls), route)?;
        }
        let passed = testbed.pass_through(&route, tls.as_ref()).with_context(|| match policy {
            Policy::Direct => "the server does not work".to_owned(),
            _ => format!("the dispatcher `{name}` does not work"),
        });
        let passed = passed.or_fault(Fault::Server)?;
        let chosen = testbed.choose_each(&route, tls.as_ref()).with_context(|| name).or_fault(Fault::Server)?;
        let checks = testbed.checks(&route).into_iter().chain([passed]).chain(chosen).collect();
        let caches = vec![Cache::new(cache_bytes); if group.logs.is_some() { group.backends.len() } else { 0 }];
        Ok(CellUnderTest { cell: cell.clone(), checks, group: number, tls, route, caches })
    }
}

/// Starts front ends before this plain way to the servers, and a dispatcher that spreads connections over them.
fn behind_front_ends(
    testbed: &mut Testbed,
    experiment: &ClusterExperiment,
    cell: &Cell,
    (front, tls): (Front, &Tls),
    onward: Route,
) -> Result<Route> {
    let cluster = &experiment.cluster;
    let title = format!("{}, {}", cell.way_name(), cell.sharing.name());
    let entries = testbed.entries(&onward);
    let origin = match onward.dispatcher {
        Some(_) => Origin::Dispatcher(entries[0]),
        None => Origin::ByPath(entries),
    };
    let cpus = testbed.placement.machines[cluster.backends as usize..].to_vec();
    let mut ends = Vec::new();
    for (number, cpu) in (1..=front.ends).zip(cpus) {
        let spec = ServerSpec {
            tls: Some(testbed.credentials.server_tls(tls)),
            http2: tls.http2,
            origin: Some(origin.clone()),
            cpus: vec![cpu],
            quota_cpus: testbed.placement.quota_cpus,
            connections: cell.clients,
            ..ServerSpec::new(cluster.server, testbed.docroot())
        };
        let front_end = cluster.front_end;
        let start = move |run: &Path| start_proxy(front_end, &spec, run);
        ends.push(testbed.start(format!("front end {number} of {title}"), false, Box::new(start))?);
    }
    let spread = (front.spread, testbed.ip);
    let spread = testbed.dispatch(format!("spread of {title}"), spread, ends.clone(), None)?;
    Ok(Route { dispatcher: Some(spread), ends, onward: Some(Box::new(onward)), ..Route::default() })
}
