//! Reports of cluster experiments: on the terminal, as JSON, and as a page.

mod charts;
pub mod json;
mod page;
pub mod terminal;

pub use page::page;

use super::text::{percent, ratio_times, tenths};
use crate::stats::Direction;
use crate::stats::cluster::{Beside, CellSummary, ClusterSummary};

/// The answer in a sentence or two: what the policy that keeps most sessions makes of the cluster. The traffic is that of the first cell with
/// the largest load, which saturates most, and the highest reuse below 100 % (at 100 % nobody new comes): chosen before anything is measured,
/// not by what came out.
pub fn answer(summary: &ClusterSummary) -> String {
    let offering = |cell: &&CellSummary| cell.blocks > 0 && cell.resumed_offered > 0;
    let Some(first) = summary.cells.iter().find(offering).map(|cell| &cell.cell) else {
        return "No session was offered again, so that nothing can be said of how the policies keep them.".to_owned();
    };
    let load = |cell: &CellSummary| cell.cell.rate_per_s.unwrap_or_else(|| f64::from(cell.cell.clients));
    let alike = || {
        let is_alike = |cell: &&CellSummary| {
            cell.cell.sharing == first.sharing
                && cell.cell.behind_one_address_percent == first.behind_one_address_percent
        };
        summary.cells.iter().filter(offering).filter(is_alike)
    };
    let largest = alike().map(load).fold(0.0, f64::max);
    let below_all = alike().map(|cell| cell.cell.reuse_percent).filter(|percent| *percent < 100.0).fold(0.0, f64::max);
    let reuse = if below_all > 0.0 { below_all } else { 100.0 };
    let kept = |cell: &CellSummary| cell.accepted_percent_of_offered.value;
    let at = alike().filter(|cell| cell.cell.reuse_percent == reuse && load(cell) == largest);
    // Of several that keep as many the first named.
    let best = at.rev().max_by(|a, b| kept(a).round().total_cmp(&kept(b).round()));
    let Some(best) = best else { return "Nothing was measured.".to_owned() };
    let said = format!("{}: {} of the sessions offered again were accepted", best.name, percent(kept(best)));
    let Some(against) = &best.against else { return said + "; no other policy kept more." };
    let baseline = summary.baseline_of(&best.cell).map_or(f64::NAN, kept);
    let verdict = match against.hits_per_second.direction {
        Direction::Undecided => "; whether it serves more is undecided: ",
        Direction::Bigger | Direction::Smaller => ", and it serves ",
    };
    format!(
        "{said} ({} with {}){verdict}{} the hits/s, from {} of its CPU per hit.",
        percent(baseline),
        against.baseline,
        ratio_times(&against.hits_per_second),
        share_of(against.by_cpu.times)
    )
}

/// The paper's statements with ours, one text each; empty without a paper.
pub(super) fn beside_paper(summary: &ClusterSummary) -> Vec<String> {
    let line = |beside: &Beside| {
        let [least, most] = beside.published_times;
        let published = if least == most { format!("{least:.2}") } else { format!("{least:.2} to {most:.2}") };
        let ours = beside.ours.map_or("not measured".to_owned(), |ratio| ratio_times(&ratio));
        format!("{} Published: {published} times; here: {ours}.", beside.text)
    };
    summary.published.iter().map(line).collect()
}

/// What dividing by `times` leaves, in per cent.
fn share_of(times: f64) -> String {
    percent(100.0 / times)
}

/// `33.4 %`, and by how much that is above an even share.
pub(super) fn busiest(cell: &CellSummary) -> String {
    if cell.busiest_percent.value.is_finite() {
        format!("{} %", tenths(cell.busiest_percent.value))
    } else {
        "–".to_owned()
    }
}
