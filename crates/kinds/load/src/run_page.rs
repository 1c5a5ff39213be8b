//! A load run as a document: the counts, the latencies, and both over time.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tlsdyno_base::histogram::Percentiles;
use tlsdyno_base::units::{
    NONE, format_bytes, format_count, format_duration, format_percent, format_quantity, format_rate, format_tenths,
};
use tlsdyno_engine::load::{Life, Phase, Slice};
use tlsdyno_record::store::load_run::Summary;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::charts::{COLOURS, line_legend, palette, percentile_curves, quantity, tooltip, with};
use tlsdyno_runner::report::document::{Cell, Chart, Column, Document, Medium, Section, row};
use tlsdyno_runner::report::text::capitalised;
use tlsdyno_runner::report::{cells, circumstances};

use crate::summary::LoadSummary;

/// The document of a run.
pub fn document(summary: &Summary) -> Document {
    let effort = summary.effort.as_ref().map_or("plain HTTP".to_owned(), |effort| format!("effort {effort}"));
    let negotiated = summary.outcome.negotiated.iter();
    let negotiated = negotiated.map(|(tls, count)| format!("TLS {tls}: {} handshakes.", format_count(*count)));
    // The answer tells the only one.
    let faults: Vec<_> = faults(summary).collect();
    let is_told = summary.outcome.hits == 0 && faults.len() == 1;
    let told = |(fault, count): (&String, &u64)| format!("{} × {fault}", format_count(*count));
    let faults = faults.into_iter().filter(|_| !is_told).map(told);
    let counts = ["", "", ""].map(Column::words).into_iter().zip(["", "number", ""]);
    let columns = counts.map(|(column, class)| Column { class, ..column }).collect();
    let over_time = Section::titled("", "Over time")
        .on(Medium::Page)
        .charts(charts(&summary.outcome.slices))
        .charts(gantt("connections", "Connections of the first clients", &summary.outcome.lives));
    Document {
        title: format!("{}: {effort}, {}", summary.url, format_duration(summary.outcome.elapsed_ns as f64)),
        answer: answer(summary),
        sections: vec![
            Section::default().notes(negotiated.chain(trusting(summary))),
            circumstances::warnings(summary.warnings.clone()).on(Medium::Page),
            if over_time.parts.is_empty() { Section::default() } else { over_time },
            Section::default().table(columns, counts_rows(summary)).notes(faults),
            latencies(summary),
            workers(summary),
            Section::titled("", "Latency by phase").on(Medium::Page).charts(percentile_chart(summary)),
            circumstances::warnings(summary.warnings.clone()).on(Medium::Terminal),
        ],
        ..Document::default()
    }
}

/// What the server did wrong in TLS and HTTP/2, with counts.
fn faults(summary: &Summary) -> impl Iterator<Item = (&String, &u64)> {
    summary.outcome.tls_faults.iter().chain(summary.outcome.http2_faults())
}

/// Work that a client saves which does not verify.
fn trusting(summary: &Summary) -> Option<String> {
    let lean = summary.effort.as_deref() == Some("lean");
    lean.then(|| {
        "Effort lean (--insecure): the client verifies neither certificates nor signatures, which saves it CPU time. \
         Compare runs of one effort only."
            .to_owned()
    })
}

fn answer(summary: &Summary) -> String {
    if summary.outcome.hits == 0 {
        let fault = faults(summary).max_by_key(|(_, count)| **count);
        return format!("No request was answered{}.", fault.map_or(String::new(), |(fault, _)| format!(": {fault}")));
    }
    let told = |phase: Phase| {
        let found = summary.latency_ns.get(&phase)?;
        let (p50, p99) = (format_duration(found.p50 as f64), format_duration(found.p99 as f64));
        Some(format!("{} {p50} in the median, {p99} at the 99th percentile", phase.name().replace('_', " ")))
    };
    let last = Phase::ALL.into_iter().rev().find_map(|phase| Some((phase, told(phase)?)));
    // A response counts from its request, or from its time in an open loop, which has the handshake in it.
    let is_apart = last.as_ref().is_some_and(|(phase, _)| *phase == Phase::WholeResponse);
    let handshakes = [Phase::FullHandshake, Phase::ResumedHandshake].into_iter().filter(|_| is_apart).filter_map(told);
    let handshakes = handshakes.map(|told| format!("before it, on a new connection, {told}"));
    let rate = format!("{} hits/s", format_quantity(summary.hits_per_second));
    let parts: Vec<String> = [rate].into_iter().chain(last.map(|(_, told)| told)).chain(handshakes).collect();
    format!("{}.", parts.join("; "))
}

