//! A profile as a document: what a hit costs by stage, timed and removed, for full and resumed handshakes.

mod caches;
mod charts;
mod sampled;

use tlsdyno_base::units::{NONE, format_count, format_micros, format_percent, format_quantity, format_tenths};
use tlsdyno_record::store::Record;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::circumstances::{self, server_text};
use tlsdyno_runner::report::document::{Document, Medium, Method, Section, Tone};
use tlsdyno_runner::report::text::{capitalised, stage_label};
use tlsdyno_stats::Estimate;

use crate::profile::ProfileRecord;
use crate::profile::file::Handshakes;
use crate::profile::summary::{KindSummary, ProfileSummary, StageSummary};

/// Reason why no number has an interval.
const TOO_SHORT: &str = "too few rounds were measured, so give more --time";

pub fn document(record: &Record, summary: &ProfileSummary) -> Document {
    let mut sections = vec![setting(record)];
    sections.push(Section::default().on(Medium::Page).charts(charts::all(summary)));
    sections.extend(summary.handshakes.iter().map(stages));
    sections.push(meaning(summary));
    sections.extend(summary.handshakes.iter().flat_map(sampled::sections));
    sections.extend(caches::sections(summary));
    sections.extend(summary.handshakes.iter().map(classes));
    sections.push(circumstances::warnings_of(&summary.warnings));
    circumstances::document(record, summary.rounds, answer(summary), sections, Method::Profile)
}

/// Server and protocol in a sentence.
fn setting(record: &Record) -> Section {
    let manifest = &record.manifest;
    let tls = record.kind_part.of::<ProfileRecord>().map_or(String::new(), |profile| {
        let tls = &profile.experiment.tls;
        format!("TLS {}, certificate {}, group {}", tls.version, tls.certificate(), tls.group)
    });
    Section::default().text(format!("{}, {tls}.", server_text(manifest)))
}

pub(super) fn stage_name(summary: &StageSummary) -> String {
    let names: Vec<String> = summary.stages.iter().map(|stage| stage_label(stage.name())).collect();
    capitalised(&names.join(" and "))
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

fn stages(kind: &KindSummary) -> Section {
    let whole = kind.cpu_ns.value;
    // Parts of a hit mean nothing where the times of calls cannot be right.
    let part = |of: Estimate| match kind.contradictions.is_empty() {
        true => percent_of(of.value, whole),
        false => NONE.to_owned(),
    };
    let line = |name: String, of: Estimate| [name, part(of), format_micros(of.value), of.ends(format_micros)];
    let mut rows = Rows::new(kind.stages.iter().filter(|stage| occurs(stage)))
        .words("", stage_name)
        .number("of a hit", |stage| part(stage.timed_ns))
        .estimate("timed µs", format_micros, |stage| Some(stage.timed_ns))
        .estimate("removed µs", format_micros, |stage| stage.removed_ns)
        .estimate("difference", format_micros, |stage| stage.difference_ns)
        .estimate("doubled µs", format_micros, |stage| stage.doubled_ns)
        .estimate("sampled µs", format_micros, |stage| stage.sampled_ns)
        .number_if_any("instructions", |stage| stage.instructions_count.map(|count| format_count(count as u64)));
    for (name, of) in kind.beside_stages() {
        rows = rows.and(line(capitalised(name), of), Tone::Plain);
    }
    let [name, _, cpu, ends] = line("A hit in all".to_owned(), kind.cpu_ns);
    let rows = rows.and([name, percent_of(whole, whole), cpu, ends], Tone::Strong);
    Section::titled("", title(kind)).rows(rows).notes(costs(kind))
}

/// The stage had calls, or was removed.
fn occurs(stage: &StageSummary) -> bool {
    stage.timed_ns.value > 0.0 || stage.removed_ns.is_some()
}

fn costs(kind: &KindSummary) -> Vec<String> {
    let whole = kind.cpu_ns.value;
    let told = |of: Estimate| format!("{} a hit ({})", of.in_unit(" µs", format_micros), percent_of(of.value, whole));
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
        tlsdyno_base::units::format_duration(summary.clock_reading_ns)
    )])
}

