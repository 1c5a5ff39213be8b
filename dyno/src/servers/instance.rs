//! A running server: started, ready, accounted for, and ended with all that belongs to it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;

use super::abilities::Wanted;
use super::apache::{self, Mpm};
use super::cache_server::CacheServer;
use super::command::{self, CommandSpec};
use super::cpu::CpuAccount;
use super::launch::{FOREIGN_VARIABLES, Launch, STDERR_FILE, STDOUT_FILE};
use super::quota::Quota;
use super::reload::{self, Reload};
use super::session_log::SessionLog;
use super::supervised::Supervised;
use super::{
    Companion, Place, Prepared, ServerKind, ServerSpec, SessionCache, SessionCounts, built_in, haproxy, lighttpd, nginx,
};
use super::{listening, mapped, process_tree, run_directory};
use crate::exit::{Exit, OrExit};

/// How long a server of ours may take until it listens.
const OWN_READY_WITHIN: Duration = Duration::from_secs(15);
/// How long a user's own server may take, or one that runs under another program.
const COMMAND_READY_WITHIN: Duration = Duration::from_secs(60);
/// Pause between two looks at a starting server.
const READY_POLL: Duration = Duration::from_millis(5);
/// How often another free port is tried when somebody was faster.
const PORT_ATTEMPTS: u32 = 5;
/// How much of each log goes into messages, in bytes from its end.
const LOG_TAIL_BYTES: usize = 4096;

/// What is said of an address that another program's process listens on.
const SERVED_BY: &str = "is served by process";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// What a server is, for the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Name and version of the server and its OpenSSL.
    pub version: String,
    /// Configuration text, or the command line.
    pub config: String,
    /// The libssl and libcrypto that its workers have loaded.
    pub openssl_libraries: Vec<PathBuf>,
    /// How its CPU time is read: `cgroup` or `schedstat`.
    pub cpu_account: String,
    /// Its addresses.
    pub listening: Vec<SocketAddr>,
    /// Configuration of each server that it needs beside it, by name.
    pub companions: Vec<(String, String)>,
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Instance {
    supervised: Supervised,
    // After `supervised`: a control group can be removed only when its processes are gone.
    cpu: Mutex<CpuAccount>,
    quota: Option<Quota>,
    directory: PathBuf,
    address: SocketAddr,
    plain_address: Option<SocketAddr>,
    version: String,
    config: String,
    error_log: Option<PathBuf>,
    session_log: Option<SessionLog>,
    object_log: Option<PathBuf>,
    /// It is ready when it has so many.
    processes: usize,
    reload: Reload,
    /// How much of each log was already searched for alarms.
    searched: Mutex<BTreeMap<PathBuf, usize>>,
    /// Parts of its cryptography are switched off: nobody else may reach it.
    loopback_only: bool,
    // After `supervised`: what it needs ends after it.
    companions: Vec<Companion>,
}

/// Starts a server in a directory of its own inside `directory` and waits until it is ready.
///
/// The errors say what the server itself said.
pub fn start(spec: &ServerSpec, directory: &Path) -> Result<Instance> {
    check(spec)?;
    let ours = match &spec.kind {
        ServerKind::Command(command) => !command.has_fixed_port(),
        _ => true,
    };
    on_free_ports(directory, ours, |own, ports| {
        start_on(spec, directory, own, ports).map_err(|error| match &spec.kind {
            // Those that we start ourselves have no service manager behind them: somebody was faster at the port.
            kind if !matches!(kind, ServerKind::Command(_)) && format!("{error:#}").contains(SERVED_BY) => {
                error.context("address already in use")
            }
            _ => error,
        })
    })
}

