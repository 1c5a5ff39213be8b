//! The cluster experiment (Apostolopoulos et al. 2000, "Scaling an E-Commerce Site", Figures 8 and 9): servers of one
//! kind behind dispatchers of several policies, under traffic that offers more and more of its sessions again.
//!
//! All servers and dispatchers are up together; blocks of all cells (policy, reuse, load) alternate in random order
//! within each round, as in the main job.

mod group;
mod locality;
mod place;
mod verify;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_base::listening::is_loopback;
use tlsdyno_engine::load::{self, Pacing, Pause, Spread};
use tlsdyno_record::model::job::Timed;
use tlsdyno_record::store::{Block, Configuration, Journal, KindPart, OfKind, Record};
use tlsdyno_runner::kinds::AnyExperiment;
use tlsdyno_runner::run::load_process::LoadProcess;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::runner::{self, Finished, Plan, Subject};
use tlsdyno_runner::run::schedule::{Work, pieces, requests_of_users, schedule, typical_users};
use tlsdyno_runner::run::verify::{death, is_dead};
use tlsdyno_runner::run::{cpus, manifest};
use tlsdyno_servers::{database, dispatcher, quota};

use self::group::{CellUnderTest, Group};
use crate::cluster::cell::Cell;
use crate::cluster::file::{ClusterExperiment, OPEN_BLOCK_MIN};
use crate::several_machines::block::{block, is_warm, note_negotiated};
use crate::several_machines::placement::Placement;
use crate::several_machines::testbed::{Clients, Testbed, Usage};

/// The least piece of work of a warm-up: so many connections of each client.
const WARM_UP_CONNECTIONS: u32 = 8;
/// A block has at least so many connections of each client: the first one of each is full, whatever share is asked for.
const CONNECTIONS_OF_CLIENT_MIN: u64 = 16;
/// Length of a block of an open loop, where the time allows.
const OPEN_BLOCK: Duration = Duration::from_millis(3_000);
/// Length of a block of clients that pause, where the time allows, by the longer of their pauses and of the servers'
/// time-out: sessions begin and end in it. The least is a quarter.
const PAUSES_IN_BLOCK: u32 = 10;
/// Fixed cost of a block: command, settling, counting.
const BLOCK_OVERHEAD: Duration = Duration::from_millis(30);

/// Runs the experiment, which was checked. An error means that measuring did not begin.
pub fn run(experiment: &ClusterExperiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    for policy in experiment.cluster.policies.iter().chain(&experiment.cluster.spread) {
        dispatcher::refuse_missing(*policy)?;
    }
    if experiment.cluster.database {
        database::refuse_missing()?;
    }
    if experiment.cluster.has_front_ends() {
        experiment.cluster.front_end.refuse_missing(", or take another --front-end")?;
    }
    runner::run(&experiment.question, &experiment.measure, stop, observer, |record, observer| {
        Cluster::start(experiment, record, stop, observer)
    })
}

struct Cluster<'a> {
    experiment: &'a ClusterExperiment,
    load: LoadProcess,
    groups: Vec<Group>,
    /// In the order of the experiment.
    cells: Vec<CellUnderTest>,
    testbed: Testbed,
}

impl<'a> Cluster<'a> {
    fn start(
        experiment: &'a ClusterExperiment,
        record: &mut Record,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Cluster<'a>> {
        let wanted = place::wanted(experiment);
        let placement = Placement::of(&wanted, &cpus::allowed()).or_fault(Fault::Usage)?;
        let placement = placement.or_unlimited(&wanted, quota::require).or_fault(Fault::Environment)?;
        if let Some(warning) = place::unlimited_warning(&placement) {
            observer.warn(&warning.to_string());
        }
        let (certificate, effort) = (experiment.tls.certificate(), experiment.traffic.effort);
        let place = (placement, experiment.cluster.ip());
        let mut testbed = Testbed::prepare(&experiment.workload, certificate, effort, place, &mut |text| {
            observer.step(text);
        })?;
        let all = experiment.cells();
        let mut groups: Vec<Group> = Vec::new();
        for sharing in all.iter().map(|cell| experiment.backends_share(cell)) {
            if groups.iter().any(|group| group.sharing == sharing) {
                continue;
            }
            interrupt::check(stop)?;
            let dispatchers = if experiment.cluster.has_dispatcher() { " and the dispatchers" } else { "" };
            observer.step(&format!("starting {} servers{dispatchers}", experiment.cluster.backends));
            let group = Group::start(&mut testbed, experiment, sharing);
            groups.push(interrupt::before_measuring(stop, group)?);
        }
        let backends = experiment.cluster.backends;
        let enough = || locality::enough_for_all_together(&testbed.site, backends);
        let cache_bytes = experiment.cluster.cache_bytes.unwrap_or_else(enough);
        let mut cells: Vec<CellUnderTest> = Vec::new();
        for cell in &all {
            interrupt::check(stop)?;
            let cell = CellUnderTest::start(&mut testbed, experiment, &groups, cell, cache_bytes);
            let tested = interrupt::before_measuring(stop, cell)?;
            let (name, has_tls) = (tested.cell.name(&all), tested.tls.is_some());
            observer.preflight(&name, tested.checks.len(), &[]);
            record.configurations.push(Configuration::setting(name, has_tls, tested.checks.clone()));
            cells.push(tested);
        }
        describe(record, experiment, &testbed, (groups[0].backends[0], &cells));
        observer.step("starting the load process");
        let load = start_load(experiment, &testbed, &cells, &all)?;
        Ok(Cluster { experiment, load, groups, cells, testbed })
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().map(|tested| &tested.cell)
    }

