//! Machines of an experiment, and dispatchers before them: started once, all up together, ended together.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tlsdyno_base::exchange::exchange;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::until::until;
use tlsdyno_engine::load::{self, BROWSER_STREAMS, Connections, Expect, LoadTarget, Plan};
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_record::model::{CertificateKind, ClientModel, Network, Policy, Tls, WorkersModel};
use tlsdyno_record::store::Manifest;
use tlsdyno_runner::run::credentials::{Credentials, HOST};
use tlsdyno_runner::run::hardware::quota_check;
use tlsdyno_runner::run::load_process::LoadProcess;
use tlsdyno_runner::run::manifest;
use tlsdyno_runner::run::pace::{Pace, Reading};
use tlsdyno_runner::run::preflight::negotiated::Asked;
use tlsdyno_runner::run::request::plain_get;
use tlsdyno_runner::run::schedule::{Piece, requests_of_users};
use tlsdyno_runner::run::testbed::{log_tail, make_site, stop_all};
use tlsdyno_servers::cpu::at_rest;
use tlsdyno_servers::dispatcher::{self, Dispatcher};
use tlsdyno_servers::{Instance, RunDirectory, ServerSpec};
use tlsdyno_tls::{Config, Effort, Settings, StageSet};
use tlsdyno_workloads::ServedWorkload;

use super::placement::Placement;

/// How long a dispatcher may take until it has counted the last connections of a block.
const COUNTED_WITHIN: Duration = Duration::from_secs(10);
const COUNTING_STEP: Duration = Duration::from_millis(2);

/// Starts a machine in a directory of its own inside the one that it is given.
pub type Start = Box<dyn Fn(&Path) -> Result<Instance>>;

struct Machine {
    /// `proxy 2`.
    name: String,
    start: Start,
    /// Others need it, so that it ends after them.
    is_behind: bool,
    /// What was checked of it, a sentence each.
    checks: Vec<String>,
    instance: Instance,
}

/// A dispatcher with what starts it anew.
struct Front {
    name: String,
    policy: Policy,
    ip: IpAddr,
    ends: Vec<usize>,
    timeout_s: Option<u32>,
    dispatcher: Dispatcher,
}

/// The way of the connections of one configuration: numbers of dispatchers and machines of a [`Testbed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The dispatcher; `None`: clients connect to the machines themselves.
    pub dispatcher: Option<usize>,
    pub ends: Vec<usize>,
    /// What these need: a cache of sessions, a server behind proxies.
    pub behind: Vec<usize>,
    /// The way of the requests that these pass on, in plain HTTP; `None`: they answer them.
    pub onward: Option<Box<Route>>,
}

/// CPU times and counts so far; differences of two of them count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub dispatcher_ns: u64,
    /// CPU time of each machine that connections end at, nanoseconds.
    pub ends_ns: Vec<u64>,
    /// CPU time of each machine that these pass requests on to, nanoseconds.
    pub onward_ns: Vec<u64>,
    /// CPU time of all that these need, nanoseconds.
    pub behind_ns: u64,
    /// Connections passed to each end, by the dispatcher's count; empty without one.
    pub connections: Vec<u64>,
    /// Connections passed to each machine that these pass requests on to; empty where no dispatcher stands before it.
    pub onward_connections: Vec<u64>,
    /// Samples of the pace of the machines' CPUs.
    pub sampled: Reading,
    /// Time of a unit of the fixed work of these samples since then, picoseconds; 0: none were taken.
    pub pace_ps: u64,
}

