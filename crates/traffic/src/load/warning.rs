//! What `tlsdyno load` warns of: each says what happened, why as far as the counts tell, and what to do.

use tlsdyno_base::units::{format_count, format_duration, format_percent, format_quantity};
use tlsdyno_engine::load::{ErrorKind, Handshakes, Http2Use, LoopOutcome, Outcome};
use tlsdyno_record::store::Warning;
use tlsdyno_record::store::load_run::Asked;
use tlsdyno_record::store::warning::{REUSE_MISSED_MAX, cause_of_reuse, code};

use crate::load::diagnosis::{self, Sent};

pub const WORKER_LOST: &str = "worker_lost";
/// The relay of a network did more than it can be trusted with.
pub const RELAY_OVERLOADED: &str = "relay_overloaded";
const RATE_MISSED: &str = "rate_missed";
const HITS_PER_HANDSHAKE_MISSED: &str = "hits_per_handshake_missed";
const EARLY_DATA_MISSED: &str = "early_data_missed";
const HTTP2_MISSED: &str = "http2_missed";

pub fn is_a_miss(warning: &Warning) -> bool {
    let misses = [
        WORKER_LOST,
        RELAY_OVERLOADED,
        code::REUSE,
        RATE_MISSED,
        HITS_PER_HANDSHAKE_MISSED,
        EARLY_DATA_MISSED,
        HTTP2_MISSED,
    ];
    misses.contains(&warning.code.as_str())
}

/// A client at least this busy is taken for the bottleneck (`docs/METHODOLOGY.md`, "Two metrics").
const CLIENT_BOUND: f64 = 0.95;

pub fn is_client_bound(outcome: &Outcome) -> bool {
    outcome.busy_fraction() >= CLIENT_BOUND && outcome.hits > 0
}

/// Loops of one load may begin so far apart, in nanoseconds, and not by more than a hundredth of the run.
const SKEW_NS_MAX: u64 = 10_000_000;

/// Reuse asked for and achieved may differ by this much, in percentage points.
const REUSE_TOLERANCE: f64 = 0.5;

/// The tolerance with `--strict`.
const STRICT_REUSE_TOLERANCE: f64 = 0.2;

/// Of the packets of a network more than this share late, and delays are not those that were asked for. A busy virtual
/// machine makes one in fifty late, which leaves medians as they are.
const LATE_MAX: f64 = 0.05;

/// That a network's relay was near its limit, where it was: above half of it the times are not the network's alone.
pub fn relay_overloaded(outcome: &Outcome) -> Option<Warning> {
    let relayed = outcome.relayed.filter(|relayed| relayed.packets > 0)?;
    let per_second = relayed.packets as f64 * 1e9 / outcome.elapsed_ns.max(1) as f64;
    let late = relayed.late_count as f64 / relayed.packets as f64;
    let half = relayed.limit_per_second as f64 / 2.0;
    let is_trusted = per_second <= half && late <= LATE_MAX && relayed.missed_count == 0;
    let what = || {
        format!(
            "the relay of the network carried {} of at most {} packets a second, {} of them more than 1 ms late, and \
             missed {}: what was measured is not the network's alone",
            format_quantity(per_second),
            format_count(relayed.limit_per_second),
            format_percent(late * 100.0),
            format_count(relayed.missed_count)
        )
    };
    let remedy = "Stay below half of that: fewer --connections, a lower --rate, or a CPU of its own for the load";
    (!is_trusted).then(|| Warning::new(RELAY_OVERLOADED, what()).with_remedy(remedy))
}

