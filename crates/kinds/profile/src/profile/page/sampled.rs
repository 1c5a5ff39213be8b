//! What a hit is made of outside of the stages, by samples: areas with their parts, the dearest functions, and all
//! stacks as a chart.

use serde_json::json;
use tlsdyno_base::units::{format_count, format_micros, format_percent, format_tenths};
use tlsdyno_record::store::samples::Area;
use tlsdyno_record::store::stacks::Stacks;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::charts::{COLOURS, ink, legend_above, palette, with};
use tlsdyno_runner::report::document::{Chart, Medium, Section, Tone};
use tlsdyno_runner::report::text::stage_label;

use super::percent_of;
use crate::profile::summary::{KindSummary, SampledSummary, Spent};

/// Parts of an area below this part of a hit are shown as one row.
const PART_LEAST: f64 = 0.002;
/// Factor from the average of instructions per nanosecond from which an area is mentioned.
const FAR: f64 = 2.0;
/// Minimum width of a function in the chart, as a part of the chart.
const WIDTH_LEAST: f64 = 0.004;
/// Minimum width of a function with its name, as a part of the chart.
const WIDTH_NAMED: f64 = 0.03;
/// Kinds of a frame of the chart.
const KINDS: [&str; 3] = ["code", "kernel", "stage"];
/// Height of a row of the chart, pixels.
const ROW_HEIGHT: usize = 17;

pub fn sections(kind: &KindSummary) -> Vec<Section> {
    let Some(sampled) = &kind.sampled else { return Vec::new() };
    let chart = Section::default().on(Medium::Page).charts(flames(kind, sampled));
    vec![areas(kind, sampled), functions(kind, sampled), chart]
}

/// A row of the table of areas.
struct Line<'a> {
    name: String,
    ns: f64,
    of: Option<&'a Spent>,
    is_area: bool,
}

fn is_counted(sampled: &SampledSummary) -> bool {
    sampled.areas.iter().any(|area| area.instructions_count.is_some())
}

/// Areas of user space whose instructions per nanosecond are far from the average.
fn unusual(sampled: &SampledSummary) -> Option<String> {
    let counted = || sampled.areas.iter().filter_map(|area| Some((area, area.instructions_count?)));
    let (count, ns) = counted().fold((0.0, 0.0), |(count, ns), (area, more)| (count + more, ns + area.ns.value));
    let all = count / f64::max(ns, 1.0);
    let far = |(area, count): (&Spent, f64)| {
        let own = count / area.ns.value.max(1.0);
        let is_told = area.ns.value >= PART_LEAST * sampled.whole_ns;
        let is_far = own > all * FAR || own < all / FAR;
        (is_told && is_far).then(|| format!("{} {}", area_name(&area.name), format_tenths(own)))
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

/// Areas with their parts; small parts together.
fn lines(sampled: &SampledSummary) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for area in &sampled.areas {
        lines.push(Line { name: area_name(&area.name), ns: area.ns.value, of: Some(area), is_area: true });
        let is_told = |part: &&Spent| part.ns.value >= PART_LEAST * sampled.whole_ns;
        let (told, rest): (Vec<&Spent>, Vec<&Spent>) = area.parts.iter().partition(is_told);
        lines.extend(told.into_iter().map(|part| {
            let name = if area.name == Area::Stages.name() { stage_label(&part.name) } else { part.name.clone() };
            Line { name: format!("  {name}"), ns: part.ns.value, of: Some(part), is_area: false }
        }));
        if !rest.is_empty() {
            let name = format!("  {} more, each below {}", rest.len(), percent_of(PART_LEAST, 1.0));
            lines.push(Line { name, ns: rest.iter().map(|part| part.ns.value).sum(), of: None, is_area: false });
        }
    }
    lines
}

fn areas(kind: &KindSummary, sampled: &SampledSummary) -> Section {
    let lines = lines(sampled);
    let instructions = |line: &Line| Some(line.of?.instructions_count?.max(0.0));
    let rows = Rows::new(&lines)
        .words("", |line| line.name.clone())
        .number("µs a hit", |line| format_micros(line.ns))
        .interval(format_micros, |line| line.of.map(|of| of.ns))
        .number("of a hit", |line| percent_of(line.ns, sampled.whole_ns))
        .estimate("without plain", format_micros, |line| line.of?.tls_ns)
        .number_if_any("instructions", |line| instructions(line).map(|count| format_count(count as u64)))
        .number_if_any("per ns", |line| instructions(line).map(|count| format_tenths(count / line.ns.max(1.0))))
        .toned(Tone::Strong, |line| line.is_area);
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
        .rows(rows)
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
    let rows = Rows::new(&sampled.functions)
        .words("function", |of| of.name.clone())
        .estimate("µs a hit", format_micros, |of| Some(of.ns))
        .number("of a hit", |of| percent_of(of.ns.value, sampled.whole_ns));
    let title = format!("The dearest functions outside of stages, {} handshakes", kind.kind.name());
    Section::titled("", title).rows(rows)
}

/// All stacks: width is cost; callers above the functions that they call.
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
        sampled.areas.iter().map(|area| format!("{} {} µs", area.name, format_micros(area.ns.value))).collect();
    Some(chart.described(caption, told.join("; ")))
}

/// Passes each function's name, start, width and depth to `tell`, and returns the depth of what is below.
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
