//! A cluster on the terminal: the answer, a table for each traffic, the warnings.

use comfy_table::{Attribute, Cell as TableCell, CellAlignment, Color};

use super::{answer, beside_paper, busiest, latency, locality};
use crate::report::terminal::{Paint, Style, painted, table, warning_line, wrapped};
use crate::report::text::ratio_times;
use crate::stats::Direction;
use crate::stats::cluster::{CellSummary, ClusterSummary};
use crate::store::Record;
use crate::units::{format_interval, format_percent, format_quantity, format_tenths};

/// The phase whose latency is shown.
pub(super) fn latency_phase(cell: &CellSummary) -> &'static str {
    if cell.cell.rate_per_s.is_some() { "scheduled_response" } else { "whole_response" }
}

/// The whole result as text ending in a line feed.
pub fn results(record: &Record, summary: &ClusterSummary, style: Style) -> String {
    let question = painted(wrapped(&record.question, style.width, "").trim(), Paint::Bold, style);
    let mut parts = vec![format!("{question}\n\n{}", wrapped(&answer(summary), style.width, "  "))];
    if let Some(cluster) = record.manifest.hardware.get("cluster") {
        let protocol = match record.cluster.as_ref().is_some_and(|experiment| experiment.cluster.plain) {
            true => "plain HTTP".to_owned(),
            false => format!("TLS {}", record.manifest.negotiated),
        };
        let said =
            format!("{} ({}), {protocol}: {cluster}.", record.manifest.server_name, record.manifest.server_version);
        parts.push(wrapped(&said, style.width, "  "));
    }
    parts.push(cells_table(summary, style));
    parts.extend(notes(summary).iter().map(|note| wrapped(note, style.width, "  ")));
    if let Some((table, note)) = locality::terminal_table(summary, style) {
        parts.extend([table, wrapped(&note, style.width, "  ")]);
    }
    let paper = beside_paper(summary);
    if let Some(published) = record.cluster.as_ref().and_then(|cluster| cluster.paper.as_ref()) {
        let title = painted(&published.source, Paint::Bold, style);
        let lines = paper.iter().chain(&published.differences).map(|line| wrapped(line, style.width, "  "));
        parts.push(std::iter::once(title).chain(lines).collect::<Vec<_>>().join("\n"));
    }
    let mut warnings: Vec<String> =
        summary.warnings.iter().map(|warning| warning_line(&warning.to_string(), style)).collect();
    let of_cells =
        summary.cells.iter().flat_map(|cell| cell.warnings.iter().map(move |text| format!("{}: {text}", cell.name)));
    warnings.extend(of_cells.map(|warning| warning_line(&warning, style)));
    if !warnings.is_empty() {
        parts.push(warnings.join("\n"));
    }
    if !record.id.is_empty() {
        parts.push(format!("Record {id}: `tlsdyno report {id}` writes report.html.", id = record.id));
    }
    parts.join("\n\n") + "\n"
}

fn notes(summary: &ClusterSummary) -> Vec<String> {
    let baseline = summary.cells.first().map_or("", |cell| cell.cell.policy.name());
    let mut notes = vec![format!(
        "accepted: of the sessions offered again. times: hits/s by those of {baseline} in the same round. µs/hit: CPU \
         of all backends; µs/conn: CPU of the dispatcher. busiest: connections that the busiest backend got ({} is \
         even). 95 %: confidence interval, from {} rounds.",
        even(summary),
        summary.rounds
    )];
    if summary.cells.iter().any(CellSummary::fell_behind) {
        notes.push("≥ before a latency: not all were served that were due, and these are in no latency.".to_owned());
    }
    notes
}

fn even(summary: &ClusterSummary) -> String {
    let backends = summary.cells.iter().map(|cell| cell.backends.len()).max().unwrap_or(1).max(1);
    format!("{} %", format_tenths(100.0 / backends as f64))
}

fn cells_table(summary: &ClusterSummary, style: Style) -> String {
    let header = [
        ("", false),
        ("accepted", true),
        ("hits/s", true),
        ("times", true),
        ("95 %", true),
        ("µs/hit", true),
        ("95 %", true),
        ("µs/conn", true),
        ("p50", true),
        ("p99", true),
        ("busiest", true),
    ];
    let mut table = table(style, &header);
    let mut traffic = "";
    for cell in by_traffic(summary) {
        if cell.traffic != traffic {
            traffic = &cell.traffic;
            table.add_row(vec![TableCell::new(traffic).add_attribute(Attribute::Bold)]);
        }
        table.add_row(row(cell));
    }
    table.trim_fmt()
}

fn row(cell: &CellSummary) -> Vec<TableCell> {
    let right = |text: String| TableCell::new(text).set_alignment(CellAlignment::Right);
    let bound = if cell.load_bound { "≥ " } else { "" };
    let cpu = cell.backend_cpu_ns_per_hit;
    let accepted = cell.accepted_percent_of_offered.value;
    let against = cell.against.as_ref().map(|against| against.hits_per_second);
    let (times, ends) = against.map_or_else(Default::default, |ratio| {
        let text = ratio_times(&ratio);
        let (times, ends) = text.trim_end_matches(" times").split_once(" [").unwrap_or((&text, "–]"));
        (times.to_owned(), format!("[{ends}"))
    });
    let undecided = against.is_some_and(|ratio| ratio.direction == Direction::Undecided);
    let shade = |cell: TableCell| if undecided { cell.fg(Color::DarkGrey) } else { cell };
    let name = TableCell::new(format!("  {}", cell.cell.policy.name()));
    vec![
        if cell.valid { name } else { name.fg(Color::Red) },
        right(if accepted.is_finite() { format_percent(accepted) } else { "–".to_owned() }),
        right(format!("{bound}{}", format_quantity(cell.hits_per_second.value))),
        shade(right(times)),
        shade(right(ends)),
        right(format_tenths(cpu.value / 1e3)),
        right(format_interval(cpu.low / 1e3, cpu.high / 1e3)),
        right(format_tenths(cell.dispatcher_cpu_ns_per_connection.value / 1e3)),
        right(latency(cell, |found| found.p50)),
        right(latency(cell, |found| found.p99)),
        right(busiest(cell)),
    ]
}

/// The cells with those of one traffic behind each other, so that policies are compared line by line.
pub(super) fn by_traffic(summary: &ClusterSummary) -> Vec<&CellSummary> {
    let mut cells: Vec<&CellSummary> = Vec::new();
    for first in &summary.cells {
        if cells.iter().all(|cell| cell.cell != first.cell) {
            let alike = summary.cells.iter().filter(|other| other.cell.has_traffic_of(&first.cell));
            cells.extend(alike);
        }
    }
    cells
}
