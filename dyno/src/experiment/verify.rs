//! Every block verifies itself (`docs/METHODOLOGY.md`, "What makes a block valid"): it did the work that it claims, and it is known which side was the bottleneck.

use std::collections::BTreeMap;

use tlsdyno_engine::load::Workload;

use super::job::{OutcomeRecord, ReuseSpec};
use crate::store::Warning;

/// The server counts as the bottleneck while it is at least this busy.
const SERVER_BUSY_MIN: f64 = 0.85;
/// The client counts as the bottleneck from here on.
const CLIENT_BUSY_MAX: f64 = 0.95;
/// The share of full handshakes may differ by this much from what the workload declares.
const FULL_SHARE_TOLERANCE: f64 = 0.01;

/// What a block must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Requests of the segment.
    pub requests: u64,
    /// Full handshakes, if the workload declares them (sessions of its users); `None` with a share of reuse.
    pub handshakes_full: Option<u64>,
}

impl Expected {
    /// What these users of the workload must produce.
    pub fn of(workload: &Workload, users: std::ops::Range<u32>, reuse: ReuseSpec) -> Expected {
        let users = &workload.users[users.start as usize..users.end as usize];
        let requests = users.iter().map(|user| u64::from(user.requests.end - user.requests.start)).sum();
        let sessions = |user: &tlsdyno_engine::load::User| {
            let range = user.requests.start as usize..user.requests.end as usize;
            let forgotten = workload.requests[range].iter().skip(1).filter(|request| request.forget_session).count();
            1 + forgotten as u64
        };
        let handshakes_full = (reuse == ReuseSpec::Always).then(|| users.iter().map(sessions).sum());
        Expected { requests, handshakes_full }
    }
}

/// The verdict on one block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// The block may be used.
    pub valid: bool,
    /// The client was the bottleneck.
    pub client_bound: bool,
    /// What the reader must know.
    pub warnings: Vec<Warning>,
}

/// Checks the outcome of one block. `tls`: it ran over TLS.
pub fn verify(outcome: &OutcomeRecord, expected: Expected, server_cpu_ns: u64, tls: bool) -> Verdict {
    let mut warnings = error_warnings(&outcome.errors, expected.requests);
    let mut valid = warnings.is_empty() && !outcome.stopped;
    if outcome.errors.is_empty() && !outcome.stopped && outcome.hits != expected.requests {
        valid = false;
        warnings.push(Warning::Other {
            what: format!("{} of {} requests were answered as expected", outcome.hits, expected.requests),
            remedy: "This block is left out".to_owned(),
        });
    }
    if let (true, Some(full)) = (tls, expected.handshakes_full)
        && differs(outcome.handshakes_full, full, outcome.connections)
    {
        warnings.push(Warning::Reuse {
            intended: outcome.resumed_intended,
            offered: outcome.resumed_offered,
            accepted: outcome.resumed_accepted,
        });
    }
    let elapsed = outcome.elapsed_ns.max(1) as f64;
    let server_busy = server_cpu_ns as f64 / elapsed;
    let client_busy = outcome.client_cpu_ns as f64 / elapsed;
    let client_bound = server_busy < SERVER_BUSY_MIN || client_busy >= CLIENT_BUSY_MAX;
    Verdict { valid, client_bound, warnings }
}

/// Whether the counts of full handshakes differ by more than the tolerance (and more than two connections).
pub fn differs(full: u64, expected: u64, connections: u64) -> bool {
    let tolerance = (connections as f64 * FULL_SHARE_TOLERANCE).max(2.0);
    (full as f64 - expected as f64).abs() > tolerance
}

fn error_warnings(errors: &BTreeMap<String, u64>, requests: u64) -> Vec<Warning> {
    errors
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(kind, count)| Warning::Errors { kind: kind.clone(), count: *count, requests })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Expected = Expected { requests: 1000, handshakes_full: Some(100) };

    fn outcome() -> OutcomeRecord {
        OutcomeRecord {
            hits: 1000,
            connections: 400,
            handshakes_full: 100,
            resumed_intended: 300,
            resumed_offered: 300,
            resumed_accepted: 300,
            elapsed_ns: 1_000_000_000,
            client_cpu_ns: 300_000_000,
            ..OutcomeRecord::default()
        }
    }

    #[test]
    fn a_good_block_passes_without_a_word() {
        let verdict = verify(&outcome(), EXPECTED, 990_000_000, true);
        assert_eq!(verdict, Verdict { valid: true, client_bound: false, warnings: Vec::new() });
    }

    #[test]
    fn errors_and_missing_hits_make_it_invalid() {
        let failed = OutcomeRecord { errors: BTreeMap::from([("reset".to_owned(), 3)]), hits: 997, ..outcome() };
        let verdict = verify(&failed, EXPECTED, 990_000_000, true);
        assert!(!verdict.valid && verdict.warnings.len() == 1, "{verdict:?}");
        let missing = OutcomeRecord { hits: 999, ..outcome() };
        assert!(!verify(&missing, EXPECTED, 990_000_000, true).valid);
        let stopped = OutcomeRecord { stopped: true, ..outcome() };
        assert!(!verify(&stopped, EXPECTED, 990_000_000, true).valid);
    }

    #[test]
    fn reuse_that_was_not_achieved_is_reported() {
        let refused = OutcomeRecord { handshakes_full: 250, resumed_accepted: 150, ..outcome() };
        let verdict = verify(&refused, EXPECTED, 990_000_000, true);
        assert!(matches!(verdict.warnings[..], [Warning::Reuse { accepted: 150, .. }]));
        assert!(verify(&refused, EXPECTED, 990_000_000, false).warnings.is_empty(), "plain HTTP has no handshakes");
    }

    #[test]
    fn the_bottleneck_is_named() {
        assert!(verify(&outcome(), EXPECTED, 700_000_000, true).client_bound, "an idle server");
        let busy = OutcomeRecord { client_cpu_ns: 960_000_000, ..outcome() };
        assert!(verify(&busy, EXPECTED, 990_000_000, true).client_bound, "a busy client");
    }

    #[test]
    fn expectations_come_from_the_workload() {
        use tlsdyno_engine::load::{Request, User};
        let plain = Request { object: 0, page_end: true, close_after: false, forget_session: false };
        let anew = Request { forget_session: true, ..plain };
        let workload = Workload {
            objects: Vec::new(),
            requests: vec![plain, plain, anew, plain],
            users: vec![User { requests: 0..3 }, User { requests: 3..4 }],
        };
        let expected = Expected::of(&workload, 0..2, ReuseSpec::Always);
        assert_eq!(expected, Expected { requests: 4, handshakes_full: Some(3) });
        assert_eq!(Expected::of(&workload, 1..2, ReuseSpec::Never).handshakes_full, None);
    }
}
