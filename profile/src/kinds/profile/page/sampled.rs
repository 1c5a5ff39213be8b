//! What a hit is made of outside of the stages, by samples: areas with their parts, the dearest functions, and all
//! stacks as a chart.

use serde_json::json;

use super::{interval, percent_of};
use crate::kinds::profile::summary::{AreaSummary, KindSummary, SampledSummary};
use crate::report::charts::{COLOURS, ink, legend_above, palette, with};
use crate::report::document::{Cell, Chart, Column, Place, Section, Tone, row};
use crate::report::text::stage_label;
use crate::stats::Estimate;
use crate::store::stacks::Stacks;
use crate::units::{format_count, format_micros, format_percent, format_tenths};

/// Parts of an area that cost less than this part of a hit are told together.
const PART_LEAST: f64 = 0.002;
/// Instructions per nanosecond that differ from the average by this factor are told.
const FAR: f64 = 2.0;
/// Functions narrower than this part of the chart are left out of it.
const WIDTH_LEAST: f64 = 0.004;
/// Names are written on what is wider than this part of the chart.
const WIDTH_NAMED: f64 = 0.03;
/// What a frame of the chart is.
const KINDS: [&str; 3] = ["code", "kernel", "stage"];
/// Height of a row of the chart, pixels.
const ROW_HEIGHT: usize = 17;

/// The sections of one kind of handshake.
pub fn sections(kind: &KindSummary) -> Vec<Section> {
    let Some(sampled) = &kind.sampled else { return Vec::new() };
    let chart = Section::default().on(Place::Page).charts(flames(kind, sampled));
    vec![areas(kind, sampled), functions(kind, sampled), chart]
}

fn line(name: String, of: Estimate, whole: f64) -> Vec<Cell> {
    row([name, format_micros(of.value), interval(of), percent_of(of.value, whole)], false)
}

/// The same with what of it is TLS's own, and with instructions where they are counted.
fn line_of_tls(
    name: String,
    (ns, tls_ns, instructions): (Estimate, Option<Estimate>, Option<f64>),
    sampled: &SampledSummary,
) -> Vec<Cell> {
    let mut cells = line(name, ns, sampled.whole_ns);
    cells.extend(tls_ns.into_iter().flat_map(|tls| row([format_micros(tls.value), interval(tls)], false)));
    if is_counted(sampled) {
        let told = |count: f64| [format_count(count.max(0.0) as u64), format_tenths(count / ns.value.max(1.0))];
        cells.extend(row(instructions.map_or([const { String::new() }; 2], told), false));
    }
    cells
}

fn is_counted(sampled: &SampledSummary) -> bool {
    sampled.areas.iter().any(|area| area.instructions_count.is_some())
}

/// Areas of user space whose instructions per nanosecond are far from those of all.
fn unusual(sampled: &SampledSummary) -> Option<String> {
    let counted = || sampled.areas.iter().filter_map(|area| Some((area, area.instructions_count?)));
    let (count, ns) = counted().fold((0.0, 0.0), |(count, ns), (area, more)| (count + more, ns + area.ns.value));
    let all = count / f64::max(ns, 1.0);
    let far = |(area, count): (&AreaSummary, f64)| {
        let own = count / area.ns.value.max(1.0);
        let is_told = area.ns.value >= PART_LEAST * sampled.whole_ns;
        let is_far = own > all * FAR || own < all / FAR;
        (is_told && is_far).then(|| format!("{} {}", area_name(area.area), format_tenths(own)))
    };
    let far: Vec<String> = counted().filter_map(far).collect();
    (!far.is_empty()).then(|| {
        format!(
            "Instructions per nanosecond are {} on average; far from that: {}. Less means waiting for memory, more \
             means long rows of arithmetic.",
            format_tenths(all),
            far.join(", ")
        )
    })
}

fn areas(kind: &KindSummary, sampled: &SampledSummary) -> Section {
    let mut columns =
        vec![Column::words(""), Column::number("µs a hit"), Column::interval(), Column::number("of a hit")];
    if sampled.named_percent.is_some() {
        columns.extend([Column::number("without plain"), Column::interval()]);
    }
    if is_counted(sampled) {
        columns.extend([Column::number("instructions"), Column::number("per ns")]);
    }
    let (whole, width) = (sampled.whole_ns, columns.len());
    let mut rows = Vec::new();
    for area in &sampled.areas {
        let head = line_of_tls(area_name(area.area), (area.ns, area.tls_ns, area.instructions_count), sampled);
        rows.push(head.into_iter().map(|cell| cell.toned(Tone::Strong)).collect());
        let is_told = |ns: f64| ns >= PART_LEAST * whole;
        for part in area.parts.iter().filter(|part| is_told(part.ns.value)) {
            let name = if area.area == "stages" { stage_label(&part.part) } else { part.part.clone() };
            rows.push(line_of_tls(format!("  {name}"), (part.ns, part.tls_ns, part.instructions_count), sampled));
        }
        let rest: Vec<f64> = area.parts.iter().map(|part| part.ns.value).filter(|ns| !is_told(*ns)).collect();
        if !rest.is_empty() {
            let sum = rest.iter().sum();
            let text = format!("  {} more, each below {}", rest.len(), percent_of(PART_LEAST, 1.0));
            let mut texts = vec![text, format_micros(sum), String::new(), percent_of(sum, whole)];
            texts.resize(width, String::new());
            rows.push(row(texts, false));
        }
    }
    let unnamed = "Functions that a library's file does not name are parts of the named one that called them; debug \
                   packages name all. Kernel: by the system call that was made. libssl: by the function that the \
                   server called.";
    let opened = sampled.named_percent.map(|percent| {
        format!(
            "without plain: less what a hit without TLS spends there; outside of the stages that is the rest of TLS, \
             of which {} has a name.",
            format_percent(percent)
        )
    });
    let counted = is_counted(sampled).then(|| {
        "instructions: in user space, of one connection after the other under valgrind, which knows no AVX-512, VAES \
         and SHA instructions; all servers, timed or counted, do without them here. What is executed within a stage is \
         of stages."
            .to_owned()
    });
    Section::titled("", format!("What a hit with a {} handshake is made of, by samples", kind.kind.name()))
        .table(columns, rows)
        .notes([unnamed.to_owned()].into_iter().chain(opened).chain(counted).chain(unusual(sampled)))
}

