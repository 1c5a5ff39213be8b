//! The load process as the runner sees it: one child that lives as long as the experiment and does one block per
//! command.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::private;
use tlsdyno_base::until::until;
use tlsdyno_engine::load::{Outcome, Plan, Until};
use tlsdyno_record::model::job::{Held, Job, Makers, Reply, Run};
use tlsdyno_record::model::{ClientModel, Network, WorkersModel};
use tlsdyno_servers::launch::own_executable;
use tlsdyno_traffic::machines::carried::{self, Packer};

use super::schedule::Work;

/// A process of `tlsdyno load --job`.
pub struct LoadProcess {
    child: Child,
    commands: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
    stores: Stores,
    pub users: u32,
    pub requests: u32,
    /// Source addresses of connections from workers on other machines.
    pub sources: Vec<IpAddr>,
    /// Round-trip time to the furthest worker, or through an emulated network, nanoseconds.
    trip_ns: u64,
    /// Number of loops over all workers, or 1: a load needs at least as many users.
    pub loops: u32,
    /// Workers, which may be lost, make the load.
    is_by_workers: bool,
}

/// Sessions of clients at the start of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    New,
    /// Sessions of the target's last run that kept them.
    Kept,
    /// For a slice: sessions that earlier slices of this target left in the store with this number.
    OfSlices(u32),
}

/// Maximum time for a load process without workers to end.
const GRACE: Duration = Duration::from_millis(500);
/// Maximum time for a load process with workers, and for what started them, to end.
const GRACE_OF_WORKERS: Duration = Duration::from_secs(20);
/// Minimum length of a slice in round trips to workers, or through an emulated network.
const TRIPS_OF_SLICE: u64 = 50;
/// Minimum length of a slice with workers or a network, microseconds: the server rests for a few milliseconds before
/// it.
const SLICE_US_MIN: u64 = 20_000;
/// Interval of polling for the end.
const LOOKED: Duration = Duration::from_millis(10);

impl LoadProcess {
    /// Writes the job into `directory`, starts the process on `cpu` and waits until it is ready. All plans have one
    /// workload, but may close connections at different times.
    pub fn start(
        plans: &[Plan],
        client: &ClientModel,
        (workers, network): (Option<&WorkersModel>, Option<&Network>),
        directory: &Path,
        cpu: usize,
    ) -> Result<LoadProcess> {
        let workload = &plans.first().context("there is nothing to load")?.workload;
        let mut packer = Packer::default();
        if workers.is_some() {
            plans.iter().try_for_each(carried::check).or_fault(Fault::Usage)?;
        }
        let (mut packed, mut data) = (Vec::new(), BTreeMap::new());
        for plan in plans {
            packed.push(packer.pack(plan).or_fault(Fault::Usage)?);
            // It forgets a workload when the next one has another.
            data.extend(packer.data.clone());
        }
        let data = data.into_iter().map(|(hash, bytes)| (hash, STANDARD.encode(bytes)));
        let (client, workers_model) = (client.clone(), workers.cloned());
        let network = network.copied();
        let job = Job { plans: packed, data: data.collect(), client, workers: workers_model, network };
        let path = directory.join("job.json");
        private::write(&path, &serde_json::to_vec(&job)?).with_context(|| format!("write {}", path.display()))?;
        let mut command = own_executable()?;
        command.args(["load", "--job"]).arg(&path).arg("--cpu").arg(cpu.to_string());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start the load process")?;
        let commands = child.stdin.take();
        let replies = BufReader::new(child.stdout.take().context("the load process has no output")?);
        let mut process = LoadProcess {
            child,
            commands,
            replies,
            stores: Stores::default(),
            users: workload.users.len() as u32,
            requests: workload.requests.len() as u32,
            sources: Vec::new(),
            trip_ns: 0,
            loops: 1,
            is_by_workers: workers.is_some(),
        };
        let Reply::Ready(Makers { sources, trip_ns, loops }) = process.reply()? else {
            bail!("the load process answered before it was asked (a fault of tlsdyno)")
        };
        let of_network = network.map_or(0, |network| (network.delay_ms * 1e6) as u64);
        (process.sources, process.trip_ns, process.loops) = (sources, trip_ns.max(of_network), loops.max(1));
        process.require_work(plans).or_fault(Fault::Usage)?;
        Ok(process)
    }

    /// Refuses workers with more loops than a target has connections: each loop needs one.
    fn require_work(&self, plans: &[Plan]) -> Result<()> {
        let least = plans.iter().map(|plan| plan.connections.total).min().unwrap_or(self.loops);
        ensure!(
            self.loops <= least,
            "the workers have {} loops together, each of which needs a connection, and there are at most {least} at \
             once; raise --connections (of arrays and clusters --clients), or start workers with fewer --threads",
            self.loops
        );
        Ok(())
    }

