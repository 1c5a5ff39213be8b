//! What makes a block of an array valid: every page came, the reuse that was asked for came out, and no machine had
//! more CPU time than its quota.

use tlsdyno_engine::load::Outcome;
use tlsdyno_load::curve::file::hits_per_handshake;
use tlsdyno_record::store::Warning;
use tlsdyno_runner::run::verify::{LEFT_OUT, Verdict, offered_otherwise, verify_requests};
use tlsdyno_stats::reuse::ReuseAxis;

use crate::array::file::{ArrayExperiment, ArrayPlace};
use crate::several_machines::block::client_bound;
use crate::several_machines::testbed::Usage;

/// A quota is in force up to this part more: the kernel ends a turn at its next tick and takes the rest from the next
/// period, so that a block may hold a period more.
const QUOTA_TOLERANCE: f64 = 0.05;
/// Time by which a quota may be exceeded in a block however short it is, nanoseconds.
const QUOTA_SLACK_NS: f64 = 2e7;
/// Full handshakes of a block may be more or fewer than was asked for by this part: clients renew in turns, but a block
/// begins and ends amid sessions.
const FULL_TOLERANCE: f64 = 0.2;
/// Code of a block whose full handshakes are not those asked for.
pub const HITS_PER_HANDSHAKE: &str = "hits_per_handshake";

/// Checks one block. `used`: CPU times of the block.
pub fn verify(experiment: &ArrayExperiment, place: &ArrayPlace, outcome: &Outcome, used: &Usage) -> Verdict {
    let Verdict { mut valid, mut warnings, .. } = verify_requests(outcome, outcome.hits);
    if let Some(warning) = missed_reuse(experiment, place, outcome) {
        valid = false;
        warnings.push(warning);
    }
    let quota = experiment.array.machine_cpus;
    let most = quota * outcome.elapsed_ns as f64 * (1.0 + QUOTA_TOLERANCE) + QUOTA_SLACK_NS;
    if let Some(fullest) = used.ends_ns.iter().max().filter(|ns| **ns as f64 > most) {
        let cpus = *fullest as f64 / outcome.elapsed_ns.max(1) as f64;
        let what = format!("a machine used {cpus:.3} CPUs under a quota of {quota}");
        valid = false;
        warnings.push(Warning::new("quota_exceeded", what).with_remedy(LEFT_OUT));
    }
    let client_bound = client_bound(outcome, used.dispatcher_ns, true);
    Verdict { valid, client_bound, warnings, ..Verdict::default() }
}

/// What to say where other reuse came out than was asked for.
fn missed_reuse(experiment: &ArrayExperiment, place: &ArrayPlace, outcome: &Outcome) -> Option<Warning> {
    let percent = place.percent?;
    if experiment.array.by == ReuseAxis::Connections {
        return offered_otherwise(outcome, percent, experiment.array.clients_count);
    }
    let each = hits_per_handshake(percent).ok()?;
    let (hits, full) = (outcome.hits, outcome.handshakes.full);
    let asked = hits as f64 / f64::from(each);
    ((full as f64 - asked).abs() > FULL_TOLERANCE * asked).then(|| {
        let what = format!(
            "{hits} requests and {full} full handshakes came in place of {each} requests for each full handshake"
        );
        let remedy = "This block is left out. Where all of a place are, they are too short for it, or its clients \
                      never get past their first handshakes: leave so much reuse out, or take fewer --clients or a \
                      shorter --transaction";
        Warning::new(HITS_PER_HANDSHAKE, what).with_remedy(remedy)
    })
}

#[cfg(test)]
mod tests {
    use tlsdyno_engine::load::{Handshakes, LoopOutcome};

    use super::*;
    use crate::array::file::Spread;

    fn outcome() -> Outcome {
        Outcome {
            hits: 1000,
            connections: 100,
            handshakes: Handshakes { full: 100, ..Handshakes::default() },
            elapsed_ns: 1_000_000_000,
            client_cpu_ns: 400_000_000,
            ..Outcome::default()
        }
    }

    fn check(outcome: &Outcome, ends_ns: u64) -> Verdict {
        let place = ArrayPlace { spread: Spread::Client, proxies: 1, percent: Some(90.0) };
        let used = Usage { ends_ns: vec![ends_ns], ..Usage::default() };
        verify(&ArrayExperiment::default(), &place, outcome, &used)
    }

    #[test]
    fn a_good_block_passes_without_a_word() {
        assert_eq!(check(&outcome(), 100_000_000), Verdict { valid: true, ..Verdict::default() });
    }

    #[test]
    fn sessions_that_run_out_make_it_invalid() {
        let mut experiment = ArrayExperiment::default();
        experiment.array.by = ReuseAxis::Connections;
        let place = ArrayPlace { spread: Spread::Client, proxies: 1, percent: Some(90.0) };
        let check = |resumed_offered| {
            let handshakes = Handshakes {
                full: 1000 - resumed_offered,
                resumed_intended: 900,
                resumed_offered,
                resumed_accepted: resumed_offered,
                ..Handshakes::default()
            };
            let outcome = Outcome { handshakes, ..outcome() };
            verify(&experiment, &place, &outcome, &Usage::default())
        };
        assert!(check(900).valid);
        let said = check(300);
        let words = "900 were to resume, but the server issued sessions for 300 only";
        assert!(!said.valid && said.warnings[0].to_string().contains(words), "{said:?}");
    }

    /// Sixteen clients made only their first handshakes: 98 % was asked for, and none came.
    #[test]
    fn a_block_too_short_for_its_reuse_is_invalid_however_many_clients_there_are() {
        let at = |percent, hits, full| {
            let place = ArrayPlace { spread: Spread::Client, proxies: 1, percent: Some(percent) };
            let handshakes = Handshakes { full, ..Handshakes::default() };
            let outcome = Outcome { hits, handshakes, ..outcome() };
            verify(&ArrayExperiment::default(), &place, &outcome, &Usage::default()).valid
        };
        assert!(!at(98.0, 12, 12) && !at(98.0, 70, 0) && !at(50.0, 12, 12) && !at(98.0, 700, 30));
        assert!(at(98.0, 1000, 17) && at(98.0, 1000, 24) && at(50.0, 40, 23) && !at(50.0, 40, 25) && at(0.0, 40, 44));
    }

    #[test]
    fn other_reuse_and_more_than_the_quota_make_it_invalid() {
        let other = Outcome { handshakes: Handshakes { full: 300, ..Handshakes::default() }, ..outcome() };
        let said = check(&other, 100_000_000);
        assert!(!said.valid && said.warnings[0].to_string().contains("1000 requests and 300 full"), "{said:?}");
        let said = check(&outcome(), 200_000_000);
        assert!(!said.valid && said.warnings[0].to_string().contains("0.200 CPUs under a quota of 0.1"), "{said:?}");
        assert!(check(&Outcome { client_cpu_ns: 960_000_000, ..outcome() }, 1).client_bound);
        // Of several workers each has a clock of its own.
        let part = |client_cpu_ns| LoopOutcome { elapsed_ns: 1_000_000_000, client_cpu_ns, ..LoopOutcome::default() };
        let of_workers = |cpu_ns: [u64; 2]| Outcome { parts: cpu_ns.map(part).to_vec(), ..outcome() };
        assert!(!check(&of_workers([480_000_000, 480_000_000]), 1).client_bound);
        assert!(check(&of_workers([960_000_000, 200_000_000]), 1).client_bound);
    }
}
