//! Some sweeps in a row, of the same servers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use tlsdyno_base::interrupt;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::load::Outcome;
use tlsdyno_record::store::{Block, Slice, Warning};
use tlsdyno_tls::Stage;

use super::accounts::Running;
use super::{Failed, LoadProcess, Sweeps, Testbed, TimeOfSlices, Watch, Work};
use crate::run::load_process::Sessions;
use crate::run::sweep::{Position, Stop, order};
use crate::run::testbed::log_tail;
use crate::run::verify::{death, is_dead, verify_requests};

/// Minimum number of counted sweeps for each row, within the bound of measuring.
const SWEEPS_LEAST: u32 = 1;
/// Length of a slice that makes up for a cold start: the excess of the first 15 ms is then a fiftieth of it.
const LONG_SLICE: Duration = Duration::from_millis(150);
/// Time for which a server's hits cost more after another server had the CPU (docs/METHODOLOGY.md, "Slices").
const COLD: Duration = Duration::from_millis(15);
const LEAD_IN_MAX: usize = 8;
/// Remedy text for slices that are not counted.
const LEFT_OUT_SLICES: &str = "These slices are left out";

/// Everything that slices need.
pub struct Bench<'a, W> {
    pub testbed: &'a mut Testbed,
    pub load: &'a mut LoadProcess,
    /// State over all rows of slices.
    pub sweeps: &'a mut Sweeps,
    /// Reads more than CPU time.
    pub watch: &'a mut W,
    /// Untimed work of a server with so many workers that was just started.
    pub warm_up: &'a dyn Fn(u32) -> Work,
}

struct Row<'a, W> {
    bench: Bench<'a, W>,
    time: TimeOfSlices,
    blocks: BTreeMap<usize, Block>,
}

enum End {
    Complete,
    Interrupted,
    OutOfTime,
}

impl<W: Watch> Bench<'_, W> {
    /// Measures whole sweeps of these configurations, after the warm-up of servers that were just started. Returns a
    /// block for each configuration with results: its slices and their sums.
    pub fn measure(
        self,
        configurations: &[usize],
        time: TimeOfSlices,
        random: &mut SplitMix64,
    ) -> Result<Vec<Block>, Failed> {
        let new = |&configuration: &usize| (configuration, Block { configuration, ..Block::default() });
        let stops = self.sweeps.stops(self.testbed, configurations);
        let mut row = Row { bench: self, time, blocks: configurations.iter().map(new).collect() };
        for stop in &stops {
            if row.is_over() {
                return Ok(Vec::new());
            }
            row.begin(stop.host).map_err(|error| (stop.host, error))?;
        }
        row.bench.sweeps.expect(row.bench.testbed, configurations);
        row.sweeps(&stops, configurations, random)?;
        row.drop_if_workers_changed()?;
        let says_something =
            |block: &Block| !(block.slices.is_empty() && block.errors.is_empty() && block.warnings.is_empty());
        Ok(row.blocks.into_values().filter(says_something).collect())
    }
}

