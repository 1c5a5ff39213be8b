//! How each server is told to read its configuration anew, and how it is seen that it did.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tlsdyno_base::until::until;
use tlsdyno_base::{listening, process_tree};

/// How long a server may take until its new workers are there.
const RELOADED_WITHIN: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reload {
    /// The server has no reload, or none that is known.
    #[default]
    Unknown,
    /// Its first process takes this signal and starts workers anew; the old ones end with their connections.
    NewWorkers {
        signal: Signal,
        /// Minimum number of new workers after a reload.
        at_least: usize,
        /// Old workers stop listening at once, whatever connections they have.
        old_stop_listening: bool,
    },
    /// Its process takes this signal, stays, and says in its error log that it has started again.
    Restart { signal: Signal, says: &'static str },
}

pub struct Subject<'a> {
    pub first: u32,
    pub workers: &'a dyn Fn() -> Vec<u32>,
    pub logs: &'a dyn Fn() -> String,
}

pub fn reload(how: Reload, subject: &Subject) -> Result<()> {
    let first = i32::try_from(subject.first).ok().and_then(Pid::from_raw).context("the server has no process")?;
    let tell = |signal: Signal| {
        // HAProxy's master serves before it handles the signal, and handles none while it executes itself anew.
        let listens = || process_tree::catches(subject.first, signal.as_raw());
        await_that(subject, "it does not handle the signal", listens)?;
        kill_process(first, signal).context("tell the server to reload")
    };
    match how {
        Reload::Unknown => bail!("this server cannot be told to reload; stop it and start it anew"),
        Reload::NewWorkers { signal, at_least, old_stop_listening } => {
            let before = (subject.workers)();
            tell(signal)?;
            let new = || (subject.workers)().iter().filter(|pid| !before.contains(pid)).count();
            await_that(subject, "no new worker appeared", || new() >= at_least)?;
            // nginx lets its old workers take connections for 100 ms beside the new ones.
            let done = || !old_stop_listening || listening::listening_addresses(&before).is_empty();
            await_that(subject, "an old worker listens on", done)
        }
        Reload::Restart { signal, says } => {
            let times = || (subject.logs)().matches(says).count();
            let (before, listening) = (times(), listening_processes(subject.first));
            tell(signal)?;
            await_that(subject, "it did not say that it started again", || times() > before)?;
            // lighttpd leaves its connections to a child, which takes new ones as well until it is told to end; then it
            // cuts those.
            let is_alone = || listening_processes(subject.first) <= listening;
            await_that(subject, "a process of before listens on", is_alone)
        }
    }
}

fn listening_processes(first: u32) -> usize {
    let descendants = process_tree::descendants(first).into_iter().map(|process| process.pid);
    let processes = descendants.chain([first]);
    processes.filter(|&pid| !listening::listening_addresses(&[pid]).is_empty()).count()
}

fn await_that(subject: &Subject, otherwise: &str, done: impl Fn() -> bool) -> Result<()> {
    let is_done = until(RELOADED_WITHIN, POLL, || anyhow::Ok(done()), |done| *done)?;
    let seconds = RELOADED_WITHIN.as_secs();
    ensure!(is_done, "the server has not reloaded after {seconds} s: {otherwise}; its log:\n{}", (subject.logs)());
    Ok(())
}
