//! A document as text for a terminal. Control characters are shown, whoever wrote them: the terminal would obey them.

use std::io::IsTerminal;

use comfy_table::{
    Attribute, Cell as Painted, CellAlignment, Color, ColumnConstraint, ContentArrangement, Width, presets,
};
use tlsdyno_base::foreign::visible;

use crate::document::{Cell, Column, Content, Document, Item, Medium, Section, Table, Tone};

/// Width when the output is not a terminal.
const PLAIN_WIDTH: usize = 100;
const LONGEST_BAR: usize = 24;
const INDENT: &str = "  ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Colours and fine bars; without, ASCII bars and no escape sequences.
    pub rich: bool,
    pub width: usize,
}

impl Style {
    /// For a file, a pipe or a test.
    pub const PLAIN: Style = Style { rich: false, width: PLAIN_WIDTH };

    /// As wide as the terminal, for what is shown on standard error while something runs.
    pub fn of_stderr() -> Style {
        let width = comfy_table::Table::new().width().map_or(PLAIN_WIDTH, usize::from);
        Style { rich: false, width }
    }

    /// What standard output can show. `NO_COLOR` (no-color.org) and `TERM=dumb` make it plain.
    pub fn of_stdout() -> Style {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = std::io::stdout().is_terminal();
        let width = comfy_table::Table::new().width().filter(|_| terminal).map_or(PLAIN_WIDTH, usize::from);
        Style { rich: terminal && !set("NO_COLOR") && !dumb, width }
    }
}

/// The whole document, ending in a line feed.
pub fn text(document: &Document, style: Style) -> String {
    let mut parts = Vec::new();
    if !document.title.is_empty() {
        parts.push(painted(&wrapped(&document.title, style.width, ""), "1", style));
    }
    if !document.answer.is_empty() {
        parts.push(wrapped(&document.answer, style.width, INDENT));
    }
    parts.extend(document.sections_on(Medium::Terminal).map(|section| section_text(section, style)));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n") + "\n"
}

/// A section under a heading is one block; without, its parts stand apart.
fn section_text(section: &Section, style: Style) -> String {
    let parts = section.parts.iter().filter_map(|part| content_text(part, style));
    if section.title.is_empty() {
        return parts.collect::<Vec<_>>().join("\n\n");
    }
    [painted(&visible(&section.title), "1", style)].into_iter().chain(parts).collect::<Vec<_>>().join("\n")
}

fn content_text(content: &Content, style: Style) -> Option<String> {
    let paragraph = |text: &String| wrapped(text, style.width, INDENT);
    let lines = |lines: Vec<String>| Some(lines.join("\n"));
    match content {
        Content::Text(text) => Some(paragraph(text)),
        Content::Notes(notes) => lines(notes.iter().map(paragraph).collect()),
        Content::Table(table) => Some(table_text(table, style)),
        Content::Items(items) => lines(items.iter().map(|item| item_text(item, style)).collect()),
        Content::Facts(facts) => {
            let rows = facts.iter().map(|(name, value)| vec![name.as_str().into(), value.as_str().into()]);
            let columns = vec![Column::words(""), Column::words("")];
            Some(table_text(&Table { columns, rows: rows.collect() }, style))
        }
        Content::Warnings(warnings) => lines(warnings.iter().map(|warning| warning_text(warning, style)).collect()),
        Content::Chart(_) | Content::Code(_) | Content::Folded(..) | Content::Html(_) => None,
    }
}

fn item_text(item: &Item, style: Style) -> String {
    let mut lines = vec![wrapped(&item.head, style.width, INDENT)];
    lines.extend(item.text.iter().map(|text| wrapped(text, style.width, "     ")));
    lines.extend(item.code.iter().map(|line| format!("       {}", visible(line))));
    lines.join("\n")
}

fn warning_text(warning: &str, style: Style) -> String {
    let text = wrapped(&format!("warning: {warning}"), style.width, INDENT);
    text.trim_start().replacen("warning:", &painted("warning:", "33", style), 1)
}

