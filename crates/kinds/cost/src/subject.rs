//! How steps are measured: some milliseconds of each in turn, from rest to rest of the server's processes.

use std::iter;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow};
use itertools::Itertools as _;
use tlsdyno_base::exchange::Failure;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_base::url::Url;
use tlsdyno_base::{ensure_fault, interrupt};
use tlsdyno_record::model::without_secrets;
use tlsdyno_record::store::{Block, Configuration, Journal, KindPart, Record, Role, Slice, Warning};
use tlsdyno_runner::run::manifest;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::runner::{self, Finished, Plan, SlicesOfRound, Subject};
use tlsdyno_runner::run::schedule::{Piece, Schedule, Work};
use tlsdyno_runner::run::sliced::{Failed, TimeOfSlices};
use tlsdyno_runner::run::warm_up::is_settled;

use crate::file::{Cost, CostExperiment, Measure, Started, resolved};
use crate::pilot::{SLOW, Target};
use crate::server::Server;
use crate::steps::Step;
use crate::{CostRecord, LABELS, Measured};

/// Minimum number of connections of a slice: the first one after a rest is dearer than the others.
const CONNECTIONS_LEAST: u32 = 4;
/// Maximum number of consecutive slices whose connections waited: more are the server's fault, fewer the machine's.
const SLOW_SLICES_MAX: u32 = 3;
const WARM_UP: u32 = 20;
/// Divisor of the measuring time: the longest time that servers get to become warm, beside the warm-up of each step.
const SETTLE_PART: u32 = 5;
const ROUNDS: u32 = 12;
/// Minimum number of rounds for intervals.
const ROUNDS_LEAST: u32 = 5;
/// Steps of another choice have a slice in every so many sweeps, all in the same: some are compared with each other.
const CHOICE_TURNS: u32 = 3;

pub fn run(experiment: &CostExperiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    runner::run(&experiment.question, &experiment.measure, stop, observer, |record, observer| {
        Outside::start(experiment, record, stop, observer)
    })
}

/// The servers, as their clients see them, and their processes.
pub(crate) struct Outside<'a> {
    pub targets: Vec<Target>,
    /// For each configuration the index of its target, and of the step there.
    pub steps: Vec<[usize; 2]>,
    sweeps: u32,
    pub stop: &'a AtomicBool,
}

