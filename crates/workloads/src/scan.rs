//! `trace show` of an access log: one pass over a log of any length, in memory that does not grow with it.
//!
//! Kept are the users active within the longest session lifetime asked about, and counts. What needs more (the objects,
//! files and pages of a replay) is [`replay`](super::replay)'s.

use std::path::Path;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;
use tlsdyno_record::model::workload::{ReplaySpec, SessionsSpec};
use tlsdyno_record::store::Reuse;

use super::access_log::Entry;
use super::log_summary::LogRead;
use super::reading;
use super::summary::Sizes;
use connections::{Connections, Lifetime};
use distinct::Distinct;
use peak::Peak;
use sessions::{LIFETIMES_S, Tally};
use users::{UserLookup, Users};

pub(super) mod connections;
pub(super) mod distinct;
mod peak;
pub(super) mod sessions;
mod users;

/// Largest response that the distribution of sizes tells apart: 1 PiB.
const MAX_BYTES: u64 = 1 << 50;

/// So far may stamps run backwards without a user being forgotten too early: a log is written as requests end, but
/// stamped as they begin. Seconds.
const DISORDER_S: u32 = 3_600;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogScan {
    pub workload: String,
    #[serde(flatten)]
    pub read: LogRead,
    /// Requests: lines that are neither malformed nor excluded.
    pub hits: u64,
    /// Distinct client addresses.
    pub users: u64,
    /// `users` is counted; otherwise estimated, with a standard error of 0.8 %.
    pub users_exact: bool,
    /// TLS sessions: how often a user comes, or comes back after [`LogScan::session_lifetime_s`] without a request.
    pub sessions: u64,
    /// After so long without a request a session is forgotten, seconds; `None`: never.
    pub session_lifetime_s: Option<u32>,
    /// `sessions` in per cent of `hits`: the share of requests that need a full handshake.
    pub full_handshakes_per_hit_percent: f64,
    /// `hits` by `sessions`.
    pub hits_per_full_handshake: f64,
    /// Hits for each connection, and so for each handshake of either kind.
    pub hits_per_connection: f64,
    /// After so long without a request a connection is closed, seconds.
    pub keep_alive_s: u32,
    /// Requests of the minute with the most of them.
    pub peak_minute_hits: u64,
    pub users_held_at_most: u64,
    /// Sizes of responses whose length is logged, bytes; within 0.1 %.
    pub response_size_bytes: Sizes,
    pub reuse: Reuse,
    pub lifetimes: Vec<Lifetime>,
}

/// Reads the log at `path` once, in memory that does not grow with it. `rules` gives the lifetime that
/// [`LogScan::sessions`] is about.
pub fn scan(path: &Path, exclude: &[String], rules: &ReplaySpec) -> Result<LogScan> {
    let mut scan = Scan::new(rules.clone());
    let (mut read, _) = reading::for_each_request(path, exclude, rules, |entry, at_s| {
        scan.add(entry, at_s);
        Ok(())
    })?;
    read.busiest_clients = scan.users.busiest();
    Ok(scan.finish(path, read))
}

struct Scan {
    rules: ReplaySpec,
    users: Users,
    distinct: Distinct,
    tally: Tally,
    peak: Peak,
    sizes: Histogram<u64>,
    size_total: u128,
    sessions: u64,
    connections: Connections,
}

impl Scan {
    fn new(rules: ReplaySpec) -> Scan {
        let longest_s = LIFETIMES_S[LIFETIMES_S.len() - 1];
        let retention_s = match rules.sessions {
            SessionsSpec::LifetimeS(seconds) => longest_s.max(seconds),
            SessionsSpec::PerAddress => longest_s,
        };
        Scan {
            rules,
            users: Users::new(retention_s.saturating_add(DISORDER_S)),
            distinct: Distinct::default(),
            tally: Tally::default(),
            peak: Peak::default(),
            // Three digits up to 2^50 is a valid histogram: this cannot fail, whatever the log.
            sizes: Histogram::new_with_max(MAX_BYTES, 3).expect("bounds and precision of the histogram are valid"),
            size_total: 0,
            sessions: 0,
            connections: Connections::default(),
        }
    }

    fn add(&mut self, entry: &Entry<'_>, at_s: u32) {
        let (user, lookup) = self.users.find(&entry.client, at_s);
        let gap_s = (user.hits > 0).then(|| at_s.saturating_sub(user.last_s));
        self.tally.hit(&mut user.sessions, at_s, gap_s);
        self.peak.add(at_s);
        user.hits += 1;
        user.last_s = user.last_s.max(at_s);
        let is_longer_than = |time_s| gap_s.is_none_or(|gap_s| gap_s > time_s);
        if let SessionsSpec::LifetimeS(lifetime_s) = self.rules.sessions {
            self.sessions += u64::from(is_longer_than(lifetime_s));
        }
        if self.rules.keep_alive_s == 0 || is_longer_than(self.rules.keep_alive_s) {
            self.connections.opened(&mut user.handshakes, at_s);
        }
        if let Some(bytes) = entry.bytes {
            self.sizes.saturating_record(bytes);
            self.size_total += u128::from(bytes);
        }
        if lookup == UserLookup::New {
            self.distinct.add(&entry.client);
            self.users.forget_the_gone(at_s, self.tally.hits);
        }
    }

    fn finish(self, path: &Path, read: LogRead) -> LogScan {
        let (users, users_exact) = self.distinct.count();
        let (sessions, session_lifetime_s) = match self.rules.sessions {
            SessionsSpec::LifetimeS(seconds) => (self.sessions, Some(seconds)),
            SessionsSpec::PerAddress => (users, None),
        };
        let hits = self.tally.hits;
        let percentile = |percent: f64| self.sizes.value_at_quantile(percent / 100.0);
        LogScan {
            workload: path.display().to_string(),
            hits,
            users,
            users_exact,
            sessions,
            session_lifetime_s,
            full_handshakes_per_hit_percent: 100.0 * sessions as f64 / hits.max(1) as f64,
            hits_per_full_handshake: hits as f64 / sessions.max(1) as f64,
            hits_per_connection: hits as f64 / self.connections.all().max(1) as f64,
            keep_alive_s: self.rules.keep_alive_s,
            peak_minute_hits: self.peak.most,
            users_held_at_most: self.users.most as u64,
            response_size_bytes: Sizes {
                mean: self.size_total as f64 / self.sizes.len().max(1) as f64,
                p50: percentile(50.0),
                p90: percentile(90.0),
                p99: percentile(99.0),
                max: self.sizes.max(),
            },
            reuse: self.tally.finish(),
            lifetimes: self.connections.finish(),
            read,
        }
    }
}

#[cfg(test)]
mod tests;