impl Usage {
    #[must_use]
    pub fn since(&self, before: &Usage) -> Usage {
        let each = |after: &[u64], before: &[u64]| {
            after.iter().zip(before).map(|(after, before)| after.saturating_sub(*before)).collect()
        };
        Usage {
            dispatcher_ns: self.dispatcher_ns.saturating_sub(before.dispatcher_ns),
            ends_ns: each(&self.ends_ns, &before.ends_ns),
            onward_ns: each(&self.onward_ns, &before.onward_ns),
            behind_ns: self.behind_ns.saturating_sub(before.behind_ns),
            connections: each(&self.connections, &before.connections),
            onward_connections: each(&self.onward_connections, &before.onward_connections),
            sampled: self.sampled.clone(),
            pace_ps: self.sampled.since(&before.sampled),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Clients {
    pub total: u32,
    /// Requests on each connection; `None`: as many as there are.
    pub requests_each: Option<u32>,
    /// Time-out of a connection without progress, milliseconds.
    pub timeout_ms: u64,
}

pub struct Testbed {
    pub site: ServedWorkload,
    pub placement: Placement,
    pub credentials: Credentials,
    effort: Effort,
    /// The address that clients connect to.
    pub ip: IpAddr,
    /// Stages that machines which end connections have off, but for those that others need, and so do their clients.
    pub off: StageSet,
    machines: Vec<Machine>,
    fronts: Vec<Front>,
    pace: Pace,
    // Last: servers must be stopped before their directory goes.
    directory: RunDirectory,
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Testbed {
    /// Makes workload, files and certificate. Starts nothing yet. `say` is told what is being done.
    pub fn prepare(
        workload: &WorkloadSpec,
        certificate: CertificateKind,
        effort: Effort,
        (placement, ip): (Placement, IpAddr),
        say: &mut dyn FnMut(&str),
    ) -> Result<Testbed> {
        let directory = RunDirectory::create()?;
        let site = make_site(workload, directory.path(), say)?;
        say("making certificates");
        let credentials = Credentials::create(certificate, directory.path())?;
        let pace = Pace::start(&placement.cpus().iter().map(|&cpu| cpu as usize).collect::<Vec<_>>());
        let (machines, fronts) = (Vec::new(), Vec::new());
        let off = StageSet::NONE;
        Ok(Testbed { site, placement, credentials, effort, ip, off, machines, fronts, pace, directory })
    }

    pub fn docroot(&self) -> PathBuf {
        self.place("docroot")
    }

    /// Where what a machine is handed may be, in a directory of this name.
    pub fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a machine and checks that its quota is in force. Answers its number.
    ///
    /// # Errors
    /// It does not start, with what it said ([`Fault::Server`]); its quota stops nobody.
    pub fn start(&mut self, name: String, is_behind: bool, start: Start) -> Result<usize> {
        let started = start(self.directory.path()).with_context(|| format!("failed to start {name}"));
        let instance = started.or_fault(Fault::Server)?;
        let mut checks = Vec::new();
        if let Some(quota) = &instance.quota {
            let check = quota_check(quota);
            let said = format!("{name}: {}: {}", check.name, check.seen);
            ensure!(check.passed, "{said}");
            checks.push(said);
        }
        self.machines.push(Machine { name, start, is_behind, checks, instance });
        Ok(self.machines.len() - 1)
    }

    /// Starts a dispatcher before these machines, which listens at `ip`. Answers its number. `timeout_s`: how long ours
    /// remembers a session; `None`: an hour.
    pub fn dispatch(
        &mut self,
        name: String,
        (policy, ip): (Policy, IpAddr),
        ends: Vec<usize>,
        timeout_s: Option<u32>,
    ) -> Result<usize> {
        let dispatcher = self.started_dispatcher((policy, ip), &ends, timeout_s)?;
        self.fronts.push(Front { name, policy, ip, ends, timeout_s, dispatcher });
        Ok(self.fronts.len() - 1)
    }

    fn started_dispatcher(
        &self,
        (policy, ip): (Policy, IpAddr),
        ends: &[usize],
        timeout_s: Option<u32>,
    ) -> Result<Dispatcher> {
        let behind: Vec<SocketAddr> = ends.iter().map(|&end| self.machine(end).address()).collect();
        let cpu = self.placement.dispatcher;
        dispatcher::start(policy, &behind, ip, cpu, timeout_s, self.directory.path()).or_fault(Fault::Server)
    }

    /// Ends dispatchers, then machines, then what these need, each all at once: one after the other would take seconds.
    pub fn stop(&mut self) {
        stop_all(self.fronts.drain(..).map(|front| front.dispatcher.instance).collect());
        let (behind, ends): (Vec<Machine>, Vec<Machine>) =
            self.machines.drain(..).partition(|machine| machine.is_behind);
        stop_all(ends.into_iter().map(|machine| machine.instance).collect());
        stop_all(behind.into_iter().map(|machine| machine.instance).collect());
    }

    /// Starts anew what has died and what stood before it, but for what others need.
    pub fn replace_dead(&mut self) -> Result<()> {
        let mut replaced = Vec::new();
        for (number, machine) in self.machines.iter_mut().enumerate() {
            if !machine.is_behind && machine.instance.obituary().is_some() {
                machine.instance = (machine.start)(self.directory.path()).or_fault(Fault::Server)?;
                replaced.push(number);
            }
        }
        for number in 0..self.fronts.len() {
            let front = &mut self.fronts[number];
            let is_dead = front.dispatcher.instance.obituary().is_some();
            if is_dead || front.ends.iter().any(|end| replaced.contains(end)) {
                let (rule, ends, timeout_s) = ((front.policy, front.ip), front.ends.clone(), front.timeout_s);
                self.fronts[number].dispatcher = self.started_dispatcher(rule, &ends, timeout_s)?;
            }
        }
        Ok(())
    }

    pub fn machine(&self, number: usize) -> &Instance {
        &self.machines[number].instance
    }

    pub fn name(&self, number: usize) -> &str {
        &self.machines[number].name
    }

    pub fn entries(&self, route: &Route) -> Vec<SocketAddr> {
        match route.dispatcher {
            Some(dispatcher) => vec![self.fronts[dispatcher].dispatcher.instance.address()],
            None => route.ends.iter().map(|&end| self.machine(end).address()).collect(),
        }
    }

    pub fn checks(&self, route: &Route) -> Vec<String> {
        let machines = route.ends.iter().chain(&route.behind).map(|&number| &self.machines[number]);
        let onward = route.onward.iter().flat_map(|onward| self.checks(onward));
        machines.flat_map(|machine| machine.checks.iter().cloned()).chain(onward).collect()
    }

    /// Gets an object over a connection of its own. `tls`: as the server has it; `None`: plain HTTP. Answers what came.
    ///
    /// # Errors
    /// It does not come whole, or by another handshake than was asked for; [`Fault::Server`].
    pub fn get(&self, address: SocketAddr, tls: Option<&Tls>) -> Result<String> {
        let got = || -> Result<String> {
            let (request, Expect { body_bytes, .. }) = plain_get(&self.site.workload, HOST);
            let config = self.client(tls, address)?;
            let answer = exchange(address, config.as_ref(), None, &request).map_err(|failure| anyhow!("{failure}"))?;
            tls.map_or(Ok(()), |tls| Asked::of(tls).require(&answer))?;
            ensure!(answer.status == 200, "it answered with status {}", answer.status);
            let wanted = body_bytes.unwrap_or(answer.body_bytes);
            ensure!(wanted == answer.body_bytes, "an object of {wanted} bytes came with {}", answer.body_bytes);
            Ok(format!("an object of {wanted} bytes came whole"))
        };
        got().or_fault(Fault::Server)
    }

    /// Gets an object by way of a route, where every dispatcher has to count the connection.
    ///
    /// # Errors
    /// As [`Testbed::get`], with what the logs say; the dispatcher counts another number.
    pub fn pass_through(&mut self, route: &Route, tls: Option<&Tls>) -> Result<String> {
        let before: u64 = self.passed(route, 0)?.iter().sum();
        let address = self.entries(route)[0];
        let with_log = |error| Fault::Server.wrap(anyhow!("{error:#}{}", self.log_tail(route)));
        let got = self.get(address, tls).map_err(with_log)?;
        if route.dispatcher.is_none() {
            return Ok(got);
        }
        let after: u64 = self.passed(route, before + 1)?.iter().sum();
        ensure!(after == before + 1, "it counted {} connections in place of one", after - before);
        Ok(format!("{got}, by one connection"))
    }

    /// Checks that front ends make a connection for each request to a dispatcher behind them, which chooses by
    /// connection: of two requests each has its own. Says what was seen.
    ///
    /// # Errors
    /// As [`Testbed::get`]; the dispatcher behind counts another number.
    pub fn choose_each(&mut self, route: &Route, tls: Option<&Tls>) -> Result<Option<String>> {
        let Some(onward) = route.onward.as_deref().filter(|onward| onward.dispatcher.is_some()) else {
            return Ok(None);
        };
        let before: u64 = self.passed(onward, 0)?.iter().sum();
        let address = self.entries(route)[0];
        // Each front end gets two at least.
        let requests = 2 * route.ends.len() as u64;
        for _ in 0..requests {
            self.get(address, tls)?;
        }
        let chosen = self.passed(onward, before + requests)?.iter().sum::<u64>() - before;
        // One that failed is made again.
        ensure!(
            chosen >= requests,
            "the front ends made {chosen} connections for {requests} requests, so that no server is chosen for each{}",
            self.log_tail(route)
        );
        Ok(Some(format!("a server was chosen for each of {requests} requests")))
    }

    /// Connections that the dispatcher of a route has passed to each machine, as soon as they add up to `wanted`, or as
    /// they are when it takes too long. Empty without a dispatcher.
    pub fn passed(&mut self, route: &Route, wanted: u64) -> Result<Vec<u64>> {
        let Some(number) = route.dispatcher else { return Ok(Vec::new()) };
        let dispatcher = &mut self.fronts[number].dispatcher;
        let is_counted = |counts: &Vec<u64>| counts.iter().sum::<u64>() >= wanted;
        until(COUNTED_WITHIN, COUNTING_STEP, || dispatcher.connections(), is_counted)
    }

    /// Connections that the dispatcher behind front ends has passed to each machine; empty where there is none.
    pub fn passed_onward(&mut self, route: &Route, wanted: u64) -> Result<Vec<u64>> {
        route.onward.as_deref().map_or(Ok(Vec::new()), |onward| self.passed(onward, wanted))
    }

    /// CPU times of a route so far.
    ///
    /// # Errors
    /// A process has died ([`Fault::Server`]), or cannot be accounted for.
    pub fn cpu(&mut self, route: &Route) -> Result<Usage> {
        Ok(Usage { sampled: self.pace.read(&self.placement.machines), ..self.clocks(route)? })
    }

    fn clocks(&mut self, route: &Route) -> Result<Usage> {
        let mut usage = Usage::default();
        for &number in &route.behind {
            usage.behind_ns += self.machines[number].living_cpu_ns()?;
        }
        for &number in &route.ends {
            let machine = &mut self.machines[number];
            usage.ends_ns.push(machine.living_cpu_ns()?);
            usage.behind_ns += machine.instance.companions_cpu_ns()?.iter().map(|(_, ns)| ns).sum::<u64>();
        }
        if let Some(number) = route.dispatcher {
            let Front { name, dispatcher, .. } = &mut self.fronts[number];
            usage.dispatcher_ns = living_cpu_ns(&mut dispatcher.instance, name)?;
        }
        if let Some(onward) = &route.onward {
            let Usage { dispatcher_ns, ends_ns, behind_ns, .. } = self.clocks(onward)?;
            usage.dispatcher_ns += dispatcher_ns;
            usage.behind_ns += behind_ns;
            usage.onward_ns = ends_ns;
        }
        Ok(usage)
    }

    /// CPU times of a route, read when all have come to rest: the last closes are still their work.
    pub fn cpu_at_rest(&mut self, route: &Route) -> Result<Usage> {
        let usage = at_rest(|| self.clocks(route))?;
        Ok(Usage { sampled: self.pace.read(&self.placement.machines), ..usage })
    }

    /// A load of one configuration, to be made what the experiment asks for. `tls`: as its servers have it; `None`:
    /// plain HTTP.
    pub fn plan(&self, name: &str, entries: Vec<SocketAddr>, tls: Option<&Tls>, clients: Clients) -> Result<Plan> {
        let address = *entries.first().with_context(|| format!("\"{name}\" has no machine"))?;
        let tls = self.client(tls, address)?;
        let target = LoadTarget { address, host: HOST.to_owned(), tls, prior_knowledge: false };
        let streams = if target.offers_http2() { BROWSER_STREAMS } else { 1 };
        let connections = Connections {
            total: clients.total,
            per_user: 1,
            first_alone: true,
            requests_each: clients.requests_each,
            timeout_ns: clients.timeout_ms * 1_000_000,
            batch_ns: 0,
        };
        let plan = Plan::new(target, Arc::clone(&self.site.workload), connections);
        let servers = if entries.len() > 1 { entries } else { Vec::new() };
        Ok(Plan { route: load::Route { servers, ..load::Route::default() }, streams, ..plan })
    }

    /// The client of machines with these settings, of which the first is reached there.
    fn client(&self, tls: Option<&Tls>, address: SocketAddr) -> Result<Option<Arc<Config>>> {
        let is_needed = |machine: &Machine| machine.is_behind && machine.instance.address() == address;
        let stages_off = if self.machines.iter().any(is_needed) { StageSet::NONE } else { self.off };
        let of = |tls| Settings { stages_off, ..self.credentials.client_settings(tls, self.effort) };
        let settings = tls.map(of);
        Ok(settings.map(|settings| Config::new(settings).map(Arc::new)).transpose()?)
    }

    /// Starts the load process for these plans: whom it has make the load, and the network that it goes through.
    pub fn start_load(
        &self,
        plans: &[Plan],
        between: (Option<&WorkersModel>, Option<&Network>),
    ) -> Result<LoadProcess> {
        let client = ClientModel::default();
        LoadProcess::start(plans, &client, between, self.directory.path(), self.placement.load)
    }

    pub fn everybody(&self) -> Piece {
        let requests = requests_of_users(&self.site.workload);
        Piece { users: 0..requests.len() as u32, requests: requests.iter().copied().map(u64::from).sum() }
    }

    /// Fills in what the machines say, once everything runs. `server`: stands for all of its kind; `also`: others whose
    /// configuration is kept.
    pub fn describe(&self, manifest: &mut Manifest, workers: Option<&WorkersModel>, server: usize, also: &[usize]) {
        manifest.server_cpus = self.placement.cpus();
        manifest.client_cpus = manifest::cpus_of_load(workers, self.placement.load);
        manifest.effort = self.effort.to_string();
        manifest.workload = manifest::workload_line(&self.site.summary);
        manifest::describe_server(manifest, self.machine(server).description());
        let also = also.iter().map(|&number| &self.machines[number]);
        let behind = self.machines.iter().filter(|machine| machine.is_behind).chain(also);
        let behind = behind.map(|machine| (&machine.name, &machine.instance));
        let fronts = self.fronts.iter().map(|front| (&front.name, &front.dispatcher.instance));
        for (name, instance) in behind.chain(fronts) {
            let description = instance.description();
            let text = format!("# {}\n{}", description.version, description.config);
            manifest.server_config.entry(name.clone()).or_insert(text);
        }
    }

    pub fn log_tail(&self, route: &Route) -> String {
        let dispatcher = route.dispatcher.map(|number| &self.fronts[number].dispatcher.instance);
        let machines = route.ends.iter().chain(&route.behind).map(|&number| self.machine(number));
        let onward = route.onward.as_ref().map(|onward| self.log_tail(onward));
        dispatcher.into_iter().chain(machines).map(log_tail).chain(onward).collect()
    }
}

impl Machine {
    fn living_cpu_ns(&mut self) -> Result<u64> {
        living_cpu_ns(&mut self.instance, &self.name)
    }
}

fn living_cpu_ns(instance: &mut Instance, name: &str) -> Result<u64> {
    instance.living_cpu_ns(|instance, obituary| format!("{name}: {obituary}{}", log_tail(instance)))
}

pub fn server(spec: ServerSpec) -> Start {
    Box::new(move |run| tlsdyno_servers::start(&spec, run))
}