pub fn warnings(outcome: &Outcome, sent: &Sent, asked: &Asked, strict: bool) -> Vec<Warning> {
    let mut warnings: Vec<Warning> = outcome.losses.iter().map(|what| Warning::new(WORKER_LOST, what)).collect();
    warnings.extend(relay_overloaded(outcome));
    let busy = outcome.busy_fraction();
    if is_client_bound(outcome) {
        let of_loop = busiest(outcome).map(|part| part.name.clone());
        warnings.push(client_bound(busy, of_loop));
    }
    let skew_ns = outcome.parts.iter().map(|part| part.began_after_ns).max().unwrap_or(0);
    if skew_ns > SKEW_NS_MAX || skew_ns > outcome.elapsed_ns / 100 {
        let what = format!(
            "the loops of the load began {} apart: its first moments had less load than asked for",
            format_duration(skew_ns as f64)
        );
        let remedy = "Other programs keep CPUs or the network busy; use fewer --threads, or a longer --duration";
        warnings.push(Warning::new("skew", what).with_remedy(remedy));
    }
    let tolerance = if strict { STRICT_REUSE_TOLERANCE } else { REUSE_TOLERANCE };
    warnings.extend(asked.reuse_percent.and_then(|percent| missed_reuse(&outcome.handshakes, percent, tolerance)));
    warnings.extend(missed_rate(outcome, asked));
    warnings.extend(missed_hits_per_handshake(outcome, asked));
    let counts = outcome.handshakes;
    if asked.early_data && counts.early_accepted == 0 && counts.resumed_offered > 0 {
        warnings.push(early_data_missed(counts.resumed_offered, counts.early_offered));
    }
    warnings.extend(outcome.http2.as_ref().and_then(missed_http2));
    for (&kind, &times) in outcome.errors.iter().filter(|(kind, _)| kind.is_local()) {
        let what = format!("{times} connections could not be opened: {}", diagnosis::of_kind(kind));
        warnings.push(Warning::new("no_resources", what));
    }
    if let Some(&times) = outcome.errors.get(&ErrorKind::Cut) {
        let what = format!(
            "{times} requests were under way at the end, and were cut because --timeout later they were not complete; \
             they are in no latency"
        );
        let remedy = "The server or the network is slow: wait longer (--timeout), or bound what a request may take \
                      (--total-timeout)";
        warnings.push(Warning::new("cut", what).with_remedy(remedy));
    }
    warnings.extend(unexpected_statuses(outcome, asked));
    if outcome.gave_up {
        let why = diagnosis::explain(outcome, sent);
        let what = format!("next to nothing succeeded any more, so the run ended early: {why}");
        warnings.push(Warning::new("gave_up", what));
    }
    warnings
}

fn unexpected_statuses(outcome: &Outcome, asked: &Asked) -> Option<Warning> {
    let times = *outcome.errors.get(&ErrorKind::Status)?;
    let Some(expected) = asked.status else {
        let all = outcome.statuses.iter().map(|(status, times)| format!("{} × {status}", format_count(*times)));
        let what = format!(
            "{times} responses had another status than the workload has for their requests, and are no hits (all \
             responses: {})",
            all.collect::<Vec<_>>().join(", ")
        );
        let remedy = "The site may have changed since; a server of the files that `tlsdyno trace import` wrote needs \
                      --imported";
        return Some(Warning::new("other_statuses", what).with_remedy(remedy));
    };
    // A redirect that was followed is no failure.
    let followed = outcome.redirects_followed + outcome.redirects_unfinished > 0;
    let failed = |status: u16| status != expected && !(followed && (300..400).contains(&status));
    let others = outcome.statuses.iter().filter(|(status, _)| failed(**status));
    let (came, times) = others.max_by_key(|(_, times)| **times)?;
    let what = format!(
        "{times} responses had status {came} instead of {expected} and are no hits; correct the URL, or say \
         --expect-status {came}"
    );
    Some(Warning::new("unexpected_status", what))
}

/// The loop that used most of its CPU, if there were several.
fn busiest(outcome: &Outcome) -> Option<&LoopOutcome> {
    outcome.parts.iter().max_by(|a, b| a.busy_fraction().total_cmp(&b.busy_fraction()))
}

/// Another share of handshakes was resumed than `asked`, by more than `tolerance`; all in percent. It is not missed
/// where no number of handshakes is nearer, or where the rule of the running counter, which all kept to, makes the
/// difference of one.
pub fn missed_reuse(counts: &Handshakes, asked: f64, tolerance: f64) -> Option<Warning> {
    let (all, achieved) = (counts.completed(), counts.resumed_percent()?);
    let off = (achieved - asked).abs() * all as f64 / 100.0;
    // What is computed of percentages may be off by the last digits.
    let is_nearest = off < 1.0 - 1e-9 || off <= 1.0 + 1e-9 && counts.resumed_accepted == counts.resumed_intended;
    if is_nearest || (achieved - asked).abs() <= tolerance {
        return None;
    }
    let too_few = || {
        let remedy = "Make more: a longer --duration, or fewer requests on each (--requests-per-connection 1)";
        (format!("{all} connections are too few for it"), remedy)
    };
    let (cause, remedy) = cause_of_reuse(counts.resumed_intended, counts.resumed_offered, counts.resumed_accepted)
        .unwrap_or_else(too_few);
    let what = format!("{achieved:.1} % of the connections were resumed, not {asked:.1} %: {cause}");
    Some(Warning::new(code::REUSE, what).with_remedy(remedy))
}

/// More of the requests that were due remained unsent than one in a thousand.
pub fn is_rate_missed(unserved: u64, due: u64) -> bool {
    unserved * 1000 > due
}

