//! How steps are measured: some milliseconds of each in turn, from rest to rest of the server's processes.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tlsdyno_base::exchange::Exchange;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_base::{interrupt, listening, process_tree};
use tlsdyno_bench::run::observer::Observer;
use tlsdyno_bench::run::runner::{self, Finished, Plan, SlicesOfRound, Subject};
use tlsdyno_bench::run::schedule::{Piece, Schedule, Work};
use tlsdyno_bench::run::sliced::{Failed, TimeOfSlices};
use tlsdyno_record::store::{Block, Configuration, Journal, KindPart, Record, Role, Slice};
use tlsdyno_servers::cpu::ProcessClocks;

use crate::CostRecord;
use crate::file::CostExperiment;
use crate::pilot::Maker;
use crate::steps::{Step, WHOLE};

/// Length of a slice: long against what a server needs to get going again, short against what a machine stays the same
/// for.
const SLICE: Duration = Duration::from_millis(8);
/// Connections of a slice at least: the first one after a rest is dearer than the others.
const CONNECTIONS_LEAST: u32 = 4;
/// How long it may take to connect.
const PATIENCE: Duration = Duration::from_secs(2);
/// So long the server is watched before it has a connection of ours.
const LOOK: Duration = Duration::from_millis(500);
/// A server that uses more of a CPU without us is not measured.
const BUSY_MAX_PERCENT: f64 = 5.0;
/// Connections of a warm-up.
const WARM_UP: u32 = 20;
/// Rounds that intervals are made from.
const ROUNDS: u32 = 12;
/// Fewer tell no interval.
const ROUNDS_LEAST: u32 = 5;

/// Runs it. An error means that measuring did not begin.
pub fn run(experiment: &CostExperiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    runner::run(&experiment.question, &experiment.measure, stop, observer, |record, observer| {
        Outside::start(experiment, record, stop, observer)
    })
}

/// A server that is there, as its clients see it, and its processes.
struct Outside<'a> {
    steps: Vec<Step>,
    maker: Maker,
    server: Server,
    sweeps: u32,
    stop: &'a AtomicBool,
}

/// The processes whose CPU time is read.
struct Server {
    address: SocketAddr,
    pid: Option<u32>,
    clocks: ProcessClocks,
}

impl Server {
    fn find(address: SocketAddr, pid: Option<u32>) -> Result<Server> {
        let clocks = match pid {
            Some(pid) => Some(ProcessClocks::with_descendants([pid])),
            None => listening::owner_numbers(&address)
                .filter(|owners| !owners.is_empty())
                .map(ProcessClocks::with_descendants),
        };
        let clocks = clocks.with_context(|| {
            format!(
                "no process of yours on this machine listens on {address}, so that its CPU time cannot be read. Run as \
                 the server's user or as root, or name its main process with --pid"
            )
        })?;
        clocks.read_ns().with_context(|| format!("the processes that listen on {address} have ended"))?;
        Ok(Server { address, pid, clocks })
    }

    /// The part of a CPU that it uses without us.
    fn busy(&self) -> f64 {
        let before_ns = self.clocks.read_ns().unwrap_or(0);
        std::thread::sleep(LOOK);
        self.clocks.read_ns().unwrap_or(0).saturating_sub(before_ns) as f64 / LOOK.as_nanos() as f64
    }

    /// Whether other processes serve the address now; from here on those are read.
    ///
    /// # Errors
    /// None of them is ours any more.
    fn has_changed(&mut self) -> Result<bool> {
        let now = Server::find(self.address, self.pid)?;
        let changed = now.clocks != self.clocks;
        *self = now;
        Ok(changed)
    }

    /// Refuses a server that begins a process for a connection: its clock is in none that is read.
    fn refuse_process_for_each(&mut self) -> Result<()> {
        let connected = Exchange::connect(self.address, PATIENCE)?;
        std::thread::sleep(LOOK);
        let begins_some = self.has_changed()?;
        drop(connected);
        ensure_fault!(
            Environment,
            !begins_some,
            "the server began a process for a connection: the CPU time of processes that come and go cannot be read"
        );
        Ok(())
    }

