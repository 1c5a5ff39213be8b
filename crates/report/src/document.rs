//! What a report says, before it is text for a terminal or a page: headings, sentences, tables, lists and charts. Each
//! kind of record becomes a [`Document`]; the renderers know nothing of records.

use serde_json::{Value, json};
use tlsdyno_base::foreign::visible;

#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The question. Empty: the terminal shows the sections alone.
    pub title: String,
    /// Where and when it was measured: above the question of a page.
    pub meta: String,
    pub answer: String,
    /// The section that a page points to from its top, and what it says.
    pub see_also: Option<(&'static str, String)>,
    /// Other pages of the same server, with their addresses.
    pub links: Vec<(String, String)>,
    pub sections: Vec<Section>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    #[default]
    Everywhere,
    /// On pages only, as it is too wide or too long for a terminal.
    Page,
    /// On terminals only, as a page has better.
    Terminal,
}

impl Medium {
    fn is_on(self, target: Medium) -> bool {
        self == Medium::Everywhere || self == target
    }
}

#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Identifies it in a page; may be empty.
    pub id: &'static str,
    /// Its heading; may be empty.
    pub title: String,
    pub medium: Medium,
    /// Wide pages show its charts on the left of the rest.
    pub two_columns: bool,
    pub parts: Vec<Content>,
}

#[derive(Clone, Debug)]
pub enum Content {
    Text(String),
    /// Remarks about what stands above them.
    Notes(Vec<String>),
    Table(Table),
    Items(Vec<Item>),
    Facts(Vec<(String, String)>),
    /// Doubts that a reader must know of.
    Warnings(Vec<String>),
    Chart(Chart),
    /// Text as it is, on pages only.
    Code(String),
    /// What a page shows on request, under this name.
    Folded(String, Vec<Content>),
    /// HTML that the program itself brings along, on pages only.
    Html(String),
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The first column names the row.
    pub columns: Vec<Column>,
    /// Cells of each row; a row of one cell heads those below it.
    pub rows: Vec<Vec<Cell>>,
}

/// A column with what it says of the subject of a row.
pub type Field<T> = (Column, fn(&T) -> String);

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub class: &'static str,
    pub medium: Medium,
}

#[derive(Clone, Debug, Default)]
pub struct Cell {
    pub text: String,
    pub tone: Tone,
    /// A bar of this part of the longest, instead of a text.
    pub bar: Option<f64>,
    /// The colour that stands for it in the charts of the page.
    pub colour: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    /// Nothing was decided here.
    Muted,
    /// A heading of rows.
    Strong,
    /// A fault: the value must not be used.
    Bad,
}

impl Tone {
    pub fn class(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Strong => "strong",
            Tone::Muted => "muted",
            Tone::Bad => "bad",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Item {
    pub head: String,
    pub text: Vec<String>,
    pub code: Vec<String>,
    pub muted: bool,
}

/// A chart with what somebody who cannot see it needs to know.
#[derive(Clone, Debug)]
pub struct Chart {
    pub id: String,
    pub caption: String,
    /// What it shows, in words and main numbers.
    pub alternative: String,
    /// Data and form as a Vega-Lite 6 specification. Colours of text and grid come from the page.
    pub specification: Value,
}

impl Document {
    /// A report without question and answer.
    pub fn from_sections(sections: impl IntoIterator<Item = Section>) -> Document {
        Document { sections: sections.into_iter().collect(), ..Document::default() }
    }

    /// This as a page, of which only `brief` is offered to paste.
    pub fn pasted(self, brief: Document) -> Document {
        let brief_sections = brief.sections.into_iter().map(|section| section.on(Medium::Terminal));
        let rest = self.sections.into_iter().map(|section| section.on(Medium::Page));
        Document { answer: brief.answer, sections: brief_sections.chain(rest).collect(), ..self }
    }

    pub fn sections_on(&self, target: Medium) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(move |section| section.medium.is_on(target) && !section.parts.is_empty())
    }
}

impl Section {
    pub fn titled(id: &'static str, title: impl Into<String>) -> Section {
        Section { id, title: title.into(), ..Section::default() }
    }

    /// Shows it on this medium only.
    pub fn on(self, medium: Medium) -> Section {
        Section { medium, ..self }
    }

    pub fn with(mut self, content: Content) -> Section {
        self.parts.push(content);
        self
    }

    pub fn text(self, text: impl Into<String>) -> Section {
        self.with(Content::Text(text.into()))
    }

    /// Adds remarks, where there are any.
    pub fn notes(self, notes: impl IntoIterator<Item = String>) -> Section {
        let notes: Vec<String> = notes.into_iter().collect();
        if notes.is_empty() { self } else { self.with(Content::Notes(notes)) }
    }

    /// Adds a table, where it has rows.
    pub fn table(self, columns: Vec<Column>, rows: Vec<Vec<Cell>>) -> Section {
        if rows.is_empty() { self } else { self.with(Content::Table(Table { columns, rows })) }
    }