/// Starts something in a directory of its own on free ports; on others (if they are `ours` to choose) if somebody was faster there.
pub(super) fn on_free_ports(
    directory: &Path,
    ours: bool,
    mut start: impl FnMut(&Path, &Ports) -> Result<Instance>,
) -> Result<Instance> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut attempt = 1;
    loop {
        let own = directory.join(format!("server-{number}-{attempt}"));
        run_directory::make_passable(&own)?;
        let result = start(&own, &Ports::choose()?);
        if result.is_err() {
            let _ = fs::remove_dir_all(&own);
        }
        match result {
            Err(error) if ours && attempt < PORT_ATTEMPTS && is_port_taken(&error) => attempt += 1,
            other => return other,
        }
    }
}

fn check(spec: &ServerSpec) -> Result<()> {
    if !spec.docroot.is_dir() {
        bail!("the docroot {} is not a directory", spec.docroot.display());
    }
    if spec.workers == 0 {
        bail!("a server needs at least one worker");
    }
    if spec.log_sessions && matches!(spec.kind, ServerKind::Command(_)) {
        bail!(
            "the session log of a user's own server command is not known; drop it or use nginx or the built-in server"
        );
    }
    if spec.log_sessions && spec.kind == ServerKind::Lighttpd {
        bail!("lighttpd has no variable for resumption that it could log; count on the client's side");
    }
    spec.tls.as_ref().map_or(Ok(()), |tls| Wanted::of(tls).refuse_unable(&spec.kind, spec.workers))
}

/// The server said that its port is taken. All C libraries use this wording for EADDRINUSE.
fn is_port_taken(error: &anyhow::Error) -> bool {
    format!("{error:#}").to_ascii_lowercase().contains("address already in use")
}

/// Ports of one attempt.
pub(super) struct Ports {
    /// The one that everything listens on.
    pub(super) port: u16,
    plain_port: u16,
}

impl Ports {
    /// The addresses of something that only listens on the first.
    pub(super) fn first(&self) -> Addresses {
        Addresses { address: loopback(self.port), plain: None }
    }

    fn choose() -> Result<Ports> {
        let free = || -> Result<TcpListener> { TcpListener::bind("127.0.0.1:0").context("find a free loopback port") };
        // Both held at once, so that they differ.
        let (first, second) = (free()?, free()?);
        Ok(Ports { port: first.local_addr()?.port(), plain_port: second.local_addr()?.port() })
    }
}

/// Where a server shall be reachable.
pub(super) struct Addresses {
    address: SocketAddr,
    plain: Option<SocketAddr>,
}

fn start_on(spec: &ServerSpec, run: &Path, directory: &Path, ports: &Ports) -> Result<Instance> {
    let place = Place { run, own: directory, port: ports.port };
    let ours = |prepared| (prepared, ports.first());
    let (prepared, addresses) = match &spec.kind {
        ServerKind::BuiltIn => ours(built_in::prepare(spec, place)?),
        ServerKind::Nginx => ours(nginx::prepare(spec, place)?),
        ServerKind::ApacheEvent => ours(apache::prepare(spec, Mpm::Event, place, cache_server(spec, run)?)?),
        ServerKind::ApachePrefork => ours(apache::prepare(spec, Mpm::Prefork, place, cache_server(spec, run)?)?),
        ServerKind::Haproxy => ours(haproxy::prepare(spec, place, backend(spec, run)?)?),
        ServerKind::Lighttpd => ours(lighttpd::prepare(spec, place)?),
        ServerKind::Command(command) => prepare_command(command, spec, directory, ports)?,
    };
    start_prepared(spec, directory, prepared, addresses)
}