    fn requests_of_users(&self) -> Vec<u32> {
        requests_of_users(&self.testbed.site.workload)
    }

    /// Blocks of an open loop, or of clients that pause, all last as long.
    fn plan_open(&self, seconds_per_request: &[f64], left: Duration) -> Plan {
        let bounds = self.paused_block().map_or([OPEN_BLOCK_MIN, OPEN_BLOCK], |block| [block / 4, block]);
        Plan::of_timed_blocks(self.testbed.everybody(), left, seconds_per_request, bounds, BLOCK_OVERHEAD)
    }

    fn paused_block(&self) -> Option<Duration> {
        let pause = Duration::from_millis(self.experiment.traffic.pause_ms?);
        let kept = self.experiment.tls.session_timeout_s.map_or(pause, |seconds| Duration::from_secs(seconds.into()));
        Some(pause.max(kept) * PAUSES_IN_BLOCK)
    }

    fn plan_closed(&self, seconds_per_request: &[f64], left: Duration) -> Plan {
        let requests = self.requests_of_users();
        let total: u64 = requests.iter().copied().map(u64::from).sum();
        let clients = self.cells().map(|cell| cell.clients).max().unwrap_or(1);
        let rounds = self.experiment.measure.rounds;
        let mut schedule = schedule(rounds, left, seconds_per_request, BLOCK_OVERHEAD, total);
        let each = self.experiment.traffic.requests_per_connection;
        let least = CONNECTIONS_OF_CLIENT_MIN * u64::from(clients) * u64::from(each);
        schedule.requests_per_block = schedule.requests_per_block.max(least).min(total);
        schedule.round = schedule.predicted(schedule.requests_per_block, schedule.seconds_per_request);
        schedule.rounds_expected = (left.as_secs_f64() / schedule.round.as_secs_f64()).floor().max(1.0) as u32;
        let pieces = pieces(&requests, schedule.requests_per_block, clients);
        Plan::of(schedule, pieces.into_iter().map(Work::from).collect())
    }
}

