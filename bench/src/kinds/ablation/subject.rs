//! The experiment with one server at a time: all configurations of it are up together, or take turns where their port
//! is fixed.

mod judge;
mod sliced;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tlsdyno_base::exchange::{Answer, exchange};
use tlsdyno_base::fault::{Fault, OrFault, fault_of};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_base::units::format_count;
use tlsdyno_engine::load::Workload;
use tlsdyno_record::model::{Experiment, ForeignTraffic, Method, ServerName};
use tlsdyno_record::store::warning::{self, Places, code};
use tlsdyno_record::store::{Block, Calibration, Journal, KindPart, Record, Warning};
use tlsdyno_servers::Instance;
use tlsdyno_servers::cpu::at_rest;
use tlsdyno_tls::Stage;

use crate::run::check::CheckExperiment;
use crate::run::counting::Counting;
use crate::run::cpus::{self, Cpus};
use crate::run::foreign::Foreign;
use crate::run::fresh_servers::FreshServers;
use crate::run::load_process::{LoadProcess, Sessions};
use crate::run::neighbours::Neighbours;
use crate::run::observer::Observer;
use crate::run::pace::Pace;
use crate::run::preflight::{compile, start_and_check};
use crate::run::runner::{self, Finished, NextRound, Plan, SlicesOfRound, Start, Subject, boxed, run_in_turn};
use crate::run::schedule::{Work, drop_too_long, pieces, requests_of_users, schedule, typical_users};
use crate::run::sliced::{Failed, Part, SLICED_ROUNDS_MIN, Sweeps, TimeOfSlices, sliced_rounds};
use crate::run::testbed::Testbed;
use crate::run::verify::{Achieved, death, is_dead};
use crate::run::{manifest, modes, own_command};
use sliced::WatchModes;

/// Where the details of a log's troubles are.
const WORKLOAD_REMEDY: &str = "`tlsdyno trace show FILE` tells more";
/// Longer slices compare no better than blocks.
const SLICE_MAX: Duration = Duration::from_millis(250);
/// Part of the time that blocks have, which tell hits per second at saturation, where slices tell CPU per hit.
const BLOCKS_SHARE: f64 = 0.2;
/// The same where hits per second are told on machines, which slices say nothing of.
const BLOCKS_SHARE_OF_MACHINES: f64 = 0.8;
/// Wanted length of an average block there, with what it costs besides. Longer blocks are no steadier: the machine's
/// pace changes from second to second.
const BLOCK_OF_MACHINES: Duration = Duration::from_millis(160);
/// Servers are started anew where this many times as long is left to measure them.
const STARTS_WORTH_IT: u32 = 4;
/// The least piece of work of a warm-up: so many times the users that keep all connections busy.
const WARM_UP_FACTOR: u32 = 2;
/// Users for each worker process of a server that was just started: the first connections of each cost more.
const WARM_UP_USERS: u32 = 4;
/// So many connections for each are enough, where users make more than the above need.
const WARM_UP_CONNECTIONS: u32 = 16;

/// Runs the experiment. An error means that measuring did not begin.
pub fn run(experiment: &Experiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    experiment.check()?;
    if let Some(traffic) = &experiment.foreign_traffic {
        return run_under_foreign_traffic(experiment, traffic, stop, observer);
    }
    let sliced = modes::with_host(experiment);
    let experiment = sliced.as_ref().unwrap_or(experiment);
    let told = sliced.as_ref().err().and_then(|why| why.told());
    if let Some(told) = &told {
        observer.warn(&told.to_string());
    }
    let cpus = cpus::choose(&cpus::allowed(), experiment.measure.server_cpu, experiment.measure.load_cpu)?;
    let mut starts: Vec<Start> = Vec::new();
    if experiment.is_timed() {
        starts.push(boxed(|record: &mut Record, observer: &mut dyn Observer| {
            record.warnings.extend(told);
            SingleServer::start(experiment, cpus, record, stop, observer)
        }));
    }
    if experiment.methods.contains(&Method::Counting) {
        Counting::require()?;
        starts.push(boxed(move |record: &mut Record, observer: &mut dyn Observer| {
            Counting::start(experiment, cpus, record, stop, observer)
        }));
    }
    run_in_turn(&experiment.question, &experiment.measure, stop, observer, starts)
}

