//! The experiment with one server at a time: all configurations of it are up together, or take turns where their port
//! is fixed.

mod judge;
mod rounds;
mod sliced;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use tlsdyno_base::exchange::{Answer, exchange};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_engine::load::Workload;
use tlsdyno_record::model::{Experiment, Method, Question};
use tlsdyno_record::store::{Configuration, KindPart, Record, Warning, warning};
use tlsdyno_runner::run::check::CheckExperiment;
use tlsdyno_runner::run::cpus::{self, Cpus};
use tlsdyno_runner::run::fresh_servers::FreshServers;
use tlsdyno_runner::run::load_process::{LoadProcess, Sessions};
use tlsdyno_runner::run::neighbours::Neighbours;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::pace::Pace;
use tlsdyno_runner::run::preflight::{compile, start_and_check};
use tlsdyno_runner::run::runner::{self, Finished, Start, boxed, run_in_turn};
use tlsdyno_runner::run::schedule::{Work, requests_of_users, typical_users};
use tlsdyno_runner::run::sliced::{SLICED_ROUNDS_MIN, SlicedPart, Sweeps, sliced_rounds};
use tlsdyno_runner::run::testbed::{ServerUnderTest, Testbed};
use tlsdyno_runner::run::verify::Achieved;
use tlsdyno_runner::run::{manifest, modes, own_command};
use tlsdyno_tls::Stage;
use tlsdyno_workloads::changing;

use crate::counting::Counting;
use crate::foreign::Foreign;
use crate::summary::between_runs::earlier_runs;
use sliced::WatchModes;

/// Command that shows the details of a log's problems.
const WORKLOAD_REMEDY: &str = "`tlsdyno trace show FILE` tells more";
/// Maximum length of a slice: longer ones compare no better than blocks.
const SLICE_MAX: Duration = Duration::from_millis(250);
/// Part of the time for blocks on machines, where only blocks measure hits per second.
const BLOCKS_SHARE_OF_MACHINES: f64 = 0.8;
/// Wanted mean length of a block on machines, with its overhead. Longer blocks are no steadier: the machine's pace
/// changes from second to second.
const BLOCK_OF_MACHINES: Duration = Duration::from_millis(160);
/// Warm-up users per worker process of a server that was just started: the first connections of each cost more.
const WARM_UP_USERS: u32 = 4;
/// Maximum number of warm-up connections per worker process.
const WARM_UP_CONNECTIONS: u32 = 16;

/// Fails if measuring did not begin.
pub fn run(experiment: &Experiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    experiment.check()?;
    let cpus = cpus::choose(&cpus::allowed(), experiment.measure.server_cpu, experiment.measure.load_cpu)?;
    let Experiment { question, measure, .. } = experiment;
    if let Question::ForeignTraffic(traffic) = experiment.asks() {
        return runner::run(question, measure, stop, observer, move |record, observer| {
            let subject = Foreign::start(experiment, traffic, cpus, record, stop, observer)?;
            record.manifest.earlier_runs = earlier_runs(record);
            Ok(subject)
        });
    }
    let sliced = modes::with_host(experiment);
    let experiment = sliced.as_ref().unwrap_or(experiment);
    let told = sliced.as_ref().err().and_then(|why| why.told());
    if let Some(told) = &told {
        observer.warn(&told.to_string());
    }
    let mut starts: Vec<Start> = Vec::new();
    if experiment.asks() != Question::Counts {
        starts.push(boxed(|record: &mut Record, observer: &mut dyn Observer| {
            record.warnings.extend(told);
            let subject = SingleServer::start(experiment, cpus, record, stop, observer)?;
            record.manifest.earlier_runs = earlier_runs(record);
            Ok(subject)
        }));
    }
    if experiment.uses(Method::Counting) {
        Counting::require()?;
        starts.push(boxed(move |record: &mut Record, observer: &mut dyn Observer| {
            Counting::start(experiment, cpus, record, stop, observer)
        }));
    }
    run_in_turn(question, measure, stop, observer, starts)
}

/// Number of rounds with slices in so much time. On machines each has blocks too, and must be long enough for them.
fn rounds_with_slices(experiment: &Experiment, time: Duration) -> u32 {
    let mut rounds = sliced_rounds(time);
    if let Question::Machines(_) = experiment.asks() {
        let blocks = BLOCK_OF_MACHINES * experiment.configurations.len() as u32;
        let with_blocks = time.mul_f64(BLOCKS_SHARE_OF_MACHINES).as_secs_f64() / blocks.as_secs_f64();
        rounds = rounds.min(with_blocks as u32).max(SLICED_ROUNDS_MIN);
    }
    experiment.measure.rounds.unwrap_or(rounds)
}

