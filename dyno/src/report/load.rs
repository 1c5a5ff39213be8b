//! Reports of load experiments: on the terminal, as JSON, and as a page.

use askama::Template;
use serde::Serialize;

use super::html::{manifest, shell_command, unbroken};
use super::json::print;
use super::sections::{Column, Row, Section};
use super::terminal::{Paint, Style, painted, section_text, warning_line, wrapped};
use super::text::{self, count, duration, interval, percent, whole};
use crate::load;
use crate::stats::load::{LoadSummary, PointSummary};
use crate::store::{Record, Warning};

#[derive(Template)]
#[template(path = "load.html")]
struct Page<'a> {
    title: &'a str,
    version: &'a str,
    question: &'a str,
    answer: String,
    date: String,
    record: &'a Record,
    rounds: u32,
    section: Section,
    runs: Vec<String>,
    warnings: Vec<String>,
    manifest: Vec<(&'static str, String)>,
    command: String,
}

/// A record as a page.
///
/// # Errors
/// The template cannot be filled, which no record can bring about.
pub fn page(record: &Record, summary: &LoadSummary) -> Result<String, askama::Error> {
    Page {
        title: &record.question,
        version: &record.manifest.tool_version,
        question: &record.question,
        answer: unbroken(&answer(summary)),
        date: text::date(record.created_unix_s),
        record,
        rounds: summary.rounds,
        section: points(record, summary),
        runs: runs(record),
        warnings: warnings(summary),
        manifest: manifest(record),
        command: shell_command(&record.manifest.command_line),
    }
    .render()
}

/// A record as text ending in a line feed.
pub fn terminal(record: &Record, summary: &LoadSummary, style: Style) -> String {
    let question = painted(wrapped(&record.question, style.width, "").trim(), Paint::Bold, style);
    let mut parts = vec![format!("{question}\n\n{}", wrapped(&answer(summary), style.width, "  "))];
    parts.push(section_text(&points(record, summary), style));
    match &runs(record)[..] {
        // It tells its warnings itself.
        [run] => parts.push(run.trim_end().to_owned()),
        _ => {
            let said = warnings(summary).iter().map(|warning| warning_line(warning, style)).collect::<Vec<_>>();
            parts.extend((!said.is_empty()).then(|| said.join("\n")));
        }
    }
    if !record.id.is_empty() {
        parts.push(format!("Record {id}: `tlsdyno report {id}` writes report.html.", id = record.id));
    }
    parts.join("\n\n") + "\n"
}

/// What only a load experiment has.
#[derive(Serialize)]
struct Results<'a> {
    points: &'a [PointSummary],
    runs: &'a [load::summary::Summary],
}

/// The results of a record as one JSON object.
pub fn json(record: &Record, summary: &LoadSummary) -> String {
    let runs = record.load.as_ref().map_or(&[][..], |load| &load.runs);
    let results = Results { points: &summary.points, runs };
    print(record, answer(summary), summary.rounds, results, &summary.warnings)
}

/// The point of the most throughput, in a sentence.
fn answer(summary: &LoadSummary) -> String {
    let served = summary.points.iter().filter(|point| point.hits > 0);
    let Some(best) = served.max_by(|a, b| a.hits_per_second.total_cmp(&b.hits_per_second)) else {
        return "Not one request succeeded.".to_owned();
    };
    let at = if summary.points.len() > 1 { format!(", at {}", best.name) } else { String::new() };
    let most = if summary.points.len() > 1 { "At most " } else { "" };
    format!("{most}{} hits/s {}{at}.", count(best.hits_per_second), ends(best))
}

fn ends(point: &PointSummary) -> String {
    interval(point.hits_per_second_low, point.hits_per_second_high)
}

/// The table of the points.
fn points(record: &Record, summary: &LoadSummary) -> Section {
    let row = |point: &PointSummary| {
        let bound = if point.client_bound { "≥ " } else { "" };
        let handshakes = point.handshakes_full + point.handshakes_resumed;
        let reuse = 100.0 * point.handshakes_resumed as f64 / handshakes.max(1) as f64;
        let latency = |of: fn(&crate::histogram::Percentiles) -> u64| {
            point.latency_ns.as_ref().map_or("–".to_owned(), |latency| duration(of(latency) as f64))
        };
        let cells = vec![
            point.name.clone(),
            format!("{bound}{}", count(point.hits_per_second)),
            ends(point),
            latency(|latency| latency.p50),
            latency(|latency| latency.p99),
            if handshakes > 0 { percent(reuse) } else { "–".to_owned() },
            whole(point.errors.values().sum()),
        ];
        Row { cells, muted: point.hits == 0 }
    };
    let in_one_run = record.load.as_ref().is_some_and(|load| !load.runs.is_empty());
    let of = if in_one_run { "slices of the run".to_owned() } else { format!("{} rounds", summary.rounds) };
    Section {
        id: "points",
        title: "Throughput and latency",
        columns: vec![
            Column::words(""),
            Column::number("hits/s"),
            Column::number("95 %"),
            Column::number("p50"),
            Column::number("p99"),
            Column::number("resumed"),
            Column::number("errors"),
        ],
        rows: summary.points.iter().map(row).collect(),
        notes: vec![format!(
            "95 %: confidence interval, from {of}. p50, p99: whole responses, of an open loop from the intended send \
             time. resumed: of the handshakes. ≥: the client's CPU was full."
        )],
        ..Section::default()
    }
}

/// What each run printed.
fn runs(record: &Record) -> Vec<String> {
    record.load.iter().flat_map(|load| &load.runs).map(load::report::text).collect()
}

fn warnings(summary: &LoadSummary) -> Vec<String> {
    let own = summary.warnings.iter().map(Warning::to_string);
    let of_points = summary
        .points
        .iter()
        .flat_map(|point| point.warnings.iter().map(move |said| format!("{}: {said}", point.name)));
    own.chain(of_points).collect()
}
