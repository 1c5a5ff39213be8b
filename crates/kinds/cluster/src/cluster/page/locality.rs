//! How locality is told: in the answer, and in a section.

use tlsdyno_base::units::{format_bytes, format_percent, format_tenths};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::Section;
use tlsdyno_runner::report::text::ratio_times;
use tlsdyno_stats::Direction;

use super::by_traffic;
use crate::cluster::locality::{BackendLocality, LocalitySummary};
use crate::cluster::summary::{CellSummary, ClusterSummary};

/// The answer of a plain cluster: which policy would let caches miss least, at the largest load of the first cell's
/// traffic. `None` where there are no access logs.
pub(super) fn answer(summary: &ClusterSummary) -> Option<String> {
    let measured = |cell: &&CellSummary| cell.locality.is_some();
    let first = &summary.cells.iter().find(measured)?.cell;
    let load = |cell: &CellSummary| cell.cell.rate_per_s.unwrap_or_else(|| f64::from(cell.cell.clients));
    let is_alike = |cell: &&CellSummary| cell.cell.behind_one_address_percent == first.behind_one_address_percent;
    let alike = || summary.cells.iter().filter(measured).filter(is_alike);
    let largest = alike().map(load).fold(0.0, f64::max);
    let missed = |cell: &CellSummary| cell.locality.as_ref().map_or(f64::NAN, |found| found.miss_percent.value);
    let best = alike().filter(|cell| load(cell) == largest).min_by(|a, b| missed(a).total_cmp(&missed(b)))?;
    let found = best.locality.as_ref()?;
    let said = format!(
        "{}: each backend is asked for {} objects in a block, and a cache of {} at each would miss {} of the \
         requests",
        best.cell.way_name(),
        format_tenths(found.objects.value),
        format_bytes(found.cache_bytes as f64),
        format_percent(missed(best)),
    );
    let Some(against) = &best.against else { return Some(said + "; no other policy would miss fewer.") };
    let baseline = summary.baseline_of(&best.cell);
    let before = baseline.and_then(|cell| cell.locality.as_ref()).map_or(f64::NAN, |found| found.objects.value);
    let verdict = match against.hits_per_second.direction {
        Direction::Undecided => "; whether it serves more from this machine's one page cache is undecided: ",
        Direction::Bigger | Direction::Smaller => "; from this machine's one page cache it serves ",
    };
    Some(format!(
        "{said} ({} objects and {} with {}){verdict}{} the hits/s.",
        format_tenths(before),
        format_percent(baseline.map_or(f64::NAN, missed)),
        against.baseline,
        ratio_times(&against.hits_per_second)
    ))
}

/// The table of the cells whose backends log what they are asked for. `None` where none does.
pub(super) fn section(summary: &ClusterSummary) -> Option<Section> {
    let cache_bytes = summary.cells.iter().find_map(|cell| cell.locality.as_ref())?.cache_bytes;
    let cells = by_traffic(summary).into_iter().filter_map(|cell| Some((cell, cell.locality.as_ref()?)));
    let cells: Vec<(&CellSummary, &LocalitySummary)> = cells.collect();
    let rows = Rows::new(&cells)
        .words("", |(cell, _)| cell.measured.name.clone())
        .number("objects", |(_, found)| format_tenths(found.objects.value))
        .number("size", |(_, found)| format_bytes(found.object_bytes.value))
        .estimate("% missed", format_tenths, |(_, found)| Some(found.miss_percent))
        .estimate("points more", format_tenths, |(cell, _)| cell.against.as_ref()?.more_missed_points)
        .number("objects at each backend", |(_, found)| each(found, |backend| backend.objects))
        .number("% missed at each", |(_, found)| each(found, BackendLocality::miss_percent));
    let note = format!(
        "objects, size: the different objects that a backend is asked for in a block, and their size, mean of the \
         backends. missed: of the requests, by an LRU cache of {} for each backend, computed from each backend's own \
         access log; it stays warm from block to block. points more: than the first policy's under the same traffic, \
         in the same rounds.",
        format_bytes(cache_bytes as f64)
    );
    Some(Section::titled("", "Locality").rows(rows).notes([note]))
}

/// `12.0 / 24.1`: a number of each backend.
fn each(found: &LocalitySummary, number: fn(&BackendLocality) -> f64) -> String {
    found.backends.iter().map(|backend| format_tenths(number(backend))).collect::<Vec<_>>().join(" / ")
}
