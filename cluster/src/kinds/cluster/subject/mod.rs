//! The cluster experiment (Apostolopoulos et al. 2000, "Scaling an E-Commerce Site", Figures 8 and 9): servers of one
//! kind behind dispatchers of several policies, under traffic that offers more and more of its sessions again.
//!
//! All servers and dispatchers are up together; blocks of all cells (policy, reuse, load) alternate in random order
//! within each round, as in the main job.

mod locality;
pub mod place;
mod record;
mod testbed;
mod verify;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;

use self::place::Placement;
use self::testbed::{ClusterTestbed, Usage};
use crate::fault::{Fault, OrFault};
use crate::interrupt;
use crate::kinds::cluster::cell::Cell;
use crate::kinds::cluster::file::{ClusterExperiment, OPEN_BLOCK_MIN};
use crate::model::job::Timed;
use crate::run::load_process::LoadProcess;
use crate::run::observer::Observer;
use crate::run::runner::{self, Finished, Plan, Subject};
use crate::run::schedule::{Piece, Schedule, Work, pieces, requests_of_users, schedule, timed_blocks, typical_users};
use crate::run::verify::{death, is_dead};
use crate::run::{cpus, manifest};
use crate::servers::{dispatcher, quota};
use crate::store::{BackendUse, Block, ClusterBlock, Journal, Record};

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

/// Runs the experiment. An error means that measuring did not begin.
pub fn run(experiment: &ClusterExperiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    experiment.check().or_fault(Fault::Usage)?;
    for policy in &experiment.cluster.policies {
        dispatcher::refuse_missing(*policy)?;
    }
    runner::run(&experiment.question, &experiment.measure, stop, observer, |record, observer| {
        Cluster::start(experiment, record, stop, observer)
    })
}

/// The cells of a cluster.
struct Cluster<'a> {
    experiment: &'a ClusterExperiment,
    load: LoadProcess,
    testbed: ClusterTestbed,
}

impl<'a> Cluster<'a> {
    fn start(
        experiment: &'a ClusterExperiment,
        record: &mut Record,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Cluster<'a>> {
        let placement = Placement::of(experiment, &cpus::allowed()).or_fault(Fault::Usage)?;
        let placement = placement.or_unlimited(experiment, quota::require).or_fault(Fault::Environment)?;
        if let Some(warning) = record::unlimited_warning(&placement) {
            observer.warn(&warning.to_string());
        }
        let mut testbed = ClusterTestbed::prepare(experiment, placement, &mut |text| observer.step(text))?;
        let plain_limit = experiment.cluster.plain_limit.then_some((experiment.cluster.sessions[0], true));
        let with_tls = experiment.cluster.sessions.iter().map(|sharing| (*sharing, false));
        for (sharing, is_plain_limit) in with_tls.chain(plain_limit) {
            interrupt::check(stop)?;
            let dispatchers = if experiment.cluster.has_dispatcher() { " and the dispatchers" } else { "" };
            observer.step(&format!("starting {} servers{dispatchers}", experiment.cluster.backends));
            interrupt::before_measuring(stop, testbed.start_group(experiment, sharing, is_plain_limit))?;
        }
        let cells = experiment.cells();
        for cell in &cells {
            interrupt::check(stop)?;
            interrupt::before_measuring(stop, testbed.start_cell(cell))?;
        }
        for tested in &testbed.cells {
            let configuration = record::configuration(tested, &cells);
            observer.preflight(&configuration.name, tested.checks.len(), &[]);
            record.configurations.push(configuration);
        }
        record::describe(record, experiment, &testbed);
        observer.step("starting the load process");
        let load = testbed.start_load(experiment)?;
        Ok(Cluster { experiment, load, testbed })
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.testbed.cells.iter().map(|tested| &tested.cell)
    }

    fn requests_of_users(&self) -> Vec<u32> {
        requests_of_users(&self.testbed.site.workload)
    }

    /// Blocks of an open loop, or of clients that pause, all last as long.
    fn plan_open(&self, left: Duration) -> (Schedule, Vec<Work>) {
        let most = self.cells().filter_map(|cell| cell.rate_per_s).fold(0.0, f64::max);
        let blocks = self.testbed.cells.len() as u32;
        let shortest_and_longest = self.paused_block().map_or([OPEN_BLOCK_MIN, OPEN_BLOCK], |block| [block / 4, block]);
        let (timed, schedule) = timed_blocks(left, blocks, shortest_and_longest, BLOCK_OVERHEAD, most);
        let requests = self.requests_of_users();
        let piece = Piece { users: 0..requests.len() as u32, requests: requests.iter().copied().map(u64::from).sum() };
        (schedule, vec![Work { timed: Some(timed), ..piece.into() }])
    }

