//! A cluster as one self-contained HTML file: it works offline, without any request.

use askama::Template;

use super::terminal::by_traffic;
use super::{answer, beside_paper, busiest, charts, latency, locality};
use crate::report::html::{ChartView, VIEWER_LICENCES, manifest, shell_command, unbroken, view, viewer};
use crate::report::text::{self, ratio_times};
use crate::stats::Direction;
use crate::stats::cluster::{CellSummary, ClusterSummary};
use crate::store::Record;
use crate::units::{self, format_count, format_interval, format_quantity, format_tenths};

#[derive(Template)]
#[template(path = "cluster.html")]
struct Page<'a> {
    title: &'a str,
    version: &'a str,
    question: &'a str,
    answer: String,
    date: String,
    record: &'a Record,
    rounds: u32,
    setting: String,
    /// What the blocks of a round have in common.
    alike: &'static str,
    charts: Vec<(String, ChartView)>,
    rows: Vec<Row>,
    locality: Option<Locality>,
    paper: Option<Paper<'a>>,
    warnings: Vec<String>,
    manifest: Vec<(&'static str, String)>,
    configurations: Vec<(&'a String, &'a String)>,
    checks: Vec<(&'a String, &'a Vec<String>)>,
    command: String,
    viewer: String,
    licences: &'static str,
}

/// What a paper says beside ours.
struct Paper<'a> {
    source: &'a str,
    statements: Vec<String>,
    differences: &'a [String],
}

/// The table of a plain cluster.
struct Locality {
    note: String,
    header: [&'static str; 6],
    rows: Vec<(String, [String; 6])>,
}

/// A line of the table.
struct Row {
    name: String,
    undecided: bool,
    valid: bool,
    cells: Vec<String>,
}

/// The page of a record.
///
/// # Errors
/// The template cannot be filled, which no record can bring about.
pub fn page(record: &Record, summary: &ClusterSummary) -> Result<String, askama::Error> {
    let own = summary.warnings.iter().map(ToString::to_string);
    let of_cells =
        summary.cells.iter().flat_map(|cell| cell.warnings.iter().map(move |text| format!("{}: {text}", cell.name)));
    let checked = record.configurations.iter().map(|of| (&of.name, &of.preflight.passed));
    Page {
        title: &record.question,
        version: &record.manifest.tool_version,
        question: &record.question,
        answer: unbroken(&answer(summary)),
        date: units::format_date(record.created_unix_s as i64),
        record,
        rounds: summary.rounds,
        alike: if is_open_loop(summary) { "of equal time" } else { "of equal work" },
        setting: record.manifest.hardware.get("cluster").cloned().unwrap_or_default(),
        charts: charts::all(summary).into_iter().map(|(caption, chart)| (caption, view(chart))).collect(),
        rows: by_traffic(summary).into_iter().map(row).collect(),
        locality: locality::note(summary).map(|note| Locality {
            note,
            header: locality::HEADER,
            rows: locality::rows(summary),
        }),
        paper: record.cluster.as_ref().and_then(|cluster| cluster.paper.as_ref()).map(|paper| Paper {
            source: &paper.source,
            statements: beside_paper(summary),
            differences: &paper.differences,
        }),
        warnings: own.chain(of_cells).map(|warning| text::capitalised(&warning)).collect(),
        manifest: manifest(record),
        configurations: record.manifest.server_config.iter().collect(),
        checks: checked.collect(),
        command: shell_command(&record.manifest.command_line),
        viewer: viewer(),
        licences: VIEWER_LICENCES,
    }
    .render()
}

fn is_open_loop(summary: &ClusterSummary) -> bool {
    summary.cells.iter().any(|cell| cell.cell.rate_per_s.is_some())
}

fn row(cell: &CellSummary) -> Row {
    let bound = if cell.load_bound { "≥ " } else { "" };
    let (rate, cpu, dispatcher) =
        (cell.hits_per_second, cell.backend_cpu_ns_per_hit, cell.dispatcher_cpu_ns_per_connection);
    let accepted = cell.accepted_percent_of_offered;
    let micro = |value: crate::stats::cluster::Value| {
        format!("{} {}", format_tenths(value.value / 1e3), format_interval(value.low / 1e3, value.high / 1e3))
    };
    let against = cell.against.as_ref();
    let times = against.map_or_else(String::new, |against| ratio_times(&against.hits_per_second).replace(" times", ""));
    let by_cpu = against.map_or_else(String::new, |against| ratio_times(&against.by_cpu).replace(" times", ""));
    let ends = if rate.low.is_finite() {
        format!("[{}, {}]", format_quantity(rate.low), format_quantity(rate.high))
    } else {
        format_interval(rate.low, rate.high)
    };
    let accepted = if accepted.value.is_finite() {
        format!("{} {}", format_tenths(accepted.value), format_interval(accepted.low, accepted.high))
    } else {
        "–".to_owned()
    };
    Row {
        name: cell.name.clone(),
        undecided: against.is_some_and(|against| against.hits_per_second.direction == Direction::Undecided),
        valid: cell.valid,
        cells: vec![
            format_count(cell.resumed_offered),
            accepted,
            format!("{bound}{} {ends}", format_quantity(rate.value)),
            times,
            micro(cpu),
            by_cpu,
            micro(dispatcher),
            latency(cell, |found| found.p50),
            latency(cell, |found| found.p99),
            busiest(cell),
            cell.blocks.to_string(),
        ],
    }
}
