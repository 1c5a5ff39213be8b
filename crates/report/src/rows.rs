//! A table that is made column by column: each column says what it shows of the subject of a row.

use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::units::NONE;

use crate::document::{Cell, Column, Medium, Section, Table, Tone};

#[derive(Debug)]
pub struct Rows<'a, T> {
    subjects: Vec<&'a T>,
    medium: Medium,
    table: Table,
}

impl<'a, T> Rows<'a, T> {
    /// Without columns at first.
    pub fn new(subjects: impl IntoIterator<Item = &'a T>) -> Rows<'a, T> {
        let subjects: Vec<&T> = subjects.into_iter().collect();
        let rows = vec![Vec::new(); subjects.len()];
        Rows { subjects, medium: Medium::Everywhere, table: Table { columns: Vec::new(), rows } }
    }

    /// Adds columns that are shown on this medium only.
    #[must_use]
    pub fn on(self, medium: Medium, columns: impl FnOnce(Rows<'a, T>) -> Rows<'a, T>) -> Rows<'a, T> {
        let before = self.medium;
        Rows { medium: before, ..columns(Rows { medium, ..self }) }
    }

    #[must_use]
    pub fn words(self, name: impl Into<String>, text: impl Fn(&T) -> String) -> Rows<'a, T> {
        let texts: Vec<String> = self.subjects.iter().map(|subject| text(subject)).collect();
        self.column(Column::words(name), texts)
    }

    #[must_use]
    pub fn number(self, name: impl Into<String>, text: impl Fn(&T) -> String) -> Rows<'a, T> {
        let texts: Vec<String> = self.subjects.iter().map(|subject| text(subject)).collect();
        self.column(Column::number(name), texts)
    }

    /// A column of numbers that some subjects have. Without any the table has no such column.
    #[must_use]
    pub fn number_if_any(self, name: impl Into<String>, text: impl Fn(&T) -> Option<String>) -> Rows<'a, T> {
        let texts: Vec<Option<String>> = self.subjects.iter().map(|subject| text(subject)).collect();
        if texts.iter().all(Option::is_none) {
            return self;
        }
        self.column(Column::number(name), texts.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// A column of estimates, and one of their intervals. Without any estimate the table has no such columns.
    #[must_use]
    pub fn estimate(
        self,
        name: impl Into<String>,
        format: impl Fn(f64) -> String,
        value: impl Fn(&T) -> Option<Estimate>,
    ) -> Rows<'a, T> {
        let values: Vec<Option<Estimate>> = self.subjects.iter().map(|subject| value(subject)).collect();
        if values.iter().all(Option::is_none) {
            return self;
        }
        let numbers = values.iter().map(|value| value.map_or(NONE.to_owned(), |value| format(value.value))).collect();
        self.column(Column::number(name), numbers).interval(format, value)
    }

    /// A column of numbers and one of what belongs to each, which is told already.
    #[must_use]
    pub fn pair(self, name: impl Into<String>, texts: impl Fn(&T) -> [String; 2]) -> Rows<'a, T> {
        let [numbers, intervals]: [Vec<String>; 2] =
            [0, 1].map(|part| self.subjects.iter().map(|subject| std::mem::take(&mut texts(subject)[part])).collect());
        self.column(Column::number(name), numbers).column(Column::interval(), intervals)
    }

    /// A column of intervals, of the numbers in the column before. Without any the table has no such column.
    #[must_use]
    pub fn interval(self, format: impl Fn(f64) -> String, value: impl Fn(&T) -> Option<Estimate>) -> Rows<'a, T> {
        let values: Vec<Option<Estimate>> = self.subjects.iter().map(|subject| value(subject)).collect();
        if values.iter().all(Option::is_none) {
            return self;
        }
        let ends = values.iter().map(|value| value.map_or(String::new(), |value| value.ends(&format))).collect();
        self.column(Column::interval(), ends)
    }

    /// The rows of some subjects look like this, as far as they have columns already.
    #[must_use]
    pub fn toned(self, tone: Tone, is: impl Fn(&T) -> bool) -> Rows<'a, T> {
        self.last_toned(usize::MAX, tone, is)
    }

    /// Tones the cells of the last columns in rows for which `is` holds.
    #[must_use]
    pub fn last_toned(mut self, columns: usize, tone: Tone, is: impl Fn(&T) -> bool) -> Rows<'a, T> {
        let rows = self.table.rows.iter_mut().zip(&self.subjects).filter(|(_, subject)| is(subject));
        rows.flat_map(|(row, _)| row.iter_mut().rev().take(columns)).for_each(|cell| cell.tone = tone);
        self
    }

    /// A heading stands before each row for which it is another than before, where there is one. No column comes after
    /// it.
    #[must_use]
    pub fn headed(mut self, heading: impl Fn(&T) -> Option<String>) -> Rows<'a, T> {
        let mut before = None;
        for (row, subject) in std::mem::take(&mut self.table.rows).into_iter().zip(&self.subjects) {
            let heading = heading(subject);
            if heading != before {
                let cell = heading.clone().map(|text| Cell::from(text).toned(Tone::Strong));
                self.table.rows.extend(cell.map(|cell| vec![cell]));
                before = heading;
            }
            self.table.rows.push(row);
        }
        self
    }

    /// One more row, with something in the first columns only. No column comes after it.
    #[must_use]
    pub fn and(mut self, texts: impl IntoIterator<Item = String>, tone: Tone) -> Rows<'a, T> {
        let blank = std::iter::repeat(String::new());
        let cells = texts.into_iter().chain(blank).take(self.table.columns.len());
        self.table.rows.push(cells.map(|text| Cell::from(text).toned(tone)).collect());
        self
    }

    pub fn table(self) -> Table {
        self.table
    }

    fn column(mut self, column: Column, texts: Vec<String>) -> Rows<'a, T> {
        let column = if self.medium == Medium::Everywhere { column } else { column.on(self.medium) };
        self.table.columns.push(column);
        self.table.rows.iter_mut().zip(texts).for_each(|(row, text)| row.push(text.into()));
        self
    }
}

impl Section {
    /// Adds a table of these rows, where there are any.
    #[must_use]
    pub fn rows<T>(self, rows: Rows<T>) -> Section {
        let Table { columns, rows } = rows.table;
        self.table(columns, rows)
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_base::units::format_tenths;

    use super::*;

    #[test]
    fn columns_that_nobody_has_are_left_out() {
        let known = Estimate { value: 1.0, low: 0.5, high: 1.5 };
        let table = Rows::new(&[(7, Some(known)), (8, None)])
            .words("", |row| row.0.to_string())
            .estimate("known", format_tenths, |row| row.1)
            .estimate("nowhere", format_tenths, |_| None)
            .on(Medium::Page, |rows| rows.number_if_any("some", |row| row.1.map(|_| "x".to_owned())))
            .number_if_any("none", |_| None)
            .table();
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["", "known", "95 %", "some"]);
        let texts = |row: usize| table.rows[row].iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>();
        assert_eq!([texts(0), texts(1)], [["7", "1.0", "[0.5, 1.5]", "x"], ["8", NONE, "", ""]]);
        assert_eq!(table.on(Medium::Terminal).columns.len(), 3);
    }
}
