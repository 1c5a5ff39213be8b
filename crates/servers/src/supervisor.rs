//! The supervisor: a small process between tlsdyno and a server, so that no server outlives tlsdyno.
//!
//! tlsdyno holds the write end of the supervisor's standard input. When it closes – orderly, or because tlsdyno was
//! killed or panicked – the supervisor ends the server with everything that descends from it and removes the instance's
//! directory. As child subreaper (prctl(2)) it inherits daemonised processes, so that forking into the background is no
//! escape. The server itself is started through a second stage that asks to be killed when the supervisor dies
//! (PR_SET_PDEATHSIG survives execve), and where that is allowed in a PID namespace, whose every process ends with its
//! first (`pid_namespace.rs`).

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Signal, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use tlsdyno_base::{interrupt, private, process_tree};

use super::launch::{Launch, STDERR_FILE, STDOUT_FILE, own_executable};
use super::pid_namespace;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Started {
        /// Its process id, which is also its process group.
        pid: u32,
        /// The process that all others descend from and that does not belong to the server: the first of its PID
        /// namespace, or the supervisor.
        root: u32,
    },
    /// No process of the server is left.
    Ended { status: String },
}

/// What the owner writes when it ends the server in order, rather than dies.
pub const END: &[u8] = b"end\n";
/// The variable that names libraries to load first, ld.so(8).
const PRELOAD: &str = "LD_PRELOAD";
/// Pause between two checks of a server that starts.
const STARTING_POLL: Duration = Duration::from_millis(1);
/// Pause between two checks of dying processes.
const DYING_POLL: Duration = Duration::from_millis(2);

/// Runs the supervisor until its standard input ends (or SIGTERM, SIGINT, SIGHUP), then cleans up.
///
/// With `note`, starts and watches that server. Without, it only guards `directory`.
pub fn supervise(note: Option<&Path>, directory: &Path) -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).context("become child subreaper")?;
    let launch = note.map(Launch::read).transpose()?;
    let mut signals = interrupt::stream(&[SIGCHLD])?;
    let stop_signals = interrupt::stream(&[SIGTERM, SIGINT, SIGHUP])?;
    let mut server = match &launch {
        Some(launch) => Some(spawn(launch, note.context("no note")?)?),
        None => None,
    };
    let outlives_owner = launch.as_ref().is_some_and(|launch| launch.outlives_owner);
    watch(&mut server, &mut signals, &stop_signals, outlives_owner)?;
    let grace = Duration::from_millis(launch.as_ref().map_or(0, |launch| launch.grace_ms));
    end_descendants(grace);
    for cgroup in launch.iter().flat_map(|launch| &launch.cgroups) {
        let _ = fs::remove_dir(cgroup);
    }
    remove_directory(directory);
    Ok(())
}

/// The server as the supervisor's child: its first process, or the first of its PID namespace.
struct Server {
    pid: Pid,
    is_namespaced: bool,
    status: Option<String>,
    /// The end of the whole server was reported.
    reported: bool,
}

fn spawn(launch: &Launch, note: &Path) -> Result<Server> {
    let output = |name: &str| {
        let path = launch.directory.join(name);
        private::file(&path).with_context(|| format!("create {}", path.display()))
    };
    let is_namespaced = launch.own_pid_namespace && pid_namespace::enter()?;
    let own = std::process::id();
    let child = own_executable()?
        .args(["supervise", if is_namespaced { "--first-process" } else { "--exec" }])
        .args(["--parent", &own.to_string()])
        .arg(note)
        .stdin(Stdio::null())
        .stdout(output(STDOUT_FILE)?)
        .stderr(output(STDERR_FILE)?)
        .process_group(0)
        .spawn()
        .context("start the server's first stage")?;
    let child = child.id();
    let (pid, root) = if is_namespaced { (first_server_process(child), child) } else { (child, own) };
    report(&Event::Started { pid, root })?;
    let pid = Pid::from_raw(i32::try_from(child)?).context("process id 0")?;
    Ok(Server { pid, is_namespaced, status: None, reported: false })
}

/// The server's first process below that of its namespace. That of the namespace itself if it ends before it has
/// started one.
fn first_server_process(root: u32) -> u32 {
    while !process_tree::is_gone(root) {
        if let Some(first) = process_tree::descendants(root).first() {
            return first.pid;
        }
        std::thread::sleep(STARTING_POLL);
    }
    root
}

fn report(event: &Event) -> Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    // tlsdyno may be gone: then the end of standard input follows, which is what matters.
    let _ = std::io::stdout().write_all(&line);
    Ok(())
}

