//! The screen, drawn for a terminal of any size.

use std::collections::VecDeque;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect, Size};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, Sparkline, StatefulWidget, Table, TableState, Widget};
use tlsdyno_base::terminal::pane::{curve, framed};
use tlsdyno_base::units::format_tenths;

use super::view::{Shown, View};

/// Columns that the names and numbers of parts take.
const NAMES: usize = 17;
const NUMBERS: usize = 20;
/// Rows of the pane of the past, and those from which on it is shown.
const PAST: u16 = 5;
const ROWS_WITH_PAST: u16 = 18;

/// The screen for a terminal of this size. The last column and a row stay free, so that the terminal neither wraps nor
/// scrolls.
pub fn screen(view: &View, size: Size) -> Buffer {
    let mut buffer =
        Buffer::empty(Rect::new(0, 0, size.width.saturating_sub(1).max(1), size.height.saturating_sub(1).max(1)));
    match view.opened() {
        Some(server) => opened(view, server, &mut buffer),
        None => list(view, &mut buffer),
    }
    buffer
}

fn heading(left: &str, keys: &str, area: Rect, buffer: &mut Buffer) {
    let [title, end] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(keys.chars().count() as u16 + 2)]).areas(area);
    Line::from(left.bold()).render(title, buffer);
    Line::from(keys.dim()).right_aligned().render(end, buffer);
}

fn list(view: &View, buffer: &mut Buffer) {
    let below: Vec<Line> = view.more.iter().map(|line| Line::from(line.as_str())).collect();
    let rows = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(below.len() as u16 + 1)];
    let [title, table, end] = Layout::vertical(rows).areas(buffer.area);
    heading("TLS servers, last minute", "Enter opens · q ends", title, buffer);
    let marked = view.marked.min(view.servers.len().saturating_sub(1));
    let row = |(at, server): (usize, &Shown)| {
        let is_marked = at == marked;
        let number = format!("{}{}", if is_marked { "▸" } else { " " }, at + 1);
        let texts = [number, server.title.clone()].into_iter().chain(server.cells.clone());
        Row::new(texts).style(if is_marked { Style::new().bold() } else { Style::new() })
    };
    let heads = Row::new(["", "server", "CPUs used", "TLS, % of CPU", "conn./s"]).dim();
    let [number, used, share, rate] = [3, 9, 18, 8].map(Constraint::Length);
    let shown = Table::new(view.servers.iter().enumerate().map(row), [number, Constraint::Fill(1), used, share, rate]);
    let mut state = TableState::new().with_selected(marked);
    StatefulWidget::render(shown.header(heads), table, buffer, &mut state);
    for (line, area) in below.into_iter().chain([Line::from(view.own.as_str().dim())]).zip(end.rows()) {
        line.render(area, buffer);
    }
}

fn opened(view: &View, server: &Shown, buffer: &mut Buffer) {
    let (width, height) = (usize::from(buffer.area.width), buffer.area.height);
    let lines: Vec<String> = server.lines.iter().flat_map(|line| folded(line, width)).collect();
    let past = if height >= ROWS_WITH_PAST { PAST } else { 0 };
    let of_lines = (lines.len() as u16).min(height.saturating_sub(2 + past + 1));
    let of_parts = if server.parts.is_empty() { 0 } else { server.parts.len() as u16 + 2 };
    let of_parts = of_parts.min(height.saturating_sub(2 + past + 1 + of_lines));
    let rows = [1, 1, of_parts, of_lines, past, 1].map(Constraint::Length);
    let [title, share, parts, told, history, end] = Layout::vertical(rows).areas(buffer.area);
    heading(&server.title, "Esc back · q ends", title, buffer);
    Line::from(server.share.as_str()).render(share, buffer);
    bars(server, parts, buffer);
    for (line, row) in lines.into_iter().zip(told.rows()) {
        Line::from(line).render(row, buffer);
    }
    let both = Layout::horizontal([Constraint::Fill(1); 2]).areas::<2>(history);
    if let Some(of) = view.history.of(server.root).filter(|_| past > 0) {
        sparkline(" TLS %, last hour ", &of.shares, Some(100), both[0], buffer);
        sparkline(" handshakes/s, last hour ", &of.rates, None, both[1], buffer);
    }
    Line::from(view.own.as_str().dim()).render(end, buffer);
}

/// Parts of TLS, as many of the largest as there is room for: a thick line up to the lower end of the interval, a thin
/// one up to its upper end.
fn bars(server: &Shown, area: Rect, buffer: &mut Buffer) {
    let pane = framed(" parts of TLS, % of CPU ");
    let inner = pane.inner(area);
    pane.render(area, buffer);
    let mut sizes: Vec<f64> = server.parts.iter().map(|(_, [value, ..])| *value).collect();
    sizes.sort_by(|a, b| b.total_cmp(a));
    let least = sizes.get(usize::from(inner.height).saturating_sub(1)).copied().unwrap_or(0.0);
    let most = server.parts.iter().map(|(_, ends)| ends[2]).fold(1.0, f64::max);
    let columns = usize::from(inner.width).saturating_sub(NAMES + NUMBERS) as f64;
    let shown = server.parts.iter().filter(|(_, [value, ..])| *value >= least);
    for ((name, [value, low, high]), row) in shown.zip(inner.rows()) {
        let [to, until] = [low, high].map(|end| (end / most * columns).round() as usize);
        let numbers = format!("{} [{}, {}]", format_tenths(*value), format_tenths(*low), format_tenths(*high));
        let line = Line::from_iter([
            Span::from(format!("{name:<NAMES$}{numbers:<NUMBERS$}")),
            "━".repeat(to).cyan(),
            "─".repeat(until - to).cyan().dim(),
        ]);
        line.render(row, buffer);
    }
}