fn missed_rate(outcome: &Outcome, asked: &Asked) -> Option<Warning> {
    let due = outcome.hits + outcome.errors.values().sum::<u64>() + outcome.unserved;
    is_rate_missed(outcome.unserved, due).then(|| {
        let schedule = asked.rate_per_second.map_or("by the trace".to_owned(), |rate| format!("at {rate} /s"));
        let what = format!(
            "{} of {due} requests that were due {schedule} could not be sent in the time, and are in no latency: the \
             server does not keep up, or these are too few connections for its latency (--connections)",
            outcome.unserved
        );
        Warning::new(RATE_MISSED, what)
    })
}

/// The server did not choose HTTP/2 where it was offered.
pub fn missed_http2(http2: &Http2Use) -> Option<Warning> {
    let (downgraded, all) = (http2.downgraded_count, http2.chosen_count + http2.downgraded_count);
    let what = || {
        format!(
            "the server did not choose HTTP/2 on {} of {} connections: requests on them were made in HTTP/1.1, one \
             after the other",
            format_count(downgraded),
            format_count(all)
        )
    };
    let remedy = "Switch HTTP/2 on in the server (nginx: listen … ssl http2; Apache: Protocols h2 http/1.1; HAProxy: \
                  alpn h2,http/1.1), or leave out --http2";
    (downgraded > 0).then(|| Warning::new(HTTP2_MISSED, what()).with_remedy(remedy))
}

fn missed_hits_per_handshake(outcome: &Outcome, asked: &Asked) -> Option<Warning> {
    let hits = asked.hits_per_handshake?;
    let full = outcome.handshakes.full;
    let least = outcome.hits.div_ceil(u64::from(hits));
    // The session that each user is in when the run ends need not be used up.
    let fits = (least..=least + u64::from(asked.users)).contains(&full);
    if !fits && full > 0 {
        return Some(hits_per_handshake_missed(hits, outcome.hits as f64 / full as f64));
    }
    too_few_hits(outcome.hits, full, hits)
}

/// Warns where the first handshakes of clients are so many of all requests that the reuse that was asked for cannot
/// come.
pub fn too_few_hits(hits: u64, full: u64, asked: u32) -> Option<Warning> {
    let reuse = |hits: f64| 1.0 - 1.0 / hits;
    let achieved = hits as f64 / full.max(1) as f64;
    (hits > 0 && reuse(achieved) < (1.0 - REUSE_MISSED_MAX) * reuse(asked.into())).then(|| {
        let what = format!("{hits} requests with {full} full handshakes are too few for {asked} requests for each");
        Warning::new(HITS_PER_HANDSHAKE_MISSED, what).with_remedy("Measure longer, or with fewer --connections")
    })
}

/// Another number of requests was made for each full handshake than asked for.
pub fn hits_per_handshake_missed(asked: u32, achieved: f64) -> Warning {
    let what = format!(
        "{achieved:.1} requests were made for each full handshake, not {asked}: the server closed connections early \
         (nginx: keepalive_requests) and did not resume the session, or requests failed"
    );
    Warning::new(HITS_PER_HANDSHAKE_MISSED, what)
}

/// `busy`: share of one core, 0 to 1, of the client or of the busiest of its loops.
fn client_bound(busy: f64, of_loop: Option<String>) -> Warning {
    let (who, more) = match of_loop {
        Some(name) => (format!("{name} of the client"), "more CPUs"),
        None => ("the client".to_owned(), "several CPUs"),
    };
    let what = format!(
        "{who} was the bottleneck ({:.0} % of a core): hits/s is a lower bound of what the server can do",
        busy * 100.0
    );
    let remedy = format!("Load from {more} (--threads N or auto), or lower the effort (--effort lean)");
    Warning::new("client_bound", what).with_remedy(remedy)
}

/// `offered`: connections that sent a request with the hello.
fn early_data_missed(resumed_offered: u64, offered: u64) -> Warning {
    let what = match offered {
        0 => format!(
            "no request went with the hello: none of {resumed_offered} sessions offered allows early data; switch it \
             on in the server (nginx: ssl_early_data on), and use TLS 1.3"
        ),
        _ => format!(
            "the server refused the early data of all {offered} connections that sent some: a guard against replays \
             takes a ticket once (OpenSSL), or its tickets are older than its key"
        ),
    };
    Warning::new(EARLY_DATA_MISSED, what)
}

#[cfg(test)]
mod tests {
    use tlsdyno_engine::load::Relayed;

    use super::*;