fn area_name(area: &str) -> String {
    match area {
        "stages" => "Stages".to_owned(),
        "kernel" => "Kernel".to_owned(),
        "libcrypto" => "libcrypto, outside of stages".to_owned(),
        "server" => "The server's own code".to_owned(),
        "instrument" => "The profiler itself".to_owned(),
        "unknown" => "Unknown".to_owned(),
        other => other.to_owned(),
    }
}

fn functions(kind: &KindSummary, sampled: &SampledSummary) -> Section {
    let columns =
        vec![Column::words("function"), Column::number("µs a hit"), Column::interval(), Column::number("of a hit")];
    let rows = sampled.functions.iter().map(|of| line(of.name.clone(), of.ns, sampled.whole_ns)).collect();
    let title = format!("The dearest functions outside of stages, {} handshakes", kind.kind.name());
    Section::titled("", title).table(columns, rows)
}

/// All stacks: the wider, the dearer; callers above those that they call.
fn flames(kind: &KindSummary, sampled: &SampledSummary) -> Option<Chart> {
    let stacks = sampled.stacks.clone().pruned((WIDTH_LEAST * sampled.samples as f64).ceil() as u64);
    let us_each = sampled.whole_ns / 1e3 / sampled.samples.max(1) as f64;
    let mut rows = Vec::new();
    let depth = flame(&stacks, 0, 0, &mut |name, from, count, depth| {
        let is_wide = count as f64 >= WIDTH_NAMED * sampled.samples as f64;
        let kind = match () {
            () if name.starts_with('[') => 2,
            () if name.starts_with("kernel: ") => 1,
            () => 0,
        };
        rows.push(json!({
            "name": name, "label": if is_wide { name } else { "" }, "depth": depth, "below": depth + 1,
            "what": KINDS[kind], "ink": ink(COLOURS[kind]),
            "from": from as f64 * us_each, "to": (from + count) as f64 * us_each,
            "us": count as f64 * us_each
        }));
    });
    let body = json!({
        "encoding": {
            "x": {"field": "from", "type": "quantitative", "title": "server CPU of a hit, µs", "axis": {"grid": false}},
            "x2": {"field": "to"},
            "y": {"field": "depth", "type": "quantitative", "scale": {"reverse": true, "nice": false}, "axis": null},
            "y2": {"field": "below"},
            "tooltip": [{"field": "name"}, {"field": "us", "format": ".1f", "title": "µs a hit"}]
        },
        "layer": [
            {"mark": {"type": "rect", "stroke": "white", "strokeWidth": 0.5},
             "encoding": {"color": with(palette("what", &KINDS, &COLOURS), legend_above(3))}},
            {"mark": {"type": "text", "align": "left", "baseline": "top", "dx": 2, "dy": 3, "fontSize": 9,
                      "clip": true, "fill": {"expr": "datum.ink"},
                      "limit": {"expr": "scale('x', datum.to) - scale('x', datum.from) - 4"}},
             "encoding": {"text": {"field": "label"}, "x2": null, "y2": null}}
        ]
    });
    let chart = Chart::new(format!("profile-stacks-{}", kind.kind.name()), ROW_HEIGHT * depth.max(4), rows, body)?;
    let name = kind.kind.name();
    let caption = format!("Where a hit with a {name} handshake spends its CPU: callers above what they call");
    let told: Vec<String> =
        sampled.areas.iter().map(|area| format!("{} {} µs", area.area, format_micros(area.ns.value))).collect();
    Some(chart.told(caption, told.join("; ")))
}

/// Tells of each function its name, where it begins, how wide it is and how deep. Answers the depth below.
fn flame(stacks: &Stacks, from: u64, depth: usize, tell: &mut impl FnMut(&str, u64, u64, usize)) -> usize {
    let mut at = from;
    let mut deepest = depth;
    for (name, below) in &stacks.callees {
        tell(name, at, below.count, depth);
        deepest = deepest.max(flame(below, at, depth + 1, tell));
        at += below.count;
    }
    deepest
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn callees_lie_below_their_caller_and_beside_each_other() {
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let mut stacks = Stacks::default();
        for names in [&["main", "read"][..], &["main", "write"], &["main", "write"], &["main"]] {
            stacks.add_stack(&of(names));
        }
        let mut told: Vec<Value> = Vec::new();
        let depth = flame(&stacks, 0, 0, &mut |name, from, count, depth| told.push(json!([name, from, count, depth])));
        let expected = [json!(["main", 0, 4, 0]), json!(["read", 0, 1, 1]), json!(["write", 1, 2, 1])];
        assert_eq!((depth, told), (2, expected.to_vec()));
    }
}