pub fn table_text(table: &Table, style: Style) -> String {
    let table = table.on(Medium::Terminal);
    let bar_width = bar_width(&table, style);
    let mut painted = comfy_table::Table::new();
    painted.load_style(presets::NOTHING);
    if style.rich {
        painted.enforce_styling()
    } else {
        painted.force_no_tty()
    };
    let aligned = |cell: Painted, column: &Column| {
        let alignment = if column.is_number() { CellAlignment::Right } else { CellAlignment::Left };
        cell.set_alignment(alignment)
    };
    if table.has_header() {
        let name =
            |column: &Column| aligned(Painted::new(visible(&column.name)).add_attribute(Attribute::Underlined), column);
        painted.set_header(table.columns.iter().map(name));
    }
    for row in &table.rows {
        let cell = |(cell, column): (&Cell, &Column)| {
            let text = cell.bar.map_or_else(|| visible(&cell.text).into_owned(), |share| bar(share, bar_width, style));
            let shown = aligned(Painted::new(text), column);
            match (cell.tone, cell.bar) {
                (Tone::Plain, None) => shown,
                (Tone::Plain, Some(_)) => shown.fg(Color::Cyan),
                (Tone::Muted, _) => shown.fg(Color::DarkGrey),
                (Tone::Strong, _) => shown.add_attribute(Attribute::Bold),
                (Tone::Bad, _) => shown.fg(Color::Red),
            }
        };
        painted.add_row(row.iter().zip(&table.columns).map(cell));
    }
    // On a narrow terminal words wrap and numbers stay whole; a file is as wide as it needs to be.
    if style != Style::PLAIN {
        painted.set_content_arrangement(ContentArrangement::Dynamic);
        painted.set_width(u16::try_from(style.width).unwrap_or(u16::MAX));
    }
    let mut least = 0;
    for (number, column) in table.columns.iter().enumerate().filter(|(_, column)| column.is_number()) {
        let widest = table.rows.iter().filter(|row| row.len() > 1).filter_map(|row| row.get(number));
        let widest = widest.map(|cell| cell.text.chars().count()).chain(longest_word(&column.name)).max().unwrap_or(0);
        least += widest + 2;
        let Some(painted) = painted.column_mut(number) else { continue };
        painted.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(widest as u16 + 2)));
    }
    // What names a row, the id of a record for one, is of no use in pieces.
    let names = table.rows.iter().filter(|row| row.len() > 1).filter_map(|row| longest_word(&row.first()?.text));
    if let (Some(longest), Some(first)) = (names.max(), painted.column_mut(0)) {
        first.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(longest.min(NAME_WHOLE_MAX) as u16 + 2)));
    }
    // Where numbers do not fit beside each other a row is a paragraph.
    if style != Style::PLAIN && least + NAME_WHOLE_MAX > style.width {
        let cell = |(cell, column): (&Cell, &Column)| format!("{} {}", column.name, cell.text);
        let line = |row: &Vec<Cell>| row.iter().zip(&table.columns).map(cell).collect::<Vec<_>>().join(", ");
        return table.rows.iter().map(|row| wrapped(&line(row), style.width, INDENT)).collect::<Vec<_>>().join("\n");
    }
    painted.trim_fmt()
}

/// Names of rows up to so many characters are never broken.
const NAME_WHOLE_MAX: usize = 16;

fn longest_word(text: &str) -> Option<usize> {
    text.split(' ').map(|word| word.chars().count()).max()
}

/// Columns that are left for bars beside the other columns, each with a space on both sides.
fn bar_width(table: &Table, style: Style) -> usize {
    let width = |index: usize| {
        let cells = table.rows.iter().filter(|row| row.len() > 1).filter_map(|row| row.get(index));
        let longest = cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0);
        longest.max(table.columns[index].name.chars().count()) + 2
    };
    let others: usize = (0..table.columns.len()).map(width).sum();
    style.width.saturating_sub(others).min(LONGEST_BAR)
}

/// A bar of `share` (0 to 1) of `width` columns, in eighths of a column where the style allows.
fn bar(share: f64, width: usize, style: Style) -> String {
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    if !style.rich {
        return "#".repeat((eighths + 4) / 8);
    }
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

/// A line of a table that is printed while it is measured: columns have fixed widths and are set flush right.
pub fn streamed_line<const N: usize>(widths: [usize; N], cells: [&str; N]) -> String {
    widths.iter().zip(cells).map(|(width, cell)| format!("{cell:>width$}")).collect()
}

/// A text that stands out where the style allows, by this escape sequence.
fn painted(text: &str, code: &str, style: Style) -> String {
    if style.rich { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Breaks lines at spaces; every line begins with `indent`.
fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let mut lines = vec![indent.to_owned()];
    for word in visible(text).split_whitespace() {
        let line = lines.last_mut().expect("one line at least");
        if line.len() > indent.len() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(format!("{indent}{word}"));
        } else {
            if line.len() > indent.len() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        let rich = Style { rich: true, width: 100 };
        assert_eq!(bar(0.5, 4, rich), "██");
        assert_eq!(bar(0.53125, 4, rich), "██▏");
        assert_eq!(bar(-0.2, 4, rich), "");
        assert_eq!(bar(2.0, 4, Style::PLAIN), "####");
    }

    #[test]
    fn numbers_stay_whole_on_a_narrow_terminal() {
        let columns =
            vec![Column::words("machines"), Column::number("% used"), Column::interval(), Column::number("p99")];
        let row = ["2 servers", "57.8", "[57.1, 58.4]", "1,234,567.8"].map(Cell::from).to_vec();
        let text = |width| {
            let table = Table { columns: columns.clone(), rows: vec![row.clone()] };
            table_text(&table, Style { rich: false, width })
        };
        assert_eq!(text(80).lines().count(), 2, "{}", text(80));
        let narrow = text(30);
        assert!(narrow.lines().all(|line| line.chars().count() <= 30) && narrow.contains("1,234,567.8"), "{narrow}");
    }

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrapped("one two three", 9, "  "), "  one two\n  three");
    }
}
