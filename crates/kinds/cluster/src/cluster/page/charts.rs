//! The charts of a cluster's page.

use std::collections::BTreeSet;

use itertools::Itertools;
use serde_json::{Value, json};
use tlsdyno_base::units::{format_duration, format_interval_with, format_percent, format_quantity};
use tlsdyno_record::model::{PublishedNumber, Quantity};
use tlsdyno_runner::report::charts::{
    COLOURS, axis, layer, line_legend, line_mark, names, palette, quantity, rule_mark, tooltip, with,
};
use tlsdyno_runner::report::document::Chart;
use tlsdyno_stats::Estimate;
use tlsdyno_stats::scoreboard::Unit;

use super::{by_traffic, latency_phase};
use crate::cluster::cell::PLAIN_HTTP;
use crate::cluster::summary::{CellSummary, ClusterSummary};

pub fn all(summary: &ClusterSummary) -> Vec<Chart> {
    if summary.has_one_server() {
        return latency_panels(summary);
    }
    let throughput = over_reuse(
        summary,
        ("cluster-throughput", "hits per second"),
        "Hits per second against the reuse that clients offer, with 95 % intervals.",
        |cell| cell.measured.hits_per_second,
    );
    let accepted = over_reuse(
        summary,
        ("cluster-accepted", "% of offered sessions accepted"),
        "What the servers accepted of the sessions offered again.",
        |cell| cell.accepted_percent_of_offered,
    );
    let cpu = over_reuse(
        summary,
        ("cluster-cpu", "CPU time of the servers per hit, µs"),
        "What a hit costs the servers, with its part of a connection: it needs no full load, and no other machine.",
        |cell| cell.measured.server_cpu_ns_per_hit.scaled(1e-3),
    );
    [throughput, cpu, accepted].into_iter().flatten().chain(latency_panels(summary)).chain(balance(summary)).collect()
}

fn used(summary: &ClusterSummary) -> impl Iterator<Item = &CellSummary> {
    summary.cells.iter().filter(|cell| cell.measured.blocks > 0 && cell.is_point())
}

fn ways(summary: &ClusterSummary) -> Vec<String> {
    summary.cells.iter().map(|cell| cell.cell.way_name()).unique().collect()
}

/// Lines of one quantity over reuse, one for each policy and group; `None` where reuse has one value only.
fn over_reuse(
    summary: &ClusterSummary,
    (id, title): (&str, &str),
    caption: &str,
    value: impl Fn(&CellSummary) -> Estimate,
) -> Option<Chart> {
    let with_tls = used(summary).filter(|cell| !cell.cell.plain);
    let cells = with_tls.map(|cell| (cell, value(cell))).filter(|(_, found)| found.value.is_finite());
    let point = |(cell, found): (&CellSummary, Estimate)| {
        let end = |end: f64| if end.is_finite() { end } else { found.value };
        let interval = format_interval_with(found.low, found.high, format_quantity);
        json!({
            "policy": cell.cell.way_name(), "group": cell.besides_reuse, "reuse": cell.cell.reuse_percent,
            "value": found.value, "low": end(found.low), "high": end(found.high), "name": cell.measured.name,
            "label": format!("{} {interval}", format_quantity(found.value)),
        })
    };
    let rows: Vec<Value> = cells.map(point).collect();
    let levels: BTreeSet<u64> = used(summary).map(|cell| cell.cell.reuse_percent.to_bits()).collect();
    if levels.len() < 2 {
        return None;
    }
    let groups: BTreeSet<&str> = used(summary).map(|cell| cell.besides_reuse.as_str()).collect();
    let legend = (groups.len() > 1).then(|| json!({"title": null, "orient": "bottom", "columns": 3}));
    let words: Vec<String> = rows.iter().map(|row| format!("{} {}", row["name"], row["label"])).collect();
    // The first policy, which the others are compared with, is grey.
    let colours: Vec<&str> = COLOURS.iter().rev().take(1).chain(&COLOURS).copied().collect();
    let body = json!({
        "encoding": {
            "x": quantity("reuse", "reuse, % of connections that offer a session again"),
            "color": with(palette("policy", &ways(summary), &colours), line_legend(None, 4)),
            "strokeDash": {"field": "group", "type": "nominal", "sort": null, "legend": legend},
            "tooltip": tooltip([("name", "cell"), ("label", title)]),
        },
        "layer": [
            layer(rule_mark(), json!({"y": axis("low"), "y2": {"field": "high"}, "strokeDash": {"value": [1, 0]}})),
            layer(line_mark(), json!({"y": with(quantity("value", title), json!({"scale": {"zero": true}}))})),
        ],
    });
    let words = format!("Lines of {title} over reuse: {}.", words.join("; "));
    Some(Chart::new(id, 260, rows, body)?.described(caption, words))
}

