//! The first process of a server's own PID namespace: when it ends, the kernel ends every process in it,
//! pid_namespaces(7).
//!
//! So no worker outlives the supervisor, however it goes. The kernel alone sees to that: a death signal reaches only
//! one process, and neither fork nor a change of user keeps it. Where the system allows no namespace (only root may
//! make one), the supervisor starts the server itself; orphaned workers are then left with libraries that refuse
//! (`native/owner.h`).

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, WaitStatus};
use tlsdyno_base::process_tree;

use super::deaths;
use super::launch::own_executable;

/// A server that was killed by a signal is told by an exit status above this: as shells do, for this process itself
/// dies of no signal.
const KILLED_BY_SIGNAL: i32 = 128;

/// Lets the next child be the first process of a new namespace, if that is allowed.
pub(super) fn enter() -> Result<bool> {
    match tlsdyno_sys::unshare_pid_namespace() {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::PermissionDenied || error.raw_os_error() == NOT_SUPPORTED => Ok(false),
        Err(error) => Err(error).context("make a PID namespace for the server"),
    }
}

/// Error of a kernel without PID namespaces.
const NOT_SUPPORTED: Option<i32> = Some(Errno::INVAL.raw_os_error());

/// Starts the server and waits until the namespace has no other process. Answers the exit status for this process.
///
/// It handles no signal: the kernel keeps those from it that it does not handle, so a SIGTERM to all processes of the
/// server is not its end.
pub fn run_first_process(note: &Path, supervisor: u32) -> Result<i32> {
    die_with_parent(supervisor)?;
    let own = process_tree::own().context("this process is not in /proc")?;
    let server = own_executable()?
        .args(["supervise", "--exec", "--parent"])
        .arg(own.pid.to_string())
        .arg(note)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .context("start the server's second stage")?;
    let mut status = 0;
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            // Inside the namespace, numbers are its own.
            Ok(Some((pid, ended))) if pid.as_raw_nonzero().get().unsigned_abs() == server.id() => {
                status = exit_status(ended)
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Ok(status),
        }
    }
}

fn exit_status(ended: WaitStatus) -> i32 {
    ended.exit_status().or_else(|| Some(KILLED_BY_SIGNAL + ended.terminating_signal()?)).unwrap_or_default()
}

/// How a server ended, in words, by its own status or by that of its namespace's first process.
pub(super) fn describe(status: WaitStatus, is_namespaced: bool) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) if is_namespaced && code > KILLED_BY_SIGNAL => deaths::killed_by(code - KILLED_BY_SIGNAL),
        (Some(code), _) => format!("exit status {code}"),
        (_, Some(signal)) => deaths::killed_by(signal),
        _ => "ended".to_owned(),
    }
}

/// Ties the life of this process to that of `parent`, which may have ended already.
pub(super) fn die_with_parent(parent: u32) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).context("ask to die with the parent")?;
    // By the number that /proc knows it by: another namespace's getppid(2) answers 0.
    ensure!(process_tree::own().is_some_and(|own| own.parent == parent), "the supervisor has died");
    Ok(())
}