impl Subject for Cluster<'_> {
    fn warm_up(&self, index: usize, factor: u32) -> Work {
        let requests = self.requests_of_users();
        let average = requests.iter().copied().map(f64::from).sum::<f64>() / requests.len().max(1) as f64;
        let cell = &self.cells[index].cell;
        let connections = f64::from(cell.clients * WARM_UP_CONNECTIONS) * f64::from(factor);
        let users = connections * f64::from(self.experiment.traffic.requests_per_connection) / average;
        let piece = typical_users(&requests, (users.ceil() as u32).max(cell.clients));
        // Of an open loop each client has a session then.
        let all_s = cell.rate_per_s.map(|rate| 2.0 * f64::from(cell.clients) / rate);
        let timed = all_s.or(self.experiment.traffic.pause_ms.map(|_| 0.0)).map(|all_s| Timed {
            for_ns: Duration::from_secs_f64(all_s).max(OPEN_BLOCK_MIN).as_nanos() as u64,
            seed: 0,
        });
        Work { timed, ..piece.into() }
    }

    fn is_warm(&self, block: &Block) -> bool {
        is_warm(block)
    }

    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan {
        let is_open = self.cells().any(|cell| cell.rate_per_s.is_some()) || self.paused_block().is_some();
        if is_open { self.plan_open(seconds_per_request, left) } else { self.plan_closed(seconds_per_request, left) }
    }

    fn block(&mut self, index: usize, work: &Work, journal: &mut Journal) -> Result<Block> {
        let CellUnderTest { cell, group, route, caches, .. } = &mut self.cells[index];
        let (group, testbed) = (&mut self.groups[*group], &mut self.testbed);
        let address = testbed.entries(route)[0];
        let before = testbed.cpu_at_rest(route)?;
        let passed_before = testbed.passed(route, 0)?;
        let onward_before = testbed.passed_onward(route, 0)?;
        group.skip_logs()?;
        let outcome = self.load.run(index, address, work, cell.sessions());
        let connections = outcome.as_ref().map_or(0, |outcome| outcome.connections);
        // A server that has died is the news, not what the load makes of it.
        let after = testbed.cpu_at_rest(route)?;
        let passed = testbed.passed(route, passed_before.iter().sum::<u64>() + connections)?;
        let hits = outcome.as_ref().map_or(0, |outcome| outcome.hits);
        let onward = testbed.passed_onward(route, onward_before.iter().sum::<u64>() + hits)?;
        let outcome = outcome?;
        if is_dead(&outcome) {
            let name = &journal.record().configurations[index].name;
            return Err(death(name, &outcome, &testbed.log_tail(route)));
        }
        let after = Usage { connections: passed, onward_connections: onward, ..after };
        let mut used = after.since(&Usage { connections: passed_before, onward_connections: onward_before, ..before });
        if route.dispatcher.is_none() {
            // All of them went to the one server.
            used.connections = vec![outcome.connections];
        }
        let requests = work.timed.is_none().then_some(work.piece.requests);
        let verdict = verify::verify(cell, &outcome, &used, requests, testbed.placement.dispatcher_shares_load());
        note_negotiated(journal, &outcome);
        let localities = group.locality(caches, outcome.hits)?;
        let block = block(&outcome, &used, verdict, localities.as_deref());
        // The silence before the first and after the last arrival is part of the load.
        let timed_ns = work.timed.map_or(0, |timed| timed.for_ns);
        Ok(Block { elapsed_ns: timed_ns.max(block.elapsed_ns), ..block })
    }

    fn log_tail(&mut self, index: usize) -> String {
        self.testbed.log_tail(&self.cells[index].route)
    }
}

fn start_load(
    experiment: &ClusterExperiment,
    testbed: &Testbed,
    cells: &[CellUnderTest],
    all: &[Cell],
) -> Result<LoadProcess> {
    let traffic = &experiment.traffic;
    let requests_each = Some(traffic.requests_per_connection);
    let clients = Clients { total: 1, requests_each, timeout_ms: traffic.timeout_ms };
    let pause =
        |mean_ms: u64| Pacing::Pauses(Pause { mean_ns: mean_ms * 1_000_000, spread: Spread::Exponential, seed: 0 });
    let plan = |tested: &CellUnderTest| -> Result<load::Plan> {
        let (cell, tls) = (&tested.cell, tested.tls.as_ref());
        let entries = testbed.entries(&tested.route)[..1].to_vec();
        let plan = testbed.plan(&cell.name(all), entries, tls, clients)?;
        let pacing = traffic.pause_ms.map_or(plan.pacing, pause);
        let plan = load::Plan { pacing, window: testbed.site.spec.window(), ..plan };
        Ok(cell.loaded(plan, experiment.has_addresses()))
    };
    let plans = cells.iter().map(plan).collect::<Result<Vec<_>>>()?;
    testbed.start_load(&plans, (experiment.workers.as_ref(), experiment.network.as_ref()))
}

/// What the record says before its first block, once everything runs. `backend`: any of them.
fn describe(
    record: &mut Record,
    experiment: &ClusterExperiment,
    testbed: &Testbed,
    (backend, cells): (usize, &[CellUnderTest]),
) {
    record.kind_part = KindPart::from(experiment.clone());
    manifest::describe_seed(&mut record.manifest, &experiment.workload);
    let (manifest, placement) = (&mut record.manifest, &testbed.placement);
    manifest.hardware.insert(ClusterExperiment::FIELD.to_owned(), place::description(placement, experiment));
    manifest.server_name = experiment.cluster.server.name().to_owned();
    if !experiment.cluster.plain {
        manifest.certificate = experiment.tls.certificate().to_string();
    }
    manifest.server_config.insert("experiment.toml".to_owned(), experiment.to_toml().unwrap_or_default());
    let front_ends = cells.iter().filter(|tested| tested.cell.front.is_some()).map(|tested| tested.route.ends[0]);
    testbed.describe(manifest, experiment.workers.as_ref(), backend, &front_ends.collect::<Vec<_>>());
    let is_loaded_here = experiment.workers.is_none() || is_loopback(experiment.cluster.ip());
    record.warnings.extend(place::sharing_warnings(placement, experiment, is_loaded_here));
}
