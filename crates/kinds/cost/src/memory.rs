//! What a connection takes of a server's memory: more and more connections are opened and held, and what the server's
//! processes hold is read at each number.

pub(crate) mod page;
pub(crate) mod summary;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, ensure};
use tlsdyno_base::exchange::{Held, Reach};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::until::until;
use tlsdyno_base::{interrupt, open_files};
use tlsdyno_record::model;
use tlsdyno_record::store::{Block, Journal, MemoryPoint, Record, Warning};
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::runner::{self, Finished, Plan, Subject};
use tlsdyno_runner::run::schedule::{Piece, Schedule, Work};

use crate::file::{CONNECTIONS_LEAST, CostExperiment};
use crate::subject::Outside;

/// Most connections of a series, unless the experiment says otherwise.
const CONNECTIONS: u32 = 8_000;
/// Number of series of each state, unless the experiment says otherwise.
const SERIES: u32 = 3;
/// Where memory is read, in parts of the most connections: finely below, for servers that take few, then evenly.
const LEVELS: [u32; 11] = [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64];
/// A slope is of points from this part of the last one on, where a server's first connections no longer count much.
const FIRST_PART: u32 = 8;
/// Minimum number of points for a slope with an interval.
const POINTS_LEAST: usize = 3;
/// Connections before a series, one after the other: what a server makes once is there before it.
const WARM_UP: u32 = 20;
/// Open files of ours that are no connections.
const OTHER_FILES: u64 = 64;
/// Maximum time for a server to accept what has connected.
const ACCEPTING: Duration = Duration::from_secs(10);
/// Part of the connections that may be missing among the server's descriptors, which has closed files meanwhile.
const MISSING_PART: u64 = 50;
/// Of starting a server, and of a connection: a first guess.
const EXPECTED: [Duration; 2] = [Duration::from_secs(2), Duration::from_millis(1)];

pub(crate) fn run(experiment: &CostExperiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    let rounds = Some(experiment.measure.rounds.unwrap_or(SERIES));
    let measure = model::Measure { rounds, ..experiment.measure.clone() };
    runner::run(&experiment.question, &measure, stop, observer, |record, observer| {
        Rising::start(experiment, record, stop, observer)
    })
}

/// Points of a series whose slope counts.
fn counting(points: &[MemoryPoint]) -> impl Iterator<Item = &MemoryPoint> {
    let last = points.last().map_or(0, |point| point.connections);
    points.iter().filter(move |point| point.connections > 0 && point.connections >= last / FIRST_PART)
}

/// Where connections stayed, for people.
fn words(state: Reach) -> &'static str {
    match state {
        Reach::Tcp => "TCP accepted, nothing sent",
        Reach::Flight => "half open (the server's flight was sent, the client is silent)",
        Reach::Finished => "idle after the handshake",
        Reach::Answered => "idle after one request",
        Reach::Opened => "opened for TLS, no hello sent",
        Reach::Refused => "refused",
    }
}

/// A block is one series: of connections that stay where the step ends.
struct Rising<'a> {
    outside: Outside<'a>,
    /// Connections of a series.
    most: u32,
    series: u32,
    /// Connections so far.
    made: u64,
    /// No series yet: the server was found out already.
    is_warming_up: bool,
    /// Configurations of servers that run and keep what they took, so that a second series would not rise.
    grown: BTreeSet<usize>,
    /// Configurations that can be measured.
    left: usize,
}

/// How a series went.
struct Series {
    points: Vec<MemoryPoint>,
    /// Why it ended before the most connections.
    ended: Option<Error>,
}