/// Tells the reader about assumptions and unusual conditions.
fn tell_before(
    experiment: &Experiment,
    testbed: &Testbed,
    cpus: Cpus,
    record: &mut Record,
    observer: &mut dyn Observer,
) -> Result<()> {
    manifest::assumption(experiment).iter().for_each(|assumption| observer.tell(assumption));
    own_command::tell_effects(experiment, &testbed.network, observer).or_fault(Fault::Input)?;
    if cpus.shared() {
        record.warnings.push(warning::shared_cpus(&format!("only CPU {} may be used", cpus.server)));
    }
    // Of two builds no share is told.
    if !experiment.has_plain_http() && !own_command::compares_builds(experiment) {
        record.warnings.push(warning::no_plain_http());
    }
    record.warnings.extend(own_command::told_of_copy(experiment));
    let own = Some(&testbed.site.workload).filter(|_| experiment.workload.is_servers_own());
    let changing = own.and_then(|workload| changing::warning(workload));
    let beforehand: Vec<String> = testbed.site.summary.beforehand().into_iter().chain(changing).collect();
    beforehand.iter().for_each(|told| observer.tell(told));
    let told = beforehand.into_iter().chain(testbed.site.summary.notes());
    record.warnings.extend(told.map(|what| Warning::new("workload", what).with_remedy(WORKLOAD_REMEDY)));
    Ok(())
}

/// The configurations as parts of sweeps, each in its own server or the one that it is a mode of.
fn parts(testbed: &Testbed) -> Vec<SlicedPart> {
    let part = |(index, server): (usize, &ServerUnderTest)| SlicedPart {
        server: index,
        host: testbed.host(index),
        name: server.model.name.clone(),
    };
    testbed.servers.iter().enumerate().map(part).collect()
}

/// Makes one request to the server of a configuration, to see what a client sees.
fn seen(testbed: &Testbed, index: usize) -> Result<Answer> {
    let config = testbed.servers[index].settings.as_ref().map(compile).transpose()?;
    Ok(exchange(testbed.address(index), config.as_ref(), None, &testbed.preflight_request().0)?)
}

/// Untimed work of a server that was just started.
#[derive(Clone, Copy, Debug)]
struct WarmUp {
    users_min: u32,
    users_most: u32,
    /// Connections per user.
    connections: u32,
}

impl WarmUp {
    /// Work for so many worker processes. A prefork server has one for each connection, which users with a connection
    /// per request would warm for longer than a block takes.
    fn work(self, workload: &Workload, workers: u32) -> Work {
        let users = (WARM_UP_USERS * workers).min((WARM_UP_CONNECTIONS * workers).div_ceil(self.connections));
        typical_users(&requests_of_users(workload), users.max(self.users_min).min(self.users_most)).into()
    }
}

