//! The machines of an array: the transaction server, proxies before it, dispatchers before these.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_engine::dispatch;
use tlsdyno_engine::load::{self, Plan, Resumption, SessionLimits};
use tlsdyno_engine::serve::Transaction;
use tlsdyno_load::curve::file::hits_per_handshake;
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_record::model::{Policy, ServerName, TicketKeys, Tls, place_of_load};
use tlsdyno_runner::run::load_process::LoadProcess;
use tlsdyno_servers::{Origin, ServerSpec, start_proxy};
use tlsdyno_stats::reuse::ReuseAxis;

use super::accelerator::{self, Accelerators};
use crate::array::PageScale;
use crate::array::file::{ArrayExperiment, ArrayPlace, PageCost, Spread};
use crate::several_machines::placement::{Placement, USED_OF_SHARED, Wanted, on_cpus};
use crate::several_machines::testbed::{Clients, Route, Testbed, server};

/// Full handshakes by which the CPU time of one is measured.
const MEASURED_HANDSHAKES: u32 = 40;
/// A page that costs next to nothing, while handshakes are measured, nanoseconds.
const SHORT_PAGE_NS: u64 = 1_000;
/// The shortest and the longest lead-in of a block; the shortest is also that of plain HTTP.
const LEAD_IN: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];
/// Requests of a user before its place goes to the next: more than a client makes in a block.
const REQUESTS_PER_USER: u32 = 20_000;

/// What an array asks of the CPUs. The first machine is the transaction server. Of each spread with other ticket keys
/// there is a set of proxies, but only one works at a time.
pub fn wanted(experiment: &ArrayExperiment) -> Wanted<'_> {
    let proxies = experiment.most_proxies();
    Wanted {
        measure: &experiment.measure,
        count: 1 + proxies as usize,
        name: format!("a server and {proxies} proxies"),
        cpus: Some(experiment.array.machine_cpus),
        shared_most: USED_OF_SHARED,
        dispatcher_apart: false,
        flag: "--machine-cpus",
        otherwise: "fewer --proxies",
        no_limit: "the machines of an array have quotas of CPU time",
    }
}

pub fn description(placement: &Placement, experiment: &ArrayExperiment) -> String {
    let proxies = match placement.machines[1..] {
        [] => "no proxies".to_owned(),
        [one] => format!("1 proxy on {}", on_cpus(&[one])),
        ref several => format!("{} proxies on {}", several.len(), on_cpus(several)),
    };
    let load = place_of_load(experiment.workers.as_ref(), placement.load);
    format!("transaction server on CPU {}, {proxies}, {}; {load}", placement.machines[0], placement.limit())
}

/// Everything that is up while blocks are measured.
pub struct Machines<'a> {
    experiment: &'a ArrayExperiment,
    pub scale: PageScale,
    /// CPU time of a machine that ends TLS for a connection with a full handshake and one page, nanoseconds.
    full_handshake_cpu_ns: u64,
    /// What was checked of all machines, a sentence each.
    checks: Vec<String>,
    /// The machine that stands for all in the record.
    pub first: usize,
    /// What their proxies have besides; `None`: nothing, as while a full handshake is measured.
    pub accelerators: Option<Accelerators>,
    pub routes: Vec<Route>,
    pub testbed: Testbed,
}