/// Name, number, and a remark.
fn counts_rows(summary: &Summary) -> Vec<Vec<Cell>> {
    let outcome = &summary.outcome;
    let mut rows = Vec::new();
    let mut line = |name: &str, value: String, more: String| rows.push(row([name.to_owned(), value, more], false));
    line("hits", format_count(outcome.hits), format_rate(summary.hits_per_second));
    match summary.asked.rate_per_second {
        Some(rate) => line("unserved", format_count(outcome.unserved), format!("of the open loop at {rate} /s")),
        None if outcome.unserved > 0 => {
            line("unserved", format_count(outcome.unserved), "by the times of the trace".to_owned());
        }
        None => {}
    }
    let seconds = outcome.elapsed_ns as f64 / 1e9;
    let rate = if seconds > 0.0 { outcome.body_bytes as f64 / seconds } else { 0.0 };
    line("body", format_bytes(outcome.body_bytes as f64), format!("{}/s", format_bytes(rate)));
    redirects(summary).into_iter().for_each(|[name, count, more]| line(&name, count, more));
    line("connections", format_count(outcome.connections), String::new());
    let more = kept(summary).into_iter().chain(network(summary)).chain(http2(summary));
    more.for_each(|[name, count, more]| line(&name, count, more));
    let counts = outcome.handshakes;
    if let Some(achieved) = summary.reuse_percent_achieved {
        line("full", format_count(counts.full), "handshakes".to_owned());
        let asked = summary.asked.reuse_percent;
        let asked = asked.map_or(String::new(), |asked| format!(", asked for {}", format_percent(asked)));
        let more = format!(
            "handshakes, {}{asked} (intended {}, offered {})",
            format_percent(achieved),
            format_count(counts.resumed_intended),
            format_count(counts.resumed_offered)
        );
        line("resumed", format_count(counts.resumed_accepted), more);
        let each = format_tenths(outcome.hits as f64 / counts.completed().max(1) as f64);
        line("each", each, "hits for each handshake, full or resumed".to_owned());
        if counts.early_offered > 0 {
            let more = format!("requests with the hello were taken (offered {})", format_count(counts.early_offered));
            line("early data", format_count(counts.early_accepted), more);
        }
    }
    if counts.retried_count > 0 {
        let more = "handshakes, a round trip more each: the server asked for another group's key share (--group)";
        line("retried", format_count(counts.retried_count), more.to_owned());
    }
    if let Some(window) = outcome.window {
        let limit = window.limit.map(format_count);
        let limit = limit.map_or("no bound".to_owned(), |limit| format!("window {limit}"));
        let more = format!("requests apart at most ({limit}), {} stalls", format_count(window.stalls));
        line("order", format_count(window.largest_distance), more);
    }
    let per_hit = summary.client_cpu_ns_per_hit.map_or(NONE.to_owned(), |ns| format!("{}/hit", format_duration(ns)));
    let whose = if outcome.parts.is_empty() { String::new() } else { format!(", by the busiest {}", whose(summary)) };
    line("client CPU", per_hit, format!("{:.0} % of a core{whose}", summary.client_busy_fraction * 100.0));
    let errors: Vec<String> =
        outcome.errors.iter().map(|(kind, count)| format!("{} {kind}", format_count(*count))).collect();
    let none = if errors.is_empty() { "none" } else { "" };
    line("errors", none.to_owned(), errors.join(", "));
    rows
}