    /// CPU time once they rest; processes that were replaced meanwhile, as by a reload, are looked for again.
    fn at_rest_ns(&mut self) -> Result<Option<u64>> {
        let now = self.clocks.at_rest_ns();
        if now.is_none() {
            *self = Server::find(self.address, self.pid)?;
        }
        Ok(now)
    }
}

impl<'a> Outside<'a> {
    fn start(
        experiment: &CostExperiment,
        record: &mut Record,
        stop: &'a AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Outside<'a>> {
        let address = experiment.address()?;
        let answers = Exchange::connect(address, PATIENCE).map(drop);
        answers.with_context(|| format!("nobody answers at {address}")).or_fault(Fault::Unreachable)?;
        let mut server = Server::find(address, experiment.cost.pid).or_fault(Fault::Environment)?;
        server.refuse_process_for_each()?;
        let busy_percent = 100.0 * server.busy();
        ensure_fault!(
            Environment,
            busy_percent < BUSY_MAX_PERCENT,
            "the server uses {busy_percent:.0} % of a CPU without a connection of ours: other traffic would be charged \
             to the steps. Measure a copy, or when it has nothing else to do"
        );
        observer.tell(
            "aborted handshakes are part of what is measured: the server's error log fills with them, and a program \
             that bans addresses for them may act",
        );
        let all = Step::all();
        let mut maker = Maker::new(experiment, &all)?;
        observer.step("finding out what the server takes");
        let (mut steps, mut refused) = (Vec::new(), Vec::new());
        for (number, step) in all.iter().enumerate() {
            interrupt::before_measuring(stop, interrupt::check(stop))?;
            match maker.tried(number, step) {
                Ok(handshake) => {
                    if step.name == WHOLE
                        && let Some(handshake) = handshake
                    {
                        let group = handshake.group.map_or(String::new(), |group| format!(" {group}"));
                        record.manifest.negotiated = format!("{} {}{group}", handshake.version, handshake.suite);
                    }
                    steps.push(step.clone());
                }
                Err(error) => refused.push((step.name.clone(), error.to_string())),
            }
        }
        if let Some((_, why)) = refused.iter().find(|(name, _)| name == WHOLE) {
            let error = anyhow::anyhow!("the server answers no request over TLS 1.3: {why}");
            return Err(Fault::Unreachable.of(error));
        }
        // The numbers of steps are those of the ones that are left.
        let mut maker = Maker::new(experiment, &steps)?;
        for (number, step) in steps.iter().enumerate() {
            maker.tried(number, step).with_context(|| step.name.clone()).or_fault(Fault::Unreachable)?;
            let role = if step.name == WHOLE { Role::AsIs } else { Role::Setting };
            let passed = vec![format!("three connections went as far as `{}`", step.reach)];
            record.configurations.push(Configuration { role, ..Configuration::setting(&step.name, true, passed) });
        }
        describe(record, experiment, &server);
        record.kind_part = KindPart::from(CostRecord { experiment: experiment.clone(), steps: steps.clone(), refused });
        Ok(Outside { steps, maker, server, sweeps: 0, stop })
    }

    /// Connections of a step for about so long, each of them a hit; `None`: the server's processes changed meanwhile.
    fn slice(&mut self, index: usize, length: Duration, since: Instant) -> Result<Option<(Slice, u64)>> {
        let Some(before_ns) = self.server.at_rest_ns()? else { return Ok(None) };
        let began = Instant::now();
        let started_us = since.elapsed().as_micros() as u64;
        let (mut hits, mut body_bytes) = (0, 0);
        while hits < CONNECTIONS_LEAST || began.elapsed() < length {
            let made = self.maker.make(index, &self.steps[index])?;
            hits += 1;
            body_bytes += made.body_bytes;
        }
        let elapsed_us = began.elapsed().as_micros() as u32;
        let Some(after_ns) = self.server.at_rest_ns()? else { return Ok(None) };
        let server_cpu_ns = after_ns.saturating_sub(before_ns);
        let sweep_number = self.sweeps;
        Ok(Some((Slice { sweep_number, started_us, elapsed_us, server_cpu_ns, hits, handshakes_full: 0 }, body_bytes)))
    }
}

/// What is known of the server from outside.
fn describe(record: &mut Record, experiment: &CostExperiment, server: &Server) {
    let manifest = &mut record.manifest;
    let owner = server.clocks.pids().first().copied();
    manifest.server_name = owner.map(process_tree::command_line).unwrap_or_default();
    manifest.cpu_accounting = "processes".to_owned();
    manifest.effort = "lean".to_owned();
    manifest.workload = format!("GET {}, one connection after the other", experiment.cost.url);
}

impl Subject for Outside<'_> {
    fn warm_up(&self, _index: usize, factor: u32) -> Work {
        Piece { users: 0..0, requests: u64::from(WARM_UP.saturating_mul(factor).min(10 * WARM_UP)) }.into()
    }

