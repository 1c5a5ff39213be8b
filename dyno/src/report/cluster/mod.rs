//! Reports of cluster experiments: on the terminal, as JSON, and as a page.

mod charts;
pub mod json;
mod locality;
mod page;
pub mod terminal;

pub use page::page;

use self::terminal::latency_phase;
use super::text::ratio_times;
use crate::histogram::Percentiles;
use crate::stats::Direction;
use crate::stats::cluster::{CellSummary, ClusterSummary, PublishedStatement};
use crate::units::{format_duration, format_percent};

/// The answer in a sentence or two: what the policy that keeps most sessions makes of the cluster. The traffic is that
/// of the first cell with the largest load, which saturates most, and the highest reuse below 100 % (at 100 % nobody
/// new comes): chosen before anything is measured, not by what came out.
pub fn answer(summary: &ClusterSummary) -> String {
    let offering = |cell: &&CellSummary| cell.blocks > 0 && cell.resumed_offered > 0;
    let Some(first) = summary.cells.iter().find(offering).map(|cell| &cell.cell) else {
        if let Some(said) = locality::answer(summary) {
            return said;
        }
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
    let said = format!("{}: {} of the sessions offered again were accepted", best.name, format_percent(kept(best)));
    let Some(against) = &best.against else { return said + &without_ratio(summary, best) };
    let baseline = summary.baseline_of(&best.cell).map_or(f64::NAN, kept);
    let verdict = match against.hits_per_second.direction {
        Direction::Undecided => "; whether it serves more is undecided: ",
        Direction::Bigger | Direction::Smaller => ", and it serves ",
    };
    format!(
        "{said} ({} with {}){verdict}{} the hits/s, from {} of its CPU per hit.",
        format_percent(baseline),
        against.baseline,
        ratio_times(&against.hits_per_second),
        share_of(against.by_cpu.times)
    )
}

/// What is said of a policy for which there is no ratio: it is the first itself, or was never measured together with
/// it.
fn without_ratio(summary: &ClusterSummary, best: &CellSummary) -> String {
    match summary.cells.first().map(|cell| cell.cell.policy) {
        Some(first) if first != best.cell.policy => {
            format!("; nothing is known of {} in the same rounds, so that they cannot be compared.", first.name())
        }
        _ => "; no other policy kept more.".to_owned(),
    }
}

/// The paper's statements with ours, one text each; empty without a paper.
pub(super) fn beside_paper(summary: &ClusterSummary) -> Vec<String> {
    let line = |beside: &PublishedStatement| {
        let [least, most] = beside.published_times;
        let published = if least == most { format!("{least:.2}") } else { format!("{least:.2} to {most:.2}") };
        let ours = beside.ours.map_or("not measured".to_owned(), |ratio| ratio_times(&ratio));
        format!("{} Published: {published} times; here: {ours}.", beside.text)
    };
    summary.published.iter().map(line).collect()
}

/// What dividing by `times` leaves, in per cent.
fn share_of(times: f64) -> String {
    format_percent(100.0 / times)
}

/// What the busiest backend got of the connections: `33.4 %`, or a dash where there were none.
pub(super) fn busiest(cell: &CellSummary) -> String {
    format_percent(cell.busiest_percent.value)
}

/// A percentile of the latency that is shown, `≥` where unserved requests, which would be later than all, are not in
/// it.
pub(super) fn latency(cell: &CellSummary, percentile: fn(&Percentiles) -> u64) -> String {
    let bound = if cell.fell_behind() { "≥ " } else { "" };
    let found = cell.latency_ns.get(latency_phase(cell));
    found.map_or("–".to_owned(), |found| format!("{bound}{}", format_duration(percentile(found) as f64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::terminal::Style;
    use crate::stats::cluster::samples::{block, experiment, record};

    #[test]
    fn the_answer_tells_the_best_from_what_cannot_be_compared() {
        let answered = |blocks| {
            let mut record = record(experiment(None));
            record.blocks = blocks;
            answer(&ClusterSummary::of(&record).unwrap())
        };
        let both = answered(vec![block(0, 0, 300), block(1, 0, 800)]);
        assert!(both.contains("37.5 % with round-robin"), "{both}");
        let first = answered(vec![block(0, 0, 800), block(1, 0, 300)]);
        assert!(first.ends_with("no other policy kept more."), "{first}");
        let never_together = answered(vec![block(0, 0, 300), block(1, 1, 800)]);
        assert!(never_together.contains("nothing is known of round-robin in the same rounds"), "{never_together}");
    }

    #[test]
    fn latencies_without_the_unserved_are_lower_bounds() {
        let mut record = record(experiment(Some(100.0)));
        let mut behind = block(1, 0, 800);
        behind.cluster.as_mut().unwrap().unserved = 500;
        record.blocks = vec![block(0, 0, 300), behind];
        let mut summary = ClusterSummary::of(&record).unwrap();
        for cell in &mut summary.cells {
            let percentiles = Percentiles { p50: 2_000_000, ..Percentiles::default() };
            cell.latency_ns.insert("scheduled_response".to_owned(), percentiles);
        }
        let [served, unserved] = [0_usize, 1].map(|index| latency(&summary.cells[index], |found| found.p50));
        assert_eq!(unserved, format!("≥ {served}"));
        let shown = terminal::results(&record, &summary, Style::PLAIN);
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains("500 of 1500 requests that were due"), "{shown}");
        assert!(shown.contains("≥ before a latency") && shown.contains(&unserved), "{shown}");
    }
}