    fn outcome(full: u64, resumed_intended: u64, resumed_offered: u64, resumed_accepted: u64) -> Outcome {
        let handshakes =
            Handshakes { full, resumed_intended, resumed_offered, resumed_accepted, ..Handshakes::default() };
        let connections = full + resumed_accepted;
        Outcome { hits: 1, connections, handshakes, elapsed_ns: 100, client_cpu_ns: 50, ..Outcome::default() }
    }

    fn raised(outcome: &Outcome, reuse_percent: Option<f64>, status: Option<u16>) -> Vec<Warning> {
        warnings(outcome, &Sent::default(), &Asked { reuse_percent, status, ..Asked::default() }, false)
    }

    #[test]
    fn rate_and_hits_per_handshake_can_be_missed() {
        let asked = Asked { rate_per_second: Some(100.0), ..Asked::default() };
        let mut slow = Outcome { hits: 9_989, unserved: 11, ..outcome(1, 0, 0, 0) };
        let [missed] = &warnings(&slow, &Sent::default(), &asked, false)[..] else { panic!("one warning") };
        assert!(missed.what.starts_with("11 of 10000 requests that were due at 100 /s"), "{missed}");
        slow.unserved = 9;
        assert_eq!(warnings(&slow, &Sent::default(), &asked, false), []);
        let asked = Asked { hits_per_handshake: Some(10), users: 4, ..Asked::default() };
        let warned =
            |hits, full| warnings(&Outcome { hits, ..outcome(full, 0, 0, 0) }, &Sent::default(), &asked, false);
        assert_eq!(warned(1000, 100), []);
        assert_eq!(warned(1000, 104), []);
        assert_eq!(warned(1050, 210), [hits_per_handshake_missed(10, 5.0)]);
        assert_eq!(warned(990, 90), [hits_per_handshake_missed(10, 11.0)]);
        // Each of four users made one request: 90 % was asked for, and none came.
        let [few] = &warned(4, 4)[..] else { panic!("one warning") };
        assert!(few.what.starts_with("4 requests with 4 full handshakes are too few"), "{few}");
        assert_eq!(warned(30, 6), []);
    }

    #[test]
    fn a_relay_above_half_of_its_limit_is_not_trusted() {
        let warned = |packets, late_count, missed_count| {
            let relayed =
                Some(Relayed { packets, late_count, missed_count, limit_per_second: 1_000, ..Relayed::default() });
            relay_overloaded(&Outcome { relayed, elapsed_ns: 2_000_000_000, ..outcome(1, 0, 0, 0) })
        };
        assert_eq!([warned(1_000, 50, 0), warned(0, 0, 0)], [const { None }; 2]);
        let told = warned(1_002, 0, 0).unwrap();
        assert!(told.what.contains("carried 501 of at most 1,000") && is_a_miss(&told), "{told}");
        assert!([warned(100, 6, 0), warned(100, 0, 1)].iter().all(Option::is_some));
    }

    #[test]
    fn strict_is_stricter() {
        let slightly = outcome(5035, 4965, 4965, 4965);
        let asked = Asked { reuse_percent: Some(50.0), ..Asked::default() };
        assert_eq!(warnings(&slightly, &Sent::default(), &asked, false), []);
        assert!(is_a_miss(&warnings(&slightly, &Sent::default(), &asked, true)[0]));
    }

    #[test]
    fn missed_reuse_names_its_cause() {
        assert_eq!(raised(&outcome(5000, 5000, 5000, 5000), Some(50.0), None), []);
        assert_eq!(raised(&outcome(5049, 4951, 4951, 4951), Some(50.0), None), []);
        let cause = |full, intended, offered, accepted| {
            let raised = raised(&outcome(full, intended, offered, accepted), Some(50.0), None);
            let [missed] = &raised[..] else { panic!("{raised:?}") };
            missed.what.split_once("%: ").map(|(_, cause)| cause.to_owned()).unwrap_or_default()
        };
        assert_eq!(cause(10_000, 9_999, 0, 0), "9999 were to resume, but the server issued no session");
        assert_eq!(cause(7_500, 5_000, 5_000, 2_500), "the server took 2500 of 5000 sessions offered");
        assert_eq!(cause(4, 1, 1, 1), "5 connections are too few for it");
        // Of 352 sessions two were refused: several servers would refuse half.
        let guesses = |refused: u64| {
            let outcome = outcome(352 + refused, 352, 352, 352 - refused);
            raised(&outcome, Some(50.0), None)[0].to_string().contains("may be several servers")
        };
        assert!(guesses(176) && !guesses(10), "{}", raised(&outcome(362, 352, 352, 342), Some(50.0), None)[0]);
    }

