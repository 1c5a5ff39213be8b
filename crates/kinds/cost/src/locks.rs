//! Locks of a server, from valgrind: what connections of each kind execute in two numbers. Their difference has neither
//! what a run begins and ends with nor what telling callgrind to write takes.

pub mod page;
pub mod summary;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_record::model::{self, without_secrets};
use tlsdyno_record::store::{Block, Journal, Record, UNREAD, Warning};
use tlsdyno_runner::run::manifest;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::runner::{self, Finished, Plan, Subject};
use tlsdyno_runner::run::schedule::{Piece, Schedule, Work};
use tlsdyno_servers::callgrind::{Callgrind, Code, Locks};
use tlsdyno_servers::{Instance, RunDirectory, ServerSpec};

use crate::file::{Cost, CostExperiment, Started};
use crate::maker::Maker;
use crate::steps::StepId;
use crate::{Measured, pilot, subject};

/// Connections of the shorter blocks, or further requests: longer ones have twice as many. OpenSSL makes new blinding
/// values at each 32nd signature by an RSA key: each difference has one.
const REQUESTS: u64 = 32;
/// The same for a first look, which a measuring time below this asks for, seconds.
const REQUESTS_QUICK: u64 = 8;
const QUICK_S: f64 = 30.0;
/// Two differences tell whether the counts repeat.
const ROUNDS: u32 = 4;
/// The first connections fetch and allocate what later ones find.
const WARM_UP: u64 = 8;
/// Minimum bound on the measuring time, seconds: under valgrind, on a machine with much else to do, all of it takes
/// long.
const BOUND_S: f64 = 1800.0;
/// Maximum part of the instructions whose code is in no file, per cent, of which nothing need be said.
const UNPLACED_MAX_PERCENT: u64 = 1;

pub fn run(experiment: &CostExperiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    if !cfg!(target_arch = "x86_64") {
        let why = "locks are counted on x86-64 alone: tlsdyno does not know the instructions of this processor";
        return Err(Fault::Environment.wrap(anyhow!(why)));
    }
    Callgrind::require()?;
    let time_s = experiment.measure.time_s.max(BOUND_S);
    let measure = model::Measure { time_s, rounds: Some(ROUNDS), ..experiment.measure.clone() };
    runner::run(&experiment.question, &measure, stop, observer, |record, observer| {
        UnderValgrind::start(experiment, record, stop, observer)
    })
}

struct UnderValgrind<'a> {
    targets: Vec<Target>,
    /// For each configuration the index of its target, and of the step there.
    steps: Vec<[usize; 2]>,
    /// Of the blocks of consecutive rounds.
    requests: [u64; 2],
    stop: &'a AtomicBool,
}

/// A server under valgrind. It ends before its directory and callgrind's are deleted.
struct Target {
    instance: Instance,
    callgrind: Callgrind,
    code: Code,
    maker: Maker,
    measured: Measured,
    /// Instructions of all blocks, and those of them whose code is in no file.
    instructions: [u64; 2],
    _directory: RunDirectory,
}

