//! The runner: starts everything, checks everything, then measures block after block in random order until the time is
//! up.
//!
//! What was measured is handed to the record block by block, so that nothing is lost when something breaks later.

mod block;
mod calibration;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use super::admission::start_and_check;
use super::cpus::{self, Cpus};
use super::journal::{self, Finished};
use super::load_process::LoadProcess;
use super::manifest;
use super::observer::Observer;
use super::pace::Pace;
use super::rig::Rig;
use super::schedule::{Piece, Schedule, drop_too_long, order_of_round, pieces, schedule_rounds};
use super::verify::{Achieved, unsaturated_warning};
use crate::fault::{Fault, OrFault, fault_of};
use crate::interrupt;
use crate::model::Experiment;
use crate::random::SplitMix64;
use crate::servers::driver_of;
use crate::store::{Journal, Kind, Record, Warning};

/// Where the details of a log's troubles are.
const LOG_REMEDY: &str = "`tlsdyno trace show LOG` tells more";
/// Most servers of one configuration that are started at a time where blocks want fresh ones.
const STOCK_MAX: u32 = 16;
/// The same of servers with a process for each connection: every look at who runs walks over all of them.
const STOCK_MAX_OF_MANY_PROCESSES: u32 = 4;
/// Where a number of rounds is asked for, so many are measured whatever time they take.
const ROUNDS_LEAST: u32 = 3;

/// Runs the experiment. An error means that measuring did not begin.
pub fn run(experiment: &Experiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    experiment.check()?;
    let cpus = cpus::choose(&cpus::allowed(), experiment.measure.server_cpu, experiment.measure.load_cpu)?;
    let mut rig = Rig::prepare(experiment, cpus, &mut |text| observer.step(text))?;
    let seed = experiment
        .measure
        .seed
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |t| t.as_nanos() as u64));
    let mut record = empty_record(experiment, cpus, seed);
    let log_warnings = rig.site.summary.log.iter().flat_map(|log| log.warnings());
    record.warnings.extend(log_warnings.map(|what| Warning::Other { what, remedy: LOG_REMEDY.to_owned() }));
    start_and_check(experiment, &mut rig, &mut record, stop, observer)?;
    manifest::describe(&mut record.manifest, experiment, &mut rig, cpus, seed);
    record.warnings.extend(manifest::governor_warning(&record.manifest));
    observer.step("starting the load process");
    let valid: Vec<usize> = (0..rig.stands.len()).filter(|index| record.configurations[*index].valid).collect();
    let stocking = if experiment.measure.fresh_servers {
        observer.step("starting more servers of each configuration");
        restock(&mut rig, &valid, experiment)?
    } else {
        Duration::ZERO
    };
    let load = rig.start_load(experiment, |index| record.configurations[index].valid)?;
    let journal = journal::begin(record, observer);
    let mut session = Session {
        experiment,
        pace: Pace::start(&rig.server_cpus()),
        rig,
        load,
        journal,
        stop,
        started: Instant::now(),
        as_is: Achieved::default(),
        reuse_told: false,
        unsaturated: BTreeSet::new(),
        restarts: (Duration::ZERO, 0),
        stocking,
    };
    let outcome = session.measure(seed, observer);
    session.say_unsaturated();
    let Session { journal, rig, load, .. } = session;
    observer.finished();
    drop((load, rig));
    Ok(journal::end(journal, outcome))
}

/// A record without configurations and blocks, with what is known to be wrong already.
fn empty_record(experiment: &Experiment, cpus: Cpus, seed: u64) -> Record {
    let mut warnings = Vec::new();
    if cpus.shared() {
        warnings.push(Warning::SharedCpus { cause: format!("only CPU {} may be used", cpus.server) });
    }
    if !experiment.has_plain_http() {
        warnings.push(Warning::NoPlainHttp);
    }
    Record { warnings, experiment: Some(experiment.clone()), ..Record::begun_now(&experiment.question, seed) }
}

/// The measuring itself.
struct Session<'a> {
    experiment: &'a Experiment,
    rig: Rig,
    load: LoadProcess,
    journal: Journal,
    /// The pace of every CPU that one of the servers has.
    pace: Pace,
    stop: &'a AtomicBool,
    started: Instant,
    /// What the untouched server achieved of the declared reuse when it last ran.
    as_is: Achieved,
    /// It was said that the untouched server does not reuse as declared.
    reuse_told: bool,
    /// Configurations with a block in which neither side was saturated.
    unsaturated: BTreeSet<usize>,
    /// Time of restarts of servers, with their warm-up, where servers take turns or are started anew for each block,
    /// and how many there were.
    restarts: (Duration, u32),
    /// Time to start one server of the stock.
    stocking: Duration,
}