    #[test]
    fn as_near_as_possible_is_not_missed() {
        let missed =
            |full, accepted, asked| missed_reuse(&outcome(full, accepted, accepted, accepted).handshakes, asked, 0.2);
        assert_eq!(
            [missed(31, 30, 50.0), missed(30, 31, 50.0), missed(1, 60, 100.0), missed(1, 0, 50.0)],
            [const { None }; 4]
        );
        assert!(missed(33, 28, 50.0).is_some());
        let refused = outcome(2, 1, 1, 0);
        assert!(missed_reuse(&refused.handshakes, 50.0, 0.2).is_some(), "one of two was to be resumed, and none was");
    }

    /// A log's own 404 is as expected; what is not is told with all that came.
    #[test]
    fn statuses_of_a_workload_are_told_apart_from_expected_ones() {
        let mut of_log = outcome(1, 0, 0, 0);
        of_log.statuses.extend([(200, 900), (404, 40)]);
        assert_eq!(raised(&of_log, None, None), []);
        of_log.errors.insert(ErrorKind::Status, 60);
        of_log.statuses.insert(502, 60);
        let [told] = &raised(&of_log, None, None)[..] else { panic!("one warning") };
        let told = told.to_string();
        assert!(told.starts_with("60 responses") && told.contains("900 × 200, 40 × 404, 60 × 502"), "{told}");
        let mut redirected = outcome(1, 0, 0, 0);
        redirected.redirects_followed = 100;
        redirected.errors.insert(ErrorKind::Status, 40);
        redirected.statuses.extend([(302, 100), (200, 60), (404, 40)]);
        let [told] = &raised(&redirected, None, Some(200))[..] else { panic!("one warning") };
        assert!(told.what.starts_with("40 responses had status 404 instead of 200"), "{told}");
    }

    #[test]
    fn early_data_that_nobody_took_has_two_causes() {
        let asked = Asked { early_data: true, ..Asked::default() };
        let raised = |early_offered, early_accepted| {
            let mut outcome = outcome(1, 9, 9, 9);
            (outcome.handshakes.early_offered, outcome.handshakes.early_accepted) = (early_offered, early_accepted);
            warnings(&outcome, &Sent::default(), &asked, false)
        };
        for (offered, cause) in [(0, "none of 9 sessions offered allows"), (8, "refused the early data of all 8")] {
            let [missed] = &raised(offered, 0)[..] else { panic!("{offered} offered") };
            assert!(is_a_miss(missed) && missed.to_string().contains(cause), "{missed}");
        }
        assert_eq!(raised(8, 7), [], "most of it");
    }

    #[test]
    fn a_saturated_loop_is_named_and_so_is_a_late_one() {
        let part = |name: &str, client_cpu_ns, began_after_ns| LoopOutcome {
            name: name.to_owned(),
            hits: 1,
            connections: 1,
            handshakes: Handshakes::default(),
            errors: 0,
            began_after_ns,
            elapsed_ns: 100_000_000,
            client_cpu_ns,
        };
        let warned = |began_after_ns, client_cpu_ns| {
            let parts = vec![part("loop 1 on CPU 4", 1, 0), part("loop 2 on CPU 5", client_cpu_ns, began_after_ns)];
            let outcome = Outcome { parts, elapsed_ns: 100_000_000, client_cpu_ns: 60_000_000, ..outcome(1, 0, 0, 0) };
            raised(&outcome, None, None).iter().map(Warning::to_string).collect::<Vec<_>>()
        };
        assert_eq!(warned(1_000_000, 94_000_000), [""; 0]);
        let [bound] = &warned(0, 97_000_000)[..] else { panic!("one warning") };
        assert!(bound.contains("loop 2 on CPU 5") && bound.contains("97 %") && bound.contains("--threads"), "{bound}");
        let [late] = &warned(1_100_000, 1)[..] else { panic!("one warning") };
        assert!(late.contains("1.10 ms"), "{late}");
    }

    #[test]
    fn the_other_doubts_are_raised() {
        let mut doubtful = outcome(1, 0, 0, 0);
        doubtful.client_cpu_ns = 99;
        doubtful.gave_up = true;
        doubtful.errors.extend([(ErrorKind::Ports, 3), (ErrorKind::Status, 4), (ErrorKind::Cut, 2)]);
        doubtful.statuses.extend([(200, 9), (301, 3), (404, 1)]);
        let raised = raised(&doubtful, None, Some(200));
        let codes: Vec<&str> = raised.iter().map(|warning| warning.code.as_str()).collect();
        assert_eq!(codes, ["client_bound", "no_resources", "cut", "unexpected_status", "gave_up"]);
        assert!(raised.iter().all(|warning| warning.to_string().len() > 40));
    }
}
