//! Starting a server: its directory, its ports, its configuration, and what it needs beside it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

use super::Instance;
use super::ready::SERVED_BY;
use crate::exit::{Exit, OrExit};
use crate::model::SessionCache;
use crate::servers::abilities::Wanted;
use crate::servers::apache::{self, Mpm};
use crate::servers::cache_server::CacheServer;
use crate::servers::command::{self, CommandSpec};
use crate::servers::cpu::CpuAccount;
use crate::servers::launch::{FOREIGN_VARIABLES, Launch};
use crate::servers::quota::Quota;
use crate::servers::supervised::Supervised;
use crate::servers::{
    Companion, Place, Prepared, ServerKind, ServerSpec, built_in, haproxy, lighttpd, listening, nginx, run_directory,
};

/// How often another free port is tried when somebody was faster.
const PORT_ATTEMPTS: u32 = 5;

static NEXT: AtomicU32 = AtomicU32::new(0);

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
pub(in crate::servers) fn on_free_ports(
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
pub(in crate::servers) struct Ports {
    /// The one that everything listens on.
    pub(in crate::servers) port: u16,
    plain_port: u16,
}

impl Ports {
    /// The addresses of something that only listens on the first.
    pub(in crate::servers) fn first(&self) -> Addresses {
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
pub(in crate::servers) struct Addresses {
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
pub(in crate::servers) fn start_prepared(
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
pub(in crate::servers) fn loopback(port: u16) -> SocketAddr {
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
        handed: spec.handed.clone(),
        owner_process_id: std::process::id(),
        without,
        // Pid files of a user's own server must hold numbers that mean something outside.
        own_pid_namespace: !is_command,
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