/// Latency against throughput, a line for each reuse, a panel for each policy: the form of Figure 9 of Apostolopoulos
/// et al. 2000. Empty unless there are several loads.
fn latency_panels(summary: &ClusterSummary) -> Vec<Chart> {
    let loads: BTreeSet<(u32, u64)> =
        used(summary).map(|cell| (cell.cell.clients, cell.cell.rate_per_s.unwrap_or(0.0).to_bits())).collect();
    if loads.len() < 2 {
        return Vec::new();
    }
    ways(summary).into_iter().filter_map(|way| latency_panel(summary, &way)).collect()
}

fn latency_panel(summary: &ClusterSummary, way: &str) -> Option<Chart> {
    // Where plain HTTP was measured beside, both axes of a paper's figure fit in by its own.
    let plain = summary.plain_limit();
    let of_limit = |per_s: f64| plain.map_or(per_s, |plain| 100.0 * per_s / plain);
    let ends = |rate: Estimate| if rate.high.is_finite() { rate.high } else { rate.value };
    let most = used(summary).map(|cell| ends(cell.measured.hits_per_second)).fold(0.0, f64::max);
    let point = |cell: &CellSummary| {
        let found = cell.measured.latency_ns.get(latency_phase(cell))?;
        let [mean, median, high] = [found.mean, found.p50, found.p99].map(|ns| format_duration(ns as f64));
        let rate = cell.measured.hits_per_second;
        let end = |end: f64| of_limit(if end.is_finite() { end } else { rate.value });
        Some(json!({
            "kind": "measured", "reuse": cell.cell.reuse_name(), "rate": of_limit(rate.value), "low": end(rate.low),
            "high": end(rate.high), "clients": cell.cell.clients, "milliseconds": found.mean as f64 / 1e6,
            "name": cell.measured.name, "latency": format!("mean {mean}, median {median}, 99 % {high}"),
            "hits": format_quantity(rate.value),
            "order": cell.cell.rate_per_s.unwrap_or(f64::from(cell.cell.clients)),
            "line": format!("{} {}", cell.cell.sharing.name(), cell.cell.behind_one_address_percent),
        }))
    };
    let mut rows: Vec<Value> = used(summary).filter(|cell| cell.cell.way_name() == way).filter_map(point).collect();
    let in_words = |row: &Value| format!("{} at {} hits per second {}", row["reuse"], row["hits"], row["latency"]);
    let words = rows.iter().map(in_words).collect::<Vec<_>>().join("; ").replace('"', "");
    let published = published(summary);
    // A layer without a row would have no extent, of which the viewer warns.
    let has_published = !published.is_empty();
    rows.extend(published);
    let colours = json!({"field": "reuse", "type": "nominal", "sort": null, "scale": {"range": COLOURS}});
    let colours = with(colours, line_legend(None, 8));
    let of =
        |kind: &str, layer: Value| with(layer, json!({"transform": [{"filter": format!("datum.kind == '{kind}'")}]}));
    let title = if plain.is_some() { "hits per second, % of plain HTTP" } else { "hits per second" };
    let x = with(quantity("rate", title), json!({"scale": {"domain": [0, of_limit(most)]}}));
    let y = with(quantity("milliseconds", "mean latency, ms"), json!({"scale": {"type": "log"}}));
    let of_line = json!({"x": x, "y": y, "color": colours, "order": {"field": "order"}, "detail": {"field": "line"}});
    let interval = json!({"x": axis("low"), "x2": {"field": "high"}, "y": axis("milliseconds"), "color": colours});
    let cross = json!({"type": "point", "shape": "cross", "size": 110, "filled": true});
    let crosses =
        || of("published", layer(cross, json!({"x": axis("rate"), "y": axis("milliseconds"), "color": colours})));
    let mut layers = vec![of("measured", layer(rule_mark(), interval)), of("measured", layer(line_mark(), of_line))];
    layers.extend(has_published.then(crosses));
    let body = json!({
        "encoding": {"tooltip": tooltip([("name", "cell"), ("latency", "latency"), ("hits", "hits/s")])},
        "layer": layers,
    });
    let id = format!("cluster-latency-{}", way.replace(['+', ' '], "-"));
    let crosses = if has_published { " Crosses: published, by the paper's own plain HTTP." } else { "" };
    let (with, height) = match summary.has_one_server() {
        true => (String::new(), 360),
        false => (format!(" with {way}"), 240),
    };
    let caption = format!(
        "Latency against throughput{with}: a line for each reuse, more load to the right; 95 % intervals of hits per \
         second.{crosses}"
    );
    let words = format!("Latency against throughput{with}: {words}.");
    Some(Chart::new(id, height, rows, body)?.described(caption, words))
}