/// `most`: the value of a full column; `None`: the largest.
fn sparkline(title: &'static str, past: &VecDeque<f64>, most: Option<u64>, area: Rect, buffer: &mut Buffer) {
    let pane = framed(title);
    let inner = pane.inner(area);
    pane.render(area, buffer);
    let columns = usize::from(inner.width);
    // Tenths, so that few of them are not none.
    let values = curve(past, past.len().max(columns), columns).into_iter();
    let values = values.map(|value| value.map(|value| (10.0 * value).round() as u64));
    let line = Sparkline::default().data(values).style(Style::new().fg(Color::Cyan));
    most.map_or(line.clone(), |most| line.max(10 * most)).render(inner, buffer);
}

/// A line in several, broken at blanks.
fn folded(line: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let last = lines.last_mut().expect("there is one");
        if last.trim().is_empty() || last.chars().count() + 1 + word.chars().count() <= columns {
            last.push_str(if last.trim().is_empty() { "" } else { " " });
            last.push_str(word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::screen::history::tests::past;

    pub fn server(root: u32) -> Shown {
        Shown {
            root,
            title: format!("nginx :443 (pid {root}, OpenSSL 3.0.17)"),
            cells: ["0.87 of 2", "90.9 [89.0, 92.5]", "2,838"].map(str::to_owned),
            share: "0.87 of 2 CPUs · TLS is 90.9 % [89.0, 92.5] of its CPU".to_owned(),
            parts: vec![
                ("signatures", [34.0, 30.8, 37.4]),
                ("key agreement", [15.7, 13.3, 18.5]),
                ("memory", [0.3, 0.1, 0.9]),
            ],
            lines: vec!["100 handshakes, 50.0 /s: full 45.0 % · resumed 55.0 % · broken off 0.0 %".to_owned()],
        }
    }

    fn view() -> View {
        let own = "own use of tlsdyno: 0.40 % of one CPU".to_owned();
        View { servers: vec![server(812), server(4711)], own, marked: 1, ..View::default() }
    }

    fn text(view: &View, columns: u16, rows: u16) -> String {
        let buffer = screen(view, Size::new(columns, rows));
        let row = |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect::<String>();
        let rows = buffer.content.chunks(usize::from(buffer.area.width)).map(row);
        rows.map(|row| row.trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn the_list_marks_a_server_and_keeps_it_in_sight() {
        let expected = "\
TLS servers, last minute                                   Enter opens · q ends
    server                                CPUs used TLS, % of CPU      conn./s
 1  nginx :443 (pid 812, OpenSSL 3.0.17)  0.87 of 2 90.9 [89.0, 92.5]  2,838
▸2  nginx :443 (pid 4711, OpenSSL 3.0.17) 0.87 of 2 90.9 [89.0, 92.5]  2,838
own use of tlsdyno: 0.40 % of one CPU
";
        assert_eq!(text(&view(), 80, 6), expected);
        let low = text(&view(), 60, 5);
        assert!(low.contains("▸2") && !low.contains(" 1 "), "{low}");
    }

    #[test]
    fn an_opened_server_has_bars_lines_and_its_past() {
        let mut view = View { opened: Some(812), ..view() };
        view.history.0.insert(812, past(&[[9, 10, 100], [5, 10, 300]]));
        let expected = "\
nginx :443 (pid 812, OpenSSL 3.0.17)                          Esc back · q ends
0.87 of 2 CPUs · TLS is 90.9 % [89.0, 92.5] of its CPU
╭ parts of TLS, % of CPU ─────────────────────────────────────────────────────╮
│ signatures       34.0 [30.8, 37.4]   ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━─────── │
│ key agreement    15.7 [13.3, 18.5]   ━━━━━━━━━━━━━━─────                    │
│ memory           0.3 [0.1, 0.9]      ─                                      │
╰─────────────────────────────────────────────────────────────────────────────╯
100 handshakes, 50.0 /s: full 45.0 % · resumed 55.0 % · broken off 0.0 %
";
        let shown = text(&view, 80, 24);
        assert!(shown.starts_with(expected), "{shown}");
        assert!(shown.contains(" TLS %, last hour ") && shown.contains("█"));
        let small = text(&view, 60, 9);
        assert!(small.contains("signatures") && !small.contains("memory") && !small.contains("last hour"), "{small}");
        assert!(small.contains("\n  broken off 0.0 %\n") && small.contains("own use"), "{small}");
        for (columns, rows) in [(20, 4), (1, 1), (300, 100)] {
            text(&view, columns, rows);
        }
    }
}