/// Starts what is prepared and waits until it is ready. Of the specification only processors, quota, environment and what follows from
/// them count.
pub(super) fn start_prepared(
    spec: &ServerSpec,
    directory: &Path,
    prepared: Prepared,
    addresses: Addresses,
) -> Result<Instance> {
    refuse_taken(&addresses)?;
    let cpu = CpuAccount::best();
    let account = match &cpu {
        CpuAccount::Cgroup(group) => Some(group),
        CpuAccount::Threads(_) => None,
    };
    let quota = spec.quota_cpus.map(|cpus| Quota::set(cpus, account)).transpose().or_exit(Exit::Environment)?;
    let mut cgroups: Vec<PathBuf> = account.iter().map(|group| group.path().to_owned()).collect();
    cgroups.extend(quota.iter().filter(|quota| quota.is_own_group()).map(|quota| quota.path().to_owned()));
    let launch = launch(spec, directory, &prepared, cgroups);
    let mut instance = Instance {
        supervised: Supervised::start(&launch)?,
        cpu: Mutex::new(cpu),
        quota,
        directory: directory.to_owned(),
        address: addresses.address,
        plain_address: addresses.plain,
        version: prepared.version,
        config: prepared.config,
        error_log: prepared.error_log,
        session_log: prepared.session_log,
        object_log: prepared.object_log,
        processes: prepared.processes,
        reload: prepared.reload,
        searched: Mutex::new(BTreeMap::new()),
        loopback_only: spec.is_altered() && !spec.allow_insecure_listen,
        companions: prepared.companions,
    };
    instance.await_ready(spec)?;
    Ok(instance)
}

/// The address of a port on loopback.
pub(super) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The plain server behind a proxy: the built-in one, untouched.
fn backend(spec: &ServerSpec, run: &Path) -> Result<Companion> {
    let plain = ServerSpec {
        cpus: spec.companion_cpu.into_iter().collect(),
        ..ServerSpec::new(ServerKind::BuiltIn, spec.docroot.clone())
    };
    let instance = start(&plain, run).context("failed to start the plain server behind the proxy")?;
    Ok(Companion { name: "backend", instance })
}

/// The server of its own that keeps the sessions, where they are kept in one and it shares none.
fn cache_server(spec: &ServerSpec, run: &Path) -> Result<Option<Companion>> {
    let cache = spec.tls.as_ref().map_or(SessionCache::Off, |tls| tls.session_cache);
    if spec.session_server.is_some() {
        return Ok(None);
    }
    let name = CacheServer::of(cache).map_or("", CacheServer::name);
    let started = start_session_server(cache, spec.companion_cpu, run)?;
    Ok(started.map(|instance| Companion { name, instance }))
}

/// Starts the server that keeps sessions in this way, in a directory of its own inside `run`; `None` where none is needed.
///
/// # Errors
/// Its program is missing (with the remedy), or it does not start.
pub fn start_session_server(cache: SessionCache, cpu: Option<usize>, run: &Path) -> Result<Option<Instance>> {
    let Some(server) = CacheServer::of(cache) else { return Ok(None) };
    // Of the specification only the processor counts here.
    let plain = ServerSpec { cpus: cpu.into_iter().collect(), ..ServerSpec::new(ServerKind::BuiltIn, run.to_owned()) };
    let start =
        |own: &Path, ports: &Ports| start_prepared(&plain, own, server.prepare(own, ports.port)?, ports.first());
    let instance = on_free_ports(run, true, start);
    instance.map(Some).with_context(|| format!("failed to start {} for the sessions", server.name()))
}

fn launch(spec: &ServerSpec, directory: &Path, prepared: &Prepared, cgroups: Vec<PathBuf>) -> Launch {
    // A user's own command keeps its environment: `as is` means just that.
    let is_command = matches!(spec.kind, ServerKind::Command(_));
    let without = if is_command { Vec::new() } else { FOREIGN_VARIABLES.iter().map(Into::into).collect() };
    let here = || std::env::current_dir().unwrap_or_else(|_| directory.to_owned());
    let mut words = spec.under.iter().chain([&prepared.program]).chain(&prepared.arguments).cloned();
    Launch {
        program: words.next().unwrap_or_default(),
        arguments: words.collect(),
        environment: spec.environment.clone(),
        without,
        directory: directory.to_owned(),
        // A user's command may name its files relative to where tlsdyno was started.
        working_directory: if is_command { here() } else { directory.to_owned() },
        cpus: spec.cpus.clone(),
        cgroups,
        raise_open_files: prepared.raise_open_files,
        grace_ms: prepared.grace_ms,
    }
}

