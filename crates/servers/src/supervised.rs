//! A server process under its supervisor, seen from tlsdyno.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use tlsdyno_base::process_tree::{self, ProcessStat};

use super::launch::{Launch, own_executable};
use super::supervisor::{END, Event};

/// How long a supervisor may take to start its server: it does so at once, unless the machine is busy with dozens of
/// them.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// How long a supervisor may take beyond the server's grace until it is given up.
const SUPERVISOR_PATIENCE: Duration = Duration::from_secs(5);

/// A running server with its supervisor; both end when this is dropped, or when tlsdyno dies.
#[derive(Debug)]
pub struct Supervised {
    supervisor: Child,
    /// Held open as long as the server shall live.
    lifeline: Option<ChildStdin>,
    events: ChildStdout,
    unread: Vec<u8>,
    /// First process of the server, leader of its process group.
    pub pid: u32,
    /// The process that the server's descend from: the first of its PID namespace, or the supervisor.
    root: u32,
    /// Start time of that process in clock ticks since boot: together with its id it is nobody else.
    started_ticks: Option<u64>,
    ended: Option<String>,
    grace: Duration,
    directory: PathBuf,
}

impl Supervised {
    /// Starts the server described by `launch`; its readiness is not awaited.
    pub fn start(launch: &Launch) -> Result<Supervised> {
        let note = launch.write()?;
        let mut supervisor = own_executable()?
            .arg("supervise")
            .arg("--directory")
            .arg(&launch.directory)
            .arg(&note)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C on the terminal is for tlsdyno, which then stops its servers in order.
            .process_group(0)
            .spawn()
            .context("start the supervisor of the server")?;
        let lifeline = supervisor.stdin.take();
        let events = supervisor.stdout.take().context("the supervisor has no output")?;
        rustix::io::ioctl_fionbio(&events, true).context("read from the supervisor without waiting")?;
        let grace = Duration::from_millis(launch.grace_ms);
        let mut started = Supervised {
            supervisor,
            lifeline,
            events,
            unread: Vec::new(),
            pid: 0,
            root: 0,
            started_ticks: None,
            ended: None,
            grace,
            directory: launch.directory.clone(),
        };
        let limit = Instant::now() + START_PATIENCE;
        while started.pid == 0 {
            started.read_events();
            // A server that fails at once has been started all the same: its own words are in its log.
            if let (0, Some(status)) = (started.pid, &started.ended) {
                bail!("the supervisor of the server ended at once ({status}); its own message is above");
            }
            if Instant::now() > limit {
                bail!("the supervisor of the server does not answer");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(started)
    }

    pub fn ended(&mut self) -> Option<&str> {
        self.read_events();
        self.ended.as_deref()
    }

    /// Every living process of the server, parents before children.
    pub fn processes(&self) -> Vec<ProcessStat> {
        process_tree::descendants(self.root)
    }

    fn read_events(&mut self) {
        let mut buffer = [0; 1024];
        loop {
            match self.events.read(&mut buffer) {
                Ok(0) => {
                    let status = self.supervisor.try_wait().ok().flatten();
                    let words = || status.map_or("gone".to_owned(), |status| status.to_string());
                    self.ended.get_or_insert_with(|| format!("supervisor: {}", words()));
                    return;
                }
                Ok(read) => self.unread.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            }
            while let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(Event::Started { pid, root }) => {
                        self.pid = pid;
                        self.root = root;
                        self.started_ticks = process_tree::stat(pid).map(|process| process.started_ticks);
                    }
                    Ok(Event::Ended { status }) => self.ended = Some(status),
                    Err(error) => self.ended = Some(format!("supervisor: unreadable report ({error})")),
                }
            }
        }
    }

    /// Ends the server and waits until it and its directory are gone.
    pub fn end(&mut self) -> Result<()> {
        let Some(mut lifeline) = self.lifeline.take() else { return Ok(()) };
        // A supervisor that is gone hears nothing, and need not.
        let _ = lifeline.write_all(END);
        drop(lifeline);
        let limit = Instant::now() + self.grace + SUPERVISOR_PATIENCE;
        loop {
            if let Some(status) = self.supervisor.try_wait().context("wait for the supervisor")? {
                if status.success() {
                    return Ok(());
                }
                self.kill_group();
                bail!("the supervisor of the server failed ({status}); its processes were killed");
            }
            if Instant::now() > limit {
                let _ = self.supervisor.kill();
                let _ = self.supervisor.wait();
                self.kill_group();
                bail!("the supervisor of the server did not end in time; it and the server were killed");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Last resort when the supervisor could not do it: what stayed in the server's process group, and the directory.
    ///
    /// The system gives the leader's number to nobody as long as the group has members: a stranger with it means that
    /// they are gone.
    fn kill_group(&self) {
        let stranger =
            process_tree::stat(self.pid).is_some_and(|found| Some(found.started_ticks) != self.started_ticks);
        if !stranger && let Some(group) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A guard that removes `directory` when tlsdyno is gone, however it went.
#[derive(Debug)]
pub struct DirectoryGuard {
    process: Child,
}

impl DirectoryGuard {
    pub fn start(directory: &Path) -> Result<DirectoryGuard> {
        let process = own_executable()?
            .arg("supervise")
            .arg("--directory")
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .context("start the guard of the run directory")?;
        Ok(DirectoryGuard { process })
    }
}

impl Drop for DirectoryGuard {
    fn drop(&mut self) {
        self.process.stdin = None;
        let _ = self.process.wait();
    }
}
