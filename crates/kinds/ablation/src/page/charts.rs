//! The charts of an ablation.

use serde_json::{Value, json};
use tlsdyno_base::units::{format_duration, format_quantity};
use tlsdyno_record::store::Role;
use tlsdyno_report::charts::{
    COLOURS, OTHER_COLOUR, as_given, axis, ink, layer, names, palette, quantity, rule_mark, tooltip, with,
};
use tlsdyno_runner::report::charts::{percentile_curves, side_by_side, strips_with_labels};
use tlsdyno_runner::report::document::Chart;
use tlsdyno_stats::remainders::{MISSING, OTHER_TLS, REST, TOGETHER};
use tlsdyno_stats::{ConfigurationSummary, Estimate, Metric, PartOfWhole, Verdict};

use super::text::{share_number, share_with_interval, short_share_label};
use crate::summary::{Share, Summary};

/// Number of [`COLOURS`] for stages.
const STAGE_COLOURS: usize = 8;
const PLAIN_COLOUR: &str = "#5f6b7c";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_has_an_ink() {
        assert!(!ink(PLAIN_COLOUR).is_empty());
    }
}
