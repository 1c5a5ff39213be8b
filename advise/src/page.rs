//! How the reading and the advice are shown.

use tlsdyno_base::units::format_micros;
use tlsdyno_base::verdict::Direction;
use tlsdyno_bench::report::document::{Content, Document, Medium, Section, Tone};
use tlsdyno_report::rows::Rows;

use crate::advice::{Advice, Saving, cpus};
use crate::reading::{LOG_FORMAT, Reading};
use crate::remedies::Considered;

/// What was read, and what would be tried.
pub(crate) fn reading(reading: &Reading, considered: &[Considered]) -> Vec<Section> {
    let rows = Rows::of(considered)
        .words("remedy", |of| of.name.to_owned())
        .words("here", |of| of.outcome.told().to_owned())
        .words("why", |of| of.why.clone());
    let log = reading.lacks_telling_log().then(|| format!("A log that tells of sessions: {LOG_FORMAT}"));
    let read = Section::titled("reading", "What its files say").with(Content::Facts(reading.told()));
    vec![read, Section::titled("considered", "What could be changed").rows(rows).notes(log)]
}

/// What was measured, before the record's own sections.
pub(crate) fn advised(advice: &Advice) -> Section {
    let verdict = |of: &Saving| match of.ns.direction() {
        Direction::Bigger => "saves",
        Direction::Smaller => "costs more",
        Direction::Undecided => "undecided",
    };
    let mut rows = Rows::of(&advice.remedies).words("remedy", |of| of.name.to_owned()).estimate(
        "saves CPU µs/hit",
        format_micros,
        |of| Some(of.ns),
    );
    if let Some(rate) = advice.rate_per_s {
        rows = rows.number(format!("CPUs at {rate:.0}/s"), |of| cpus(of.ns, rate));
    }
    let undecided = |of: &Saving| of.ns.direction() == Direction::Undecided;
    let rows = rows.words("", |of| verdict(of).to_owned()).words("its price", |of| of.price.to_owned());
    Section::titled("advice", "What the remedies save").rows(rows.toned(Tone::Muted, undecided))
}

/// The document of the record with the advice before it: a terminal shows the advice, the lines to write, and what a
/// reader must know; a page has all of it.
pub(crate) fn document(of_record: Document, advice: Option<&Advice>, read: Vec<Section>) -> Document {
    let is_shown = |section: &Section| {
        let is_said = |part: &Content| matches!(part, Content::Warnings(_) | Content::Text(_));
        section.id == "remedies" || section.title.is_empty() && section.parts.iter().all(is_said)
    };
    let answer = advice.map_or_else(|| of_record.answer.clone(), Advice::told);
    let mut sections: Vec<Section> = advice.map(advised).into_iter().collect();
    sections.extend(read.into_iter().map(|section| section.on(Medium::Page)));
    for section in of_record.sections {
        let is_shown = is_shown(&section) || section.medium == Medium::Page;
        sections.push(if is_shown { section } else { section.on(Medium::Page) });
    }
    Document { answer, sections, ..of_record }
}
