//! The testbed: everything that is started and written before the first block, and taken down after the last.

mod loads;
mod recordings;
mod server_pool;
mod server_under_test;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use tlsdyno_base::exchange::exchange;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::listening;
use tlsdyno_base::namespace::Apart;
use tlsdyno_engine::load::Expect;
use tlsdyno_engine::serve::Transaction;
use tlsdyno_native::{Doubling, Handed, Hardware, Injection, ShimInjection, ShimSettings};
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_record::model::{COUNTED_CODE, CertificateKind, ConfigurationModel, Experiment, Method, ServerName, Tls};
use tlsdyno_servers::{Instance, Library, RunDirectory, ServerSpec, tls_library};
use tlsdyno_tls::{ClientCertificate, Config, Settings, Stage, StageSet};
use tlsdyno_traffic::load::client;
use tlsdyno_workloads::{self as workloads, ServedWorkload};

use super::bound::preparing_most;
use super::cpus::{self, Cpus, Placement};
use super::credentials::{Credentials, HOST};
use super::instruments::Instruments;
use super::recording::Recording;
use super::request::plain_get;
use super::{hardware, modes, own_command};
use server_pool::ServerPool;
pub use server_under_test::ServerUnderTest;

pub struct Testbed {
    pub site: ServedWorkload,
    pub servers: Vec<ServerUnderTest>,
    pub cpus: Cpus,
    pub experiment: Experiment,
    /// The name that clients ask for in TLS and HTTP.
    pub host_name: String,
    client_certificate: Option<Arc<ClientCertificate>>,
    /// Address on which servers listen.
    ip: IpAddr,
    /// Only one server can run at a time, because their port is fixed.
    pub take_turns: bool,
    /// The TLS library of a user's own server was not looked at yet: it may be any.
    library_is_open: bool,
    /// Servers whose first start has not begun by then are left out; `None`: no limit.
    pub prepared_until: Option<Instant>,
    credentials: BTreeMap<(CertificateKind, u32), Credentials>,
    recordings: Vec<((Tls, Option<Library>), Recording)>,
    /// Installations of OpenSSL in the experiment by prefix, the first of the server first.
    pub libraries: Vec<(PathBuf, Library)>,
    /// The servers' own network, or the reason why they have none.
    pub network: Result<Apart, String>,
    // Last: servers must be stopped before their directory goes.
    directory: RunDirectory,
}

impl Drop for Testbed {
    fn drop(&mut self) {
        stop_all(self.servers.iter_mut().flat_map(|server| server.pool.take_all()).collect());
    }
}

impl Testbed {
    /// Makes the workload, its files, certificates and provider settings, without starting any server. `say` receives
    /// each step.
    pub fn prepare(experiment: &Experiment, cpus: Cpus, say: &mut dyn FnMut(&str)) -> Result<Testbed> {
        let prepared_until = Some(Instant::now() + preparing_most(&experiment.measure));
        let mut libraries = Vec::new();
        let of_configurations = experiment.configurations.iter().filter_map(|model| model.library.as_ref());
        for prefix in experiment.server.libraries.iter().chain(of_configurations) {
            if libraries.iter().all(|(other, _)| other != prefix) {
                libraries.push((prefix.clone(), Library::at(prefix)?));
            }
        }
        let is_command = experiment.server.kind.is_users_own();
        let directory = if is_command { RunDirectory::create_for_command() } else { RunDirectory::create() }?;
        let mut site = make_site(&experiment.workload, directory.path(), say)?;
        let client = &experiment.server.client;
        let lines = client::header_lines(client, experiment.load.browser_headers).or_fault(Fault::Usage)?;
        site.workload = client::workload(&site, &lines);
        let hosts = modes::hosts(experiment);
        // Slices are shorter than what a user of many requests takes.
        let requests_alone = experiment.load.requests_are_alone() && hosts.iter().any(Option::is_some);
        if requests_alone {
            site.workload = Arc::new(workloads::requests_alone(&site.workload));
        }
        say("making certificates");
        let mut credentials = BTreeMap::new();
        for model in &experiment.configurations {
            let tls = model.tls.applied(&experiment.tls);
            let (kind, length) = (tls.certificate(), tls.chain_count);
            if let Entry::Vacant(place) = credentials.entry((kind, length)) {
                let made = Credentials::with_chain(kind, length, directory.path())?;
                place.insert(made);
            }
        }
        let mut testbed = Testbed {
            site,
            servers: Vec::new(),
            cpus,
            experiment: experiment.clone(),
            host_name: experiment.server.host.clone().unwrap_or_else(|| HOST.to_owned()),
            client_certificate: client::certificate(client).or_fault(Fault::Input)?.map(Arc::new),
            ip: experiment.server.ip()?,
            take_turns: false,
            library_is_open: is_command,
            prepared_until,
            credentials,
            recordings: Vec::new(),
            libraries,
            network: own_command::network(experiment),
            directory,
        };
        for (index, host) in hosts.into_iter().enumerate() {
            let server = testbed.server(index, host)?;
            testbed.take_turns |= server.spec.has_fixed_port();
            testbed.servers.push(server);
        }
        Ok(testbed)
    }