/// The same where the load is somebody else's.
fn run_under_foreign_traffic(
    experiment: &Experiment,
    traffic: &ForeignTraffic,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Finished> {
    let cpus = cpus::choose(&cpus::allowed(), experiment.measure.server_cpu, experiment.measure.load_cpu)?;
    runner::run(&experiment.question, &experiment.measure, stop, observer, move |record, observer| {
        Foreign::start(experiment, traffic, cpus, record, stop, observer)
    })
}

/// Rounds with slices in so much time. On machines each has blocks too, and must be long enough for them.
fn rounds_with_slices(experiment: &Experiment, time: Duration) -> u32 {
    let mut rounds = sliced_rounds(time);
    if !experiment.machines.is_empty() {
        let blocks = BLOCK_OF_MACHINES * experiment.configurations.len() as u32;
        let with_blocks = time.mul_f64(BLOCKS_SHARE_OF_MACHINES).as_secs_f64() / blocks.as_secs_f64();
        rounds = rounds.min(with_blocks as u32).max(SLICED_ROUNDS_MIN);
    }
    experiment.measure.rounds.unwrap_or(rounds)
}

/// What a client sees of the server of a configuration: one request more.
fn seen(testbed: &Testbed, index: usize) -> Result<Answer> {
    let config = testbed.servers[index].settings.as_ref().map(compile).transpose()?;
    Ok(exchange(testbed.address(index), config.as_ref(), None, &testbed.preflight_request().0)?)
}

/// How much a server does untimed that was just started.
#[derive(Clone, Copy, Debug)]
struct WarmUp {
    users_min: u32,
    users_most: u32,
    /// Connections of a user.
    connections: u32,
}

impl WarmUp {
    /// The work of a server of so many worker processes. Prefork has one for each connection, which users with a
    /// connection for each of their requests would warm for longer than a block takes.
    fn work(self, workload: &Workload, workers: u32) -> Work {
        let users = (WARM_UP_USERS * workers).min((WARM_UP_CONNECTIONS * workers).div_ceil(self.connections));
        typical_users(&requests_of_users(workload), users.max(self.users_min).min(self.users_most)).into()
    }
}

/// The configurations of one server.
struct SingleServer<'a> {
    experiment: &'a Experiment,
    load: LoadProcess,
    /// The pace of every CPU that one of the servers has.
    pace: Pace,
    testbed: Testbed,
    /// What the untouched server achieved of the declared reuse when it last ran.
    as_is: Achieved,
    /// It was said that the untouched server does not reuse as declared.
    reuse_told: bool,
    /// Slices of configurations that are modes of one server.
    sweeps: Sweeps,
    modes: WatchModes,
    is_sliced: bool,
    /// Who else used the server's CPUs in the blocks.
    neighbours: Neighbours,
    /// Configurations that were left out.
    failed: BTreeSet<usize>,
    /// Configurations with a block in which neither side was saturated.
    unsaturated: BTreeSet<usize>,
    /// Time of restarts of servers, with their warm-up, where servers take turns or are started anew for each block,
    /// and how many there were.
    restarts: (Duration, u32),
    /// Servers that take the place of those that were measured.
    fresh: FreshServers,
}