/// The configurations of one server.
struct SingleServer<'a> {
    experiment: &'a Experiment,
    load: LoadProcess,
    /// Samples the pace of every CPU of a server.
    pace: Pace,
    testbed: Testbed,
    /// Reuse by the untouched server in its last block, relative to the declared one.
    as_is: Achieved,
    /// The warning about reuse by the untouched server was given.
    reuse_told: bool,
    /// Slices of configurations that are modes of one server.
    sweeps: Sweeps,
    modes: WatchModes,
    is_sliced: bool,
    /// Other programs that used the server's CPUs in the blocks.
    neighbours: Neighbours,
    /// Configurations that were left out after a failure.
    failed: BTreeSet<usize>,
    /// Configurations with a block in which neither side was saturated.
    unsaturated: BTreeSet<usize>,
    /// Total time of restarts with their warm-up, where servers take turns or are restarted for each block, and number
    /// of restarts.
    restarts: (Duration, u32),
    /// Servers that replace those that were measured.
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
        let mut testbed = Testbed::prepare(experiment, cpus, &mut |text| observer.step(text))?;
        record.kind_part = KindPart::from(experiment.without_secrets());
        tell_before(experiment, &testbed, cpus, record, observer)?;
        start_and_check(&mut testbed, record, stop, observer)?;
        manifest::describe(&mut record.manifest, &mut testbed);
        record.warnings.extend(manifest::same_version(&record.manifest));
        let as_is = testbed.servers.iter().position(|server| server.model.is_untouched()).unwrap_or(0);
        if experiment.server.kind.is_users_own() && testbed.instance(as_is).is_some() {
            manifest::describe_seen(&mut record.manifest, &seen(&testbed, as_is).or_fault(Fault::Server)?);
        }
        observer.step("starting the load process");
        let load = testbed.start_load(|index| record.configurations[index].valid)?;
        let has_modes = testbed.servers.iter().any(|server| server.model.hosts_modes());
        let is_sliced = has_modes || own_command::compares_builds(experiment);
        let server_cpus = testbed.server_cpus();
        let least = Duration::from_micros(load.slice_us_min());
        ensure_fault!(
            Usage,
            !is_sliced || least <= SLICE_MAX,
            "a slice to workers, or through a network, would have to last {:.0} ms to be worth its way there: \
             compare blocks (--slice 0)",
            least.as_secs_f64() * 1e3
        );
        let time = Duration::from_secs_f64(experiment.measure.time_s);
        let rounds = if is_sliced { Some(rounds_with_slices(experiment, time)) } else { experiment.measure.rounds };
        let keeps_sessions = experiment.load.reuse_percent.is_some_and(|percent| percent > 0.0);
        let mut subject = SingleServer {
            experiment,
            load,
            // Between slices of milliseconds there is no pace to be told, and sampling it would cool the caches.
            pace: Pace::start(if is_sliced { &[] } else { &server_cpus }),
            sweeps: Sweeps::new(parts(&testbed), keeps_sessions, own_command::compares_builds(experiment)),
            testbed,
            as_is: Achieved::default(),
            reuse_told: false,
            modes: WatchModes::default(),
            is_sliced,
            neighbours: Neighbours::default(),
            failed: BTreeSet::new(),
            unsaturated: BTreeSet::new(),
            restarts: (Duration::ZERO, 0),
            fresh: FreshServers::new(experiment.server.kind, rounds),
        };
        subject.start_more_servers(&record.configurations, observer)?;
        Ok(subject)
    }

    /// Fills the pools of servers that replace those that are measured first.
    fn start_more_servers(&mut self, configurations: &[Configuration], observer: &mut dyn Observer) -> Result<()> {
        let valid: Vec<usize> = (0..configurations.len()).filter(|index| configurations[*index].valid).collect();
        let replaced = self.replaced(&valid);
        if replaced.is_empty() {
            return Ok(());
        }
        observer.step("starting more servers of each configuration");
        let until = self.testbed.prepared_until;
        self.fresh.start(&mut self.testbed, &replaced, until)
    }

    /// Of these configurations, those whose server is replaced by another one of its kind: for each of its blocks where
    /// the experiment says so, for each round where there are slices. One start differs from the next by more than
    /// slices would show. A server of the user's own may need more memory than there is for several, the session that
    /// fits a perfect cache is that of one process, and on a machine there are no slices.
    fn replaced(&self, indices: &[usize]) -> BTreeSet<usize> {
        let is_replaced = |index: usize| {
            let server = &self.testbed.servers[index];
            let unsliced = server.model.base.is_some();
            let keeps = unsliced
                || server.model.noop.contains(Stage::SessionCache)
                || self.experiment.server.kind.is_users_own();
            self.experiment.measure.fresh_servers || self.is_sliced && !keeps && self.testbed.host(index) == index
        };
        indices.iter().copied().filter(|index| is_replaced(*index)).collect()
    }

    /// Users that keep all connections busy: each opens as many as its pages use in parallel.
    fn users_min(&self) -> u32 {
        let load = &self.experiment.load;
        let one_by_one = self.testbed.site.workload.requests.iter().all(|request| request.page_end);
        let width =
            if one_by_one { 1 } else { load.width(self.testbed.servers.iter().any(ServerUnderTest::has_http2)) };
        load.connections.div_ceil(width).max(8).max(self.load.loops)
    }

    /// Untimed work of a server that was just started.
    fn warm_up_users(&self) -> WarmUp {
        let workload = &self.testbed.site.workload;
        let requests = (workload.requests.len() / workload.users.len().max(1)) as u32;
        // Where nothing says that a connection ends, a user may have one only.
        let connections = self.experiment.load.requests_per_connection.map_or(1, |each| requests / each.max(1)).max(1);
        WarmUp { users_min: self.users_min(), users_most: self.load.users, connections }
    }

    /// Checks a restarted server again, and gives it one untimed piece of work.
    fn warm_restarted(&mut self, index: usize) -> Result<()> {
        let workers = self.testbed.require_libraries(index)?;
        let work = self.warm_up_users().work(&self.testbed.site.workload, workers.len() as u32);
        self.testbed.carry_out(&mut self.load, (index, index), &work, Sessions::New)?;
        Ok(())
    }
}
