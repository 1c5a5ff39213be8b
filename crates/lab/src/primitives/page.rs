//! Primitives as a document: Mb/s by block size with what a paper published beside, records beside bare primitives, and
//! `openssl speed` beside ours.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tlsdyno_base::units::{NONE, format_duration, format_percent, format_quantity, format_tenths};
use tlsdyno_record::model::Quantity;
use tlsdyno_record::store::Record;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::charts::{
    COLOURS, axis, layer, line_legend, line_mark, palette, quantity, rule_mark, tooltip, with,
};
use tlsdyno_runner::report::document::{Chart, Content, Document, Medium, Method, Section};
use tlsdyno_runner::report::text::signed_duration;
use tlsdyno_runner::report::{circumstances, published};
use tlsdyno_stats::Estimate;

use crate::primitives::summary::{AlgorithmSummary, PrimitivesSummary, SizeSummary};

pub fn document(record: &Record, summary: &PrimitivesSummary) -> Document {
    let paper = summary.paper.as_ref().map(|paper| published::section(paper, &summary.claims));
    let sections = [
        Section::default().text(format!("{}, {}.", summary.libcrypto, summary.libcrypto_version)),
        Section::default().on(Medium::Page).charts(chart(summary)),
        matrix(summary),
        every_size(summary),
        records(summary),
        checks(summary),
        circumstances::warnings_of(&summary.warnings),
    ];
    let sections = sections.into_iter().chain(paper).collect();
    circumstances::document(record, summary.rounds, answer(summary), sections, Method::Primitives)
}

/// Fastest and slowest, and what small calls lose, in two sentences.
pub fn answer(summary: &PrimitivesSummary) -> String {
    let largest = summary.algorithms.iter().filter_map(|of| Some((of, of.bare.last()?)));
    let mut by_rate: Vec<(&AlgorithmSummary, &SizeSummary)> = largest.collect();
    by_rate.sort_by(|(_, a), (_, b)| a.mbit_per_s.value.total_cmp(&b.mbit_per_s.value));
    let (Some(&(fastest, last)), Some(&slowest)) = (by_rate.last(), by_rate.first()) else {
        return "Nothing was measured.".to_owned();
    };
    let told = |(of, size): (&AlgorithmSummary, &SizeSummary)| {
        format!("{} {} Mb/s", of.algorithm, size.mbit_per_s.with_interval(format_quantity))
    };
    let slowest = if by_rate.len() > 1 { format!(", slowest {}", told(slowest)) } else { String::new() };
    let small = fastest.bare.first().filter(|first| first.size_bytes < last.size_bytes).map(|first| {
        let why = fastest.call_ns.map(|of| format!(", as a call alone takes {}", of.with_interval(format_duration)));
        format!(
            " With calls of {} B {} reaches {} of that{}.",
            first.size_bytes,
            fastest.algorithm,
            format_percent(100.0 * first.mbit_per_s.value / last.mbit_per_s.value),
            why.unwrap_or_default()
        )
    });
    let fastest = told((fastest, last));
    format!("At {} B a call, fastest: {fastest}{slowest}.{}", last.size_bytes, small.unwrap_or_default())
}

/// A line of the matrix: what a primitive, or its records, reach.
struct Line<'a> {
    name: String,
    sizes: &'a [SizeSummary],
    call_ns: Option<Estimate>,
}

/// Rates by primitive and size, for a terminal.
fn matrix(summary: &PrimitivesSummary) -> Section {
    let sizes: BTreeSet<u64> = summary.algorithms.iter().flat_map(|of| &of.bare).map(|of| of.size_bytes).collect();
    let mut lines = Vec::new();
    for of in &summary.algorithms {
        lines.push(Line { name: of.algorithm.to_string(), sizes: &of.bare, call_ns: of.call_ns });
        if !of.records.is_empty() {
            lines.push(Line { name: "  as TLS records".to_owned(), sizes: &of.records, call_ns: None });
        }
    }
    let mut rows = Rows::new(&lines).words("Mb/s at", |line| line.name.clone());
    for size in sizes {
        rows = rows.number(format!("{size} B"), |line| {
            let of = line.sizes.iter().find(|of| of.size_bytes == size);
            of.map_or(NONE.to_owned(), |of| format_quantity(of.mbit_per_s.value))
        });
    }
    let rows = rows.estimate("a call", format_duration, |line| line.call_ns);
    let half_width = |of: &SizeSummary| 50.0 * (of.mbit_per_s.high - of.mbit_per_s.low) / of.mbit_per_s.value;
    let widest = lines.iter().flat_map(|line| line.sizes).map(half_width).fold(0.0, f64::max);
    Section::titled("primitives", "Throughput by size of a call").rows(rows).notes([format!(
        "Of CPU time. a call: what it takes whatever its size ({NONE}: not told apart from nothing). Widest interval \
         (95 %) of a rate: ± {}.",
        format_percent(widest)
    )])
}

