//! The load process as the runner sees it: one child that lives as long as the experiment and does one block per
//! command.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::schedule::Work;
use crate::fault::{Fault, OrFault};
use crate::model::job::{self, Job, OutcomeRecord, Reply, TargetSpec};
use crate::servers::launch::own_executable;

/// A running `tlsdyno load --job`.
pub struct LoadProcess {
    child: Child,
    commands: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
    /// Users in the workload that the load process made.
    pub users: u32,
    /// Requests in it.
    pub requests: u32,
    /// Addresses that connections come from, where workers elsewhere make them.
    pub sources: Vec<IpAddr>,
    /// How long a word to the furthest of these workers and its answer take, nanoseconds.
    trip_ns: u64,
    /// Loops of these workers, or 1: users that a load has at least.
    pub loops: u32,
    /// It has others make the load, who may be lost.
    is_by_workers: bool,
}

/// How long a load process has to end that has nobody else to end.
const GRACE: Duration = Duration::from_millis(500);
/// The same of one with workers, and what started these.
const GRACE_OF_WORKERS: Duration = Duration::from_secs(20);
/// A slice has so many round trips to the workers at least.
const TRIPS_OF_SLICE: u64 = 50;
/// And this many microseconds: the server rests for a few milliseconds before it.
const SLICE_US_MIN: u64 = 20_000;
/// How often it is looked whether it has.
const LOOKED: Duration = Duration::from_millis(10);

