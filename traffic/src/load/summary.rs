//! From the outcome of a load to what `tlsdyno load URL --json` prints of it.

use tlsdyno_engine::load::Outcome;

use crate::load::asked::Asked;
use crate::load::record;
use crate::load::warning::{achieved_reuse_percent, busy_fraction};
use tlsdyno_base::histogram::percentiles;
use tlsdyno_record::store::Warning;
use tlsdyno_record::store::load_run::{FORMAT, Summary};

/// Sums up an outcome.
pub fn of(url: String, effort: Option<String>, asked: &Asked, outcome: &Outcome, warnings: &[Warning]) -> Summary {
    let seconds = outcome.elapsed_ns as f64 / 1e9;
    Summary {
        format: FORMAT,
        url,
        effort,
        hits: outcome.hits,
        hits_per_second: if seconds > 0.0 { outcome.hits as f64 / seconds } else { 0.0 },
        body_bytes: outcome.body_bytes,
        elapsed_ns: outcome.elapsed_ns,
        client_cpu_ns_per_hit: (outcome.hits > 0).then(|| outcome.client_cpu_ns as f64 / outcome.hits as f64),
        client_busy_fraction: busy_fraction(outcome),
        workers: outcome.parts.clone(),
        connections: outcome.connections,
        handshakes: outcome.handshakes,
        reuse_percent_asked: asked.reuse_percent,
        reuse_percent_achieved: achieved_reuse_percent(outcome),
        latency_ns: outcome
            .phases
            .iter()
            .map(|(phase, histogram)| (phase.name().to_owned(), percentiles(histogram)))
            .collect(),
        errors: outcome.errors.iter().map(|(kind, count)| (kind.name().to_owned(), *count)).collect(),
        statuses: outcome.statuses.clone(),
        tls_faults: outcome.tls_faults.clone(),
        negotiated: outcome.negotiated.clone(),
        rate_per_second_asked: asked.rate_per_second,
        unserved: outcome.unserved,
        hits_per_handshake_asked: asked.hits_per_handshake,
        redirects_followed: outcome.redirects_followed,
        redirects_unfinished: outcome.redirects_unfinished,
        window: outcome.window,
        slices: outcome.slices.clone(),
        lives: outcome.lives.clone(),
        // The engine's own histograms can always be serialised.
        histograms: record::record(outcome).map(|record| record.phases).unwrap_or_default(),
        stopped: outcome.stopped,
        warnings: warnings.iter().map(Warning::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use hdrhistogram::Histogram;
    use tlsdyno_engine::load::{Handshakes, Life, Phase};

    use super::*;

    /// The names in backticks in the first column of the table under a heading of docs/FORMAT.md.
    fn documented(heading: &str) -> BTreeSet<String> {
        let document = include_str!("../../../docs/FORMAT.md");
        let section = document.split(heading).nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the section");
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
        rows.flat_map(|names| names.split(", ").map(|name| name.trim_matches('`').to_owned())).collect()
    }

    #[test]
    fn the_object_is_as_documented() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        histogram.record(1_500).unwrap();
        let outcome = Outcome {
            hits: 1,
            body_bytes: 0,
            connections: 1,
            handshakes: Handshakes::default(),
            began_ns: 0,
            elapsed_ns: 1,
            client_cpu_ns: 1,
            phases: [(Phase::WholeResponse, histogram)].into_iter().collect(),
            errors: BTreeMap::new(),
            statuses: BTreeMap::new(),
            tls_faults: BTreeMap::new(),
            negotiated: BTreeMap::new(),
            gave_up: false,
            unserved: 0,
            redirects_followed: 0,
            redirects_unfinished: 0,
            slices: Vec::new(),
            slice_latencies: Vec::new(),
            parts: Vec::new(),
            lives: vec![Life { client_number: 0, opened_ns: 0, closed_ns: 1, resumed: None, served_count: 1 }],
            stopped: false,
            window: None,
        };
        let summary = of("http://127.0.0.1/".to_owned(), None, &Asked::default(), &outcome, &[]);
        let object = serde_json::to_value(&summary).unwrap();
        let names: BTreeSet<String> = object.as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, documented("## `tlsdyno load URL --json`"));
        let document = include_str!("../../../docs/FORMAT.md");
        let nested = [&object["handshakes"], &object["latency_ns"]["whole_response"]];
        for name in nested.iter().flat_map(|object| object.as_object().unwrap().keys()) {
            assert!(document.contains(&format!("`{name}`")), "{name} is not documented");
        }
        assert!(object["latency_ns"]["whole_response"]["mean"].is_u64(), "nanoseconds are whole");
    }
}
