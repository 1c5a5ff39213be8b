//! The JSON object that `tlsdyno load URL --json` prints. Integers are in the unit of their name; nothing is rounded
//! for reading.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tlsdyno_base::histogram::{Percentiles, percentiles};
use tlsdyno_engine::load::{Outcome, Phase};

use super::Machine;
use crate::model::Network;

/// Version of the object; it changes when the meaning of a field changes.
pub const FORMAT: u32 = 1;

/// What a run was asked for and can miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// Resumed share of connections, percent; `null` without --reuse.
    #[serde(rename = "reuse_percent_asked")]
    pub reuse_percent: Option<f64>,
    /// Requests a second in an open loop; `null` in a closed one.
    #[serde(rename = "rate_per_second_asked")]
    pub rate_per_second: Option<f64>,
    /// Requests for each full handshake; `null` without --hits-per-handshake.
    #[serde(rename = "hits_per_handshake_asked")]
    pub hits_per_handshake: Option<u32>,
    /// Network between clients and server; missing without --network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Users: as many sessions may be incomplete when the run ends.
    #[serde(skip)]
    pub users: u32,
    /// Status of a hit; `None`: any.
    #[serde(skip)]
    pub status: Option<u16>,
    /// Requests that travel with the hello.
    #[serde(skip)]
    pub early_data: bool,
}

/// What one load run measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of this object: [`FORMAT`].
    pub format: u32,
    /// URL that was loaded.
    pub url: String,
    /// `honest`, `lean`, `floor`; `null` over plain HTTP.
    pub effort: Option<String>,
    /// What the run was asked for.
    #[serde(flatten)]
    pub asked: Asked,
    /// Hits by elapsed time.
    pub hits_per_second: f64,
    /// CPU time of the client; `null` without a hit.
    pub client_cpu_ns_per_hit: Option<f64>,
    /// CPU time of the client by elapsed time, of several loops that of the busiest: near 1 it was the bottleneck.
    pub client_busy_fraction: f64,
    /// Resumed share of completed handshakes; `null` without handshakes.
    pub reuse_percent_achieved: Option<f64>,
    /// Latencies by phase. Phases that did not occur are missing.
    pub latency_ns: BTreeMap<Phase, Percentiles>,
    /// Counts, histograms and the course of the run.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The machine of the load; missing: a file from before this was kept, or a run of a record, whose manifest has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Doubts about the measurement, with their remedies.
    pub warnings: Vec<String>,
}

impl Summary {
    /// Sums up an outcome. `effort`: of a load over TLS.
    pub fn of(url: String, effort: Option<String>, asked: Asked, outcome: Outcome, warnings: Vec<String>) -> Summary {
        Summary {
            format: FORMAT,
            url,
            effort,
            asked,
            hits_per_second: outcome.hits_per_second(),
            client_cpu_ns_per_hit: (outcome.hits > 0).then(|| outcome.client_cpu_ns as f64 / outcome.hits as f64),
            client_busy_fraction: outcome.busy_fraction(),
            reuse_percent_achieved: outcome.handshakes.resumed_percent(),
            latency_ns: outcome.phases.iter().map(|(phase, histogram)| (*phase, percentiles(histogram))).collect(),
            outcome,
            machine: None,
            warnings,
        }
    }

    /// The latency that counts: of whole responses, of an open loop from the intended send time.
    pub fn latency(&self) -> Option<&Percentiles> {
        let phases = [Phase::ScheduledResponse, Phase::WholeResponse];
        phases.iter().find_map(|phase| self.latency_ns.get(phase))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hdrhistogram::Histogram;
    use tlsdyno_engine::load::{Kept, Life, Relayed};

    use super::*;

    /// The names in backticks in the first column of the table under a heading of docs/FORMAT.md.
    fn documented(heading: &str) -> BTreeSet<String> {
        let document = include_str!("../../../../docs/FORMAT.md");
        let section = document.split(heading).nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the section");
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
        rows.flat_map(|names| names.split(", ").map(|name| name.trim_matches('`').to_owned())).collect()
    }

    #[test]
    fn the_object_is_as_documented_and_can_be_read_back() {
        let mut histogram = Histogram::new_with_bounds(1, tlsdyno_engine::load::limits::LATENCY_NS_MAX, 3).unwrap();
        histogram.record(1_500).unwrap();
        let outcome = Outcome {
            hits: 1,
            elapsed_ns: 1,
            phases: BTreeMap::from([(Phase::WholeResponse, histogram)]),
            statuses: BTreeMap::from([(200, 1)]),
            lives: vec![Life { client_number: 0, opened_ns: 0, closed_ns: 1, resumed: None, served_count: 1 }],
            losses: vec!["one".to_owned()],
            relayed: Some(Relayed::default()),
            kept: Some(Kept::default()),
            http2: Some(Default::default()),
            ..Outcome::default()
        };
        let asked = Asked { network: Some(Network::default()), ..Asked::default() };
        let summary = Summary::of("http://127.0.0.1/".to_owned(), None, asked, outcome, Vec::new());
        let summary = Summary { machine: Some(Machine::default()), ..summary };
        let object = serde_json::to_value(&summary).unwrap();
        let names: BTreeSet<String> = object.as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, documented("## `tlsdyno load URL --json`"));
        let document = include_str!("../../../../docs/FORMAT.md");
        let nested = [
            &object["handshakes"],
            &object["latency_ns"]["whole_response"],
            &object["relayed"],
            &object["network"],
            &object["kept"],
        ];
        for name in nested.iter().flat_map(|object| object.as_object().unwrap().keys()) {
            assert!(document.contains(&format!("`{name}`")), "{name} is not documented");
        }
        assert!(object["latency_ns"]["whole_response"]["mean"].is_u64(), "nanoseconds are whole");
        assert_eq!(serde_json::from_value::<Summary>(object).unwrap(), summary);
    }
}
