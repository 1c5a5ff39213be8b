//! The charts of an experiment.

use std::collections::BTreeMap;
use std::f64::consts::LOG10_2;

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tlsdyno_base::units::{format_duration, format_quantity, format_tenths};
use tlsdyno_record::store::Role;
pub use tlsdyno_report::charts::{
    COLOURS, axis, ink, layer, legend_above, line_legend, line_mark, names, palette, quantity, rule_mark, tooltip, with,
};
use tlsdyno_report::charts::{OTHER_COLOUR, as_given};
use tlsdyno_stats::shares::{MISSING, OTHER_TLS, REST, TOGETHER};
use tlsdyno_stats::{ConfigurationSummary, Estimate, Metric, PartOfWhole, Share, Summary, Verdict};

use super::document::Chart;
use super::text::{share_number, share_with_interval, short_share_label};

/// Number of [`COLOURS`] for stages.
const STAGE_COLOURS: usize = 8;
const PLAIN_COLOUR: &str = "#5f6b7c";

/// The phases in the order of a connection's life, with their labels and colours.
pub const PHASES: [(&str, &str, &str); 5] = [
    ("tcp_connect", "TCP connect", "#97a3b6"),
    ("full_handshake", "full handshake", "#4269d0"),
    ("resumed_handshake", "resumed handshake", "#6cc5b0"),
    ("first_byte", "first byte", "#efb118"),
    ("whole_response", "whole response", "#ff725c"),
];

/// The percentile at a number of nines, as a Vega expression.
const PERCENTILE_LABEL: &str = "datum.value == 0 ? '0' : datum.value < 0.5 ? '50' : datum.value == 1 ? '90' \
    : datum.value == 2 ? '99' : datum.value == 3 ? '99.9' : '99.99'";

/// Division of the cost of a hit: one strip per metric.
pub fn cost_strip(summary: &Summary) -> Option<Chart> {
    let mut rows = Vec::new();
    let metrics = metrics(summary);
    for &metric in &metrics {
        let shares = summary.shares.by(metric).zip(stage_colours(summary));
        rows.extend(side_by_side(shares.map(|(share, (_, colour))| {
            // A share below zero has no width; its number is in the table and in the chart of intervals.
            let width = if share.known { share.percent.max(0.0) } else { 0.0 };
            (width, with(share_row(share), json!({"ink": ink(colour)})))
        })));
    }
    let fields = [("stage", "cost of"), ("metric", "by"), ("share", "share")];
    let stroke = json!({"value": "rgba(255,255,255,0.55)"});
    let strips = layer(
        json!({"type": "bar", "cornerRadius": 2, "height": 34}),
        json!({"color": colours(summary), "stroke": stroke, "tooltip": tooltip(fields)}),
    );
    let labels = layer(
        json!({"type": "text", "fontWeight": 600, "fontSize": 12, "aria": false}),
        json!({"color": as_given("ink")}),
    );
    let body = strips_with_labels(["metric", "% of the cost of a hit"], strips, labels);
    let caption = match metrics.len() {
        1 => "What a hit costs of server CPU time, by what it is spent on.",
        _ => "What a hit costs, by what it is spent on. Server CPU leads; time is from hits per second at saturation.",
    };
    let words = shares_in_words("Stacked strips of the shares of the cost of a hit", summary);
    Some(Chart::new("cost-strip", 46 * metrics.len(), rows, body)?.described(caption, words))
}

/// Parts of a strip by their widths, each beginning at the end of the one before.
pub fn side_by_side(parts: impl IntoIterator<Item = (f64, Value)>) -> Vec<Value> {
    let mut start = 0.0;
    let place = |(width, row): (f64, Value)| {
        let middle = start + width / 2.0;
        let place = json!({"start": start, "end": start + width, "middle": middle, "width": width});
        start += width;
        with(row, place)
    };
    parts.into_iter().map(place).collect()
}

