//! What moving TLS to front ends costs: in the answer, and in a section.

use tlsdyno_base::units::{format_bytes, format_count, format_micros, format_percent, format_tenths};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::Section;
use tlsdyno_stats::Estimate;

use super::by_traffic;
use crate::cluster::summary::{CellSummary, ClusterSummary};

/// The answer of a cluster with front ends, under the first traffic: the way with the fewest misses, what a hit costs
/// by it, and what it costs where the servers end TLS. `None` where nothing was measured of front ends.
pub(super) fn answer(summary: &ClusterSummary) -> Option<String> {
    let measured = |cell: &&CellSummary| cell.measured.blocks > 0;
    let first = summary.cells.iter().filter(measured).find(|cell| cell.cell.front.is_some())?;
    let alike = || summary.cells.iter().filter(measured).filter(|cell| cell.cell.has_traffic_of(&first.cell));
    let missed = |cell: &CellSummary| cell.locality.as_ref().map_or(f64::NAN, |found| found.miss_percent.value);
    let cpu = |cell: &CellSummary| cell.measured.server_cpu_ns_per_hit.value;
    let by = |a: f64, b: f64| a.total_cmp(&b);
    let behind = alike().filter(|cell| cell.cell.front.is_some());
    let best = behind.min_by(|a, b| by(missed(a), missed(b)).then(by(cpu(a), cpu(b))))?;
    let at_front_ends = best.front_end_cpu_ns_per_hit.map_or(f64::NAN, |found| found.value);
    let mut said = format!(
        "{}: a hit takes {} µs of CPU time, {} of them at the front ends",
        best.measured.name,
        format_micros(cpu(best)),
        format_micros(at_front_ends)
    );
    if let Some(found) = &best.locality {
        let cache = format_bytes(found.cache_bytes as f64);
        said += &format!(", and a cache of {cache} at each backend would miss {}", format_percent(missed(best)));
        let baseline = summary.baseline_of(&best.cell).filter(|cell| cell.cell != best.cell);
        said += &baseline.map_or(String::new(), |cell| {
            format!(" of the requests ({} with {})", format_percent(missed(cell)), cell.cell.way_name())
        });
    }
    let without = alike().filter(|cell| cell.cell.front.is_none()).min_by(|a, b| by(cpu(a), cpu(b)));
    said += &without.map_or(String::new(), |cell| {
        let misses = cell.locality.as_ref().map(|_| format!(", {} missed", format_percent(missed(cell))));
        format!(
            "; without front ends {} takes {} µs{}",
            cell.cell.way_name(),
            format_micros(cpu(cell)),
            misses.unwrap_or_default()
        )
    });
    Some(said + ".")
}

/// Who uses the CPU time of a hit. `None` without front ends.
pub(super) fn section(summary: &ClusterSummary) -> Option<Section> {
    summary.has_front_ends().then(|| {
        let backends = |cell: &CellSummary| match cell.cell.front {
            Some(_) => cell.backend_cpu_ns_per_hit,
            None => Some(cell.measured.server_cpu_ns_per_hit),
        };
        let behind = |cell: &CellSummary| Some(cell.measured.companion_cpu_ns_per_hit).filter(|ns| *ns > 0.0);
        let all = |cell: &CellSummary| {
            let per_hit = cell.measured.connections as f64 / cell.measured.hits as f64;
            let dispatchers = Some(cell.dispatcher_cpu_ns_per_connection.value).filter(|value| value.is_finite());
            let machines = cell.measured.server_cpu_ns_per_hit.value + behind(cell).unwrap_or(0.0);
            format_micros(machines + dispatchers.unwrap_or(0.0) * per_hit)
        };
        let rows = Rows::new(by_traffic(summary))
            .words("", |cell| format!("  {}", cell.cell.way_name()))
            .estimate("front ends", format_micros, |cell: &CellSummary| cell.front_end_cpu_ns_per_hit)
            .estimate("backends", format_micros, |cell| backends(cell))
            .number_if_any("database", |cell| behind(cell).map(format_micros))
            .number("with dispatchers", |cell| all(cell))
            .estimate("% missed", format_tenths, misses)
            .number("full", |cell| format_count(cell.measured.handshakes_full))
            .headed(|cell| Some(cell.traffic.clone()));
        let note = "front ends, backends: CPU time per hit, µs; backends without front ends end TLS themselves. with \
                    dispatchers: of all processes but the load's. full: full handshakes.";
        Section::titled("front-ends", "Where TLS ends").rows(rows).notes([note.to_owned()])
    })
}

fn misses(cell: &CellSummary) -> Option<Estimate> {
    cell.locality.as_ref().map(|found| found.miss_percent)
}