impl<'a> Outside<'a> {
    pub fn start(
        experiment: &CostExperiment,
        record: &mut Record,
        stop: &'a AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Outside<'a>> {
        observer.tell(
            "aborted handshakes are part of what is measured: the server's error log fills with them, and a program \
             that bans addresses for them may act",
        );
        let mut targets = Vec::new();
        for (name, found) in servers(&experiment.cost, stop)? {
            // Only of the first server plain HTTP was named.
            let of_first = Cost {
                plain_url: experiment.cost.plain_url.clone().filter(|_| targets.is_empty()),
                ..experiment.cost.clone()
            };
            let target = found.and_then(|(url, server)| Target::of(&of_first, &url, server, stop, observer));
            targets.extend(unless_left_out(&name, target, stop, record, observer)?);
        }
        ensure_fault!(Server, !targets.is_empty(), "none of these servers can be measured");
        if targets.iter().any(|target| target.measured.is_seen() != targets[0].measured.is_seen()) {
            let error =
                anyhow!("the CPU time of some of these servers is read here, of others it is not: measure each alone");
            return Err(Fault::Usage.wrap(error));
        }
        if experiment.cost.rate_per_s.is_some() && !targets[0].measured.is_seen() {
            let error = anyhow!("--rate needs the server's CPU time, which a worker beside it tells: --on HOST");
            return Err(Fault::Usage.wrap(error));
        }
        let first = &targets[0].server;
        manifest::describe_environment(&mut record.manifest, first.variables.clone());
        // Of another machine nothing is known.
        record.manifest.machine = record.manifest.machine.take().filter(|_| first.pids_here().is_some());
        let servers: Vec<Measured> = targets.iter().map(|target| target.measured.clone()).collect();
        let whole = servers[0].whole_number().filter(|_| experiment.cost.measure == Measure::Time);
        let steps = describe(record, experiment, servers);
        if let Some(whole) = whole {
            record.configurations[whole].role = Role::AsIs;
        }
        Ok(Outside { targets, steps, sweeps: 0, stop })
    }

    fn step(&self, configuration: usize) -> &Step {
        let [target, step] = self.steps[configuration];
        &self.targets[target].measured.steps[step]
    }

    /// The step has a slice in this sweep.
    fn has_turn(&self, configuration: usize) -> bool {
        !self.step(configuration).is_choice || self.sweeps.is_multiple_of(CHOICE_TURNS)
    }

    /// Steps in random order, until the time ends.
    fn sweep(&mut self, blocks: &mut [Block], time: TimeOfSlices, random: &mut SplitMix64) -> Result<(), Failed> {
        let with_turn = (0..blocks.len()).filter(|at| self.has_turn(blocks[*at].configuration));
        let mut order: Vec<usize> = with_turn.collect();
        random.shuffle(&mut order);
        for at in order {
            let block = &mut blocks[at];
            let index = block.configuration;
            interrupt::check(self.stop).map_err(|error| (index, error))?;
            if Instant::now() >= time.end {
                break;
            }
            let [target, step] = self.steps[index];
            let slice = self.targets[target].slice(step, time.since, self.sweeps);
            let is_ours = self.targets[target].server.is_started();
            let slice = slice.map_err(|error| {
                let fault = if is_ours { Fault::Server } else { Fault::Unreachable };
                fault.wrap(error.context(self.step(index).name.clone()))
            });
            let Some((slice, body_bytes)) = slice.map_err(|error| (index, error))? else { continue };
            block.hits += u64::from(slice.hits);
            block.connections += u64::from(slice.hits);
            block.server_cpu_ns += slice.server_cpu_ns;
            block.elapsed_ns += 1000 * u64::from(slice.elapsed_us);
            block.body_bytes += body_bytes;
            // Where no CPU time is read, a block is one long slice: what clients wait needs no rest between them.
            if self.targets[target].measured.is_seen() {
                block.slices.push(slice);
            }
        }
        self.sweeps += 1;
        Ok(())
    }
}

impl Outside<'_> {
    /// Makes whole connections, for so long at most, until they cost what they will go on to cost: a runtime compiles
    /// what it has run often. What fails here fails again when it is measured, and is told there.
    fn settle(&mut self, most: Duration) {
        let (began, targets) = (Instant::now(), self.targets.len() as u32);
        for (number, target) in (1..).zip(&mut self.targets).filter(|(_, target)| target.measured.is_seen()) {
            let whole = target.measured.whole_number();
            let mut costs_ns = Vec::new();
            while !is_settled(&costs_ns) && began.elapsed() < most * number / targets {
                let slice = whole.and_then(|whole| target.slice(whole, began, 0).ok()?);
                let Some((slice, _)) = slice.filter(|_| interrupt::check(self.stop).is_ok()) else { break };
                costs_ns.push(slice.server_cpu_ns as f64 / f64::from(slice.hits));
            }
        }
    }
}

/// Leaves out a server with a name that cannot be measured, with a warning, as of many stacks one may not work here. A
/// server without a name is one of a few that a person has asked for.
pub(crate) fn unless_left_out<T>(
    name: &str,
    started: Result<T>,
    stop: &AtomicBool,
    record: &mut Record,
    observer: &mut dyn Observer,
) -> Result<Option<T>> {
    interrupt::before_measuring(stop, interrupt::check(stop))?;
    match started {
        Err(error) if !name.is_empty() => {
            let what = format!("{name} was left out: {error:#}");
            observer.warn(&what);
            let remedy = format!("The others stand; start {name} alone, and read its error log");
            record.warnings.push(Warning::new("left_out", what).with_remedy(remedy));
            Ok(None)
        }
        started => started.map(Some),
    }
}

