//! Starting a server: its directory, its ports, its configuration, and what it needs beside it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, anyhow, bail};

use super::Instance;
use crate::cpu::CpuAccount;
use crate::launch::{FOREIGN_VARIABLES, Launch};
use crate::quota::Quota;
use crate::supervised::Supervised;
use crate::view::View;
use crate::{Place, Prepared, ServerSpec, Wanted, driver_of, held_back, run_directory, small_keys};
use tlsdyno_base::fault::{Fault, OrFault, fault_of};
use tlsdyno_base::listening;
use tlsdyno_native::Handed;
use tlsdyno_record::model::ServerName;

/// How often another free port is tried when somebody was faster.
const PORT_ATTEMPTS: u32 = 5;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Starts a server in a directory of its own inside `directory` and waits until it is ready.
///
/// The errors say what the server itself said.
pub fn start(spec: &ServerSpec, directory: &Path) -> Result<Instance> {
    check(spec)?;
    on_free_ports(directory, !spec.has_fixed_port(), |own, ports| start_on(spec, directory, own, ports))
}

/// Starts something in a directory of its own on free ports; on others (if they are `ours` to choose) if somebody was
/// faster there.
pub(crate) fn on_free_ports(
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
            Err(error) if ours && attempt < PORT_ATTEMPTS && fault_of(&error) == Some(Fault::PortTaken) => attempt += 1,
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
    if let Some(why) = driver_of(spec.kind).no_session_log().filter(|_| spec.log_sessions) {
        bail!("{why}");
    }
    spec.tls.as_ref().map_or(Ok(()), |tls| Wanted::of(tls).refuse_unable(spec.kind, spec.workers))
}

/// Ports of one attempt.
pub(crate) struct Ports {
    /// The one that everything listens on.
    pub(crate) port: u16,
    plain_port: u16,
}

impl Ports {
    /// The addresses of something that only listens on the first.
    pub(crate) fn first(&self, ip: IpAddr) -> Addresses {
        Addresses { address: SocketAddr::new(ip, self.port), plain: None }
    }

    fn choose() -> Result<Ports> {
        let free = || -> Result<TcpListener> { TcpListener::bind("127.0.0.1:0").context("find a free loopback port") };
        // Both held at once, so that they differ.
        let (first, second) = (free()?, free()?);
        Ok(Ports { port: first.local_addr()?.port(), plain_port: second.local_addr()?.port() })
    }
}

/// Where a server shall be reachable.
#[derive(Debug)]
pub(crate) struct Addresses {
    pub(crate) address: SocketAddr,
    /// Where it also serves plain HTTP.
    pub(crate) plain: Option<SocketAddr>,
}

fn start_on(spec: &ServerSpec, run: &Path, directory: &Path, ports: &Ports) -> Result<Instance> {
    let place = Place { run, own: directory, ip: spec.ip, port: ports.port, plain_port: ports.plain_port };
    let mut prepared = driver_of(spec.kind).prepare(spec, place)?;
    let first = Addresses { address: SocketAddr::new(spec.ip, ports.port), plain: None };
    let addresses = prepared.addresses.take().unwrap_or(first);
    start_prepared(spec, directory, prepared, addresses)
}

/// Starts what is prepared and waits until it is ready. Of the specification only processors, quota, environment and
/// what follows from them count.
pub(crate) fn start_prepared(
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
    let quota = match spec.quota_cpus {
        Some(cpus) => Some(Quota::set(cpus, account).or_fault(Fault::Environment)?),
        // Where there can be none, what needs it is left out; this server does not.
        None if spec.changing_quota => Quota::set(1.0, account).ok(),
        None => None,
    };
    if let Some(quota) = quota.as_ref().filter(|_| spec.quota_cpus.is_none()) {
        quota.limit(None).or_fault(Fault::Environment)?;
    }
    let mut cgroups: Vec<PathBuf> = account.iter().map(|group| group.path().to_owned()).collect();
    cgroups.extend(quota.iter().filter(|quota| quota.is_own_group()).map(|quota| quota.path().to_owned()));
    let launch = launch(spec, directory, &prepared, cgroups)?;
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
        permitted: (spec.is_altered() && !spec.allow_insecure_listen).then_some(spec.ip),
        is_own_command: spec.kind == ServerName::Command,
        companions: prepared.companions,
    };
    instance.await_ready(spec)?;
    if let Some(library) = &spec.library {
        instance.of_living_workers(|pids| library.require_mapped(pids))?;
    }
    Ok(instance)
}

fn launch(spec: &ServerSpec, directory: &Path, prepared: &Prepared, cgroups: Vec<PathBuf>) -> Result<Launch> {
    // A user's own command keeps its environment: `as is` means just that.
    let is_command = spec.is_users_own();
    let without = if is_command { Vec::new() } else { FOREIGN_VARIABLES.iter().map(Into::into).collect() };
    let here = || std::env::current_dir().unwrap_or_else(|_| directory.to_owned());
    let mut environment = small_keys::environment(spec, directory)?;
    environment.extend(spec.library.as_ref().map(|library| library.variable(directory)).transpose()?);
    let view = view_of(spec, directory);
    if view.as_ref().is_some_and(|view| !view.layered) {
        environment.push(("TMPDIR".into(), directory.as_os_str().to_owned()));
    }
    let mut words = spec.under.iter().chain([&prepared.program]).chain(&prepared.arguments).cloned();
    Ok(Launch {
        program: words.next().unwrap_or_default(),
        arguments: words.collect(),
        handed: Handed { environment, ..spec.handed.clone() },
        owner_process_id: std::process::id(),
        without,
        // Pid files of a user's own server must hold numbers that mean something outside, and so must those by which
        // a program that it runs under is told what to do.
        own_pid_namespace: !is_command && spec.under.is_empty(),
        directory: directory.to_owned(),
        // A user's command may name its files relative to where tlsdyno was started.
        working_directory: if is_command { here() } else { directory.to_owned() },
        cpus: spec.cpus.clone(),
        cgroups,
        view,
        raise_open_files: prepared.raise_open_files,
        grace_ms: prepared.grace_ms,
        outlives_owner: spec.outlives_owner,
    })
}

/// What the server may write; `None`: nothing holds it back. One that others depend on is let be.
fn view_of(spec: &ServerSpec, directory: &Path) -> Option<View> {
    if spec.outlives_owner {
        return None;
    }
    let command = spec.command.as_ref();
    let mut view = command.map_or(Ok(View::default()), |command| command.view(&spec.writable)).ok()?;
    held_back::allowed(view.layered).ok()?;
    view.writable.clone_from(&spec.writable);
    view.documents.push(spec.docroot.clone());
    // Certificates and libraries of the run.
    view.documents.extend(directory.parent().map(Path::to_owned));
    Some(view)
}

/// Somebody else at our address would be measured in our server's place.
fn refuse_taken(addresses: &Addresses) -> Result<()> {
    for address in [Some(addresses.address), addresses.plain].into_iter().flatten() {
        let owners = listening::owners(&address);
        if !owners.is_empty() {
            let what = format!(
                "address already in use: {address} is taken by process {}; stop that process, or give this server \
                 another port",
                owners.join(" and ")
            );
            return Err(anyhow!(what)).or_fault(Fault::PortTaken);
        }
    }
    Ok(())
}