impl<'a> SingleServer<'a> {
    fn start(
        experiment: &'a Experiment,
        cpus: Cpus,
        record: &mut Record,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<SingleServer<'a>> {
        if let Some(assumption) = manifest::assumption(experiment) {
            observer.tell(&assumption);
        }
        let mut testbed = Testbed::prepare(experiment, cpus, &mut |text| observer.step(text))?;
        own_command::tell_effects(experiment, observer).or_fault(Fault::Input)?;
        record.kind_part = KindPart::from(experiment.without_secrets());
        if cpus.shared() {
            record.warnings.push(warning::shared_cpus(&format!("only CPU {} may be used", cpus.server)));
        }
        if !experiment.has_plain_http() {
            record.warnings.push(warning::no_plain_http());
        }
        record.warnings.extend(own_command::told_of_copy(experiment));
        let told = testbed.site.summary.told().into_iter();
        record.warnings.extend(told.map(|what| Warning::new("workload", what).with_remedy(WORKLOAD_REMEDY)));
        start_and_check(experiment, &mut testbed, record, stop, observer)?;
        manifest::describe(&mut record.manifest, experiment, &mut testbed, cpus);
        record.warnings.extend(manifest::same_version(&record.manifest));
        let as_is = testbed.servers.iter().position(|server| server.model.is_untouched()).unwrap_or(0);
        if experiment.server.kind == ServerName::Command && testbed.instance(as_is).is_some() {
            manifest::describe_seen(&mut record.manifest, &seen(&testbed, as_is).or_fault(Fault::Server)?);
        }
        observer.step("starting the load process");
        let load = testbed.start_load(experiment, |index| record.configurations[index].valid)?;
        let least = Duration::from_micros(load.slice_us_min());
        let has_modes = testbed.servers.iter().any(|server| server.model.hosts_modes());
        let is_sliced = has_modes || own_command::compares_builds(experiment);
        let server_cpus = testbed.server_cpus();
        if is_sliced && least > SLICE_MAX {
            let error = anyhow!(
                "a slice would have to last {:.0} ms to be worth its way to the workers: compare blocks (--slice 0)",
                least.as_secs_f64() * 1e3
            );
            return Err(Fault::Usage.of(error));
        }
        let time = Duration::from_secs_f64(experiment.measure.time_s);
        let rounds = if is_sliced { Some(rounds_with_slices(experiment, time)) } else { experiment.measure.rounds };
        let part = |index: usize| Part {
            server: index,
            host: testbed.host(index),
            name: testbed.servers[index].model.name.clone(),
        };
        let parts = (0..testbed.servers.len()).map(part).collect();
        let keeps_sessions = experiment.load.reuse_percent.is_some_and(|percent| percent > 0.0);
        let mut subject = SingleServer {
            experiment,
            load,
            // Between slices of milliseconds there is no pace to be told, and sampling it would cool the caches.
            pace: Pace::start(if is_sliced { &[] } else { &server_cpus }),
            testbed,
            as_is: Achieved::default(),
            reuse_told: false,
            sweeps: Sweeps::new(parts, keeps_sessions, own_command::compares_builds(experiment)),
            modes: WatchModes::default(),
            is_sliced,
            neighbours: Neighbours::default(),
            failed: BTreeSet::new(),
            unsaturated: BTreeSet::new(),
            restarts: (Duration::ZERO, 0),
            fresh: FreshServers::new(experiment.server.kind, rounds),
        };
        let valid: Vec<usize> =
            (0..record.configurations.len()).filter(|index| record.configurations[*index].valid).collect();
        let replaced = subject.replaced(&valid);
        if !replaced.is_empty() {
            observer.step("starting more servers of each configuration");
            let until = subject.testbed.prepared_until;
            subject.fresh.start(&mut subject.testbed, &replaced, until)?;
        }
        Ok(subject)
    }

    fn is_own_command(&self) -> bool {
        self.experiment.server.kind == ServerName::Command
    }

    /// Of these configurations, those whose server is replaced by another one of its kind: for each of its blocks where
    /// the experiment says so, for each round where there are slices. One start differs from the next by more than
    /// slices would show. A server of the user's own may need more memory than there is for several, the session that
    /// fits a perfect cache is that of one process, and on a machine there are no slices.
    fn replaced(&self, indices: &[usize]) -> BTreeSet<usize> {
        let is_replaced = |index: usize| {
            let server = &self.testbed.servers[index];
            let unsliced = server.model.base.is_some();
            let keeps = unsliced || server.model.noop.contains(Stage::SessionCache) || self.is_own_command();
            self.experiment.measure.fresh_servers || self.is_sliced && !keeps && self.testbed.host(index) == index
        };
        indices.iter().copied().filter(|index| is_replaced(*index)).collect()
    }

    /// Users that keep all connections busy: each uses as many as its pages are wide.
    fn users_min(&self) -> u32 {
        let load = &self.experiment.load;
        let one_by_one = self.testbed.site.workload.requests.iter().all(|request| request.page_end);
        let width = if one_by_one { 1 } else { load.per_user };
        load.connections.div_ceil(width).max(8).max(self.load.loops)
    }

