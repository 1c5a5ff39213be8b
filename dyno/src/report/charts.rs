//! The charts of the HTML report as Vega-Lite 6 specifications. Colours of text and grid come from the page, which
//! knows light from dark.

use std::f64::consts::LOG10_2;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::text::{share_with_interval, short_share_label};
use crate::stats::shares::{MISSING, OTHER_TLS, REST};
use crate::stats::{Metric, Share, Summary, Verdict};
use crate::store::Kind;
use crate::units::{format_duration, format_percent, format_quantity, format_tenths};

/// Colours of the stages, in the order of reports: ten-colour palette of Observable, distinguishable with colour-vision
/// deficiencies.
const STAGE_COLOURS: [&str; 8] =
    ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2", "#ff8ab7", "#3ca951", "#9c6b4e"];
const OTHER_COLOUR: &str = "#97a3b6";
const PLAIN_COLOUR: &str = "#5f6b7c";

/// The phases in the order of a connection's life, with their labels and colours.
pub(super) const PHASES: [(&str, &str, &str); 5] = [
    ("tcp_connect", "TCP connect", "#97a3b6"),
    ("full_handshake", "full handshake", "#4269d0"),
    ("resumed_handshake", "resumed handshake", "#6cc5b0"),
    ("first_byte", "first byte", "#efb118"),
    ("whole_response", "whole response", "#ff725c"),
];

/// The percentile at a number of nines, as a Vega expression.
const PERCENTILE_LABEL: &str = "datum.value == 0 ? '0' : datum.value < 0.5 ? '50' : datum.value == 1 ? '90' \
    : datum.value == 2 ? '99' : datum.value == 3 ? '99.9' : '99.99'";

/// A chart with what somebody who cannot see it needs to know.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Identifies it in the page.
    pub id: String,
    /// What it shows, in words and main numbers.
    pub alternative: String,
    /// The Vega-Lite specification.
    pub specification: Value,
}

/// Names down the left side, in the order of the data.
fn names(field: &str) -> Value {
    let axis = json!({"ticks": false, "domain": false, "labelPadding": 8, "labelLimit": 180});
    json!({"field": field, "type": "nominal", "sort": null, "title": null, "axis": axis})
}

/// Where 100 % of the cost of a hit goes: one strip per metric.
pub fn cost_strip(summary: &Summary) -> Option<Chart> {
    let mut rows = Vec::new();
    for metric in Metric::ALL {
        let mut start = 0.0;
        for (share, (_, colour)) in summary.shares.by(metric).zip(stage_colours(summary)) {
            // A share below zero has no width; its number is in the table and in the chart of intervals.
            let end = start + share.percent.max(0.0);
            rows.push(json!({
                "metric": metric_label(metric), "stage": short_share_label(share), "start": start, "end": end,
                "middle": (start + end) / 2.0, "width": end - start, "share": share_with_interval(share),
                "label": format!("{:.0}", share.percent), "ink": ink(colour),
            }));
            start = end;
        }
    }
    if rows.is_empty() {
        return None;
    }
    let specification = specification(json!({
        "height": 46 * Metric::ALL.len(),
        "data": {"values": rows},
        "encoding": {"y": names("metric")},
        "layer": [
            {
                "mark": {"type": "bar", "cornerRadius": 2, "height": 34},
                "encoding": {
                    "x": {
                        "field": "start", "type": "quantitative", "title": "% of the cost of a hit",
                        "axis": {"grid": false, "tickCount": 5},
                    },
                    "x2": {"field": "end"},
                    "color": colours(summary),
                    "stroke": {"value": "rgba(255,255,255,0.55)"},
                    "tooltip": [
                        {"field": "stage", "title": "cost of"}, {"field": "metric", "title": "by"},
                        {"field": "share", "title": "share"}
                    ],
                },
            },
            {
                // Narrower segments have no room for a number.
                "transform": [{"filter": "datum.width >= 4"}],
                "mark": {"type": "text", "fontWeight": 600, "fontSize": 12, "aria": false},
                "encoding": {
                    "x": {"field": "middle", "type": "quantitative"}, "text": {"field": "label"},
                    "color": {"field": "ink", "type": "nominal", "scale": null},
                },
            },
        ],
    }));
    Some(Chart {
        id: "cost-strip".to_owned(),
        alternative: spoken_shares("Stacked strips of the shares of the cost of a hit", summary),
        specification,
    })
}