    /// Minimum length of a slice with workers or a network, microseconds; 0 without these.
    pub fn slice_us_min(&self) -> u64 {
        let of_trips = TRIPS_OF_SLICE * self.trip_ns / 1_000;
        if self.is_by_workers { SLICE_US_MIN.max(of_trips) } else { of_trips }
    }

    /// Runs one block on a target that listens at `address`, and waits for its outcome.
    pub fn run(&mut self, target: usize, address: SocketAddr, work: &Work, sessions: Sessions) -> Result<Outcome> {
        self.begin(target, address, work, sessions)?;
        self.outcome()
    }

    /// Begins a block; [`LoadProcess::outcome`] waits for its end.
    pub fn begin(&mut self, target: usize, address: SocketAddr, work: &Work, sessions: Sessions) -> Result<()> {
        let run = Run {
            plan_number: target,
            address,
            users: work.piece.users.clone(),
            until: work.timed.map_or(Until::Laps(work.laps), |timed| Until::Elapsed(timed.for_ns)),
            seed: work.timed.map_or(0, |timed| timed.seed),
            held: self.stores.hold(target, address, sessions),
        };
        let commands = self.commands.as_mut().context("the load process was told to end")?;
        let mut line = serde_json::to_vec(&run)?;
        line.push(b'\n');
        commands.write_all(&line).and_then(|()| commands.flush()).context("the load process has died")
    }

    /// Waits for the start time of a block with a lead-in, in nanoseconds of the monotonic clock. With workers it lies
    /// some 50 ms ahead.
    pub fn begins_ns(&mut self) -> Result<u64> {
        match self.reply()? {
            Reply::Begun { at_ns } => Ok(at_ns),
            _ => bail!("the load process did not say when a block begins (a fault of tlsdyno)"),
        }
    }

    pub fn outcome(&mut self) -> Result<Outcome> {
        let Reply::Outcome { outcome, sources, .. } = self.reply()? else {
            bail!("the load process started anew in mid-run (a fault of tlsdyno)")
        };
        if !outcome.losses.is_empty() {
            self.sources = sources;
        }
        Ok(*outcome)
    }

    /// The next reply; a failure becomes an error that names whose fault it is, such as lost workers.
    fn reply(&mut self) -> Result<Reply> {
        let mut line = String::new();
        let read = self.replies.read_line(&mut line).context("read from the load process")?;
        if read == 0 {
            let status = self.child.wait().map(|status| status.to_string()).unwrap_or_else(|error| error.to_string());
            bail!("the load process ended unexpectedly ({status}); its own message is above");
        }
        let reply = serde_json::from_str(&line);
        match reply.with_context(|| format!("the load process answered `{}`", line.trim_end()))? {
            Reply::Error { message, fault } => {
                let error = anyhow!(message);
                Err(match fault.or(self.is_by_workers.then_some(Fault::Unreachable)) {
                    Some(fault) => fault.wrap(error),
                    None => error,
                })
            }
            reply => Ok(reply),
        }
    }

    /// Ends the process and its workers: end of input ends it, else it is killed.
    pub fn end(&mut self) {
        self.commands = None;
        let grace = if self.is_by_workers { GRACE_OF_WORKERS } else { GRACE };
        if let Ok(Some(_)) = until(grace, LOOKED, || self.child.try_wait(), Option::is_some) {
            return;
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

/// Numbers of the stores of sessions, by target, the address of its server, and the store's owner.
#[derive(Debug, Default)]
struct Stores {
    known: BTreeMap<(usize, SocketAddr, Option<u32>), u64>,
    next: u64,
}

impl Stores {
    fn hold(&mut self, target: usize, address: SocketAddr, sessions: Sessions) -> Option<Held> {
        let of_slices = match sessions {
            Sessions::New => return None,
            Sessions::Kept => None,
            Sessions::OfSlices(store) => Some(store),
        };
        // Another server has come into the place of the one whose sessions these are.
        let is_gone = |(of, at, _): &(usize, SocketAddr, Option<u32>)| *of == target && *at != address;
        let dropped_numbers = self.known.iter().filter(|(key, _)| is_gone(key)).map(|(_, number)| *number).collect();
        self.known.retain(|key, _| !is_gone(key));
        let next = &mut self.next;
        let number = *self.known.entry((target, address, of_slices)).or_insert_with(|| {
            *next += 1;
            *next
        });
        Some(Held { number, dropped_numbers, is_slice: of_slices.is_some() })
    }
}
