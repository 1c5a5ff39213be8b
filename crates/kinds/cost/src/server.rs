//! The processes of a server whose CPU time is read.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tlsdyno_base::exchange::Exchange;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::listening;
use tlsdyno_base::process_tree;
use tlsdyno_base::until::until;
use tlsdyno_record::model::worker::{Look, Seen};
use tlsdyno_record::model::{WorkersModel, without_secrets};
use tlsdyno_record::store::{MemoryPoint, UNREAD};
use tlsdyno_servers::certificates;
use tlsdyno_servers::cpu::ProcessClocks;
use tlsdyno_servers::run_directory::{RunDirectory, make_passable};
use tlsdyno_servers::watch::{CpuOwner, Watch};
use tlsdyno_servers::{CommandSpec, ServerSpec, ServerTls};
use tlsdyno_traffic::machines::far_cpu::FarCpu;

use crate::file::Started;

/// Timeout of a connection attempt.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long the server is watched before its first connection of ours.
const LOOK: Duration = Duration::from_millis(500);
/// Maximum time for a server to become idle: a runtime still compiles itself after its start.
const SETTLING: Duration = Duration::from_secs(10);
/// Maximum time for its memory to stand still, as a garbage collector gives some back for as long as it runs.
const MEMORY_SETTLING: Duration = Duration::from_secs(2);
/// Time between two looks at its memory.
const MEMORY_LOOK: Duration = Duration::from_millis(50);
/// Maximum CPU use without our connections, as a part of a CPU, of a server that is measured.
const BUSY_MAX: f64 = 0.05;

/// Bytes of the page that every server that is started finds as `index.html` in its docroot.
const PAGE: usize = 1024;

/// A server that was already running, or one that was started.
pub(crate) struct Server {
    pub address: SocketAddr,
    /// Owns a server that was started, which ends with them.
    eyes: Eyes,
    /// CPU use without our connections, as a part of a CPU.
    pub busy: f64,
    /// Variables that it was started with; `None`: not known.
    pub variables: Option<Vec<(String, String)>>,
    /// How it was started, and its directory, which is deleted after it has ended; `None`: it ran already.
    started: Option<(Started, RunDirectory)>,
}

/// Who reads the CPU time of its processes.
enum Eyes {
    Here(Watch),
    Worker(FarCpu),
    /// The server is on another machine, without a worker there.
    Nobody,
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display())).or_fault(Fault::Environment)
}

impl Server {
    /// The server that listens there, or the process with this id and its descendants; on another machine with a worker
    /// there, or without. Fails if no process of the user listens there, it is busy, or its processes cannot be
    /// watched.
    pub fn running(
        address: SocketAddr,
        pid: Option<u32>,
        workers: Option<&WorkersModel>,
        stop: &AtomicBool,
    ) -> Result<Server> {
        if let Err(error) = Exchange::connect(address, PATIENCE) {
            let quic = listening::takes_datagrams(&address);
            let hint = if quic { "; only UDP is open there: QUIC (HTTP/3) is not measured" } else { "" };
            let error = anyhow::Error::new(error).context(format!("nobody answers at {address}{hint}"));
            return Err(Fault::Unreachable.wrap(error));
        }
        let whose = pid.map_or(CpuOwner::Listener(address), CpuOwner::Process);
        let eyes = match workers {
            Some(workers) => Eyes::Worker(FarCpu::gather(workers, address, pid, stop)?),
            None if listening::is_of_this_host(address.ip()) => {
                Eyes::Here(Watch::new(whose).or_fault(Fault::Environment)?)
            }
            None => Eyes::Nobody,
        };
        let told = |watch: &Watch| watch.pids().into_iter().map(process_tree::environment).find(|of| !of.is_empty());
        let variables = if let Eyes::Here(watch) = &eyes { told(watch) } else { None };
        Server { address, eyes, busy: 0.0, variables, started: None }.watched()
    }

    /// Starts a server; fails for the same reasons as [`Server::running`].
    pub fn started(started: &Started) -> Result<Server> {
        let (spec, directory) = started.spec()?;
        let instance = tlsdyno_servers::start(&spec, directory.path()).or_fault(Fault::Server)?;
        let (address, group) = (instance.address(), instance.group_clock());
        let variables = instance.description().environment;
        let watch = Watch::with_finder(move || Ok(ProcessClocks::new(instance.pids())), group)?;
        let started = Some((started.clone(), directory));
        Server { address, eyes: Eyes::Here(watch), busy: 0.0, variables, started }.watched()
    }

    /// What it is called, and what the experiment says of it; empty: nothing.
    pub fn names(&self) -> (String, String) {
        let names = |(of, _): &(Started, RunDirectory)| (of.name.clone(), of.about.clone());
        self.started.as_ref().map(names).unwrap_or_default()
    }

    /// It was started for this run, and ends with it.
    pub fn is_started(&self) -> bool {
        self.started.is_some()
    }

    /// Ends it, and starts it in the same way, where it may listen on another port; one that ran already goes on.
    pub fn start_anew(&mut self) -> Result<()> {
        let Some((started, _)) = &self.started else { return Ok(()) };
        let started = started.clone();
        // The port may be the same one, so that the old server ends first.
        self.eyes = Eyes::Nobody;
        *self = Server::started(&started)?;
        Ok(())
    }