/// Strips of such parts, one for each value of `names_of`, with the label of each part in it.
pub fn strips_with_labels([names_of, title]: [&str; 2], mut strips: Value, mut labels: Value) -> Value {
    let x = with(quantity("start", title), json!({"axis": {"grid": false, "tickCount": 5}}));
    strips["encoding"] = with(strips["encoding"].take(), json!({"x": x, "x2": {"field": "end"}}));
    let text = json!({"x": axis("middle"), "text": {"field": "label"}});
    labels["encoding"] = with(labels["encoding"].take(), text);
    // Narrower parts have no room for a number.
    labels["transform"] = json!([{"filter": "datum.width >= 4"}]);
    json!({"encoding": {"y": names(names_of, 180)}, "layer": [strips, labels]})
}

fn metrics(summary: &Summary) -> Vec<Metric> {
    Metric::ALL.into_iter().filter(|metric| summary.shares.by(*metric).next().is_some()).collect()
}

fn share_row(share: &Share) -> Value {
    let [low, high] = share.estimate().drawn().interval();
    json!({
        "metric": metric_label(share.metric), "stage": short_share_label(share), "percent": share.percent,
        "low": low, "high": high,
        "share": share_with_interval(share), "label": format!("{:.0}", share.percent), "verdict": verdict(share),
    })
}

fn shown(summary: &Summary) -> impl Iterator<Item = &Share> {
    summary.shares.shares.iter().filter(|share| share.part() != PartOfWhole::NotKnown)
}

/// Each share with its interval, by both metrics.
pub fn cost_intervals(summary: &Summary) -> Option<Chart> {
    let rows: Vec<Value> = shown(summary).map(share_row).collect();
    let zero = layer(
        json!({"type": "rule", "strokeDash": [2, 3], "opacity": 0.6, "aria": false}),
        json!({"x": axis("zero"), "y": null, "yOffset": null, "tooltip": null}),
    );
    let zero = with(zero, json!({"data": {"values": [{"zero": 0}]}}));
    let x = quantity("low", "share of the cost of a hit, % (95 % interval)");
    let x = with(x, json!({"scale": {"domain": interval_domain(summary), "nice": true}}));
    let intervals = layer(
        json!({"type": "rule", "strokeWidth": 2.5, "strokeCap": "round", "clip": true}),
        json!({"x": x, "x2": {"field": "high"}, "color": colours(summary)}),
    );
    let two = metrics(summary).len() > 1;
    let legend = two.then(|| json!({"title": null, "orient": "top", "direction": "horizontal", "columns": 2}));
    let shape = json!({"field": "metric", "sort": null, "scale": {"range": ["circle", "diamond"]}, "legend": legend});
    let points = layer(
        json!({"type": "point", "size": 60, "strokeWidth": 2, "filled": false}),
        json!({"x": axis("percent"), "color": colours(summary), "shape": shape}),
    );
    let fields = [("stage", "cost of"), ("metric", "by"), ("share", "share"), ("verdict", "verdict")];
    let common =
        json!({"y": names("stage", 180), "yOffset": {"field": "metric", "sort": null}, "tooltip": tooltip(fields)});
    let body = json!({"encoding": common, "layer": [zero, intervals, points]});
    let [from, to] = interval_domain(summary);
    let is_cut = |share: &&Share| share.estimate().has_interval() && (share.low < from || share.high > to);
    let cut = match shown(summary).any(|share| is_cut(&share)) {
        true => " Very wide intervals by time are cut at the edge.",
        false => "",
    };
    let caption = format!("Each share with its 95 % interval: what crosses 0 is undecided.{cut}");
    let words = shares_in_words("Points with 95 % intervals", summary);
    Some(
        Chart::new("cost-intervals", 37 * rows.len() / metrics(summary).len().max(1), rows, body)?
            .described(caption, words),
    )
}

/// Range of the chart of intervals: all intervals by CPU, and the points by time. Intervals by time can be many times
/// as wide on a busy machine and are cut at the edge.
fn interval_domain(summary: &Summary) -> [f64; 2] {
    let ends = |share: &Share| match share.metric {
        Metric::Cpu => share.estimate().drawn().interval(),
        Metric::Throughput => [share.percent, share.percent],
    };
    let all: Vec<f64> = shown(summary).flat_map(ends).collect();
    [all.iter().copied().fold(0.0, f64::min) - 1.0, all.iter().copied().fold(0.0, f64::max) + 1.0]
}