    /// Adds charts, where there are any.
    pub fn charts(mut self, charts: impl IntoIterator<Item = Chart>) -> Section {
        self.parts.extend(charts.into_iter().map(Content::Chart));
        self
    }
}

impl Table {
    /// A table with a row for each subject.
    pub fn from_fields<'a, T: 'a>(
        fields: impl IntoIterator<Item = Field<T>>,
        subjects: impl IntoIterator<Item = &'a T>,
    ) -> Table {
        let fields: Vec<Field<T>> = fields.into_iter().collect();
        let line = |subject| fields.iter().map(|(_, text)| text(subject).into()).collect();
        let rows = subjects.into_iter().map(line).collect();
        Table { columns: fields.into_iter().map(|(column, _)| column).collect(), rows }
    }

    /// Only the columns that are shown on this medium.
    pub fn on(&self, target: Medium) -> Table {
        let is_shown = |index: usize| self.columns.get(index).is_some_and(|column| column.medium.is_on(target));
        let row = |row: &Vec<Cell>| -> Vec<Cell> {
            let shown = row.iter().enumerate().filter(|(index, _)| row.len() == 1 || is_shown(*index));
            shown.map(|(_, cell)| cell.clone()).collect()
        };
        let columns = self.columns.iter().filter(|column| column.medium.is_on(target)).cloned().collect();
        Table { columns, rows: self.rows.iter().map(row).collect() }
    }

    pub fn has_header(&self) -> bool {
        self.columns.iter().any(|column| !column.name.is_empty())
    }
}

impl Column {
    pub fn words(name: impl Into<String>) -> Column {
        Column { name: name.into(), class: "", medium: Medium::Everywhere }
    }

    /// A column of numbers, set flush right.
    pub fn number(name: impl Into<String>) -> Column {
        Column { class: "number", ..Column::words(name) }
    }

    /// The 95 % interval of the number before it.
    pub fn interval() -> Column {
        Column { class: "number interval", ..Column::words("95 %") }
    }

    /// Shows it on this medium only.
    pub fn on(self, medium: Medium) -> Column {
        Column { medium, ..self }
    }

    pub fn is_number(&self) -> bool {
        !self.class.is_empty()
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }
}

impl Cell {
    pub fn toned(self, tone: Tone) -> Cell {
        Cell { tone, ..self }
    }
}

/// A row of texts, muted where nothing was decided.
pub fn row(texts: impl IntoIterator<Item = String>, muted: bool) -> Vec<Cell> {
    let tone = if muted { Tone::Muted } else { Tone::Plain };
    texts.into_iter().map(|text| Cell::from(text).toned(tone)).collect()
}

/// `Key agreement` for `key agreement`.
pub fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

impl Chart {
    /// A chart of `rows`, of that many pixels' height; `None` without rows. `body` is the rest of the specification.
    pub fn new(id: impl Into<String>, height: usize, rows: Vec<Value>, mut body: Value) -> Option<Chart> {
        if rows.is_empty() {
            return None;
        }
        body["$schema"] = json!("https://vega.github.io/schema/vega-lite/v6.json");
        body["width"] = json!("container");
        body["autosize"] = json!({"type": "fit-x", "contains": "padding"});
        body["height"] = json!(height);
        body["data"] = json!({"values": rows});
        Some(Chart { id: id.into(), caption: String::new(), alternative: String::new(), specification: body })
    }

    /// The same with the words about it.
    pub fn described(self, caption: impl Into<String>, alternative: impl Into<String>) -> Chart {
        Chart { caption: caption.into(), alternative: alternative.into(), ..self }
    }

    /// The specification for a script element. In JSON a `<` may be written as an escape, so that no text in a chart
    /// can end the element.
    pub fn script(&self) -> String {
        let visible = text_by_text(&self.specification, &|text| visible(text).into_owned());
        visible.to_string().replace('<', "\\u003c")
    }
}

/// The same JSON with each text changed.
fn text_by_text(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(values) => values.iter().map(|value| text_by_text(value, change)).collect(),
        Value::Object(entries) => {
            entries.iter().map(|(name, value)| (name.clone(), text_by_text(value, change))).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_chart_can_end_its_script_element() {
        let chart = Chart::new("x", 1, vec![json!({"name": "</script><b>"})], json!({})).expect("a row");
        assert!(!chart.script().contains('<'));
        assert_eq!(serde_json::from_str::<Value>(&chart.script()).expect("JSON"), chart.specification);
    }

    #[test]
    fn tables_show_the_columns_of_a_place() {
        let columns = vec![Column::words("a"), Column::number("b").on(Medium::Page)];
        let rows = vec![row(["1".to_owned(), "2".to_owned()], false), vec!["head".into()]];
        let shown = Table { columns, rows }.on(Medium::Terminal);
        assert_eq!((shown.columns.len(), shown.rows[0].len(), shown.rows[1].len()), (1, 1, 1));
    }
}