    fn paused_block(&self) -> Option<Duration> {
        let pause = Duration::from_millis(self.experiment.traffic.pause_ms?);
        let kept = self.experiment.tls.session_timeout_s.map_or(pause, |seconds| Duration::from_secs(seconds.into()));
        Some(pause.max(kept) * PAUSES_IN_BLOCK)
    }

    fn plan_closed(&self, seconds_per_request: &[f64], left: Duration) -> (Schedule, Vec<Work>) {
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
        (schedule, pieces.into_iter().map(Work::from).collect())
    }
}

impl Subject for Cluster<'_> {
    fn warm_up(&self, index: usize, factor: u32) -> Work {
        let requests = self.requests_of_users();
        let average = requests.iter().copied().map(f64::from).sum::<f64>() / requests.len().max(1) as f64;
        let cell = &self.testbed.cells[index].cell;
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
        block.valid
    }

    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan {
        let is_open = self.cells().any(|cell| cell.rate_per_s.is_some()) || self.paused_block().is_some();
        let (schedule, works) =
            if is_open { self.plan_open(left) } else { self.plan_closed(seconds_per_request, left) };
        Plan { schedule, works, rounds_most: None, slices: None, warnings: Vec::new() }
    }

    fn block(&mut self, index: usize, work: &Work, journal: &mut Journal) -> Result<Block> {
        let address = self.testbed.address(index);
        let before = self.testbed.usage(index, None)?;
        self.testbed.skip_logs(index)?;
        let outcome = self.load.run(index, address, work, self.testbed.cells[index].cell.sessions());
        let connections = outcome.as_ref().map_or(0, |outcome| outcome.connections);
        let passed_before: u64 = before.connections.iter().sum();
        // A server that has died is the news, not what the load makes of it.
        let after = self.testbed.usage(index, Some(passed_before + connections))?;
        let outcome = outcome?;
        if is_dead(&outcome) {
            return Err(death(&journal.record().configurations[index].name, &outcome, &self.log_tail(index)));
        }
        let mut used = difference(&before, &after);
        if self.testbed.cells[index].dispatcher.is_none() {
            // All of them went to the one server.
            used.connections = vec![outcome.connections];
        }
        let requests = work.timed.is_none().then_some(work.piece.requests);
        let shares = self.testbed.placement.dispatcher_shares_load();
        let verdict = verify::verify(&self.testbed.cells[index].cell, &outcome, &used, requests, shares);
        if journal.record().manifest.negotiated.is_empty() {
            let negotiated = manifest::negotiated_text(&outcome.negotiated);
            journal.change(|record| record.manifest.negotiated = negotiated);
        }
        let asked = self.testbed.locality(index, outcome.hits)?;
        let locality = |backend: usize| asked.as_ref().and_then(|asked| asked.get(backend).copied());
        let backends = used.backends_ns.iter().zip(&used.connections).enumerate();
        let backends = backends.map(|(number, (&cpu_ns, &connections))| {
            let locality = locality(number);
            BackendUse { cpu_ns, connections, locality }
        });
        Ok(Block {
            // The silence before the first and after the last arrival is part of the load.
            elapsed_ns: work.timed.map_or(0, |timed| timed.for_ns).max(outcome.elapsed_ns),
            server_cpu_ns: used.backends_ns.iter().sum(),
            companion_cpu_ns: used.companions_ns,
            client_bound: verdict.client_bound,
            valid: verdict.valid,
            warnings: verdict.warnings,
            cluster: Some(ClusterBlock {
                dispatcher_cpu_ns: used.dispatcher_ns,
                backends: backends.collect(),
                unserved: outcome.unserved,
            }),
            ..Block::from(&outcome)
        })
    }

    fn log_tail(&mut self, index: usize) -> String {
        self.testbed.log_tail(index)
    }
}

/// What was used between two readings.
fn difference(before: &Usage, after: &Usage) -> Usage {
    let each = |before: &[u64], after: &[u64]| {
        before.iter().zip(after).map(|(before, after)| after.saturating_sub(*before)).collect()
    };
    Usage {
        dispatcher_ns: after.dispatcher_ns.saturating_sub(before.dispatcher_ns),
        backends_ns: each(&before.backends_ns, &after.backends_ns),
        companions_ns: after.companions_ns.saturating_sub(before.companions_ns),
        connections: each(&before.connections, &after.connections),
    }
}