pub fn throughput(summary: &Summary) -> Option<Chart> {
    let used = || summary.off_machines().filter(|configuration| configuration.blocks > 0);
    let bar = |of: &ConfigurationSummary| {
        let bound = if of.client_bound { "≥ " } else { "" };
        let Estimate { value: rate, low, high } = of.hits_per_second.drawn();
        json!({
            "name": of.name, "rate": rate, "low": low, "high": high,
            "colour": configuration_colour(summary, &of.role),
            "opacity": if of.client_bound { 0.55 } else { 1.0 },
            "label": format!("{bound}{}", format_quantity(rate)),
            "cpu": format_duration(of.server_cpu_ns_per_hit.value),
            "limit": if of.client_bound { "the client (a lower bound)" } else { "the server" },
        })
    };
    let rows: Vec<Value> = used().map(bar).collect();
    // Behind the longest bar its number needs room.
    let most = rows.iter().filter_map(|row| row["high"].as_f64()).fold(1.0, f64::max);
    let scale = json!({"domain": [0, 1.25 * most], "nice": false});
    let x = quantity("rate", "hits per second (95 % interval)");
    let x = with(x, json!({"axis": {"tickCount": 6}, "scale": scale}));
    let bars = layer(
        json!({"type": "bar", "cornerRadiusEnd": 2, "height": 17}),
        json!({"x": x, "color": as_given("colour"), "opacity": with(axis("opacity"), json!({"scale": null}))}),
    );
    let intervals = layer(rule_mark(), json!({"x": axis("low"), "x2": {"field": "high"}}));
    let labels = layer(
        json!({"type": "text", "align": "left", "dx": 7, "fontSize": 11, "aria": false}),
        json!({"x": axis("high"), "text": {"field": "label"}}),
    );
    let fields =
        [("name", "configuration"), ("label", "hits/s"), ("cpu", "server CPU per hit"), ("limit", "limited by")];
    let body = json!({
        "encoding": {"y": names("name", 180), "tooltip": tooltip(fields)},
        "layer": [bars, intervals, labels],
    });
    let in_words = |of: &ConfigurationSummary| {
        let bound = if of.client_bound { "at least " } else { "" };
        format!("{} {bound}{} hits per second", of.name, format_quantity(of.hits_per_second.value))
    };
    let words = used().map(in_words).collect::<Vec<_>>().join(", ");
    let caption = "Hits per second with 95 % intervals. Faint bars are lower bounds: there the client was the limit.";
    let height = 27 * rows.len();
    Some(Chart::new("throughput", height, rows, body)?.described(caption, format!("Bars of hits per second: {words}.")))
}

/// Percentile curves of the phases: the server as is, and plain HTTP.
pub fn latency(summary: &Summary) -> Option<Chart> {
    let both = summary.configurations.iter().filter(|of| matches!(of.role, Role::AsIs | Role::PlainHttp));
    let caption = "Percentile curves, the server as is (solid) beside plain HTTP (dashed).";
    percentile_curves("latency", both.map(|of| (of.name.as_str(), &of.phases)), caption)
}

