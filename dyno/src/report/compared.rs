//! Two loads beside each other: a table, and what it comes to.

use super::document::{Cell, Column, Content, Field, Section, Table, Tone};
use super::text::ratio_gain;
use crate::stats::compared::{Comparison, QUANTITIES, Word, verdict};
use crate::stats::{Direction, Ratio, Summary};
use crate::units::{format_duration, format_interval_with, format_rate};

/// The table of comparisons, those of each point below its name.
pub fn table(comparisons: &[Comparison]) -> Section {
    let fields: [Field<Comparison>; _] = [
        (Column::words(""), |of| of.quantity.to_owned()),
        (Column::number("first"), |of| value(of, of.first)),
        (Column::number("second"), |of| value(of, of.second)),
        (Column::number("change"), |of| signed(of.change_percent)),
        (Column::interval(), ends),
        (Column::words(""), |of| of.word.to_string()),
    ];
    let mut table = Table::of(fields, comparisons);
    for (row, _) in table.rows.iter_mut().zip(comparisons).filter(|(_, of)| of.word == Word::Undecided) {
        row.iter_mut().for_each(|cell| cell.tone = Tone::Muted);
    }
    for (number, comparison) in comparisons.iter().enumerate().rev().filter(|(number, _)| number % QUANTITIES == 0) {
        // A sweep's points stand above what is said of them.
        table.rows.splice(number..number, comparison.point.iter().map(|point| vec![point_cell(point)]));
    }
    let note = "95 %: the intervals of the three quantities hold together in 95 of 100 comparisons.";
    Section::default().with(Content::Table(table)).notes([note.to_owned()])
}

/// Whether the second of two builds is slower than the first beyond a tolerance: by CPU time per hit or by hits per
/// second. `None` where the record does not say.
pub fn builds(summary: &Summary, tolerance_percent: f64) -> Option<(Word, String)> {
    let finding = summary.findings.comparisons.first()?;
    let (by_hits, by_cpu) = (finding.ratio?, finding.by_cpu?);
    let word_of = |ratio: &Ratio| match ratio.direction {
        Direction::Smaller if ratio.high < 1.0 - tolerance_percent / 100.0 => Word::Slower,
        Direction::Bigger if ratio.low > 1.0 + tolerance_percent / 100.0 => Word::Faster,
        _ => Word::Undecided,
    };
    let words = [word_of(&by_cpu), word_of(&by_hits)];
    let word = [Word::Slower, Word::Faster].into_iter().find(|word| words.contains(word)).unwrap_or(Word::Undecided);
    let said = match word {
        Word::Undecided => format!("No difference beyond {tolerance_percent} % was found"),
        word => format!("The second build is {word}"),
    };
    let (cpu, hits) = (ratio_gain(&by_cpu), ratio_gain(&by_hits));
    Some((word, format!("{said}: it serves {cpu} for the same CPU time, and {hits} hits/s.")))
}

/// What comparisons come to, in a sentence.
pub fn sentence(comparisons: &[Comparison]) -> String {
    let told = |word: Word| {
        let texts: Vec<String> = comparisons.iter().filter(|of| of.word == word).map(change).collect();
        texts.join("; ")
    };
    match verdict(comparisons) {
        Word::Undecided => "Which of the two is faster is undecided.".to_owned(),
        word => format!("The second is {word}: {}.", told(word)),
    }
}

fn change(of: &Comparison) -> String {
    let point = of.point.as_ref().map_or_else(String::new, |point| format!("{point}: "));
    format!("{point}{} {} {}", of.quantity, signed(of.change_percent), ends(of))
}

fn ends(of: &Comparison) -> String {
    format_interval_with(of.low_percent, of.high_percent, |end| format!("{end:+.1}"))
}

fn point_cell(name: &str) -> Cell {
    Cell::from(name).toned(Tone::Strong)
}

fn value(of: &Comparison, value: f64) -> String {
    if of.quantity == "hits/s" { format_rate(value) } else { format_duration(value) }
}

fn signed(percent: f64) -> String {
    format!("{percent:+.1} %")
}
