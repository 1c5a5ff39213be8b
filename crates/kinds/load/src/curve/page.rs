//! Curves over percent reuse: the half serving point in a sentence, what stands behind it, and the picture.

use tlsdyno_base::units::{
    NONE, UNDECIDED, format_count, format_duration, format_percent, format_quantity, format_seconds, format_tenths,
};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::cells;
use tlsdyno_runner::report::document::{Chart, Section};
use tlsdyno_stats::reuse::{Costs, Crossing, HalfServingPoint, ReuseAxis, Theory};

use crate::curve::log::LogOnCurve;
use crate::curve::summary::{CurveSummary, Level};
use crate::over_reuse::OverReuse;

pub fn answer(curves: &[CurveSummary], log: Option<&LogOnCurve>) -> String {
    curves.iter().map(sentence).chain(log.and_then(log_sentence)).collect::<Vec<_>>().join(" ")
}

fn log_sentence(log: &LogOnCurve) -> Option<String> {
    let typical = log.typical()?;
    let at = format!(
        "The log {}, with sessions of {}, reuses {} by hits",
        log.path,
        format_seconds(typical.lifetime_s),
        format_percent(typical.percent)
    );
    let hits = typical.hits_per_second.map_or(String::new(), |hits| format!(": {} hits/s", format_quantity(hits)));
    let (Some(half), Some(points)) = (log.half_percent, typical.headroom_percent) else {
        return Some(format!("{at}{hits}."));
    };
    let word = if points < 0.0 { "below" } else { "above" };
    let beyond = if log.is_extrapolated { "extrapolated " } else { "" };
    let half = format_percent(half);
    let points = format_tenths(points.abs());
    Some(format!("{at}, {points} points {word} the {beyond}half serving point of {half}{hits}."))
}

fn sentence(curve: &CurveSummary) -> String {
    let (Some(first), Some(last)) = (curve.levels.first(), curve.levels.last()) else {
        return format!("Nothing was measured of reuse by {}.", curve.by);
    };
    let Some(half) = &curve.half_serving_point else {
        let (low, high) = (&first.hits_per_second, &last.hits_per_second);
        return format!(
            "At {} reuse by {} {} hits/s, at {} {}: {} times.",
            format_percent(first.achieved_percent),
            curve.by,
            low.with_interval(format_quantity),
            format_percent(last.achieved_percent),
            high.with_interval(format_quantity),
            high.divided_by(*low).with_interval(format_quantity),
        );
    };
    let of = format!("half of {} hits/s in plain HTTP", format_quantity(2.0 * half.hits_per_second));
    let bound = if half.is_lower_bound { "at least " } else { "" };
    match half.crossing {
        Crossing::NoLimit => format!(
            "By {} no half serving point: plain HTTP was slower than TLS, so that something else than the server was \
             its limit.",
            curve.by
        ),
        Crossing::Between => {
            format!("The half serving point by {} is {bound}{}, where {of} are reached.", curve.by, point_told(half),)
        }
        Crossing::AtFirst if half.is_lower_bound => format!(
            "By {} the {} hits/s of plain HTTP that the client could ask for are half reached at {} reuse already; \
             where those of the server are is not known.",
            curve.by,
            format_quantity(2.0 * half.hits_per_second),
            format_percent(first.achieved_percent)
        ),
        Crossing::AtFirst => format!(
            "The half serving point by {} is not above {} reuse, the lowest level: {of} are reached there already.",
            curve.by,
            format_percent(first.achieved_percent)
        ),
        Crossing::Never => format!(
            "No half serving point by {} up to {} reuse: {of} are not reached; {}.",
            curve.by,
            format_percent(last.achieved_percent),
            extrapolation(half),
        ),
    }
}

/// A half serving point with its interval, an end of which may lie beyond the levels.
fn point_told(half: &HalfServingPoint) -> String {
    let Some(found) = half.percent_by_lines else { return UNDECIDED.to_owned() };
    let ends = match (found.low.is_finite(), found.high.is_finite()) {
        (true, true) => found.ends(format_tenths),
        (true, false) => format!("[{}, above all levels]", format_tenths(found.low)),
        (false, true) => format!("[below all levels, {}]", format_tenths(found.high)),
        (false, false) => return UNDECIDED.to_owned(),
    };
    format!("{} reuse {ends}", format_percent(found.value))
}

fn extrapolation(half: &HalfServingPoint) -> String {
    match half.percent_by_costs {
        Some(fit) => format!("by the fitted costs it would be at {} (extrapolated)", fit.in_unit(" %", format_tenths)),
        None => "by the fitted costs no reuse reaches them".to_owned(),
    }
}

/// A section for each curve.
pub fn sections(curves: &[CurveSummary], log: Option<&LogOnCurve>, connections: &[u32]) -> Vec<Section> {
    let section = |curve: &CurveSummary| {
        let section = Section::titled("", format!("Reuse by {}", curve.by)).rows(table(curve));
        section.notes(notes(curve, connections)).charts(chart(curve, log.filter(|_| curve.by == ReuseAxis::Hits)))
    };
    curves.iter().map(section).chain(log.map(log_section)).collect()
}

