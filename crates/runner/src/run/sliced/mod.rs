//! Sweeps of slices: how the CPU time of a hit is compared. In a sweep every configuration has slices of the same
//! users, so short that the machine has not changed from one to the next, each from rest to rest of its server
//! (docs/METHODOLOGY.md, "Slices").

mod accounts;
mod row;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::load::Outcome;
use tlsdyno_record::model::Measure;
use tlsdyno_record::store::{Block, Warning};
use tlsdyno_stats::statement::FEW_ROUNDS;

use super::load_process::LoadProcess;
use super::schedule::{Work, varied_pieces};
use super::sweep::Stop;
use super::testbed::Testbed;
use accounts::Accounts;
pub use row::Bench;

/// Minimum number of requests of a slice.
const SLICE_REQUESTS_MIN: u64 = 5;
/// Wanted duration of a round with slices: each has new servers, and after each the widths of the intervals are looked
/// at.
const SLICED_ROUND: Duration = Duration::from_secs(5);
/// Minimum number of planned rounds with slices.
pub const SLICED_ROUNDS_MIN: u32 = 8;
/// Part of the measured CPU time above which late work is mentioned.
const LATE_TOLD: f64 = 0.01;

/// A failure, with its configuration.
pub type Failed = (usize, Error);

/// Number of planned rounds with slices. Fewer may be measured, if a sweep takes long.
pub fn sliced_rounds(time: Duration) -> u32 {
    ((time.as_secs_f64() / SLICED_ROUND.as_secs_f64()).round() as u32).max(SLICED_ROUNDS_MIN)
}

/// Time for slices.
#[derive(Clone, Copy, Debug)]
pub struct TimeOfSlices {
    /// The start of the experiment.
    pub since: Instant,
    /// Approximate duration of slices.
    pub length: Duration,
    /// End of measuring, even within a sweep.
    pub end: Instant,
}

/// A configuration that is measured in slices.
#[derive(Clone, Debug)]
pub struct SlicedPart {
    /// The configuration of the testbed that serves it.
    pub server: usize,
    /// The part with the same server with which its others are compared.
    pub host: usize,
    pub name: String,
}

/// Reads more than CPU time in slices. A configuration is identified by its index in the experiment.
pub trait Watch {
    type Seen;

    /// Prepares for a row of slices; the server of this configuration rests.
    fn begin_row(&mut self, testbed: &mut Testbed, index: usize) -> Result<()>;

    fn begin_slice(&mut self, _testbed: &Testbed, _index: usize) -> Result<()> {
        Ok(())
    }

    /// Reads a slice that has ended, with its CPU time. Returns why it does not count, if so, and the reading.
    fn end_slice(
        &mut self,
        testbed: &Testbed,
        index: usize,
        outcome: &Outcome,
        server_cpu_ns: u64,
    ) -> Result<(Option<String>, Self::Seen)>;

    /// Adds the reading of a slice that counts to its block.
    fn keep(&self, _block: &mut Block, _seen: Self::Seen) {}
}

/// State over all slices of an experiment.
#[derive(Default)]
pub struct Sweeps {
    parts: Vec<SlicedPart>,
    /// Every visit to a server without modes is one slice, which counts: two builds then both start cold, and little
    /// time for changes of the machine passes between them.
    alternates: bool,
    /// A sweep resumes sessions of the previous one.
    keeps_sessions: bool,
    /// Work of consecutive sweeps, repeated.
    works: Vec<Work>,
    /// Wanted length of a slice, microseconds.
    slice_us: u64,
    /// Duration of a request in the last slice of a configuration, microseconds.
    us_per_request: BTreeMap<usize, f64>,
    /// Number of the next sweep.
    next: u32,
    /// Seconds per request of the slowest configuration before there were slices.
    slowest: f64,
    /// Time for all sweeps. Where less than [`FEW_ROUNDS`] whole ones fit into it, they are short.
    time: Duration,
    /// A sweep has the minimum number of slices of every configuration.
    is_short: bool,
    complete: u32,
    /// The stores have sessions of the running servers; otherwise the next sweep fills them.
    stores_are_filled: bool,
    accounts: Accounts,
    /// Servers that replaced others for this round, and have done nothing yet.
    cold: BTreeSet<usize>,
    /// Number of slices that should count.
    pub measured: u64,
    /// Number of those that do not count.
    pub left_out: u64,
    /// Reason why the last one does not count.
    pub fault: String,
    /// CPU time within slices, nanoseconds.
    within_ns: u64,
}

