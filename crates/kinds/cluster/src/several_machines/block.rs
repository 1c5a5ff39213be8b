//! Blocks with several machines: what makes one valid, whose limit it was, and who did how much.

use tlsdyno_engine::load::Outcome;
use tlsdyno_record::store::{BackendUse, Block, ClusterBlock, Journal, Locality};
use tlsdyno_runner::run::manifest;
use tlsdyno_runner::run::verify::{Verdict, is_busy, load_is_busy};
use tlsdyno_traffic::load::warning::RELAY_OVERLOADED;

use super::testbed::Usage;

/// Whether the load, or who shares the dispatcher's CPU, could do no more. `dispatcher_ns`: CPU time of all that is
/// there.
pub fn client_bound(outcome: &Outcome, dispatcher_ns: u64, dispatcher_shares_load: bool) -> bool {
    let beside_ns = if dispatcher_shares_load { dispatcher_ns } else { 0 };
    load_is_busy(outcome, beside_ns, 1.0) || is_busy(dispatcher_ns, outcome)
}

/// Whether a warm-up shows that machines can be measured: that the relay of a network was late says nothing of them.
pub fn is_warm(block: &Block) -> bool {
    let is_late_only = !block.warnings.is_empty() && block.warnings.iter().all(|of| of.code == RELAY_OVERLOADED);
    block.valid || is_late_only
}

/// The block of this outcome. `localities`: what each machine was asked for, where that is known.
pub fn block(outcome: &Outcome, used: &Usage, verdict: Verdict, localities: Option<&[Locality]>) -> Block {
    let machines = |cpu_ns: &[u64], connections: &[u64], localities: Option<&[Locality]>| -> Vec<BackendUse> {
        let machine = |(number, &cpu_ns): (usize, &u64)| {
            let locality = localities.and_then(|all| all.get(number).copied());
            let logged = locality.map_or(0, |locality| locality.requests);
            BackendUse { cpu_ns, connections: connections.get(number).copied().unwrap_or(logged), locality }
        };
        cpu_ns.iter().enumerate().map(machine).collect()
    };
    let (front_ends, backends) = match used.onward_ns[..] {
        [] => (Vec::new(), machines(&used.ends_ns, &used.connections, localities)),
        ref onward_ns => (
            machines(&used.ends_ns, &used.connections, None),
            machines(onward_ns, &used.onward_connections, localities),
        ),
    };
    Block {
        server_cpu_ns: used.ends_ns.iter().chain(&used.onward_ns).sum(),
        companion_cpu_ns: used.behind_ns,
        pace_ps: used.pace_ps,
        client_bound: verdict.client_bound,
        valid: verdict.valid,
        warnings: verdict.warnings,
        cluster: Some(ClusterBlock {
            dispatcher_cpu_ns: used.dispatcher_ns,
            front_ends,
            backends,
            unserved: outcome.unserved,
        }),
        ..Block::from(outcome)
    }
}

/// Puts into the record what the first block with TLS came to.
pub fn note_negotiated(journal: &mut Journal, outcome: &Outcome) {
    if journal.record().manifest.negotiated.is_empty() && !outcome.negotiated.is_empty() {
        let negotiated = manifest::negotiated_text(outcome);
        journal.change(|record| record.manifest.negotiated = negotiated);
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_record::store::Warning;

    use super::*;

    #[test]
    fn a_warm_up_may_have_a_late_relay_but_no_other_fault() {
        let of = |codes: &[&str]| Block {
            warnings: codes.iter().map(|code| Warning::new(code, "what")).collect(),
            ..Block::default()
        };
        assert!(is_warm(&Block { valid: true, ..of(&[]) }) && is_warm(&of(&[RELAY_OVERLOADED])));
        assert!(!is_warm(&of(&[])) && !is_warm(&of(&[RELAY_OVERLOADED, "tls_faults"])));
    }
}
