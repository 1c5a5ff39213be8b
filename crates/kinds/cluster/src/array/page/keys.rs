//! Whose ticket keys keep which sessions, and what that costs: a sentence and a table, where several ways of spreading
//! clients are compared.

use tlsdyno_base::units::{UNDECIDED, format_micros, format_percent, format_tenths};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::{Medium, Section};
use tlsdyno_runner::report::text::ratio_columns;
use tlsdyno_stats::Estimate;

use crate::array::summary::{ArrayLevel, ArrayLine, ArraySummary};

/// A level at which sessions were offered again, with its line and what was accepted of them.
pub type Offering<'a> = (&'a ArrayLine, &'a ArrayLevel, Estimate);

/// All of several proxies, those of one place below each other; none where ways of spreading clients are not compared.
pub fn offering(summary: &ArraySummary) -> Vec<Offering<'_>> {
    let is_compared = summary.experiment.array.spread.len() > 1;
    let lines = summary.lines.iter().filter(|line| is_compared && line.proxies > 1);
    let levels = lines.flat_map(|line| line.levels.iter().map(move |level| (line, level)));
    let offering = levels.filter_map(|(line, level)| Some((line, level, level.accepted_percent_of_offered?)));
    let mut all: Vec<Offering> = offering.collect();
    all.sort_by(|a, b| a.0.proxies.cmp(&b.0.proxies).then(a.1.asked_percent.total_cmp(&b.1.asked_percent)));
    all
}

/// What the largest number of proxies makes of offered sessions at the highest reuse, in a sentence.
pub fn sentence(summary: &ArraySummary) -> Option<String> {
    let all = offering(summary);
    let (last, highest, _) = all.last()?;
    let is_there = |of: &&Offering| of.0.proxies == last.proxies && of.1.asked_percent == highest.asked_percent;
    let each = all.iter().filter(is_there).map(|(line, level, accepted)| {
        let dispatcher = match level.dispatcher_cpu_ns_per_hit.value {
            ns if ns > 0.0 => format!(", {} µs of it the dispatcher's", format_micros(ns)),
            _ => String::new(),
        };
        let accepted = match accepted.has_interval() {
            true => accepted.in_unit(" %", format_tenths),
            false => format!("an {UNDECIDED} part"),
        };
        let cpu = match level.cpu_ns_per_hit.has_interval() {
            true => format!(" ({} µs of CPU a page{dispatcher})", format_micros(level.whole_cpu_ns_per_hit())),
            false => String::new(),
        };
        format!("{accepted} with {}{cpu}", line.spread)
    });
    let each: Vec<String> = each.collect();
    Some(format!("Of the sessions offered again {} proxies accept {}.", last.proxies, each.join(", ")))
}

pub fn section(summary: &ArraySummary) -> Option<Section> {
    let all = offering(summary);
    let rows = Rows::new(&all)
        .words("", |(line, level, _)| format!("{} proxies, {}, {} %", line.proxies, line.spread, level.asked_percent))
        .number("accepted", |(.., accepted)| format_percent(accepted.value))
        .interval(format_tenths, |(.., accepted)| Some(*accepted))
        .number("proxies", |(_, level, _)| format_micros(level.cpu_ns_per_hit.value))
        .on(Medium::Page, |rows| rows.interval(format_micros, |(_, level, _)| Some(level.cpu_ns_per_hit)))
        .number("dispatcher", |(_, level, _)| format_micros(level.dispatcher_cpu_ns_per_hit.value))
        .on(Medium::Page, |rows| rows.interval(format_micros, |(_, level, _)| Some(level.dispatcher_cpu_ns_per_hit)))
        .number("both", |(_, level, _)| format_micros(level.whole_cpu_ns_per_hit()))
        .pair("times", |(_, level, _)| level.cpu_times.as_ref().map(ratio_columns).unwrap_or_default());
    let note = format!(
        "accepted: of the sessions offered again. proxies, dispatcher, both: µs of CPU time for a page with its part \
         of handshakes. times: both by those of {} in the same rounds.",
        summary.experiment.array.spread.first().copied().unwrap_or_default()
    );
    (!all.is_empty()).then(|| Section::titled("ticket-keys", "Ticket keys").rows(rows).notes([note]))
}
