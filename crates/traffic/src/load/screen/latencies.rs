//! The latencies on the screen: each phase by itself, on one logarithmic scale, because what resumption buys is the
//! distance between two of them.

use std::ops::Range;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use tlsdyno_base::terminal::pane::framed;
use tlsdyno_base::units::format_duration;
use tlsdyno_engine::load::Phase;

use super::draw::count_per_second;
use super::view::{Latency, View};

/// Columns before the scale: name, rate, median, 99th percentile.
const COLUMNS_OF_NUMBERS: u16 = 17 + 11 + 11 + 11 + 2;

const SCALE_COLUMNS_MIN: u16 = 12;

/// Rows of the pane: frame, scale and phases.
pub fn rows(view: &View) -> u16 {
    3 + view.phases.len() as u16
}

pub fn pane(view: &View, area: Rect, buffer: &mut Buffer) {
    let pane = framed(" latency, last half second ");
    let inner = pane.inner(area);
    pane.render(area, buffer);
    let columns = inner.width.saturating_sub(COLUMNS_OF_NUMBERS);
    let scale = view.scale();
    let mut rows = inner.rows();
    if let Some(row) = rows.next() {
        let head = format!("{:<17}{:>11}{:>11}{:>11}  ", "", "", "p50 ●", "p99 ○");
        Line::from_iter([head, labels(&scale, columns)]).dim().render(row, buffer);
    }
    for (phase, row) in view.phases.iter().zip(rows) {
        let latency = view.latency(*phase);
        let mut line = numbers(*phase, latency);
        line.push_span(Span::from(track(latency, &scale, columns)).fg(colour(*phase)));
        line.render(row, buffer);
    }
}

/// The same without frame and scale, for narrow terminals: what was not measured is left out.
pub fn lines(view: &View) -> Vec<Line<'static>> {
    let measured = view.phases.iter().filter(|phase| view.latency(**phase).recent.count > 0);
    let line = |phase: &Phase| {
        let recent = view.latency(*phase).recent;
        let (p50, p99) = (format_duration(recent.p50_ns as f64), format_duration(recent.p99_ns as f64));
        Line::from_iter([
            Span::from(format!("{:<18}", name(*phase))).fg(colour(*phase)),
            format!("{p50:>9} … {p99:>9}").into(),
        ])
    };
    // What a user waits for comes before its parts.
    measured.rev().map(line).collect()
}

fn numbers(phase: Phase, latency: Latency) -> Line<'static> {
    let name = Span::from(format!("{:<17}", name(phase))).fg(colour(phase));
    if latency.recent.count == 0 {
        return Line::from_iter([name, Span::from(format!("{:>11}{:>11}{:>11}  ", "-", "-", "-")).dim()]);
    }
    let [p50, p99] = [latency.recent.p50_ns, latency.recent.p99_ns].map(|value| format_duration(value as f64));
    let numbers = Span::from(format!("{:>8} /s{p50:>11}{p99:>11}  ", count_per_second(latency.per_second)));
    // Nothing new: what there is to see is older.
    Line::from_iter([name, if latency.per_second > 0.0 { numbers } else { numbers.dim() }])
}

const fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::TcpConnect => "TCP connect",
        Phase::FullHandshake => "full handshake",
        Phase::ResumedHandshake => "resumed handshake",
        Phase::FirstByte => "first byte",
        Phase::WholeResponse => "whole hit",
        Phase::ScheduledResponse => "hit from schedule",
    }
}

const fn colour(phase: Phase) -> Color {
    match phase {
        Phase::FullHandshake => Color::Yellow,
        Phase::ResumedHandshake => Color::Green,
        Phase::WholeResponse | Phase::ScheduledResponse => Color::Cyan,
        Phase::TcpConnect | Phase::FirstByte => Color::Reset,
    }
}

fn column(nanoseconds: u64, scale: &Range<i32>, columns: u16) -> usize {
    let decades = f64::from(scale.end - scale.start);
    let place = ((nanoseconds.max(1) as f64).log10() - f64::from(scale.start)) / decades;
    (place.clamp(0.0, 1.0) * f64::from(columns - 1)).round() as usize
}

/// A line from the median to the 99th percentile.
fn track(latency: Latency, scale: &Range<i32>, columns: u16) -> String {
    if columns < SCALE_COLUMNS_MIN || latency.recent.count == 0 {
        return String::new();
    }
    let [from, to] = [latency.recent.p50_ns, latency.recent.p99_ns].map(|value| column(value, scale, columns));
    let between = (to - from).saturating_sub(1);
    let end = if to > from { "○" } else { "" };
    format!("{}●{}{end}", " ".repeat(from), "━".repeat(between))
}

/// Powers of ten above the scale, as many as there is room for.
fn labels(scale: &Range<i32>, columns: u16) -> String {
    let mut out = String::new();
    if columns < SCALE_COLUMNS_MIN {
        return out;
    }
    for power in scale.start..=scale.end {
        let nanoseconds = 10_u64.pow(power.clamp(0, 18) as u32);
        let label = short_duration(nanoseconds);
        let width = label.chars().count();
        // The last stands left of its place, where the row ends.
        let at = column(nanoseconds, scale, columns).min(usize::from(columns) - width);
        let taken = out.chars().count();
        if taken == 0 && at == 0 || at > taken {
            out += &" ".repeat(at - taken);
            out += &label;
        }
    }
    out
}

fn short_duration(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000 => format!("{nanoseconds}ns"),
        1_000..1_000_000 => format!("{}µs", nanoseconds / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", nanoseconds / 1_000_000),
        _ => format!("{}s", nanoseconds / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tlsdyno_engine::load::Recent;

    #[test]
    fn latencies_stand_on_a_logarithmic_scale() {
        let latency = |p50_ns, p99_ns| Latency { recent: Recent { count: 1, p50_ns, p99_ns }, per_second: 1.0 };
        let scale = 5..7;
        assert_eq!(labels(&scale, 21), "100µs     1ms    10ms");
        assert_eq!(track(latency(100_000, 10_000_000), &scale, 21), "●━━━━━━━━━━━━━━━━━━━○");
        assert_eq!(track(latency(1_000_000, 1_000_000), &scale, 21), "          ●");
        assert_eq!(track(latency(1, 1 << 60), &scale, 21).chars().count(), 21, "beyond both ends");
        assert_eq!(track(latency(100_000, 10_000_000), &scale, 11), "", "no room");
        assert_eq!(labels(&(0..10), 14), "1ns 1µs 1ms 1s", "what finds no room is left out");
    }
}
