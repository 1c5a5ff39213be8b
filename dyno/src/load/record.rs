//! An outcome of the engine as the job protocol and the record keep it.

use anyhow::Result;
use tlsdyno_engine::load::Outcome;

use crate::histogram;
use crate::model::job::OutcomeRecord;

/// The outcome in JSON form.
///
/// # Errors
/// A histogram cannot be serialised (it never happens with the engine's own).
pub fn record(outcome: &Outcome) -> Result<OutcomeRecord> {
    let mut phases = std::collections::BTreeMap::new();
    for (phase, histogram) in &outcome.phases {
        phases.insert(phase.name().to_owned(), histogram::encode(histogram)?);
    }
    Ok(OutcomeRecord {
        hits: outcome.hits,
        body_bytes: outcome.body_bytes,
        connections: outcome.connections,
        handshakes_full: outcome.handshakes.full,
        resumed_intended: outcome.handshakes.resumed_intended,
        resumed_offered: outcome.handshakes.resumed_offered,
        resumed_accepted: outcome.handshakes.resumed_accepted,
        early_offered: outcome.handshakes.early_offered,
        early_accepted: outcome.handshakes.early_accepted,
        elapsed_ns: outcome.elapsed_ns,
        client_cpu_ns: outcome.client_cpu_ns,
        phases,
        errors: outcome.errors.iter().map(|(kind, count)| (kind.name().to_owned(), *count)).collect(),
        statuses: outcome.statuses.clone(),
        tls_faults: outcome.tls_faults.clone(),
        negotiated: outcome.negotiated.clone(),
        gave_up: outcome.gave_up,
        unserved: outcome.unserved,
        stopped: outcome.stopped,
    })
}
