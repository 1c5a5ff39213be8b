//! What makes a block of a cluster valid: it did the work that it claims, everybody's counts agree, and it is known
//! where the load side was the limit.

use tlsdyno_engine::load::Outcome;
use tlsdyno_record::store::Warning;
use tlsdyno_runner::run::verify::{LEFT_OUT, Verdict, offered_otherwise, verify_requests};

use crate::cluster::cell::Cell;
use crate::several_machines::block::client_bound;
use crate::several_machines::testbed::Usage;

/// Checks one block. `requests`: of the block's users, `None` in an open loop; `used`: CPU times and counts of the
/// block; `dispatcher_shares_load`: both run on one CPU.
pub fn verify(
    cell: &Cell,
    outcome: &Outcome,
    used: &Usage,
    requests: Option<u64>,
    dispatcher_shares_load: bool,
) -> Verdict {
    let Verdict { mut valid, mut warnings, .. } = verify_requests(outcome, requests.unwrap_or(outcome.hits));
    let passed: u64 = used.connections.iter().sum();
    if outcome.errors.is_empty() && passed != outcome.connections {
        let what =
            format!("the clients made {} connections, but the dispatcher passed {passed} on", outcome.connections);
        valid = false;
        warnings.push(Warning::new("dispatcher_counts", what).with_remedy(LEFT_OUT));
    }
    let chosen: u64 = used.onward_connections.iter().sum();
    if !used.onward_connections.is_empty() && outcome.errors.is_empty() && chosen != outcome.hits {
        let what = format!(
            "the clients made {} requests, but the dispatcher behind the front ends chose a server {chosen} times",
            outcome.hits
        );
        valid = false;
        warnings.push(Warning::new("dispatcher_counts", what).with_remedy(LEFT_OUT));
    }
    // The clients' part: what was asked for must have been offered, whatever the servers made of it.
    warnings.extend(offered_otherwise(outcome, cell.reuse_percent, cell.clients));
    // What backends need runs where the dispatcher does.
    let client_bound = client_bound(outcome, used.dispatcher_ns + used.behind_ns, dispatcher_shares_load);
    Verdict { valid, client_bound, warnings, ..Verdict::default() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tlsdyno_engine::load::{ErrorKind, Handshakes};

    use super::*;
    use crate::cluster::file::ClusterExperiment;

    fn offering(resumed_offered: u64) -> Handshakes {
        let (full, resumed_intended, resumed_accepted) = (730, 790, 270);
        Handshakes { full, resumed_intended, resumed_offered, resumed_accepted, ..Handshakes::default() }
    }

    fn outcome() -> Outcome {
        Outcome {
            hits: 1000,
            connections: 1000,
            handshakes: offering(790),
            elapsed_ns: 1_000_000_000,
            client_cpu_ns: 400_000_000,
            ..Outcome::default()
        }
    }

    fn used() -> Usage {
        Usage { dispatcher_ns: 100_000_000, connections: vec![333, 333, 334], ..Usage::default() }
    }

    fn check(outcome: &Outcome, used: &Usage) -> Verdict {
        let cell = ClusterExperiment::default().cells().remove(2);
        verify(&cell, outcome, used, Some(1000), true)
    }

    #[test]
    fn a_good_block_passes_without_a_word() {
        assert_eq!(check(&outcome(), &used()), Verdict { valid: true, ..Verdict::default() });
    }

    #[test]
    fn lost_work_and_miscounts_make_it_invalid() {
        let failed = Outcome { errors: BTreeMap::from([(ErrorKind::Reset, 3)]), hits: 997, ..outcome() };
        assert!(!check(&failed, &used()).valid);
        assert!(!check(&Outcome { hits: 999, ..outcome() }, &used()).valid);
        let miscounted = Usage { connections: vec![333, 333, 333], ..used() };
        let verdict = check(&outcome(), &miscounted);
        assert!(!verdict.valid && verdict.warnings[0].to_string().contains("passed 999 on"));
    }

    #[test]
    fn clients_must_offer_what_was_asked_for() {
        let few = Outcome { handshakes: offering(700), ..outcome() };
        let verdict = check(&few, &used());
        assert!(verdict.valid && verdict.warnings == [tlsdyno_runner::run::verify::reuse_warning(&few)]);
    }

    #[test]
    fn a_full_cpu_of_the_load_is_named() {
        let busy = Outcome { client_cpu_ns: 870_000_000, ..outcome() };
        assert!(check(&busy, &used()).client_bound, "together with the dispatcher");
        let cell = ClusterExperiment::default().cells().remove(2);
        assert!(!verify(&cell, &busy, &used(), Some(1000), false).client_bound, "the dispatcher runs elsewhere");
        let full = |dispatcher_ns, behind_ns| {
            let used = Usage { dispatcher_ns, behind_ns, ..used() };
            verify(&cell, &outcome(), &used, Some(1000), false).client_bound
        };
        assert!(full(960_000_000, 0), "the dispatcher's own CPU");
        assert!(full(500_000_000, 460_000_000), "a cache runs there too");
        assert!(!full(900_000_000, 0));
    }
}