    fn plan(&mut self, _seconds_per_request: &[f64], left: Duration) -> Plan {
        let piece = Piece { users: 0..0, requests: 1 };
        let plan = Plan::of(Schedule::of_rounds(left / ROUNDS, left), vec![piece.into()]);
        let slices = SlicesOfRound {
            length: left / ROUNDS,
            rounds_wanted: Some(ROUNDS),
            rounds_least: ROUNDS_LEAST,
            blocks_share: None,
        };
        Plan { slices: Some(slices), ..plan }
    }

    fn block(&mut self, index: usize, work: &Work, _journal: &mut Journal) -> Result<Block> {
        let began = Instant::now();
        for _ in 0..work.piece.requests {
            interrupt::check(self.stop)?;
            self.maker.make(index, &self.steps[index]).with_context(|| self.steps[index].name.clone())?;
        }
        let hits = work.piece.requests;
        Ok(Block {
            elapsed_ns: began.elapsed().as_nanos() as u64,
            hits,
            connections: hits,
            valid: true,
            ..Block::default()
        })
    }

    fn slices(
        &mut self,
        configurations: &[usize],
        TimeOfSlices { since, length, .. }: TimeOfSlices,
        random: &mut SplitMix64,
    ) -> Result<Vec<Block>, Failed> {
        let began = Instant::now();
        let started_ns = since.elapsed().as_nanos() as u64;
        let mut blocks: Vec<Block> = configurations
            .iter()
            .map(|&configuration| Block { configuration, started_ns, valid: true, ..Block::default() })
            .collect();
        while began.elapsed() < length {
            let mut order: Vec<usize> = (0..blocks.len()).collect();
            random.shuffle(&mut order);
            for at in order {
                let index = blocks[at].configuration;
                interrupt::check(self.stop).map_err(|error| (index, error))?;
                let slice = self.slice(index, SLICE, since);
                let slice = slice.with_context(|| self.steps[index].name.clone()).or_fault(Fault::Unreachable);
                let Some((slice, body_bytes)) = slice.map_err(|error| (index, error))? else { continue };
                let block = &mut blocks[at];
                block.hits += u64::from(slice.hits);
                block.connections += u64::from(slice.hits);
                block.server_cpu_ns += slice.server_cpu_ns;
                block.elapsed_ns += 1000 * u64::from(slice.elapsed_us);
                block.body_bytes += body_bytes;
                block.slices.push(slice);
            }
            self.sweeps += 1;
        }
        // What processes that began meanwhile used is in no clock.
        if self.server.has_changed().or_fault(Fault::Unreachable).map_err(|error| (blocks[0].configuration, error))? {
            return Ok(Vec::new());
        }
        blocks.retain(|block| !block.slices.is_empty());
        Ok(blocks)
    }
}
