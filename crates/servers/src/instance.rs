//! A running server: started, ready, accounted for, and ended with all that belongs to it.

mod ready;
mod start;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
pub use start::start;
pub(super) use start::start_by;

use super::cgroup::GroupClock;
use super::cpu::CpuAccount;
use super::deaths::Vigil;
use super::growing_log::GrowingLog;
use super::launch::{LAUNCH_FILE, Launch, STDERR_FILE, STDOUT_FILE};
use super::quota::Quota;
use super::reload;
use super::supervised::Supervised;
use super::{Companion, DRIVERS, Prepared, SessionCounts, mapped, open_listeners};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::listening;
use tlsdyno_base::process_tree::{self, ProcessStat};

/// How much of each log goes into messages, in bytes from its end.
const LOG_TAIL_BYTES: usize = 4096;

/// Maximum number of checks of workers of which some have ended meanwhile.
const ATTEMPTS_MAX: u32 = 50;
/// How long it may take until a process that has closed its connections is known to be dead, and until anybody says how
/// it ended.
const DEATH_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    pub version: String,
    pub config: String,
    pub openssl_libraries: Vec<PathBuf>,
    /// How its CPU time is read: `cgroup` or `processes`.
    pub cpu_account: String,
    pub listening: Vec<SocketAddr>,
    /// Configuration of each server that it needs beside it, by name.
    pub companions: Vec<(String, String)>,
    /// The variables that it was started with; `None`: not known.
    pub environment: Option<Vec<(String, String)>>,
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Instance {
    supervised: Supervised,
    // After `supervised`: a control group can be removed only when its processes are gone.
    cpu: Mutex<CpuAccount>,
    pub quota: Option<Quota>,
    pub directory: PathBuf,
    addresses: Addresses,
    // After `supervised`: what it needs ends after it.
    prepared: Prepared,
    /// The logs, as far as they were already searched for alarms.
    searched: Mutex<Vec<GrowingLog>>,
    /// Parts of its cryptography are switched off: beyond loopback it may be reached at this address, and no other.
    permitted: Option<IpAddr>,
    /// A server of the user's own, which may end processes that it has enough of.
    is_own_command: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) address: SocketAddr,
    pub(super) plain: Option<SocketAddr>,
}

impl Instance {
    /// Where it serves what was asked for (TLS, or plain HTTP without TLS settings).
    pub fn address(&self) -> SocketAddr {
        self.addresses.address
    }

    pub fn plain_address(&self) -> Option<SocketAddr> {
        self.addresses.plain
    }

    /// Processes that serve connections: those that listen at its address and have libssl loaded, without those that
    /// have such children. Where there are none (one process listens, others serve), those of all processes; where no
    /// process has libssl loaded, those without children.
    pub fn worker_pids(&self) -> Vec<u32> {
        let has_openssl = |process: &ProcessStat| {
            mapped::mapped_libraries(process.pid)
                .is_ok_and(|libraries| libraries.iter().any(|library| mapped::is_openssl(&library.path)))
        };
        let all = self.supervised.processes();
        let with_openssl: Vec<ProcessStat> = all.iter().filter(|process| has_openssl(process)).cloned().collect();
        let pids: Vec<u32> = with_openssl.iter().map(|process| process.pid).collect();
        let listeners = listening::listeners(&pids, Some(&self.addresses.address));
        let serving: Vec<ProcessStat> =
            with_openssl.iter().filter(|process| listeners.contains(&process.pid)).cloned().collect();
        let found = [serving, with_openssl, all].into_iter().find(|processes| !processes.is_empty());
        process_tree::leaves(&found.unwrap_or_default())
    }

    pub fn pids(&self) -> Vec<u32> {
        self.supervised.processes().iter().map(|process| process.pid).collect()
    }

