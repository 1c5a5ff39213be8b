//! Rows of sweeps of slices: how the CPU time of a hit is compared. In a sweep every configuration has slices of the
//! same users, so short that the machine has not changed from one to the next, each from rest to rest of its server
//! (docs/METHODOLOGY.md, "Slices").

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tlsdyno_base::fault::Fault;
use tlsdyno_base::interrupt;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::load::Outcome;
use tlsdyno_record::model::Measure;
use tlsdyno_record::store::{Block, Slice, Warning};
use tlsdyno_servers::cpu::{Clocks, ProcessClocks};
use tlsdyno_servers::{Instance, Vigil};
use tlsdyno_stats::statement::FEW_ROUNDS;
use tlsdyno_tls::Stage;

use super::load_process::{LoadProcess, Sessions};
use super::runner::Subject;
use super::schedule::{Work, varied_pieces};
use super::sweep::{Position, Stop, order};
use super::testbed::Testbed;
use super::verify::{death, is_dead, verify_requests};

/// So many sweeps that count are made for each row whatever time they take, within the bound of measuring.
const SWEEPS_LEAST: u32 = 1;
/// So long a slice makes up for a cold start: what the first 15 ms cost more is a fiftieth of it then.
const LONG_SLICE: Duration = Duration::from_millis(150);
/// So long a server's hits are dearer after another server had the CPU (docs/METHODOLOGY.md, "Slices").
const COLD: Duration = Duration::from_millis(15);
/// Most slices that do not count for that.
const LEAD_IN_MAX: usize = 8;
/// Fewest requests of a slice.
const SLICE_REQUESTS_MIN: u64 = 5;
/// Wanted length of a round with slices: each has servers of its own, and after each it is looked whether intervals
/// are narrow enough.
const SLICED_ROUND: Duration = Duration::from_secs(5);
/// Rounds with slices that are planned at least.
pub const SLICED_ROUNDS_MIN: u32 = 8;
/// Late work of more than this part of what was measured is told.
const LATE_TOLD: f64 = 0.01;
/// So often processes may end while a server is looked at.
const ENDINGS_MAX: u32 = 20;
/// By so much the account of a server may be ahead of its clocks, nanoseconds: where it is exact, and where it counts
/// what has ended in ticks.
const SLACK_NS: u64 = 500_000;
const SLACK_OF_TICKS_NS: u64 = 50_000_000;
const COME_AND_GO: &str = "it has processes that come and go, as one for each connection";
const WITHOUT_GROUP: &str = "only a control group tells what those use within milliseconds, and none can be made \
                             here: run tlsdyno as root, or compare in blocks (--slice 0)";
/// What to do about slices that are not counted.
const LEFT_OUT_SLICES: &str = "These slices are left out";

/// A failure, and of which configuration.
pub type Failed = (usize, anyhow::Error);

/// Rounds with slices in so much time. Some may be cut for a sweep that takes long.
pub fn sliced_rounds(time: Duration) -> u32 {
    ((time.as_secs_f64() / SLICED_ROUND.as_secs_f64()).round() as u32).max(SLICED_ROUNDS_MIN)
}

/// What goes on over all rows.
#[derive(Debug, Default)]
pub struct Sweeps {
    /// The works that sweeps walk through, over and over.
    works: Vec<Work>,
    /// Wanted length of a slice, microseconds.
    slice_us: u64,
    /// Every visit to a server without modes is one slice, which counts: two builds are met cold alike, and the less
    /// time passes between them, the less of what the machine does meanwhile is between them.
    pub alternates: bool,
    /// How long a request of a configuration took in its last slice, microseconds.
    us_per_request: BTreeMap<usize, f64>,
    /// Number of the next sweep.
    next: u32,
    /// Measuring ends then, within a sweep too.
    pub end: Option<Instant>,
    /// Seconds that a request of the slowest configuration took before there were slices.
    slowest: f64,
    /// The time for all sweeps. Where less than [`FEW_ROUNDS`] whole ones fit into it they are short.
    time: Duration,
    /// Every configuration has as few slices in a sweep as can be.
    is_short: bool,
    /// Sweeps that came to their end.
    complete: u32,
    /// The stores of sessions have those of the servers that run; the next sweep fills them where they are new.
    stores_are_filled: bool,
    /// Servers whose processes come and go: their control groups' accounts tell what they use.
    by_group: BTreeSet<usize>,
    /// Servers that came into the place of others for this round, and have done nothing yet.
    pub cold: BTreeSet<usize>,
    /// Slices that were to count.
    pub measured: u64,
    /// Those that do not.
    pub left_out: u64,
    /// Why the last one does not.
    pub fault: String,
    /// CPU time within slices, and of the same servers between them, nanoseconds.
    within_ns: u64,
    late_ns: u64,
}

