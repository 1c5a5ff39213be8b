//! An outcome of the engine as the job protocol and the record keep it.

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use tlsdyno_engine::load::limits::LATENCY_NS_MAX;
use tlsdyno_engine::load::{Handshakes, Outcome, Phase};

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
        name: String::new(),
        began_ns: outcome.began_ns,
        retried_count: outcome.handshakes.retried_count,
        redirects_followed: outcome.redirects_followed,
        redirects_unfinished: outcome.redirects_unfinished,
        window: outcome.window,
        slices: outcome.slices.clone(),
        slice_latencies: outcome.slice_latencies.clone(),
        lives: outcome.lives.clone(),
        busy_fraction: Vec::new(),
        losses: Vec::new(),
    })
}

/// The outcome of a loop that ran elsewhere.
///
/// # Errors
/// A name that no phase and no error has, or no histogram of the engine.
pub fn outcome(record: OutcomeRecord) -> Result<Outcome> {
    let phase = |(name, text): (&String, &String)| -> Result<(Phase, Histogram<u64>)> {
        let histogram = histogram::decode(text).with_context(|| format!("`{name}` is no histogram"))?;
        let bounds = (histogram.low(), histogram.high(), histogram.sigfig());
        ensure!(bounds == (1, LATENCY_NS_MAX, 3), "the histogram of `{name}` has other bounds than those of this tool");
        Ok((name.parse()?, histogram))
    };
    let errors = record.errors.iter().map(|(kind, count)| Ok((kind.parse()?, *count)));
    Ok(Outcome {
        hits: record.hits,
        body_bytes: record.body_bytes,
        connections: record.connections,
        handshakes: Handshakes {
            full: record.handshakes_full,
            resumed_intended: record.resumed_intended,
            resumed_offered: record.resumed_offered,
            resumed_accepted: record.resumed_accepted,
            early_offered: record.early_offered,
            early_accepted: record.early_accepted,
            retried_count: record.retried_count,
        },
        began_ns: record.began_ns,
        elapsed_ns: record.elapsed_ns,
        client_cpu_ns: record.client_cpu_ns,
        phases: record.phases.iter().map(phase).collect::<Result<_>>()?,
        errors: errors.collect::<Result<_>>()?,
        statuses: record.statuses,
        tls_faults: record.tls_faults,
        negotiated: record.negotiated,
        gave_up: record.gave_up,
        unserved: record.unserved,
        slices: record.slices,
        slice_latencies: record.slice_latencies,
        parts: Vec::new(),
        lives: record.lives,
        stopped: record.stopped,
        redirects_followed: record.redirects_followed,
        redirects_unfinished: record.redirects_unfinished,
        window: record.window,
    })
}