/// Redirects, where some were followed or would have been.
fn redirects(summary: &Summary) -> Option<[String; 3]> {
    let (followed, unfinished) = (summary.outcome.redirects_followed, summary.outcome.redirects_unfinished);
    let more = || format!("followed, {} more came as the run ended", format_count(unfinished));
    (followed + unfinished > 0).then(|| ["redirects".to_owned(), format_count(followed), more()])
}

/// Connections on which the server chose HTTP/2, and what else became of it.
fn http2(summary: &Summary) -> Option<[String; 3]> {
    let http2 = summary.outcome.http2.as_ref()?;
    let (downgraded, repeated) = (format_count(http2.downgraded_count), format_count(http2.repeated_count));
    let more = format!("connections by the server's choice, HTTP/1.1 {downgraded}; {repeated} requests made again");
    Some(["HTTP/2".to_owned(), format_count(http2.chosen_count), more])
}

/// Clients that kept their rate, and number of clients.
fn kept(summary: &Summary) -> Option<[String; 3]> {
    let kept = summary.outcome.kept?;
    let more = format!(
        "of {} clients kept their rate; {} kbit/s on the average",
        format_count(kept.clients_count),
        format_quantity(kept.mean_bits_per_second() / 1e3)
    );
    Some(["kept".to_owned(), format_count(kept.kept_count), more])
}

/// Packets through the emulated network, and its parameters.
fn network(summary: &Summary) -> Option<[String; 3]> {
    let (network, relayed) = summary.asked.network.zip(summary.outcome.relayed)?;
    let more = format!(
        "packets in {network}, of at most {} each second; {} lost, {} dropped; the relay took {:.0} % of a core",
        format_count(relayed.limit_per_second),
        format_count(relayed.lost_count),
        format_count(relayed.dropped_count),
        relayed.cpu_ns as f64 * 100.0 / summary.outcome.elapsed_ns.max(1) as f64
    );
    Some(["network".to_owned(), format_count(relayed.packets), more])
}

fn latencies(summary: &Summary) -> Section {
    let seen = Phase::ALL.iter().filter_map(|phase| Some((phase, summary.latency_ns.get(phase)?)));
    let seen: Vec<(&Phase, &Percentiles)> = seen.collect();
    let rows = Rows::new(&seen)
        .words("latency", |(phase, _)| phase.name().replace('_', " "))
        .number("count", |(_, found)| format_count(found.count))
        .number("mean", |(_, found)| cells::latency(Some(found), |of| of.mean))
        .number("p50", |(_, found)| cells::latency(Some(found), |of| of.p50))
        .number("p90", |(_, found)| cells::latency(Some(found), |of| of.p90))
        .number("p99", |(_, found)| cells::latency(Some(found), |of| of.p99))
        .number("p99.9", |(_, found)| cells::latency(Some(found), |of| of.p999))
        .number("max", |(_, found)| cells::latency(Some(found), |of| of.max));
    Section::default().rows(rows)
}

/// Prefix of the names in the rows of [`workers`]: loops of one process, or workers.
fn whose(summary: &Summary) -> &str {
    summary.outcome.parts.first().and_then(|part| part.name.split(' ').next()).unwrap_or("loop")
}

/// Work of each of several loops or workers.
fn workers(summary: &Summary) -> Section {
    let rows = Rows::new(&summary.outcome.parts)
        .words(whose(summary), |part| part.name.clone())
        .number("hits", |part| format_count(part.hits))
        .number("hits/s", |part| format_quantity(part.hits as f64 * 1e9 / part.elapsed_ns.max(1) as f64))
        .number("connections", |part| format_count(part.connections))
        .number("resumed", |part| part.handshakes.resumed_percent().map_or(NONE.to_owned(), format_percent))
        .number("errors", |part| format_count(part.errors))
        .number("busy", |part| format!("{:.0} %", part.busy_fraction() * 100.0))
        .number("began after", |part| format_duration(part.began_after_ns as f64));
    Section::default().rows(rows)
}

