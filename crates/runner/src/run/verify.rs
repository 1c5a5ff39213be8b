//! Every block verifies itself (`docs/METHODOLOGY.md`, "What makes a block valid"): it did the work that it claims, and
//! it is known which side was the bottleneck.

use anyhow::{Result, anyhow};
use tlsdyno_base::fault::Fault;
use tlsdyno_engine::load::{Outcome, Request, Resumption, User, Workload};
use tlsdyno_record::model::Load;
use tlsdyno_record::store::warning::{self, REUSE_MISSED_MAX, Warning};
use tlsdyno_traffic::load::warning::{missed_http2, relay_overloaded};

/// Minimum CPU use of a server that counts as the bottleneck.
const SERVER_BUSY_MIN: f64 = 0.85;
/// CPU use from which on the client counts as the bottleneck.
const CLIENT_BUSY_MAX: f64 = 0.95;
/// Maximum difference of the share of full handshakes from the expected one.
pub const FULL_SHARE_TOLERANCE: f64 = 0.01;
/// Maximum difference of offered resumptions from the requested number, as a part of all connections; in addition one
/// for each client.
const OFFERED_TOLERANCE: f64 = 0.02;
/// Maximum variation of the untouched server's own departure from the declared reuse between blocks, as a part of it.
const DEPARTURE_VARIES: f64 = 0.25;
/// Remedy text of a block that is not valid.
pub const LEFT_OUT: &str = "This block is left out";
/// Maximum number of TLS faults in one text.
const FAULTS_NAMED: usize = 3;

/// Required full handshakes of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpectedFull {
    /// A number: the sessions of the block's users.
    Sessions(u64),
    /// A share of its handshakes, 0 to 1.
    Share(f64),
}

impl ExpectedFull {
    /// `handshakes`: number of all completed handshakes.
    fn of(self, handshakes: u64) -> f64 {
        match self {
            ExpectedFull::Sessions(sessions) => sessions as f64,
            ExpectedFull::Share(share) => share * handshakes as f64,
        }
    }
}

/// Required results of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    pub requests: u64,
    /// Expected by the workload and the share of reuse.
    pub full: ExpectedFull,
    /// Further handshakes that may be full: with a share of reuse, the first connections of a block open at once,
    /// before there is any session to resume.
    pub first: u64,
}

impl Expected {
    /// For these users of the workload.
    pub fn of(workload: &Workload, users: std::ops::Range<u32>, load: &Load) -> Result<Expected> {
        let users = &workload.users[users.start as usize..users.end as usize];
        let requests = users.iter().map(|user| u64::from(user.requests.end - user.requests.start)).sum();
        let sessions = |user: &tlsdyno_engine::load::User| {
            let range = user.requests.start as usize..user.requests.end as usize;
            let forgotten = workload.requests[range].iter().skip(1).filter(|request| request.forget_session).count();
            1 + forgotten as u64
        };
        let (full, first) = match load.reuse()? {
            Resumption::Always => (ExpectedFull::Sessions(users.iter().map(sessions).sum()), 0),
            Resumption::Never => (ExpectedFull::Share(1.0), 0),
            Resumption::Share(share) | Resumption::ShareOfEach(share) => {
                (ExpectedFull::Share(1.0 - share), u64::from(load.connections))
            }
        };
        Ok(Expected { requests, full, first })
    }

    /// Full handshakes beyond the declared ones. A user's own server may take fewer sessions than offered; all
    /// configurations must do so alike.
    pub fn achieved(&self, outcome: &Outcome) -> Achieved {
        let handshakes = outcome.handshakes.completed();
        let declared = self.full.of(handshakes);
        let refused = outcome.handshakes.resumed_intended.saturating_sub(outcome.handshakes.resumed_accepted);
        let of_all = |full: f64| full / handshakes.max(1) as f64;
        Achieved { beyond: of_all(outcome.handshakes.full as f64 - declared), refused: of_all(refused as f64) }
    }
}

/// A user makes more than one connection, and may resume.
pub fn resumes(workload: &Workload, load: &Load, http2: bool) -> Result<bool> {
    let several = |user: &User| {
        let requests = &workload.requests[user.requests.start as usize..user.requests.end as usize];
        let again =
            |two: &[Request]| two[0].close_after && !two[1].forget_session || !two[0].page_end && load.width(http2) > 1;
        requests.windows(2).any(again)
            || load.requests_per_connection.is_some_and(|most| requests.len() > most as usize)
    };
    Ok(match load.reuse()? {
        Resumption::Always => workload.users.iter().any(several),
        reuse => reuse != Resumption::Never,
    })
}