    fn server(&self, index: usize, host: Option<usize>) -> Result<ServerUnderTest> {
        let experiment = &self.experiment;
        let model = &experiment.configurations[index];
        let stages = model.stages_on_the_wire();
        let tls = model.tls.applied(&experiment.tls);
        let placement = cpus::place(self.cpus, &cpus::allowed(), model.processors)
            .with_context(|| format!("configuration \"{}\"", model.name))
            .or_fault(Fault::Environment)?;
        let mut emulated = None;
        // A mode is no server: its host has the libraries.
        let instruments = match host {
            Some(_) => Instruments::default(),
            None => self.instruments(index, &tls, &mut emulated)?,
        };
        let handed = instruments.handed();
        let handed = if experiment.uses(Method::Counting) { handed.and(counted_code()) } else { handed };
        let emulated = hardware::description(model, &placement, hardware::workers(model), emulated, self.cpus.load);
        let companion = self.cpus.companion(&placement.server, &cpus::allowed());
        let spec = ServerSpec {
            handed,
            changing_quota: modes::is_on_machines(experiment, index),
            companion_cpu: Some(companion),
            ..self.spec(model, &tls, &placement)
        };
        let settings = (!model.plain_http).then(|| self.client_settings(&tls, stages));
        Ok(ServerUnderTest {
            model: model.clone(),
            host,
            base: host.and_then(|_| modes::base(experiment, model)),
            placement,
            companion_shares_load: companion == self.cpus.load,
            hardware: emulated,
            instruments,
            profiling: None,
            foreign_session: None,
            asked: own_command::asked_of(experiment, model),
            is_tls_client: own_command::installed(experiment).is_some_and(|installed| installed.site.is_tls_client()),
            tls,
            settings,
            spec,
            instance: None,
            pool: ServerPool::default(),
            address: SocketAddr::new(self.ip, 0),
        })
    }

    /// How to start the server of a configuration, without the libraries that are loaded into it.
    fn spec(&self, model: &ConfigurationModel, tls: &Tls, placement: &Placement) -> ServerSpec {
        let experiment = &self.experiment;
        let is_command = experiment.server.kind.is_users_own();
        // An own command serves TLS and plain HTTP in one process, so it always gets its certificate.
        let plain = model.plain_http && !is_command;
        let foreign = experiment.foreign_traffic.as_ref();
        ServerSpec {
            command: is_command.then(|| own_command::command_spec(experiment, Some(model))),
            tls: if plain { None } else { Some(self.credentials(tls).server_tls(tls)) },
            http2: tls.http2 && !(model.plain_http && is_command),
            asked_of_installed: model.tls.over(&experiment.tls.of_server()),
            // A server of others stays as it is.
            cpus: if foreign.is_some() { Vec::new() } else { placement.server.clone() },
            outlives_owner: foreign.is_some(),
            writable: experiment.server.writable.clone(),
            apart: self.network.is_ok(),
            quota_cpus: placement.quota_cpus,
            // Without TLS a server may load none.
            library: self.library(model).filter(|_| !plain).cloned(),
            allow_insecure_listen: experiment.may_listen_anywhere()
                || foreign.is_some_and(|traffic| traffic.open_listen),
            ip: Some(self.ip),
            workers: hardware::workers(model),
            asynchronous: model.accelerator.as_ref().is_some_and(|accelerator| accelerator.asynchronous),
            connections: experiment.load.connections,
            transaction: model.page_cost_us.and_then(transaction),
            ..ServerSpec::new(model.server(experiment.server.kind), self.docroot())
        }
    }

