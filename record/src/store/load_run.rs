//! The JSON object that `tlsdyno load URL --json` prints. Integers are in the unit of their name; nothing is rounded
//! for reading.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tlsdyno_engine::load::{Handshakes, Life, Part, Slice, WindowUse};

use tlsdyno_base::histogram::Percentiles;

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