/// Servers with their names.
type Servers = Vec<(String, Result<(Url, Server)>)>;

fn servers(cost: &Cost, stop: &AtomicBool) -> Result<Servers> {
    let mut servers: Servers = Vec::new();
    let start = |command: Started| {
        let server = Server::started(&command).and_then(|server| {
            let url = command.url(server.address)?;
            Ok((url, server))
        });
        let is_named = !command.name.is_empty();
        (command.name, if is_named { server } else { server.context("the server command") })
    };
    let started = cost.started().into_iter().map(start).collect::<Servers>();
    let first = Some((&cost.url, cost.pid)).filter(|(url, _)| !url.is_empty());
    let pids = cost.against_pid.iter().copied().map(Some).chain(iter::repeat(None));
    for (url, pid) in first.into_iter().chain(cost.against.iter().zip(pids)) {
        let server = Server::running(resolved(url)?, pid, cost.workers.as_ref(), stop)?;
        servers.push((String::new(), Ok((Url::parse_any(url)?, server))));
    }
    // The first server stays the first.
    let at = if cost.url.is_empty() { 0 } else { servers.len() };
    servers.splice(at..at, started);
    Ok(servers)
}

impl Target {
    /// Connections of a step for so long as a turn is, each of them a hit, and the bytes of their bodies; `None`: the
    /// server's processes changed meanwhile, or something let the connections wait.
    fn slice(&mut self, number: usize, since: Instant, sweep_number: u32) -> Result<Option<(Slice, u64)>> {
        let length = Duration::from_micros(self.measured.slice_us);
        let step = &self.measured.steps[number].id;
        self.maker.renew_session(number, step).map_err(|error| self.refused(error))?;
        let Some(before_ns) = self.server.at_rest_ns()? else { return Ok(None) };
        let began = Instant::now();
        let started_us = since.elapsed().as_micros() as u64;
        let (mut hits, mut body_bytes) = (0, 0);
        while hits < CONNECTIONS_LEAST || began.elapsed() < length && self.maker.is_stocked(step) {
            let made = self.maker.make(number, step).map_err(|error| self.refused(error))?;
            hits += 1;
            body_bytes += made.body_bytes;
        }
        let elapsed = began.elapsed();
        if elapsed > SLOW * hits * (1 + step.more_requests) {
            self.slow_slices += 1;
            if self.slow_slices < SLOW_SLICES_MAX {
                return Ok(None);
            }
            let each_ms = (elapsed / hits).as_millis();
            return Err(self.refused(anyhow!("each connection now waits for {each_ms} ms")));
        }
        self.slow_slices = 0;
        let Some(after_ns) = self.server.at_rest_ns()? else { return Ok(None) };
        // What the server does without us goes on meanwhile.
        let own_ns = (self.measured.busy_percent / 100.0 * began.elapsed().as_nanos() as f64) as u64;
        let server_cpu_ns = after_ns.saturating_sub(before_ns).saturating_sub(own_ns);
        let elapsed_us = elapsed.as_micros() as u32;
        Ok(Some((Slice { sweep_number, started_us, elapsed_us, server_cpu_ns, hits, handshakes_full: 0 }, body_bytes)))
    }

    /// Adds the likely reason why a server no longer takes what it took before.
    fn refused(&self, error: Error) -> Error {
        let is_refusal = error
            .downcast_ref::<Failure>()
            .is_none_or(|failure| !matches!(failure, Failure::Http(_) | Failure::Opening(_) | Failure::Answer(_)));
        let hint = "the server took this before: it may limit or ban a client that makes many connections or breaks \
                    handshakes off. Look at its log, let this address pass, or stay below its limit with --at-most";
        if is_refusal { anyhow!("{error:#}; {hint}") } else { error }
    }
}