/// Every number with its interval, for a page.
fn every_size(summary: &PrimitivesSummary) -> Section {
    let sizes_of = |of: &AlgorithmSummary| {
        let bare = of.bare.iter().map(|size| (of.algorithm.to_string(), *size));
        let records = of.records.iter().map(|size| (format!("{} record", of.algorithm), *size));
        bare.chain(records).collect::<Vec<(String, SizeSummary)>>()
    };
    let all: Vec<(String, SizeSummary)> = summary.algorithms.iter().flat_map(sizes_of).collect();
    let table = Rows::new(&all)
        .words("", |(name, _)| name.clone())
        .number("bytes", |(_, of)| of.size_bytes.to_string())
        .estimate("Mb/s", format_quantity, |(_, of)| Some(of.mbit_per_s))
        .estimate("ns a call", format_tenths, |(_, of)| Some(of.ns))
        .table();
    let folded = Content::Folded("Every size with its interval".to_owned(), vec![Content::Table(table)]);
    Section::default().on(Medium::Page).with(folded)
}

fn records(summary: &PrimitivesSummary) -> Section {
    if summary.records.is_empty() {
        return Section::default();
    }
    let rows = Rows::new(&summary.records)
        .words("record of", |of| {
            let mac = of.mac.map_or(String::new(), |mac| format!(" and {mac}"));
            format!("{}{mac}, {} B", of.algorithm, of.size_bytes)
        })
        .estimate("bare", format_duration, |of| Some(of.bare_ns))
        .estimate("record", format_duration, |of| Some(of.record_ns))
        .estimate("around", signed_duration, |of| Some(of.around_ns));
    Section::titled("records", "A TLS record beside the bare primitive").rows(rows).notes([
        "record: libssl writes it, and it goes nowhere. around: header, nonce, tag, padding and libssl itself. AES in \
         CBC: TLS 1.2, encrypt-then-MAC; the others: TLS 1.3."
            .to_owned(),
    ])
}

fn checks(summary: &PrimitivesSummary) -> Section {
    if summary.checks.is_empty() {
        return Section::default();
    }
    let rows = Rows::new(&summary.checks)
        .words("", |of| format!("{}, {} B", of.algorithm, of.size_bytes))
        .estimate("Mb/s", format_quantity, |of| Some(of.ours_mbit_per_s))
        .estimate("openssl speed", format_quantity, |of| Some(of.theirs_mbit_per_s))
        .number("difference", |of| format_percent(of.difference_percent.value))
        .interval(format_tenths, |of| Some(of.difference_percent));
    let agree = summary.checks.iter().filter(|check| check.agrees).count();
    let note = format!("{agree} of {} within 5 %. Both ran in turn on the same library.", summary.checks.len());
    Section::titled("openssl-speed", "Beside openssl speed").rows(rows).notes([note])
}

/// Mb/s by size, a line for each primitive; what was published hollow beside.
fn chart(summary: &PrimitivesSummary) -> Option<Chart> {
    let mut rows: Vec<Value> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for of in &summary.algorithms {
        let name = of.algorithm.to_string();
        let mut said = Vec::new();
        for size in &of.bare {
            let Estimate { value, low, high } = size.mbit_per_s;
            let end = |end: f64| if end.is_finite() { end } else { value };
            let label = size.mbit_per_s.with_interval(format_quantity);
            rows.push(json!({
                "name": name, "kind": "measured", "bytes": size.size_bytes, "rate": value, "low": end(low),
                "high": end(high), "label": label,
            }));
            said.push(format!("{} B {}", size.size_bytes, format_quantity(value)));
        }
        words.push(format!("{name}: {}", said.join(", ")));
        names.push(name);
    }
    let published = summary.paper.iter().flat_map(|paper| paper.all(Quantity::MbitPerS));
    rows.extend(published.map(|(name, size, rate)| {
        json!({
            "name": name, "kind": "published", "bytes": size.trim_end_matches(" B").parse::<u64>().ok(),
            "rate": rate.mean(), "label": format!("published: {}", format_quantity(rate.mean())),
        })
    }));
    let of =
        |kind: &str, layer: Value| with(layer, json!({"transform": [{"filter": format!("datum.kind == '{kind}'")}]}));
    let logarithmic = |base: u32| json!({"scale": {"type": "log", "base": base}});
    let x = with(quantity("bytes", "bytes of a call"), logarithmic(2));
    let y = with(quantity("rate", "Mb/s of CPU time"), logarithmic(10));
    // Colours come round again after all are used: the legend and the tooltip still tell which line it is.
    let colours: Vec<&str> = COLOURS.iter().copied().cycle().take(names.len()).collect();
    let coloured = with(palette("name", &names, &colours), line_legend(None, 5));
    let hollow = json!({"type": "point", "size": 80, "filled": false, "strokeWidth": 2});
    let dashed = json!({"type": "line", "strokeWidth": 1, "strokeDash": [3, 3]});
    let body = json!({
        "encoding": {"x": x, "tooltip": tooltip([("name", "primitive"), ("bytes", "bytes"), ("label", "Mb/s")])},
        "layer": [
            of("measured", layer(rule_mark(), json!({"y": axis("low"), "y2": {"field": "high"}, "color": coloured}))),
            of("measured", layer(line_mark(), json!({"y": y, "color": coloured}))),
            of("published", layer(dashed, json!({"y": axis("rate"), "color": coloured}))),
            of("published", layer(hollow, json!({"y": axis("rate"), "color": coloured}))),
        ],
    });
    let source =
        summary.paper.as_ref().map_or(String::new(), |paper| format!(" Hollow: published by {}.", paper.source));
    let caption = format!("Throughput by size of a call, with 95 % intervals.{source}");
    Some(Chart::new("primitives-throughput", 360, rows, body)?.described(caption, format!("{}.", words.join(". "))))
}
