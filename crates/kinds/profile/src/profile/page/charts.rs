//! The charts of a profile: a bar for each kind of handshake, of its stages and the rest.

use itertools::Itertools;
use serde_json::json;
use tlsdyno_base::units::format_micros;
use tlsdyno_runner::report::charts::{COLOURS, legend_above, palette, with};
use tlsdyno_runner::report::document::Chart;

use super::stage_name;
use crate::profile::summary::{KindSummary, ProfileSummary};

/// Height of a bar with its distance to the next, pixels.
const BAR_HEIGHT: usize = 44;

pub fn all(summary: &ProfileSummary) -> Vec<Chart> {
    let parts = |kind: &KindSummary| {
        let stages = kind.stages.iter().map(|stage| (stage_name(stage), stage.timed_ns.value));
        let beside = kind.beside_stages().into_iter().map(|(name, of)| (name.to_owned(), of.value));
        let parts = stages.chain(beside);
        parts.filter(|(_, ns)| *ns > 0.0).collect::<Vec<(String, f64)>>()
    };
    let mut rows = Vec::new();
    let mut told = Vec::new();
    for kind in summary.handshakes.iter().filter(|kind| kind.contradictions.is_empty()) {
        for (place, (part, ns)) in parts(kind).into_iter().enumerate() {
            told.push(format!("{} {part} {} µs", kind.kind.name(), format_micros(ns)));
            rows.push(json!({"handshake": kind.kind.name(), "part": part, "us": ns / 1e3, "place": place}));
        }
    }
    let names: Vec<&str> = rows.iter().filter_map(|row| row["part"].as_str()).unique().collect();
    let body = json!({
        "mark": {"type": "bar", "tooltip": true},
        "encoding": {
            "y": {"field": "handshake", "type": "nominal", "sort": null, "title": null},
            "x": {"field": "us", "type": "quantitative", "title": "server CPU of a hit, µs"},
            "color": with(palette("part", &names, &COLOURS), legend_above(4)),
            "order": {"field": "place", "type": "quantitative"}
        }
    });
    let chart = Chart::new("profile-stages", BAR_HEIGHT * summary.handshakes.len(), rows, body);
    chart.map(|chart| chart.described("What a hit costs, by stage", told.join("; "))).into_iter().collect()
}