fn prepare_command(
    command: &CommandSpec,
    spec: &ServerSpec,
    directory: &Path,
    ports: &Ports,
) -> Result<(Prepared, Addresses)> {
    let path = |path: &Path| path.display().to_string();
    let mut values = BTreeMap::from([
        ("port", ports.port.to_string()),
        ("plain_port", ports.plain_port.to_string()),
        ("docroot", path(&spec.docroot)),
        ("dir", path(directory)),
    ]);
    if let Some(tls) = &spec.tls {
        values.insert("certificate", path(&tls.certificate.chain));
        values.insert("key", path(&tls.certificate.key));
        values.insert("ca", path(&tls.certificate.ca));
    }
    let words = command.words(&values)?;
    let resolved = |template: &str| command::resolve(&command::fill(template, &values)?);
    let addresses = Addresses {
        address: resolved(&command.address)?,
        plain: command.plain_address.as_deref().map(resolved).transpose()?,
    };
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let prepared = Prepared {
        version: format!("own command, program {program}"),
        config: command.command.clone(),
        raise_open_files: false,
        grace_ms: 5_000,
        ..Prepared::new(program, words.map(Into::into).collect())
    };
    Ok((prepared, addresses))
}

/// Somebody else at our address would be measured in our server's place.
fn refuse_taken(addresses: &Addresses) -> Result<()> {
    for address in [Some(addresses.address), addresses.plain].into_iter().flatten() {
        let owners = listening::owners(&address);
        if !owners.is_empty() {
            bail!(
                "address already in use: {address} is taken by process {}; stop that process, or give this server another port",
                owners.join(" and ")
            );
        }
    }
    Ok(())
}

impl Instance {
    /// Where it serves what was asked for (TLS, or plain HTTP without TLS settings).
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where a user's own command serves plain HTTP beside TLS.
    pub fn plain_address(&self) -> Option<SocketAddr> {
        self.plain_address
    }

    /// The private directory of this instance.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Processes that serve connections: those without children, and of these, if any has libssl loaded, only such.
    pub fn worker_pids(&self) -> Vec<u32> {
        let leaves = process_tree::leaves(&self.supervised.processes());
        let has_openssl = |pid: &u32| {
            mapped::mapped_libraries(*pid)
                .is_ok_and(|libraries| libraries.iter().any(|library| mapped::is_openssl(&library.path)))
        };
        let with_openssl: Vec<u32> = leaves.iter().copied().filter(has_openssl).collect();
        if with_openssl.is_empty() { leaves } else { with_openssl }
    }

    /// Every process of the server.
    pub fn pids(&self) -> Vec<u32> {
        self.supervised.processes().iter().map(|process| process.pid).collect()
    }

    /// CPU time that all its processes used so far, user and system, in nanoseconds; differences of two readings count.
    pub fn cpu_ns(&self) -> Result<u64> {
        let mut account = self.cpu.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &mut *account {
            CpuAccount::Cgroup(group) => group.cpu_ns(),
            CpuAccount::Threads(_) => account.read_ns(&self.supervised.processes()),
        }
    }

    /// [`Instance::cpu_ns`] of a server that lives. Of one that has died the accounting may answer (control group) or fail (no process is
    /// left to read); either way the death is the news.
    ///
    /// # Errors
    /// What `died` makes of the obituary; that the accounting cannot be read.
    pub fn living_cpu_ns(&mut self, died: impl FnOnce(&Instance, &str) -> String) -> Result<u64> {
        let cpu = self.cpu_ns();
        match self.obituary() {
            Some(obituary) => Err(anyhow!(died(self, &obituary))).or_exit(Exit::Server),
            None => cpu,
        }
    }

    /// The quota of CPU time that it runs under.
    pub fn quota(&self) -> Option<&Quota> {
        self.quota.as_ref()
    }