/// Percentile curves of the run's phases.
fn percentile_chart(summary: &Summary) -> Option<Chart> {
    let named = |(phase, histogram): (&Phase, &Histogram<u64>)| (phase.name().to_owned(), histogram.clone());
    let phases: BTreeMap<_, _> = summary.outcome.phases.iter().map(named).collect();
    let caption = "How long each phase took, by the share of requests or handshakes that were at least as fast.";
    percentile_curves("percentiles", [(summary.url.as_str(), &phases)].into_iter(), caption)
}

/// Value of a slice in a chart.
type OfSlice = fn(&Slice) -> f64;

/// Throughput and latency over time; none with too few slices.
fn charts(slices: &[Slice]) -> Vec<Chart> {
    let chart = |id: &str, title: &str, lines: &[(&str, OfSlice)]| {
        let lines: Vec<Line> = lines.iter().map(|(name, value)| (*name, slices, *value)).collect();
        let (chart, most) = over_time(id, title, &lines)?;
        let words = format!("{title} over time, at most {}.", format_quantity(most));
        Some(chart.described(capitalised(&format!("{title}, over time.")), words))
    };
    let hits = chart("hits", "hits per second", &[("hits/s", |slice| per_second(slice.hits, slice))]);
    let latency = chart(
        "latency",
        "latency in milliseconds",
        &[("p50", |slice| slice.latency_ns_p50 as f64 / 1e6), ("p99", |slice| slice.latency_ns_p99 as f64 / 1e6)],
    );
    let handshakes = chart(
        "handshakes",
        "handshakes per second",
        &[("full", full_per_second), ("resumed", |slice| per_second(slice.handshakes_resumed, slice))],
    );
    [hits, latency, handshakes].into_iter().flatten().collect()
}

fn per_second(count: u64, slice: &Slice) -> f64 {
    count as f64 * 1e9 / slice.elapsed_ns.max(1) as f64
}

fn full_per_second(slice: &Slice) -> f64 {
    per_second(slice.handshakes_full, slice)
}

/// A line over time: its name, its slices, and the value of each.
type Line<'a> = (&'a str, &'a [Slice], fn(&Slice) -> f64);

/// Lines over time, with the maximum over all of them.
fn over_time(id: &str, title: &str, lines: &[Line]) -> Option<(Chart, f64)> {
    let of_line = |(name, slices, value): &Line| {
        let mut ends_ns = 0;
        let row = |slice: &Slice| {
            let middle_s = (ends_ns as f64 + slice.elapsed_ns as f64 / 2.0) / 1e9;
            ends_ns += slice.elapsed_ns;
            let value = value(slice);
            json!({"seconds": middle_s, "at": format_tenths(middle_s), "line": name, "value": value,
                   "label": format_quantity(value)})
        };
        slices.iter().map(row).collect::<Vec<Value>>()
    };
    let rows: Vec<Value> = lines.iter().flat_map(of_line).collect();
    let most = rows.iter().filter_map(|row| row["value"].as_f64()).fold(0.0, f64::max);
    if rows.len() < 2 * lines.len() || most <= 0.0 {
        return None;
    }
    let names: Vec<&str> = lines.iter().map(|(name, ..)| *name).collect();
    let body = json!({
        "mark": {"type": "line", "strokeWidth": 2, "interpolate": "step"},
        "encoding": {
            "x": quantity("seconds", "seconds"),
            "y": with(quantity("value", title), json!({"scale": {"zero": true}})),
            "color": with(palette("line", &names, &COLOURS), line_legend(None, names.len())),
            "tooltip": tooltip([("at", "seconds"), ("line", "line"), ("label", title)]),
        },
    });
    Some((Chart::new(id, 220, rows, body)?, most))
}

/// Full handshakes of several runs over time, which show surges, and the connections of each.
pub(super) fn courses(summary: &LoadSummary, runs: &[Summary]) -> Section {
    // A run that Ctrl-C left out has nothing to draw.
    let gantts = (1..).zip(runs).filter(|(_, run)| run.outcome.hits > 0).filter_map(|(number, run)| {
        gantt(
            &format!("connections-{number}"),
            &format!("Connections of the first clients, {}", run.url),
            &run.outcome.lives,
        )
    });
    Section::titled("course", "Over time").on(Medium::Page).charts(surges(summary, runs)).charts(gantts)
}

