//! What a log says about reuse, as one self-contained HTML file: it works offline, without any request.

use askama::Template;
use serde_json::{Value, json};

use super::charts::{Chart, specification};
use super::html::{ChartView, VIEWER_LICENCES, view, viewer};
use crate::trace::LogScan;
use crate::units::format_seconds;

/// Colours of the limits: the ten-colour palette of Observable, from few hits to many.
const COLOURS: [&str; 6] = ["#ff725c", "#efb118", "#6cc5b0", "#4269d0", "#a463f2", "#97a3b6"];
/// The curve of sessions that each request renews.
const RENEWED: &str = "renewed by each hit (TLS 1.3 tickets)";

#[derive(Template)]
#[template(path = "log.html")]
struct Page<'a> {
    title: String,
    version: &'static str,
    log: &'a str,
    answer: String,
    chart: ChartView,
    text: String,
    warnings: Vec<String>,
    viewer: String,
    licences: &'static str,
}

/// The page of a log.
///
/// # Errors
/// The template cannot be filled, which no log can bring about.
pub fn log_page(scan: &LogScan) -> Result<String, askama::Error> {
    Page {
        title: format!("Percent reuse of {}", scan.workload),
        version: env!("CARGO_PKG_VERSION"),
        log: &scan.workload,
        answer: answer(scan),
        chart: view(chart(scan)),
        text: scan.to_string(),
        warnings: scan.warnings(),
        viewer: viewer(),
        licences: VIEWER_LICENCES,
    }
    .render()
}

/// The reuse at the lifetime that servers have by default, in a sentence.
fn answer(scan: &LogScan) -> String {
    let at_300_s = scan.reuse.rows.iter().find(|row| row.lifetime_s == 300);
    let percent = at_300_s.and_then(|row| row.percent_by_limit.last()).copied().unwrap_or_default();
    format!("With sessions of 300 s, the default of nginx and Apache, {percent:.1}\u{a0}% of the hits reuse one.")
}

fn chart(scan: &LogScan) -> Chart {
    let mut names: Vec<String> = scan
        .reuse
        .limits
        .iter()
        .map(|limit| limit.map_or("any number of hits".to_owned(), |limit| format!("{limit} hits")))
        .collect();
    names.push(RENEWED.to_owned());
    let mut values = Vec::new();
    for row in &scan.reuse.rows {
        let percents = row.percent_by_limit.iter().chain([&row.percent_renewed]);
        values.extend(names.iter().zip(percents).map(|(name, percent)| {
            json!({"lifetime_s": row.lifetime_s, "lasts": format_seconds(row.lifetime_s), "limit": name, "percent": percent})
        }));
    }
    let ticks: Vec<u32> = scan.reuse.rows.iter().map(|row| row.lifetime_s).collect();
    Chart {
        id: "reuse".to_owned(),
        alternative: answer(scan),
        specification: specification(body(&names, &ticks, values)),
    }
}

fn body(names: &[String], ticks: &[u32], values: Vec<Value>) -> Value {
    json!({
        "height": 320,
        "data": {"values": values},
        "mark": {"type": "line", "point": true},
        "encoding": {
            "x": {"field": "lifetime_s", "type": "quantitative", "scale": {"type": "log"}, "title": "a session lasts (seconds)", "axis": {"values": ticks, "format": "d"}},
            "y": {"field": "percent", "type": "quantitative", "scale": {"zero": false}, "title": "percent reuse (of hits)"},
            "color": {"field": "limit", "type": "nominal", "sort": null, "title": "and carries", "scale": {"domain": names, "range": &COLOURS[..names.len()]}},
            "strokeDash": {"condition": {"test": {"field": "limit", "equal": RENEWED}, "value": [4, 3]}, "value": [1, 0]},
            "tooltip": [
                {"field": "lasts", "title": "lasts"},
                {"field": "limit", "title": "carries"},
                {"field": "percent", "title": "percent reuse", "format": ".1f"}
            ]
        }
    })
}
