//! A load experiment as a document: a table of its points, and what each run printed.

use serde_json::{Value, json};
use tlsdyno_base::units::{
    NONE, UNDECIDED, format_binary_bytes, format_count, format_duration, format_percent, format_quantity, format_tenths,
};
use tlsdyno_record::store::Record;
use tlsdyno_record::store::load_run::Summary;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::charts::{COLOURS, line_legend, line_mark, palette, quantity, tooltip, with};
use tlsdyno_runner::report::document::{Chart, Content, Document, Medium, Method, Section, Tone};
use tlsdyno_runner::report::{cells, circumstances};
use tlsdyno_stats::ConfigurationSummary;

use crate::compared::{self, Scatter};
use crate::sizes::Crossing;
use crate::summary::{LoadSummary, latency};
use crate::{LoadRecord, curve, run_page};

pub fn document(record: &Record, summary: &LoadSummary) -> Document {
    let runs = record.kind_part.of::<LoadRecord>().map_or(&[][..], |load| &load.runs);
    let connections = record.kind_part.of::<LoadRecord>().map_or(&[][..], |load| &load.connections);
    let mut sections = curve::page::sections(&summary.curves, summary.log.as_ref(), connections);
    if !summary.against.is_empty() {
        let table = compared::table(&summary.against, Scatter::Repeats);
        sections.push(Section { title: "The second against the first".to_owned(), ..table });
    }
    sections.push(points(summary, !runs.is_empty()));
    match runs {
        // It tells its warnings itself.
        [run] => sections.extend(run_page::document(run).sections),
        runs => {
            let is_one_run = record.kind_part.of::<LoadRecord>().is_some_and(|load| load.experiment.one_run);
            sections.extend(is_one_run.then(|| run_page::courses(summary, runs)));
            let parts = summary.points.iter().map(|point| (&point.name, &point.warnings));
            sections.push(circumstances::warnings(circumstances::texts(&summary.warnings, parts)));
            sections.extend(summary.points.iter().zip(runs).flat_map(run_of_several));
        }
    }
    circumstances::document(record, summary.rounds, answer(summary), sections, Method::Load)
}

/// The tables of one of several runs. Warnings are shown once for all, and charts over time of each run would hide how
/// the points differ.
fn run_of_several((point, run): (&ConfigurationSummary, &Summary)) -> impl Iterator<Item = Section> {
    let document = run_page::document(run);
    let is_table = |part: &Content| !matches!(part, Content::Chart(_) | Content::Warnings(_));
    let tables = document.sections.into_iter().filter(move |section| section.parts.iter().all(is_table));
    let title = Section::titled("", &point.name).text(document.answer);
    [title].into_iter().chain(tables).map(|section| section.on(Medium::Page))
}

/// The half serving points, or the point with the highest throughput, in a sentence.
pub fn answer(summary: &LoadSummary) -> String {
    if !summary.curves.is_empty() {
        return curve::page::answer(&summary.curves, summary.log.as_ref());
    }
    if !summary.against.is_empty() {
        return compared::sentence(&summary.against);
    }
    if let Some(crossing) = &summary.crossing {
        return crossing_in_words(crossing);
    }
    let surges = run_page::surges_in_words(summary);
    if !surges.is_empty() {
        return surges;
    }
    let served = summary.points.iter().filter(|point| point.hits > 0);
    let Some(best) = served.max_by(|a, b| a.hits_per_second.value.total_cmp(&b.hits_per_second.value)) else {
        return "Not one request succeeded.".to_owned();
    };
    let at = if summary.points.len() > 1 { format!(", at {}", best.name) } else { String::new() };
    let most = if summary.points.len() > 1 { "At most " } else { "" };
    match best.hits_per_second.has_interval() {
        true => format!("{most}{}{at}.", best.hits_per_second.in_unit(" hits/s", format_quantity)),
        false => format!("How many hits/s it serves{at} is {UNDECIDED}."),
    }
}

