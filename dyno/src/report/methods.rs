//! How costs of stages were found out: what each method says, side by side, and what it means where they differ.

use tlsdyno_tls::Stage;

use super::document::{Column, Content, Field, Section, Table, Tone};
use super::text::{capitalised, stage_label};
use crate::model::Method;
use crate::stats::Summary;
use crate::stats::methods::{Agreement, ByMethods, Cost};
use crate::store::{Kind, Record};
use crate::units::{format_interval_with, format_micros};

/// The table of all methods, where there are several.
pub fn section(summary: &Summary) -> Option<Section> {
    if summary.by_methods.is_empty() {
        return None;
    }
    let fields: [Field<ByMethods>; _] = [
        (Column::words("cost of"), |row| stage_label(&row.stage)),
        (Column::number("removing µs/hit"), |row| micros(row.removing)),
        (Column::interval(), |row| interval(row.removing)),
        (Column::number("doubling µs/hit"), |row| micros(row.doubling)),
        (Column::interval(), |row| interval(row.doubling)),
        (Column::words("agree?"), |row| agreement(row).to_owned()),
    ];
    let mut table = Table::of(fields, &summary.by_methods);
    for (row, of) in table.rows.iter_mut().zip(&summary.by_methods) {
        let tone = match of.agreement {
            Some(Agreement::Differ) => Tone::Strong,
            Some(Agreement::Agree) => Tone::Plain,
            Some(Agreement::Undecided) | None => Tone::Muted,
        };
        row.iter_mut().rev().take(1).for_each(|cell| cell.tone = tone);
    }
    let meaning = "Server CPU time per hit by each method. Removing: what a hit costs less without the stage. \
                   Doubling: what it costs more with the stage computed twice. They agree within 10 % or 5 µs.";
    let section = Section::titled("methods", "The methods side by side").with(Content::Table(table));
    Some(section.notes([meaning.to_owned()].into_iter().chain(differences(summary))))
}

fn micros(cost: Option<Cost>) -> String {
    cost.map_or_else(|| "–".to_owned(), |cost| format_micros(cost.cpu_ns_per_hit))
}

fn interval(cost: Option<Cost>) -> String {
    cost.map_or_else(String::new, |cost| format_interval_with(cost.low_ns, cost.high_ns, format_micros))
}

fn agreement(row: &ByMethods) -> &'static str {
    match row.agreement {
        Some(Agreement::Agree) => "yes",
        Some(Agreement::Differ) => "no",
        Some(Agreement::Undecided) => "undecided",
        None => "–",
    }
}

/// What it means where removing and doubling differ, one sentence for each direction.
fn differences(summary: &Summary) -> Vec<String> {
    let differing = |more: bool| -> Vec<String> {
        let is_more =
            |row: &&ByMethods| row.difference.is_some_and(|difference| (difference.cpu_ns_per_hit > 0.0) == more);
        let rows = summary.by_methods.iter().filter(|row| row.agreement == Some(Agreement::Differ)).filter(is_more);
        rows.map(|row| stage_label(&row.stage)).collect()
    };
    let told = |stages: Vec<String>, what: &str| (!stages.is_empty()).then(|| capitalised(&stages.join(", ")) + what);
    let dearer = " cost more by removing than by doubling: the second computation finds its code and tables in the \
                  caches, or what stands around the stage goes with it. Removing tells what taking it away gives.";
    let cheaper = " cost more by doubling than by removing: without the stage others get dearer, or its no-op costs \
                   something. Doubling tells what the computation itself takes.";
    [told(differing(false), dearer), told(differing(true), cheaper)].into_iter().flatten().collect()
}

/// What doubling measures, and of what it says nothing; `None`: nothing was doubled.
pub fn doubling_note(record: &Record, summary: &Summary) -> Option<String> {
    let doubled = summary.configurations.iter().filter_map(|of| match of.kind {
        Kind::Doubled(stages) => Some(stages),
        _ => None,
    });
    let doubled: Vec<_> = doubled.collect();
    if doubled.is_empty() {
        return None;
    }
    let is_together = doubled.iter().any(|stages| stages.only().is_none());
    let together = "Cipher and MAC are one computation here, which only doubles as a whole (record protection).";
    let shim: Vec<String> = Stage::SHIM.iter().map(|stage| stage_label(stage.name())).collect();
    let secure = record.experiment.as_ref().is_some_and(|experiment| experiment.methods == [Method::Doubling]);
    Some(
        [
            "Doubling measures CPU time, not latency: what a hit costs more when the stage is computed twice and one \
             result is kept.",
            if secure { "TLS was as secure as ever, and the client an ordinary one." } else { "" },
            if is_together { together } else { "" },
            &format!("Not doubled, as they are no computations: {}.", shim.join(", ")),
        ]
        .into_iter()
        .filter(|sentence| !sentence.is_empty())
        .collect::<Vec<_>>()
        .join(" "),
    )
}
