//! An array of proxies as a document: half serving points and sizes in sentences, a line for each number of proxies,
//! the checks that its numbers must pass, and the paper's beside them.

mod chart;
mod checks;
mod keys;

use tlsdyno_base::units::{
    NONE, UNDECIDED, format_duration, format_micros, format_percent, format_quantity, format_tenths,
};
use tlsdyno_record::store::{Configuration, Record};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::circumstances::{self, server_text};
use tlsdyno_runner::report::document::{Document, Medium, Method, Section, Tone};
use tlsdyno_runner::report::text::signed_duration;
use tlsdyno_runner::report::{cells, published};
use tlsdyno_stats::Estimate;
use tlsdyno_stats::reuse::{Crossing, HalfServingPoint, ReuseAxis};
use tlsdyno_stats::summary::configuration_warnings;

use crate::array::file::PageCost;
use crate::array::summary::{ArrayLevel, ArrayLine, ArrayModel, ArraySummary, Bound};

pub fn document(record: &Record, summary: &ArraySummary) -> Document {
    let own = |(index, of): (usize, &Configuration)| {
        (of.name.clone(), configuration_warnings(record, index).iter().map(ToString::to_string).collect())
    };
    let parts: Vec<(String, Vec<String>)> = record.configurations.iter().enumerate().map(own).collect();
    let mut warnings = circumstances::texts(&summary.warnings, parts.iter().map(|(name, texts)| (name, texts)));
    warnings.extend(unsaturated(summary));
    let mut sections = vec![setting(record, summary)];
    let chart = has_curves(summary).then(|| chart::throughput(summary)).flatten();
    sections.push(Section::default().on(Medium::Page).charts(chart));
    sections.extend(has_curves(summary).then(|| lines(summary)));
    sections.extend(keys::section(summary));
    sections.extend([levels(summary), checks::section(summary)]);
    sections.push(circumstances::warnings(warnings));
    sections.extend(summary.experiment.paper.as_ref().map(|paper| published::section(paper, &summary.claims)));
    circumstances::document(record, summary.rounds, answer(summary), sections, Method::Load)
}

fn unsaturated(summary: &ArraySummary) -> Option<String> {
    let of_line = |line: &ArrayLine| {
        let name = line.name.clone();
        let idle = line.levels.iter().filter(|level| level.bound_by == Bound::Nobody);
        idle.map(move |level| format!("{name} at {} %", level.asked_percent)).collect::<Vec<_>>()
    };
    let idle: Vec<String> = summary.lines.iter().flat_map(of_line).collect();
    (!idle.is_empty()).then(|| {
        format!(
            "neither the machines that end TLS nor the transaction server nor the load were busy all the time: {}. \
             {}.",
            idle.join(", "),
            match summary.experiment.array.accelerator {
                Some(_) => "The engines of the accelerators may have been, or there are too few --clients",
                None => "Raise --clients: more of them may get more pages",
            }
        )
    })
}

fn setting(record: &Record, summary: &ArraySummary) -> Section {
    let manifest = &record.manifest;
    let place = manifest.hardware.get("array").map_or("", String::as_str);
    let said = format!(
        "{}, {}, TLS {}: {place}. {} clients, each with one connection.",
        server_text(manifest),
        manifest.certificate,
        manifest.negotiated,
        summary.experiment.array.clients_count
    );
    Section::default().text(said).text(scale(summary))
}

/// By how much everything is faster than with the pages that were asked for.
fn scale(summary: &ArraySummary) -> String {
    let array = &summary.experiment.array;
    let page_ns = summary.scale.transaction_ns as f64;
    let kind = match array.transaction_cost {
        PageCost::Wait => "",
        PageCost::Cpu => " of CPU time",
    };
    if summary.scale.full_handshake_cpu_ns == 0 {
        return format!("Scale: none; a page takes {}{kind}, as asked for.", format_duration(page_ns));
    }
    let cpu_ns = summary.scale.full_handshake_cpu_ns as f64;
    format!(
        "Scale: a connection with a full handshake costs {} of CPU time, at {} CPUs {}; pages take {}{kind} in place \
         of {}, so that a handshake is {} of them: everything is {} times as fast.",
        format_duration(cpu_ns),
        array.machine_cpus,
        format_duration(cpu_ns / array.machine_cpus),
        format_duration(page_ns),
        format_duration(array.transaction_us * 1e3),
        format_quantity(array.handshake_pages_ratio),
        format_quantity(array.transaction_us * 1e3 / page_ns)
    )
}