/// Percentile curves of the phases of one or two loads; the second is dashed.
pub fn percentile_curves<'a>(
    id: &str,
    loads: impl Iterator<Item = (&'a str, &'a BTreeMap<String, Histogram<u64>>)>,
    caption: &str,
) -> Option<Chart> {
    let (mut rows, mut words) = (Vec::new(), Vec::new());
    for (load, phases) in loads {
        for (name, label, _) in PHASES {
            let Some(histogram) = phases.get(name).filter(|histogram| !histogram.is_empty()) else {
                continue;
            };
            rows.extend(curve(histogram).into_iter().map(|(nines, value)| {
                json!({
                    "phase": label, "configuration": load, "nines": nines, "milliseconds": value as f64 / 1e6,
                    "percentile": format!("{} %", trimmed(100.0 * (1.0 - 10f64.powf(-nines)))),
                    "value": format_duration(value as f64),
                })
            }));
            let at = |quantile| format_duration(histogram.value_at_quantile(quantile) as f64);
            words.push(format!("{label} ({load}) median {}, 99th percentile {}", at(0.5), at(0.99)));
        }
    }
    let ticks = log_ticks(rows.iter().filter_map(|row| row["milliseconds"].as_f64()));
    let (labels, colours): (Vec<&str>, Vec<&str>) = PHASES.iter().map(|(_, label, colour)| (*label, *colour)).unzip();
    let nines = json!({"axis": {"values": [0.0, LOG10_2, 1.0, 2.0, 3.0, 4.0], "labelExpr": PERCENTILE_LABEL}});
    let logarithmic = json!({"scale": {"type": "log", "nice": true}, "axis": {"values": ticks, "format": "~g"}});
    let dash = json!({"field": "configuration", "type": "nominal", "sort": null, "scale": {"range": [[1, 0], [4, 4]]}});
    let fields =
        [("phase", "phase"), ("configuration", "configuration"), ("percentile", "percentile"), ("value", "latency")];
    let body = json!({
        "mark": {"type": "line", "interpolate": "monotone", "strokeWidth": 2, "point": {"size": 14, "filled": true}},
        "encoding": {
            "x": with(quantity("nines", "percentile"), nines),
            "y": with(quantity("milliseconds", "milliseconds (log scale)"), logarithmic),
            "color": with(palette("phase", &labels, &colours), line_legend(None, 3)),
            "strokeDash": with(dash, json!({"legend": null})),
            "tooltip": tooltip(fields),
        },
    });
    let words = format!("Percentile curves of latency: {}.", words.join("; "));
    Some(Chart::new(id, 300, rows, body)?.described(caption, words))
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

/// The colour of each stage of this record, as a Vega-Lite channel. The table beside the chart is its legend.
fn colours(summary: &Summary) -> Value {
    let labels: Vec<String> = summary.shares.by(Metric::Cpu).map(short_share_label).collect();
    let colours: Vec<&str> = stage_colours(summary).into_iter().map(|(_, colour)| colour).collect();
    palette("stage", &labels, &colours)
}

pub fn stage_colours(summary: &Summary) -> Vec<(String, &'static str)> {
    let mut next = COLOURS.iter().take(STAGE_COLOURS).cycle();
    let colour = |share: &Share| match share.stage.as_str() {
        OTHER_TLS | REST | MISSING | TOGETHER => OTHER_COLOUR,
        _ if share.left => PLAIN_COLOUR,
        _ => next.next().expect("a cycle has no end"),
    };
    let shares: Vec<&Share> = summary.shares.by(Metric::Cpu).collect();
    let colours: Vec<&'static str> = shares.iter().copied().map(colour).collect();
    shares.iter().map(|share| share.stage.clone()).zip(colours).collect()
}

fn configuration_colour(summary: &Summary, role: &Role) -> &'static str {
    match role {
        Role::StageOff(stage) => stage_colours(summary)
            .into_iter()
            .find(|(name, _)| name == stage.name())
            .map_or(OTHER_COLOUR, |(_, colour)| colour),
        Role::PlainHttp => PLAIN_COLOUR,
        Role::AsIs | Role::Loaded | Role::AllOff | Role::Several(_) | Role::Setting => OTHER_COLOUR,
        Role::NothingDoubled | Role::Copies | Role::Doubled(_) | Role::AllDoubled => OTHER_COLOUR,
    }
}

fn metric_label(metric: Metric) -> &'static str {
    match metric {
        Metric::Cpu => "server CPU",
        Metric::Throughput => "time",
    }
}

pub fn verdict(share: &Share) -> &'static str {
    match share.verdict {
        Verdict::Resolved => "resolved",
        Verdict::Undecided if share.is_of_few_rounds() => "too few rounds",
        Verdict::Undecided => "undecided",
    }
}

fn shares_in_words(what: &str, summary: &Summary) -> String {
    let shares: Vec<String> = summary
        .shares
        .by(Metric::Cpu)
        .map(|share| format!("{} {}", short_share_label(share), share_number(share)))
        .collect();
    format!("{what}; of server CPU: {}. The table has every number.", shares.join(", "))
}

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
        assert!(!ink(PLAIN_COLOUR).is_empty());
    }

    #[test]
    fn percentiles_read_well() {
        assert_eq!([99.9, 99.0, 50.0, 0.0, 90.0].map(trimmed), ["99.9", "99", "50", "0", "90"]);
    }
}
