//! The runner: starts everything, checks everything, then measures block after block in random order until the time is up.
//!
//! What was measured is handed to the record block by block, so that nothing is lost when something breaks later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use tlsdyno_tls::Stage;

use super::admission::{can_resume, start_and_check};
use super::cpus::{self, Cpus};
use super::job::OutcomeRecord;
use super::load_process::LoadProcess;
use super::manifest;
use super::model::Experiment;
use super::pace::Pace;
use super::rig::Rig;
use super::schedule::{Piece, Schedule, drop_too_long, pieces, schedule_rounds, typical_users};
use super::verify::{
    Achieved, Capacity, Expected, ExpectedFull, Verdict, differs, reuse_warning, tls_faults, unsaturated_warning,
    verify,
};
use crate::exit::{Exit, OrExit, code_of};
use crate::servers::{self, Instance};
use crate::stats::prng::SplitMix64;
use crate::store::{Block, FORMAT, Journal, Kind, Manifest, Record, Warning};

/// What the runner tells while it works.
pub trait Observer {
    /// A step of the preparation began.
    fn step(&mut self, text: &str);
    /// The preflight of a configuration is done.
    fn preflight(&mut self, name: &str, passed: usize, failed: &[String]);
    /// Something went wrong that does not stop the experiment.
    fn trouble(&mut self, text: &str);
    /// Measuring began.
    fn measuring(&mut self, schedule: &Schedule, configurations: usize);
    /// This part of the measuring time is over, 0 to 1, with the time left.
    fn progress(&mut self, done: f64, left: Duration, text: &str);
    /// Everything is done or was stopped.
    fn finished(&mut self);
}

/// The calibration's first piece of work: so many times the users that keep all connections busy.
const CALIBRATION_FACTOR: u32 = 2;
/// A calibration shorter than this is repeated with more work.
const CALIBRATION_MIN: Duration = Duration::from_millis(120);
/// Where the details of a log's troubles are.
const LOG_REMEDY: &str = "`tlsdyno trace show LOG` tells more";
/// Most servers of one configuration that are started at a time where blocks want fresh ones.
const STOCK_MAX: u32 = 16;
/// Users for each worker process of a server that was just started: the first connection of each costs more.
const WARM_UP_EACH: u32 = 4;
/// Where a number of rounds is asked for, so many are measured whatever time they take.
const ROUNDS_LEAST: u32 = 3;
/// Part of the time budget that calibration may take.
const CALIBRATION_BUDGET: f64 = 0.2;

/// A finished run. What was measured comes back even when measuring was cut short.
#[derive(Debug)]
pub struct Finished {
    /// What was measured.
    pub record: Record,
    /// Why measuring ended before its time: Ctrl-C, a server that died.
    pub cut_short: Option<anyhow::Error>,
    /// The record is in the store.
    pub stored: bool,
}

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
    let journal = Journal::begin(record);
    if let Some(failure) = journal.failure() {
        observer.trouble(&failure.to_string());
    }
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
    let Session { mut journal, rig, load, .. } = session;
    observer.finished();
    drop((load, rig));
    let cut_short = outcome.err();
    if let Some(error) = &cut_short {
        let warning = Warning::Stopped { rounds: journal.complete_rounds(), cause: format!("{error:#}") };
        journal.change(|record| record.warnings.push(warning));
    }
    let (record, stored) = journal.finish(cut_short.is_none(), Path::new("."));
    Ok(Finished { record, cut_short, stored })
}