pub fn answer(summary: &ArraySummary) -> String {
    let Some(plain) = &summary.plain else {
        return "Plain HTTP was not measured, so that half of it is not known.".to_owned();
    };
    let bound = if plain.client_bound { "at least " } else { "" };
    let hits = match plain.hits_per_second.has_interval() {
        true => format!("{bound}{} pages/s", format_quantity(plain.hits_per_second.value)),
        false => format!("{UNDECIDED} pages/s"),
    };
    let points = summary.lines.iter().filter_map(|line| Some((line, line.half_serving_point.as_ref()?)));
    let points: Vec<String> = points.map(|(line, half)| reached(line, half)).collect();
    if let Some(kept) = keys::sentence(summary).filter(|_| !has_curves(summary)) {
        return kept;
    }
    if points.is_empty() {
        return format!("Plain HTTP: {hits}; nothing was measured of TLS.");
    }
    let kept = keys::sentence(summary).unwrap_or_default();
    format!(
        "Half of the {hits} of plain HTTP, by {}: {}. {kept}",
        match summary.experiment.array.by {
            ReuseAxis::Hits => "percent reuse",
            ReuseAxis::Connections => "percent reuse of connections",
        },
        points.join("; ")
    )
    .trim_end()
    .to_owned()
}

fn has_curves(summary: &ArraySummary) -> bool {
    summary.experiment.array.levels_percent.len() > 1
}

/// How much reuse a line needs for half of plain HTTP, and for all of it.
fn reached(line: &ArrayLine, half: &HalfServingPoint) -> String {
    let who_does = match line.proxies {
        0 => "the server alone reaches it".to_owned(),
        1 => format!("{} suffices", line.name),
        _ => format!("{} suffice", line.name),
    };
    let from = match (half.crossing, half.percent_by_time) {
        (Crossing::Between, Some(found)) => format!("from {} on", percent(found)),
        (Crossing::AtFirst, _) => at_first(half.hits_per_second, line),
        _ => return format!("{} {}", line.name, nowhere(half, line)),
    };
    let all = line.all_from_percent.map(|all| format!(", for all of it from {}", percent(all)));
    format!("{who_does} {from}{}", all.unwrap_or_default())
}

/// Why no level reaches half.
fn nowhere(half: &HalfServingPoint, line: &ArrayLine) -> String {
    let last = line.levels.last().map_or(0.0, |level| level.achieved_percent);
    match half.crossing {
        Crossing::NoLimit => "nowhere, for plain HTTP was slower than TLS and so not its limit".to_owned(),
        _ => {
            let by_model = half.percent_by_costs.filter(|found| found.value <= 100.0);
            let beyond = by_model.map_or(String::new(), |found| format!(" (by the model at {})", percent(found)));
            format!("nowhere up to {}{beyond}", format_percent(last))
        }
    }
}

/// Where the lowest level reaches half already: below it nothing is known, but at no reuse.
pub(super) fn at_first(half_per_second: f64, line: &ArrayLine) -> String {
    match line.levels.first().filter(|first| first.hits_per_second.low >= half_per_second) {
        Some(first) if first.asked_percent == 0.0 => "at any reuse".to_owned(),
        Some(first) => format!("at {} already, the lowest level", format_percent(first.achieved_percent)),
        None => format!("at an {UNDECIDED} reuse"),
    }
}

fn percent(found: Estimate) -> String {
    match found.has_interval() {
        true => found.in_unit(" %", format_tenths),
        false => format!("an {UNDECIDED} reuse"),
    }
}

fn value(found: Option<Estimate>) -> String {
    found.map_or(NONE.to_owned(), |found| match found.has_interval() {
        true => format_percent(found.value),
        false => UNDECIDED.to_owned(),
    })
}

