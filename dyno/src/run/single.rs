//! The experiment with one server at a time: all configurations of it are up together, or take turns where their port
//! is fixed.

mod block;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::cpus::{self, Cpus};
use super::load_process::LoadProcess;
use super::manifest;
use super::observer::Observer;
use super::pace::Pace;
use super::preflight::start_and_check;
use super::runner::{self, Finished, Subject};
use super::schedule::{
    Piece, Schedule, Work, drop_too_long, pieces, requests_of_users, schedule_rounds, typical_users,
};
use super::testbed::Testbed;
use super::verify::{Achieved, unsaturated_warning};
use crate::fault::{Fault, OrFault};
use crate::model::Experiment;
use crate::random::SplitMix64;
use crate::servers::driver;
use crate::store::{Block, Journal, Kind, Record, Warning};

/// Where the details of a log's troubles are.
const LOG_REMEDY: &str = "`tlsdyno trace show LOG` tells more";
/// Most servers of one configuration that are started at a time where blocks want fresh ones.
const POOL_MAX: u32 = 16;
/// The same of servers with a process for each connection: every look at who runs walks over all of them.
const POOL_MAX_OF_MANY_PROCESSES: u32 = 4;
/// The least piece of work of a warm-up: so many times the users that keep all connections busy.
const WARM_UP_FACTOR: u32 = 2;

/// Runs the experiment. An error means that measuring did not begin.
pub fn run(experiment: &Experiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    experiment.check()?;
    let cpus = cpus::choose(&cpus::allowed(), experiment.measure.server_cpu, experiment.measure.load_cpu)?;
    runner::run(&experiment.question, &experiment.measure, stop, observer, |record, observer| {
        SingleServer::start(experiment, cpus, record, stop, observer)
    })
}

/// The configurations of one server.
struct SingleServer<'a> {
    experiment: &'a Experiment,
    load: LoadProcess,
    /// The pace of every CPU that one of the servers has.
    pace: Pace,
    testbed: Testbed,
    /// The pieces of the workload that rounds walk through.
    pieces: Vec<Piece>,
    /// What the untouched server achieved of the declared reuse when it last ran.
    as_is: Achieved,
    /// It was said that the untouched server does not reuse as declared.
    reuse_told: bool,
    /// Configurations with a block in which neither side was saturated.
    unsaturated: BTreeSet<usize>,
    /// Time of restarts of servers, with their warm-up, where servers take turns or are started anew for each block,
    /// and how many there were.
    restarts: (Duration, u32),
    /// Time to start one server of the pools.
    time_to_start: Duration,
}

impl<'a> SingleServer<'a> {
    fn start(
        experiment: &'a Experiment,
        cpus: Cpus,
        record: &mut Record,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<SingleServer<'a>> {
        let mut testbed = Testbed::prepare(experiment, cpus, &mut |text| observer.step(text))?;
        record.experiment = Some(experiment.clone());
        if cpus.shared() {
            record.warnings.push(Warning::SharedCpus { cause: format!("only CPU {} may be used", cpus.server) });
        }
        if !experiment.has_plain_http() {
            record.warnings.push(Warning::NoPlainHttp);
        }
        let log_warnings = testbed.site.summary.log.iter().flat_map(|log| log.warnings());
        record.warnings.extend(log_warnings.map(|what| Warning::Other { what, remedy: LOG_REMEDY.to_owned() }));
        start_and_check(experiment, &mut testbed, record, stop, observer)?;
        manifest::describe(&mut record.manifest, experiment, &mut testbed, cpus);
        observer.step("starting the load process");
        let load = testbed.start_load(experiment, |index| record.configurations[index].valid)?;
        let mut subject = SingleServer {
            experiment,
            load,
            pace: Pace::start(&testbed.server_cpus()),
            testbed,
            pieces: Vec::new(),
            as_is: Achieved::default(),
            reuse_told: false,
            unsaturated: BTreeSet::new(),
            restarts: (Duration::ZERO, 0),
            time_to_start: Duration::ZERO,
        };
        if experiment.measure.fresh_servers {
            observer.step("starting more servers of each configuration");
            let valid = (0..record.configurations.len()).filter(|index| record.configurations[*index].valid);
            subject.fill_pools(&valid.collect())?;
        }
        Ok(subject)
    }

    /// Servers of one configuration that are started at a time.
    fn pool_size(&self) -> u32 {
        let capabilities = driver(self.experiment.server.kind).capabilities();
        let many_processes = capabilities.is_some_and(|capabilities| capabilities.process_per_connection);
        let most = if many_processes { POOL_MAX_OF_MANY_PROCESSES } else { POOL_MAX };
        self.experiment.measure.rounds.unwrap_or(most).min(most)
    }

    /// Fills the pools of these configurations with new servers.
    fn fill_pools(&mut self, indices: &BTreeSet<usize>) -> Result<()> {
        let began = Instant::now();
        let count = self.pool_size();
        self.testbed.fill_pools(indices, count)?;
        self.time_to_start = self.time_to_start.max(began.elapsed() / (count * indices.len().max(1) as u32));
        Ok(())
    }