/// The paper's points, where both it and this experiment have plain HTTP to tell them by.
fn published(summary: &ClusterSummary) -> Vec<Value> {
    let Some(paper) = summary.paper.as_ref().filter(|_| summary.plain_limit().is_some()) else { return Vec::new() };
    let row = |(reuse, _, latency): (&str, &str, PublishedNumber)| {
        let per_s = paper.first(Quantity::HitsPerS, reuse)?.mean();
        let plain = paper.first(Quantity::HitsPerS, PLAIN_HTTP)?.mean();
        Some(json!({
            "kind": "published", "reuse": reuse, "rate": 100.0 * per_s / plain, "milliseconds": latency.mean(),
            "name": "published", "latency": Unit::Milliseconds.told(latency), "hits": format_quantity(per_s),
        }))
    };
    paper.all(Quantity::LatencyMs).filter_map(row).collect()
}

fn balance(summary: &ClusterSummary) -> Option<Chart> {
    let used = |cell: &&CellSummary| cell.measured.blocks > 0 && cell.backends.len() > 1;
    let cells: Vec<&CellSummary> = by_traffic(summary).into_iter().filter(used).collect();
    let parts = |cell: &&CellSummary| {
        let all: u64 = cell.backends.iter().map(|backend| backend.connections).sum();
        let name = cell.measured.name.clone();
        let part = move |(number, backend): (u32, crate::cluster::summary::Backend)| {
            let percent = 100.0 * backend.connections as f64 / all.max(1) as f64;
            let label = format!("{} of {all} connections ({})", backend.connections, format_percent(percent));
            json!({"name": name, "backend": format!("backend {number}"), "percent": percent, "label": label})
        };
        (1..).zip(cell.backends.clone()).map(part).collect::<Vec<_>>()
    };
    let rows: Vec<Value> = cells.iter().flat_map(parts).collect();
    let in_words =
        |cell: &&CellSummary| format!("{} {}", cell.measured.name, format_percent(cell.busiest_percent.value));
    let words: Vec<String> = cells.iter().map(in_words).collect();
    let x = json!({"stack": "zero", "scale": {"domain": [0, 100]}});
    let body = json!({
        "mark": {"type": "bar", "height": 14},
        "encoding": {
            "y": names("name", 320),
            "x": with(quantity("percent", "% of connections"), x),
            "color": {
                "field": "backend", "type": "nominal", "sort": null, "scale": {"range": COLOURS},
                "legend": {"title": null, "orient": "top", "columns": 8},
            },
            "tooltip": tooltip([("name", "cell"), ("backend", "backend"), ("label", "got")]),
        },
    });
    let words = format!("Strips of the connections of each backend; the busiest got: {}.", words.join(", "));
    let caption = "Who got the connections: each backend's part.";
    Some(Chart::new("cluster-balance", 20 * cells.len(), rows, body)?.described(caption, words))
}