    /// What a server does untimed that was just started.
    fn warm_up_users(&self) -> WarmUp {
        let workload = &self.testbed.site.workload;
        let requests = (workload.requests.len() / workload.users.len().max(1)) as u32;
        // Where nothing says that a connection ends, a user may have one only.
        let connections = self.experiment.load.requests_per_connection.map_or(1, |each| requests / each.max(1)).max(1);
        WarmUp { users_min: self.users_min(), users_most: self.load.users, connections }
    }

    /// A server that was just started is checked again and does one piece of work untimed.
    fn warm_restarted(&mut self, index: usize) -> Result<()> {
        let workers = self.testbed.require_libraries(index)?;
        let work = self.warm_up_users().work(&self.testbed.site.workload, workers.len() as u32);
        self.testbed.carry_out(&mut self.load, (index, index), &work, Sessions::New)?;
        Ok(())
    }

    /// Time to start the servers that are to take the place of others. Nothing while the pools have a server for each
    /// block, or where there is no time for more.
    fn time_to_start(&self, round: &NextRound, replaced: &BTreeSet<usize>) -> Duration {
        let blocks_of = |index: usize| round.blocks.iter().filter(|other| **other == index).count();
        let wanted = |index: usize| if self.is_sliced { 1 } else { blocks_of(index) };
        let takes = self.fresh.time(&self.testbed, replaced, wanted);
        // Where none is worth its start any more, the last ones are measured on.
        let may_stay = self.is_sliced && !self.experiment.measure.fresh_servers;
        let is_worth_it = !may_stay || Instant::now() + takes * STARTS_WORTH_IT < round.end;
        if is_worth_it { takes } else { Duration::ZERO }
    }

    /// CPU time of the server, read when it has come to rest: the last closes are still its work.
    fn server_cpu_ns(&mut self, index: usize) -> Result<u64> {
        let name = self.testbed.servers[index].model.name.clone();
        let instance =
            self.testbed.instance(index).with_context(|| format!("the server of \"{name}\" does not run"))?;
        let died = |_: &Instance, obituary: &str| format!("configuration \"{name}\": {obituary}");
        at_rest(|| instance.living_cpu_ns(died))
    }

    /// CPU time of the servers that this one needs beside it.
    fn companion_cpu_ns(&mut self, index: usize) -> Result<u64> {
        let costs = self.testbed.instance(index).map_or(Ok(Vec::new()), |instance| instance.companions_cpu_ns())?;
        Ok(costs.iter().map(|(_, ns)| ns).sum())
    }
}