impl<'a> UnderValgrind<'a> {
    fn start(
        experiment: &CostExperiment,
        record: &mut Record,
        stop: &'a AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<UnderValgrind<'a>> {
        let mut targets = Vec::new();
        for command in experiment.cost.started() {
            let target = Target::start(&experiment.cost, &command, stop, observer);
            targets.extend(subject::unless_left_out(&command.name, target, stop, record, observer)?);
        }
        let first = targets.first().context("none of these servers can be measured").or_fault(Fault::Server)?;
        manifest::describe_environment(&mut record.manifest, first.instance.description().environment);
        let steps =
            subject::describe(record, experiment, targets.iter().map(|target| target.measured.clone()).collect());
        let requests = if experiment.measure.time_s < QUICK_S { REQUESTS_QUICK } else { REQUESTS };
        Ok(UnderValgrind { targets, steps, requests: [requests, 2 * requests], stop })
    }
}

impl Target {
    fn start(cost: &Cost, command: &Started, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Target> {
        let command_told = without_secrets(&command.command);
        observer.step(&format!("starting under valgrind: {command_told}"));
        let callgrind = Callgrind::new()?;
        let (spec, directory) = command.spec()?;
        let (under, writable) = (callgrind.command(&Locks::OPTIONS), vec![callgrind.folder.path().to_owned()]);
        let spec = ServerSpec { under, writable, ..spec };
        let explained = |error: Error| match callgrind.failure() {
            Some(why) => error.context(format!(
                "valgrind, which counts locks, cannot run this program, as it cannot run many of Go ({why}); measure \
                 its CPU time, without --locks"
            )),
            None => error,
        };
        let instance = tlsdyno_servers::start(&spec, directory.path()).map_err(explained).or_fault(Fault::Server)?;
        let url = command.url(instance.address())?;
        let (maker, found) = pilot::found_out(cost, &url, instance.address(), true, stop, observer)?;
        let (name, about) = (command.name.clone(), command.about.clone());
        let measured = Measured { name, about, command: command_told, accounting: UNREAD.to_owned(), ..found };
        let (code, instructions) = (Code::default(), [0; 2]);
        let mut target = Target { instance, callgrind, code, maker, measured, instructions, _directory: directory };
        // Processes that cannot be told to write are refused before anything is counted.
        target.locks()?;
        Ok(target)
    }

    /// What it did with locks since the last call.
    fn locks(&mut self) -> Result<Locks> {
        self.callgrind.locks(&self.instance, &mut self.code).or_fault(Fault::Server)
    }

    /// So many connections of a step, or so many further requests on one connection.
    fn block(&mut self, number: usize, requests: u64, stop: &AtomicBool) -> Result<Block> {
        let step = self.measured.steps[number].id.clone();
        let (connections, step) = match step.more_requests {
            0 => (requests, step),
            _ => (1, StepId { more_requests: requests as u32, ..step }),
        };
        self.maker.stock(number, &step, connections as usize)?;
        // What was executed until here belongs to no block.
        self.locks()?;
        let began = Instant::now();
        for _ in 0..connections {
            interrupt::check(stop)?;
            self.maker.make(number, &step)?;
        }
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        let locks = self.locks()?;
        self.instructions[0] += locks.instructions;
        self.instructions[1] += locks.unplaced;
        Ok(Block {
            elapsed_ns,
            hits: requests,
            connections,
            instructions: Some(locks.instructions),
            locks: locks.sites(),
            valid: true,
            ..Block::default()
        })
    }
}

impl Subject for UnderValgrind<'_> {
    fn warm_up(&self, _index: usize, _factor: u32) -> Work {
        Piece { users: 0..0, requests: WARM_UP }.into()
    }

    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan {
        let mean = self.requests.iter().sum::<u64>() as f64 / 2.0;
        let round = Duration::from_secs_f64(mean * seconds_per_request.iter().sum::<f64>());
        let schedule = Schedule { rounds_expected: ROUNDS, ..Schedule::of_rounds(round, left) };
        let works = self.requests.map(|requests| Piece { users: 0..0, requests }.into());
        Plan { rounds_most: Some(ROUNDS), ..Plan::of(schedule, works.to_vec()) }
    }

    fn block(&mut self, index: usize, work: &Work, _journal: &mut Journal) -> Result<Block> {
        let [target, number] = self.steps[index];
        let target = &mut self.targets[target];
        let block = target.block(number, work.piece.requests, self.stop);
        block.with_context(|| target.measured.steps[number].name.clone()).or_fault(Fault::Server)
    }

    fn leave_out(&mut self, index: usize) -> bool {
        !self.targets[self.steps[index][0]].measured.name.is_empty()
    }

    fn log_tail(&mut self, index: usize) -> String {
        self.targets[self.steps[index][0]].instance.log_tail()
    }

    fn warnings(&self) -> Vec<Warning> {
        let of_target = |target: &Target| {
            let [all, unplaced] = target.instructions;
            let percent = (100 * unplaced).checked_div(all)?;
            let what = format!(
                "{percent} % of the instructions of {} are compiled at run time, or otherwise in no file, where locked \
                 instructions are not found: the counts are lower bounds",
                target.measured.address
            );
            (percent >= UNPLACED_MAX_PERCENT).then(|| Warning::new("unplaced_code", what))
        };
        self.targets.iter().filter_map(of_target).collect()
    }
}