fn lines(summary: &ArraySummary) -> Section {
    let by_time = |line: &ArrayLine| line.half_serving_point.as_ref()?.percent_by_time;
    let by_costs = |line: &ArrayLine| line.half_serving_point.as_ref()?.percent_by_costs;
    let by_lines = |line: &ArrayLine| line.half_serving_point.as_ref()?.percent_by_lines;
    let full = |line: &ArrayLine| line.half_serving_point.as_ref()?.full_per_second;
    let rows = Rows::new(&summary.lines)
        .words("", |line| line.name.clone())
        .number("half at", |line| value(by_time(line)))
        .interval(format_tenths, |line| by_time(line).filter(Estimate::has_interval))
        .number("by model", |line| value(by_costs(line)))
        .interval(format_tenths, |line| by_costs(line).filter(Estimate::has_interval))
        .number("by lines", |line| value(by_lines(line)))
        .number("full/s there", |line| full(line).map_or(NONE.to_owned(), format_quantity))
        .number("all from", |line| value(line.all_from_percent));
    let mut notes = vec![
        "half at: percent reuse with half of the pages/s of plain HTTP, the time for a page changing evenly between \
         two levels. by lines: read off straight lines between the levels, as off a figure. all from: reuse from which \
         the model serves what plain HTTP does."
            .to_owned(),
    ];
    notes.extend(summary.plain.iter().map(|plain| {
        format!(
            "Plain HTTP: {} pages/s; the transaction server's own cost makes {}.",
            plain.hits_per_second.with_interval(format_quantity),
            format_quantity(summary.pages_per_second())
        )
    }));
    notes.extend(summary.models.iter().map(|model| model_note(model, summary)));
    notes.extend(summary.lines.iter().filter_map(theory_note));
    Section::titled("half-serving-points", "Half serving points").rows(rows).notes(notes)
}

fn model_note(model: &ArrayModel, summary: &ArraySummary) -> String {
    let (of, form) = match model.is_of_server {
        true => ("the server without proxies".to_owned(), "min(P, 1 / ((1 − r) H + e))"),
        false if summary.experiment.array.spread.len() > 1 => {
            (format!("proxies, {}", model.spread), "min(P, N / ((1 − r) H + e))")
        }
        false => ("proxies".to_owned(), "min(P, N / ((1 − r) H + e))"),
    };
    format!(
        "Model of {of}, {form}: H = {} for a full handshake, e = {} for a page; points differ from it by {} on \
         average, by {} at most.",
        model.costs.full_handshake_ns.with_interval(signed_duration),
        model.costs.hit_ns.with_interval(signed_duration),
        format_percent(model.costs.deviation_percent),
        format_percent(model.costs.residual_percent)
    )
}

/// The form of Mraz et al. 2002, section 3, which is of a server without proxies.
fn theory_note(line: &ArrayLine) -> Option<String> {
    let theory = line.theory.as_ref()?;
    let handshake = theory.requests_per_handshake;
    Some(format!(
        "{} by theory (Mraz et al. 2002, section 3), P / (1 + (1 − r) h): h = {} pages, half at 1 − 1/h = {}.",
        line.name,
        handshake.with_interval(format_quantity),
        theory.half_percent.in_unit(" %", format_tenths)
    ))
}

fn levels(summary: &ArraySummary) -> Section {
    let all = summary.lines.iter().flat_map(|line| line.levels.iter().map(|level| (line.name.as_str(), level)));
    let all: Vec<(&str, &ArrayLevel)> = all.collect();
    let rows = Rows::new(&all)
        .words("", |(line, level)| format!("{line}, {} %", level.asked_percent))
        .number("reuse", |(_, level)| format!("{:.2} %", level.achieved_percent))
        .number("pages/s", |(_, level)| {
            cells::bounded(level.bound_by == Bound::Client, format_quantity(level.hits_per_second.value))
        })
        .interval(format_quantity, |(_, level)| Some(level.hits_per_second))
        .number("by model", |(_, level)| level.by_costs_hits_per_second.map_or(NONE.to_owned(), format_quantity))
        .number("full/s", |(_, level)| format_quantity(level.full_per_second))
        .number("accepted", |(_, level)| {
            level.accepted_percent_of_offered.map_or(NONE.to_owned(), |of| format_percent(of.value))
        })
        .number("CPU of quota", |(_, level)| format_percent(level.busy_percent))
        .on(Medium::Page, |rows| {
            rows.number("fullest", |(_, level)| format_percent(level.fullest_percent))
                .number("µs/page", |(_, level)| format_micros(level.cpu_ns_per_hit.value))
                .number("dispatcher", |(_, level)| format_micros(level.dispatcher_cpu_ns_per_hit.value))
                .number("server", |(_, level)| format_micros(level.server_cpu_ns_per_hit))
        })
        .toned(Tone::Muted, |(_, level)| level.bound_by == Bound::Nobody);
    Section::titled("points", "Every point").rows(rows).notes([
        "reuse: by the counts of full handshakes. accepted: of the sessions offered again. CPU of quota: of the \
         machines that end TLS. µs/page: their CPU time for a page; dispatcher, server: of these besides."
            .to_owned(),
    ])
}
