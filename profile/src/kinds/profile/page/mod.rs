//! A profile as a document: what a hit costs by stage, timed and removed, for full and resumed handshakes.

mod charts;
mod sampled;

use crate::kinds::profile::ProfileRecord;
use crate::kinds::profile::file::Handshakes;
use crate::kinds::profile::summary::{ClassSummary, KindSummary, ProfileSummary, StageSummary};
use crate::report::circumstances::{self, server_text};
use crate::report::document::{Cell, Column, Content, Document, Field, Method, Place, Section, Table, Tone, row};
use crate::report::text::{capitalised, stage_label};
use crate::stats::Estimate;
use crate::store::Record;
use crate::units::{
    NONE, format_count, format_interval_with, format_micros, format_percent, format_quantity, format_tenths,
};

/// The document of a record.
pub fn document(record: &Record, summary: &ProfileSummary) -> Document {
    let none: Vec<(String, Vec<String>)> = Vec::new();
    let warnings = circumstances::texts(&summary.warnings, none.iter().map(|(name, texts)| (name, texts)));
    let mut sections = vec![setting(record)];
    sections.push(Section::default().on(Place::Page).charts(charts::all(summary)));
    sections.extend(summary.handshakes.iter().map(stages));
    sections.push(meaning(summary));
    sections.extend(summary.handshakes.iter().flat_map(sampled::sections));
    sections.extend(summary.handshakes.iter().map(classes));
    sections.push(circumstances::warnings(warnings));
    circumstances::document(record, summary.rounds, answer(summary), sections, Method::Profile)
}

/// Server and protocol in a sentence.
fn setting(record: &Record) -> Section {
    let manifest = &record.manifest;
    let tls = record.measured.of::<ProfileRecord>().map_or(String::new(), |profile| {
        let tls = &profile.experiment.tls;
        format!("TLS {}, certificate {}, group {}", tls.version, tls.certificate(), tls.group)
    });
    Section::default().text(format!("{}, {tls}.", server_text(manifest)))
}

/// The names of a row of stages.
pub(super) fn stage_name(summary: &StageSummary) -> String {
    let names: Vec<String> = summary.stages.iter().map(|stage| stage_label(stage.name())).collect();
    capitalised(&names.join(" and "))
}

pub(super) fn interval(of: Estimate) -> String {
    format_interval_with(of.low, of.high, format_micros)
}

pub(super) fn percent_of(ns: f64, whole: f64) -> String {
    format_percent(ns / whole.max(1.0) * 100.0)
}

fn title(kind: &KindSummary) -> String {
    match kind.kind {
        Handshakes::Full => "Full handshakes".to_owned(),
        Handshakes::Resumed => "Resumed handshakes".to_owned(),
    }
}

/// The table of stages of one kind of handshake.
fn stages(kind: &KindSummary) -> Section {
    let has_removed = kind.stages.iter().any(|stage| stage.removed_ns.is_some());
    let has_sampled = kind.sampled.is_some();
    let has_doubled = kind.stages.iter().any(|stage| stage.doubled_ns.is_some());
    let has_counted = kind.stages.iter().any(|stage| stage.instructions_count.is_some());
    let mut columns =
        vec![Column::words(""), Column::number("of a hit"), Column::number("timed µs"), Column::interval()];
    if has_removed {
        columns.extend([
            Column::number("removed µs"),
            Column::interval(),
            Column::number("difference"),
            Column::interval(),
        ]);
    }
    if has_doubled {
        columns.extend([Column::number("doubled µs"), Column::interval()]);
    }
    if has_sampled {
        columns.extend([Column::number("sampled µs"), Column::interval()]);
    }
    if has_counted {
        columns.push(Column::number("instructions"));
    }
    let width = columns.len();
    let whole = kind.cpu_ns.value;
    let line = |name: String, of: Estimate, rest: Vec<String>| {
        let is_known = kind.contradictions.is_empty() || of == kind.cpu_ns;
        let part = if is_known { percent_of(of.value, whole) } else { NONE.to_owned() };
        let mut texts = vec![name, part, format_micros(of.value), interval(of)];
        texts.extend(rest);
        texts.resize(width, String::new());
        row(texts, false)
    };
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for stage in kind.stages.iter().filter(|stage| occurs(stage)) {
        let told = [
            (has_removed, stage.removed_ns),
            (has_removed, stage.difference_ns),
            (has_doubled, stage.doubled_ns),
            (has_sampled, stage.sampled_ns),
        ];
        let beside = told.into_iter().filter(|(is_told, _)| *is_told).flat_map(|(_, of)| match of {
            Some(of) => [format_micros(of.value), interval(of)],
            None => [NONE.to_owned(), String::new()],
        });
        let counted = stage.instructions_count.map(|count| format_count(count as u64));
        rows.push(line(stage_name(stage), stage.timed_ns, beside.chain(counted).collect()));
    }
    rows.extend(kind.beside_stages().into_iter().map(|(name, of)| line(capitalised(name), of, Vec::new())));
    let all = line("A hit in all".to_owned(), kind.cpu_ns, Vec::new());
    rows.push(all.into_iter().map(|cell| cell.toned(Tone::Strong)).collect());
    Section::titled("", title(kind)).table(columns, rows).notes(costs(kind))
}

