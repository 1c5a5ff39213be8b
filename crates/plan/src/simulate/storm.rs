//! What happens to machines, and what the time after it costs.

use serde::Serialize;
use tlsdyno_tls::named;

use super::{Scenario, Seen};

/// How long a machine that restarts takes no connections, seconds.
const DOWN_S: f64 = 2.0;
/// From one machine of a rolling deploy to the next, seconds.
const STEP_S: f64 = 15.0;
/// Full handshakes within this part of those before: it is over.
const OVER: f64 = 0.1;

named! {
    /// What happens to the machines that end TLS.
    pub enum Storm: "storm" {
        /// All restart at once: they take no connections for two seconds and forget all sessions
        Restart = "restart",
        /// All reload: none is lost but the keys of their tickets are new, unless they come from a file
        Reload = "reload",
        /// One after the other restarts, each 15 seconds after the one before
        Deploy = "deploy",
        /// Another site of the same size fails, and its users come here
        Failover = "failover",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    /// It takes no connections any more, and those that it has are lost.
    Stop(usize),
    /// It takes connections again and knows no sessions.
    Start(usize),
    /// Its ticket keys are new, those before are gone.
    NewKeys(usize),
    /// All take new ticket keys and keep those before.
    Rotate,
    /// The users of the other site come.
    Others,
}

/// All that happens in a scenario, with its time in seconds, in order.
pub(super) fn happenings(of: &Scenario) -> Vec<(f64, Happening)> {
    let machines = 0..of.ends as usize;
    let mut all: Vec<(f64, Happening)> = match of.storm {
        None => Vec::new(),
        Some((Storm::Restart, at_s)) => {
            machines.flat_map(|at| [(at_s, Happening::Stop(at)), (at_s + DOWN_S, Happening::Start(at))]).collect()
        }
        Some((Storm::Reload, at_s)) => machines.map(|at| (at_s, Happening::NewKeys(at))).collect(),
        Some((Storm::Deploy, at_s)) => machines
            .flat_map(|at| {
                let stop_s = at_s + STEP_S * at as f64;
                [(stop_s, Happening::Stop(at)), (stop_s + DOWN_S, Happening::Start(at))]
            })
            .collect(),
        Some((Storm::Failover, at_s)) => vec![(at_s, Happening::Others)],
    };
    if of.rotation_s > 0 {
        let times = (1..).map(|number| f64::from(number) * f64::from(of.rotation_s));
        all.extend(times.take_while(|at_s| *at_s < of.length_s).map(|at_s| (at_s, Happening::Rotate)));
    }
    all.sort_by(|one, two| one.0.total_cmp(&two.0));
    all
}

/// What a storm costs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Told {
    /// Full handshakes a second before, and at most in an interval after it.
    pub full_per_s: [f64; 2],
    /// Part of the CPU time that came as work, before and at most after it; above 1 it queues up.
    pub used_fraction: [f64; 2],
    /// The 99th percentile of first responses before, and in the worst interval after, seconds.
    pub p99_s: [f64; 2],
    /// How long until full handshakes are as before, seconds; `None`: not within the time that was simulated.
    pub over_after_s: Option<f64>,
    /// Visits that were given up, of those after it.
    pub given_up_count: u64,
}

impl Told {
    pub fn of(seen: &Seen, storm_s: f64) -> Told {
        let first = (storm_s / seen.interval_s) as usize;
        let (before, after) = seen.intervals.split_at(first.min(seen.intervals.len()));
        // Users who come for the first time in the simulation have no session: the second half is as usual.
        let before = &before[before.len() / 2..];
        let full = |of: &super::Interval| of.full as f64 / seen.interval_s;
        let used = |of: &super::Interval| of.work_s / seen.interval_s / seen.cpus;
        let mean = |of: &dyn Fn(&super::Interval) -> f64| before.iter().map(of).sum::<f64>() / before.len() as f64;
        let most = |of: &dyn Fn(&super::Interval) -> f64| after.iter().map(of).fold(f64::NAN, f64::max);
        let p99 = |of: &super::Interval| of.latencies.quantile_s(0.99);
        let usual = mean(&full);
        // Counts scatter by chance, too.
        let high = (1.0 + OVER) * usual + 4.0 * (usual / seen.interval_s).sqrt();
        let is_high = |of: &super::Interval| full(of) > high;
        let last = after.iter().rposition(is_high);
        let is_open = last.is_some_and(|last| last + 2 >= after.len());
        Told {
            full_per_s: [usual, most(&full)],
            used_fraction: [mean(&used), most(&used)],
            p99_s: [mean(&p99), most(&p99)],
            over_after_s: (!is_open).then(|| last.map_or(0.0, |last| (last + 1) as f64 * seen.interval_s)),
            given_up_count: seen.given_up,
        }
    }

    pub fn sentence(&self, storm: Storm) -> String {
        let [full, most] = self.full_per_s.map(|rate| format!("{rate:.0}"));
        let [used, used_most] = self.used_fraction.map(|part| format!("{:.0} %", 100.0 * part));
        let [p99, p99_most] = self.p99_s.map(|s| format!("{:.1} ms", 1e3 * s));
        let over = match self.over_after_s {
            Some(0.0) => "is not felt".to_owned(),
            Some(s) => format!("is over after {:.0} s", s),
            None => "is not over within the time that was simulated".to_owned(),
        };
        format!(
            "{} {over}: full handshakes {full} → {most} /s at most, machines used {used} → {used_most}, 99th \
             percentile of the first response {p99} → {p99_most}, {} visits given up.",
            tlsdyno_report::document::capitalised(storm.name()),
            self.given_up_count
        )
    }
}