    /// Libraries for the server of a configuration. `emulated` receives the hardware that its provider emulates.
    fn instruments(&self, index: usize, tls: &Tls, emulated: &mut Option<Hardware>) -> Result<Instruments> {
        let model = &self.experiment.configurations[index];
        let mut instruments = Instruments { shim: self.shim(index, model, tls)?, ..Instruments::default() };
        if model.needs_provider() {
            let directory = self.make_directory(&format!("provider-{index}"))?;
            let key = &self.credentials(tls).files.key;
            let mut hardware = hardware::hardware(model, &self.experiment.machines, key, self.cpus.server)?;
            hardware.burn_ns = hardware.burn_ns.max(modes::burn_ns(&self.experiment, index));
            *emulated = Some(hardware);
            let stages = model.stages_on_the_wire().union(model.wrapped).provider();
            instruments.provider = Some(Injection::with_hardware(&directory, stages, hardware)?);
        }
        if model.needs_doubler() {
            instruments.doubler = Some(Doubling::prepare(&self.make_directory(&format!("doubler-{index}"))?)?);
        }
        Ok(instruments)
    }

    fn shim(&self, index: usize, model: &ConfigurationModel, tls: &Tls) -> Result<Option<ShimInjection>> {
        if !model.needs_shim() {
            return Ok(None);
        }
        let directory = self.make_directory(&format!("shim-{index}"))?;
        let settings = ShimSettings {
            suite: tls.suite,
            encrypt_then_mac: tls.encrypt_then_mac,
            tickets: tls.tickets,
            allow_insecure_listen: self.experiment.may_listen_anywhere(),
            ..ShimSettings::new(model.noop.union(model.wrapped), tls.version)
        };
        let shim = ShimInjection::prepare(&directory, &settings)?;
        if !listening::is_loopback(self.ip) {
            // What is checked before the load comes from here.
            shim.permit(&BTreeSet::from([self.ip]))?;
        }
        Ok(Some(shim))
    }

    /// The library that a configuration uses instead of the system's.
    fn library(&self, model: &ConfigurationModel) -> Option<&Library> {
        let prefix = model.library.as_ref().or(self.experiment.server.libraries.first())?;
        self.libraries.iter().find(|(of, _)| of == prefix).map(|(_, library)| library)
    }

    fn credentials(&self, tls: &Tls) -> &Credentials {
        &self.credentials[&(tls.certificate(), tls.chain_count)]
    }

    fn client_settings(&self, tls: &Tls, stages: StageSet) -> Settings {
        let settings = self.credentials(tls).client_settings(tls, self.experiment.load.effort);
        let is_own = self.experiment.server.kind.is_users_own();
        let groups = if is_own { tls.groups_of_own() } else { tls.groups() };
        let client_certificate = match &self.client_certificate {
            // Who has the signatures of the server's side off checks none (docs/NOOP.md).
            Some(certificate) if !stages.contains(Stage::Authentication) => Some(Arc::clone(certificate)),
            _ => None,
        };
        let server_name = Some(client::bare_host(&self.host_name).to_owned());
        Settings { stages_off: stages, server_name, client_certificate, groups, ..settings }
    }

    /// The configuration whose server serves this one: itself, unless it is a mode of another.
    pub fn host(&self, index: usize) -> usize {
        self.servers[index].host.unwrap_or(index)
    }