impl<'a> Machines<'a> {
    /// Makes page and certificate, measures a full handshake, scales pages by it if they are to be, and starts all
    /// machines.
    /// `say` is told what is being done.
    ///
    /// # Errors
    /// One of them does not start, with what it said; a quota is not in force.
    pub fn start(
        experiment: &'a ArrayExperiment,
        placement: Placement,
        say: &mut dyn FnMut(&str),
    ) -> Result<Machines<'a>> {
        let array = &experiment.array;
        let workload = WorkloadSpec::Url {
            path: "/page".to_owned(),
            bytes: Some(array.page_bytes),
            users: array.clients_count,
            requests_per_user: REQUESTS_PER_USER,
        };
        let place = (placement, array.ip());
        let testbed = Testbed::prepare(&workload, experiment.tls.certificate(), array.effort, place, say)?;
        let scale = PageScale { transaction_ns: (array.transaction_us * 1e3) as u64, full_handshake_cpu_ns: 0 };
        let (checks, routes, accelerators) = (Vec::new(), Vec::new(), None);
        let full_handshake_cpu_ns = 0;
        let mut machines =
            Machines { experiment, scale, full_handshake_cpu_ns, checks, first: 0, accelerators, routes, testbed };
        say("measuring a full handshake");
        machines.measure_full_handshake()?;
        if array.handshake_pages_ratio > 0.0 {
            machines.scale_pages();
        }
        if let Some(accelerator) = &array.accelerator {
            let (key, cpu) = (&machines.testbed.credentials.files.key, machines.testbed.placement.machines[0]);
            machines.accelerators = Some(Accelerators::of(accelerator, array.machine_cpus, key, cpu)?);
            machines.testbed.off = accelerator::OFF;
        }
        say("starting the transaction server, proxies and dispatchers");
        machines.start_all()?;
        Ok(machines)
    }

    fn tls(&self, keys: TicketKeys) -> Tls {
        Tls { ticket_keys: Some(keys), ..self.experiment.tls.clone() }
    }

    fn spec(&self, keys: TicketKeys, machine: usize) -> ServerSpec {
        ServerSpec {
            tls: Some(self.testbed.credentials.server_tls(&self.tls(keys))),
            cpus: vec![self.testbed.placement.machines[machine]],
            quota_cpus: self.testbed.placement.quota_cpus,
            connections: self.experiment.array.clients_count,
            ip: self.experiment.array.address,
            ..ServerSpec::new(ServerName::Builtin, self.testbed.docroot())
        }
    }

    fn start_server(&mut self, transaction_ns: u64) -> Result<usize> {
        let transaction = match self.experiment.array.transaction_cost {
            PageCost::Wait => Transaction { wait_ns: transaction_ns, ..Transaction::default() },
            PageCost::Cpu => Transaction { cpu_ns: transaction_ns, ..Transaction::default() },
        };
        let spec = ServerSpec { transaction: Some(transaction), ..self.spec(TicketKeys::Own, 0) };
        self.testbed.start("transaction server".to_owned(), true, server(spec))
    }

    /// Starts a proxy, numbered from 1, before this server.
    fn start_proxy(&mut self, number: usize, keys: TicketKeys, server: usize) -> Result<usize> {
        let origin = self.testbed.machine(server).plain_address().map(Origin::Server);
        let mut spec = ServerSpec { origin, ..self.spec(keys, number) };
        let mut injection = None;
        if let Some(accelerators) = &self.accelerators {
            let place = self.testbed.place(&format!("accelerator-{number}-{keys}"));
            let (fitted, own) = accelerators.fitted(spec, &place)?;
            (spec, injection) = (fitted, Some(own));
        }
        let proxy = self.experiment.array.proxy;
        let start = move |run: &Path| start_proxy(proxy, &spec, run);
        let machine = self.testbed.start(format!("proxy {number}, {keys} ticket keys"), false, Box::new(start))?;
        if let (Some(accelerators), Some(injection)) = (&mut self.accelerators, injection) {
            accelerators.keep(machine, injection);
        }
        Ok(machine)
    }

    fn measure_full_handshake(&mut self) -> Result<()> {
        let server = self.start_server(SHORT_PAGE_NS)?;
        let route = match self.experiment.most_proxies() {
            0 => Route { ends: vec![server], ..Route::default() },
            _ => Route { ends: vec![self.start_proxy(1, TicketKeys::Own, server)?], ..Route::default() },
        };
        let (address, tls) = (self.testbed.entries(&route)[0], self.tls(TicketKeys::Own));
        // The first makes what later ones find.
        self.testbed.get(address, Some(&tls))?;
        let before = self.testbed.cpu_at_rest(&route)?;
        for _ in 0..MEASURED_HANDSHAKES {
            self.testbed.get(address, Some(&tls))?;
        }
        let used_ns = self.testbed.cpu_at_rest(&route)?.since(&before).ends_ns[0];
        self.testbed.stop();
        self.full_handshake_cpu_ns = used_ns / u64::from(MEASURED_HANDSHAKES);
        Ok(())
    }

    /// Makes pages as long as the experiment wants them beside the full handshake of a machine that ends TLS.
    fn scale_pages(&mut self) {
        let (array, full_handshake_cpu_ns) = (&self.experiment.array, self.full_handshake_cpu_ns);
        // A page that is CPU time takes as much longer under the quota as the handshake does.
        let speed = match array.transaction_cost {
            PageCost::Wait => array.machine_cpus,
            PageCost::Cpu => 1.0,
        };
        let page_ns = full_handshake_cpu_ns as f64 / speed / array.handshake_pages_ratio;
        self.scale = PageScale { transaction_ns: (page_ns as u64).max(1), full_handshake_cpu_ns };
    }

    fn start_all(&mut self) -> Result<()> {
        let array = &self.experiment.array;
        let server = self.start_server(self.scale.transaction_ns)?;
        let mut sets: Vec<(TicketKeys, Vec<usize>)> = Vec::new();
        for keys in [TicketKeys::Own, TicketKeys::Shared] {
            if array.spread.iter().any(|spread| spread.ticket_keys() == keys) {
                let numbers = 1..=self.experiment.most_proxies() as usize;
                let proxies = numbers.map(|number| self.start_proxy(number, keys, server)).collect::<Result<_>>()?;
                sets.push((keys, proxies));
            }
        }
        let set = |keys: TicketKeys| sets.iter().find(|set| set.0 == keys).map_or(&[][..], |set| &set.1[..]);
        let mut dispatchers: Vec<(u32, usize)> = Vec::new();
        for &proxies in array.proxies.iter().filter(|&&count| count > 0 && array.spread.contains(&Spread::Dispatcher)) {
            let behind = set(Spread::Dispatcher.ticket_keys())[..proxies as usize].to_vec();
            let policy = Policy::Own(dispatch::Policy::Session);
            let name = format!("dispatcher before {proxies} proxies");
            dispatchers.push((proxies, self.testbed.dispatch(name, (policy, array.ip()), behind, None)?));
        }
        let route = |place: &ArrayPlace| match place.proxies {
            0 => Route { ends: vec![server], ..Route::default() },
            count => Route {
                dispatcher: dispatchers
                    .iter()
                    .find(|of| of.0 == count && place.spread == Spread::Dispatcher)
                    .map(|of| of.1),
                ends: set(place.spread.ticket_keys())[..count as usize].to_vec(),
                behind: vec![server],
                onward: None,
            },
        };
        self.routes = self.experiment.places().iter().map(route).collect();
        let proxies: Vec<usize> = sets.iter().flat_map(|set| set.1.iter().copied()).collect();
        self.first = proxies.first().copied().unwrap_or(server);
        self.check_machines(server, &proxies)
    }

    /// Checks that a page comes whole from every machine.
    fn check_machines(&mut self, server: usize, proxies: &[usize]) -> Result<()> {
        let plain = self.testbed.machine(server).plain_address();
        let plain = plain.context("the transaction server also listens without TLS")?;
        let tls = self.tls(TicketKeys::Own);
        self.checks.push(format!("transaction server, plain HTTP: {}", self.testbed.get(plain, None)?));
        for &number in [server].iter().chain(proxies) {
            let route = Route { ends: vec![number], ..Route::default() };
            let name = self.testbed.name(number).to_owned();
            let counted = self.accelerators.as_ref().map_or(Ok(None), |of| of.counters(number))?;
            let got = self.testbed.pass_through(&route, Some(&tls)).with_context(|| name.clone())?;
            self.checks.push(format!("{name}, TLS: {got}"));
            if let (Some(accelerators), Some(before)) = (&self.accelerators, counted) {
                let seen = accelerators.check(number, self.testbed.machine(number), before);
                self.checks.push(format!("{name}: {}", seen.with_context(|| name.clone()).or_fault(Fault::Server)?));
            }
        }
        Ok(())
    }

    /// What was checked before a place is measured, a sentence each.
    pub fn checks(&self, index: usize) -> Vec<String> {
        let quotas = self.testbed.checks(&self.routes[index]);
        self.checks.iter().cloned().chain(quotas).collect()
    }

    /// Where the clients of a place connect to.
    pub fn entries(&self, index: usize, place: &ArrayPlace) -> Vec<SocketAddr> {
        let route = &self.routes[index];
        match place.percent {
            None => self.testbed.machine(route.ends[0]).plain_address().into_iter().collect(),
            Some(_) => self.testbed.entries(route),
        }
    }

    /// How long the clients of a place take to get going: all begin with a full handshake, and half of that time again
    /// until they are spread over their sessions. Without it short blocks have far less reuse than is asked for
    /// (docs/ARRAY.md).
    pub fn lead_in(&self, place: &ArrayPlace) -> Duration {
        let array = &self.experiment.array;
        if place.percent.is_none() {
            return LEAD_IN[0];
        }
        let full_s = self.full_handshake_cpu_ns as f64 / 1e9 / array.machine_cpus;
        let all_s = full_s * f64::from(array.clients_count) / f64::from(place.proxies.max(1));
        Duration::from_secs_f64(1.5 * all_s).clamp(LEAD_IN[0], LEAD_IN[1])
    }

    /// Starts the load process for all places.
    pub fn start_load(&self, places: &[ArrayPlace]) -> Result<LoadProcess> {
        let array = &self.experiment.array;
        let by_connections = array.by == ReuseAxis::Connections;
        let requests_each = by_connections.then_some(1);
        let clients = Clients { total: array.clients_count, requests_each, timeout_ms: array.timeout_ms };
        let plan = |(index, place): (usize, &ArrayPlace)| -> Result<Plan> {
            let resumption = match place.percent {
                Some(percent) if by_connections && percent > 0.0 => Resumption::ShareOfEach(percent / 100.0),
                // A session by hits ends with its connection.
                _ => Resumption::Never,
            };
            let tls = place.percent.map(|_| self.tls(place.spread.ticket_keys()));
            let requests = place.percent.filter(|_| !by_connections).map(hits_per_handshake).transpose()?;
            let (name, entries) = (self.experiment.name(place), self.entries(index, place));
            let plan = self.testbed.plan(&name, entries, tls.as_ref(), clients)?;
            Ok(Plan {
                route: load::Route { server_of_client: place.spread == Spread::Client, ..plan.route },
                resumption,
                // As users do who came at different times: otherwise each block would begin with a surge, and end in
                // one.
                session_limits: SessionLimits { requests, staggered: true, ..SessionLimits::default() },
                lead_in_ns: self.lead_in(place).as_nanos() as u64,
                ..plan
            })
        };
        let plans = places.iter().enumerate().map(plan).collect::<Result<Vec<_>>>()?;
        self.testbed.start_load(&plans, (self.experiment.workers.as_ref(), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_share_what_the_load_leaves() {
        let said = |allowed: &[usize]| {
            let mut experiment = ArrayExperiment::default();
            experiment.array.proxies = vec![4];
            description(&Placement::of(&wanted(&experiment), allowed).unwrap(), &experiment)
        };
        assert_eq!(
            said(&[0, 1]),
            "transaction server on CPU 0, 4 proxies on CPU 0, at most 0.1 CPUs each (quota of the kernel); \
             load on CPU 1"
        );
        assert!(said(&[0, 1, 2, 3]).contains(", 4 proxies on CPUs 0, 1, 2, "), "{}", said(&[0, 1, 2, 3]));
    }
}