/// Each share with its interval, by both metrics.
pub fn cost_intervals(summary: &Summary) -> Option<Chart> {
    let rows: Vec<Value> = summary
        .shares
        .shares
        .iter()
        .map(|share| {
            json!({
                "metric": metric_label(share.metric), "stage": short_share_label(share), "percent": share.percent,
                "low": finite_or(share.low, share.percent), "high": finite_or(share.high, share.percent),
                "share": share_with_interval(share), "verdict": verdict(share),
            })
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let domain = interval_domain(summary);
    let specification = specification(json!({
        "height": 37 * summary.shares.by(Metric::Cpu).count(),
        "data": {"values": rows},
        "encoding": {
            "y": names("stage"),
            "yOffset": {"field": "metric", "sort": null},
            "tooltip": [
                {"field": "stage", "title": "cost of"}, {"field": "metric", "title": "by"},
                {"field": "share", "title": "share"}, {"field": "verdict"}
            ],
        },
        "layer": [
            {
                "data": {"values": [{"zero": 0}]},
                "mark": {"type": "rule", "strokeDash": [2, 3], "opacity": 0.6, "aria": false},
                "encoding": {"x": {"field": "zero", "type": "quantitative"}, "y": null, "yOffset": null, "tooltip": null},
            },
            {
                "mark": {"type": "rule", "strokeWidth": 2.5, "strokeCap": "round", "clip": true},
                "encoding": {
                    "x": {
                        "field": "low", "type": "quantitative", "title": "share of the cost of a hit, % (95 % interval)",
                        "scale": {"domain": domain, "nice": true},
                    },
                    "x2": {"field": "high"},
                    "color": colours(summary),
                },
            },
            {
                "mark": {"type": "point", "size": 60, "strokeWidth": 2, "filled": false},
                "encoding": {
                    "x": {"field": "percent", "type": "quantitative"},
                    "color": colours(summary),
                    "shape": {
                        "field": "metric", "sort": null, "scale": {"range": ["circle", "diamond"]},
                        "legend": {"title": null, "orient": "top", "direction": "horizontal", "columns": 2},
                    },
                },
            },
        ],
    }));
    Some(Chart {
        id: "cost-intervals".to_owned(),
        alternative: spoken_shares("Points with 95 % intervals", summary),
        specification,
    })
}

/// What the chart of intervals must show: CPU, which leads, whole, and the points by time. Intervals by time can be
/// many times as wide on a busy machine and would squeeze everything else; they are cut at the edge.
fn interval_domain(summary: &Summary) -> [f64; 2] {
    let ends = |share: &Share| match share.metric {
        Metric::Cpu => [finite_or(share.low, share.percent), finite_or(share.high, share.percent)],
        Metric::Throughput => [share.percent, share.percent],
    };
    let all: Vec<f64> = summary.shares.shares.iter().flat_map(ends).collect();
    [all.iter().copied().fold(0.0, f64::min) - 1.0, all.iter().copied().fold(0.0, f64::max) + 1.0]
}

/// Hits per second of all configurations, with intervals.
pub fn throughput(summary: &Summary) -> Option<Chart> {
    let used: Vec<_> = summary.configurations.iter().filter(|configuration| configuration.blocks > 0).collect();
    let rows: Vec<Value> = used
        .iter()
        .map(|configuration| {
            let bound = if configuration.client_bound { "≥ " } else { "" };
            json!({
                "name": configuration.name, "rate": configuration.hits_per_second,
                "low": finite_or(configuration.hits_per_second_low, configuration.hits_per_second),
                "high": finite_or(configuration.hits_per_second_high, configuration.hits_per_second),
                "colour": configuration_colour(summary, &configuration.kind),
                "opacity": if configuration.client_bound { 0.55 } else { 1.0 },
                "label": format!("{bound}{}", format_quantity(configuration.hits_per_second)),
                "cpu": format_duration(configuration.server_cpu_ns_per_hit),
                "limit": if configuration.client_bound { "the client (a lower bound)" } else { "the server" },
            })
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let specification = specification(json!({
        "height": 27 * used.len(),
        "data": {"values": rows},
        "encoding": {
            "y": names("name"),
            "tooltip": [
                {"field": "name", "title": "configuration"}, {"field": "label", "title": "hits/s"},
                {"field": "cpu", "title": "server CPU per hit"}, {"field": "limit", "title": "limited by"}
            ],
        },
        "layer": [
            {
                "mark": {"type": "bar", "cornerRadiusEnd": 2, "height": 17},
                "encoding": {
                    "x": {
                        "field": "rate", "type": "quantitative", "title": "hits per second (95 % interval)",
                        "axis": {"tickCount": 6},
                    },
                    "color": {"field": "colour", "type": "nominal", "scale": null},
                    "opacity": {"field": "opacity", "type": "quantitative", "scale": null},
                },
            },
            {
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 7, "fontSize": 11, "aria": false},
                "encoding": {"x": {"field": "high", "type": "quantitative"}, "text": {"field": "label"}},
            },
        ],
    }));
    let spoken: Vec<String> = used
        .iter()
        .map(|configuration| {
            let bound = if configuration.client_bound { "at least " } else { "" };
            format!("{} {bound}{} hits per second", configuration.name, format_quantity(configuration.hits_per_second))
        })
        .collect();
    Some(Chart {
        id: "throughput".to_owned(),
        alternative: format!("Bars of hits per second: {}.", spoken.join(", ")),
        specification,
    })
}

/// Percentile curves of the phases, the server as is beside plain HTTP.
pub fn latency(summary: &Summary) -> Option<Chart> {
    let mut rows = Vec::new();
    let mut spoken = Vec::new();
    for (configuration, phases) in summary.configurations.iter().zip(&summary.phases) {
        if !matches!(configuration.kind, Kind::AsIs | Kind::PlainHttp) {
            continue;
        }
        for (name, label, _) in PHASES {
            let Some(histogram) = phases.get(name).filter(|histogram| !histogram.is_empty()) else {
                continue;
            };
            rows.extend(curve(histogram).into_iter().map(|(nines, value)| {
                json!({
                    "phase": label, "configuration": configuration.name, "nines": nines, "milliseconds": value as f64 / 1e6,
                    "percentile": format!("{} %", trimmed(100.0 * (1.0 - 10f64.powf(-nines)))), "value": format_duration(value as f64),
                })
            }));
            let at = |quantile| format_duration(histogram.value_at_quantile(quantile) as f64);
            spoken.push(format!("{label} ({}) median {}, 99th percentile {}", configuration.name, at(0.5), at(0.99)));
        }
    }
    if rows.is_empty() {
        return None;
    }
    let ticks = log_ticks(rows.iter().filter_map(|row| row["milliseconds"].as_f64()));
    let (labels, colours): (Vec<&str>, Vec<&str>) = PHASES.iter().map(|(_, label, colour)| (*label, *colour)).unzip();
    let specification = specification(json!({
        "height": 300,
        "data": {"values": rows},
        "mark": {"type": "line", "interpolate": "monotone", "strokeWidth": 2, "point": {"size": 14, "filled": true}},
        "encoding": {
            "x": {
                "field": "nines", "type": "quantitative", "title": "percentile",
                "axis": {"values": [0.0, LOG10_2, 1.0, 2.0, 3.0, 4.0], "labelExpr": PERCENTILE_LABEL},
            },
            "y": {
                "field": "milliseconds", "type": "quantitative", "title": "milliseconds (log scale)",
                "scale": {"type": "log", "nice": true}, "axis": {"values": ticks, "format": "~g"},
            },
            "color": {
                "field": "phase", "type": "nominal", "sort": null, "scale": {"domain": labels, "range": colours},
                "legend": {"title": null, "orient": "top", "columns": 3, "symbolType": "stroke", "symbolStrokeWidth": 3},
            },
            "strokeDash": {
                "field": "configuration", "type": "nominal", "sort": null, "scale": {"range": [[1, 0], [4, 4]]}, "legend": null,
            },
            "tooltip": [
                {"field": "phase"}, {"field": "configuration"}, {"field": "percentile"}, {"field": "value", "title": "latency"}
            ],
        },
    }));
    Some(Chart {
        id: "latency".to_owned(),
        alternative: format!("Percentile curves of latency: {}.", spoken.join("; ")),
        specification,
    })
}

/// Points of a percentile curve as (nines, value): the percentile p is drawn at `-log10(1 - p)`, so that 90, 99 and
/// 99.9 % are equally far apart. It ends where fewer than two values are left beyond.
fn curve(histogram: &Histogram<u64>) -> Vec<(f64, u64)> {
    const STEPS_PER_NINE: u32 = 8;
    let last = (histogram.len() as f64 / 2.0).log10().clamp(0.0, 4.0);
    (0..=4 * STEPS_PER_NINE)
        .map(|step| f64::from(step) / f64::from(STEPS_PER_NINE))
        .take_while(|nines| *nines <= last)
        .map(|nines| (nines, histogram.value_at_quantile(1.0 - 10f64.powf(-nines))))
        // Zero has no logarithm.
        .filter(|(_, value)| *value > 0)
        .collect()
}

/// 1, 2 and 5 times each power of ten that the values span; only the powers when they span more than three.
fn log_ticks(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return Vec::new();
    }
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let steps: &[f64] = if powers.end() - powers.start() > 3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power))).collect()
}