impl Subject for SingleServer<'_> {
    /// What is behind a server of the user's own may be slow: it begins with a single user.
    fn warm_up(&self, _index: usize, factor: u32) -> Work {
        let least = if self.is_own_command() { self.load.loops } else { self.users_min() * WARM_UP_FACTOR };
        let users = least.saturating_mul(factor).min(self.load.users);
        typical_users(&requests_of_users(&self.testbed.site.workload), users).into()
    }

    fn is_bounded(&self) -> bool {
        true
    }

    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan {
        // The short blocks of the warm-up saturate nothing.
        self.unsaturated.clear();
        self.neighbours = Neighbours::default();
        let sliced_rounds = rounds_with_slices(self.experiment, left);
        let rounds = if self.is_sliced { Some(sliced_rounds) } else { self.experiment.measure.rounds };
        // Nothing is started for a block where the servers that are there already last for all rounds.
        let starts = self.fresh.pool_size < rounds.unwrap_or(u32::MAX);
        let start = if starts { self.fresh.time_to_start } else { Duration::ZERO };
        let restart = (self.restarts.0 / self.restarts.1.max(1) + start) / self.experiment.measure.turns;
        let requests = self.load.requests;
        let machines = !self.experiment.machines.is_empty();
        let has_blocks = self.experiment.measure.blocks || machines;
        let share = match (has_blocks, machines) {
            (false, _) => 0.0,
            (true, false) => BLOCKS_SHARE,
            (true, true) => BLOCKS_SHARE_OF_MACHINES,
        };
        let for_blocks = if self.is_sliced { left.mul_f64(share) } else { left };
        let mut schedule = schedule(rounds, for_blocks, seconds_per_request, restart, u64::from(requests));
        let requests_of_users = requests_of_users(&self.testbed.site.workload);
        if self.is_sliced {
            let calibrated = || Calibration::last(&self.experiment.server.kind.to_string())?.slice_us;
            let slice_us = self.experiment.measure.slice_us.or_else(calibrated);
            let least_us = self.load.slice_us_min();
            let users = (&requests_of_users[..], self.load.loops);
            let for_slices = left.saturating_sub(for_blocks);
            self.sweeps.plan(for_slices, slice_us, least_us, users, seconds_per_request);
        }
        let mut pieces = pieces(&requests_of_users, schedule.requests_per_block, self.users_min());
        // Without blocks nothing is taken of them.
        let dropped = if has_blocks || !self.is_sliced { drop_too_long(&mut pieces, &schedule, left) } else { 0 };
        let what = format!(
            "The run takes a sample of the workload: {} of its {} requests. The others' pieces would each take more \
             than half of the measuring time",
            format_count(u64::from(requests).saturating_sub(dropped)),
            format_count(u64::from(requests))
        );
        let warning = Warning::new("sample", what).with_remedy("A longer run takes more of them (--time)");
        let warnings = (dropped > 0).then_some(warning).into_iter().collect();
        let slices = self.is_sliced.then(|| SlicesOfRound {
            length: left.saturating_sub(for_blocks) / sliced_rounds,
            rounds_wanted: Some(sliced_rounds),
            rounds_least: self.experiment.measure.rounds.unwrap_or(SLICED_ROUNDS_MIN),
            blocks_share: has_blocks.then_some(share),
        });
        let mut round_least = schedule.round;
        if self.is_sliced {
            let is_sliced =
                |index: &usize| self.testbed.servers[*index].model.base.is_none() && !self.failed.contains(index);
            let configurations: Vec<usize> = (0..self.testbed.servers.len()).filter(is_sliced).collect();
            round_least = self.sweeps.expect(&self.testbed, &configurations);
            (schedule.rounds_expected, schedule.round) = (sliced_rounds, (left / sliced_rounds).max(round_least));
            schedule.requests_per_block *= u64::from(has_blocks);
        }
        let works = pieces.into_iter().map(Work::from).collect();
        Plan { slices, round_least, warnings, ..Plan::of(schedule, works) }
    }

    /// A listener that a server opens after its start is found here. One server a round, drawn by the order of blocks:
    /// reading the kernel's tables takes long when many closed connections linger in them.
    fn begin_round(&mut self, round: &NextRound) -> Result<bool> {
        let replaced = self.replaced(round.blocks);
        let takes = self.time_to_start(round, &replaced);
        if round.within.is_some_and(|within| takes > within) {
            return Ok(false);
        }
        if !takes.is_zero() {
            self.fresh.start(&mut self.testbed, &replaced, Some(round.end))?;
        }
        if self.is_sliced {
            self.sweeps.swap_servers(&mut self.testbed, &replaced);
        }
        let instance = self.testbed.instance(round.first);
        instance.map_or(Ok(()), |instance| instance.refuse_open_listeners()).or_fault(Fault::Server)?;
        Ok(true)
    }

    /// Starts the server of this configuration where it does not run, or takes another for the first of a round's
    /// blocks where the experiment wants that. One that was restarted is not measured cold: it is checked again and
    /// does one piece of work untimed.
    fn ready(&mut self, index: usize, turn: Option<u32>) -> Result<()> {
        self.require_host(index)?;
        let began = Instant::now();
        let fresh = self.experiment.measure.fresh_servers && turn.is_none_or(|turn| turn == 0);
        let swapped = fresh && self.testbed.swap_in(index);
        if turn.is_some() {
            self.testbed.is_measured(index);
        }
        let cold = self.sweeps.was_cold(self.testbed.host(index));
        if !self.testbed.activate(index)? && !swapped && !cold {
            return Ok(());
        }
        self.warm_restarted(index)?;
        self.restarts = (self.restarts.0 + began.elapsed(), self.restarts.1 + 1);
        Ok(())
    }

    fn block(&mut self, index: usize, work: &Work, journal: &mut Journal) -> Result<Block> {
        self.neighbours.block_begins();
        let cpu_before = self.server_cpu_ns(index)?;
        let beside_before = self.companion_cpu_ns(index)?;
        let pace_before = self.pace.read(&self.testbed.servers[index].placement.server);
        let outcome = self.testbed.carry_out(&mut self.load, (index, index), work, Sessions::New);
        let pace_after = self.pace.read(&self.testbed.servers[index].placement.server);
        let cpu_after = self.server_cpu_ns(index);
        self.neighbours.block_ends(&self.testbed.servers[index].placement.server);
        let (outcome, cpu_after) = match (outcome, cpu_after) {
            (Ok(outcome), Ok(cpu)) => (outcome, cpu),
            (Err(error), _) | (_, Err(error)) => {
                let name = self.testbed.servers[index].model.name.clone();
                // Of a worker that was lost the server's log says nothing.
                let is_far = fault_of(&error) == Some(Fault::Unreachable);
                let log_tail = if is_far { String::new() } else { self.log_tail(index) };
                return Err(error.context(format!("measure \"{name}\"{log_tail}")));
            }
        };
        if is_dead(&outcome) {
            return Err(death(&self.testbed.servers[index].model.name.clone(), &outcome, &self.log_tail(index)));
        }
        let server_cpu_ns = cpu_after.saturating_sub(cpu_before);
        let companion_cpu_ns = self.companion_cpu_ns(index)?.saturating_sub(beside_before);
        let verdict = self.judge(index, &outcome, work, (server_cpu_ns, companion_cpu_ns), journal)?;
        Ok(Block {
            elapsed_ns: self.testbed.servers[index].placement.elapsed_ns(outcome.elapsed_ns, server_cpu_ns),
            server_cpu_ns,
            companion_cpu_ns,
            pace_ps: pace_after.since(&pace_before),
            client_bound: verdict.client_bound,
            unsaturated: verdict.unsaturated,
            valid: verdict.valid,
            warnings: verdict.warnings,
            ..Block::from(&outcome)
        })
    }

    fn slices(
        &mut self,
        configurations: &[usize],
        time: TimeOfSlices,
        random: &mut SplitMix64,
    ) -> Result<Vec<Block>, Failed> {
        self.sweeps(configurations, time, random)
    }

    fn leave_out(&mut self, index: usize) -> bool {
        self.failed.insert(index);
        // Where it is a mode its server goes on with the others.
        self.testbed.stop(index);
        true
    }

    fn log_tail(&mut self, index: usize) -> String {
        self.testbed.log_tail(index)
    }

    fn warnings(&self) -> Vec<Warning> {
        let name = |index: &usize| self.testbed.servers[*index].model.name.clone();
        let configurations: Vec<String> = self.unsaturated.iter().map(name).collect();
        let all = self.testbed.servers.len() as u32;
        let is_told = !configurations.is_empty();
        let warning = is_told.then(|| unsaturated(&configurations, all, self.neighbours.busiest()));
        warning.into_iter().chain(self.sweeps.late_work()).collect()
    }
}

/// That neither side was busy all the time. `other`: the program that used most of the server's CPU beside the
/// experiment, with its process, and what per cent of one CPU it had.
fn unsaturated(configurations: &[String], all: u32, other: Option<(String, f64)>) -> Warning {
    let (why, remedy) = match other {
        Some((who, percent)) => (
            format!("{who} used {percent:.0} % of the server's CPU meanwhile"),
            "End that program, or measure on a quiet machine",
        ),
        None => (
            "requests waited for each other (few users at once, or each user's in strict order)".to_owned(),
            "Raise --connections, or use a workload with more users",
        ),
    };
    let what = format!(
        "the server was not saturated in {}: {why}. Hits per second are lower bounds there, CPU per hit is valid",
        Places(configurations, all)
    );
    Warning::new(code::UNSATURATED, what).with_remedy(remedy)
}
