//! The machines of an array: the transaction server, proxies before it, dispatchers before these; started once, all up
//! together, ended together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tlsdyno_engine::dispatch;
use tlsdyno_engine::load::{Connections, Expect, Plan, Resumption, Route, SessionLimits, Target};
use tlsdyno_engine::serve::Transaction;
use tlsdyno_tls::{Config, Settings};

use super::place::Placement;
use crate::exchange::exchange;
use crate::fault::{Fault, OrFault};
use crate::kinds::array::PageScale;
use crate::kinds::array::file::{ArrayExperiment, ArrayPlace, PageCost, Spread};
use crate::kinds::load::curve::file::{ReuseAxis, hits_per_handshake};
use crate::model::workload::WorkloadSpec;
use crate::model::{ClientModel, Policy, ServerName, TicketKeys, Tls};
use crate::run::credentials::{Credentials, HOST};
use crate::run::hardware::quota_check;
use crate::run::load_process::LoadProcess;
use crate::run::preflight::negotiated::Asked;
use crate::run::request::plain_get;
use crate::run::testbed::{log_tail, make_site, stop_all};
use crate::servers::cpu::at_rest;
use crate::servers::dispatcher::{self, Dispatcher};
use crate::servers::{self, Instance, RunDirectory, ServerSpec, start_proxy};
use crate::trace::Site;

/// Full handshakes by which the CPU time of one is measured.
const SCALING_HANDSHAKES: u32 = 40;
/// A page that costs next to nothing, while handshakes are measured, nanoseconds.
const SHORT_PAGE_NS: u64 = 1_000;
/// The shortest and the longest lead-in of a block; the shortest is also that of plain HTTP, and of what pages are not
/// scaled by.
const LEAD_IN: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(3)];
/// Requests of a user before its place goes to the next: more than a client makes in a block.
const REQUESTS_PER_USER: u32 = 20_000;

/// The proxies with one kind of ticket keys.
struct ProxySet {
    keys: TicketKeys,
    proxies: Vec<Instance>,
}

/// A dispatcher before the first proxies of a set.
struct ArrayDispatcher {
    proxies: u32,
    dispatcher: Dispatcher,
}

/// CPU times so far; differences of two of them count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the machines that end TLS: the proxies, or the server where there are none. Nanoseconds.
    pub ends_ns: Vec<u64>,
    /// Of the transaction server behind proxies, nanoseconds.
    pub behind_ns: u64,
    /// Of the dispatcher, nanoseconds.
    pub dispatcher_ns: u64,
}

/// Everything that is started and written before the first block.
pub struct ArrayTestbed<'a> {
    experiment: &'a ArrayExperiment,
    /// The workload and its files.
    pub site: Site,
    /// Where everything runs.
    pub placement: Placement,
    /// What a page costs.
    pub scale: PageScale,
    /// What was checked of the machines, a sentence each.
    pub checks: Vec<String>,
    /// The transaction server, over TLS and in plain HTTP; none before it is started.
    server: Option<Instance>,
    sets: Vec<ProxySet>,
    dispatchers: Vec<ArrayDispatcher>,
    credentials: Credentials,
    // Last: servers must be stopped before their directory goes.
    directory: RunDirectory,
}

impl Drop for ArrayTestbed<'_> {
    /// Ends dispatchers, then proxies, then the server, those of a kind all at once.
    fn drop(&mut self) {
        stop_all(self.dispatchers.drain(..).map(|before| before.dispatcher.instance).collect());
        stop_all(self.sets.drain(..).flat_map(|set| set.proxies).collect());
        stop_all(self.server.take().into_iter().collect());
    }
}