pub(super) fn specification(mut body: Value) -> Value {
    body["$schema"] = json!("https://vega.github.io/schema/vega-lite/v6.json");
    body["width"] = json!("container");
    body["autosize"] = json!({"type": "fit-x", "contains": "padding"});
    body
}

/// The colour of each stage of this record, as a Vega-Lite channel. The table beside the chart is its legend.
fn colours(summary: &Summary) -> Value {
    let labels: Vec<String> = summary.shares.by(Metric::Cpu).map(short_share_label).collect();
    let colours: Vec<&str> = stage_colours(summary).into_iter().map(|(_, colour)| colour).collect();
    json!({"field": "stage", "type": "nominal", "sort": null, "scale": {"domain": labels, "range": colours}, "legend": null})
}

/// The colour of each share, in their order.
pub(super) fn stage_colours(summary: &Summary) -> Vec<(String, &'static str)> {
    let mut next = STAGE_COLOURS.iter().cycle();
    let colour = |share: &Share| match share.stage.as_str() {
        OTHER_TLS | REST | MISSING => OTHER_COLOUR,
        _ if share.left => PLAIN_COLOUR,
        _ => next.next().expect("a cycle has no end"),
    };
    let shares: Vec<&Share> = summary.shares.by(Metric::Cpu).collect();
    let colours: Vec<&'static str> = shares.iter().copied().map(colour).collect();
    shares.iter().map(|share| share.stage.clone()).zip(colours).collect()
}

