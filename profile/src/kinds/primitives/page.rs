//! Primitives as a document: Mb/s by block size with what a paper published beside, records beside bare primitives, and
//! `openssl speed` beside ours.

use serde_json::{Value, json};

use crate::kinds::primitives::summary::{AlgorithmSummary, PrimitivesSummary, RecordSummary, SizeSummary, SpeedCheck};
use crate::report::charts::{
    COLOURS, axis, layer, line_legend, line_mark, palette, quantity, rule_mark, tooltip, with,
};
use crate::report::circumstances;
use crate::report::document::{Chart, Column, Content, Document, Field, Method, Place, Section, Table, row};
use crate::report::published::not_as_in;
use crate::stats::Estimate;
use crate::store::Record;
use crate::units::{NONE, format_duration, format_interval_with, format_percent, format_quantity, format_tenths};

/// The document of a record.
pub fn document(record: &Record, summary: &PrimitivesSummary) -> Document {
    let none: Vec<(String, Vec<String>)> = Vec::new();
    let warnings = circumstances::texts(&summary.warnings, none.iter().map(|(name, texts)| (name, texts)));
    let setting = format!("{}, {}.", summary.libcrypto, summary.libcrypto_version);
    let sections = [
        Section::default().text(setting),
        Section::default().on(Place::Page).charts(chart(summary)),
        matrix(summary),
        every_size(summary),
        records(summary),
        checks(summary),
        circumstances::warnings(warnings),
    ];
    let sections = sections.into_iter().chain(paper(summary)).collect();
    circumstances::document(record, summary.rounds, answer(summary), sections, Method::Primitives)
}

fn interval(of: Estimate, format: impl Fn(f64) -> String) -> String {
    format_interval_with(of.low, of.high, format)
}

/// Fastest and slowest, and what small calls lose, in two sentences.
pub fn answer(summary: &PrimitivesSummary) -> String {
    let last = |of: &AlgorithmSummary| of.bare.last().map(|size| size.mbit_per_s.value);
    let by_rate = |a: &&AlgorithmSummary, b: &&AlgorithmSummary| {
        last(a).partial_cmp(&last(b)).unwrap_or(std::cmp::Ordering::Equal)
    };
    let ends = summary.algorithms.iter().max_by(by_rate).zip(summary.algorithms.iter().min_by(by_rate));
    let Some((fastest, slowest)) = ends.filter(|(fastest, _)| !fastest.bare.is_empty()) else {
        return "Nothing was measured.".to_owned();
    };
    let told = |of: &AlgorithmSummary| {
        let size = of.bare.last()?;
        let ends = interval(size.mbit_per_s, format_quantity);
        Some(format!("{} {} {ends} Mb/s", of.algorithm, format_quantity(size.mbit_per_s.value)))
    };
    let bytes = fastest.bare.last().map_or(0, |size| size.size_bytes);
    let small =
        fastest.bare.first().zip(fastest.bare.last()).filter(|(first, last)| first.size_bytes < last.size_bytes);
    let small = small.map_or(String::new(), |(first, last)| {
        format!(
            " With calls of {} B {} reaches {} of that, as a call alone takes {}.",
            first.size_bytes,
            fastest.algorithm,
            format_percent(100.0 * first.mbit_per_s.value / last.mbit_per_s.value),
            fastest.call_ns.map_or(NONE.to_owned(), |of| format_duration(of.value))
        )
    });
    let several = if fastest.algorithm == slowest.algorithm { None } else { told(slowest) };
    let several = several.map_or(String::new(), |told| format!(", slowest {told}"));
    format!("At {bytes} B a call, fastest: {}{several}.{small}", told(fastest).unwrap_or_default())
}