/// Writes down the servers, with their steps as configurations, and what was asked. Returns for each configuration the
/// number of its server, and of the step there.
pub(crate) fn describe(
    record: &mut Record,
    experiment: &CostExperiment,
    mut servers: Vec<Measured>,
) -> Vec<[usize; 2]> {
    let mut numbers = Vec::new();
    for (number, server) in servers.iter().enumerate() {
        for (index, step) in server.steps.iter().enumerate() {
            let passed = vec![format!("three connections went as far as `{}`", step.id.reach)];
            let name = match servers.len() {
                1 => step.name.clone(),
                _ => format!("{}: {}", &LABELS[number..=number], step.name),
            };
            record.configurations.push(Configuration::setting(&name, true, passed));
            numbers.push([number, index]);
        }
    }
    // What all have alike is told once.
    let of = |text: fn(&Measured) -> &str| servers.iter().map(text).dedup().collect::<Vec<_>>().join(" | ");
    let manifest = &mut record.manifest;
    manifest.server_name = of(|server| &server.command);
    manifest.cpu_accounting = of(|server| &server.accounting);
    manifest.negotiated = of(|server| &server.negotiated);
    manifest.effort = "lean".to_owned();
    manifest.workload = format!("{}, one connection after the other", of(|server| &server.address));
    for Step { name, id, .. } in servers.iter_mut().flat_map(|of| &mut of.steps) {
        [name, &mut id.page].into_iter().for_each(|text| *text = without_secrets(text));
    }
    let mut kept = CostExperiment { question: without_secrets(&experiment.question), ..experiment.clone() };
    kept.cost = kept.cost.without_secrets();
    record.kind_part = KindPart::from(CostRecord { experiment: kept, servers });
    numbers
}

impl Subject for Outside<'_> {
    fn warm_up(&self, _index: usize, factor: u32) -> Work {
        Piece { users: 0..0, requests: u64::from(WARM_UP.saturating_mul(factor).min(10 * WARM_UP)) }.into()
    }

    fn is_bounded(&self) -> bool {
        // What a client waits has blocks without slices, by which the runner knows no result.
        self.targets.iter().all(|target| target.measured.is_seen())
    }

    fn plan(&mut self, _seconds_per_request: &[f64], left: Duration) -> Plan {
        let began = Instant::now();
        self.settle(left / SETTLE_PART);
        let left = left.saturating_sub(began.elapsed());
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
        let [target, number] = self.steps[index];
        let target = &mut self.targets[target];
        let step = &target.measured.steps[number];
        target.maker.renew_session(number, &step.id)?;
        for _ in 0..work.piece.requests {
            interrupt::check(self.stop)?;
            target.maker.make(number, &step.id).map_err(|error| target.refused(error).context(step.name.clone()))?;
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

    fn leave_out(&mut self, index: usize) -> bool {
        !self.targets[self.steps[index][0]].measured.name.is_empty()
    }

    fn slices(
        &mut self,
        configurations: &[usize],
        time: TimeOfSlices,
        random: &mut SplitMix64,
    ) -> Result<Vec<Block>, Failed> {
        let began = Instant::now();
        let started_ns = time.since.elapsed().as_nanos() as u64;
        let block = |&configuration| Block { configuration, started_ns, valid: true, ..Block::default() };
        let mut blocks: Vec<Block> = configurations.iter().map(block).collect();
        let before = self.sweeps;
        while (began.elapsed() < time.length || self.sweeps == before) && Instant::now() < time.end {
            self.sweep(&mut blocks, time, random)?;
        }
        // What processes that began meanwhile used is in no clock.
        for target in &mut self.targets {
            let changed = target.server.has_changed().or_fault(Fault::Unreachable);
            if changed.map_err(|error| (blocks[0].configuration, error))? {
                return Ok(Vec::new());
            }
        }
        blocks.retain(|block| block.hits > 0);
        Ok(blocks)
    }
}
