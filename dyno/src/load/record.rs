//! An outcome of the engine as the job protocol and the record keep it.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use tlsdyno_engine::load::Outcome;

use crate::experiment::job::OutcomeRecord;

/// The outcome in JSON form.
///
/// # Errors
/// A histogram cannot be serialised (it never happens with the engine's own).
pub fn record(outcome: &Outcome) -> Result<OutcomeRecord> {
    let mut phases = std::collections::BTreeMap::new();
    for (phase, histogram) in &outcome.phases {
        phases.insert(phase.name().to_owned(), encode(histogram)?);
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

/// A histogram in the V2 serialisation of HdrHistogram, base64.
///
/// # Errors
/// As [`record`].
pub fn encode(histogram: &Histogram<u64>) -> Result<String> {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).context("failed to serialise a histogram")?;
    Ok(STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::summary::decode_histogram;

    #[test]
    fn histograms_survive() {
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        for value in [1, 1000, 1_234_567, 3_000_000_000] {
            histogram.record(value).unwrap();
        }
        let text = encode(&histogram).unwrap();
        assert_eq!(decode_histogram(&text).unwrap(), histogram);
        assert!(decode_histogram("?").is_none() && decode_histogram("AAAA").is_none());
    }
}