/// Waits for the end of standard input or a signal to stop; reaps and reports meanwhile. A server that outlives its
/// owner ends only if the owner says so before ([`END`]), or when it ends itself after the owner.
fn watch(
    server: &mut Option<Server>,
    child_signals: &mut UnixStream,
    stop_signals: &UnixStream,
    outlives_owner: bool,
) -> Result<()> {
    let stdin = std::io::stdin();
    let mut is_orphaned = false;
    loop {
        let orphans_have_no_news = if is_orphaned { PollFlags::empty() } else { PollFlags::IN };
        let mut wanted = [
            PollFd::new(&stdin, orphans_have_no_news),
            PollFd::new(&*child_signals, PollFlags::IN),
            PollFd::new(stop_signals, PollFlags::IN),
        ];
        match poll(&mut wanted, None) {
            Err(Errno::INTR) => continue,
            other => other.context("wait for events")?,
        };
        let [stdin_ready, child_ended, told_to_stop] = wanted.each_ref().map(|fd| !fd.revents().is_empty());
        let mut scratch = [0; 64];
        if child_ended {
            let _ = child_signals.read(&mut scratch);
            if let Some(server) = server.as_mut() {
                let left = reap(|pid, status| {
                    if pid == server.pid {
                        server.status = Some(pid_namespace::describe(status, server.is_namespaced));
                    }
                });
                if !left && !server.reported {
                    report(&Event::Ended { status: server.status.clone().unwrap_or_default() })?;
                    server.reported = true;
                }
            }
        }
        let has_ended = server.as_ref().is_some_and(|server| server.reported);
        if told_to_stop || is_orphaned && has_ended {
            return Ok(());
        }
        if stdin_ready && !is_orphaned {
            let bytes = rustix::io::read(&stdin, &mut scratch).unwrap_or(0);
            is_orphaned = bytes == 0 && outlives_owner && !has_ended;
            if bytes > 0 || !is_orphaned {
                return Ok(());
            }
        }
    }
}

/// Collects every child that has ended, inherited ones too, and answers whether any child is left.
///
/// No child means no descendant: a process's children become those of the subreaper before it can be waited for itself.
/// Looking through `/proc` could miss a process that forks while it is looked for.
fn reap(mut ended: impl FnMut(Pid, WaitStatus)) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(pid, status),
            Ok(None) | Err(Errno::INTR) => return true,
            Err(_) => return false,
        }
    }
}

/// SIGTERM to every descendant, SIGKILL to those that are left after `grace`, until none is left.
fn end_descendants(grace: Duration) {
    let started = Instant::now();
    let mut signal = Signal::TERM;
    let mut signalled = Vec::new();
    while reap(|_, _| {}) {
        if signal == Signal::TERM && started.elapsed() >= grace {
            signal = Signal::KILL;
            signalled.clear();
        }
        for process in process_tree::descendants(std::process::id()) {
            // Each process is told once per signal: a second SIGTERM means something else to some servers.
            if signalled.contains(&process.pid) {
                continue;
            }
            if let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, signal);
            }
            signalled.push(process.pid);
        }
        std::thread::sleep(DYING_POLL);
    }
}

/// Removes a directory in which someone may still be writing: tries again for a while.
fn remove_directory(directory: &Path) {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(5) {
        match fs::remove_dir_all(directory) {
            Ok(()) => return,
            Err(_) if !directory.exists() => return,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The second stage: ties its life to its parent's, joins control group and processor, and becomes the server.
///
/// Comes back only with an error.
pub fn become_server(note: &Path, parent: u32) -> Result<()> {
    pid_namespace::die_with_parent(parent)?;
    let launch = Launch::read(note)?;
    if !launch.cpus.is_empty() {
        let mut cpus = rustix::thread::CpuSet::new();
        launch.cpus.iter().for_each(|&cpu| cpus.set(cpu));
        let names = || launch.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        rustix::thread::sched_setaffinity(None, &cpus).with_context(|| format!("cannot run on CPU {}", names()))?;
    }
    for cgroup in &launch.cgroups {
        let path = cgroup.join("cgroup.procs");
        fs::write(&path, "0").with_context(|| format!("join control group {}", path.display()))?;
    }
    if launch.raise_open_files {
        raise_open_files();
    }
    let descriptors = take_descriptors(&launch)?;
    // Control groups and what the owner shares are outside.
    if let Some(view) = &launch.view {
        view.enter(&launch.directory).context("give the server its view of the file system")?;
    }
    let mut command = Command::new(&launch.program);
    for name in &launch.without {
        command.env_remove(name);
    }
    command.args(&launch.arguments).envs(environment(&launch)).current_dir(&launch.working_directory);
    let error = command.exec();
    drop(descriptors);
    Err(error).with_context(|| format!("cannot run {}", launch.program.display()))
}

/// The variables that the server gets besides those that it inherits. What a user's command preloads itself stays
/// preloaded.
fn environment(launch: &Launch) -> Vec<(OsString, OsString)> {
    let mut environment = launch.handed.environment.clone();
    for (_, value) in environment.iter_mut().filter(|(name, _)| name == PRELOAD) {
        if let Some(theirs) = std::env::var_os(PRELOAD).filter(|_| !launch.without.iter().any(|name| name == PRELOAD)) {
            value.push(":");
            value.push(theirs);
        }
    }
    environment
}

/// Opens the owner's descriptors again, under the same numbers, so that the server inherits them. Only a process of the
/// same user can.
fn take_descriptors(launch: &Launch) -> Result<Vec<OwnedFd>> {
    let mut taken = Vec::new();
    for &number in &launch.handed.descriptors {
        let path = format!("/proc/{}/fd/{number}", launch.owner_process_id);
        let context = || format!("take over the memory that tlsdyno shares ({path})");
        let area = File::options().read(true).write(true).open(&path).with_context(context)?;
        let placed = rustix::io::fcntl_dupfd_cloexec(&area, number).with_context(context)?;
        ensure!(
            placed.as_raw_fd() == number,
            "descriptor {number} is taken in the server's process; start tlsdyno with fewer open files"
        );
        rustix::io::fcntl_setfd(&placed, rustix::io::FdFlags::empty()).with_context(context)?;
        taken.push(placed);
    }
    Ok(taken)
}

/// The soft limit is often 1024, kept low only for programs that use select(2).
fn raise_open_files() {
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(Resource::Nofile, limit);
}
