//! Two loads beside each other: a table, and what it comes to.

use tlsdyno_ablation::page::compared::{one_sign, signed};
use tlsdyno_base::units::{NONE, format_duration, format_rate};
use tlsdyno_record::model::ComparedQuantity;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::{Section, Tone};
use tlsdyno_stats::compared::{Comparison, Word, verdict};

/// Samples behind the intervals of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scatter {
    /// Several runs on each side, or rounds in turn.
    Repeats,
    Slices,
}

/// The comparisons of each point below its name.
pub fn table(comparisons: &[Comparison], scatter: Scatter) -> Section {
    let rows = Rows::new(comparisons)
        .words("", |of| of.quantity.to_string())
        .number("first", |of| value(of, of.first))
        .number("second", |of| value(of, of.second))
        .number("change", |of| signed(of.change_percent.value))
        .interval(one_sign, |of| Some(of.change_percent))
        .words("", |of| of.word.to_string())
        .toned(Tone::Muted, |of| of.word == Word::Undecided)
        // A sweep's points stand above what is said of them.
        .headed(|of| of.point.clone());
    let note = match scatter {
        Scatter::Repeats => {
            "95 %: the intervals of all quantities of a comparison hold together in 95 of 100 comparisons."
        }
        Scatter::Slices => "95 %: of the slices of these two runs, each quantity by itself; equal runs differ by more.",
    };
    Section::default().rows(rows).notes([note.to_owned()])
}

/// Result of comparisons in a sentence.
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
    let percent = of.change_percent;
    format!("{point}{} {} {}", of.quantity, signed(percent.value), percent.ends(one_sign))
}

fn value(of: &Comparison, value: Option<f64>) -> String {
    let format = if of.quantity == ComparedQuantity::HitsPerSecond { format_rate } else { format_duration };
    value.map_or(NONE.to_owned(), format)
}
