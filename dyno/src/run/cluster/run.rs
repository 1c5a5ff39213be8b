//! Runs a cluster experiment: starts everything, checks everything, then measures block after block in random order
//! until the time is up.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};

use super::place::Placement;
use super::rig::{ClusterRig, Usage};
use super::{record, verify};
use crate::fault::{Fault, OrFault};
use crate::interrupt;
use crate::model::cell::Cell;
use crate::model::cluster::{ClusterExperiment, OPEN_BLOCK_MIN};
use crate::model::job::Timed;
use crate::random::SplitMix64;
use crate::run::journal::Finished;
use crate::run::load_process::LoadProcess;
use crate::run::observer::Observer;
use crate::run::schedule::{Piece, Schedule, pieces, schedule_rounds, typical_users};
use crate::run::{cpus, journal, manifest};
use crate::servers::quota;
use crate::store::{BackendUse, Block, ClusterBlock, Journal, Warning};

/// The calibration's piece of work: so many connections of each client.
const CALIBRATION_CONNECTIONS: u32 = 8;
/// A block has at least so many connections of each client: the first one of each is full, whatever share is asked for.
const CONNECTIONS_OF_CLIENT_MIN: u64 = 16;
/// Length of a block of an open loop, where the time allows.
const OPEN_BLOCK: Duration = Duration::from_millis(3_000);
/// Rounds that an open loop shall have at least.
const OPEN_ROUNDS: u32 = 6;
/// Fixed cost of a block: command, settling, counting.
const BLOCK_OVERHEAD: Duration = Duration::from_millis(30);

/// Runs the experiment. An error means that measuring did not begin.
pub fn run(experiment: &ClusterExperiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    experiment.check().or_fault(Fault::Usage)?;
    for policy in &experiment.cluster.policies {
        policy.refuse_missing()?;
    }
    let placement = Placement::of(experiment, &cpus::allowed()).or_fault(Fault::Usage)?;
    let placement = placement.or_unlimited(experiment, quota::require).or_fault(Fault::Environment)?;
    if let Some(warning) = record::unlimited_warning(&placement) {
        observer.trouble(&warning.to_string());
    }
    let now_ns = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |t| t.as_nanos() as u64);
    let seed = experiment.measure.seed.unwrap_or_else(now_ns);
    let mut rig = ClusterRig::prepare(experiment, placement, &mut |text| observer.step(text))?;
    let mut record = record::empty(experiment, seed);
    let cells = experiment.cells();
    for &sharing in &experiment.cluster.sessions {
        interrupt::check(stop)?;
        observer.step(&format!("starting {} servers and the dispatchers", experiment.cluster.backends));
        interrupt::before_measuring(stop, rig.start_group(experiment, sharing))?;
    }
    for cell in &cells {
        interrupt::check(stop)?;
        interrupt::before_measuring(stop, rig.start_cell(cell))?;
    }
    record.configurations = rig.stands.iter().map(|stand| record::configuration(stand, &cells)).collect();
    for (of, stand) in record.configurations.iter().zip(&rig.stands) {
        observer.preflight(&of.name, stand.checks.len(), &[]);
    }
    record::describe(&mut record, experiment, &rig);
    observer.step("starting the load process");
    let load = rig.start_load(experiment)?;
    let journal = journal::begin(record, observer);
    let mut session = Session { experiment, cells, rig, load, journal, stop, started: Instant::now() };
    let outcome = session.measure(seed, observer);
    let Session { journal, rig, load, .. } = session;
    observer.finished();
    drop((load, rig));
    Ok(journal::end(journal, outcome))
}

/// The measuring itself.
struct Session<'a> {
    experiment: &'a ClusterExperiment,
    cells: Vec<Cell>,
    rig: ClusterRig,
    load: LoadProcess,
    journal: Journal,
    stop: &'a AtomicBool,
    started: Instant,
}

/// What the blocks of a round do.
#[derive(Clone, Debug)]
struct Work {
    /// The users of the closed loops; those that an open loop begins with.
    piece: Piece,
    /// Length of the blocks of open loops.
    open: Duration,
    /// Seed of their arrivals: the same for all blocks of a round.
    seed: u64,
}

