//! Whose ticket keys keep which sessions, and what that costs: a sentence and a table.

use crate::kinds::array::keys::KeySharing;
use crate::kinds::array::summary::ArraySummary;
use crate::report::document::{Column, Content, Field, Place, Section, Table};
use crate::report::text::ratio_columns;
use crate::stats::Estimate;
use crate::units::{format_interval_with, format_micros, format_percent, format_tenths};

/// What the largest number of proxies makes of offered sessions at the highest reuse, in a sentence; empty where ways
/// of spreading clients are not compared.
pub fn sentence(summary: &ArraySummary) -> String {
    let Some(last) = summary.ticket_keys.last() else { return String::new() };
    let is_there = |row: &&KeySharing| row.proxies == last.proxies && row.asked_percent == last.asked_percent;
    let each = summary.ticket_keys.iter().filter(is_there).map(|row| {
        let dispatcher = match row.dispatcher_cpu_ns_per_hit.value {
            ns if ns > 0.0 => format!(", {} of it the dispatcher's", micros(ns)),
            _ => String::new(),
        };
        format!(
            "{} with {} ({} of CPU a page{dispatcher})",
            format_percent(row.accepted_percent.value),
            row.spread,
            micros(row.cpu_ns_per_hit())
        )
    });
    let each: Vec<String> = each.collect();
    format!("Of the sessions offered again {} proxies accept {}.", last.proxies, each.join(", "))
}

fn micros(ns: f64) -> String {
    format!("{} µs", format_micros(ns))
}

/// The table; `None` where ways of spreading clients are not compared.
pub fn section(summary: &ArraySummary) -> Option<Section> {
    let fields: [Field<KeySharing>; 10] = [
        (Column::words(""), |row| format!("{} proxies, {}, {} %", row.proxies, row.spread, row.asked_percent)),
        (Column::number("accepted"), |row| format_percent(row.accepted_percent.value)),
        (Column::interval(), |row| interval(row.accepted_percent, format_tenths)),
        (Column::number("proxies"), |row| format_micros(row.proxy_cpu_ns_per_hit.value)),
        (Column::interval().on(Place::Page), |row| interval(row.proxy_cpu_ns_per_hit, format_micros)),
        (Column::number("dispatcher"), |row| format_micros(row.dispatcher_cpu_ns_per_hit.value)),
        (Column::interval().on(Place::Page), |row| interval(row.dispatcher_cpu_ns_per_hit, format_micros)),
        (Column::number("both"), |row| format_micros(row.cpu_ns_per_hit())),
        (Column::number("times"), |row| times(row)[0].clone()),
        (Column::interval(), |row| times(row)[1].clone()),
    ];
    let table = Table::of(fields, &summary.ticket_keys);
    let first = summary.experiment.array.spread.first().copied().unwrap_or_default();
    let note = format!(
        "accepted: of the sessions offered again. proxies, dispatcher, both: µs of CPU time for a page with its part \
         of handshakes. times: both by those of {first} in the same rounds."
    );
    let section = || Section::titled("ticket-keys", "Ticket keys").with(Content::Table(table)).notes([note]);
    (!summary.ticket_keys.is_empty()).then(section)
}

fn interval(found: Estimate, format: fn(f64) -> String) -> String {
    format_interval_with(found.low, found.high, format)
}

fn times(row: &KeySharing) -> [String; 2] {
    row.cpu_times.as_ref().map(ratio_columns).unwrap_or_default()
}