impl Session<'_> {
    fn measure(&mut self, seed: u64, observer: &mut dyn Observer) -> Result<()> {
        let budget = Duration::from_secs_f64(self.experiment.measure.time_s);
        let valid: Vec<usize> =
            (0..self.rig.stands.len()).filter(|index| self.journal.record().configurations[*index].valid).collect();
        observer.step("warming up and calibrating");
        let seconds_per_request = self.calibrate(&valid, budget, observer)?;
        // The short blocks of the calibration saturate nothing.
        self.unsaturated.clear();
        let valid: Vec<usize> = seconds_per_request.keys().copied().collect();
        let blocks = self.blocks_of_round(&valid);
        let turns = self.experiment.measure.turns;
        let seconds: Vec<f64> =
            (0..turns).flat_map(|_| blocks.iter().map(|index| seconds_per_request[index])).collect();
        let left = budget.saturating_sub(self.started.elapsed());
        let schedule = schedule_rounds(
            self.experiment.measure.rounds,
            left,
            &seconds,
            (self.restarts.0 / self.restarts.1.max(1) + self.stocking_of_block()) / turns,
            u64::from(self.load.requests),
        );
        let pieces = self.pieces(&schedule, left);
        observer.measuring(&schedule, valid.len());
        let mut order = SplitMix64::new(seed);
        let mut slowest: Option<f64> = None;
        // Whoever asks for rounds wants their spread, which fewer do not have.
        let least = self.experiment.measure.rounds.map_or(1, |_| ROUNDS_LEAST);
        for (round, piece) in (0..).zip(pieces.iter().cycle()) {
            let stocking = self.stocking_before_round(&valid, blocks.len());
            // A round that would not fit is not begun: --time is a bound.
            if let Some(slowest) = slowest
                && round >= least
                && self.started.elapsed() + stocking + schedule.predicted(piece.requests, slowest) > budget
            {
                break;
            }
            if !stocking.is_zero() {
                let valid = self.still_valid(&valid);
                self.stocking = restock(&mut self.rig, &valid, self.experiment)?.max(self.stocking);
            }
            let began = Instant::now();
            if !self.round(round, piece, &blocks, &mut order, budget, observer)? {
                // A round with time-outs in it says nothing about the next.
                continue;
            }
            let seconds = schedule.seconds_per_request_of(began.elapsed(), piece.requests);
            slowest = Some(slowest.map_or(seconds, |slowest| slowest.max(seconds)));
        }
        Ok(())
    }

    fn still_valid(&self, indices: &[usize]) -> Vec<usize> {
        let configurations = &self.journal.record().configurations;
        indices.iter().copied().filter(|&index| configurations[index].valid).collect()
    }

    /// What starting a new server for each block costs, where the rounds wanted need more servers than those that are
    /// there already.
    fn stocking_of_block(&self) -> Duration {
        let rounds = self.experiment.measure.rounds.unwrap_or(u32::MAX);
        if stock_size(self.experiment) < rounds { self.stocking } else { Duration::ZERO }
    }

    /// The same for a round of so many blocks, as it comes now: nothing while there are servers left that were not
    /// measured.
    fn stocking_before_round(&self, valid: &[usize], blocks: usize) -> Duration {
        // The untouched server may have more blocks than one.
        let needed = blocks - valid.len() + 1;
        let valid = self.still_valid(valid);
        match self.experiment.measure.fresh_servers && self.rig.is_short(&valid, needed) {
            true => self.stocking * stock_size(self.experiment) * valid.len() as u32,
            false => Duration::ZERO,
        }
    }

    /// The pieces of the workload that rounds walk through.
    fn pieces(&mut self, schedule: &Schedule, left: Duration) -> Vec<Piece> {
        let mut pieces = pieces(&self.requests_of_users(), schedule.requests_per_block, self.users_min());
        let dropped = drop_too_long(&mut pieces, schedule, left);
        if dropped > 0 {
            let what = format!(
                "{dropped} of {} requests of the workload were left out: they and their neighbours would take more \
                 than half of the measuring time at once",
                self.load.requests
            );
            let warning = Warning::Other { what, remedy: "Measure longer (--time)".to_owned() };
            self.journal.change(|record| record.warnings.push(warning));
        }
        pieces
    }

    fn requests_of_users(&self) -> Vec<u32> {
        self.rig.site.workload.users.iter().map(|user| user.requests.end - user.requests.start).collect()
    }

    /// The configurations of one round. The server as is takes part in every comparison, so where there are several it
    /// is measured twice: that narrows all intervals for the price of one block. An experiment that repeats it by
    /// name compares two single ones.
    fn blocks_of_round(&self, valid: &[usize]) -> Vec<usize> {
        const COMPARISONS_WORTH_IT: usize = 3;
        let mut blocks = valid.to_vec();
        let as_is = |index: &&usize| self.journal.record().configurations[**index].kind == Kind::AsIs;
        let repeated = self.experiment.configurations.iter().any(|model| model.repeat_of.is_some());
        if valid.len() > COMPARISONS_WORTH_IT && !repeated {
            blocks.extend(valid.iter().find(as_is));
        }
        blocks
    }

    /// Users that keep all connections busy: each uses as many as its pages are wide.
    fn users_min(&self) -> u32 {
        let load = &self.experiment.load;
        let one_by_one = self.rig.site.workload.requests.iter().all(|request| request.page_end);
        let width = if one_by_one { 1 } else { load.per_user };
        load.connections.div_ceil(width).max(8)
    }

    /// A configuration whose server has died or hangs is left out from now on, with what was measured of it: the
    /// others' results stay. Without the untouched server there is nothing to compare with, and what is not the
    /// server's fault ends everything.
    fn leave_out(&mut self, index: usize, error: anyhow::Error, observer: &mut dyn Observer) -> Result<()> {
        interrupt::check(self.stop)?;
        let is_server = fault_of(&error).is_some_and(Fault::is_of_server);
        if !is_server || self.journal.record().configurations[index].kind == Kind::AsIs {
            return Err(error);
        }
        let what = format!("\"{}\" was left out: {error:#}", self.rig.stands[index].model.name);
        observer.trouble(&what);
        self.rig.stop(index);
        let remedy = "The other results stand; read its server's error log".to_owned();
        self.journal.change(|record| {
            record.configurations[index].valid = false;
            record.configurations[index].warnings.push(Warning::Other { what, remedy });
        });
        Ok(())
    }

    /// Measures every configuration once in each turn, all turns with the same servers and the same work. Whether none
    /// had to be left out.
    fn round(
        &mut self,
        round: u32,
        piece: &Piece,
        blocks: &[usize],
        order: &mut SplitMix64,
        budget: Duration,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        let valid = |index: &usize| self.journal.record().configurations[*index].valid;
        let turns = order_of_round(blocks, self.experiment.measure.turns, order);
        let order_of_round: Vec<(u32, usize)> = turns.into_iter().filter(|(_, index)| valid(index)).collect();
        self.refuse_open_listeners(order_of_round[0].1)?;
        let mut complete = true;
        for (position, (turn, index)) in order_of_round.into_iter().enumerate() {
            interrupt::check(self.stop)?;
            if !self.journal.record().configurations[index].valid {
                continue;
            }
            let mut block = match self.block(index, piece.users.clone(), turn == 0) {
                Ok(block) => block,
                Err(error) => {
                    self.leave_out(index, error, observer)?;
                    complete = false;
                    continue;
                }
            };
            self.rig.is_measured(index);
            block.round = round;
            block.position_in_round = position as u32;
            journal::add(&mut self.journal, block, observer);
            let done = self.started.elapsed().as_secs_f64() / budget.as_secs_f64();
            let left = budget.saturating_sub(self.started.elapsed());
            observer.progress(
                done.min(1.0),
                left,
                &format!("round {}: {}", round + 1, self.rig.stands[index].model.name),
            );
        }
        Ok(complete)
    }

    /// A listener that a server opens after its start is found here. One server a round, drawn by the order of blocks:
    /// reading the kernel's tables takes long when many closed connections linger in them.
    fn refuse_open_listeners(&mut self, index: usize) -> Result<()> {
        match self.rig.stands[index].instance() {
            Some(instance) => instance.refuse_open_listeners().or_fault(Fault::Server),
            None => Ok(()),
        }
    }

    fn say_unsaturated(&mut self) {
        if !self.unsaturated.is_empty() {
            let names: Vec<&str> =
                self.unsaturated.iter().map(|index| self.rig.stands[*index].model.name.as_str()).collect();
            let warning = unsaturated_warning(&names, self.rig.stands.len());
            self.journal.change(|record| record.warnings.push(warning));
        }
    }
}

/// Servers of one configuration in a stock.
fn stock_size(experiment: &Experiment) -> u32 {
    let able = driver_of(experiment.server.kind).capabilities();
    let many_processes = able.is_some_and(|able| able.process_per_connection);
    let most = if many_processes { STOCK_MAX_OF_MANY_PROCESSES } else { STOCK_MAX };
    experiment.measure.rounds.unwrap_or(most).min(most)
}

/// Starts a stock of servers of each configuration of `indices`, anew where there was one. Returns how long one server
/// took.
fn restock(rig: &mut Rig, indices: &[usize], experiment: &Experiment) -> Result<Duration> {
    let began = Instant::now();
    let count = stock_size(experiment);
    rig.stock(indices, count)?;
    Ok(began.elapsed() / (count * indices.len().max(1) as u32))
}
