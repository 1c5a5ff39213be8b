//! The charts of a cluster's page.

use serde_json::{Value, json};

use super::terminal::{by_traffic, latency_phase};
use crate::report::charts::{Chart, specification};
use crate::stats::cluster::{CellSummary, ClusterSummary};
use crate::units::{format_duration, format_percent, format_quantity, format_tenths};

/// Colours of policies and backends: the ten-colour palette of Observable.
const COLOURS: [&str; 9] =
    ["#97a3b6", "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2", "#ff8ab7", "#3ca951", "#9c6b4e"];

/// All charts, in the order of the page, each with its caption.
pub fn all(summary: &ClusterSummary) -> Vec<(String, Chart)> {
    let caption = |text: &str, chart: Option<Chart>| chart.map(|chart| (text.to_owned(), chart));
    let over_reuse = [
        caption("Hits per second against the reuse that clients offer, with 95 % intervals.", throughput(summary)),
        caption("What the servers accepted of the sessions offered again.", accepted(summary)),
    ];
    let balance = caption("Who got the connections: each backend's part.", balance(summary));
    over_reuse.into_iter().flatten().chain(latency_panels(summary)).chain(balance).collect()
}

fn used(summary: &ClusterSummary) -> impl Iterator<Item = &CellSummary> {
    summary.cells.iter().filter(|cell| cell.blocks > 0)
}

fn policies(summary: &ClusterSummary) -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in &summary.cells {
        if !names.contains(&cell.cell.policy.name()) {
            names.push(cell.cell.policy.name());
        }
    }
    names
}

fn policy_colours(summary: &ClusterSummary) -> Value {
    let names = policies(summary);
    let colours: Vec<&str> = COLOURS.iter().copied().cycle().take(names.len()).collect();
    json!({
        "field": "policy", "type": "nominal", "sort": null, "scale": {"domain": names, "range": colours},
        "legend": {"title": null, "orient": "top", "columns": 4, "symbolType": "stroke", "symbolStrokeWidth": 3},
    })
}

/// Lines of one quantity over reuse, one for each policy and group; `None` where reuse has one value only.
fn over_reuse(
    summary: &ClusterSummary,
    id: &str,
    title: &str,
    value: impl Fn(&CellSummary) -> crate::stats::cluster::Value,
) -> Option<Chart> {
    let rows: Vec<Value> = used(summary)
        .filter(|cell| value(cell).value.is_finite())
        .map(|cell| {
            let found = value(cell);
            let end = |end: f64| if end.is_finite() { end } else { found.value };
            json!({
                "policy": cell.cell.policy.name(), "group": cell.besides_reuse, "reuse": cell.cell.reuse_percent,
                "value": found.value, "low": end(found.low), "high": end(found.high), "name": cell.name,
                "label": format!("{} [{}, {}]", format_quantity(found.value), format_quantity(found.low), format_quantity(found.high)),
            })
        })
        .collect();
    let levels: std::collections::BTreeSet<u64> = used(summary).map(|cell| cell.cell.reuse_percent.to_bits()).collect();
    if levels.len() < 2 || rows.is_empty() {
        return None;
    }
    let groups: std::collections::BTreeSet<&str> = used(summary).map(|cell| cell.besides_reuse.as_str()).collect();
    let legend = if groups.len() > 1 { json!({"title": null, "orient": "bottom", "columns": 3}) } else { Value::Null };
    let dash = json!({"field": "group", "type": "nominal", "sort": null, "legend": legend});
    let spoken: Vec<String> = rows.iter().map(|row| format!("{} {}", row["name"], row["label"])).collect();
    Some(Chart {
        id: id.to_owned(),
        alternative: format!("Lines of {title} over reuse: {}.", spoken.join("; ")),
        specification: specification(json!({
            "height": 260,
            "data": {"values": rows},
            "encoding": {
                "x": {"field": "reuse", "type": "quantitative", "title": "reuse, % of connections that offer a session again"},
                "color": policy_colours(summary), "strokeDash": dash,
                "tooltip": [{"field": "name", "title": "cell"}, {"field": "label", "title": title}],
            },
            "layer": [
                {
                    "mark": {"type": "rule", "strokeWidth": 1.5},
                    "encoding": {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}, "strokeDash": {"value": [1, 0]}},
                },
                {
                    "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 40, "filled": true}},
                    "encoding": {"y": {"field": "value", "type": "quantitative", "title": title, "scale": {"zero": true}}},
                },
            ],
        })),
    })
}

fn throughput(summary: &ClusterSummary) -> Option<Chart> {
    over_reuse(summary, "cluster-throughput", "hits per second", |cell| cell.hits_per_second)
}

fn accepted(summary: &ClusterSummary) -> Option<Chart> {
    over_reuse(summary, "cluster-accepted", "% of offered sessions accepted", |cell| cell.accepted_percent_of_offered)
}

