//! Two records or builds of a server beside each other.

use tlsdyno_base::units::{format_duration, format_interval, format_percent};
use tlsdyno_record::model::ComparedQuantity;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::{Section, Tone};
use tlsdyno_runner::report::text::{ratio_gain, stage_label};
use tlsdyno_stats::compared::{Comparison, RUN_TO_RUN_PERCENT, Word};
use tlsdyno_stats::statement::SideBySide;
use tlsdyno_stats::{Direction, Estimate, Ratio};

use crate::summary::Summary;
use crate::summary::compared_shares::CPU_PER_HIT;
use crate::summary::findings::ComparisonFinding;

/// Table of the changes of shares between two records.
pub fn shares(changes: &[SideBySide]) -> Section {
    let is_cost = |of: &SideBySide| of.stage == CPU_PER_HIT;
    let told = |of: &SideBySide, known: Estimate| match is_cost(of) {
        true => [format_duration(known.value), known.ends(format_duration)],
        false => [format_percent(known.value), format_interval(known.low, known.high)],
    };
    let rows = Rows::new(changes)
        .words("CPU per hit", |of| if is_cost(of) { "as is".to_owned() } else { stage_label(&of.stage) })
        .pair("first", |of| told(of, of.first))
        .pair("second", |of| told(of, of.second))
        .number("change", share_change)
        .interval(one_sign, |of| Some(of.difference))
        .words("", |of| of.direction.to_string())
        .toned(Tone::Muted, |of| of.direction == Direction::Undecided);
    let note = "Changes of shares are in percentage points, that of the cost of a hit as is in per cent. Their \
                intervals hold together in 95 of 100 comparisons, as far as the intervals of both records do: those of \
                fewer than four runs do not hold what equal runs differ by.";
    Section::default().rows(rows).notes([note.to_owned()])
}

/// Result of the comparison of two records in a sentence.
pub fn shares_sentence(changes: &[SideBySide]) -> String {
    let told = |of: &&SideBySide| of.direction != Direction::Undecided;
    let name = |of: &SideBySide| match of.stage == CPU_PER_HIT {
        true => "the cost of a hit".to_owned(),
        false => stage_label(&of.stage),
    };
    let told: Vec<String> = changes
        .iter()
        .filter(told)
        .map(|of| format!("{} is {} ({})", name(of), of.direction, share_change(of)))
        .collect();
    match told.is_empty() {
        true => "No difference between the two is decided.".to_owned(),
        false => format!("In the second record {}.", told.join("; ")),
    }
}

fn share_change(of: &SideBySide) -> String {
    if of.stage == CPU_PER_HIT { signed(of.difference.value) } else { one_sign(of.difference.value) }
}