/// Size at which data cost as much as the connection, in a sentence.
fn crossing_in_words(Crossing { bytes }: &Crossing) -> String {
    match (bytes.has_interval(), bytes.is_known()) {
        (true, _) => format!(
            "Up to {} a hit costs the server more for its connection with the handshake than for its bytes.",
            bytes.with_interval(format_binary_bytes)
        ),
        (false, true) => {
            "Where bytes cost as much as the connection is not certain: no interval. Measure longer.".to_owned()
        }
        (false, false) => "Bytes cost as much as the connection outside of the sizes that were measured.".to_owned(),
    }
}

/// The table of the points.
fn points(summary: &LoadSummary, in_one_run: bool) -> Section {
    let resumed = |point: &ConfigurationSummary| {
        let handshakes = point.handshakes_full + point.handshakes_resumed;
        let percent = 100.0 * point.handshakes_resumed as f64 / handshakes.max(1) as f64;
        if handshakes > 0 { format_percent(percent) } else { NONE.to_owned() }
    };
    let rows = Rows::new(&summary.points)
        .words("", |point| point.name.clone())
        .number("hits/s", cells::hits)
        .interval(format_quantity, |point| Some(point.hits_per_second))
        .number("p50", |point| cells::latency(latency(point), |of| of.p50))
        .number("p99", |point| cells::latency(latency(point), |of| of.p99))
        .number_if_any("CPU/hit", |point| {
            let cpu = point.server_cpu_ns_per_hit;
            (cpu.value > 0.0).then(|| cpu.with_interval(format_duration))
        })
        .number("resumed", resumed)
        .number("hits/handshake", |point| point.hits_per_handshake.map_or(NONE.to_owned(), format_tenths))
        .number("errors", |point| format_count(point.errors.values().sum()))
        .toned(Tone::Muted, |point| point.hits == 0);
    let of = if in_one_run { "slices of the run".to_owned() } else { format!("{} rounds", summary.rounds) };
    let place = if summary.curves.is_empty() { Medium::Everywhere } else { Medium::Page };
    Section::titled("points", "Throughput and latency").on(place).charts(saturation_chart(summary)).rows(rows).notes([
        format!(
            "95 %: confidence interval, from {of}. p50, p99: whole responses, of an open loop from the intended send \
         time. resumed: of the handshakes. ≥: the client's CPU was full."
        ),
    ])
}

/// Latency over throughput, for several points that are not on a curve.
fn saturation_chart(summary: &LoadSummary) -> Option<Chart> {
    let served = summary.points.iter().filter(|point| point.hits > 0);
    let rows: Vec<Value> = served
        .filter_map(|point| Some((point, latency(point)?)))
        .flat_map(|(point, latency)| {
            [("p50", latency.p50), ("p99", latency.p99)].map(|(line, ns)| {
                json!({"point": point.name, "line": line, "rate": point.hits_per_second.value,
                       "label": format_quantity(point.hits_per_second.value), "milliseconds": ns as f64 / 1e6,
                       "latency": format_duration(ns as f64)})
            })
        })
        .collect();
    if rows.len() < 6 || !summary.curves.is_empty() || !summary.against.is_empty() {
        return None;
    }
    let logarithmic = json!({"scale": {"type": "log", "nice": true}, "axis": {"format": "~g", "tickCount": 6}});
    let fields = [("point", "point"), ("label", "hits/s"), ("line", "percentile"), ("latency", "latency")];
    let body = json!({
        "mark": line_mark(),
        "encoding": {
            "x": with(quantity("rate", "hits per second"), json!({"scale": {"zero": true}})),
            "y": with(quantity("milliseconds", "milliseconds (log scale)"), logarithmic),
            "color": with(palette("line", &["p50", "p99"], &COLOURS), line_legend(None, 2)),
            "tooltip": tooltip(fields),
        },
    });
    let words = format!("Latency against throughput at {} points; the table has every number.", rows.len() / 2);
    Some(
        Chart::new("saturation", 300, rows, body)?
            .described("Latency against throughput: where it bends, the server is full.", words),
    )
}