    /// CPU time of each server that it needs beside it (HAProxy's `backend`), by name, in nanoseconds: no part of [`Instance::cpu_ns`].
    pub fn companions_cpu_ns(&self) -> Result<Vec<(&'static str, u64)>> {
        self.companions.iter().map(|companion| Ok((companion.name, companion.instance.cpu_ns()?))).collect()
    }

    /// Whether any of its processes lives, and everything that it needs.
    pub fn is_alive(&mut self) -> bool {
        self.obituary().is_none()
    }

    /// Who has died and how, if anybody has: the server itself or one that it needs.
    pub fn obituary(&mut self) -> Option<String> {
        if let Some(status) = self.supervised.ended() {
            return Some(format!("the server has died ({status})"));
        }
        self.companions.iter_mut().find_map(|companion| {
            let status = companion.instance.supervised.ended()?;
            Some(format!("its {} has died ({status})", companion.name))
        })
    }

    /// Makes it read its configuration anew without dropping connections, and waits until it has.
    ///
    /// # Errors
    /// It knows no reload (the built-in server, a user's own command), or does not do it in time.
    pub fn reload(&mut self) -> Result<()> {
        let said = || {
            let logs = self.logs().into_iter().map(|path| fs::read(path).unwrap_or_default());
            logs.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect::<Vec<_>>().join("\n")
        };
        let subject = reload::Subject { first: self.supervised.pid(), workers: &|| self.worker_pids(), said: &said };
        reload::reload(self.reload, &subject)
    }

    /// Where it listens, by the kernel's word.
    pub fn listening_addresses(&self) -> Vec<SocketAddr> {
        listening::listening_addresses(&self.pids())
    }

    /// Fails if parts of the server's cryptography are switched off and it can be reached from another host, by TCP or UDP. A server may
    /// open further sockets at any time: to be asked again before it is put under load.
    ///
    /// # Errors
    /// Where it listens, or that one of its processes cannot be looked into, and the remedy.
    pub fn refuse_open_listeners(&self) -> Result<()> {
        if !self.loopback_only {
            return Ok(());
        }
        listening::refuse_open_listeners(&listening::open_addresses(&self.pids())?)
    }