/// Compares the second of two builds with the first: by CPU time per hit, or counted instructions, beyond a tolerance;
/// or by hits per second beyond the variation of equal runs. `None` where the record compares no builds.
pub fn builds(summary: &Summary, tolerance_percent: f64) -> Option<Builds> {
    let finding = summary.findings.comparisons.iter().find(|finding| finding.of_builds)?;
    let word_of = |more_percent: Estimate, tolerance: f64| match () {
        () if more_percent.low > tolerance => Word::Slower,
        () if more_percent.high < -tolerance => Word::Faster,
        () => Word::Undecided,
    };
    let value = |name: &str, quantity| {
        let of = summary.configurations.iter().find(|of| of.name == name)?;
        let value = match quantity {
            ComparedQuantity::CpuPerHit => of.server_cpu_ns_per_hit,
            ComparedQuantity::HitsPerSecond => of.hits_per_second,
            _ => return None,
        };
        value.is_known().then_some(value.value)
    };
    let changed = |quantity, change_percent, word| Comparison {
        point: None,
        quantity,
        first: value(&finding.a, quantity),
        second: value(&finding.b, quantity),
        change_percent,
        word,
    };
    let (Some(by_hits), Some(by_cpu)) = (finding.ratio, finding.by_cpu) else {
        let (change, spread) = counted_change(summary, finding)?;
        let change_percent = Estimate { value: change, low: change - spread, high: change + spread };
        let word = word_of(change_percent, tolerance_percent);
        let said = of_builds(word, None, tolerance_percent);
        let repeats = format!("counts of one server repeat to {spread:.2} %");
        let sentence = format!("{said}: instructions per hit {change:+.2} % ({repeats}).");
        return Some(Builds {
            word,
            sentence,
            changes: vec![changed(ComparedQuantity::InstructionsPerHit, change_percent, word)],
        });
    };
    // What serves less takes more.
    let more_percent = |ratio: &Ratio| {
        let of = |times: f64| 100.0 * (1.0 / times - 1.0);
        Estimate { value: of(ratio.times), low: of(ratio.high), high: of(ratio.low) }
    };
    let word_by = |ratio: &Ratio, tolerance: f64| match ratio.direction {
        Direction::Undecided => Word::Undecided,
        _ => word_of(more_percent(ratio), tolerance),
    };
    let words = [word_by(&by_cpu, tolerance_percent), word_by(&by_hits, tolerance_percent.max(RUN_TO_RUN_PERCENT))];
    let word = [Word::Slower, Word::Faster].into_iter().find(|word| words.contains(word)).unwrap_or(Word::Undecided);
    let of_cpu = more_percent(&by_cpu);
    let of_hits = by_hits.estimate().map(|times| 100.0 * (times - 1.0));
    let (cpu, ends, hits) = (signed(of_cpu.value), of_cpu.ends(one_sign), ratio_gain(&by_hits));
    let said = of_builds(word, Some(&by_cpu), tolerance_percent);
    let sentence = format!("{said}: CPU time per hit {cpu} {ends}; hits/s {hits}.");
    let changes = vec![
        changed(ComparedQuantity::CpuPerHit, of_cpu, words[0]),
        changed(ComparedQuantity::HitsPerSecond, of_hits, words[1]),
    ];
    Some(Builds { word, sentence, changes })
}

/// Result of the comparison of two builds.
#[derive(Clone, Debug)]
pub struct Builds {
    /// Whether the second is slower.
    pub word: Word,
    /// `word` with its numbers.
    pub sentence: String,
    /// Changes for limits; counted instructions without their values.
    pub changes: Vec<Comparison>,
}

/// Sentence about two builds. An undecided interval that excludes 0 is of too few rounds.
fn of_builds(word: Word, by_cpu: Option<&Ratio>, tolerance_percent: f64) -> String {
    let excludes_none = |ratio: &&Ratio| ratio.low > 1.0 || ratio.high < 1.0;
    match (word, by_cpu.filter(excludes_none).map(|ratio| ratio.direction)) {
        (Word::Undecided, Some(Direction::Undecided)) => "Too few rounds to decide, measure longer (-d)".to_owned(),
        (Word::Undecided, _) => format!("No difference beyond {tolerance_percent} % was found"),
        (word, _) => format!("The second build is {word}"),
    }
}

/// Instructions per hit of the second by those of the first, less one, and the variation of counts of one server; per
/// cent.
fn counted_change(summary: &Summary, finding: &ComparisonFinding) -> Option<(f64, f64)> {
    let counted = summary.counted.as_ref()?;
    let of = |name: &str| counted.configurations.iter().find(|of| of.name == name)?.instructions_per_hit;
    Some((100.0 * (of(&finding.b)? / of(&finding.a)? - 1.0), counted.spread_percent?))
}

pub fn one_sign(number: f64) -> String {
    format!("{number:+.1}")
}

pub fn signed(percent: f64) -> String {
    format!("{percent:+.1} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_are_not_called_no_difference() {
        let said = |low, high, direction| {
            let ratio = Ratio { times: low, low, high, direction, at_most: false, at_least: false };
            of_builds(Word::Undecided, Some(&ratio), 2.0)
        };
        assert_eq!(said(0.26, 0.34, Direction::Undecided), "Too few rounds to decide, measure longer (-d)");
        assert_eq!(said(0.9, 1.1, Direction::Undecided), "No difference beyond 2 % was found");
        assert_eq!(said(1.001, 1.01, Direction::Bigger), "No difference beyond 2 % was found");
        assert_eq!(of_builds(Word::Slower, None, 2.0), "The second build is slower");
    }
}
