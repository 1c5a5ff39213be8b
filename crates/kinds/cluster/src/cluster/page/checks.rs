//! An open loop beside what it must agree with, at both ends of its lines.

use tlsdyno_runner::report::document::{Content, Item, Section};
use tlsdyno_runner::report::text::{mark, ratio_times};
use tlsdyno_stats::Ratio;
use tlsdyno_stats::statement::Lies;

use crate::cluster::load_checks::LoadCheck;
use crate::cluster::summary::ClusterSummary;

/// Throughput at saturation may differ from that of a closed loop by this part.
const SATURATION_AGREES: f64 = 0.05;
/// The median latency at light load may differ from that of one client alone by this part.
const LIGHT_AGREES: f64 = 0.10;

pub fn section(summary: &ClusterSummary) -> Option<Section> {
    let items: Vec<Item> = summary.checks.iter().flat_map(items).collect();
    let note = format!(
        "saturation: hits per second at the largest rate by those of a closed loop of as many clients; it may differ \
         by {:.0} %. light load: median latency at the smallest rate by that of one client alone at that rate; by \
         {:.0} %.",
        100.0 * SATURATION_AGREES,
        100.0 * LIGHT_AGREES
    );
    (!items.is_empty()).then(|| Section::titled("checks", "Checks").with(Content::Items(items)).notes([note]))
}

fn items(check: &LoadCheck) -> Vec<Item> {
    let item = |name: &str, ratio: &Ratio, tolerance: f64| {
        let lies = Lies::new([ratio.low, ratio.high], [1.0 - tolerance, 1.0 + tolerance]);
        let head = format!("{} {}: {name} {}", mark(lies), check.line, ratio_times(ratio));
        Item { head, muted: lies == Lies::Within, ..Item::default() }
    };
    let saturation = check.saturation.iter().map(|ratio| item("saturation", ratio, SATURATION_AGREES));
    let light = check.light_latency.iter().map(|ratio| item("light load", ratio, LIGHT_AGREES));
    saturation.chain(light).collect()
}