/// Rates by primitive and size, for a terminal.
fn matrix(summary: &PrimitivesSummary) -> Section {
    let mut sizes: Vec<u64> =
        summary.algorithms.iter().flat_map(|of| of.bare.iter().map(|size| size.size_bytes)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut columns = vec![Column::words("Mb/s at")];
    columns.extend(sizes.iter().map(|size| Column::number(format!("{size} B"))));
    columns.extend([Column::number("a call"), Column::interval()]);
    let line = |name: String, of: &[SizeSummary], call: Option<Estimate>| {
        let at = |size: &u64| of.iter().find(|one| one.size_bytes == *size);
        let mut texts = vec![name];
        texts.extend(
            sizes.iter().map(|size| at(size).map_or(NONE.to_owned(), |of| format_quantity(of.mbit_per_s.value))),
        );
        texts.push(call.map_or(String::new(), |of| format_duration(of.value)));
        texts.push(call.map_or(String::new(), |of| interval(of, format_duration)));
        row(texts, false)
    };
    let mut rows = Vec::new();
    for of in &summary.algorithms {
        rows.push(line(of.algorithm.to_string(), &of.bare, of.call_ns));
        if !of.records.is_empty() {
            rows.push(line("  as TLS records".to_owned(), &of.records, None));
        }
    }
    let all = summary.algorithms.iter().flat_map(|of| of.bare.iter().chain(&of.records));
    let half_width = |of: &SizeSummary| 50.0 * (of.mbit_per_s.high - of.mbit_per_s.low) / of.mbit_per_s.value;
    let widest = all.map(half_width).fold(0.0, f64::max);
    Section::titled("primitives", "Throughput by size of a call").table(columns, rows).notes([format!(
        "Of CPU time. a call: what it takes whatever its size. Widest interval (95 %) of a rate: ± {}.",
        format_percent(widest)
    )])
}

/// A size of a primitive, or of its records.
struct Shown<'a>(String, &'a SizeSummary);

/// Every number with its interval, for a page.
fn every_size(summary: &PrimitivesSummary) -> Section {
    let mut all: Vec<Shown> = Vec::new();
    for of in &summary.algorithms {
        all.extend(of.bare.iter().map(|size| Shown(of.algorithm.to_string(), size)));
        all.extend(of.records.iter().map(|size| Shown(format!("{} record", of.algorithm), size)));
    }
    let fields: [Field<Shown>; 7] = [
        (Column::words(""), |of| of.0.clone()),
        (Column::number("bytes"), |of| of.1.size_bytes.to_string()),
        (Column::number("Mb/s"), |of| format_quantity(of.1.mbit_per_s.value)),
        (Column::interval(), |of| interval(of.1.mbit_per_s, format_quantity)),
        (Column::number("ns a call"), |of| format_tenths(of.1.ns.value)),
        (Column::interval(), |of| interval(of.1.ns, format_tenths)),
        (Column::number("published"), |of| of.1.published_mbit_per_s.map_or(NONE.to_owned(), format_quantity)),
    ];
    let table = Content::Table(Table::of(fields, &all));
    Section::default().on(Place::Page).with(Content::Folded("Every size with its interval".to_owned(), vec![table]))
}

/// Records beside what they are made of.
fn records(summary: &PrimitivesSummary) -> Section {
    let fields: [Field<RecordSummary>; 7] = [
        (Column::words("record of"), |of| {
            let mac = of.mac.map_or(String::new(), |mac| format!(" and {mac}"));
            format!("{}{mac}, {} B", of.algorithm, of.size_bytes)
        }),
        (Column::number("bare"), |of| format_duration(of.bare_ns.value)),
        (Column::interval(), |of| interval(of.bare_ns, format_duration)),
        (Column::number("record"), |of| format_duration(of.record_ns.value)),
        (Column::interval(), |of| interval(of.record_ns, format_duration)),
        (Column::number("around"), |of| signed(of.around_ns.value)),
        (Column::interval(), |of| interval(of.around_ns, signed)),
    ];
    let section = Section::titled("records", "A TLS record beside the bare primitive");
    if summary.records.is_empty() {
        return Section::default();
    }
    section.with(Content::Table(Table::of(fields, &summary.records))).notes([
        "record: libssl writes it, and it goes nowhere. around: header, nonce, tag, padding and libssl itself. AES in \
         CBC: TLS 1.2, encrypt-then-MAC; the others: TLS 1.3."
            .to_owned(),
    ])
}

fn signed(nanoseconds: f64) -> String {
    let sign = if nanoseconds < 0.0 { "−" } else { "" };
    format!("{sign}{}", format_duration(nanoseconds.abs()))
}

