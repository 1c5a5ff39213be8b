//! What a simulation has seen.

use serde::Serialize;

use super::{SECOND, Scenario};

/// Intervals that the time is cut into.
const INTERVALS: usize = 360;
/// Bins of latency, and how many times longer the next one is.
const BINS: usize = 1200;
const BIN_TIMES: f64 = 1.02;
/// The shortest latency that is told apart, nanoseconds.
const LEAST_NS: f64 = 1e3;

/// Latencies in bins of 2 %.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    fn note(&mut self, ns: u64) {
        let bin = (ns as f64 / LEAST_NS).ln() / BIN_TIMES.ln();
        self.0[(bin.max(0.0) as usize).min(BINS - 1)] += 1;
    }

    /// The latency that this part does not exceed, seconds; not a number where there are none.
    pub fn quantile_s(&self, part: f64) -> f64 {
        let all: u64 = self.0.iter().sum();
        let mut left = (part * all as f64).ceil();
        for (bin, count) in self.0.iter().enumerate() {
            left -= *count as f64;
            if all > 0 && left <= 0.0 {
                return LEAST_NS * BIN_TIMES.powf(bin as f64 + 0.5) / SECOND;
            }
        }
        f64::NAN
    }
}

/// Counts of one of the equal parts of the time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub full: u64,
    pub resumed_count: u64,
    /// Visits that no machine took, tried again or not.
    pub failed_count: u64,
    /// Work that came for machines that end TLS, seconds of a CPU.
    pub work_s: f64,
    /// First responses of new and of returning visitors.
    #[serde(skip)]
    pub latencies: Latencies,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Equal parts of the time, in order.
    pub intervals: Vec<Interval>,
    /// How long each is, seconds.
    pub interval_s: f64,
    /// First responses of new and of returning visitors, seconds, before anything happened to the machines.
    pub latencies: [Latencies; 2],
    /// Connections that offered a session that was not too old.
    pub offered: u64,
    /// Connections whose offered session was taken.
    pub kept: u64,
    /// Connections that a machine took.
    pub connections: u64,
    pub hits: u64,
    /// Times that a dispatcher tried another machine.
    pub retried: u64,
    pub given_up: u64,
    /// Requests of connections that a machine lost.
    pub lost: u64,
    pub by_machine: Vec<u64>,
    /// CPU time of each, seconds.
    pub busy_s: Vec<f64>,
    /// CPUs of all machines that end TLS.
    pub cpus: f64,
    /// Things that happened: visits, requests, checks.
    pub events: u64,
}

impl Seen {
    pub fn of(scenario: &Scenario) -> Seen {
        let latencies = Latencies(vec![0; BINS]);
        let none = Interval { full: 0, resumed_count: 0, failed_count: 0, work_s: 0.0, latencies: latencies.clone() };
        Seen {
            intervals: vec![none; INTERVALS],
            interval_s: scenario.length_s / INTERVALS as f64,
            latencies: [latencies.clone(), latencies],
            offered: 0,
            kept: 0,
            connections: 0,
            hits: 0,
            retried: 0,
            given_up: 0,
            lost: 0,
            by_machine: vec![0; scenario.ends as usize],
            busy_s: Vec::new(),
            cpus: f64::from(scenario.ends) * f64::from(scenario.cpus),
            events: 0,
        }
    }

    pub(super) fn at(&mut self, now_ns: u64) -> &mut Interval {
        let last = self.intervals.len() - 1;
        &mut self.intervals[((now_ns as f64 / SECOND / self.interval_s) as usize).min(last)]
    }

    /// A first response. `is_usual`: nothing has happened to the machines yet.
    pub(super) fn note_response(&mut self, now_ns: u64, took_ns: u64, is_new: bool, is_usual: bool) {
        self.at(now_ns).latencies.note(took_ns);
        if is_usual {
            self.latencies[usize::from(!is_new)].note(took_ns);
        }
    }

    /// This and what was seen of other machines in the same time.
    pub(super) fn with(mut self, other: Seen) -> Seen {
        let add = |one: &mut Latencies, other: &Latencies| {
            one.0.iter_mut().zip(&other.0).for_each(|(sum, count)| *sum += count);
        };
        for (one, other) in self.intervals.iter_mut().zip(&other.intervals) {
            one.full += other.full;
            one.resumed_count += other.resumed_count;
            one.failed_count += other.failed_count;
            one.work_s += other.work_s;
            add(&mut one.latencies, &other.latencies);
        }
        self.latencies.iter_mut().zip(&other.latencies).for_each(|(one, other)| add(one, other));
        for (sum, count) in [
            (&mut self.offered, other.offered),
            (&mut self.kept, other.kept),
            (&mut self.connections, other.connections),
            (&mut self.hits, other.hits),
            (&mut self.retried, other.retried),
            (&mut self.given_up, other.given_up),
            (&mut self.lost, other.lost),
            (&mut self.events, other.events),
        ] {
            *sum += count;
        }
        self.by_machine.extend(other.by_machine);
        self.busy_s.extend(other.busy_s);
        self.cpus += other.cpus;
        self
    }

    /// Part of the offered sessions that were taken.
    pub fn kept_share(&self) -> f64 {
        self.kept as f64 / self.offered as f64
    }

    /// Connections of the machine with the most of them, by the mean.
    pub fn imbalance(&self) -> f64 {
        let most = self.by_machine.iter().max().copied().unwrap_or(0) as f64;
        most * self.by_machine.len() as f64 / self.connections as f64
    }
}