fn configuration_colour(summary: &Summary, kind: &Kind) -> &'static str {
    match kind {
        Kind::StageOff(stage) => stage_colours(summary)
            .into_iter()
            .find(|(name, _)| name == stage)
            .map_or(OTHER_COLOUR, |(_, colour)| colour),
        Kind::PlainHttp => PLAIN_COLOUR,
        Kind::AsIs | Kind::Loaded | Kind::AllOff | Kind::Several(_) | Kind::Setting => OTHER_COLOUR,
    }
}

/// A text colour that can be read on `background` (`#rrggbb`): by relative luminance, WCAG 2.2.
fn ink(background: &str) -> &'static str {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&background[at..at + 2], 16).expect("a colour of this file")) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    let luminance = 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5);
    if luminance > 0.3 { "#14191f" } else { "#ffffff" }
}

fn metric_label(metric: Metric) -> &'static str {
    match metric {
        Metric::Cpu => "server CPU",
        Metric::Throughput => "time",
    }
}

fn verdict(share: &Share) -> &'static str {
    match share.verdict {
        Verdict::Resolved => "resolved",
        Verdict::Undecided => "undecided",
    }
}

fn spoken_shares(what: &str, summary: &Summary) -> String {
    let shares: Vec<String> = summary
        .shares
        .by(Metric::Cpu)
        .map(|share| format!("{} {}", short_share_label(share), format_percent(share.percent)))
        .collect();
    format!("{what}; of server CPU: {}. The table has every number.", shares.join(", "))
}

/// An interval that cannot be given has no length in a chart.
fn finite_or(end: f64, value: f64) -> f64 {
    if end.is_finite() { end } else { value }
}

/// `99.9`, `50`.
fn trimmed(value: f64) -> String {
    let text = if value >= 99.0 { format!("{value:.2}") } else { format_tenths(value) };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_end_where_the_values_do() {
        let mut histogram = Histogram::<u64>::new(3).expect("histogram");
        for value in 1..=1_000u64 {
            histogram.record(value * 1_000).expect("record");
        }
        let points = curve(&histogram);
        assert_eq!(points.first().map(|(nines, _)| *nines), Some(0.0));
        assert!(points.last().is_some_and(|(nines, _)| *nines <= 2.7 && *nines > 2.4), "{points:?}");
        assert!(points.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        assert!(curve(&Histogram::<u64>::new(3).expect("histogram")).is_empty());
    }

    #[test]
    fn ticks_and_inks_fit() {
        assert_eq!(
            log_ticks([0.3, 12.0].into_iter()),
            [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]
        );
        assert!(log_ticks(std::iter::empty()).is_empty());
        assert_eq!((ink("#efb118"), ink("#4269d0")), ("#14191f", "#ffffff"));
        assert!(STAGE_COLOURS.iter().chain([&OTHER_COLOUR, &PLAIN_COLOUR]).all(|colour| !ink(colour).is_empty()));
    }

    #[test]
    fn percentiles_read_well() {
        assert_eq!([99.9, 99.0, 50.0, 0.0, 90.0].map(trimmed), ["99.9", "99", "50", "0", "90"]);
    }
}
