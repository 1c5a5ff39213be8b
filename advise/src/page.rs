//! How the reading and the advice are shown.

use std::time::Duration;

use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::units::{format_micros, format_tenths};
use tlsdyno_base::verdict::Direction;
use tlsdyno_bench::report::document::{Content, Document, Medium, Section, Tone};
use tlsdyno_bench::report::{Style, terminal};
use tlsdyno_record::model::TlsChange;
use tlsdyno_report::rows::Rows;
use tlsdyno_servers::directives::{self, Setting};

use crate::advice::{Advice, Saving, Together, cpus};
use crate::reading::Reading;
use crate::remedies::Considered;

/// What was read, and what would be tried.
pub(crate) fn reading(reading: &Reading, considered: &[Considered]) -> Vec<Section> {
    let rows = Rows::of(considered)
        .words("remedy", |of| of.name.to_owned())
        .words("here", |of| of.outcome.told().to_owned())
        .words("why", |of| of.why.clone());
    let log = reading.missing_log_line().map(|line| format!("A log that tells of sessions: {line}"));
    let read = Section::titled("reading", "What its files say").with(Content::Facts(reading.told()));
    vec![read, Section::titled("considered", "What could be changed").rows(rows).notes(log)]
}

/// Rows of a table to paste.
const BRIEF_ROWS: usize = 4;

/// Ten lines at most, to paste: the answer, what the server is, and the first remedies with the lines to write.
pub(crate) fn brief(reading: &Reading, considered: &[Considered], advice: Option<&Advice>) -> Document {
    let tried: Vec<&Considered> = considered.iter().filter(|of| of.change().is_some()).take(BRIEF_ROWS).collect();
    let lines = |change: Option<&TlsChange>| {
        let lines = change.map(Setting::of_change).unwrap_or_default().into_iter();
        let lines = lines.flat_map(|setting| directives::lines(reading.server, setting));
        lines.filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ")
    };
    let table = match advice {
        Some(advice) => {
            let shown = &advice.remedies[..advice.remedies.len().min(BRIEF_ROWS)];
            let of = |name: &str| considered.iter().find(|of| of.name == name).and_then(Considered::change);
            Section::default().rows(saved(advice, shown).words("lines", |saving| lines(of(saving.name))))
        }
        None if tried.is_empty() => Section::default().text("Nothing is left to try."),
        None => {
            let rows = Rows::of(&tried).words("to try", |of| of.name.to_owned()).words("why", |of| of.why.clone());
            Section::default().rows(rows.words("lines", |of| lines(of.change())))
        }
    };
    let answer = advice.map(|advice| advice.told() + " ").unwrap_or_default() + "On " + &reading.brief() + ".";
    Document { answer, ..Document::of([table.on(Medium::Terminal)]) }
}

/// The document of the record, of which only `brief` is pasted.
pub(crate) fn pasted(of_record: Document, brief: Document) -> Document {
    let rest = of_record.sections.into_iter().map(|section| section.on(Medium::Page));
    let sections = brief.sections.into_iter().chain(rest).collect();
    Document { answer: brief.answer, sections, ..of_record }
}

/// What was measured, before the record's own sections.
pub(crate) fn advised(advice: &Advice) -> Section {
    let undecided = |of: &Saving| of.ns.direction() == Direction::Undecided;
    let rows = saved(advice, &advice.remedies).words("its price", |of| of.price.to_owned());
    let section = Section::titled("advice", "What the remedies save").rows(rows.toned(Tone::Muted, undecided));
    section.notes(advice.together.as_ref().map(together))
}

/// A remedy's saving is known where its interval is within so many per cent of a hit's CPU time to either side.
const KNOWN_PERCENT: f64 = 3.0;

/// What the remedies save as far as it was measured, for the screen.
pub(crate) fn so_far(advice: &Advice, after: Duration) -> String {
    let wide = |of: &&Saving| 100.0 * of.ns.half_width() / advice.hit_ns.value > KNOWN_PERCENT;
    let open = advice.remedies.iter().filter(wide).count();
    let style = Style { rich: false, ..Style::of_stderr() };
    let table = terminal::table_text(&saved(advice, &advice.remedies).table(), style);
    format!(
        "after {:.0} s, a hit takes {} µs; {} of {} remedies are known to {KNOWN_PERCENT} % of that\n{table}",
        after.as_secs_f64(),
        advice.hit_ns.told(format_micros),
        advice.remedies.len() - open,
        advice.remedies.len()
    )
}

/// What remedies save.
fn saved<'a>(advice: &'a Advice, remedies: &'a [Saving]) -> Rows<'a, Saving> {
    let verdict = |of: &Saving| match of.ns.direction() {
        Direction::Bigger => "saves",
        Direction::Smaller => "costs more",
        Direction::Undecided => "undecided",
    };
    let rows = Rows::of(remedies).words("remedy", |of| of.name.to_owned());
    let rows = rows.estimate("saves CPU µs/hit", format_micros, |of| Some(of.ns));
    let percent = |of: &Saving| format_tenths(100.0 * of.ns.half_width() / advice.hit_ns.value);
    let mut rows = rows.number("± % of a hit", percent);
    if let Some(rate) = advice.rate_per_s {
        rows = rows.number(format!("CPUs at {rate:.0}/s"), |of| cpus(of.ns, rate));
    }
    rows.words("", |of| verdict(of).to_owned())
}

/// What several save together, in a sentence.
fn together(of: &Together) -> String {
    let us = |ns: Estimate| ns.told(format_micros) + " µs";
    let verdict = match of.more_ns.direction() {
        Direction::Bigger => "more than that",
        Direction::Smaller => "less than that, because each takes a part of what another one saves",
        Direction::Undecided => "no difference could be told",
    };
    format!(
        "Together {} save {} of CPU a hit; the single ones predict {}: {verdict} ({}).",
        of.names.join(" and "),
        us(of.measured_ns),
        us(of.predicted_ns),
        us(of.more_ns)
    )
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