impl LoadProcess {
    /// Writes the job into `directory`, starts the process pinned to `cpu` and waits until it has made its workload.
    pub fn start(job: &Job, directory: &Path, cpu: Option<usize>) -> Result<LoadProcess> {
        let path = directory.join("job.json");
        std::fs::write(&path, serde_json::to_vec(job)?).with_context(|| format!("write {}", path.display()))?;
        let mut command = own_executable()?;
        command.args(["load", "--job"]).arg(&path);
        if let Some(cpu) = cpu {
            command.arg("--cpu").arg(cpu.to_string());
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start the load process")?;
        let commands = child.stdin.take();
        let replies = BufReader::new(child.stdout.take().context("the load process has no output")?);
        let (sources, is_by_workers) = (Vec::new(), job.workers.is_some());
        let (users, requests, trip_ns, loops) = (0, 0, 0, 1);
        let mut process =
            LoadProcess { child, commands, replies, users, requests, sources, trip_ns, loops, is_by_workers };
        match process.reply()? {
            Reply::Ready { users, requests, sources, trip_ns, loops } => {
                (process.users, process.requests) = (users, requests);
                (process.sources, process.trip_ns, process.loops) = (sources, trip_ns, loops.max(1));
                process.require_work(job).or_fault(Fault::Usage)?;
                Ok(process)
            }
            Reply::Error { message, fault } => match process.fault(fault) {
                Some(fault) => Err(fault.of(anyhow!(message))),
                None => bail!("the load process could not start: {message}"),
            },
            Reply::Outcome(_) | Reply::Begun { .. } => {
                bail!("the load process answered before it was asked (a fault of tlsdyno)")
            }
        }
    }

    /// Refuses workers with more loops than a target has connections: each loop needs one.
    fn require_work(&self, job: &Job) -> Result<()> {
        let at_once = |target: &TargetSpec| target.load.connections.unwrap_or(job.connections.total);
        let least = job.targets.iter().map(at_once).min().unwrap_or(self.loops);
        ensure!(
            self.loops <= least,
            "the workers have {} loops together, each of which needs a connection, and there are at most {least} at \
             once; raise --connections (of arrays and clusters --clients), or start workers with fewer --threads",
            self.loops
        );
        Ok(())
    }

    /// The shortest slice that is worth its way to workers and back, microseconds; 0: there are none.
    pub fn slice_us_min(&self) -> u64 {
        if self.is_by_workers { SLICE_US_MIN.max(TRIPS_OF_SLICE * self.trip_ns / 1_000) } else { 0 }
    }

    /// Runs one block against a target that listens at `address`, and waits for its outcome.
    pub fn run(&mut self, target: usize, address: SocketAddr, work: &Work) -> Result<OutcomeRecord> {
        self.run_with(target, address, work, None)
    }

    /// Runs one slice, with the sessions that earlier slices of this target have left in `store`.
    pub fn run_slice(&mut self, target: usize, address: SocketAddr, work: &Work, store: u32) -> Result<OutcomeRecord> {
        self.run_with(target, address, work, Some(store))
    }

    fn run_with(
        &mut self,
        target: usize,
        address: SocketAddr,
        work: &Work,
        store: Option<u32>,
    ) -> Result<OutcomeRecord> {
        self.command(target, address, work, store)?;
        self.outcome()
    }

    /// Begins a block; [`LoadProcess::outcome`] waits for its end.
    pub fn begin(&mut self, target: usize, address: SocketAddr, work: &Work) -> Result<()> {
        self.command(target, address, work, None)
    }

    fn command(&mut self, target: usize, address: SocketAddr, work: &Work, store: Option<u32>) -> Result<()> {
        let Work { piece, laps, timed } = work.clone();
        let (users_from, users_to) = (piece.users.start, piece.users.end);
        let command = job::Command::Run { target, users_from, users_to, laps, address: Some(address), timed, store };
        let commands = self.commands.as_mut().context("the load process was told to end")?;
        let mut line = serde_json::to_vec(&command)?;
        line.push(b'\n');
        commands.write_all(&line).and_then(|()| commands.flush()).context("the load process has died")
    }

    /// Waits until it is known when a block with a lead-in, which was begun, begins, in nanoseconds of the monotonic
    /// clock. With workers that lies some 50 ms ahead.
    ///
    /// # Errors
    /// It does not begin.
    pub fn begins_ns(&mut self) -> Result<u64> {
        match self.reply()? {
            Reply::Begun { at_ns } => Ok(at_ns),
            Reply::Error { message, fault } => Err(self.error(message, fault)),
            Reply::Outcome(_) | Reply::Ready { .. } => {
                bail!("the load process did not say when a block begins (a fault of tlsdyno)")
            }
        }
    }

    /// What came of the block that was begun.
    pub fn outcome(&mut self) -> Result<OutcomeRecord> {
        match self.reply()? {
            Reply::Outcome(outcome) => {
                if !outcome.losses.is_empty() {
                    self.sources.clone_from(&outcome.sources);
                }
                Ok(*outcome)
            }
            Reply::Error { message, fault } => Err(self.error(message, fault)),
            Reply::Ready { .. } | Reply::Begun { .. } => {
                bail!("the load process started anew in mid-run (a fault of tlsdyno)")
            }
        }
    }

    /// What it could not do, with whose fault that is.
    fn error(&self, message: String, fault: Option<Fault>) -> anyhow::Error {
        match self.fault(fault) {
            Some(fault) => fault.of(anyhow!(message)),
            None => anyhow!(message),
        }
    }

    /// Whose fault an error is: what is known, or that workers are lost.
    fn fault(&self, said: Option<Fault>) -> Option<Fault> {
        said.or(self.is_by_workers.then_some(Fault::Unreachable))
    }

    fn reply(&mut self) -> Result<Reply> {
        let mut line = String::new();
        let read = self.replies.read_line(&mut line).context("read from the load process")?;
        if read == 0 {
            let status = self.child.wait().map(|status| status.to_string()).unwrap_or_else(|error| error.to_string());
            bail!("the load process ended unexpectedly ({status}); its own message is above");
        }
        serde_json::from_str(&line).with_context(|| format!("the load process answered `{}`", line.trim_end()))
    }

    /// Ends it, with what it has others do: end of input ends the process, and one that does not end by itself is
    /// killed.
    pub fn end(&mut self) {
        self.commands = None;
        let grace = if self.is_by_workers { GRACE_OF_WORKERS } else { GRACE };
        let since = Instant::now();
        while since.elapsed() < grace {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(LOOKED);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for LoadProcess {
    fn drop(&mut self) {
        self.end();
    }
}