    /// Users that keep all connections busy: each uses as many as its pages are wide.
    fn users_min(&self) -> u32 {
        let load = &self.experiment.load;
        let one_by_one = self.testbed.site.workload.requests.iter().all(|request| request.page_end);
        let width = if one_by_one { 1 } else { load.per_user };
        load.connections.div_ceil(width).max(8)
    }
}

impl Subject for SingleServer<'_> {
    fn warm_up(&self, _index: usize, factor: u32) -> Work {
        let users = (self.users_min() * WARM_UP_FACTOR).saturating_mul(factor).min(self.load.users);
        typical_users(&requests_of_users(&self.testbed.site.workload), users).into()
    }

    /// The server as is takes part in every comparison, so where there are several it is measured twice: that narrows
    /// all intervals for the price of one block. An experiment that repeats it by name compares two single ones.
    fn blocks_of_round(&self, valid: &[usize], record: &Record) -> Vec<usize> {
        const COMPARISONS_WORTH_IT: usize = 3;
        let mut blocks = valid.to_vec();
        let as_is = |index: &&usize| record.configurations[**index].kind == Kind::AsIs;
        let repeated = self.experiment.configurations.iter().any(|model| model.repeat_of.is_some());
        if valid.len() > COMPARISONS_WORTH_IT && !repeated {
            blocks.extend(valid.iter().find(as_is));
        }
        blocks
    }

    fn plan(
        &mut self,
        blocks: &[usize],
        seconds_per_request: &BTreeMap<usize, f64>,
        left: Duration,
        journal: &mut Journal,
    ) -> Schedule {
        // The short blocks of the warm-up saturate nothing.
        self.unsaturated.clear();
        let (turns, rounds) = (self.experiment.measure.turns, self.experiment.measure.rounds);
        let seconds =
            (0..turns).flat_map(|_| blocks.iter().map(|index| seconds_per_request[index])).collect::<Vec<_>>();
        // Nothing is started for a block where the servers that are there already last for all rounds.
        let starts = self.pool_size() < rounds.unwrap_or(u32::MAX);
        let start = if starts { self.time_to_start } else { Duration::ZERO };
        let restart = (self.restarts.0 / self.restarts.1.max(1) + start) / turns;
        let requests = self.load.requests;
        let schedule = schedule_rounds(rounds, left, &seconds, restart, u64::from(requests));
        let requests_of_users = requests_of_users(&self.testbed.site.workload);
        self.pieces = pieces(&requests_of_users, schedule.requests_per_block, self.users_min());
        let dropped = drop_too_long(&mut self.pieces, &schedule, left);
        if dropped > 0 {
            let what = format!(
                "{dropped} of {requests} requests of the workload were left out: they and their neighbours would take \
                 more than half of the measuring time at once"
            );
            let warning = Warning::Other { what, remedy: "Measure longer (--time)".to_owned() };
            journal.change(|record| record.warnings.push(warning));
        }
        schedule
    }

    fn work(&self, round: u32, _random: &mut SplitMix64) -> Work {
        self.pieces[round as usize % self.pieces.len()].clone().into()
    }

    /// Nothing while the pools have a server for each block.
    fn time_to_begin_round(&self, blocks: &[usize]) -> Duration {
        let blocks_of = |index: usize| blocks.iter().filter(|other| **other == index).count();
        let is_short = blocks.iter().any(|&index| self.testbed.unmeasured_servers(index) < blocks_of(index));
        match self.experiment.measure.fresh_servers && is_short {
            true => self.time_to_start * self.pool_size() * blocks.len() as u32,
            false => Duration::ZERO,
        }
    }

    /// A listener that a server opens after its start is found here. One server a round, drawn by the order of blocks:
    /// reading the kernel's tables takes long when many closed connections linger in them.
    fn begin_round(&mut self, blocks: &[usize], first: usize) -> Result<()> {
        if !self.time_to_begin_round(blocks).is_zero() {
            self.fill_pools(&blocks.iter().copied().collect())?;
        }
        let instance = self.testbed.servers[first].instance();
        instance.map_or(Ok(()), |instance| instance.refuse_open_listeners()).or_fault(Fault::Server)
    }

    fn ready(&mut self, index: usize, turn: Option<u32>) -> Result<()> {
        self.activate(index, turn)
    }

    fn block(&mut self, index: usize, work: &Work, journal: &mut Journal) -> Result<Block> {
        self.measure(index, work, journal)
    }

    fn leave_out(&mut self, index: usize) -> bool {
        self.testbed.stop(index);
        true
    }

    fn log_tail(&mut self, index: usize) -> String {
        let tail = self.testbed.servers[index].instance().map(|instance| instance.log_tail()).unwrap_or_default();
        if tail.is_empty() { String::new() } else { format!("; the server's log ends with:\n{tail}") }
    }

    fn warnings(&self) -> Vec<Warning> {
        let name = |index: &usize| self.testbed.servers[*index].model.name.as_str();
        let names: Vec<&str> = self.unsaturated.iter().map(name).collect();
        let warning = (!names.is_empty()).then(|| unsaturated_warning(&names, self.testbed.servers.len()));
        warning.into_iter().collect()
    }
}