/// Reuse of the untouched server, relative to the declared one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Achieved {
    /// Full handshakes beyond the declared ones, as a share of all handshakes.
    pub beyond: f64,
    /// Part of `beyond` that was meant to be resumed: the server refused the session, or had issued none.
    pub refused: f64,
}

impl Achieved {
    /// Without refusals by the server: the rest is the client's, such as connections that open at once, before there is
    /// a session.
    pub fn without_refusals(self) -> Achieved {
        Achieved { beyond: self.beyond - self.refused, refused: 0.0 }
    }
}

/// Limits of a configuration besides its own work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Maximum CPU time of the server, in CPUs.
    pub server_cpus: f64,
    /// Maximum CPU time of the load beside a saturated server, in CPUs.
    pub load_cpus: f64,
    /// CPU time that servers beside the server under test took on the load's CPU, nanoseconds.
    pub beside_load_ns: u64,
    /// The server also waits for an emulated accelerator: its CPU need not be busy when it is the bottleneck.
    pub waits: bool,
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity { server_cpus: 1.0, load_cpus: 1.0, beside_load_ns: 0, waits: false }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// The block may be used.
    pub valid: bool,
    /// Throughput is a bound: the server was not the bottleneck.
    pub client_bound: bool,
    /// Neither the server nor the client was busy all the time.
    pub unsaturated: bool,
    pub warnings: Vec<Warning>,
}

pub fn verify(
    outcome: &Outcome,
    expected: Expected,
    server_cpu_ns: u64,
    as_is: Option<Achieved>,
    capacity: Capacity,
) -> Verdict {
    let Verdict { mut valid, mut warnings, .. } = verify_requests(outcome, expected.requests);
    if let Some(missed) = outcome.http2.as_ref().and_then(missed_http2) {
        valid = false;
        warnings.push(missed);
    }
    if let Some(as_is) = as_is
        && differs(outcome, expected, as_is)
    {
        // It did other work than the untouched server: the difference of their costs would not be that of the stage.
        valid = false;
        warnings.push(reuse_warning(outcome));
    }
    if outcome.handshakes.early_accepted < outcome.handshakes.early_offered {
        let what = format!(
            "early data were taken on {} of the {} connections that sent them",
            outcome.handshakes.early_accepted, outcome.handshakes.early_offered
        );
        let remedy =
            "Tickets that are some seconds older than they should be are refused, and so are those of another server";
        warnings.push(Warning::new("early_data", what).with_remedy(remedy));
    }
    let elapsed = outcome.elapsed_ns.max(1) as f64;
    let client_busy = load_is_busy(outcome, capacity.beside_load_ns, capacity.load_cpus);
    // In a closed loop somebody is always busy: if it is not the client, an accelerator is the server's business.
    let server_busy = capacity.waits || server_cpu_ns as f64 / elapsed >= SERVER_BUSY_MIN * capacity.server_cpus;
    Verdict { valid, client_bound: client_busy || !server_busy, unsaturated: !client_busy && !server_busy, warnings }
}

/// The load had no CPU left. `beside_ns`: CPU time of other programs on its CPUs, if this machine makes it. One
/// saturated worker of several counts: the server waits for it.
pub fn load_is_busy(outcome: &Outcome, beside_ns: u64, load_cpus: f64) -> bool {
    if outcome.parts.is_empty() {
        return busy(outcome.client_cpu_ns + beside_ns, outcome) >= CLIENT_BUSY_MAX * load_cpus;
    }
    outcome.busy_fraction() >= CLIENT_BUSY_MAX
}

/// A program with this CPU time in the block, on one CPU, had none left.
pub fn is_busy(cpu_ns: u64, outcome: &Outcome) -> bool {
    busy(cpu_ns, outcome) >= CLIENT_BUSY_MAX
}

fn busy(cpu_ns: u64, outcome: &Outcome) -> f64 {
    cpu_ns as f64 / outcome.elapsed_ns.max(1) as f64
}

/// Full handshakes differ by more than the tolerance (and more than two connections) from the declared number plus the
/// excess of the untouched server.
pub fn differs(outcome: &Outcome, expected: Expected, as_is: Achieved) -> bool {
    let handshakes = outcome.handshakes.completed();
    let wanted = expected.full.of(handshakes) + as_is.beyond * handshakes as f64;
    // Where the untouched server departs from the declaration, it does not do so evenly over the workload.
    let share = FULL_SHARE_TOLERANCE.max(as_is.beyond.abs() * DEPARTURE_VARIES);
    let tolerance = (handshakes as f64 * share).max(2.0) + expected.first as f64;
    let resumed = handshakes as f64 - wanted;
    let tolerance = if resumed > 0.0 { tolerance.min((REUSE_MISSED_MAX * resumed).max(0.5)) } else { tolerance };
    (outcome.handshakes.full as f64 - wanted).abs() > tolerance
}

