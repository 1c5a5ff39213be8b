//! An outcome of the engine as the job protocol and the record keep it.

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use tlsdyno_engine::load::limits::LATENCY_NS_MAX;
use tlsdyno_engine::load::{Handshakes, Outcome, Phase, SliceLatencies};

use tlsdyno_base::histogram;
use tlsdyno_record::model::job::OutcomeRecord;

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
        slice_latencies: outcome.slice_latencies.iter().map(text_of_slice).collect(),
        lives: outcome.lives.clone(),
        busy_fraction: Vec::new(),
        losses: Vec::new(),
        sources: Vec::new(),
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
        slice_latencies: record.slice_latencies.iter().map(|text| slice_of_text(text)).collect::<Result<_>>()?,
        parts: Vec::new(),
        lives: record.lives,
        stopped: record.stopped,
        redirects_followed: record.redirects_followed,
        redirects_unfinished: record.redirects_unfinished,
        window: record.window,
    })
}

/// Latencies of a slice as text, for there are thousands of each worker: of each value how much it is above the one
/// before, and its count, seven bits a byte with the low ones first (LEB128), base64.
fn text_of_slice(SliceLatencies(latencies): &SliceLatencies) -> String {
    let (mut bytes, mut before) = (Vec::new(), 0);
    for (value, count) in latencies {
        for mut number in [value - before, *count] {
            while number > 0x7f {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        before = *value;
    }
    STANDARD.encode(bytes)
}

/// The reverse. What does not fit into 64 bits is cut off.
fn slice_of_text(text: &str) -> Result<SliceLatencies> {
    let bytes = STANDARD.decode(text).context("the latencies of a slice are no base64")?;
    let (mut numbers, mut number, mut shift) = (Vec::new(), 0_u64, 0);
    for byte in bytes {
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        shift += 7;
        if byte < 0x80 {
            numbers.push(std::mem::take(&mut number));
            shift = 0;
        }
    }
    let mut value = 0_u64;
    let latencies = numbers.chunks_exact(2).map(|pair| {
        value = value.saturating_add(pair[0]);
        (value, pair[1])
    });
    Ok(SliceLatencies(latencies.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_a_slice_survive() {
        for latencies in [vec![], vec![(0, 0)], vec![(1, 1), (127, 128), (3_600_000_000_000, 5), (u64::MAX, u64::MAX)]]
        {
            let latencies = SliceLatencies(latencies);
            assert_eq!(slice_of_text(&text_of_slice(&latencies)).unwrap(), latencies);
        }
        assert!(slice_of_text("?").is_err());
        assert_eq!(slice_of_text("////////////////////").unwrap(), SliceLatencies::default(), "no end");
    }
}
