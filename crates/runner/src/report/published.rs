//! A paper's numbers beside ours, and what changed since in a few sentences.

use tlsdyno_base::units::NONE;
use tlsdyno_record::model::{Paper, PublishedNumber};
use tlsdyno_stats::scoreboard::Claim;

use super::document::Section;
use super::scoreboard;

/// A paper's numbers beside ours, for records without other sections about it.
pub fn section(paper: &Paper, claims: &[Claim]) -> Section {
    let machines = match &paper.machines[..] {
        [] => None,
        [one] => Some(format!("The paper's machine: {one}.")),
        several => Some(format!("The paper's machines: {}.", several.join(" / "))),
    };
    let remarks = machines.into_iter().chain(not_as_in(&paper.differences));
    remarks.fold(scoreboard::section(&paper.source, claims), Section::text)
}

/// `21 / – / 37`: published numbers, one for each machine.
pub fn slashed(numbers: &[f64]) -> String {
    slashed_ranges(&numbers.iter().copied().map(PublishedNumber::number).collect::<Vec<_>>())
}

/// As [`slashed`], with ranges: `21 / – / 36 to 38`.
pub fn slashed_ranges(numbers: &[PublishedNumber]) -> String {
    let text = |number: &PublishedNumber| match [number.low, number.high].map(|end| format!("{end:.0}")) {
        _ if !number.is_known() => NONE.to_owned(),
        [low, high] if low == high => low,
        [low, high] => format!("{low} to {high}"),
    };
    numbers.iter().map(text).collect::<Vec<_>>().join(" / ")
}

/// Differences from the paper's conditions; `None` without any.
pub fn not_as_in(differences: &[String]) -> Option<String> {
    (!differences.is_empty()).then(|| format!("Not as in the paper: {}", differences.join(" ")))
}