    /// Connections of this configuration can resume sessions.
    pub fn can_resume(&self, index: usize) -> bool {
        let Experiment { load, tls, .. } = &self.experiment;
        load.reuse_percent != Some(0.0) && self.servers[index].model.tls.applied(tls).is_resumable()
    }

    /// Where this configuration is served.
    pub fn address(&self, index: usize) -> SocketAddr {
        self.servers[self.host(index)].address
    }

    /// `None`: no server of this configuration runs.
    pub fn instance(&mut self, index: usize) -> Option<&mut Instance> {
        let host = self.host(index);
        self.servers[host].instance.as_mut()
    }

    /// The worker processes of this configuration's server. All must have loaded its libraries, else [`Fault::Server`].
    pub fn require_libraries(&mut self, index: usize) -> Result<Vec<u32>> {
        let libraries = self.servers[self.host(index)].libraries();
        let instance = self.instance(index).context("the server does not run").or_fault(Fault::Server)?;
        for (what, library) in libraries {
            let mapped = instance.of_living_workers(|workers| tlsdyno_servers::require_mapped(workers, &library));
            mapped.with_context(|| what.to_owned()).or_fault(Fault::Server)?;
        }
        Ok(instance.worker_pids())
    }

    /// Switches the server of this configuration to its stages, if it has several modes, for later connections, and to
    /// its quota of CPU time.
    pub fn enter_mode(&self, index: usize) -> Result<()> {
        let host = &self.servers[self.host(index)];
        let quota =
            host.instance.as_ref().and_then(|instance| instance.quota.as_ref()).filter(|_| host.spec.changing_quota);
        quota.map_or(Ok(()), |quota| quota.limit(self.servers[index].placement.quota_cpus))?;
        let has_modes = !host.model.wrapped.is_empty() || host.instruments.doubler.is_some();
        if has_modes { host.instruments.set_mode(&self.servers[index].model) } else { Ok(()) }
    }

    /// Starts the server of one configuration if it does not run, after stopping the others where servers take turns.
    /// Then switches to its stages. Returns whether it was started.
    pub fn activate(&mut self, index: usize) -> Result<bool> {
        if self.servers[index].needs_recording() {
            self.give_recording(index)?;
        }
        let started = self.start_host(self.host(index))?;
        self.enter_mode(index)?;
        Ok(started)
    }

    /// Copies what the client knows of `base`'s server to a configuration that is its variant on a machine.
    pub fn follow_base(&mut self, index: usize, base: usize) {
        let (settings, foreign) = (self.servers[base].settings.clone(), self.servers[base].foreign_session.clone());
        self.servers[index].settings = settings;
        self.servers[index].foreign_session = foreign;
    }

    fn start_host(&mut self, index: usize) -> Result<bool> {
        if self.take_turns {
            for (other, server) in self.servers.iter_mut().enumerate() {
                if other != index
                    && let Some(instance) = server.instance.take()
                {
                    instance.stop()?;
                }
            }
        }
        let server = &mut self.servers[index];
        let start = server.instance.is_none();
        if start {
            let instance = server.start(self.directory.path())?;
            server.address = server.address_of(&instance);
            server.instance = Some(instance);
            self.require_openssl(index)?;
        }
        Ok(start)
    }

    /// Looks once at the TLS library of a user's own server, where a library is to be loaded into one.
    fn require_openssl(&mut self, index: usize) -> Result<()> {
        let is_open = std::mem::take(&mut self.library_is_open);
        if !is_open || self.servers.iter().all(|server| server.libraries().is_empty()) {
            return Ok(());
        }
        let server = &self.servers[index];
        let look = || {
            let instance = server.instance.as_ref();
            instance.map_or(Ok(()), |instance| instance.of_living_workers(tls_library::require_openssl))
        };
        if look().is_ok() {
            return Ok(());
        }
        // Some load it with their first connection.
        let config = server.settings.clone().map(|settings| Config::new(settings).map(Arc::new)).transpose()?;
        let _ = exchange(server.address, config.as_ref(), None, &self.preflight_request().0);
        look()
    }