    /// What `check` says of its workers. Where others work meanwhile, because one of them has ended, as that of a
    /// connection does, or begun a program, of those.
    pub fn of_living_workers(&self, check: impl Fn(&[u32]) -> Result<()>) -> Result<()> {
        let mut attempts = 0;
        loop {
            let pids = self.worker_pids();
            let result = check(&pids);
            attempts += 1;
            if result.is_ok() || attempts == ATTEMPTS_MAX || self.worker_pids() == pids {
                return result;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn group_clock(&self) -> Option<GroupClock> {
        match &*self.cpu.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            CpuAccount::Cgroup(group) => Some(group.0.clone()),
            CpuAccount::Processes(_) => None,
        }
    }

    /// CPU time that all its processes used so far, user and system, in nanoseconds; differences of two readings count.
    pub fn cpu_ns(&self) -> Result<u64> {
        let mut account = self.cpu.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        account.read_ns(|| self.supervised.processes())
    }

    /// [`Instance::cpu_ns`] of a server that lives. Of one that has died the accounting may answer (control group) or
    /// fail (no process is left to read); either way the death is the news.
    pub fn living_cpu_ns(&mut self, died: impl FnOnce(&Instance, &str) -> String) -> Result<u64> {
        let cpu = self.cpu_ns();
        match self.obituary() {
            Some(obituary) => Err(anyhow!(died(self, &obituary))).or_fault(Fault::Server),
            None => cpu,
        }
    }

    /// CPU time of each server that it needs beside it (HAProxy's `backend`), by name, in nanoseconds: no part of
    /// [`Instance::cpu_ns`].
    pub fn companions_cpu_ns(&self) -> Result<Vec<(&'static str, u64)>> {
        self.prepared.companions.iter().map(|companion| Ok((companion.name, companion.instance.cpu_ns()?))).collect()
    }

    /// Who has died and how, if anybody has: the server itself or one that it needs.
    pub fn obituary(&mut self) -> Option<String> {
        if let Some(status) = self.supervised.ended() {
            return Some(format!("the server has died ({status})"));
        }
        self.prepared.companions.iter_mut().find_map(|companion| {
            let status = companion.instance.supervised.ended()?;
            Some(format!("its {} has died ({status})", companion.name))
        })
    }

    pub fn watch(&self) -> Vigil {
        Vigil::begin(self.pids(), self.logs(), self.is_own_command)
    }

    /// Which of its processes a signal has ended since `vigil` began, and where that is known, in which library.
    pub fn death(&mut self, vigil: &mut Vigil) -> Option<String> {
        let obituary = self.obituary();
        vigil.check(obituary)
    }

    /// The same of a server that has just failed a client. A dying process closes its connections first; its master,
    /// which writes down how it ended, hears of that last; some say nothing.
    pub fn awaited_death(&mut self, vigil: &mut Vigil) -> Option<String> {
        let began = Instant::now();
        loop {
            let death = self.death(vigil);
            let missing = vigil.missing(&self.pids());
            if death.is_some() || began.elapsed() > DEATH_PATIENCE {
                // lighttpd writes down nothing of its workers' deaths.
                let untold = || vigil.check(Some(format!("process {} has ended, and no log says how", missing?)));
                return death.or_else(untold);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Makes it read its configuration anew without dropping connections, and waits until it has.
    pub fn reload(&mut self) -> Result<()> {
        let logs = || {
            let logs = self.logs().into_iter().map(|path| fs::read(path).unwrap_or_default());
            logs.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect::<Vec<_>>().join("\n")
        };
        let subject = reload::Subject { first: self.supervised.pid, workers: &|| self.worker_pids(), logs: &logs };
        reload::reload(self.prepared.reload, &subject)
    }

    /// Where it listens, as the kernel says.
    pub fn listening_addresses(&self) -> Vec<SocketAddr> {
        listening::listening_addresses(&self.pids())
    }

    /// Fails if parts of the server's cryptography are switched off and it can be reached from another host, by TCP or
    /// UDP. A server may open further sockets at any time: to be asked again before it is put under load.
    pub fn refuse_open_listeners(&self) -> Result<()> {
        let Some(permitted) = self.permitted else { return Ok(()) };
        open_listeners::refuse(&self.pids(), permitted)
    }

    pub fn description(&self) -> Description {
        let described = |Companion { name, instance }: &Companion| {
            ((*name).to_owned(), format!("{}\n{}", instance.prepared.version, instance.prepared.config))
        };
        let libraries =
            self.worker_pids().first().and_then(|&pid| mapped::mapped_libraries(pid).ok()).unwrap_or_default();
        Description {
            version: self.prepared.version.clone(),
            config: self.prepared.config.clone(),
            openssl_libraries: libraries
                .into_iter()
                .map(|library| library.path)
                .filter(|path| mapped::is_openssl(path))
                .collect(),
            cpu_account: self.cpu.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).method().to_owned(),
            listening: self.listening_addresses(),
            companions: self.prepared.companions.iter().map(described).collect(),
            environment: self.environment(),
        }
    }

    /// As its process tells, which a script may have started with others, else as it was given.
    fn environment(&self) -> Option<Vec<(String, String)>> {
        let told = self.worker_pids().into_iter().map(process_tree::environment).find(|of| !of.is_empty());
        told.or_else(|| Some(Launch::read(&self.directory.join(LAUNCH_FILE)).ok()?.variables()))
    }

    /// What the server said of its connections; needs `log_sessions`.
    pub fn session_counts(&self) -> Result<SessionCounts> {
        self.prepared.session_log.as_ref().context("this server was not asked to log its sessions")?.read()
    }

    /// Where it logs what it is asked for; needs `log_objects`.
    pub fn object_log(&self) -> Option<&Path> {
        self.prepared.object_log.as_deref()
    }

    pub fn log_tail(&self) -> String {
        let tails = self.logs().into_iter().map(|path| tail(&path)).filter(|text| !text.is_empty());
        tails.collect::<Vec<_>>().join("\n")
    }

    /// Lines of alarm in its logs since the last call: workers killed by signals, levels crit, alert and emerg.
    pub fn error_log_alarms(&self) -> Vec<String> {
        let mut logs = self.searched.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // A log that is not there has no alarm.
        let new = logs.iter_mut().filter_map(|log| log.new_lines().ok()).collect::<String>();
        // What runs may be a user's own, a companion or a dispatcher.
        let is_alarm = |line: &&str| DRIVERS.iter().flat_map(|driver| driver.alarms).any(|mark| line.contains(mark));
        new.lines().filter(is_alarm).map(str::to_owned).collect()
    }

    pub fn stop(mut self) -> Result<()> {
        self.supervised.end()
    }

    fn logs(&self) -> Vec<PathBuf> {
        logs(&self.directory, &self.prepared)
    }
}

fn logs(directory: &Path, prepared: &Prepared) -> Vec<PathBuf> {
    let own = [STDERR_FILE, STDOUT_FILE].map(|name| directory.join(name));
    prepared.error_log.iter().cloned().chain(own).collect()
}

/// The end of a text file, whole lines, at most [`LOG_TAIL_BYTES`]. Lines that differ in numbers only stand there once.
fn tail(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let start = bytes.len().saturating_sub(LOG_TAIL_BYTES);
    let text = String::from_utf8_lossy(&bytes[start..]).into_owned();
    let whole = if start == 0 { text.as_str() } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
    once(whole.trim_end())
}

/// The text with lines that say the same one after the other in one of them.
fn once(text: &str) -> String {
    let words = |line: &str| -> String { line.chars().filter(|letter| !letter.is_ascii_digit()).collect() };
    let mut lines: Vec<(&str, u32)> = Vec::new();
    for line in text.lines() {
        match lines.last_mut() {
            Some((last, times)) if words(last) == words(line) => (*last, *times) = (line, *times + 1),
            _ => lines.push((line, 1)),
        }
    }
    let counted =
        |(line, times): (&str, u32)| if times > 1 { format!("{line} ({times} times)") } else { line.to_owned() };
    lines.into_iter().map(counted).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_repeats_itself_is_short() {
        let text = "10:00:01 [error] accept4() failed\n10:00:02 [error] accept4() failed\n10:00:02 [crit] other";
        assert_eq!(once(text), "10:00:02 [error] accept4() failed (2 times)\n10:00:02 [crit] other");
        assert_eq!([once(""), once("one")], ["", "one"]);
    }
}
