//! How the reading and the advice are shown.

use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::units::{format_micros, format_tenths};
use tlsdyno_base::verdict::Direction;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::{Content, Document, Item, Medium, Section, Tone};
use tlsdyno_runner::report::{Style, terminal};

use crate::advice::{Advice, Saving, Together, cpus};
use crate::record::{AdviceModel, ConsideredModel, Here};

/// What was read, and the remedies that would be tried.
pub(crate) fn reading(read: &AdviceModel) -> Vec<Section> {
    let rows = Rows::new(&read.considered)
        .words("remedy", |of| of.name.clone())
        .words("here", |of| of.here.name().to_owned())
        .words("why", |of| of.why.clone());
    let facts = Section::titled("reading", "What its files say").with(Content::Facts(read.reading.clone()));
    vec![facts, Section::titled("considered", "What could be changed").rows(rows).notes(read.notes.clone())]
}

/// Maximum number of rows of a table to paste.
const BRIEF_ROWS: usize = 4;

/// Ten lines at most, to paste: the answer, what the server is, and the first remedies with the lines to write.
pub(crate) fn brief(read: &AdviceModel, advice: Option<&Advice>) -> Document {
    let joined = |lines: &[String]| {
        let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.starts_with('#')).collect();
        lines.join(" ")
    };
    let to_try = |of: &&ConsideredModel| of.here == Here::ToTry;
    let tried: Vec<&ConsideredModel> = read.considered.iter().filter(to_try).take(BRIEF_ROWS).collect();
    let table = match advice {
        Some(advice) if !advice.remedies.is_empty() => {
            let shown = &advice.remedies[..advice.remedies.len().min(BRIEF_ROWS)];
            Section::default().rows(saved(advice, shown).words("lines", |saving| joined(&saving.lines)))
        }
        _ if tried.is_empty() => Section::default().text("Nothing is left to try."),
        _ => {
            let rows = Rows::new(&tried).words("to try", |of| of.name.clone()).words("why", |of| of.why.clone());
            Section::default().rows(rows.words("lines", |of| joined(&of.lines)))
        }
    };
    let answer = advice.map(|advice| advice.told() + " ").unwrap_or_default() + "On " + &read.server + ".";
    Document { answer, ..Document::from_sections([table]) }
}

/// Results in the order of advice, with the lines to write.
fn advised(advice: &Advice) -> Vec<Section> {
    let undecided = |of: &Saving| of.direction == Direction::Undecided;
    let rows = saved(advice, &advice.remedies).words("its price", |of| of.price.clone());
    let rows = rows.toned(Tone::Muted, undecided);
    let table = Section::titled("advice", "What the remedies save").rows(rows);
    let measured = |remedy: &ConsideredModel| advice.remedies.iter().any(|of| Some(of.id) == remedy.id());
    let missing = advice.read.considered.iter().filter(|of| of.here == Here::ToTry && !measured(of));
    let missing: Vec<&str> = missing.map(|of| of.name.as_str()).collect();
    let missing = (!missing.is_empty()).then(|| format!("Not measured: {}.", missing.join(", ")));
    let item = |of: &Saving| Item {
        head: of.name.clone(),
        text: Vec::new(),
        code: of.lines.clone(),
        muted: of.direction != Direction::Bigger,
    };
    let written = advice.remedies.iter().filter(|of| of.direction != Direction::Smaller && !of.lines.is_empty());
    let items: Vec<Item> = written.map(item).collect();
    let lines = Section::titled("lines", "What to write").with(Content::Items(items));
    vec![table.notes(advice.together.as_ref().map(together).into_iter().chain(missing)), lines]
}

pub(crate) fn so_far(advice: &Advice) -> String {
    let table = saved(advice, &advice.remedies).table();
    let table = terminal::table_text(&table, Style { rich: false, ..Style::of_stderr() });
    advice
        .hit_ns
        .map_or_else(String::new, |hit| format!("a hit takes {} µs\n{table}", hit.with_interval(format_micros)))
}

fn saved<'a>(advice: &'a Advice, remedies: &'a [Saving]) -> Rows<'a, Saving> {
    let hit_ns = advice.hit_ns.map_or(f64::NAN, |hit| hit.value);
    let verdict = |of: &Saving| match (of.direction, of.needs_s) {
        (Direction::Bigger, _) => "saves".to_owned(),
        (Direction::Smaller, _) => "costs more".to_owned(),
        (Direction::Undecided, Some(seconds)) => format!("undecided (--time {seconds:.0})"),
        (Direction::Undecided, None) => "undecided".to_owned(),
    };
    let rows = Rows::new(remedies).words("remedy", |of| of.name.clone());
    let rows = rows.estimate("saves CPU µs/hit", format_micros, |of| Some(of.ns));
    let percent = move |of: &Saving| format_tenths(100.0 * of.ns.half_width() / hit_ns);
    let mut rows = rows.number("± % of a hit", percent);
    if let Some(rate) = advice.read.rate_per_s {
        rows = rows.number(format!("CPUs at {rate:.0}/s"), move |of| cpus(of.ns, rate));
    }
    rows.words("", verdict)
}

fn together(of: &Together) -> String {
    let us = |ns: Estimate| ns.with_interval(format_micros) + " µs";
    let verdict = match of.direction {
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

/// The document of the record with the advice in the place of its ranking: a terminal shows the advice, the lines to
/// write, and what a reader must know; a page has all of it.
pub(crate) fn document(of_record: Document, advice: &Advice) -> Document {
    let is_shown = |section: &Section| {
        let is_said = |part: &Content| matches!(part, Content::Warnings(_) | Content::Text(_));
        section.title.is_empty() && section.parts.iter().all(is_said)
    };
    let mut sections = advised(advice);
    sections.extend(reading(&advice.read).into_iter().map(|section| section.on(Medium::Page)));
    for section in of_record.sections.into_iter().filter(|section| section.id != "remedies") {
        let is_shown = is_shown(&section) || section.medium == Medium::Page;
        sections.push(if is_shown { section } else { section.on(Medium::Page) });
    }
    Document { answer: advice.told(), sections, see_also: None, ..of_record }
}