impl Sweeps {
    pub fn new(parts: Vec<SlicedPart>, keeps_sessions: bool, alternates: bool) -> Sweeps {
        Sweeps { parts, keeps_sessions, alternates, ..Sweeps::default() }
    }

    /// Chooses the work of slices of about the given duration, of a workload whose users have so many requests each.
    /// `least_us`: minimum duration; `users_min`: minimum number of users in a slice.
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

    fn stops(&self, testbed: &Testbed, configurations: &[usize]) -> Vec<Stop> {
        let mut by_host: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &index in configurations {
            let host = self.parts[index].host;
            by_host.entry(host).or_default().extend((host != index).then_some(index));
        }
        let is_untouched =
            |host: usize| testbed.servers[self.parts[host].server].model.without_library().is_untouched();
        by_host.into_iter().map(|(host, modes)| Stop { host, modes, is_untouched: is_untouched(host) }).collect()
    }

    /// Expected duration of a short sweep of these configurations, before the first one. Makes all sweeps short where
    /// whole ones would take too long.
    pub fn expect(&mut self, testbed: &Testbed, configurations: &[usize]) -> Duration {
        let requests: u64 = self.works.iter().map(|work| work.piece.requests).sum();
        let each = self.slowest * requests as f64 / self.works.len().max(1) as f64;
        let stops = self.stops(testbed, configurations);
        let takes = |is_short| {
            let slices = |stop: &Stop| stop.positions(0, is_short, &mut BTreeMap::new()).len();
            Duration::from_secs_f64(each * stops.iter().map(slices).sum::<usize>() as f64)
        };
        if self.complete == 0 {
            self.is_short = takes(false) * FEW_ROUNDS > self.time;
        }
        takes(true)
    }

    /// Records the duration of a sweep.
    fn took(&mut self, length: Duration) {
        self.complete += 1;
        // One that was short says nothing of whole ones.
        self.is_short |= length * FEW_ROUNDS > self.time;
    }

    /// Approximate duration of a slice of this work.
    fn length_of_slice(&self, index: usize, work: &Work) -> Duration {
        let us_per_request = self.us_per_request.get(&index).copied().unwrap_or(self.slowest * 1e6);
        Duration::from_secs_f64(us_per_request * work.piece.requests as f64 / 1e6)
    }

    /// Replaces the servers of the previous round by the next ones of these configurations' pools.
    pub fn swap_servers(&mut self, testbed: &mut Testbed, indices: &BTreeSet<usize>) {
        self.stores_are_filled = false;
        for &index in indices {
            testbed.swap_in(index);
            testbed.is_measured(index);
            self.cold.insert(index);
        }
    }

    /// The server of this configuration of the testbed replaced another and was not warm yet; marks it as warm.
    pub fn was_cold(&mut self, host: usize) -> bool {
        self.cold.remove(&host)
    }

    /// Warning after the last slice.
    pub fn late_work(&self) -> Option<Warning> {
        let part = self.accounts.late_ns as f64 / self.within_ns.max(1) as f64;
        let what = format!("{:.1} % of the servers' CPU time fell between slices", part * 100.0);
        let remedy = "It is in no configuration's cost; longer slices have less of it (--slice 50ms)";
        (part > LATE_TOLD).then(|| Warning::new("late_work", what).with_remedy(remedy))
    }
}