    /// What it is.
    pub fn description(&self) -> Description {
        let libraries =
            self.worker_pids().first().and_then(|&pid| mapped::mapped_libraries(pid).ok()).unwrap_or_default();
        Description {
            version: self.version.clone(),
            config: self.config.clone(),
            openssl_libraries: libraries
                .into_iter()
                .map(|library| library.path)
                .filter(|path| mapped::is_openssl(path))
                .collect(),
            cpu_account: self.cpu.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).method().to_owned(),
            listening: self.listening_addresses(),
            companions: self
                .companions
                .iter()
                .map(|Companion { name, instance }| {
                    ((*name).to_owned(), format!("{}\n{}", instance.version, instance.config))
                })
                .collect(),
        }
    }

    /// What the server said of its connections; needs `log_sessions`.
    pub fn session_counts(&self) -> Result<SessionCounts> {
        self.session_log.as_ref().context("this server was not asked to log its sessions")?.read()
    }

    /// Where it logs what it is asked for; needs `log_objects`.
    pub fn object_log(&self) -> Option<&Path> {
        self.object_log.as_deref()
    }

    /// The last lines of its error log, standard error and standard output.
    pub fn log_tail(&self) -> String {
        let tails = self.logs().into_iter().map(|path| tail(&path)).filter(|text| !text.is_empty());
        tails.collect::<Vec<_>>().join("\n")
    }

    /// Lines of alarm in its logs since the last call: workers killed by signals, levels crit, alert and emerg.
    pub fn error_log_alarms(&self) -> Vec<String> {
        let mut searched = self.searched.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut alarms = Vec::new();
        for path in self.logs() {
            let bytes = fs::read(&path).unwrap_or_default();
            let from = searched.entry(path).or_default();
            let new = String::from_utf8_lossy(bytes.get(*from..).unwrap_or_default()).into_owned();
            alarms.extend(new.lines().filter(|line| is_alarm(line)).map(str::to_owned));
            *from = bytes.len();
        }
        alarms
    }

    /// Ends the server with all its processes and removes its directory.
    pub fn stop(self) -> Result<()> {
        self.supervised.stop()
    }

    fn logs(&self) -> Vec<PathBuf> {
        let own = [STDERR_FILE, STDOUT_FILE].map(|name| self.directory.join(name));
        self.error_log.iter().cloned().chain(own).collect()
    }

    fn await_ready(&mut self, spec: &ServerSpec) -> Result<()> {
        let patience = match spec.kind {
            ServerKind::Command(_) => COMMAND_READY_WITHIN,
            _ if !spec.under.is_empty() => COMMAND_READY_WITHIN,
            _ => OWN_READY_WITHIN,
        };
        let limit = Instant::now() + patience;
        loop {
            if let Some(status) = self.supervised.ended().map(str::to_owned) {
                bail!("the server did not start ({status}); it said:\n{}", self.last_words());
            }
            let ready = self.is_ready();
            // In every turn: a server that is not ready yet, or never will be, is open to the network all the same.
            self.refuse_open_listeners()?;
            if ready {
                return Ok(());
            }
            // nginx tries the same port five times before it gives up; that is too late for us.
            let log = self.log_tail();
            if log.to_ascii_lowercase().contains("address already in use") {
                bail!("the server did not start; it said:\n{log}");
            }
            // On a busy machine a look takes long: it may have become ready since the last one.
            if Instant::now() > limit && !self.is_ready() {
                bail!("{}", self.why_not_ready(patience));
            }
            std::thread::sleep(READY_POLL);
        }
    }

    fn is_ready(&self) -> bool {
        let listening = self.listening_addresses();
        let serves = |wanted: &SocketAddr| listening.iter().any(|listener| listening::serves(listener, wanted));
        serves(&self.address) && self.plain_address.as_ref().is_none_or(serves) && self.pids().len() >= self.processes
    }

    fn why_not_ready(&self, patience: Duration) -> String {
        let seconds = patience.as_secs();
        let wanted = match self.plain_address {
            Some(plain) => format!("{} and {plain}", self.address),
            None => self.address.to_string(),
        };
        let owners = listening::owners(&self.address);
        if !owners.is_empty() {
            return format!(
                "{wanted} {SERVED_BY} {}, which was not started by the server command; tlsdyno must start the server itself \
                 (not through a service manager or container daemon) to account for its CPU time",
                owners.join(" and ")
            );
        }
        let listening: Vec<String> = self.listening_addresses().iter().map(ToString::to_string).collect();
        let instead = if listening.is_empty() { "nothing".to_owned() } else { listening.join(", ") };
        format!(
            "the server is not ready after {seconds} s: it should listen on {wanted}, but listens on {instead}; it said:\n{}",
            self.last_words()
        )
    }

    fn last_words(&self) -> String {
        let said = self.log_tail();
        if said.is_empty() { "(nothing)".to_owned() } else { said }
    }
}

/// What servers write when something is badly wrong: nginx; Apache, whose levels stand behind the module's name; HAProxy; lighttpd; Rust.
const ALARMS: [&str; 12] = [
    "[crit]",
    "[alert]",
    "[emerg]",
    "exited on signal",
    ":crit]",
    ":alert]",
    ":emerg]",
    "exit signal",
    "[ALERT]",
    "[EMERG]",
    "child exited with signal",
    "panicked at",
];

fn is_alarm(line: &str) -> bool {
    ALARMS.iter().any(|mark| line.contains(mark))
}

/// The end of a text file, whole lines, at most [`LOG_TAIL_BYTES`].
fn tail(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let start = bytes.len().saturating_sub(LOG_TAIL_BYTES);
    let text = String::from_utf8_lossy(&bytes[start..]).into_owned();
    let whole = if start == 0 { text.as_str() } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
    whole.trim_end().to_owned()
}