impl Sweeps {
    /// Chooses the work of slices, about so long, of a workload whose users have so many requests each.
    /// `least_us`: no shorter than that; `users_min`: no fewer in a slice.
    pub fn plan(
        &mut self,
        time: Duration,
        slice_us: Option<u64>,
        least_us: u64,
        (requests_of_users, users_min): (&[u32], u32),
        seconds_per_request: &[f64],
    ) {
        self.slice_us = slice_us.filter(|us| *us > 0).unwrap_or(Measure::SLICE_US).max(least_us);
        let slowest = seconds_per_request.iter().copied().fold(1e-9, f64::max);
        (self.time, self.slowest) = (time, slowest);
        let requests = ((self.slice_us as f64 / 1e6 / slowest) as u64).max(SLICE_REQUESTS_MIN);
        let pieces = varied_pieces(requests_of_users, requests, users_min, &mut SplitMix64::new(1));
        self.works = pieces.into_iter().map(Work::from).collect();
    }

    /// Whether measuring is over.
    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// What is known once a sweep has taken so long.
    fn took(&mut self, length: Duration) {
        self.complete += 1;
        // One that was short says nothing of whole ones.
        self.is_short |= length * FEW_ROUNDS > self.time;
    }

    /// Whether measuring is over before half of this slice has passed.
    fn is_too_late(&self, index: usize, work: &Work) -> bool {
        self.end.is_some_and(|end| Instant::now() + self.length_of_slice(index, work) / 2 >= end)
    }

    /// How long a short sweep with these stops takes, as far as is known before the first. Where whole ones would take
    /// too long, all are short.
    pub fn expect(&mut self, stops: &[Stop]) -> Duration {
        let requests: u64 = self.works.iter().map(|work| work.piece.requests).sum();
        let each = self.slowest * requests as f64 / self.works.len().max(1) as f64;
        let takes = |is_short| {
            let slices = |stop: &Stop| stop.positions(0, is_short, &mut BTreeMap::new()).len();
            Duration::from_secs_f64(each * stops.iter().map(slices).sum::<usize>() as f64)
        };
        if self.complete == 0 {
            self.is_short = takes(false) * FEW_ROUNDS > self.time;
        }
        takes(true)
    }

    /// About how long a slice of this work lasts.
    fn length_of_slice(&self, index: usize, work: &Work) -> Duration {
        let us_per_request = self.us_per_request.get(&index).copied().unwrap_or(self.slowest * 1e6);
        Duration::from_secs_f64(us_per_request * work.piece.requests as f64 / 1e6)
    }

    /// Puts the next servers of these configurations' pools into the place of those of the round before.
    pub fn swap_servers(&mut self, testbed: &mut Testbed, indices: &BTreeSet<usize>) {
        self.stores_are_filled = false;
        for &index in indices {
            testbed.swap_in(index);
            testbed.is_measured(index);
            self.cold.insert(index);
        }
    }

    /// What the reader must know of slices after the last one.
    pub fn late_work(&self) -> Option<Warning> {
        let part = self.late_ns as f64 / self.within_ns.max(1) as f64;
        let what = format!("{:.1} % of the servers' CPU time fell between slices", part * 100.0);
        let remedy = "It is in no configuration's cost; longer slices have less of it (--slice 50ms)";
        (part > LATE_TOLD).then(|| Warning::new("late_work", what).with_remedy(remedy))
    }
}

/// A subject whose configurations are measured in slices.
pub trait Sliced: Subject {
    /// What was seen of a slice besides.
    type Seen;

