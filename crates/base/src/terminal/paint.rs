//! A drawn screen as what is written to a terminal below its cursor, wherever that is.
//!
//! The cursor goes down while rows are written, and back up to the first afterwards. So the terminal itself keeps the
//! place, however it scrolls or wraps when its size changes, and need not be asked for it: ratatui's own inline
//! viewport asks, on standard output, which may be a file, and clears the whole window when it gets narrower.

use std::fmt::Write;

use ratatui::backend::IntoCrossterm;
use ratatui::buffer::Buffer;
use ratatui::crossterm::style::{ContentStyle, StyledContent};
use ratatui::style::{Color, Style};
use ratatui::text::Span;

pub const ERASE: &str = "\r\x1b[J";

pub const HIDE: &str = "\x1b[?25l";

pub const SHOW: &str = "\x1b[?25h";

/// The bytes that paint `buffer` from the cursor down and return it to where it was.
pub fn bytes(buffer: &Buffer, colours: bool) -> String {
    let mut out = String::from("\r");
    let area = buffer.area;
    for y in area.top()..area.bottom() {
        if y > area.top() {
            out += "\r\n";
        }
        row(&mut out, buffer, y, colours);
        // The drawing never reaches the last column, where this would erase what was just written.
        out += "\x1b[K";
    }
    if area.height > 1 {
        let _ = write!(out, "\x1b[{}A", area.height - 1);
    }
    out.push('\r');
    out
}

/// A row without the blanks at its end, in pieces of one style each.
fn row(out: &mut String, buffer: &Buffer, y: u16, colours: bool) {
    let mut pieces: Vec<(Style, String)> = Vec::new();
    let mut x = buffer.area.left();
    while x < buffer.area.right() {
        let cell = &buffer[(x, y)];
        match pieces.last_mut() {
            Some((style, text)) if *style == cell.style() => *text += cell.symbol(),
            _ => pieces.push((cell.style(), cell.symbol().to_owned())),
        }
        // The cell after a wide character is no character of its own.
        x += Span::raw(cell.symbol()).width().max(1) as u16;
    }
    if let Some((_, text)) = pieces.last_mut() {
        text.truncate(text.trim_end().len());
    }
    for (style, text) in pieces {
        let shown = if colours { style } else { style.fg(Color::Reset).bg(Color::Reset) };
        let _ = write!(out, "{}", StyledContent::new(content_style(shown), text));
    }
}

fn content_style(style: Style) -> ContentStyle {
    let mut content: ContentStyle = style.into_crossterm();
    let own = |colour: Option<Color>| colour.is_some_and(|colour| colour != Color::Reset);
    content.foreground_color = content.foreground_color.filter(|_| own(style.fg));
    content.background_color = content.background_color.filter(|_| own(style.bg));
    content.underline_color = None;
    content
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Stylize;

    use super::*;

    #[test]
    fn rows_are_painted_downwards_and_the_cursor_returns() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 2));
        buffer.set_string(0, 0, "ab", Style::new());
        buffer.set_span(0, 1, &"日x".bold(), 6);
        assert_eq!(bytes(&buffer, true), "\rab\x1b[K\r\n\x1b[1m日x\x1b[0m\x1b[K\x1b[1A\r");
    }

    #[test]
    fn colours_can_be_left_out() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 3, 1));
        buffer.set_span(0, 0, &"a".red(), 3);
        assert_eq!(bytes(&buffer, false), "\ra\x1b[K\r");
        assert!(bytes(&buffer, true).contains("38;5;1m") || bytes(&buffer, true).contains("31m"));
    }
}