impl Session<'_> {
    fn measure(&mut self, seed: u64, observer: &mut dyn Observer) -> Result<()> {
        let budget = Duration::from_secs_f64(self.experiment.measure.time_s);
        observer.step("warming up and calibrating");
        let seconds = self.calibrate(observer, budget)?;
        let left = budget.saturating_sub(self.started.elapsed());
        let (schedule, work) = self.plan(&seconds, left);
        observer.measuring(&schedule, self.cells.len());
        let mut order = SplitMix64::new(seed);
        let all: Vec<usize> = (0..self.cells.len()).collect();
        let mut longest = Duration::ZERO;
        for (round, work) in (0..).zip(work.iter().cycle()) {
            // A round that would not fit is not begun: --time is a bound. One there must be.
            if round > 0 && self.started.elapsed() + longest > budget {
                break;
            }
            let began = Instant::now();
            let work = Work { seed: order.next_u64(), ..work.clone() };
            for (position, index) in order.shuffled(&all).into_iter().enumerate() {
                interrupt::check(self.stop)?;
                let block = interrupt::instead_of_failure(self.stop, self.block(index, &work))?;
                let block = Block { round, position_in_round: position as u32, ..block };
                journal::add(&mut self.journal, block, observer);
                let done = (self.started.elapsed().as_secs_f64() / budget.as_secs_f64()).min(1.0);
                let name = &self.journal.record().configurations[index].name;
                let left = budget.saturating_sub(self.started.elapsed());
                observer.progress(done, left, &format!("round {}: {name}", round + 1));
            }
            longest = longest.max(began.elapsed());
        }
        Ok(())
    }

    /// Runs each cell once for a short time: warm-up, learning and timing. Answers seconds per request, in the order of
    /// the cells.
    fn calibrate(&mut self, observer: &mut dyn Observer, budget: Duration) -> Result<Vec<f64>> {
        let requests_of_users = self.requests_of_users();
        let average = requests_of_users.iter().map(|requests| u64::from(*requests)).sum::<u64>() as f64
            / requests_of_users.len().max(1) as f64;
        let mut seconds = Vec::new();
        for index in 0..self.cells.len() {
            interrupt::check(self.stop)?;
            let wanted =
                f64::from(self.cells[index].clients * CALIBRATION_CONNECTIONS) * self.requests_each() / average;
            let users = (wanted.ceil() as u32).max(self.cells[index].clients);
            let work = Work { piece: typical_users(&requests_of_users, users), open: OPEN_BLOCK_MIN, seed: 0 };
            let block = self.block(index, &work)?;
            if !block.valid {
                let said: Vec<String> = block.warnings.iter().map(Warning::to_string).collect();
                let name = &self.journal.record().configurations[index].name;
                let tail = self.rig.log_tail(index);
                return Err(anyhow!("warm-up of \"{name}\": {}{tail}", said.join(" "))).or_fault(Fault::Server);
            }
            seconds.push(block.elapsed_ns as f64 / 1e9 / block.hits.max(1) as f64);
            let left = budget.saturating_sub(self.started.elapsed());
            observer.progress(0.0, left, &format!("warm-up {} of {}", index + 1, self.cells.len()));
        }
        Ok(seconds)
    }

    fn requests_each(&self) -> f64 {
        f64::from(self.experiment.traffic.requests_per_connection)
    }

    fn requests_of_users(&self) -> Vec<u32> {
        self.rig.site.workload.users.iter().map(|user| user.requests.end - user.requests.start).collect()
    }

    /// Block sizes for the time that is left.
    fn plan(&self, seconds: &[f64], left: Duration) -> (Schedule, Vec<Work>) {
        let requests = self.requests_of_users();
        let total: u64 = requests.iter().map(|requests| u64::from(*requests)).sum();
        let clients = self.cells.iter().map(|cell| cell.clients).max().unwrap_or(1);
        if self.cells.iter().any(|cell| cell.rate_per_s.is_some()) {
            let blocks = self.cells.len() as u32;
            let fits = left / (OPEN_ROUNDS * blocks).max(1);
            let open = fits.saturating_sub(BLOCK_OVERHEAD).clamp(OPEN_BLOCK_MIN, OPEN_BLOCK);
            let round = (open + BLOCK_OVERHEAD) * blocks;
            let per_block =
                open.as_secs_f64() * self.cells.iter().filter_map(|cell| cell.rate_per_s).fold(0.0, f64::max);
            let schedule = Schedule {
                requests_per_block: per_block as u64,
                rounds_expected: (left.as_secs_f64() / round.as_secs_f64()).floor().max(1.0) as u32,
                round,
                overhead: round,
                seconds_per_request: 0.0,
            };
            let all = Piece { users: 0..requests.len() as u32, requests: total };
            return (schedule, vec![Work { piece: all, open, seed: 0 }]);
        }
        let mut schedule = schedule_rounds(self.experiment.measure.rounds, left, seconds, BLOCK_OVERHEAD, total);
        let least = CONNECTIONS_OF_CLIENT_MIN * u64::from(clients) * self.requests_each() as u64;
        schedule.requests_per_block = schedule.requests_per_block.max(least).min(total);
        schedule.round = schedule.predicted(schedule.requests_per_block, schedule.seconds_per_request);
        schedule.rounds_expected = (left.as_secs_f64() / schedule.round.as_secs_f64()).floor().max(1.0) as u32;
        let pieces = pieces(&requests, schedule.requests_per_block, clients);
        (schedule, pieces.into_iter().map(|piece| Work { piece, open: OPEN_BLOCK, seed: 0 }).collect())
    }

    /// One block of one cell.
    fn block(&mut self, index: usize, work: &Work) -> Result<Block> {
        let cell = self.cells[index].clone();
        let address = self.rig.stands[index].dispatcher.instance.address();
        let timed = cell.rate_per_s.map(|_| Timed { for_ns: work.open.as_nanos() as u64, seed: work.seed });
        let steal_before = manifest::steal_ns();
        let started_ns = self.started.elapsed().as_nanos() as u64;
        let before = self.rig.usage(index, None)?;
        self.rig.skip_logs(index)?;
        let outcome = self.load.run_timed(index, address, work.piece.users.clone(), timed);
        let connections = outcome.as_ref().map_or(0, |outcome| outcome.connections);
        let passed_before: u64 = before.connections.iter().sum();
        // A server that has died is the news, not what the load makes of it.
        let after = self.rig.usage(index, Some(passed_before + connections))?;
        let outcome = outcome?;
        if verify::is_dead(&outcome) {
            let name = &self.journal.record().configurations[index].name;
            let kinds: Vec<String> =
                outcome.errors.iter().map(|(kind, count)| format!("{kind} {count} times")).collect();
            let why = if kinds.is_empty() { "no request was answered".to_owned() } else { kinds.join(", ") };
            let tail = self.rig.log_tail(index);
            return Err(anyhow!("\"{name}\" answers no more ({why}){tail}")).or_fault(Fault::Server);
        }
        let used = difference(&before, &after);
        let requests = timed.is_none().then_some(work.piece.requests);
        let shares = self.rig.placement.dispatcher_shares_load();
        let verdict = verify::verify(&cell, &outcome, &used, requests, shares);
        if self.journal.record().manifest.negotiated.is_empty() {
            let negotiated = manifest::negotiated_text(&outcome.negotiated);
            self.journal.change(|record| record.manifest.negotiated = negotiated);
        }
        let asked = self.rig.locality(index, outcome.hits)?;
        let locality = |backend: usize| asked.as_ref().and_then(|asked| asked.get(backend).copied());
        let backends = used.backends_ns.iter().zip(&used.connections).enumerate();
        let backends = backends.map(|(number, (&cpu_ns, &connections))| {
            let locality = locality(number);
            BackendUse { cpu_ns, connections, locality }
        });
        Ok(Block {
            configuration: index,
            started_ns,
            // The silence before the first and after the last arrival is part of the load.
            elapsed_ns: timed.map_or(0, |timed| timed.for_ns).max(outcome.elapsed_ns),
            server_cpu_ns: used.backends_ns.iter().sum(),
            companion_cpu_ns: used.companions_ns,
            steal_ns: manifest::steal_ns().saturating_sub(steal_before),
            client_bound: verdict.load_bound,
            valid: verdict.valid,
            warnings: verdict.warnings,
            cluster: Some(ClusterBlock {
                dispatcher_cpu_ns: used.dispatcher_ns,
                backends: backends.collect(),
                unserved: outcome.unserved,
            }),
            ..Block::from(outcome)
        })
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