/// Warns where clients offered another number of sessions than this percentage of all connections. Each client begins
/// without one, which is no excuse where hardly any connection follows.
pub fn offered_otherwise(outcome: &Outcome, percent: f64, clients: u32) -> Option<Warning> {
    let connections = outcome.handshakes.completed() as f64;
    let off = (outcome.handshakes.resumed_offered as f64 - percent / 100.0 * connections).abs();
    let tolerance = OFFERED_TOLERANCE * connections + f64::from(clients);
    (off > tolerance.min(REUSE_MISSED_MAX * percent / 100.0 * connections)).then(|| reuse_warning(outcome))
}

/// Warns of reuse that was not as declared.
pub fn reuse_warning(outcome: &Outcome) -> Warning {
    warning::reuse(
        outcome.handshakes.resumed_intended,
        outcome.handshakes.resumed_offered,
        outcome.handshakes.resumed_accepted,
    )
}

/// Checks that every request was answered as expected.
pub fn verify_requests(outcome: &Outcome, requests: u64) -> Verdict {
    let mut warnings = error_warnings(outcome, requests);
    if outcome.errors.is_empty() && !outcome.stopped && outcome.hits != requests {
        let what = format!("{} of {requests} requests were answered as expected", outcome.hits);
        warnings.push(Warning::new("requests_missing", what).with_remedy(LEFT_OUT));
    }
    let lost = |what: &String| Warning::new("worker_lost", what).with_remedy(LEFT_OUT);
    warnings.extend(outcome.losses.iter().map(lost));
    warnings.extend(relay_overloaded(outcome));
    let valid = warnings.is_empty() && !outcome.stopped && !outcome.gave_up;
    Verdict { valid, warnings, ..Verdict::default() }
}

/// No answer at all. A block without hits is not enough: in an open loop no request may have been due.
pub fn is_dead(outcome: &Outcome) -> bool {
    let tried = outcome.connections > 0 || outcome.errors.values().any(|count| *count > 0);
    outcome.gave_up || (outcome.hits == 0 && tried && !outcome.stopped)
}

/// `log_tail`: last lines of the server's log, for the end of the message.
pub fn death(name: &str, outcome: &Outcome, log_tail: &str) -> anyhow::Error {
    let kinds = outcome.errors.iter().map(|(kind, count)| format!("{kind} {count} times"));
    let seen = kinds.chain(tls_faults(outcome)).collect::<Vec<_>>().join(", ");
    let seen = if seen.is_empty() { "no request was answered" } else { &seen };
    Fault::Server.wrap(anyhow!("the server of \"{name}\" answers no more ({seen}){log_tail}"))
}

/// Warns of failed requests and TLS faults.
fn error_warnings(outcome: &Outcome, requests: u64) -> Vec<Warning> {
    let mut warnings: Vec<Warning> = outcome
        .errors
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(kind, count)| warning::errors(kind.name(), *count, requests))
        .collect();
    if let Some(what) = tls_faults(outcome) {
        warnings.push(Warning::new("tls_faults", what).with_remedy("The server's error log tells its side"));
    }
    warnings
}

