//! A site in virtual time: dispatchers that decide by their own code, machines, sessions, users who come back.
//!
//! A dispatcher has at most 64 machines. More are so many groups, each behind a dispatcher of its own, and a user
//! always comes to the same group, as behind a router that spreads by address. Groups have nothing in common, so that
//! they are simulated beside each other.
//!
//! A machine does what comes first to its end, on the first of its CPUs that is free. Visits are a Poisson process and
//! each is of a user drawn by chance, so that the pauses of a user are exponential. A visit is a connection: a
//! handshake with a request, then more requests at fixed distances.

mod group;
mod machine;
mod seen;
mod storm;

use tlsdyno_engine::dispatch::limits::BACKENDS_MAX;
use tlsdyno_engine::dispatch::{Check, Policy};

pub use seen::{Interval, Seen};
pub use storm::{Storm, Told};

use group::Group;

const SECOND: f64 = 1e9;

/// How a client names its session, and where it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// In a ticket under a key of the machine; each use brings a new one (TLS 1.3).
    Tickets,
    /// In the store of the machine, which holds so many; by an ID (TLS 1.2).
    Store(u32),
}

/// When users come.
#[derive(Clone, Debug, PartialEq)]
pub enum Visits {
    /// As a Poisson process of so many a second, in equal parts of the time; each is of a user drawn by chance.
    Process(Vec<f64>),
    /// At these seconds these users, in order.
    Plan(Vec<(f64, u32)>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Machines that end TLS.
    pub ends: u32,
    /// Servers behind them; 0: they are the servers.
    pub behind: u32,
    pub cpus: u32,
    /// Seconds of a CPU for a handshake with its first request: full, resumed.
    pub opening_s: [f64; 2],
    /// Seconds of a CPU for each further request.
    pub request_s: f64,
    /// Seconds of a CPU of a server behind, for each request.
    pub behind_s: f64,
    /// The first machine takes so many times as long as the others.
    pub slow_times: f64,
    pub policy: Policy,
    /// The machines share their ticket keys, from a file that restarts do not change.
    pub shares_keys: bool,
    pub kept: Kept,
    /// For how long clients and machines keep a session, seconds.
    pub lifetime_s: u32,
    /// After so long machines take new ticket keys and still accept those before; 0: never.
    pub rotation_s: u32,
    /// Entries of a dispatcher's tables.
    pub table: usize,
    /// For how long a dispatcher remembers, seconds.
    pub remembers_s: u32,
    pub check: Check,
    pub users: u64,
    pub visits: Visits,
    pub requests: u16,
    /// From one request of a visit to the next, seconds.
    pub gap_s: f64,
    pub length_s: f64,
    /// What happens to the machines, and when, seconds.
    pub storm: Option<(Storm, f64)>,
    /// Seed of everything random.
    pub seed: u64,
}

impl Scenario {
    /// Groups of machines, each behind a dispatcher.
    fn groups(&self) -> u32 {
        self.ends.div_ceil(BACKENDS_MAX as u32)
    }

    /// The part of the scenario that falls to this group of machines.
    fn of_group(&self, group: u32) -> Scenario {
        let groups = self.groups();
        let part = |of: u64| of / u64::from(groups) + u64::from(of % u64::from(groups) > u64::from(group));
        let ends = part(u64::from(self.ends)) as u32;
        let share = f64::from(ends) / f64::from(self.ends);
        let visits = match &self.visits {
            Visits::Process(rates) => Visits::Process(rates.iter().map(|rate| rate * share).collect()),
            Visits::Plan(plan) => {
                let own = plan.iter().filter(|(_, user)| user % groups == group);
                Visits::Plan(own.map(|(at_s, user)| (*at_s, user / groups)).collect())
            }
        };
        let users = match visits {
            Visits::Process(_) => (self.users as f64 * share).round().max(1.0) as u64,
            Visits::Plan(_) => self.users.div_ceil(u64::from(groups)),
        };
        Scenario {
            ends,
            behind: part(u64::from(self.behind)) as u32,
            users,
            visits,
            seed: self.seed ^ u64::from(group).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            ..self.clone()
        }
    }

    /// Simulates the scenario on so many threads.
    pub fn run(&self, threads: usize) -> Seen {
        let (of, groups) = (self, self.groups());
        let threads = threads.clamp(1, groups as usize) as u32;
        let of_thread = move |thread: u32| {
            let groups = (thread..groups).step_by(threads as usize);
            groups.map(|group| Group::new(&of.of_group(group)).run()).reduce(Seen::with)
        };
        let seen = std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || of_thread(thread))).collect();
            let all = all
                .into_iter()
                .filter_map(|one| one.join().unwrap_or_else(|panicked| std::panic::resume_unwind(panicked)));
            all.reduce(Seen::with)
        });
        seen.unwrap_or_else(|| Seen::of(self))
    }
}

#[cfg(test)]
mod tests;