fn empty_record(experiment: &Experiment, cpus: Cpus, seed: u64) -> Record {
    let mut warnings = Vec::new();
    if cpus.shared() {
        warnings.push(Warning::SharedCpus { cause: format!("only CPU {} may be used", cpus.server) });
    }
    if !experiment.has_plain_http() {
        warnings.push(Warning::NoPlainHttp);
    }
    let mut manifest = Manifest::default();
    manifest.seeds.insert("order of blocks".to_owned(), seed);
    Record {
        format: FORMAT,
        id: String::new(),
        created_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        finished: false,
        question: experiment.question.clone(),
        manifest,
        configurations: Vec::new(),
        blocks: Vec::new(),
        warnings,
        experiment: Some(experiment.clone()),
        cluster: None,
    }
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
    /// Time of restarts of servers, with their warm-up, where servers take turns or are started anew for each block, and how many there were.
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
        let seconds: Vec<f64> = blocks.iter().map(|index| seconds_per_request[index]).collect();
        let left = budget.saturating_sub(self.started.elapsed());
        let schedule = schedule_rounds(
            self.experiment.measure.rounds,
            left,
            &seconds,
            self.restarts.0 / self.restarts.1.max(1) + self.stocking_of_block(),
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

    /// What starting a new server for each block costs, where the rounds wanted need more servers than those that are there already.
    fn stocking_of_block(&self) -> Duration {
        let rounds = self.experiment.measure.rounds.unwrap_or(u32::MAX);
        if stock_size(self.experiment) < rounds { self.stocking } else { Duration::ZERO }
    }

    /// The same for a round of so many blocks, as it comes now: nothing while there are servers left that were not measured.
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
                "{dropped} of {} requests of the workload were left out: they and their neighbours would take more than half of the \
                 measuring time at once",
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

    /// The configurations of one round. The server as is takes part in every comparison, so where there are several it is measured twice:
    /// that narrows all intervals for the price of one block. An experiment that repeats it by name compares two single ones.
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

    /// Runs every configuration once: warm-up and timing. Returns seconds per request for each that passes; one that fails is marked
    /// invalid, unless it is the untouched server.
    fn calibrate(
        &mut self,
        valid: &[usize],
        budget: Duration,
        observer: &mut dyn Observer,
    ) -> Result<BTreeMap<usize, f64>> {
        let requests_of_users = self.requests_of_users();
        let share = budget.mul_f64(CALIBRATION_BUDGET / valid.len().max(1) as f64);
        let wanted = CALIBRATION_MIN.min(share);
        let mut users = (self.users_min() * CALIBRATION_FACTOR).min(self.load.users);
        let mut seconds = BTreeMap::new();
        // The untouched server first: what it achieves of the declared reuse is the measure of the others.
        let is_as_is = |index: &usize| self.journal.record().configurations[*index].kind == Kind::AsIs;
        let (as_is, others): (Vec<usize>, Vec<usize>) = valid.iter().copied().partition(is_as_is);
        for index in as_is.into_iter().chain(others) {
            loop {
                self.check_stop()?;
                let block = match self.block(index, typical_users(&requests_of_users, users).users) {
                    Ok(block) => block,
                    Err(error) => {
                        self.leave_out(index, error, observer)?;
                        break;
                    }
                };
                if let Some((kind, count)) = block.errors.iter().next() {
                    self.warm_up_failed(index, kind, *count, &block)?;
                    break;
                }
                let elapsed = Duration::from_nanos(block.elapsed_ns);
                if elapsed >= wanted || users >= self.load.users {
                    seconds.insert(index, elapsed.as_secs_f64() / block.hits.max(1) as f64);
                    break;
                }
                users = users.saturating_mul(2).min(self.load.users);
            }
        }
        Ok(seconds)
    }

    /// Without the untouched server there is nothing to compare with; without another configuration there is still the rest.
    fn warm_up_failed(&mut self, index: usize, kind: &str, count: u64, block: &Block) -> Result<()> {
        let name = self.rig.stands[index].model.name.clone();
        let said: Vec<String> = block.warnings.iter().map(Warning::to_string).collect();
        let what = format!("warm-up of \"{name}\": {count} requests failed ({kind}): {}", said.join(" "));
        if self.journal.record().configurations[index].kind == Kind::AsIs {
            return Err(anyhow!("{what}{}", self.tail(index))).or_exit(Exit::Server);
        }
        let remedy = "This configuration was left out; read its server's error log".to_owned();
        self.journal.change(|record| {
            record.configurations[index].valid = false;
            record.configurations[index].warnings.push(Warning::Other { what, remedy });
        });
        Ok(())
    }

    /// A configuration whose server has died or hangs is left out from now on, with what was measured of it: the others' results stay.
    /// Without the untouched server there is nothing to compare with, and what is not the server's fault ends everything.
    fn leave_out(&mut self, index: usize, error: anyhow::Error, observer: &mut dyn Observer) -> Result<()> {
        let is_server = code_of(&error) == Exit::Server;
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

    /// Measures every configuration once. Whether none had to be left out.
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
        let order_of_round: Vec<usize> = shuffled(blocks, order).into_iter().filter(valid).collect();
        self.refuse_open_listeners(order_of_round[0])?;
        let mut complete = true;
        for (position, index) in order_of_round.into_iter().enumerate() {
            self.check_stop()?;
            if !self.journal.record().configurations[index].valid {
                continue;
            }
            let mut block = match self.block(index, piece.users.clone()) {
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
            let trouble = self.journal.failure().is_none();
            self.journal.add_block(block);
            if trouble && let Some(failure) = self.journal.failure() {
                observer.trouble(&failure.to_string());
            }
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

    /// A listener that a server opens after its start is found here. One server a round, drawn by the order of blocks: reading the kernel's
    /// tables takes long when many closed connections linger in them.
    fn refuse_open_listeners(&mut self, index: usize) -> Result<()> {
        match self.rig.stands[index].instance() {
            Some(instance) => instance.refuse_open_listeners().or_exit(Exit::Server),
            None => Ok(()),
        }
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(anyhow!("Ctrl-C")).or_exit(Exit::Interrupted);
        }
        Ok(())
    }

    /// One block of one configuration.
    fn block(&mut self, index: usize, users: std::ops::Range<u32>) -> Result<Block> {
        self.activate(index)?;
        let mut expected = Expected::of(&self.rig.site.workload, users.clone(), &self.experiment.load)?;
        if !can_resume(self.experiment, &self.rig.stands[index].model) {
            // No cache and no tickets, whatever the workload's users would resume.
            expected.full = ExpectedFull::Share(1.0);
        }
        let steal_before = manifest::steal_ns();
        let started_ns = self.started.elapsed().as_nanos() as u64;
        let cpu_before = self.server_cpu_ns(index)?;
        let beside_before = self.companion_cpu_ns(index)?;
        let pace_before = self.pace.read(&self.rig.stands[index].placement.server);
        let outcome = self.load.run(index, self.rig.stands[index].address(), users);
        let pace_after = self.pace.read(&self.rig.stands[index].placement.server);
        let cpu_after = self.server_cpu_ns(index);
        let (outcome, cpu_after) = match (outcome, cpu_after) {
            (Ok(outcome), Ok(cpu)) => (outcome, cpu),
            (Err(error), _) | (_, Err(error)) => {
                let name = self.rig.stands[index].model.name.clone();
                return Err(error.context(format!("measure \"{name}\"{}", self.tail(index))));
            }
        };
        let nothing_answered = outcome.hits == 0 && !outcome.errors.is_empty() && !outcome.stopped;
        if outcome.gave_up || nothing_answered {
            let name = self.rig.stands[index].model.name.clone();
            let faults = tls_faults(&outcome).map(|faults| format!("; {faults}")).unwrap_or_default();
            let hangs = anyhow!("the server of \"{name}\" answers no more{faults}{}", self.tail(index));
            return Err(hangs).or_exit(Exit::Server);
        }
        let server_cpu_ns = cpu_after.saturating_sub(cpu_before);
        let companion_cpu_ns = self.companion_cpu_ns(index)?.saturating_sub(beside_before);
        let verdict = self.judge(index, &outcome, expected, server_cpu_ns, companion_cpu_ns);
        Ok(Block {
            configuration: index,
            started_ns,
            elapsed_ns: outcome.elapsed_ns,
            hits: outcome.hits,
            body_bytes: outcome.body_bytes,
            server_cpu_ns,
            client_cpu_ns: outcome.client_cpu_ns,
            companion_cpu_ns,
            connections: outcome.connections,
            handshakes_full: outcome.handshakes_full,
            resumed_intended: outcome.resumed_intended,
            resumed_offered: outcome.resumed_offered,
            resumed_accepted: outcome.resumed_accepted,
            errors: outcome.errors,
            steal_ns: manifest::steal_ns().saturating_sub(steal_before),
            pace_ps: pace_after.since(&pace_before),
            client_bound: verdict.client_bound,
            valid: verdict.valid,
            warnings: verdict.warnings,
            phases: outcome.phases,
            ..Block::default()
        })
    }

    /// Verifies a block, and says what deserves to be said only once.
    fn judge(
        &mut self,
        index: usize,
        outcome: &OutcomeRecord,
        expected: Expected,
        server_cpu_ns: u64,
        companion_cpu_ns: u64,
    ) -> Verdict {
        let configuration = &self.journal.record().configurations[index];
        let (kind, tls) = (configuration.kind.clone(), configuration.tls);
        if kind == Kind::AsIs && outcome.errors.is_empty() {
            self.as_is = expected.achieved(outcome);
            if self.journal.record().manifest.negotiated.is_empty() {
                let negotiated = manifest::negotiated_text(&outcome.negotiated);
                self.journal.change(|record| record.manifest.negotiated = negotiated);
            }
            // Connections that open at once by order are no surprise.
            let ordered = self.experiment.load.all_at_once;
            let declared = if ordered { self.as_is.without_refusals() } else { Achieved::default() };
            if differs(outcome, expected, declared) && !self.reuse_told {
                self.reuse_told = true;
                self.journal.change(|record| record.configurations[index].warnings.push(reuse_warning(outcome)));
            }
        }
        let model = &self.rig.stands[index].model;
        // A minimal set-up has no handshakes to count.
        let handshakes = tls && model.stages().is_ok_and(|stages| !stages.contains(Stage::Setup));
        // Neither a perfect cache nor a skeleton refuses anybody, whatever the untouched server does.
        let refuses_none = model
            .stages()
            .is_ok_and(|stages| stages.contains(Stage::SessionCache) || stages.contains(Stage::Handshake));
        let as_is = match (can_resume(self.experiment, model), refuses_none) {
            (false, _) => Achieved::default(),
            (true, true) => self.as_is.without_refusals(),
            (true, false) => self.as_is,
        };
        let as_is = handshakes.then_some(as_is);
        let placement = &self.rig.stands[index].placement;
        let capacity = Capacity {
            server_cpus: placement.server_cpus,
            load_cpus: placement.load_cpus,
            beside_load_ns: if self.rig.stands[index].companion_shares_load { companion_cpu_ns } else { 0 },
            waits: model.accelerator.is_some(),
        };
        let verdict = verify(outcome, expected, server_cpu_ns, as_is, capacity);
        if verdict.unsaturated {
            self.unsaturated.insert(index);
        }
        verdict
    }

    fn say_unsaturated(&mut self) {
        if !self.unsaturated.is_empty() {
            let names: Vec<&str> =
                self.unsaturated.iter().map(|index| self.rig.stands[*index].model.name.as_str()).collect();
            let warning = unsaturated_warning(&names, self.rig.stands.len());
            self.journal.change(|record| record.warnings.push(warning));
        }
    }

    /// Starts the server of this configuration where it does not run. One that was restarted is not measured cold: it is checked again and
    /// does one piece of work untimed.
    fn activate(&mut self, index: usize) -> Result<()> {
        let began = Instant::now();
        let renewed = self.experiment.measure.fresh_servers && self.rig.renew(index);
        if !self.rig.activate(index)? && !renewed {
            return Ok(());
        }
        let stand = &mut self.rig.stands[index];
        let workers = stand.instance().map_or(Vec::new(), |instance| instance.worker_pids());
        for (_, library) in stand.libraries() {
            servers::require_mapped(&workers, &library).or_exit(Exit::Server)?;
        }
        let users = self.users_min().max(WARM_UP_EACH * workers.len() as u32).min(self.load.users);
        let piece = typical_users(&self.requests_of_users(), users);
        self.load.run(index, self.rig.stands[index].address(), piece.users)?;
        self.restarts = (self.restarts.0 + began.elapsed(), self.restarts.1 + 1);
        Ok(())
    }

    /// CPU time of the server, read when it has come to rest: the last closes are still its work.
    fn server_cpu_ns(&mut self, index: usize) -> Result<u64> {
        const SETTLING_STEP: Duration = Duration::from_millis(2);
        const SETTLING_STEPS: u32 = 20;
        let stand = &mut self.rig.stands[index];
        let name = stand.model.name.clone();
        let instance = stand.instance().with_context(|| format!("the server of \"{name}\" does not run"))?;
        let mut last = living_cpu_ns(instance, &name)?;
        for _ in 0..SETTLING_STEPS {
            std::thread::sleep(SETTLING_STEP);
            let now = living_cpu_ns(instance, &name)?;
            if now == last {
                break;
            }
            last = now;
        }
        Ok(last)
    }

    /// CPU time of the servers that this one needs beside it.
    fn companion_cpu_ns(&mut self, index: usize) -> Result<u64> {
        let costs =
            self.rig.stands[index].instance().map_or(Ok(Vec::new()), |instance| instance.companions_cpu_ns())?;
        Ok(costs.iter().map(|(_, ns)| ns).sum())
    }

    /// What the server's log says, as the end of an error message.
    fn tail(&mut self, index: usize) -> String {
        let tail = self.rig.stands[index].instance().map(|instance| instance.log_tail()).unwrap_or_default();
        if tail.is_empty() { String::new() } else { format!("; the server's log ends with:\n{tail}") }
    }
}

/// Servers of one configuration in a stock.
fn stock_size(experiment: &Experiment) -> u32 {
    experiment.measure.rounds.unwrap_or(STOCK_MAX).min(STOCK_MAX)
}

/// Starts a stock of servers of each configuration of `indices`, anew where there was one. Returns how long one server took.
fn restock(rig: &mut Rig, indices: &[usize], experiment: &Experiment) -> Result<Duration> {
    let began = Instant::now();
    let count = stock_size(experiment);
    rig.stock(indices, count)?;
    Ok(began.elapsed() / (count * indices.len().max(1) as u32))
}

/// CPU time of a server that lives. Of one that has died the accounting may answer (control group) or fail (no process is left to
/// read); either way the death is the news.
fn living_cpu_ns(instance: &mut Instance, name: &str) -> Result<u64> {
    let cpu = instance.cpu_ns();
    if let Some(obituary) = instance.obituary() {
        return Err(anyhow!("configuration \"{name}\": {obituary}")).or_exit(Exit::Server);
    }
    cpu
}

/// The configurations of one round in random order.
pub fn shuffled(indices: &[usize], order: &mut SplitMix64) -> Vec<usize> {
    let mut indices = indices.to_vec();
    for last in (1..indices.len()).rev() {
        indices.swap(last, order.below(last + 1));
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_complete_and_rounds_differ() {
        let mut generator = SplitMix64::new(1);
        let indices = [3, 5, 8, 9, 11, 12];
        let first = shuffled(&indices, &mut generator);
        assert_ne!(first, shuffled(&indices, &mut generator));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, indices);
    }
}