impl<'a> ArrayTestbed<'a> {
    /// Makes page and certificate, measures a full handshake where pages are scaled by it, and starts all machines.
    /// `say` is told what is being done.
    ///
    /// # Errors
    /// One of them does not start, with what it said; a quota is not in force.
    pub fn start(
        experiment: &'a ArrayExperiment,
        placement: Placement,
        say: &mut dyn FnMut(&str),
    ) -> Result<ArrayTestbed<'a>> {
        let directory = RunDirectory::create()?;
        let array = &experiment.array;
        let workload = WorkloadSpec::Url {
            path: "/page".to_owned(),
            bytes: Some(array.page_bytes),
            users: array.clients_count,
            requests_per_user: REQUESTS_PER_USER,
        };
        let site = make_site(&workload, directory.path(), say)?;
        say("making certificates");
        let credentials = Credentials::create(experiment.tls.certificate(), directory.path())?;
        let transaction_ns = (array.transaction_us * 1e3) as u64;
        let mut testbed = ArrayTestbed {
            experiment,
            site,
            placement,
            scale: PageScale { transaction_ns, full_handshake_cpu_ns: 0 },
            checks: Vec::new(),
            server: None,
            sets: Vec::new(),
            dispatchers: Vec::new(),
            credentials,
            directory,
        };
        if array.handshake_pages_ratio > 0.0 {
            say("measuring a full handshake");
            testbed.scale_pages()?;
        }
        say("starting the transaction server, proxies and dispatchers");
        testbed.server = Some(testbed.started_server(testbed.scale.transaction_ns)?);
        for keys in [TicketKeys::Own, TicketKeys::Shared] {
            let most = testbed.placement.proxies.len();
            if most > 0 && array.spread.iter().any(|spread| spread.ticket_keys() == keys) {
                let proxies = (0..most).map(|number| testbed.started_proxy(number, keys)).collect::<Result<_>>()?;
                testbed.sets.push(ProxySet { keys, proxies });
            }
        }
        testbed.start_dispatchers()?;
        testbed.check_machines()?;
        Ok(testbed)
    }

    /// The server's and the proxies' TLS settings.
    fn tls(&self, keys: TicketKeys) -> Tls {
        Tls { ticket_keys: Some(keys), ..self.experiment.tls.clone() }
    }

    fn spec(&self, keys: TicketKeys, cpu: usize) -> ServerSpec {
        ServerSpec {
            tls: Some(self.credentials.server_tls(&self.tls(keys))),
            cpus: vec![cpu],
            quota_cpus: self.placement.quota_cpus,
            connections: self.experiment.array.clients_count,
            ip: self.experiment.array.ip(),
            ..ServerSpec::new(ServerName::Builtin, self.directory.path().join("docroot"))
        }
    }

    fn started_server(&self, transaction_ns: u64) -> Result<Instance> {
        let transaction = match self.experiment.array.transaction_cost {
            PageCost::Wait => Transaction { wait_ns: transaction_ns, ..Transaction::default() },
            PageCost::Cpu => Transaction { cpu_ns: transaction_ns, ..Transaction::default() },
        };
        let spec = ServerSpec { transaction: Some(transaction), ..self.spec(TicketKeys::Own, self.placement.server) };
        servers::start(&spec, self.directory.path())
            .context("failed to start the transaction server")
            .or_fault(Fault::Server)
    }

    fn started_proxy(&self, number: usize, keys: TicketKeys) -> Result<Instance> {
        let server = self.server.as_ref().context("proxies are started before their server")?;
        let origin = server.plain_address();
        let spec = ServerSpec { origin, ..self.spec(keys, self.placement.proxies[number]) };
        start_proxy(self.experiment.array.proxy, &spec, self.directory.path()).or_fault(Fault::Server)
    }

    /// Makes pages as long as the experiment wants them beside the full handshake of a machine that ends TLS.
    fn scale_pages(&mut self) -> Result<()> {
        self.server = Some(self.started_server(SHORT_PAGE_NS)?);
        if !self.placement.proxies.is_empty() {
            let proxies = vec![self.started_proxy(0, TicketKeys::Own)?];
            self.sets.push(ProxySet { keys: TicketKeys::Own, proxies });
        }
        let proxies = u32::from(!self.sets.is_empty());
        let place = ArrayPlace { spread: Spread::Client, proxies, percent: Some(0.0) };
        let address = self.addresses(&place)[0];
        // The first makes what later ones find.
        self.get(address, true)?;
        let before: u64 = self.usage(&place)?.ends_ns.iter().sum();
        for _ in 0..SCALING_HANDSHAKES {
            self.get(address, true)?;
        }
        let after: u64 = self.usage(&place)?.ends_ns.iter().sum();
        stop_all(self.sets.drain(..).flat_map(|set| set.proxies).collect());
        stop_all(self.server.take().into_iter().collect());
        let full_handshake_cpu_ns = after.saturating_sub(before) / u64::from(SCALING_HANDSHAKES);
        let array = &self.experiment.array;
        // A page that is CPU time takes as much longer under the quota as the handshake does.
        let speed = match array.transaction_cost {
            PageCost::Wait => array.machine_cpus,
            PageCost::Cpu => 1.0,
        };
        let page_ns = full_handshake_cpu_ns as f64 / speed / array.handshake_pages_ratio;
        self.scale = PageScale { transaction_ns: (page_ns as u64).max(1), full_handshake_cpu_ns };
        Ok(())
    }

    fn start_dispatchers(&mut self) -> Result<()> {
        if !self.experiment.array.spread.contains(&Spread::Dispatcher) {
            return Ok(());
        }
        for &proxies in self.experiment.array.proxies.iter().filter(|count| **count > 0) {
            let behind = self.proxy_addresses(Spread::Dispatcher, proxies);
            let policy = Policy::Own(dispatch::Policy::Session);
            let (ip, cpu) = (self.experiment.array.ip(), self.placement.load);
            let dispatcher = dispatcher::start(policy, &behind, ip, cpu, None, self.directory.path());
            self.dispatchers.push(ArrayDispatcher { proxies, dispatcher: dispatcher.or_fault(Fault::Server)? });
        }
        Ok(())
    }

    /// Checks that a page comes whole from every machine, and that quotas are in force.
    fn check_machines(&mut self) -> Result<()> {
        let server = self.server.as_ref().context("the server was started")?;
        let (address, plain) = (server.address(), server.plain_address());
        let plain = plain.context("the transaction server also listens without TLS")?;
        let mut checks = vec![
            format!("transaction server, plain HTTP: {}", self.get(plain, false)?),
            format!("transaction server, TLS: {}", self.get(address, true)?),
        ];
        for set in &self.sets {
            for (number, proxy) in (1..).zip(&set.proxies) {
                let got = self.get(proxy.address(), true).with_context(|| format!("proxy {number}{}", log_tail(proxy)));
                checks.push(format!("proxy {number}, {} ticket keys: {}", set.keys, got.or_fault(Fault::Server)?));
            }
        }
        for quota in self.sets.iter().flat_map(|set| &set.proxies).chain(&self.server).filter_map(Instance::quota) {
            let check = quota_check(quota);
            ensure!(check.passed, "{}: {}", check.name, check.seen);
            checks.push(format!("{}: {}", check.name, check.seen));
        }
        self.checks = checks;
        Ok(())
    }

    /// Gets the page over a connection of its own. Answers what came.
    fn get(&self, address: SocketAddr, tls: bool) -> Result<String> {
        let (request, Expect { body_bytes, .. }) = plain_get(&self.site.workload, HOST);
        let config = tls.then(|| Config::new(self.settings(TicketKeys::Own)).map(Arc::new)).transpose()?;
        let answer = exchange(address, config.as_ref(), None, &request).map_err(|failure| anyhow!("{failure}"));
        let answer = answer.or_fault(Fault::Server)?;
        Asked::of(&self.tls(TicketKeys::Own)).require(&answer).or_fault(Fault::Server)?;
        ensure!(answer.status == 200, "it answered with status {}", answer.status);
        let wanted = body_bytes.unwrap_or(answer.body_bytes);
        ensure!(wanted == answer.body_bytes, "a page of {wanted} bytes came with {}", answer.body_bytes);
        Ok(format!("a page of {wanted} bytes came whole"))
    }

    fn settings(&self, keys: TicketKeys) -> Settings {
        self.credentials.client_settings(&self.tls(keys), self.experiment.array.effort)
    }

    fn set(&self, spread: Spread) -> Option<&ProxySet> {
        self.sets.iter().find(|set| set.keys == spread.ticket_keys())
    }

    fn proxy_addresses(&self, spread: Spread, proxies: u32) -> Vec<SocketAddr> {
        let all = self.set(spread).into_iter().flat_map(|set| &set.proxies);
        all.take(proxies as usize).map(Instance::address).collect()
    }

    /// Where the clients of a place connect to.
    fn addresses(&self, place: &ArrayPlace) -> Vec<SocketAddr> {
        let server = || self.server.iter();
        match place {
            ArrayPlace { percent: None, .. } => server().filter_map(Instance::plain_address).collect(),
            ArrayPlace { proxies: 0, .. } => server().map(Instance::address).collect(),
            ArrayPlace { spread: Spread::Dispatcher, proxies, .. } => {
                let of_place = |before: &&ArrayDispatcher| before.proxies == *proxies;
                self.dispatchers.iter().filter(of_place).map(|before| before.dispatcher.instance.address()).collect()
            }
            ArrayPlace { spread, proxies, .. } => self.proxy_addresses(*spread, *proxies),
        }
    }

    /// The first address of a place, which the load process is told with each block.
    pub fn address(&self, place: &ArrayPlace) -> Option<SocketAddr> {
        self.addresses(place).first().copied()
    }

    /// How long the clients of a place take to get going: all begin with a full handshake, and half of that time again
    /// until they are spread over their sessions. Without it short blocks have far less reuse than is asked for
    /// (docs/ARRAY.md).
    pub fn lead_in(&self, place: &ArrayPlace) -> Duration {
        let array = &self.experiment.array;
        if place.percent.is_none() || self.scale.full_handshake_cpu_ns == 0 {
            return LEAD_IN[0];
        }
        let full_s = self.scale.full_handshake_cpu_ns as f64 / 1e9 / array.machine_cpus;
        let all_s = full_s * f64::from(array.clients_count) / f64::from(place.proxies.max(1));
        Duration::from_secs_f64(1.5 * all_s).clamp(LEAD_IN[0], LEAD_IN[1])
    }

    /// CPU times of a place's machines, read when they have come to rest.
    ///
    /// # Errors
    /// A process has died ([`Fault::Server`]), or cannot be accounted for.
    fn usage(&mut self, place: &ArrayPlace) -> Result<Usage> {
        at_rest(|| self.cpu(place))
    }

    /// CPU times of a place's machines so far.
    ///
    /// # Errors
    /// As [`ArrayTestbed::usage`].
    pub fn cpu(&mut self, place: &ArrayPlace) -> Result<Usage> {
        let server = self.server.as_mut().context("the server was started")?;
        let server_ns = living_cpu_ns(server, "the transaction server")?;
        if place.proxies == 0 {
            return Ok(Usage { ends_ns: vec![server_ns], ..Usage::default() });
        }
        let mut usage = Usage { behind_ns: server_ns, ..Usage::default() };
        let keys = place.spread.ticket_keys();
        let set = self.sets.iter_mut().filter(|set| set.keys == keys).flat_map(|set| &mut set.proxies);
        for (number, proxy) in (1..=place.proxies).zip(set) {
            usage.ends_ns.push(living_cpu_ns(proxy, &format!("proxy {number}"))?);
        }
        if place.spread == Spread::Dispatcher {
            for before in self.dispatchers.iter_mut().filter(|before| before.proxies == place.proxies) {
                usage.dispatcher_ns += living_cpu_ns(&mut before.dispatcher.instance, "the dispatcher")?;
            }
        }
        Ok(usage)
    }

    /// Starts anew what has died, so that only the place that lost it is left out. Whether anything had.
    ///
    /// # Errors
    /// It does not start again.
    pub fn replace_dead(&mut self) -> Result<bool> {
        let mut dead = Vec::new();
        for (at, set) in self.sets.iter_mut().enumerate() {
            let of_set = set.proxies.iter_mut().enumerate().filter_map(|(number, one)| one.obituary().map(|_| number));
            dead.extend(of_set.map(|number| (at, number)));
        }
        for &(at, number) in &dead {
            let new = self.started_proxy(number, self.sets[at].keys)?;
            drop(std::mem::replace(&mut self.sets[at].proxies[number], new));
        }
        let is_dead = |before: &mut ArrayDispatcher| before.dispatcher.instance.obituary().is_some();
        if dead.is_empty() && !self.dispatchers.iter_mut().any(is_dead) {
            return Ok(false);
        }
        stop_all(self.dispatchers.drain(..).map(|before| before.dispatcher.instance).collect());
        self.start_dispatchers()?;
        Ok(true)
    }

    /// Starts the load process for all places.
    pub fn start_load(&self, places: &[ArrayPlace]) -> Result<LoadProcess> {
        let array = &self.experiment.array;
        let connections = Connections {
            total: array.clients_count,
            per_user: 1,
            first_alone: true,
            requests_each: (array.by == ReuseAxis::Connections).then_some(1),
            timeout_ns: array.timeout_ms * 1_000_000,
            batch_ns: 0,
        };
        let plan = |place: &ArrayPlace| -> Result<Plan> {
            let of_hits = place.percent.filter(|_| array.by == ReuseAxis::Hits);
            let resumption = match place.percent {
                Some(percent) if array.by == ReuseAxis::Connections && percent > 0.0 => {
                    Resumption::ShareOfEach(percent / 100.0)
                }
                // A session by hits ends with its connection.
                Some(_) | None => Resumption::Never,
            };
            let servers = self.addresses(place);
            let address = *servers.first().context("a place has a machine to connect to")?;
            let config = || Config::new(self.settings(place.spread.ticket_keys())).map(Arc::new);
            let tls = place.percent.map(|_| config()).transpose()?;
            let target = Target { address, host: HOST.to_owned(), tls };
            let route = Route {
                servers: if servers.len() > 1 { servers } else { Vec::new() },
                server_of_client: place.spread == Spread::Client,
                ..Route::default()
            };
            let requests = of_hits.map(hits_per_handshake).transpose()?;
            Ok(Plan {
                route,
                resumption,
                // As users do who came at different times: otherwise each block would begin with a surge, and end in
                // one.
                session_limits: SessionLimits { requests, staggered: true, ..SessionLimits::default() },
                lead_in_ns: self.lead_in(place).as_nanos() as u64,
                ..Plan::new(target, Arc::clone(&self.site.workload), connections)
            })
        };
        let plans = places.iter().map(plan).collect::<Result<Vec<_>>>()?;
        let (workers, directory) = (self.experiment.workers.as_ref(), self.directory.path());
        LoadProcess::start(&plans, &ClientModel::default(), workers, directory, self.placement.load)
    }

    /// The proxies, as many as there are at most, and the server; for the manifest.
    pub fn machines(&self) -> impl Iterator<Item = (String, &Instance)> {
        let set = |set: &ProxySet| format!("proxy, {} ticket keys", set.keys);
        let proxies = self.sets.iter().filter_map(move |one| Some((set(one), one.proxies.first()?)));
        let server = self.server.iter().map(|server| ("transaction server".to_owned(), server));
        let dispatchers = self.dispatchers.first().map(|before| ("dispatcher".to_owned(), &before.dispatcher.instance));
        proxies.chain(server).chain(dispatchers)
    }

    /// What the logs of a place's machines end with, as the end of an error message.
    pub fn log_tail(&self, place: &ArrayPlace) -> String {
        let proxies = self.set(place.spread).into_iter().flat_map(|set| &set.proxies).take(place.proxies as usize);
        proxies.chain(&self.server).map(log_tail).collect()
    }
}

fn living_cpu_ns(instance: &mut Instance, name: &str) -> Result<u64> {
    instance.living_cpu_ns(|instance, obituary| format!("{name}: {obituary}{}", log_tail(instance)))
}