/// Whether anything was seen of a stage.
fn occurs(stage: &StageSummary) -> bool {
    stage.timed_ns.value > 0.0 || stage.removed_ns.is_some()
}

/// What profiling itself costs.
fn costs(kind: &KindSummary) -> Vec<String> {
    let whole = kind.cpu_ns.value;
    let told = |of: Estimate| {
        format!("{} µs {} a hit ({})", format_micros(of.value), interval(of), percent_of(of.value, whole))
    };
    let timing = format!(
        "Timing costs {}: {} of {} calls into OpenSSL's provider are timed in each. It is in no number above but \
         the times themselves, from which the readings of the clock are taken off.",
        told(kind.timing_ns),
        format_tenths(kind.timed_per_hit),
        format_tenths(kind.calls_per_hit)
    );
    let library = kind.library_ns.map(|of| format!("The library that times nothing costs {}.", told(of)));
    let hits = kind
        .hits_per_second
        .map(|hits| format!("At saturation: {} hits/s. {} sweeps of slices.", format_quantity(hits), kind.sweeps));
    let sampling = kind.sampled.as_ref().map(|of| {
        format!("Sampling costs {}, in slices of its own: {} samples.", told(of.sampling_ns), format_count(of.samples))
    });
    [timing].into_iter().chain(library).chain(sampling).chain(hits).collect()
}

fn meaning(summary: &ProfileSummary) -> Section {
    let untouched = summary.handshakes.iter().all(|kind| kind.is_untouched);
    let whole = if untouched { "of the untouched server" } else { "of the profiled server while nothing is timed" };
    Section::default().notes([format!(
        "A hit is one connection with its handshake and one request; its cost is server CPU {whole}. timed: time in \
         the calls of a stage, by the {} ({} a reading). removed: what a hit is cheaper by without the stage. \
         difference: removed less timed. doubled: what a hit is dearer by with the stage computed twice. sampled: the \
         part of all samples in its calls. 95 %: confidence interval.",
        summary.clock,
        crate::units::format_duration(summary.clock_reading_ns)
    )])
}

/// The classes of functions of one kind of handshake.
fn classes(kind: &KindSummary) -> Section {
    let fields: [Field<ClassSummary>; _] = [
        (Column::words("function"), |class| class.name.replace('_', " ")),
        (Column::words("stage"), |class| stage_label(class.stage.name())),
        (Column::number("calls"), |class| format_tenths(class.calls_per_hit)),
        (Column::number("µs each"), |class| format!("{:.2}", class.ns_per_call / 1e3)),
        (Column::number("µs a hit"), |class| format!("{:.2}", class.ns_per_hit / 1e3)),
        (Column::number("bytes a hit"), |class| format_quantity(class.bytes_per_hit)),
    ];
    let table = Table::of(fields, kind.classes.iter());
    Section::titled("", format!("Calls of {} handshakes", kind.kind.name())).with(Content::Table(table)).notes([
        "Of calls shorter than 0.3 µs (digests, and what is done around the work) one in 16 is timed.".to_owned(),
    ])
}

/// The answer in a sentence or two.
pub fn answer(summary: &ProfileSummary) -> String {
    let told = |kind: &KindSummary| {
        let dearest = kind.stages.iter().max_by(|a, b| a.timed_ns.value.total_cmp(&b.timed_ns.value))?;
        let whole = kind.cpu_ns.value;
        if let Some(why) = kind.contradictions.first() {
            return Some(format!(
                "A hit with a {} handshake costs {} µs {}. What its stages cost cannot be told by the times of their \
                 calls: {why}.",
                kind.kind.name(),
                format_micros(whole),
                interval(kind.cpu_ns),
            ));
        }
        let beside = kind.beside_stages().into_iter();
        let beside = beside.map(|(name, of)| format!("{} in {name}", percent_of(of.value, whole)));
        let beside = beside.collect::<Vec<_>>().join(", ");
        Some(format!(
            "A hit with a {} handshake costs {} µs {}: {} in the stages, most of it {} ({}), and {beside}.",
            kind.kind.name(),
            format_micros(whole),
            interval(kind.cpu_ns),
            percent_of(kind.stages_ns(), whole),
            stage_name(dearest).to_lowercase(),
            percent_of(dearest.timed_ns.value, whole),
        ))
    };
    let told: Vec<String> = summary.handshakes.iter().filter_map(told).collect();
    if told.is_empty() { "No slice was usable, so that nothing can be said.".to_owned() } else { told.join(" ") }
}