    /// What its processes hold, once that stands still.
    pub fn memory(&mut self) -> Result<MemoryPoint> {
        self.at_rest_ns()?;
        let Eyes::Here(watch) = &mut self.eyes else { bail!("the memory of a server on another machine is not read") };
        let mut last = watch.memory()?;
        let look = || -> Result<bool> {
            let before = std::mem::replace(&mut last, watch.memory()?);
            Ok(before.pss_bytes == last.pss_bytes)
        };
        until(MEMORY_SETTLING, MEMORY_LOOK, look, |is_still| *is_still)?;
        Ok(last)
    }

    /// Decides how the CPU time is read, and refuses a server that is busy.
    fn watched(mut self) -> Result<Server> {
        self.watch_processes_for_each().or_fault(Fault::Environment)?;
        let mut look = || -> Result<f64> {
            let (before_ns, began) = (self.read_ns()?, Instant::now());
            std::thread::sleep(LOOK);
            Ok(self.read_ns()?.saturating_sub(before_ns) as f64 / began.elapsed().as_nanos() as f64)
        };
        self.busy = until(SETTLING, Duration::ZERO, &mut look, |busy| *busy <= BUSY_MAX)?;
        let of = self.address;
        if self.busy > BUSY_MAX {
            let error = anyhow::anyhow!(
                "the server at {of} uses {:.0} % of a CPU without a connection of ours: other traffic would be \
                 charged to the steps. Measure a copy, or when it has nothing else to do",
                100.0 * self.busy
            );
            return Err(Fault::Environment.wrap(error));
        }
        Ok(self)
    }

    /// A server that begins a process for a connection is read by the account of its control group, where it has one
    /// of its own, else by what the processes waited for that stay.
    fn watch_processes_for_each(&mut self) -> Result<()> {
        let connected = Exchange::connect(self.address, PATIENCE)?;
        std::thread::sleep(LOOK);
        let can_be_read = !self.has_changed()? || self.is_so(Look::ForEach)?;
        drop(connected);
        can_be_read.then_some(()).context(
            "the server began a process for a connection, has no control group of its own, and does not wait for such \
             processes: their CPU time cannot be read. Run it as a service or in a container, or start it with \
             --server-command as root",
        )
    }

    fn look(&mut self, look: Look) -> Result<Seen> {
        match &mut self.eyes {
            Eyes::Here(watch) => watch.observe(look),
            Eyes::Worker(worker) => worker.observe(look),
            // Steps are told by what a client waits, which needs no rest.
            Eyes::Nobody => Ok(match look {
                Look::Clock | Look::AtRest => Seen::CpuNs(Some(0)),
                Look::Rests | Look::Changed | Look::ForEach => Seen::IsSo(look == Look::Rests),
                Look::About => Seen::About { command: String::new(), accounting: UNREAD.to_owned() },
            }),
        }
    }

    fn cpu_ns(&mut self, look: Look) -> Result<Option<u64>> {
        match self.look(look)? {
            Seen::CpuNs(ns) => Ok(ns),
            other => bail!("the worker beside the server was asked for a time, and said {other:?}"),
        }
    }

    fn is_so(&mut self, look: Look) -> Result<bool> {
        match self.look(look)? {
            Seen::IsSo(is_so) => Ok(is_so),
            other => bail!("the worker beside the server was asked whether, and said {other:?}"),
        }
    }

    /// How its CPU time is read, for the manifest, and the command line of its first process.
    pub fn about(&mut self) -> Result<(String, String)> {
        let Seen::About { command, accounting } = self.look(Look::About)? else {
            bail!("the worker beside the server did not say what it is");
        };
        // It may be another program's, whose passwords stand on it.
        Ok((accounting, without_secrets(&command)))
    }

    /// Whether other processes serve the address now; from here on those are read. Fails if none is the user's.
    pub fn has_changed(&mut self) -> Result<bool> {
        self.is_so(Look::Changed)
    }

    /// CPU time once they rest; `None`: processes were replaced meanwhile, as by a reload, and are looked for again.
    pub fn at_rest_ns(&mut self) -> Result<Option<u64>> {
        self.cpu_ns(Look::AtRest)
    }

    /// Whether it comes to rest soon after work, so that milliseconds of a step can be told from those of the next.
    pub fn comes_to_rest(&mut self) -> Result<bool> {
        self.is_so(Look::Rests)
    }

    /// CPU time of its processes since their start, nanoseconds.
    pub fn read_ns(&mut self) -> Result<u64> {
        Ok(self.cpu_ns(Look::Clock)?.unwrap_or(0))
    }

    /// `None`: they are on another machine.
    pub fn pids_here(&self) -> Option<Vec<u32>> {
        match &self.eyes {
            Eyes::Here(watch) => Some(watch.pids()),
            _ => None,
        }
    }
}

impl Started {
    /// How it is started, and its directory, which it must not outlive.
    pub(crate) fn spec(&self) -> Result<(ServerSpec, RunDirectory)> {
        let directory = RunDirectory::create_for_command().or_fault(Fault::Environment)?;
        let docroot = directory.path().join("docroot");
        make_passable(&docroot)?;
        write(&docroot.join("index.html"), &"x".repeat(PAGE))?;
        let mut command = self.command.clone();
        if let Some(text) = &self.configuration {
            let path = directory.path().join("server.conf");
            write(&path, text)?;
            command = command.replace("{configuration}", &path.display().to_string());
        }
        let command =
            CommandSpec { command, address: self.address().1.to_owned(), plain_address: None, original: None };
        let made = self.certificate.map(|kind| certificates::create(kind, directory.path())).transpose()?;
        Ok((ServerSpec { tls: made.map(ServerTls::new), ..ServerSpec::of_command(command, docroot) }, directory))
    }
}