    /// Stops the pooled servers that were measured, and starts `count` new ones of each configuration of `indices` for
    /// [`Testbed::swap_in`]; idle, they cost nothing.
    pub fn fill_pools(&mut self, indices: &BTreeSet<usize>, count: u32) -> Result<()> {
        stop_all(self.servers.iter_mut().flat_map(|server| server.pool.take_measured()).collect());
        for &index in indices {
            let server = &self.servers[index];
            let started: Result<Vec<Instance>> = (0..count).map(|_| server.start(self.directory.path())).collect();
            self.servers[index].pool.add(started?);
        }
        Ok(())
    }

    /// Replaces the running server by the next one of the pool. Returns whether there was one.
    pub fn swap_in(&mut self, index: usize) -> bool {
        let server = &mut self.servers[index];
        if !server.pool.swap_in(&mut server.instance) {
            return false;
        }
        server.address = server.instance.as_ref().map_or(server.address, |instance| server.address_of(instance));
        true
    }

    /// Marks the running server as measured: [`Testbed::swap_in`] will not bring it back.
    pub fn is_measured(&mut self, index: usize) {
        self.servers[index].pool.running_is_measured();
    }

    /// A server that does not stop is killed with its supervisor.
    pub fn stop(&mut self, index: usize) {
        if let Some(instance) = self.servers[index].instance.take() {
            // Dropping it ends what did not end.
            let _ = instance.stop();
        }
    }

    /// CPUs of the servers of all configurations.
    pub fn server_cpus(&self) -> Vec<usize> {
        let cpus: BTreeSet<usize> =
            self.servers.iter().flat_map(|server| server.placement.server.iter().copied()).collect();
        cpus.into_iter().collect()
    }

    /// Last lines of the server's log, for the end of an error message.
    pub fn log_tail(&mut self, index: usize) -> String {
        self.instance(index).map(|instance| log_tail(instance)).unwrap_or_default()
    }

    pub fn is_built_in(&self, index: usize) -> bool {
        self.servers[index].spec.kind == ServerName::Builtin
    }

    pub fn make_directory(&self, name: &str) -> Result<PathBuf> {
        let directory = self.directory.path().join(name);
        tlsdyno_servers::run_directory::make_private(&directory)?;
        Ok(directory)
    }

    pub fn docroot(&self) -> PathBuf {
        self.directory.path().join("docroot")
    }

    /// A whole GET of an object, preferably one with status 200, and the expected answer.
    pub fn preflight_request(&self) -> (Vec<u8>, Expect) {
        plain_get(&self.site.workload, &self.host_name)
    }
}

/// `page_cost_us` in whole microseconds; `None`: pages cost nothing.
fn transaction(page_cost_us: f64) -> Option<Transaction> {
    let cpu_ns = page_cost_us.round() as u64 * 1_000;
    (cpu_ns > 0).then(|| Transaction { cpu_ns, ..Transaction::default() })
}

/// Settings under which all methods see the same code.
fn counted_code() -> Handed {
    let (name, value) = COUNTED_CODE;
    Handed { environment: vec![(name.into(), value.into())], ..Handed::default() }
}

/// Makes the workload, and writes its files into `docroot` of this directory.
pub fn make_site(workload: &WorkloadSpec, directory: &Path, say: &mut dyn FnMut(&str)) -> Result<ServedWorkload> {
    say("making the workload");
    let site = workloads::make(workload).context("failed to make the workload")?;
    site.summary.notes().iter().for_each(|told| say(told));
    say("writing the document root");
    workloads::write_docroot(&site, &directory.join("docroot"))?;
    Ok(site)
}

/// Last lines of the server's log, for the end of an error message.
pub fn log_tail(instance: &Instance) -> String {
    let tail = instance.log_tail();
    if tail.is_empty() { String::new() } else { format!("; the server's log ends with:\n{tail}") }
}

/// Ends servers all at once: one after the other would take seconds.
pub fn stop_all(servers: Vec<Instance>) {
    std::thread::scope(|scope| {
        for server in servers {
            // One that does not stop in order is ended when it is dropped.
            scope.spawn(|| server.stop().ok());
        }
    });
}