/// The TLS faults of a run with their counts, if there were any.
fn tls_faults(outcome: &Outcome) -> Option<String> {
    let named = outcome.tls_faults.iter().take(FAULTS_NAMED);
    let texts: Vec<String> = named.map(|(fault, count)| format!("{fault} ({count} times)")).collect();
    (!texts.is_empty()).then(|| format!("TLS failed: {}", texts.join("; ")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tlsdyno_engine::load::{ErrorKind, Handshakes};

    use super::*;

    const EXPECTED: Expected = Expected { requests: 1000, full: ExpectedFull::Sessions(100), first: 0 };
    const AS_DECLARED: Option<Achieved> = Some(Achieved { beyond: 0.0, refused: 0.0 });

    fn handshakes(full: u64, resumed_intended: u64, resumed_offered: u64, resumed_accepted: u64) -> Handshakes {
        Handshakes { full, resumed_intended, resumed_offered, resumed_accepted, ..Handshakes::default() }
    }

    fn outcome() -> Outcome {
        Outcome {
            hits: 1000,
            connections: 400,
            handshakes: handshakes(100, 300, 300, 300),
            elapsed_ns: 1_000_000_000,
            client_cpu_ns: 300_000_000,
            ..Outcome::default()
        }
    }

    fn check(outcome: &Outcome) -> Verdict {
        verify(outcome, EXPECTED, 990_000_000, AS_DECLARED, Capacity::default())
    }

    #[test]
    fn a_good_block_passes_without_a_word() {
        assert_eq!(check(&outcome()), Verdict { valid: true, ..Verdict::default() });
    }

    #[test]
    fn errors_and_missing_hits_make_it_invalid() {
        let failed = Outcome { errors: BTreeMap::from([(ErrorKind::Reset, 3)]), hits: 997, ..outcome() };
        let verdict = check(&failed);
        assert!(!verdict.valid && verdict.warnings.len() == 1, "{verdict:?}");
        assert!(!check(&Outcome { hits: 999, ..outcome() }).valid);
        assert!(!check(&Outcome { stopped: true, ..outcome() }).valid);
        let tls_faults = BTreeMap::from([("alert bad_record_mac".to_owned(), 3)]);
        let named = check(&Outcome { tls_faults, ..failed });
        assert!(named.warnings.iter().any(|warning| warning.to_string().contains("alert bad_record_mac (3 times)")));
    }

    #[test]
    fn a_block_that_reuses_otherwise_than_the_untouched_server_is_invalid() {
        let refused = Outcome { handshakes: handshakes(250, 300, 300, 150), ..outcome() };
        let verdict = check(&refused);
        assert!(!verdict.valid && verdict.warnings == [warning::reuse(300, 300, 150)]);
        let alike = Some(EXPECTED.achieved(&refused));
        assert!(
            verify(&refused, EXPECTED, 990_000_000, alike, Capacity::default()).valid,
            "the untouched server did the same"
        );
        assert!(
            !verify(&outcome(), EXPECTED, 990_000_000, alike, Capacity::default()).valid,
            "it reuses more than the untouched server"
        );
        assert!(
            verify(&refused, EXPECTED, 990_000_000, None, Capacity::default()).valid,
            "plain HTTP has no handshakes"
        );
    }

    #[test]
    fn shares_of_reuse_are_checked_too() {
        let never = Expected { full: ExpectedFull::Share(1.0), ..EXPECTED };
        let all_full = Outcome { handshakes: handshakes(400, 300, 300, 0), ..outcome() };
        assert!(verify(&all_full, never, 990_000_000, AS_DECLARED, Capacity::default()).valid);
        assert!(!verify(&outcome(), never, 990_000_000, AS_DECLARED, Capacity::default()).valid);
        let share = Expected { full: ExpectedFull::Share(0.25), ..EXPECTED };
        assert!(verify(&outcome(), share, 990_000_000, AS_DECLARED, Capacity::default()).valid);
        assert!(!verify(&all_full, share, 990_000_000, AS_DECLARED, Capacity::default()).valid);
    }

    #[test]
    fn a_short_block_without_any_reuse_is_invalid_however_many_clients_there_are() {
        let none = |handshakes| Outcome { handshakes, ..outcome() };
        let half = Expected { full: ExpectedFull::Share(0.5), first: 16, ..EXPECTED };
        assert!(differs(&none(handshakes(30, 15, 0, 0)), half, Achieved::default()));
        assert!(!differs(&none(handshakes(17, 13, 13, 13)), half, Achieved::default()));
        let two = Expected { full: ExpectedFull::Sessions(2), ..EXPECTED };
        assert!(differs(&none(handshakes(4, 2, 2, 0)), two, Achieved::default()));
        assert!(!differs(&none(handshakes(2, 2, 2, 2)), two, Achieved::default()));
        assert!(offered_otherwise(&none(handshakes(60, 40, 0, 0)), 80.0, 64).is_some());
        assert!(offered_otherwise(&none(handshakes(20, 45, 40, 40)), 80.0, 64).is_none());
    }

    #[test]
    fn the_bottleneck_is_named() {
        let idle = verify(&outcome(), EXPECTED, 700_000_000, AS_DECLARED, Capacity::default());
        assert!(idle.client_bound && idle.unsaturated, "neither side was busy");
        let busy = Outcome { client_cpu_ns: 960_000_000, ..outcome() };
        for server_cpu_ns in [990_000_000, 700_000_000] {
            let verdict = verify(&busy, EXPECTED, server_cpu_ns, AS_DECLARED, Capacity::default());
            assert!(verdict.client_bound && !verdict.unsaturated, "a busy client");
        }
    }

    #[test]
    fn emulated_processors_are_busy_at_their_own_speed() {
        let of = |server_cpu_ns, client_cpu_ns, capacity| {
            let outcome = Outcome { client_cpu_ns, ..outcome() };
            verify(&outcome, EXPECTED, server_cpu_ns, AS_DECLARED, capacity)
        };
        let slow = Capacity { server_cpus: 0.7, load_cpus: 0.65, ..Capacity::default() };
        assert!(!of(690_000_000, 300_000_000, slow).client_bound, "saturated at 0.7 CPUs");
        assert!(of(500_000_000, 300_000_000, slow).unsaturated);
        assert!(of(690_000_000, 640_000_000, slow).client_bound, "the load has used up its rest");
        let waiting = Capacity { waits: true, ..slow };
        assert!(!of(100_000_000, 300_000_000, waiting).client_bound, "the accelerator is the bottleneck");
        assert!(of(100_000_000, 640_000_000, waiting).client_bound);
    }

    #[test]
    fn a_backend_on_the_loads_cpu_makes_it_busy_too() {
        let beside = Capacity { beside_load_ns: 660_000_000, ..Capacity::default() };
        let verdict = verify(&outcome(), EXPECTED, 700_000_000, AS_DECLARED, beside);
        assert!(verdict.client_bound && !verdict.unsaturated);
    }

    #[test]
    fn expectations_come_from_the_workload() {
        let plain = Request { object: 0, page_end: true, close_after: false, forget_session: false };
        let anew = Request { forget_session: true, ..plain };
        let workload = Workload {
            objects: Vec::new(),
            requests: vec![plain, plain, anew, plain],
            users: vec![User { requests: 0..3 }, User { requests: 3..4 }],
            order: Vec::new(),
            at_ms: Vec::new(),
        };
        let expected = |reuse_percent| {
            let load = Load { reuse_percent, connections: 16, ..Load::default() };
            Expected::of(&workload, 0..2, &load).unwrap()
        };
        assert_eq!(expected(None), Expected { requests: 4, full: ExpectedFull::Sessions(3), first: 0 });
        assert_eq!(expected(Some(0.0)).full, ExpectedFull::Share(1.0));
        assert_eq!(expected(Some(75.0)), Expected { requests: 4, full: ExpectedFull::Share(0.25), first: 16 });
    }

    #[test]
    fn connections_resume_where_a_user_makes_several_of_one_session() {
        let plain = Request { object: 0, page_end: true, close_after: false, forget_session: false };
        let of = |requests: [Request; 3], load: Load| {
            let (requests, users) = (requests.to_vec(), vec![User { requests: 0..3 }]);
            resumes(&Workload { requests, users, ..Workload::default() }, &load, false).unwrap()
        };
        let of_one = |reuse_percent| Load { reuse_percent, ..Load::default() };
        assert!(!of([plain; 3], of_one(None)), "one connection");
        assert!(of([plain; 3], Load { requests_per_connection: Some(2), ..Load::default() }));
        let (closed, anew) = (Request { close_after: true, ..plain }, Request { forget_session: true, ..plain });
        assert!(of([closed, plain, plain], of_one(None)) && !of([closed, anew, plain], of_one(None)));
        let page = [Request { page_end: false, ..plain }, plain, plain];
        assert!(
            of(page, of_one(None)) && !of(page, Load { per_user: 1, ..Load::default() }),
            "several beside each other"
        );
        assert!(of([plain; 3], of_one(Some(50.0))) && !of([closed; 3], of_one(Some(0.0))));
    }

    #[test]
    fn what_the_client_does_by_itself_is_expected_of_servers_that_refuse_nobody_too() {
        let expected = Expected { requests: 300, full: ExpectedFull::Sessions(25), first: 0 };
        let outcome = Outcome { handshakes: handshakes(100, 220, 0, 200), ..Default::default() };
        let achieved = expected.achieved(&outcome);
        assert!((achieved.beyond - 0.25).abs() < 1e-9, "{achieved:?}");
        let others = achieved.without_refusals();
        let perfect = Outcome { handshakes: handshakes(80, 220, 0, 220), ..outcome };
        assert!(!differs(&perfect, expected, others));
        assert!(differs(&perfect, expected, Achieved::default()));
    }

    #[test]
    fn a_block_in_which_nobody_came_is_not_the_end() {
        assert!(!is_dead(&Outcome::default()) && !is_dead(&outcome()));
        assert!(is_dead(&Outcome { connections: 3, ..Outcome::default() }), "they are accepted and hang");
        let refused = BTreeMap::from([(ErrorKind::Refused, 3)]);
        assert!(is_dead(&Outcome { errors: refused, ..Outcome::default() }));
        assert!(is_dead(&Outcome { gave_up: true, ..outcome() }));
        assert!(!is_dead(&Outcome { connections: 3, stopped: true, ..Outcome::default() }), "Ctrl-C");
    }
}
