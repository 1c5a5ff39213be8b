//! The figure: throughput over reuse, a line for each number of proxies, as Figure 8 of Mraz et al. 2002 has it.

use serde_json::{Value, json};
use tlsdyno_base::units::{format_interval_with, format_quantity};
use tlsdyno_bench::report::charts::{
    COLOURS, axis, layer, line_legend, line_mark, palette, quantity, rule_mark, tooltip, with,
};
use tlsdyno_bench::report::document::Chart;
use tlsdyno_record::model::Quantity;

use crate::array::file::PLAIN_HTTP;
use crate::array::summary::{ArrayLine, ArraySummary, reuse_of};

/// Levels at which the model is drawn, per cent.
const DRAWN: usize = 101;

/// Throughput in per cent of plain HTTP, so that the paper's points fit in; `None` without plain HTTP.
pub fn throughput(summary: &ArraySummary) -> Option<Chart> {
    let plain = summary.plain.as_ref()?.hits_per_second.value;
    let mut rows: Vec<Value> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    for line in &summary.lines {
        let mut said = Vec::new();
        for level in &line.levels {
            let found = level.hits_per_second;
            let end = |end: f64| 100.0 * if end.is_finite() { end } else { found.value } / plain;
            let ends = format_interval_with(found.low, found.high, format_quantity);
            let label = format!("{} {ends} pages/s", format_quantity(found.value));
            said.push(format!("{:.1} % {}", level.achieved_percent, format_quantity(found.value)));
            rows.push(json!({
                "line": line.name, "kind": "measured", "reuse": level.achieved_percent, "of_plain": end(found.value),
                "low": end(found.low), "high": end(found.high), "label": label,
            }));
        }
        words.push(format!("{}: {}", line.name, said.join(", ")));
        rows.extend(modelled(summary, line, plain));
    }
    for (kind, percent) in [("plain HTTP", 100.0), ("half of it", 50.0)] {
        rows.extend([0.0, 100.0].map(|reuse| json!({"kind": kind, "reuse": reuse, "of_plain": percent})));
    }
    rows.extend(published(summary));
    let names: Vec<String> = summary.lines.iter().map(|line| line.name.clone()).collect();
    // A layer without a row would have no extent, of which the viewer warns.
    let is_there = |kind: &str| rows.iter().any(|row| row["kind"] == kind);
    let of = |kind: &str, layer: Value| {
        is_there(kind).then(|| with(layer, json!({"transform": [{"filter": format!("datum.kind == '{kind}'")}]})))
    };
    let y = with(quantity("of_plain", "pages per second, % of plain HTTP"), json!({"scale": {"zero": true}}));
    let grey = |dash: [u32; 2]| json!({"type": "line", "strokeWidth": 1.5, "color": COLOURS[8], "strokeDash": dash});
    let dashed = json!({"type": "line", "strokeWidth": 1.5, "strokeDash": [6, 3]});
    let cross = json!({"type": "point", "shape": "cross", "size": 110, "filled": true});
    let coloured = with(palette("line", &names, &COLOURS), line_legend(None, 5));
    let x = with(
        quantity("reuse", &format!("reuse, % by {}", summary.experiment.array.by)),
        json!({"scale": {"domain": [0, 100]}}),
    );
    let layers = [
        of("measured", layer(rule_mark(), json!({"y": axis("low"), "y2": {"field": "high"}, "color": coloured}))),
        of("measured", layer(line_mark(), json!({"y": y, "color": coloured}))),
        of("model", layer(dashed, json!({"y": axis("of_plain"), "color": coloured}))),
        of("plain HTTP", layer(grey([1, 0]), json!({"y": axis("of_plain")}))),
        of("half of it", layer(grey([6, 6]), json!({"y": axis("of_plain")}))),
        of("published", layer(cross, json!({"y": axis("of_plain"), "color": coloured}))),
    ];
    let layers: Vec<Value> = layers.into_iter().flatten().collect();
    let body = json!({
        "encoding": {"x": x, "tooltip": tooltip([("line", "line"), ("reuse", "reuse, %"), ("label", "pages/s")])},
        "layer": layers,
    });
    let source = summary.experiment.paper.as_ref().and_then(|paper| {
        let plain = paper.first(Quantity::HitsPerS, PLAIN_HTTP)?.mean();
        Some(format!(" Crosses: published by {} (plain: {}/s).", paper.source, format_quantity(plain)))
    });
    let source = source.unwrap_or_default();
    let caption = format!(
        "Pages per second over reuse by {}, a line for each number of proxies, with 95 % intervals; dashed: the model; \
         grey: plain HTTP and half of it.{source}",
        summary.experiment.array.by
    );
    let words = format!("Lines of pages per second over reuse. {}.", words.join(". "));
    Some(Chart::new("array-throughput", 320, rows, body)?.told(caption, words))
}

/// The model of a line.
fn modelled(summary: &ArraySummary, line: &ArrayLine, plain: f64) -> Vec<Value> {
    let of_line =
        summary.models.iter().find(|model| model.is_of_server == (line.proxies == 0) && model.spread == line.spread);
    let Some(model) = of_line else { return Vec::new() };
    let machines = f64::from(line.proxies.max(1));
    let point = |percent: usize| {
        let hits = model.costs.hits_per_second(plain, machines, percent as f64);
        json!({"line": line.name, "kind": "model", "reuse": percent, "of_plain": 100.0 * hits / plain})
    };
    (0..DRAWN).map(point).collect()
}

/// The paper's points, in the colours of their lines.
fn published(summary: &ArraySummary) -> Vec<Value> {
    let Some(paper) = &summary.experiment.paper else { return Vec::new() };
    let Some(plain) = paper.first(Quantity::HitsPerS, PLAIN_HTTP) else { return Vec::new() };
    let row = |line: &str, reuse: f64, percent: f64, label: String| json!({"line": line, "kind": "published", "reuse": reuse, "of_plain": percent, "label": label});
    let half = paper.all(Quantity::HalfServingPercent);
    let half = half.map(|(line, _, percent)| row(line, percent.mean(), 50.0, "published".to_owned()));
    let points = paper.all(Quantity::HitsPerS).filter_map(|(line, at, rate)| {
        let percent = 100.0 * rate.mean() / plain.mean();
        let label = format!("published: {}/s", format_quantity(rate.mean()));
        (line != PLAIN_HTTP).then(|| Some(row(line, reuse_of(at)?, percent, label)))?
    });
    half.chain(points).collect()
}
