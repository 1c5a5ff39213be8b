//! The JSON object that `tlsdyno load URL --json` prints. Integers are in the unit of their name; nothing is rounded
//! for reading.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tlsdyno_engine::load::{Handshakes, Life, Outcome, Part, Slice, WindowUse};

use crate::histogram::{Percentiles, percentiles};
use crate::load::asked::Asked;
use crate::load::record;
use crate::load::warning::{Warning, achieved_reuse_percent, busy_fraction};

/// Version of the object; it changes when the meaning of a field changes.
pub const FORMAT: u32 = 1;

/// What one load run measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of this object: [`FORMAT`].
    pub format: u32,
    /// The URL.
    pub url: String,
    /// `honest`, `lean`, `floor`; `null` over plain HTTP.
    pub effort: Option<String>,
    /// Completed requests whose whole response was as expected.
    pub hits: u64,
    /// Hits by elapsed time.
    pub hits_per_second: f64,
    /// Body bytes received.
    pub body_bytes: u64,
    /// From the first connect to the last response.
    pub elapsed_ns: u64,
    /// CPU time of the client; `null` without a hit.
    pub client_cpu_ns_per_hit: Option<f64>,
    /// CPU time of the client by elapsed time, of several loops that of the busiest: near 1 it was the bottleneck.
    pub client_busy_fraction: f64,
    /// What each of several loops did; empty if there was one.
    #[serde(default)]
    pub workers: Vec<Part>,
    /// Connections opened.
    pub connections: u64,
    /// Handshakes.
    pub handshakes: Handshakes,
    /// Resumed share of completed handshakes as asked for by --reuse; `null` without it.
    pub reuse_percent_asked: Option<f64>,
    /// The same as achieved; `null` without handshakes.
    pub reuse_percent_achieved: Option<f64>,
    /// Phase name to latencies. Phases that did not occur are missing.
    pub latency_ns: BTreeMap<String, Percentiles>,
    /// Error kind to count. Kinds that did not occur are missing.
    pub errors: BTreeMap<String, u64>,
    /// Status code to count of complete responses.
    #[serde(deserialize_with = "by_status")]
    pub statuses: BTreeMap<u16, u64>,
    /// TLS fault text to count.
    pub tls_faults: BTreeMap<String, u64>,
    /// `version suite group` to count of handshakes.
    pub negotiated: BTreeMap<String, u64>,
    /// Rate of the open loop; `null` in a closed one.
    pub rate_per_second_asked: Option<f64>,
    /// Requests of the open loop that were due, but that no user was free for.
    pub unserved: u64,
    /// As asked for by --hits-per-handshake; `null` without it.
    pub hits_per_handshake_asked: Option<u32>,
    /// Redirects followed: requests beyond those that the users made. 0 without --follow-redirects.
    #[serde(default)]
    pub redirects_followed: u64,
    /// Redirects that came at the end of the run and were not followed any more: their requests are neither hits nor
    /// errors.
    #[serde(default)]
    pub redirects_unfinished: u64,
    /// How the window over a replayed log was used; `null` for other loads.
    pub window: Option<WindowUse>,
    /// The run in slices of equal time.
    pub slices: Vec<Slice>,
    /// The connections of the first clients, where these are not too many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<Life>,
    /// Phase name to histogram (nanoseconds), V2 serialisation of HdrHistogram in base64.
    pub histograms: BTreeMap<String, String>,
    /// Stopped by Ctrl-C.
    pub stopped: bool,
    /// Doubts about the measurement, with their remedies.
    pub warnings: Vec<String>,
}

/// In a record this stands in a flattened part, where serde hands over the keys of a map as text.
fn by_status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u16, u64>, D::Error> {
    let by_text = BTreeMap::<String, u64>::deserialize(deserializer)?;
    by_text.into_iter().map(|(status, count)| Ok((status.parse().map_err(D::Error::custom)?, count))).collect()
}

impl Summary {
    /// Sums up an outcome.
    pub fn new(url: String, effort: Option<String>, asked: &Asked, outcome: &Outcome, warnings: &[Warning]) -> Summary {
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
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hdrhistogram::Histogram;
    use tlsdyno_engine::load::Phase;

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
        let summary = Summary::new("http://127.0.0.1/".to_owned(), None, &Asked::default(), &outcome, &[]);
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
