//! A document as Markdown, to be pasted into an issue or a page. What a terminal shows, tables as pipe tables
//! (GitHub Flavored Markdown, section 4.10).

use tlsdyno_base::foreign::visible;

use crate::document::{Content, Document, Item, Medium, Section, Table};

/// The whole document, ending in a line feed.
pub fn text(document: &Document) -> String {
    let title = (!document.title.is_empty()).then(|| format!("### {}", escaped(&document.title)));
    let answer = (!document.answer.is_empty()).then(|| escaped(&document.answer));
    let sections = document.sections_on(Medium::Terminal).map(section_text);
    let parts = title.into_iter().chain(answer).chain(sections).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("\n\n") + "\n"
}

fn section_text(section: &Section) -> String {
    let title = (!section.title.is_empty()).then(|| format!("**{}**", escaped(&section.title)));
    let parts = section.parts.iter().filter_map(content_text);
    title.into_iter().chain(parts).collect::<Vec<_>>().join("\n\n")
}

fn content_text(content: &Content) -> Option<String> {
    let lines = |lines: Vec<String>| Some(lines.join("\n"));
    match content {
        Content::Text(text) => Some(escaped(text)),
        Content::Notes(notes) => Some(notes.iter().map(|note| escaped(note)).collect::<Vec<_>>().join("\n\n")),
        Content::Table(table) => Some(table_text(table)),
        Content::Items(items) => lines(items.iter().map(item_text).collect()),
        Content::Facts(facts) => {
            lines(facts.iter().map(|(name, value)| format!("- {}: {}", escaped(name), escaped(value))).collect())
        }
        Content::Warnings(warnings) => {
            lines(warnings.iter().map(|warning| format!("> warning: {}", escaped(warning))).collect())
        }
        Content::Chart(_) | Content::Code(_) | Content::Folded(..) | Content::Html(_) => None,
    }
}

fn item_text(item: &Item) -> String {
    let mut text = format!("- {}", escaped(&item.head));
    item.text.iter().for_each(|line| text.push_str(&format!("\n  {}", escaped(line))));
    if !item.code.is_empty() {
        // Indented code inside a list: lines of a configuration hold no fence.
        item.code.iter().for_each(|line| text.push_str(&format!("\n\n      {}", visible(line))));
    }
    text
}

fn table_text(table: &Table) -> String {
    let table = table.on(Medium::Terminal);
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let head = line(table.columns.iter().map(|column| cell(&column.name)).collect());
    let rule = table.columns.iter().map(|column| if column.is_number() { "---:" } else { "---" }.to_owned());
    let row = |row: &Vec<crate::document::Cell>| {
        let shares =
            row.iter().map(|one| one.bar.map_or_else(|| cell(&one.text), |share| format!("{:.0} %", 100.0 * share)));
        let blank = table.columns.len().saturating_sub(row.len());
        line(shares.chain(std::iter::repeat_n(String::new(), blank)).collect())
    };
    [head, line(rule.collect())].into_iter().chain(table.rows.iter().map(row)).collect::<Vec<_>>().join("\n")
}

fn cell(text: &str) -> String {
    escaped(text).replace('\n', " ")
}

/// Text whose characters mean nothing in Markdown. Foreign text gets no markup, and control characters are shown.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in visible(text).chars() {
        if matches!(character, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '~') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Column, row};

    #[test]
    fn a_document_is_a_heading_an_answer_and_pipe_tables() {
        let columns = vec![Column::words("part"), Column::number("CPU µs"), Column::words("of").on(Medium::Page)];
        let rows = vec![row(["a|b".to_owned(), "1.0".to_owned(), "x".to_owned()], false)];
        let section = Section::titled("parts", "Parts").table(columns, rows).notes(["[1, 2]".to_owned()]);
        let document =
            Document { title: "What?".to_owned(), answer: "So.".to_owned(), ..Document::from_sections([section]) };
        let expected =
            "### What?\n\nSo.\n\n**Parts**\n\n| part | CPU µs |\n| --- | ---: |\n| a\\|b | 1.0 |\n\n\\[1, 2\\]\n";
        assert_eq!(text(&document), expected);
    }

    #[test]
    fn foreign_text_gets_no_markup() {
        assert_eq!(escaped("<img src=x> `a` \u{1b}["), "\\<img src=x\\> \\`a\\` \\\\u{1b}\\[");
    }
}
