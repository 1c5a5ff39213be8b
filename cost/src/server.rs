//! The processes of a server whose CPU time is read.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tlsdyno_base::exchange::Exchange;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::{listening, process_tree};
use tlsdyno_servers::cgroup::GroupClock;
use tlsdyno_servers::cpu::{Clocks, ProcessClocks};
use tlsdyno_servers::run_directory::{RunDirectory, make_passable};
use tlsdyno_servers::{CommandSpec, Instance, ServerSpec};

/// How long it may take to connect.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// So long the server is watched before it has a connection of ours.
const LOOK: Duration = Duration::from_millis(500);
/// A server that uses more of a CPU without us is not measured.
const BUSY_MAX: f64 = 0.05;
/// A server rests when its clocks stand still for so long, and comes to rest so soon.
const REST: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(40)];

/// The processes of a server that runs, or of one that was started.
pub(crate) struct Server {
    pub address: SocketAddr,
    pid: Option<u32>,
    clocks: Clocks,
    /// The part of a CPU that it uses without connections of ours.
    pub busy: f64,
    started: Option<Started>,
}

/// A server that ends with the measurement, and its directory after it.
struct Started {
    instance: Instance,
    _directory: RunDirectory,
}

impl Server {
    /// The server that listens there, or this process of its with all below it.
    ///
    /// # Errors
    /// Nobody of the user's listens there, it is busy, or it begins processes that cannot be watched.
    pub fn running(address: SocketAddr, pid: Option<u32>) -> Result<Server> {
        if let Err(error) = Exchange::connect(address, PATIENCE) {
            let quic = listening::takes_datagrams(&address);
            let hint = if quic { "; only UDP is open there: QUIC (HTTP/3) is not measured" } else { "" };
            let error = anyhow::Error::new(error).context(format!("nobody answers at {address}{hint}"));
            return Err(Fault::Unreachable.of(error));
        }
        let clocks = Clocks::Processes(found(address, pid).or_fault(Fault::Environment)?);
        Server { address, pid, clocks, busy: 0.0, started: None }.watched()
    }

    /// Starts the server of a command line.
    ///
    /// # Errors
    /// It does not start, or as of one that runs.
    pub fn started(command: &str, address: &str) -> Result<Server> {
        let directory = RunDirectory::create_for_command().or_fault(Fault::Environment)?;
        let docroot = directory.path().join("docroot");
        make_passable(&docroot)?;
        let command = CommandSpec {
            command: command.to_owned(),
            address: address.to_owned(),
            plain_address: None,
            installed: None,
            host: None,
        };
        let spec = ServerSpec::of_command(command, docroot);
        let instance = tlsdyno_servers::start(&spec, directory.path()).or_fault(Fault::Server)?;
        let of_processes = || Clocks::Processes(ProcessClocks::of(instance.pids()));
        let clocks = instance.group_clock().map_or_else(of_processes, Clocks::Group);
        let address = instance.address();
        let started = Some(Started { instance, _directory: directory });
        Server { address, pid: None, clocks, busy: 0.0, started }.watched()
    }

    /// The same once it is known how it is watched, and that it has little else to do.
    fn watched(mut self) -> Result<Server> {
        self.watch_processes_for_each().or_fault(Fault::Environment)?;
        let before_ns = self.read_ns();
        std::thread::sleep(LOOK);
        let used_ns = self.read_ns().saturating_sub(before_ns);
        self.busy = used_ns as f64 / LOOK.as_nanos() as f64;
        let of = self.address;
        if self.busy > BUSY_MAX {
            let error = anyhow::anyhow!(
                "the server at {of} uses {:.0} % of a CPU without a connection of ours: other traffic would be \
                 charged to the steps. Measure a copy, or when it has nothing else to do",
                100.0 * self.busy
            );
            return Err(Fault::Environment.of(error));
        }
        Ok(self)
    }

