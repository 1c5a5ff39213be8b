//! The papers' own predictions from their own published inputs (experiments/predictions.toml): a test of the equations.

use serde::Deserialize;
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_engine::dispatch::Policy;

use crate::costs::Costs;
use crate::costs::samples::source;
use crate::measured::{Place, Term};
use crate::model::{Machines, Site};

/// A prediction lies no farther than this from what is said of it, percentage points.
const ROUNDING_PERCENT: f64 = 0.6;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    source: String,
    full_ms: f64,
    #[serde(default)]
    resumed_ms: f64,
    #[serde(default)]
    request_ms: f64,
    #[serde(default)]
    behind_ms: f64,
    #[serde(default)]
    rsa_ms: f64,
    #[serde(default = "one")]
    card_times: f64,
    #[serde(default = "one")]
    requests: f64,
    #[serde(default)]
    reuse: f64,
    #[serde(default = "one")]
    cpus: f64,
    #[serde(default = "one_machine")]
    servers: u32,
    #[serde(default)]
    proxies: u32,
    #[serde(default)]
    is_blind: bool,
    published: [f64; 2],
    #[serde(default)]
    off_percent: f64,
    #[serde(default)]
    why: String,
}

fn one() -> f64 {
    1.0
}

fn one_machine() -> u32 {
    1
}

impl Row {
    fn predicted(&self) -> f64 {
        let us = [self.full_ms, self.resumed_ms, self.request_ms, 0.0].map(|ms| ms * 1e3);
        let cells = [[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 9.0, 0.0]];
        let behind = source(Place::Behind, [0.0, 0.0, self.behind_ms * 1e3, 0.0], &[[0.0, 0.0, 1.0, 0.0]], 0.0);
        let place = if self.proxies > 0 { Place::Proxy } else { Place::Server };
        let costs = Costs::of(&[source(place, us, &cells, 0.0), behind], None).unwrap();
        let saved_ns = self.rsa_ms * 1e6 * (1.0 / self.card_times - 1.0);
        let costs = costs.changed(&[Term::Full], Estimate { value: saved_ns, low: saved_ns, high: saved_ns });
        let site = Site {
            rate_per_s: 1.0,
            requests_per_connection: self.requests,
            reuse_fraction: self.reuse,
            kilobytes: None,
            cpus: self.cpus,
            policy: if self.is_blind { Policy::RoundRobin } else { Policy::Session },
            shares_keys: false,
        };
        let machines = Machines { servers: self.servers, proxies: self.proxies };
        site.predict(&costs, machines, None).capacity_per_s.value
    }
}

#[test]
fn published_inputs_give_what_was_published_or_it_is_said_why_not() {
    #[derive(Deserialize)]
    struct File {
        row: Vec<Row>,
    }
    let file: File = toml::from_str(include_str!("../../../experiments/predictions.toml")).unwrap();
    let mut offs = Vec::new();
    for row in &file.row {
        let (predicted, [low, high]) = (row.predicted(), row.published);
        let nearest = predicted.clamp(low, high);
        let off = 100.0 * (predicted / nearest - 1.0);
        println!("{}: {predicted:.1} predicted, {low} to {high} published, {off:.1} % off. {}", row.source, row.why);
        assert!((off - row.off_percent).abs() < ROUNDING_PERCENT, "{}: {predicted:.2}, {off:.2} %", row.source);
        assert_eq!(row.off_percent != 0.0, !row.why.is_empty(), "{}", row.source);
        offs.push(off.abs());
    }
    offs.sort_by(f64::total_cmp);
    assert!(offs.len() == 19 && offs[offs.len() / 2] < 3.5, "median {}", offs[offs.len() / 2]);
}