/// Connections that last at least this part of the time have a mark where they begin.
const LONG_PART: f64 = 0.02;

/// Steepness of the surges of several runs, in a sentence; empty where their course was not kept.
pub(super) fn surges_in_words(summary: &LoadSummary) -> String {
    let each = summary.points.iter().zip(&summary.surges_full_per_second);
    let each: Vec<String> =
        each.map(|(point, steep)| format!("{} ({})", format_quantity(*steep), point.name)).collect();
    match each.is_empty() {
        true => String::new(),
        false => format!("After the beginning at most {} full handshakes per second.", each.join(", ")),
    }
}

/// Full handshakes a second, a line for each run.
fn surges(summary: &LoadSummary, runs: &[Summary]) -> Option<Chart> {
    let lines: Vec<Line> = runs
        .iter()
        .map(|run| (run.url.as_str(), &run.outcome.slices[..], full_per_second as fn(&Slice) -> f64))
        .collect();
    let (chart, _) = over_time("surges", "full handshakes per second", &lines)?;
    let words = surges_in_words(summary);
    let caption =
        format!("Full handshakes per second, over time: where sessions renew together there are surges. {words}");
    Some(chart.described(caption, words))
}

/// The connections of the first clients over time, as Figure 2 of Mraz et al. 2002 draws profiles.
fn gantt(id: &str, title: &str, lives: &[Life]) -> Option<Chart> {
    const KINDS: [&str; 3] = ["full handshake", "resumed", "no session"];
    let kind = |life: &Life| match life.resumed {
        Some(false) => KINDS[0],
        Some(true) => KINDS[1],
        None => KINDS[2],
    };
    let seconds = |ns: u64| ns as f64 / 1e9;
    let row = |life: &Life| {
        json!({
            "client": life.client_number + 1, "from": seconds(life.opened_ns), "to": seconds(life.closed_ns),
            "kind": kind(life), "requests": life.served_count,
            "lasted": format_duration((life.closed_ns - life.opened_ns) as f64),
        })
    };
    let rows: Vec<Value> = lives.iter().map(row).collect();
    let clients = lives.iter().map(|life| life.client_number + 1).max()?;
    // A mark stands where a longer connection begins, so that the next of its kind is told from it.
    let longest_s = lives.iter().map(|life| seconds(life.closed_ns)).fold(0.0, f64::max);
    let long = format!("datum.to - datum.from > {}", longest_s * LONG_PART);
    let body = json!({
        "encoding": {
            "y": {"field": "client", "type": "ordinal", "title": "client"},
            "x": quantity("from", "seconds"),
            "tooltip": tooltip([("client", "client"), ("kind", "began with"), ("requests", "requests"),
                                ("lasted", "lasted")]),
        },
        "layer": [
            {
                "mark": {"type": "bar", "height": {"band": 0.6}, "strokeWidth": 1},
                "encoding": {
                    "x2": {"field": "to"},
                    "color": with(palette("kind", &KINDS, &COLOURS), line_legend(None, 3)),
                    // A short connection would be too narrow to be seen without an edge.
                    "stroke": palette("kind", &KINDS, &COLOURS),
                },
            },
            {
                "transform": [{"filter": long}],
                "mark": {"type": "tick", "thickness": 2, "height": {"band": 0.8}, "color": "#1b2430"},
            },
        ],
    });
    let count = |wanted: &str| lives.iter().filter(|life| kind(life) == wanted).count();
    let words = format!(
        "Connections of {clients} clients as strips over time: {} with a full handshake, {} resumed.",
        count(KINDS[0]),
        count(KINDS[1])
    );
    let caption = format!("{title}: each strip is one, coloured by how its session began.");
    Some(Chart::new(id, 20 * clients as usize + 20, rows, body)?.described(caption, words))
}