    /// A server that begins a process for a connection is read by the account of its control group, where it has one
    /// of its own; the clocks of processes that come and go are in none that could be read.
    fn watch_processes_for_each(&mut self) -> Result<()> {
        if matches!(self.clocks, Clocks::Group(_)) {
            return Ok(());
        }
        let before = self.clocks.clone();
        let connected = Exchange::connect(self.address, PATIENCE)?;
        std::thread::sleep(LOOK);
        let begins_some = self.has_changed()?;
        let group = self.pids().and_then(GroupClock::around);
        drop(connected);
        if begins_some {
            self.clocks = group.map(Clocks::Group).context(
                "the server began a process for a connection, and has no control group of its own: the CPU time of \
                 processes that come and go cannot be read. Run it as a service or in a container, or start it with \
                 --server-command as root",
            )?;
        } else {
            self.clocks = before;
        }
        Ok(())
    }

    /// Its processes, unless they are read by their control group.
    fn pids(&self) -> Option<&[u32]> {
        match &self.clocks {
            Clocks::Processes(clocks) => Some(clocks.pids()),
            Clocks::Group(_) => None,
        }
    }

    /// How its CPU time is read, for the manifest.
    pub fn accounting(&self) -> &'static str {
        if self.pids().is_some() { "processes" } else { "cgroup" }
    }

    /// The command line of its first process.
    pub fn name(&self) -> String {
        let group = || listening::owner_numbers(&self.address).unwrap_or_default().first().copied();
        let first = self.pids().map_or_else(group, |pids| pids.first().copied());
        first.map(process_tree::command_line).unwrap_or_default()
    }

    /// Whether other processes serve the address now; from here on those are read.
    ///
    /// # Errors
    /// None of them is ours any more.
    pub fn has_changed(&mut self) -> Result<bool> {
        let now = match (&self.clocks, &self.started) {
            (Clocks::Group(_), _) => return Ok(false),
            (_, Some(started)) => ProcessClocks::of(started.instance.pids()),
            (_, None) => found(self.address, self.pid)?,
        };
        let now = Clocks::Processes(now);
        let changed = now != self.clocks;
        self.clocks = now;
        Ok(changed)
    }

    /// CPU time once they rest; `None`: processes were replaced meanwhile, as by a reload, and are looked for again.
    pub fn at_rest_ns(&mut self) -> Result<Option<u64>> {
        let now = self.clocks.at_rest_ns();
        if now.is_none() {
            self.has_changed()?;
        }
        Ok(now)
    }

    /// Whether it comes to rest soon after work, so that milliseconds of a step can be told from those of the next.
    pub fn comes_to_rest(&self) -> bool {
        let [quiet, limit] = REST;
        match &self.clocks {
            Clocks::Processes(clocks) => clocks.rest_within(limit, quiet),
            Clocks::Group(clock) => ProcessClocks::of(clock.pids()).rest_within(limit, quiet),
        }
    }

    /// CPU time of its processes so far, nanoseconds.
    pub fn read_ns(&self) -> u64 {
        self.clocks.read_ns().unwrap_or(0)
    }

    /// Whether this is one of its processes.
    pub fn has(&self, pid: u32) -> bool {
        match &self.clocks {
            Clocks::Processes(clocks) => clocks.pids().contains(&pid),
            Clocks::Group(clock) => clock.pids().contains(&pid),
        }
    }
}

/// The processes that listen there, or this one, with all below them.
fn found(address: SocketAddr, pid: Option<u32>) -> Result<ProcessClocks> {
    let clocks = match pid {
        Some(pid) => Some(ProcessClocks::with_descendants([pid])),
        None => {
            listening::owner_numbers(&address).filter(|owners| !owners.is_empty()).map(ProcessClocks::with_descendants)
        }
    };
    let clocks = clocks.with_context(|| {
        format!(
            "no process of yours on this machine listens on {address}, so that its CPU time cannot be read. Run as \
             the server's user or as root, or name its main process with --pid"
        )
    })?;
    clocks.read_ns().with_context(|| format!("the processes that listen on {address} have ended"))?;
    Ok(clocks)
}
