//! What a service or an agent has done, as a line of JSON on standard output now and then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value};

/// Numbers that only grow, by name.
pub struct Counters<const N: usize> {
    names: [&'static str; N],
    values: [AtomicU64; N],
}

impl<const N: usize> Counters<N> {
    /// All 0.
    pub fn new(names: [&'static str; N]) -> Counters<N> {
        Counters { names, values: [const { AtomicU64::new(0) }; N] }
    }

    /// Adds to the one at this place.
    pub fn add(&self, place: usize, amount: u64) {
        self.values[place].fetch_add(amount, Ordering::Relaxed);
    }

    /// The one at this place.
    pub fn get(&self, place: usize) -> u64 {
        self.values[place].load(Ordering::Relaxed)
    }

    /// All of them, the CPU time of this process in nanoseconds, and what else is known.
    pub fn line(&self, others: &[(&str, u64)]) -> String {
        let own = self.names.iter().enumerate().map(|(place, name)| (*name, self.get(place)));
        let all = own.chain(others.iter().copied()).chain([("cpu_ns", cpu_ns())]);
        let fields: Map<String, Value> = all.map(|(name, value)| (name.to_owned(), value.into())).collect();
        format!("{}\n", Value::Object(fields))
    }
}

/// CPU time of this process, nanoseconds.
fn cpu_ns() -> u64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32).as_nanos() as u64
}

/// When the next line is due.
#[derive(Debug)]
pub struct Pace {
    every: Option<Duration>,
    next: Instant,
}

impl Pace {
    /// A line in each so many seconds; 0: none.
    pub fn new(seconds: u32) -> Pace {
        let every = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        Pace { every, next: Instant::now() + every.unwrap_or_default() }
    }

    /// Whether one is due by now.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = self.every.filter(|_| now >= self.next);
        self.next += due.unwrap_or_default();
        due.is_some()
    }
}