    /// What goes on over all rows.
    fn state(&mut self) -> &mut Sweeps;
    /// The servers.
    fn testbed(&mut self) -> &mut Testbed;
    /// The load on them.
    fn load(&mut self) -> &mut LoadProcess;
    /// The configuration of the testbed that serves this one.
    fn server(&self, index: usize) -> usize;
    /// The configuration with the same server that all others of it are compared with.
    fn host(&self, index: usize) -> usize;
    /// Its name in messages.
    fn name(&self, index: usize) -> String;
    /// Whether a sweep resumes sessions of the one before.
    fn keeps_sessions(&self) -> bool;
    /// A server that was just started, that of this configuration, does a piece of work untimed.
    fn warm(&mut self, index: usize) -> Result<()>;
    /// Gets ready for a row; the server of this configuration rests.
    fn begin_row(&mut self, index: usize) -> Result<()>;
    /// Gets ready for one slice.
    fn begin_slice(&mut self, _index: usize) -> Result<()> {
        Ok(())
    }
    /// Looks at a slice that has ended, of so much CPU time: why it does not count, and what was seen of it.
    fn end_slice(
        &mut self,
        index: usize,
        outcome: &Outcome,
        server_cpu_ns: u64,
    ) -> Result<(Option<String>, Self::Seen)>;
    /// Adds what was seen of a slice that counts to its block.
    fn keep(&self, _block: &mut Block, _seen: Self::Seen) {}
}

/// A server at the moment when it last rested.
struct Resting {
    clocks: Rc<Clocks>,
    cpu_ns: u64,
    /// When these clocks were first read: what they said, and the account of the whole server, which also has what
    /// ended.
    begun_ns: [u64; 2],
    /// No slice was measured by these clocks yet.
    is_new: bool,
    /// Which of its processes a signal ends.
    vigil: Vigil,
}

/// How a sweep ended.
enum End {
    Complete,
    /// Ctrl-C.
    Interrupted,
    /// The time of measuring was up.
    OutOfTime,
}

/// Some sweeps in a row, of the same servers.
struct Row<'a, S> {
    subject: &'a mut S,
    since: Instant,
    servers: BTreeMap<usize, Resting>,
    blocks: BTreeMap<usize, Block>,
}

/// Measures whole sweeps of these configurations for about so long, after what servers that were just started need to
/// get warm. A block for each that has anything to say: its slices and their sums.
pub fn sweeps<S: Sliced>(
    subject: &mut S,
    configurations: &[usize],
    length: Duration,
    since: Instant,
    random: &mut SplitMix64,
) -> Result<Vec<Block>, Failed> {
    let new = |&configuration: &usize| (configuration, Block { configuration, ..Block::default() });
    let blocks = configurations.iter().map(new).collect();
    let stops = stops(subject, configurations);
    let mut row = Row { subject, since, servers: BTreeMap::new(), blocks };
    for stop in &stops {
        if row.subject.state().is_over() {
            return Ok(Vec::new());
        }
        row.begin(stop.host).map_err(|error| (stop.host, error))?;
    }
    row.subject.state().expect(&stops);
    let began = Instant::now();
    let (mut counted, mut last) = (0, Duration::ZERO);
    // A sweep of which less than half would fit is not begun.
    while (counted < SWEEPS_LEAST || began.elapsed() + last / 2 < length) && !row.subject.state().is_over() {
        let sweep_began = Instant::now();
        // Sessions that one sweep leaves to the next are those of a running count; users bring none.
        let filled = std::mem::replace(&mut row.subject.state().stores_are_filled, true);
        let fills = !filled && row.subject.keeps_sessions();
        let before = row.blocks.clone();
        match row.sweep(order(&stops, random), fills)? {
            End::Complete => {}
            End::Interrupted => break,
            // Half a sweep compares nothing, unless it is all there is and has all configurations.
            End::OutOfTime => {
                let is_all_there_is = row.subject.state().complete == 0 && row.has_all(configurations);
                row.blocks = if is_all_there_is { row.blocks } else { before };
                break;
            }
        }
        counted += u32::from(!fills);
        last = sweep_began.elapsed();
        if !fills {
            row.subject.state().took(last);
        }
    }
    row.drop_if_workers_changed()?;
    let says_something =
        |block: &Block| !(block.slices.is_empty() && block.errors.is_empty() && block.warnings.is_empty());
    Ok(row.blocks.into_values().filter(says_something).collect())
}

