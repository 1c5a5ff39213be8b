//! One server on two libraries, side by side, and the stage that makes the difference.

use crate::report::document::{Column, Content, Field, Section, Table, Tone};
use crate::report::text::{capitalised, stage_label};
use crate::stats::Summary;
use crate::stats::libraries::{Change, Libraries, OnBoth, REMAINDER, WHOLE};
use crate::stats::methods::Cost;
use crate::units::{format_interval_with, format_micros};

/// The table of both libraries, where there are two.
pub(super) fn section(summary: &Summary) -> Option<Section> {
    let libraries = summary.libraries.as_ref()?;
    let fields: [Field<OnBoth>; _] = [
        (Column::words("server CPU µs/hit"), |row| label(&row.stage)),
        (Column::number("A"), |row| format_micros(row.first.cpu_ns_per_hit)),
        (Column::number("B"), |row| format_micros(row.second.cpu_ns_per_hit)),
        (Column::number("B less A"), |row| signed(row.difference.cpu_ns_per_hit)),
        (Column::interval(), |row| ends(&row.difference)),
        (Column::words("on B"), |row| change(row.change).to_owned()),
    ];
    let mut table = Table::of(fields, &libraries.rows);
    for (row, _) in table.rows.iter_mut().zip(&libraries.rows).filter(|(_, of)| of.change == Change::Undecided) {
        row.iter_mut().for_each(|cell| cell.tone = Tone::Muted);
    }
    let meaning = format!(
        "A: {}. B: {}. The same server program with either, both up, in slices or blocks that alternate. Of a stage: \
         what a hit costs less without it. The last row is what a hit costs with all of these stages off. Stages \
         overlap, so that the parts need not add up to the whole.",
        libraries.first, libraries.second
    );
    Some(Section::titled("libraries", "Two libraries").with(Content::Table(table)).notes([meaning]))
}

/// What the comparison comes to, and which stage is to blame.
pub(super) fn sentence(libraries: &Libraries) -> String {
    let Libraries { first, second, .. } = libraries;
    let whole = libraries.whole();
    let percent = 100.0 * whole.difference.cpu_ns_per_hit / whole.first.cpu_ns_per_hit;
    let by =
        format!("{} µs/hit {} ({percent:+.1} %)", signed(whole.difference.cpu_ns_per_hit), ends(&whole.difference));
    let part = |row: &OnBoth| {
        format!("{}: {} µs/hit {}", label(&row.stage), signed(row.difference.cpu_ns_per_hit), ends(&row.difference))
    };
    match (whole.change, libraries.to_blame()) {
        (Change::Undecided, _) => {
            format!("Whether a hit costs this server more CPU time on {second} than on {first} is undecided: {by}.")
        }
        (verdict, row) => {
            let part = match row {
                Some(row) => format!("Most of it is {}", part(row)),
                None => "Which stage makes the difference is undecided".to_owned(),
            };
            let verdict = if verdict == Change::Dearer { "more" } else { "less" };
            format!("{} costs this server {verdict} CPU time than {first}: {by}. {part}.", capitalised(second))
        }
    }
}

fn label(stage: &str) -> String {
    match stage {
        WHOLE => "a whole hit".to_owned(),
        REMAINDER => "what is left with these off".to_owned(),
        stage => stage_label(stage),
    }
}

fn change(change: Change) -> &'static str {
    match change {
        Change::Dearer => "dearer",
        Change::Cheaper => "cheaper",
        Change::Undecided => "undecided",
    }
}

fn signed(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { "" } else { "+" }, format_micros(ns))
}

fn ends(cost: &Cost) -> String {
    format_interval_with(cost.low_ns, cost.high_ns, signed)
}