/// Latency against throughput, a line for each reuse, a panel for each policy: the form of Figure 9 of Apostolopoulos
/// et al. 2000. Empty unless there are several loads.
fn latency_panels(summary: &ClusterSummary) -> Vec<(String, Chart)> {
    let loads: std::collections::BTreeSet<(u32, u64)> =
        used(summary).map(|cell| (cell.cell.clients, cell.cell.rate_per_s.unwrap_or(0.0).to_bits())).collect();
    if loads.len() < 2 {
        return Vec::new();
    }
    let most = used(summary).map(|cell| cell.hits_per_second.value).fold(0.0, f64::max);
    let panel = |policy: &&str| {
        let rows: Vec<Value> = used(summary)
            .filter(|cell| cell.cell.policy.name() == *policy)
            .filter_map(|cell| {
                let latency = cell.latency_ns.get(latency_phase(cell))?;
                Some(json!({
                    "reuse": format!("{} %", cell.cell.reuse_percent), "rate": cell.hits_per_second.value, "clients": cell.cell.clients,
                    "milliseconds": latency.mean as f64 / 1e6, "name": cell.name,
                    "latency": format!("mean {}, median {}, 99 % {}", format_duration(latency.mean as f64), format_duration(latency.p50 as f64), format_duration(latency.p99 as f64)),
                    "order": cell.cell.rate_per_s.unwrap_or(f64::from(cell.cell.clients)),
                    "line": format!("{} {}", cell.cell.sharing.name(), cell.cell.behind_one_address_percent),
                }))
            })
            .collect();
        let spoken: Vec<String> = rows
            .iter()
            .map(|row| {
                format!(
                    "{} at {} hits per second {}",
                    row["reuse"],
                    format_quantity(row["rate"].as_f64().unwrap_or(0.0)),
                    row["latency"]
                )
            })
            .collect();
        let chart = Chart {
            id: format!("cluster-latency-{}", policy.replace('+', "-")),
            alternative: format!("Latency against throughput with {policy}: {}.", spoken.join("; ")),
            specification: specification(json!({
                "height": 240,
                "data": {"values": rows},
                "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 40, "filled": true}},
                "encoding": {
                    "x": {"field": "rate", "type": "quantitative", "title": "hits per second", "scale": {"domain": [0, most]}},
                    "y": {"field": "milliseconds", "type": "quantitative", "title": "mean latency, ms", "scale": {"type": "log"}},
                    "order": {"field": "order"},
                    "detail": {"field": "line"},
                    "color": {
                        "field": "reuse", "type": "nominal", "sort": null, "scale": {"range": COLOURS},
                        "legend": {"title": "reuse", "orient": "top", "symbolType": "stroke", "symbolStrokeWidth": 3},
                    },
                    "tooltip": [{"field": "name", "title": "cell"}, {"field": "latency"}, {"field": "rate", "title": "hits/s", "format": ".0f"}],
                },
            })),
        };
        (format!("Latency against throughput with {policy}: a line for each reuse, more load to the right."), chart)
    };
    policies(summary).iter().map(panel).collect()
}

fn balance(summary: &ClusterSummary) -> Option<Chart> {
    let cells: Vec<&CellSummary> = by_traffic(summary).into_iter().filter(|cell| cell.blocks > 0).collect();
    let mut rows = Vec::new();
    for cell in &cells {
        let all: u64 = cell.backends.iter().map(|backend| backend.connections).sum();
        for (number, backend) in (1..).zip(&cell.backends) {
            let part = 100.0 * backend.connections as f64 / all.max(1) as f64;
            rows.push(json!({
                "name": cell.name, "backend": format!("backend {number}"), "percent": part,
                "label": format!("{} of {} connections ({})", backend.connections, all, format_percent(part)),
            }));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let spoken: Vec<String> =
        cells.iter().map(|cell| format!("{} {} %", cell.name, format_tenths(cell.busiest_percent.value))).collect();
    Some(Chart {
        id: "cluster-balance".to_owned(),
        alternative: format!("Strips of the connections of each backend; the busiest got: {}.", spoken.join(", ")),
        specification: specification(json!({
            "height": 20 * cells.len(),
            "data": {"values": rows},
            "mark": {"type": "bar", "height": 14},
            "encoding": {
                "y": {"field": "name", "type": "nominal", "sort": null, "title": null, "axis": {"labelLimit": 320, "ticks": false, "domain": false}},
                "x": {"field": "percent", "type": "quantitative", "stack": "zero", "title": "% of connections", "scale": {"domain": [0, 100]}},
                "color": {
                    "field": "backend", "type": "nominal", "sort": null, "scale": {"range": COLOURS},
                    "legend": {"title": null, "orient": "top", "columns": 8},
                },
                "tooltip": [{"field": "name", "title": "cell"}, {"field": "backend"}, {"field": "label", "title": "got"}],
            },
        })),
    })
}
