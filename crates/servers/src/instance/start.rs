//! Starting a server: its directory, its ports, its configuration, and what it needs beside it.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tlsdyno_base::fault::{Fault, OrFault, fault_of};
use tlsdyno_base::{listening, namespace};
use tlsdyno_native::Handed;

use super::{Addresses, Instance, logs};
use crate::cpu::CpuAccount;
use crate::growing_log::GrowingLog;
use crate::launch::{FOREIGN_VARIABLES, Launch};
use crate::quota::Quota;
use crate::supervised::Supervised;
use crate::view::{View, sockets};
use crate::{InstancePlace, Prepared, ServerSpec, Wanted, driver_of, held_back, run_directory, small_keys};

/// How often another free port is tried when somebody was faster.
const PORT_ATTEMPTS: u32 = 5;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Starts a server in a directory of its own inside `run` and waits until it is ready.
///
/// The errors say what the server itself said.
pub fn start(spec: &ServerSpec, run: &Path) -> Result<Instance> {
    check(spec)?;
    start_by(spec, run, |place| (driver_of(spec.kind).prepare)(spec, place))
}

/// Starts what `prepare` makes in a directory of its own on free ports, and waits until it is ready; on other ports (if
/// they are ours to choose) if somebody was faster there. Of the specification only processors, quota, environment,
/// address and what follows from them count.
pub(crate) fn start_by(
    spec: &ServerSpec,
    run: &Path,
    mut prepare: impl FnMut(InstancePlace) -> Result<Prepared>,
) -> Result<Instance> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut attempt = 1;
    loop {
        let own = run.join(format!("server-{number}-{attempt}"));
        run_directory::make_passable(&own)?;
        let [port, plain_port] = free_ports()?;
        let place = InstancePlace { run, own: &own, ip: spec.ip(), port, plain_port };
        let mut config = String::new();
        let error = match prepare(place).and_then(|prepared| {
            config.clone_from(&prepared.config);
            start_prepared(spec, place, prepared)
        }) {
            Ok(instance) => return Ok(instance),
            Err(error) => error,
        };
        let original = spec.command.as_ref().and_then(|command| command.original.as_ref());
        let error = match original.and_then(|original| original.places(&format!("{error:#}"), &own, &config)) {
            Some(places) => error.context(places),
            None => error,
        };
        let _ = fs::remove_dir_all(&own);
        let was_taken = fault_of(&error) == Some(Fault::PortTaken);
        if spec.has_fixed_port() || !was_taken || attempt == PORT_ATTEMPTS {
            return Err(error);
        }
        attempt += 1;
    }
}

fn free_ports() -> Result<[u16; 2]> {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free loopback port");
    // Both held at once, so that they differ.
    let (first, second) = (free()?, free()?);
    Ok([first.local_addr()?.port(), second.local_addr()?.port()])
}

fn check(spec: &ServerSpec) -> Result<()> {
    ensure!(spec.docroot.is_dir(), "the docroot {} is not a directory", spec.docroot.display());
    ensure!(spec.workers > 0, "a server needs at least one worker");
    if let Some(why) = driver_of(spec.kind).no_session_log.filter(|_| spec.log_sessions) {
        bail!("{why}");
    }
    let wanted = spec.tls.as_ref().map(|tls| Wanted { http2: spec.http2, ..Wanted::new(tls) });
    wanted.map_or(Ok(()), |wanted| wanted.refuse_unable(spec.kind, spec.workers))
}

fn start_prepared(spec: &ServerSpec, place: InstancePlace, prepared: Prepared) -> Result<Instance> {
    let addresses = prepared.addresses.unwrap_or(Addresses { address: place.address(), plain: None });
    refuse_taken(&addresses)?;
    let cpu = CpuAccount::best();
    let account = match &cpu {
        CpuAccount::Cgroup(group) => Some(group),
        CpuAccount::Processes(_) => None,
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
    let mut cgroups: Vec<PathBuf> = account.iter().map(|group| group.0.path.clone()).collect();
    cgroups.extend(quota.iter().filter(|quota| quota.own).map(|quota| quota.path.clone()));
    let launch = launch(spec, place.own, &prepared, cgroups)?;
    let mut instance = Instance {
        supervised: Supervised::start(&launch)?,
        cpu: Mutex::new(cpu),
        quota,
        directory: place.own.to_owned(),
        addresses,
        searched: Mutex::new(logs(place.own, &prepared).into_iter().map(GrowingLog::new).collect()),
        prepared,
        permitted: (spec.is_altered() && !spec.allow_insecure_listen).then_some(spec.ip()),
        is_own_command: spec.is_users_own(),
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
        // Numbers by which a program that it runs under, or one that others depend on, is told what to do must mean
        // something outside.
        own_pid_namespace: spec.under.is_empty() && !spec.outlives_owner,
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
    if spec.apart {
        let sockets = namespace::outside(sockets).unwrap_or_default().into_iter();
        view.shown = sockets.map(|socket| ("/dev/null".into(), socket)).collect();
    }
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