/// The servers with their configurations.
pub fn stops(subject: &mut impl Sliced, configurations: &[usize]) -> Vec<Stop> {
    let mut by_host: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &index in configurations {
        let modes = by_host.entry(subject.host(index)).or_default();
        modes.extend((subject.host(index) != index).then_some(index));
    }
    let mut is_untouched = |host| {
        let server = subject.server(host);
        subject.testbed().servers[server].model.without_library().is_untouched()
    };
    by_host.into_iter().map(|(host, modes)| Stop { host, modes, is_untouched: is_untouched(host) }).collect()
}

impl<S: Sliced> Row<'_, S> {
    /// The place of a configuration's server in `servers`.
    fn key(&mut self, index: usize) -> usize {
        let server = self.subject.server(index);
        self.subject.testbed().host(server)
    }

    fn begin(&mut self, host: usize) -> Result<()> {
        let (key, server) = (self.key(host), self.subject.server(host));
        if self.subject.state().cold.remove(&key) {
            self.subject.testbed().enter_mode(server)?;
            self.subject.warm(host)?;
        }
        self.rest_anew(host, key)?;
        self.subject.begin_row(host)
    }

    /// Whether each of them has a slice.
    fn has_all(&self, configurations: &[usize]) -> bool {
        configurations.iter().all(|index| self.blocks.get(index).is_some_and(|block| !block.slices.is_empty()))
    }

    /// Ctrl-C and the bound of measuring end it between two slices.
    fn sweep(&mut self, stops: Vec<Stop>, fills: bool) -> Result<End, Failed> {
        let state = self.subject.state();
        let number = state.next;
        let work = state.works[number as usize % state.works.len()].clone();
        let (alternates, is_short) = (state.alternates, state.is_short);
        let mut stores = BTreeMap::new();
        for stop in stops {
            let is_long = self.subject.state().length_of_slice(stop.host, &work) >= LONG_SLICE;
            let lead_in = if is_long || alternates && stop.modes.is_empty() { 0 } else { LEAD_IN_MAX };
            let turns = if alternates && stop.modes.is_empty() { 1 } else { usize::MAX };
            let arrived = Instant::now();
            let warm = |position: &Position| position.counts || arrived.elapsed() < COLD;
            for position in stop.positions(lead_in, is_short, &mut stores).into_iter().filter(warm).take(turns) {
                if self.subject.state().is_too_late(position.configuration, &work) {
                    return Ok(End::OutOfTime);
                }
                let counts = position.counts && !fills;
                self.slice(&position, counts, &work, number).map_err(|error| (position.configuration, error))?;
                if interrupt::check_this_process().is_err() {
                    return Ok(End::Interrupted);
                }
            }
        }
        self.subject.state().next += 1;
        Ok(End::Complete)
    }

    /// One slice: from rest to rest. The one that Ctrl-C cut, which the load process gets too, is none.
    fn slice(&mut self, position: &Position, counts: bool, work: &Work, sweep_number: u32) -> Result<()> {
        let index = position.configuration;
        let (key, server) = (self.key(index), self.subject.server(index));
        self.subject.testbed().enter_mode(server)?;
        let work = Work { laps: self.laps(index, work), ..work.clone() };
        let requests = work.laps * work.piece.requests;
        let cpu_before = self.cpu_now(index, key)?;
        self.subject.begin_slice(index)?;
        let address = self.subject.testbed().address(server);
        let began = self.since.elapsed();
        let outcome = self.subject.load().run(index, address, &work, Sessions::OfSlices(position.store));
        let elapsed = self.since.elapsed() - began;
        if interrupt::check_this_process().is_err() {
            return Ok(());
        }
        let outcome = outcome?;
        if !outcome.losses.is_empty() {
            let sources = self.subject.load().sources.clone();
            self.subject.testbed().permit(&sources)?;
        }
        let us_per_request = elapsed.as_secs_f64() * 1e6 / requests.max(1) as f64;
        self.subject.state().us_per_request.insert(index, us_per_request);
        if is_dead(&outcome) {
            self.account_ns(index)?;
            return Err(death(&self.subject.name(index), &outcome, &self.subject.log_tail(index)));
        }
        let (cpu_ns, not_seen) = self.cpu_after(index, key)?;
        let server_cpu_ns = cpu_ns.saturating_sub(cpu_before);
        self.subject.state().within_ns += server_cpu_ns;
        let (fault, seen) = self.subject.end_slice(index, &outcome, server_cpu_ns)?;
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

    /// How often the users of a slice take their turns. Without handshakes the same requests take a tenth of the time,
    /// most of which a server spends on waking up and on reading its first events one by one; so these are repeated
    /// until the slice is as long as it is to be. With handshakes a second turn would find the sessions of the first.
    fn laps(&mut self, index: usize, work: &Work) -> u64 {
        let server = self.subject.server(index);
        let model = &self.subject.testbed().servers[server].model;
        if !model.plain_http && !model.noop.contains(Stage::Setup) {
            return 1;
        }
        let state = self.subject.state();
        let Some(us_per_request) = state.us_per_request.get(&index) else { return 1 };
        (state.slice_us as f64 / (us_per_request * work.piece.requests.max(1) as f64)).round().max(1.0) as u64
    }

    /// Adds a slice to the block of its configuration; `seen`: it counts, unless it has a fault.
    fn add(&mut self, index: usize, slice: Slice, outcome: Outcome, fault: Option<String>, seen: Option<S::Seen>) {
        let block = self.blocks.entry(index).or_default();
        for (kind, count) in &outcome.errors {
            *block.errors.entry(kind.name().to_owned()).or_default() += count;
        }
        let Some(seen) = seen else { return };
        let state = self.subject.state();
        state.measured += 1;
        if let Some(what) = fault {
            state.left_out += 1;
            state.fault.clone_from(&what);
            block.warnings.push(Warning::new("slice_left_out", what).with_remedy(LEFT_OUT_SLICES));
            return;
        }
        block.add_slice(slice, &outcome);
        self.subject.keep(block, seen);
    }

    /// What tells the CPU time of a server.
    fn clocks(&mut self, index: usize, key: usize) -> Result<Clocks> {
        let by_group = self.subject.state().by_group.contains(&key);
        let instance = self.instance(index)?;
        let group = if by_group { instance.group_clock() } else { None };
        Ok(group.map_or_else(|| Clocks::Processes(ProcessClocks::of(instance.pids())), Clocks::Group))
    }

    fn instance(&mut self, index: usize) -> Result<&mut Instance> {
        let (server, name) = (self.subject.server(index), self.subject.name(index));
        let instance = self.subject.testbed().instance(server);
        let running = instance.with_context(|| format!("the server of \"{name}\" does not run"));
        running.map_err(|error| Fault::Server.of(error))
    }

    /// Looks at a server anew, by the processes that it has now, once it rests.
    fn rest_anew(&mut self, index: usize, key: usize) -> Result<u64> {
        for _ in 0..ENDINGS_MAX {
            let vigil = self.instance(index)?.watch();
            let clocks = Rc::new(self.clocks(index, key)?);
            let Some(cpu_ns) = clocks.at_rest_ns() else { continue };
            let account_ns = self.account_ns(index)?;
            self.servers.insert(key, Resting { clocks, cpu_ns, begun_ns: [cpu_ns, account_ns], is_new: true, vigil });
            return Ok(cpu_ns);
        }
        self.account_ns(index)?;
        let (log, name) = (self.subject.log_tail(index), self.subject.name(index));
        Err(Fault::Server.of(anyhow!("processes of the server of \"{name}\" end one after the other{log}")))
    }

    /// The account of all that a server ever used. If all of it has died, that is the news.
    fn account_ns(&mut self, index: usize) -> Result<u64> {
        let name = self.subject.name(index);
        let died = |_: &Instance, obituary: &str| format!("configuration \"{name}\": {obituary}");
        self.instance(index)?.living_cpu_ns(died)
    }

    /// The CPU time of a server that has rested since the last slice; what its clocks have gone on is late work.
    fn cpu_now(&mut self, index: usize, key: usize) -> Result<u64> {
        let Some(now) = self.servers[&key].clocks.read_ns() else { return self.after_an_ending(index, key) };
        self.subject.state().late_ns += now.saturating_sub(self.servers[&key].cpu_ns);
        Ok(now)
    }

    /// The CPU time of a server once it rests after a slice; and why that is not all of it, if it is not.
    fn cpu_after(&mut self, index: usize, key: usize) -> Result<(u64, Option<String>)> {
        let clocks = Rc::clone(&self.servers[&key].clocks);
        let Some(cpu_ns) = clocks.at_rest_ns() else {
            return Ok((
                self.after_an_ending(index, key)?,
                Some("a process of the server ended in a slice".to_owned()),
            ));
        };
        let is_new = self.servers[&key].is_new;
        if let Some(resting) = self.servers.get_mut(&key) {
            (resting.cpu_ns, resting.is_new) = (cpu_ns, false);
        }
        let has_group = self.instance(index)?.group_clock().is_some();
        if is_new && has_group && self.misses_processes(index, key)? {
            self.subject.state().by_group.insert(key);
            return Ok((self.rest_anew(index, key)?, Some(COME_AND_GO.to_owned())));
        }
        Ok((cpu_ns, None))
    }

    /// A process has ended: that its work is done is no death.
    fn after_an_ending(&mut self, index: usize, key: usize) -> Result<u64> {
        self.account_ns(index)?;
        if let Some(mut before) = self.servers.remove(&key)
            && let Some(death) = self.instance(index)?.awaited_death(&mut before.vigil)
        {
            let (log, name) = (self.subject.log_tail(index), self.subject.name(index));
            return Err(Fault::Server.of(anyhow!("the server of \"{name}\": {death}{log}")));
        }
        self.rest_anew(index, key)
    }

    /// Whether processes that its clocks do not know have worked since these were first read.
    fn misses_processes(&mut self, index: usize, key: usize) -> Result<bool> {
        let Some(resting) = self.servers.get(&key) else { return Ok(false) };
        let (clocks, [clocks_ns, all_ns]) = (Rc::clone(&resting.clocks), resting.begun_ns);
        if matches!(*clocks, Clocks::Group(_)) {
            return Ok(false);
        }
        // Both now: the last slice may have been cut.
        let Some(now_ns) = clocks.at_rest_ns() else { return Ok(true) };
        let (seen, all) = (now_ns.saturating_sub(clocks_ns), self.account_ns(index)?.saturating_sub(all_ns));
        let slack_ns = if self.instance(index)?.group_clock().is_some() { SLACK_NS } else { SLACK_OF_TICKS_NS };
        Ok(all > seen + seen / 10 + slack_ns)
    }

    /// Slices of a server whose processes came or went do not count: what these did is not in its clocks.
    ///
    /// # Errors
    /// They come and go, and nothing tells what they use.
    fn drop_if_workers_changed(&mut self) -> Result<(), Failed> {
        let mut changed: BTreeMap<usize, bool> = BTreeMap::new();
        for index in self.blocks.keys().copied().collect::<Vec<_>>() {
            let key = self.key(index);
            let has_changed = match changed.get(&key) {
                Some(known) => *known,
                None => self.has_changed(index, key).map_err(|error| (index, error))?,
            };
            changed.insert(key, has_changed);
            if let Some(block) = self.blocks.get_mut(&index).filter(|_| has_changed) {
                block.valid = false;
                let what = "processes of the server began or ended within a row of slices";
                block.warnings.push(Warning::new("processes_changed", what).with_remedy(LEFT_OUT_SLICES));
            }
        }
        Ok(())
    }

    fn has_changed(&mut self, index: usize, key: usize) -> Result<bool> {
        if !self.clocks(index, key).is_ok_and(|now| now == *self.servers[&key].clocks) {
            return Ok(true);
        }
        if !self.misses_processes(index, key)? {
            return Ok(false);
        }
        if self.instance(index)?.group_clock().is_none() {
            let name = self.subject.name(index);
            return Err(Fault::Environment.of(anyhow!("the server of \"{name}\": {COME_AND_GO}; {WITHOUT_GROUP}")));
        }
        self.subject.state().by_group.insert(key);
        Ok(true)
    }
}