impl<W: Watch> Row<'_, W> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.time.end
    }

    /// Warms up a server that was just started, and waits until it rests.
    fn begin(&mut self, host: usize) -> Result<()> {
        let server = self.bench.sweeps.parts[host].server;
        if self.bench.sweeps.was_cold(self.bench.testbed.host(server)) {
            self.bench.testbed.enter_mode(server)?;
            let workers = self.bench.testbed.require_libraries(server)?;
            let work = (self.bench.warm_up)(workers.len() as u32);
            self.bench.testbed.carry_out(self.bench.load, (host, server), &work, Sessions::New)?;
        }
        let running = &mut Running::of(self.bench.testbed, &self.bench.sweeps.parts[host])?;
        self.bench.sweeps.accounts.rest_anew(running)?;
        self.bench.watch.begin_row(self.bench.testbed, host)
    }

    /// As many whole sweeps as fit into the time.
    fn sweeps(&mut self, stops: &[Stop], configurations: &[usize], random: &mut SplitMix64) -> Result<(), Failed> {
        let began = Instant::now();
        let (mut counted, mut last) = (0, Duration::ZERO);
        // A sweep of which less than half would fit is not begun.
        while (counted < SWEEPS_LEAST || began.elapsed() + last / 2 < self.time.length) && !self.is_over() {
            let sweep_began = Instant::now();
            // Sessions that one sweep leaves to the next are those of a running count; users bring none.
            let filled = std::mem::replace(&mut self.bench.sweeps.stores_are_filled, true);
            let fills = !filled && self.bench.sweeps.keeps_sessions;
            let before = self.blocks.clone();
            match self.sweep(order(stops, random), fills)? {
                End::Complete => {}
                End::Interrupted => break,
                // Half a sweep compares nothing, unless it is all there is and has all configurations.
                End::OutOfTime => {
                    let is_all_there_is = self.bench.sweeps.complete == 0 && self.has_all(configurations);
                    if !is_all_there_is {
                        self.blocks = before;
                    }
                    break;
                }
            }
            last = sweep_began.elapsed();
            if !fills {
                counted += 1;
                self.bench.sweeps.took(last);
            }
        }
        Ok(())
    }

    /// Each configuration has a slice.
    fn has_all(&self, configurations: &[usize]) -> bool {
        configurations.iter().all(|index| self.blocks.get(index).is_some_and(|block| !block.slices.is_empty()))
    }

    /// Ctrl-C and the bound of measuring end it between two slices.
    fn sweep(&mut self, stops: Vec<Stop>, fills: bool) -> Result<End, Failed> {
        let Sweeps { next: number, works, alternates, is_short, .. } = &*self.bench.sweeps;
        let work = works[*number as usize % works.len()].clone();
        let (number, alternates, is_short) = (*number, *alternates, *is_short);
        let mut stores = BTreeMap::new();
        for stop in stops {
            let is_long = self.bench.sweeps.length_of_slice(stop.host, &work) >= LONG_SLICE;
            let lead_in = if is_long || alternates && stop.modes.is_empty() { 0 } else { LEAD_IN_MAX };
            let turns = if alternates && stop.modes.is_empty() { 1 } else { usize::MAX };
            let arrived = Instant::now();
            let warm = |position: &Position| position.counts || arrived.elapsed() < COLD;
            for position in stop.positions(lead_in, is_short, &mut stores).into_iter().filter(warm).take(turns) {
                let length = self.bench.sweeps.length_of_slice(position.configuration, &work);
                if Instant::now() + length / 2 >= self.time.end {
                    return Ok(End::OutOfTime);
                }
                let counts = position.counts && !fills;
                self.slice(&position, counts, &work, number).map_err(|error| (position.configuration, error))?;
                if interrupt::check_this_process().is_err() {
                    return Ok(End::Interrupted);
                }
            }
        }
        self.bench.sweeps.next += 1;
        Ok(End::Complete)
    }

    /// One slice, from rest to rest. A slice that Ctrl-C cut does not count, as the load process gets the signal too.
    fn slice(&mut self, position: &Position, counts: bool, work: &Work, sweep_number: u32) -> Result<()> {
        let index = position.configuration;
        let Bench { testbed, load, sweeps, watch, .. } = &mut self.bench;
        let server = sweeps.parts[index].server;
        testbed.enter_mode(server)?;
        let work = Work { laps: laps(testbed, sweeps, index, work), ..work.clone() };
        let requests = work.laps * work.piece.requests;
        let cpu_before = sweeps.accounts.before_slice(&mut Running::of(testbed, &sweeps.parts[index])?)?;
        watch.begin_slice(testbed, index)?;
        let began = self.time.since.elapsed();
        let outcome = testbed.carry_out(load, (index, server), &work, Sessions::OfSlices(position.store));
        let elapsed = self.time.since.elapsed() - began;
        if interrupt::check_this_process().is_err() {
            return Ok(());
        }
        let outcome = outcome?;
        sweeps.us_per_request.insert(index, elapsed.as_secs_f64() * 1e6 / requests.max(1) as f64);
        let running = &mut Running::of(testbed, &sweeps.parts[index])?;
        if is_dead(&outcome) {
            running.account_ns()?;
            return Err(death(running.name, &outcome, &log_tail(running.instance)));
        }
        let (cpu_ns, not_seen) = sweeps.accounts.after_slice(running)?;
        let server_cpu_ns = cpu_ns.saturating_sub(cpu_before);
        sweeps.within_ns += server_cpu_ns;
        let (fault, seen) = watch.end_slice(testbed, index, &outcome, server_cpu_ns)?;
        let asked = verify_requests(&outcome, requests);
        let fault = not_seen.or(fault).or_else(|| asked.warnings.first().map(Warning::to_string));
        let slice = Slice {
            sweep_number,
            started_us: began.as_micros() as u64,
            elapsed_us: elapsed.as_micros() as u32,
            server_cpu_ns,
            hits: outcome.hits as u32,
            handshakes_full: outcome.handshakes.full as u32,
        };
        self.add(index, slice, outcome, fault.filter(|_| counts), counts.then_some(seen));
        Ok(())
    }

    /// Adds a slice to the block of its configuration. With `seen` it counts, unless it has a fault.
    fn add(&mut self, index: usize, slice: Slice, outcome: Outcome, fault: Option<String>, seen: Option<W::Seen>) {
        let block = self.blocks.entry(index).or_default();
        for (kind, count) in &outcome.errors {
            *block.errors.entry(kind.name().to_owned()).or_default() += count;
        }
        let Some(seen) = seen else { return };
        let sweeps = &mut self.bench.sweeps;
        sweeps.measured += 1;
        if let Some(what) = fault {
            sweeps.left_out += 1;
            sweeps.fault.clone_from(&what);
            block.warnings.push(Warning::new("slice_left_out", what).with_remedy(LEFT_OUT_SLICES));
            return;
        }
        block.add_slice(slice, &outcome);
        self.bench.watch.keep(block, seen);
    }

    /// Drops slices of a server whose processes came or went. Fails where they keep doing so, and nothing tells their
    /// CPU time.
    fn drop_if_workers_changed(&mut self) -> Result<(), Failed> {
        let Bench { testbed, sweeps, .. } = &mut self.bench;
        let mut changed: BTreeMap<usize, bool> = BTreeMap::new();
        for (&index, block) in &mut self.blocks {
            let part = &sweeps.parts[index];
            let host = testbed.host(part.server);
            if let std::collections::btree_map::Entry::Vacant(place) = changed.entry(host) {
                let has_changed = Running::of(testbed, part).and_then(|mut of| sweeps.accounts.has_changed(&mut of));
                place.insert(has_changed.map_err(|error| (index, error))?);
            }
            if changed[&host] {
                block.valid = false;
                let what = "processes of the server began or ended within a row of slices";
                block.warnings.push(Warning::new("processes_changed", what).with_remedy(LEFT_OUT_SLICES));
            }
        }
        Ok(())
    }
}

/// Repetitions of the users of a slice. Without handshakes the same requests take a tenth of the time, mostly for
/// waking up and reading first events, so they are repeated up to the length of a slice. With handshakes a repetition
/// would find the sessions of the first.
fn laps(testbed: &Testbed, sweeps: &Sweeps, index: usize, work: &Work) -> u64 {
    let model = &testbed.servers[sweeps.parts[index].server].model;
    if !model.plain_http && !model.noop.contains(Stage::Setup) {
        return 1;
    }
    let Some(us_per_request) = sweeps.us_per_request.get(&index) else { return 1 };
    (sweeps.slice_us as f64 / (us_per_request * work.piece.requests.max(1) as f64)).round().max(1.0) as u64
}