impl<'a> Rising<'a> {
    fn start(
        experiment: &'a CostExperiment,
        record: &mut Record,
        stop: &'a AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Rising<'a>> {
        let cost = &experiment.cost;
        let most = room_for(cost.connections.unwrap_or(CONNECTIONS), record).or_fault(Fault::Environment)?;
        let outside = Outside::start(experiment, record, stop, observer)?;
        if outside.targets.iter().any(|target| !target.measured.is_seen()) {
            return Err(
                Fault::Usage.wrap(anyhow!("the memory of servers on other machines is not read; run tlsdyno there"))
            );
        }
        let is_started = outside.targets.iter().any(|target| target.server.is_started());
        let series = if is_started { experiment.measure.rounds.unwrap_or(SERIES) } else { 1 };
        let left = outside.steps.len();
        Ok(Rising { outside, most, series, made: 0, is_warming_up: true, grown: BTreeSet::new(), left })
    }

    /// Opens more and more connections of a configuration, and reads what the server holds.
    fn series(&mut self, index: usize) -> Result<Series> {
        let [target, number] = self.outside.steps[index];
        let target = &mut self.outside.targets[target];
        target.server.start_anew()?;
        target.maker.address = target.server.address;
        let step = target.measured.steps[number].id.clone();
        for _ in 0..WARM_UP {
            target.maker.make(number, &step).or_fault(Fault::Server)?;
        }
        let mut series = Series { points: vec![target.server.memory()?], ended: None };
        let mut held = Vec::new();
        for level in LEVELS.map(|part| self.most * part / 64) {
            match self.rise(index, &mut held, level, series.points[0]) {
                Ok(point) => series.points.push(point),
                Err(error) => {
                    interrupt::check(self.outside.stop)?;
                    series.ended = Some(error);
                    break;
                }
            }
        }
        Ok(series)
    }

    /// Opens connections up to this number. Fails if the server does not hold all of them.
    fn rise(&mut self, index: usize, held: &mut Vec<Held>, level: u32, before: MemoryPoint) -> Result<MemoryPoint> {
        let [target, number] = self.outside.steps[index];
        let target = &mut self.outside.targets[target];
        let step = &target.measured.steps[number].id;
        for next in held.len() as u32 + 1..=level {
            interrupt::check(self.outside.stop)?;
            let connection = target.maker.hold(number, step, self.made);
            held.push(connection.with_context(|| format!("connection {next} of {level}"))?);
            self.made += 1;
        }
        let wanted = u64::from(level) - u64::from(level) / MISSING_PART;
        let accepted = |point: &MemoryPoint| point.descriptors.saturating_sub(before.descriptors);
        let is_held = |point: &MemoryPoint| accepted(point) >= wanted;
        let point = until(ACCEPTING, Duration::ZERO, || target.server.memory(), is_held)?;
        let closed = held.iter().filter(|connection| !connection.is_open()).count();
        ensure!(closed == 0, "the server has closed {closed} of {level} connections");
        let has = accepted(&point);
        ensure!(is_held(&point), "the server has accepted {has} of {level} connections, and lets the others wait");
        Ok(MemoryPoint { connections: level, ..point })
    }
}

/// Lets this process, and servers that it starts, have so many connections, or as many as the system lets them.
fn room_for(wanted: u32, record: &mut Record) -> Result<u32> {
    let room = open_files::most().saturating_sub(OTHER_FILES);
    let most = u64::from(wanted).min(room) as u32;
    ensure!(
        most >= CONNECTIONS_LEAST,
        "this process may open {room} connections, and a slope needs {CONNECTIONS_LEAST}; raise the limit with {}",
        open_files::raising_to(u64::from(wanted) + OTHER_FILES)
    );
    if most < wanted {
        let what = format!("{most} connections instead of {wanted}, as this process may open no more files");
        let remedy = format!("Raise the limit with {}", open_files::raising_to(u64::from(wanted) + OTHER_FILES));
        record.warnings.push(Warning::new("connections_limited", what).with_remedy(remedy));
    }
    // A proxy needs two for each connection.
    open_files::raise_to((2 * u64::from(most) + OTHER_FILES).min(open_files::most()))?;
    Ok(most)
}

/// What to look at where a server does not take all connections.
const REMEDY: &str = "Raise what limits the server: its time-outs for idle connections and handshakes; \
                      worker_connections and worker_rlimit_nofile of nginx, maxconn of HAProxy, server.max-connections \
                      and server.max-fds of lighttpd, MaxRequestWorkers of Apache; or give fewer --connections";

impl Subject for Rising<'_> {
    fn warm_up(&self, _index: usize, _factor: u32) -> Work {
        Piece { users: 0..0, requests: 1 }.into()
    }

    fn plan(&mut self, _seconds_per_request: &[f64], _left: Duration) -> Plan {
        let [starting, connecting] = EXPECTED;
        let round = (starting + connecting * self.most) * self.outside.steps.len() as u32;
        let piece = Piece { users: 0..0, requests: 1 };
        let plan = Plan::of(Schedule::of_rounds(round, round * self.series), vec![piece.into()]);
        Plan { rounds_most: Some(self.series), ..plan }
    }

    fn ready(&mut self, _index: usize, turn: Option<u32>) -> Result<()> {
        self.is_warming_up = turn.is_none();
        Ok(())
    }

    fn block(&mut self, index: usize, _work: &Work, _journal: &mut Journal) -> Result<Block> {
        let target = self.outside.steps[index][0];
        let is_started = self.outside.targets[target].server.is_started();
        if self.is_warming_up || !is_started && !self.grown.insert(index) {
            return Ok(Block { hits: 1, valid: true, ..Block::default() });
        }
        let began = Instant::now();
        let Series { points, ended } = self.series(index)?;
        let reached = points.last().map_or(0, |point| point.connections);
        let ended = ended.map(|why| format!("a series ended at {reached} of {} connections: {why:#}", self.most));
        if let Some(what) = ended.as_ref().filter(|_| counting(&points).count() < POINTS_LEAST) {
            return Err(Fault::Server.wrap(anyhow!("{what}, too few for a slope. {REMEDY}")));
        }
        let warning = |what| Warning::new("series_ended", what).with_remedy(REMEDY);
        Ok(Block {
            elapsed_ns: began.elapsed().as_nanos() as u64,
            hits: u64::from(reached),
            connections: u64::from(reached),
            valid: true,
            warnings: ended.map(warning).into_iter().collect(),
            memory: points,
            ..Block::default()
        })
    }

    fn leave_out(&mut self, _index: usize) -> bool {
        self.left -= 1;
        self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_connections_of_a_server_do_not_count() {
        let points = |levels: &[u32]| -> Vec<MemoryPoint> {
            let point = |connections: &u32| MemoryPoint { connections: *connections, ..MemoryPoint::default() };
            levels.iter().map(point).collect()
        };
        let counted =
            |levels: &[u32]| -> Vec<u32> { counting(&points(levels)).map(|point| point.connections).collect() };
        let all = LEVELS.map(|part| 8_000 * part / 64);
        assert_eq!(counted(&all), [1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000]);
        // nginx in Debian has 768 worker_connections.
        assert_eq!(counted(&[0, 125, 250, 500]), [125, 250, 500]);
        assert_eq!((counted(&[0]).len(), counted(&[]).len()), (0, 0));
    }
}