/// Reuse of a log by session lifetime, with the throughput on the curve.
fn log_section(log: &LogOnCurve) -> Section {
    let rows = Rows::new(&log.lifetimes)
        .words("session lifetime", |lifetime| format_seconds(lifetime.lifetime_s))
        .number("reuse by hits", |lifetime| format_percent(lifetime.percent))
        .number("hits/s by costs", |lifetime| lifetime.hits_per_second.map_or(NONE.to_owned(), format_quantity))
        .number("points above half", |lifetime| lifetime.headroom_percent.map_or(NONE.to_owned(), format_tenths));
    let counted = if log.is_renewed {
        "A lifetime counts from the user's last request, because each connection of TLS 1.3 renews the session."
    } else {
        "A lifetime counts from the full handshake, as for IDs and tickets of TLS 1.2."
    };
    Section::titled("", format!("{}: {} requests on this curve", log.path, format_count(log.hits)))
        .rows(rows)
        .notes([format!("{counted} Users are client addresses; `tlsdyno trace show` tells more.")])
}

fn table(curve: &CurveSummary) -> Rows<'_, Level> {
    Rows::new(&curve.levels)
        .words("asked", |level| format_percent(level.asked_percent))
        .number("achieved", |level| format!("{:.2} %", level.achieved_percent))
        .number("hits/s", |level| cells::bounded(level.client_bound, format_quantity(level.hits_per_second.value)))
        .interval(format_quantity, |level| Some(level.hits_per_second))
        .number("by costs", |level| level.by_costs_hits_per_second.map_or(NONE.to_owned(), format_quantity))
        .number("by theory", |level| level.by_theory_hits_per_second.map_or(NONE.to_owned(), format_quantity))
}

fn notes(curve: &CurveSummary, connections: &[u32]) -> Vec<String> {
    let mut notes =
        vec![match curve.by {
        ReuseAxis::Hits => {
            "Reuse by hits: 1 − full handshakes / requests (Mraz et al. 2002, equation 1), on kept connections; \
             achieved by the counts of handshakes and requests."
        }
        ReuseAxis::Connections => "Reuse by connections: resumed handshakes / all handshakes.",
    }
    .to_owned()];
    if let Some(plain) = &curve.plain {
        let why = if plain.client_bound {
            "; the client's CPU was full, so that this and the half serving point are lower bounds"
        } else {
            ""
        };
        let value = cells::bounded(plain.client_bound, format_quantity(plain.hits_per_second.value));
        let ends = plain.hits_per_second.ends(format_quantity);
        notes.push(format!("Plain HTTP: {value} hits/s {ends}{why}."));
    }
    notes.extend(curve.costs.as_ref().map(|costs| costs_note(costs, curve.half_serving_point.as_ref())));
    notes.extend(curve.theory.as_ref().map(theory_note));
    if let (Some(least), Some(most)) = (connections.iter().min(), connections.iter().max()) {
        let range = if least == most { least.to_string() } else { format!("{least} to {most}") };
        notes.push(format!("Saturated by {range} connections: twice as many brought less than 5 % more."));
    }
    notes
}

fn costs_note(costs: &Costs, half: Option<&HalfServingPoint>) -> String {
    let at = half.and_then(|half| Some((half.percent_by_costs?, half.is_extrapolated)));
    let at = at.map_or(String::new(), |(fit, extrapolated)| {
        let word = if extrapolated { ", extrapolated" } else { "" };
        format!("; half serving point {}{word}", fit.in_unit(" %", format_tenths))
    });
    format!(
        "By costs, 1 / (e + (1 − r) H): H = {} for a full handshake, e = {} for a request with everything else, at \
         most {} off{at}.",
        costs.full_handshake_ns.with_interval(format_duration),
        costs.hit_ns.with_interval(format_duration),
        format_percent(costs.residual_percent)
    )
}

fn theory_note(theory: &Theory) -> String {
    let (found, half) = (theory.requests_per_handshake, theory.half_percent);
    format!(
        "By theory (Mraz et al. 2002, section 3), P / (1 + (1 − r) h), where encryption costs nothing: h = {} \
         requests of plain HTTP, at most {} off; half serving point 1 − 1/h = {}.",
        found.with_interval(format_quantity),
        format_percent(theory.residual_percent),
        half.in_unit(" %", format_tenths)
    )
}

/// Throughput over reuse with the fitted curves, plain HTTP and half of it.
fn chart(curve: &CurveSummary, log: Option<&LogOnCurve>) -> Option<Chart> {
    let mut chart = OverReuse::new(curve.by, ["hits per second", "hits/s"], 1.0);
    chart.measured("measured", curve.levels.iter().map(|level| (level.achieved_percent, level.hits_per_second)));
    if let Some(costs) = &curve.costs {
        chart.computed("by costs", |percent| costs.hits_per_second(f64::INFINITY, 1.0, percent));
    }
    if let Some(plain) = curve.plain.as_ref().map(|plain| plain.hits_per_second.value) {
        if let Some(theory) = &curve.theory {
            chart.computed("by theory", |percent| theory.hits_per_second(plain, percent));
        }
        chart.limit(plain);
    }
    if let Some(at) = log.and_then(LogOnCurve::typical) {
        chart.reuse("your log", at.percent, at.hits_per_second);
    }
    let caption = format!("Hits per second at saturation over reuse by {}, with 95 % intervals.", curve.by);
    chart.chart(format!("curve-{}", curve.by), 280, caption)
}
