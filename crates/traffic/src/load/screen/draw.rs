//! The screen: what there is to see, drawn for a terminal of any size.
//! Circle: the frame of latencies is drawn like all others.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect, Size};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::line;
use ratatui::text::{Line, Span};
use ratatui::widgets::{LineGauge, Sparkline, Widget};
use tlsdyno_base::terminal::pane::framed;
use tlsdyno_base::units::{NONE, format_bytes, format_count, format_short};

use super::latencies;
use super::view::{BUSY, Pace, View};

/// Maximum columns: a wider display is not easier to read.
const COLUMNS_MAX: u16 = 110;

/// Minimum columns for two panes side by side.
const COLUMNS_OF_PANES: u16 = 72;

/// Rows of the panes of throughput and of resumption.
const ROWS_OF_PANES: u16 = 7;

/// The screen for a terminal of this size. It leaves the last column and a row free, so that the terminal neither wraps
/// nor scrolls.
pub fn screen(view: &View, size: Size) -> Buffer {
    let width = size.width.saturating_sub(1).clamp(1, COLUMNS_MAX);
    let height = size.height.saturating_sub(1).max(1);
    let lines: Vec<Line> =
        [Some(client(view)), each(view), order(view), Some(errors(view))].into_iter().flatten().collect();
    let ends = lines.len() as u16;
    let needed = 3 + ROWS_OF_PANES + latencies::rows(view) + ends;
    if width < COLUMNS_OF_PANES || height < needed {
        return compact(view, width, height);
    }
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, needed));
    let rows = [1, 1, 1, ROWS_OF_PANES, latencies::rows(view), ends].map(Constraint::Length);
    let [title, asked, done, panes, phases, end] = Layout::vertical(rows).areas(buffer.area);
    heading(view, title, &mut buffer);
    Line::from(view.asked.as_str().dim()).render(asked, &mut buffer);
    let (part, words) = view.done();
    gauge(part, words.into(), Color::Cyan).render(done, &mut buffer);
    if view.tls {
        let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(panes);
        throughput(view, left, &mut buffer);
        resumption(view, right, &mut buffer);
    } else {
        throughput(view, panes, &mut buffer);
    }
    latencies::pane(view, phases, &mut buffer);
    for (line, row) in lines.into_iter().zip(end.rows()) {
        line.render(row, &mut buffer);
    }
    buffer
}

/// One thing a line, the most important first, as many as there is room for.
fn compact(view: &View, width: u16, height: u16) -> Buffer {
    let mut lines = vec![
        Line::from_iter([count_per_second(view.pace.hits).bold(), format!(" hits/s   {} so far", so_far(view)).into()]),
        errors(view),
    ];
    if view.tls {
        lines.push(resumed_line(view));
    }
    lines.extend(latencies::lines(view));
    lines.push(client(view));
    lines.extend(each(view));
    lines.extend(order(view));
    lines.push(Line::from(format!("{} connections/s", count_per_second(view.pace.connections))));
    lines.push(Line::from(view.url.as_str().bold()));
    lines.push(Line::from(view.asked.as_str().dim()));
    let rows = height.min(lines.len() as u16 + 1);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, rows));
    let mut areas = buffer.area.rows();
    if let Some(first) = areas.next() {
        let (part, words) = view.done();
        gauge(part, words.into(), Color::Cyan).render(first, &mut buffer);
    }
    for (line, row) in lines.into_iter().zip(areas) {
        line.render(row, &mut buffer);
    }
    buffer
}

fn heading(view: &View, area: Rect, buffer: &mut Buffer) {
    let key = "q ends it";
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(key.len() as u16)]).areas(area);
    Line::from(view.url.as_str().bold()).render(left, buffer);
    Line::from(key.dim()).render(right, buffer);
}

fn gauge<'a>(done: f64, label: Line<'a>, colour: Color) -> LineGauge<'a> {
    LineGauge::default()
        .ratio(done)
        .label(label)
        .filled_symbol(line::THICK_HORIZONTAL)
        .unfilled_symbol(line::HORIZONTAL)
        .filled_style(Style::new().fg(colour))
        .unfilled_style(Style::new().dim())
}

fn throughput(view: &View, area: Rect, buffer: &mut Buffer) {
    let pane = framed(" throughput ");
    let inner = pane.inner(area);
    pane.render(area, buffer);
    let [now, curve, more] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)]).areas(inner);
    let asked = view.rate.map_or(String::new(), |rate| format!(" of {} asked", count_per_second(rate)));
    let hits = Line::from_iter([count_per_second(view.pace.hits).bold(), " hits/s".into(), asked.dim()]);
    hits.render(now, buffer);
    Line::from(format!("{}/s", format_bytes(view.pace.bytes)).dim()).right_aligned().render(now, buffer);
    let columns = view.curve(usize::from(curve.width));
    Sparkline::default()
        .data(columns.into_iter().map(|value| value.map(|value| value.round() as u64)))
        .style(Style::new().fg(Color::Cyan))
        .render(curve, buffer);
    Line::from(format!("{} connections/s", count_per_second(view.pace.connections))).render(more, buffer);
    Line::from(format!("{} hits", so_far(view)).dim()).right_aligned().render(more, buffer);
}

