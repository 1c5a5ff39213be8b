//! The sheet: what a connection of each step costs the server, and what the steps differ in.

use tlsdyno_base::units::{format_count, format_micros};
use tlsdyno_bench::report::circumstances;
use tlsdyno_bench::report::document::{Content, Document, Method, Place, Section};
use tlsdyno_record::store::Record;
use tlsdyno_report::rows::Rows;

use crate::summary::{CostSummary, FULL, LIFE, PartCost, RESUMED, StepCost};

/// The document of a record.
pub fn document(record: &Record, summary: &CostSummary) -> Document {
    let sections =
        vec![parts(summary), steps(summary), refused(summary), circumstances::warnings_of(&summary.warnings)];
    circumstances::document(record, summary.rounds, answer(summary), sections, Method::Cost)
}

/// What a full and a resumed handshake cost, in a sentence or two.
pub fn answer(summary: &CostSummary) -> String {
    let told = |part: &PartCost| format!("{} µs {}", format_micros(part.cpu_ns.value), part.cpu_ns.ends(format_micros));
    let Some(full) = summary.part(FULL) else { return "No handshake was measured.".to_owned() };
    let mut said = format!("A full TLS 1.3 handshake costs this server {} of CPU time", told(full));
    if let Some(resumed) = summary.part(RESUMED) {
        said.push_str(&format!(", a resumed one {}", told(resumed)));
    }
    said.push('.');
    if let Some(signature) = summary.part(LIFE[3]) {
        said.push_str(&format!(" Its certificate and signature are {} of that.", told(signature)));
    }
    if let Some(rate) = summary.rate_per_s {
        let cpus = full.cpu_ns.scaled(rate / 1e9);
        let format = |cpus: f64| format!("{cpus:.2}");
        said.push_str(&format!(
            " At {rate} new connections a second full handshakes take {} {} CPUs.",
            format(cpus.value),
            cpus.ends(format)
        ));
    }
    said
}

fn parts(summary: &CostSummary) -> Section {
    let mut rows =
        Rows::of(&summary.parts)
            .words("part", |part| part.part.to_owned())
            .estimate("CPU µs", format_micros, |part| Some(part.cpu_ns));
    if let Some(rate) = summary.rate_per_s {
        let cpus = |part: &PartCost| format!("{:.3}", part.cpu_ns.value * rate / 1e9);
        rows = rows.number(format!("CPUs at {rate}/s"), cpus);
    }
    let rows = rows.on(Place::Page).words("the difference of", |part| part.of.clone());
    let whole = format!(
        "The first {} lines are the life of a connection with one request, and add up to it. \"{}\" is one line, as it \
         cannot be taken apart from outside; it has the encryption of the server's messages in it.",
        LIFE.len(),
        LIFE[2]
    );
    Section::titled("parts", "What its parts cost").rows(rows).notes([whole])
}

fn steps(summary: &CostSummary) -> Section {
    let rows = Rows::of(&summary.steps)
        .words("connection", |of: &StepCost| of.step.clone())
        .estimate("CPU µs", format_micros, |of| Some(of.cpu_ns))
        .number("connections", |of| format_count(of.connections));
    Section::titled("steps", "What connections cost").rows(rows)
}

fn refused(summary: &CostSummary) -> Section {
    if summary.refused.is_empty() {
        return Section::default();
    }
    let facts = summary.refused.iter().map(|(step, why)| (step.clone(), why.clone())).collect();
    Section::titled("refused", "What this server does not take").with(Content::Facts(facts))
}
