//! How locality is shown: in the answer, on the terminal and on the page.

use comfy_table::{Attribute, Cell as TableCell, CellAlignment};

use super::terminal::by_traffic;
use crate::report::terminal::{Style, table};
use crate::report::text::ratio_times;
use crate::stats::Direction;
use crate::stats::cluster::{CellSummary, ClusterSummary};
use crate::stats::locality::{BackendLocality, LocalitySummary};
use crate::units::{format_count, format_interval, format_percent, format_tenths};

/// The columns, without the name of the cell.
pub(super) const HEADER: [&str; 6] =
    ["objects", "kB", "% missed", "95 %", "objects at each backend", "% missed at each"];

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
        "{}: each backend is asked for {} objects in a block, and a cache of {} kB at each would miss {} of the \
         requests",
        best.cell.policy.name(),
        format_tenths(found.objects.value),
        kilobytes(found.cache_bytes as f64),
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

fn kilobytes(bytes: f64) -> String {
    format_count((bytes / 1000.0).round() as u64)
}

fn columns(found: &LocalitySummary) -> [String; 6] {
    let each =
        |text: &dyn Fn(&BackendLocality) -> String| found.backends.iter().map(text).collect::<Vec<_>>().join(" / ");
    let missed = found.miss_percent;
    [
        format_tenths(found.objects.value),
        kilobytes(found.object_bytes.value),
        format_tenths(missed.value),
        format_interval(missed.low, missed.high),
        each(&|backend| format_tenths(backend.objects)),
        each(&|backend| format_tenths(backend.miss_percent())),
    ]
}

/// Names and columns of the cells that have locality, in the order of the tables.
pub(super) fn rows(summary: &ClusterSummary) -> Vec<(String, [String; 6])> {
    let row = |cell: &CellSummary| Some((cell.name.clone(), columns(cell.locality.as_ref()?)));
    by_traffic(summary).into_iter().filter_map(row).collect()
}

/// What the columns mean.
pub(super) fn note(summary: &ClusterSummary) -> Option<String> {
    let found = summary.cells.iter().find_map(|cell| cell.locality.as_ref())?;
    Some(format!(
        "objects, kB: the different objects that a backend is asked for in a block, and their size, mean of the \
         backends. missed: of the requests, by an LRU cache of {} kB for each backend, computed from each backend's \
         own access log; it stays warm from block to block.",
        kilobytes(found.cache_bytes as f64)
    ))
}

/// The table on the terminal, and its note.
pub(super) fn terminal_table(summary: &ClusterSummary, style: Style) -> Option<(String, String)> {
    let note = note(summary)?;
    let header: Vec<(&str, bool)> = std::iter::once(("", false)).chain(HEADER.map(|name| (name, true))).collect();
    let mut table = table(style, &header);
    for (name, columns) in rows(summary) {
        let right = |text: &String| TableCell::new(text).set_alignment(CellAlignment::Right);
        let name = TableCell::new(name).add_attribute(Attribute::Bold);
        table.add_row(std::iter::once(name).chain(columns.iter().map(right)).collect::<Vec<_>>());
    }
    Some((table.trim_fmt(), note))
}
