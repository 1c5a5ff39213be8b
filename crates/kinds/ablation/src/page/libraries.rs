//! One server on two libraries, side by side, and the stage that makes the difference.

use tlsdyno_base::units::format_micros;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::{Section, Tone};
use tlsdyno_runner::report::text::{capitalised, stage_label};
use tlsdyno_stats::Direction;
use tlsdyno_stats::statement::SideBySide;

use crate::summary::libraries::{Libraries, REMAINDER, WHOLE};

pub(super) fn section(libraries: &Libraries) -> Section {
    let rows = Rows::new(&libraries.rows)
        .words("server CPU µs/hit", |row| label(&row.stage))
        .number("A", |row| format_micros(row.first.value))
        .number("B", |row| format_micros(row.second.value))
        .estimate("B less A", signed, |row| Some(row.difference))
        .words("on B", |row| change(row.direction).to_owned())
        .toned(Tone::Muted, |row| row.direction == Direction::Undecided);
    let meaning = format!(
        "A: {}. B: {}. The same server program with either, both up, in slices or blocks that alternate. Of a stage: \
         what a hit costs less without it. The last row is what a hit costs with all of these stages off. Stages \
         overlap, so that the parts need not add up to the whole.",
        libraries.first, libraries.second
    );
    Section::titled("libraries", "Two libraries").rows(rows).notes([meaning])
}

/// Result of the comparison, and the stage with most of the difference.
pub(super) fn sentence(libraries: &Libraries) -> String {
    let Libraries { first, second, .. } = libraries;
    let whole = libraries.whole();
    let percent = 100.0 * whole.difference.value / whole.first.value;
    let said = format!("{} ({percent:+.1} %)", by(whole));
    match (whole.direction, libraries.to_blame()) {
        (Direction::Undecided, _) => {
            format!("Whether a hit costs this server more CPU time on {second} than on {first} is undecided: {said}.")
        }
        (verdict, row) => {
            let part = match row {
                Some(row) => format!("Most of it is {}: {}", label(&row.stage), by(row)),
                None => "Which stage makes the difference is undecided".to_owned(),
            };
            let verdict = if verdict == Direction::Bigger { "more" } else { "less" };
            format!("{} costs this server {verdict} CPU time than {first}: {said}. {part}.", capitalised(second))
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

fn change(direction: Direction) -> &'static str {
    match direction {
        Direction::Bigger => "dearer",
        Direction::Smaller => "cheaper",
        Direction::Undecided => "undecided",
    }
}

fn signed(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { "" } else { "+" }, format_micros(ns))
}

/// `+20.1 µs/hit [+18.0, +22.2]`.
fn by(row: &SideBySide) -> String {
    format!("{} µs/hit {}", signed(row.difference.value), row.difference.ends(signed))
}