fn resumption(view: &View, area: Rect, buffer: &mut Buffer) {
    let asked = view.reuse_percent.map_or(String::new(), |asked| format!(", {} % to resume", format_short(asked)));
    let pane = framed(format!(" TLS handshakes{asked} "));
    let inner = pane.inner(area);
    pane.render(area, buffer);
    let percent = view.resumed_percent();
    let label = percent.map_or("no handshake yet".to_owned(), |percent| format!("{percent:5.1} % resumed"));
    let counts = view.now.map_or_else(Default::default, |now| now.handshakes);
    let mut offered = format!("offered {}", format_count(counts.resumed_offered));
    offered += &format!(", refused {}", format_count(counts.resumed_offered - counts.resumed_accepted));
    if counts.early_offered > 0 {
        offered +=
            &format!(", early data {} of {}", format_count(counts.early_accepted), format_count(counts.early_offered));
    }
    let negotiated = view.now.and_then(|now| now.negotiated).map_or(String::new(), |(version, suite, group)| {
        let suite = suite.to_string();
        let group = group.map_or(String::new(), |group| format!(" {group}"));
        format!("TLS {version} {}{group}", suite.trim_start_matches("TLS_"))
    });
    let kind = |name: &'static str, count: u64, per_second: f64, colour: Color| {
        Line::from_iter([
            format!("{name:<8}").fg(colour),
            format!("{:>10} /s", count_per_second(per_second)).bold(),
            format!("{:>13}", format_count(count)).into(),
        ])
    };
    let mut rows = inner.rows();
    if let Some(first) = rows.next() {
        gauge(percent.unwrap_or(0.0) / 100.0, label.into(), Color::Green).render(first, buffer);
    }
    let resumed = kind("resumed", counts.resumed_accepted, view.pace.resumed, Color::Green);
    let full = kind("full", counts.full, view.pace.full, Color::Yellow);
    for (line, row) in [resumed, full, Line::from(offered), Line::from(negotiated.dim())].into_iter().zip(rows) {
        line.render(row, buffer);
    }
}

fn resumed_line(view: &View) -> Line<'static> {
    let Some(percent) = view.resumed_percent() else {
        return Line::from("no handshake yet".dim());
    };
    let handshakes = count_per_second(view.pace.full + view.pace.resumed);
    Line::from(format!("{percent:.1} % of {handshakes} handshakes/s resumed").green())
}

/// How busy the client is: a saturated one measures itself.
fn client(view: &View) -> Line<'static> {
    let cores = match view.now.map_or(1, |now| now.loops) {
        1 => "a core".to_owned(),
        loops => format!("{loops} cores"),
    };
    let busy = format!("client CPU {:.0} % of {cores}", view.pace.busy * 100.0);
    if view.pace.busy < BUSY {
        return Line::from(busy.dim());
    }
    Line::from_iter([busy.yellow(), ": the client is the bottleneck, latencies are its own".yellow()])
}

/// How each of several loops or workers does: one that is saturated, or lags behind, must show.
fn each(view: &View) -> Option<Line<'static>> {
    let one = |(number, pace): (usize, &Option<Pace>)| match pace {
        Some(pace) => format!("  {number}: {} at {:.0} %", count_per_second(pace.hits), pace.busy * 100.0),
        None => format!("  {number}: {NONE}"),
    };
    let all: String = (1..).zip(&view.each).map(one).collect();
    (view.each.len() > 1).then(|| Line::from(format!("hits/s of each{all}").dim()))
}

fn order(view: &View) -> Option<Line<'static>> {
    let window = view.now?.window?;
    let limit = window.limit.map_or("no bound".to_owned(), |limit| format!("window {}", format_count(limit)));
    let text = format!(
        "order: {} requests apart at most ({limit}), {} stalls",
        format_count(window.largest_distance),
        format_count(window.stalls)
    );
    Some(Line::from(text))
}

fn errors(view: &View) -> Line<'static> {
    let errors = view.errors();
    if errors.is_empty() {
        return Line::from("no errors".dim());
    }
    let all: u64 = errors.iter().map(|(_, count)| count).sum();
    let noun = if all == 1 { "error" } else { "errors" };
    let kinds: Vec<String> = errors.iter().map(|(kind, count)| format!("{} {kind}", format_count(*count))).collect();
    Line::from_iter([
        Span::from(format!("{} {noun}", format_count(all))).red().bold(),
        format!(": {}", kinds.join(", ")).red(),
    ])
}

fn so_far(view: &View) -> String {
    format_count(view.now.map_or(0, |now| now.hits))
}

/// How many there are in a second; few of them with a digit more.
pub fn count_per_second(count: f64) -> String {
    if count > 0.0 && count < 9.95 { format!("{count:.1}") } else { format_count(count.round() as u64) }
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