fn classes(kind: &KindSummary) -> Section {
    let rows = Rows::new(&kind.classes)
        .words("function", |class| class.name.replace('_', " "))
        .words("stage", |class| stage_label(class.stage.name()))
        .number("calls", |class| format_tenths(class.calls_per_hit))
        .number("µs each", |class| format!("{:.2}", class.ns_per_call / 1e3))
        .number("µs a hit", |class| format!("{:.2}", class.ns_per_hit / 1e3))
        .number("bytes a hit", |class| format_quantity(class.bytes_per_hit));
    Section::titled("", format!("Calls of {} handshakes", kind.kind.name())).rows(rows).notes([
        "Of calls shorter than 0.3 µs (digests, and what is done around the work) one in 16 is timed.".to_owned(),
    ])
}

/// The answer in a sentence or two.
pub fn answer(summary: &ProfileSummary) -> String {
    let told = |kind: &KindSummary| {
        let dearest = kind.stages.iter().max_by(|a, b| a.timed_ns.value.total_cmp(&b.timed_ns.value))?;
        let of = kind.kind.name();
        if !kind.cpu_ns.half_width().is_finite() {
            return Some(format!("What a hit with a {of} handshake costs is undecided: {TOO_SHORT}."));
        }
        let hit = format!("A hit with a {of} handshake costs {}", kind.cpu_ns.in_unit(" µs", format_micros));
        if let Some(why) = kind.contradictions.first() {
            return Some(format!("{hit}. What its stages cost cannot be told by the times of their calls: {why}."));
        }
        let part = |of: Estimate| part_of(of, kind.cpu_ns);
        let beside = kind.beside_stages().into_iter().map(|(name, of)| format!("{} in {name}", part(of)));
        Some(format!(
            "{hit}: {} in the stages, most of it {} ({}), and {}.",
            part(kind.stages_ns),
            stage_name(dearest).to_lowercase(),
            part(dearest.timed_ns),
            beside.collect::<Vec<_>>().join(", ")
        ))
    };
    let told: Vec<String> = summary.handshakes.iter().filter_map(told).collect();
    if told.is_empty() { "No slice was usable, so that nothing can be said.".to_owned() } else { told.join(" ") }
}

/// In per cent, with the widest interval that both allow; or that it is not known.
fn part_of(of: Estimate, whole: Estimate) -> String {
    let part = of.divided_by(whole).scaled(100.0);
    match part.half_width().is_finite() && part.low <= part.high && whole.low > 0.0 {
        true => format!("{} {}", format_percent(part.value), part.ends(format_tenths)),
        false => "an undecided part".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_tls::Stage;

    use super::*;
    use crate::profile::summary::contradictions::tests::{kind, stage};

    #[test]
    fn no_headline_has_a_number_without_an_interval() {
        let of = |kind: KindSummary| {
            let (handshakes, caches, warnings) = (vec![kind], Vec::new(), Vec::new());
            answer(&ProfileSummary { handshakes, clock: "", clock_reading_ns: 20.0, rounds: 6, caches, warnings })
        };
        let whole = || kind(vec![stage(Stage::Authentication, 200.0), stage(Stage::Kdf, 30.0)]);
        let said = of(whole());
        assert!(
            said.starts_with("A hit with a full handshake costs 400.0 µs [") && said.contains("57.5 % ["),
            "{said}"
        );
        assert!(said.contains("authentication (50.0 % [") && said.contains("42.5 % ["), "{said}");
        let mut few = whole();
        few.stages_ns = Estimate::without_interval(few.stages_ns.value);
        assert!(of(few.clone()).contains("an undecided part in the stages"), "{}", of(few));
        let none = KindSummary { cpu_ns: Estimate::without_interval(539_300.0), ..whole() };
        let said = of(none);
        assert!(said.contains("is undecided") && !said.contains("539"), "{said}");
    }
}