/// `openssl speed` beside ours.
fn checks(summary: &PrimitivesSummary) -> Section {
    let fields: [Field<SpeedCheck>; 7] = [
        (Column::words(""), |of| format!("{}, {} B", of.algorithm, of.size_bytes)),
        (Column::number("Mb/s"), |of| format_quantity(of.ours_mbit_per_s.value)),
        (Column::interval(), |of| interval(of.ours_mbit_per_s, format_quantity)),
        (Column::number("openssl speed"), |of| format_quantity(of.theirs_mbit_per_s.value)),
        (Column::interval(), |of| interval(of.theirs_mbit_per_s, format_quantity)),
        (Column::number("difference"), |of| format_percent(of.difference_percent.value)),
        (Column::interval(), |of| interval(of.difference_percent, format_tenths)),
    ];
    if summary.checks.is_empty() {
        return Section::default();
    }
    let agree = summary.checks.iter().filter(|check| check.agrees).count();
    Section::titled("openssl-speed", "Beside openssl speed")
        .with(Content::Table(Table::of(fields, &summary.checks)))
        .notes([format!("{agree} of {} within 5 %. Both ran in turn on the same library.", summary.checks.len())])
}

/// What the paper had.
fn paper(summary: &PrimitivesSummary) -> Option<Section> {
    let paper = summary.paper.as_ref()?;
    let point = |point: &crate::kinds::primitives::file::PublishedThroughput| {
        let of = summary.algorithms.iter().find(|of| of.algorithm == point.algorithm);
        let ours = of.and_then(|of| of.bare.iter().find(|size| size.size_bytes == point.size_bytes));
        let ours = ours.map_or("not measured".to_owned(), |ours| {
            let times = ours.mbit_per_s.value / point.mbit_per_s;
            let ends = interval(ours.mbit_per_s, format_quantity);
            format!("{} {ends} Mb/s, {} times as much", format_quantity(ours.mbit_per_s.value), format_quantity(times))
        });
        let (algorithm, bytes, rate) = (point.algorithm, point.size_bytes, format_quantity(point.mbit_per_s));
        format!("{algorithm}, {bytes} B: published {rate} Mb/s; here {ours}.")
    };
    let shape = |of: &AlgorithmSummary| {
        let published = |size: &SizeSummary| Some((size.published_mbit_per_s?, size.mbit_per_s.value));
        let known: Vec<(f64, f64)> = of.bare.iter().filter_map(published).collect();
        let ((then, now), (then_last, now_last)) = (known.first()?, known.last()?);
        (known.len() > 1).then(|| {
            let (then, now) = (format_tenths(then_last / then), format_tenths(now_last / now));
            format!(
                "{}: the largest published size is {then} times as fast as the smallest; here {now} times.",
                of.algorithm
            )
        })
    };
    let shapes = summary.algorithms.iter().filter_map(shape);
    let machine = [format!("The paper's machine: {}.", paper.machine)];
    let said = paper.points.iter().map(point).chain(shapes).chain(machine).chain(not_as_in(&paper.differences));
    Some(said.fold(Section::titled("", paper.source.clone()), Section::text))
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
            let label = format!("{} {}", format_quantity(value), interval(size.mbit_per_s, format_quantity));
            rows.push(json!({
                "name": name, "kind": "measured", "bytes": size.size_bytes, "rate": value, "low": end(low),
                "high": end(high), "label": label,
            }));
            said.push(format!("{} B {}", size.size_bytes, format_quantity(value)));
        }
        words.push(format!("{name}: {}", said.join(", ")));
        names.push(name);
    }
    let published = summary.paper.iter().flat_map(|paper| &paper.points);
    rows.extend(published.map(|point| {
        json!({
            "name": point.algorithm.name(), "kind": "published", "bytes": point.size_bytes, "rate": point.mbit_per_s,
            "label": format!("published: {}", format_quantity(point.mbit_per_s)),
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
    Some(Chart::new("primitives-throughput", 360, rows, body)?.told(caption, format!("{}.", words.join(". "))))
}
