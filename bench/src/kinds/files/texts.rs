//! The texts of a chain of files as one: every place in it belongs to one file, also after their tables were merged.

use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::source::Source;

/// Several sources, one behind the other.
pub struct Texts<'s> {
    sources: &'s [Source],
}

impl<'s> Texts<'s> {
    /// Those of `sources`, of which there is at least one.
    pub fn of(sources: &'s [Source]) -> Texts<'s> {
        Texts { sources }
    }

    /// The table of each, with places in all texts.
    ///
    /// # Errors
    /// One is not TOML.
    pub fn tables(&self) -> Result<Vec<DeTable<'s>>> {
        let tables = self.sources.iter().enumerate();
        tables.map(|(index, source)| Ok(shifted(source.table()?, self.start_of(index)))).collect()
    }

    /// The last text's place.
    pub fn last(&self) -> Range<usize> {
        let start = self.start_of(self.sources.len() - 1);
        start..start
    }

    /// An error at a place, told of its file.
    pub fn fault(&self, span: Range<usize>, message: &str) -> anyhow::Error {
        let (source, start) = self.at(span.start);
        source.fault(span.start - start..span.end.saturating_sub(start), message)
    }

    /// Where a log or a recording is looked for: beside the file that names it.
    pub fn directory_of_workload(&self, table: &DeTable) -> &'s Path {
        let workload = table.get("workload").and_then(|workload| workload.get_ref().as_table());
        let path = workload.and_then(|workload| workload.get("path"));
        let start = path.map_or(self.last().start, |path| path.span().start);
        &self.at(start).0.directory
    }

    /// The source that holds the byte at `place`, and where it starts.
    fn at(&self, place: usize) -> (&'s Source, usize) {
        let mut start = 0;
        for source in &self.sources[..self.sources.len() - 1] {
            if place <= start + source.text.len() {
                return (source, start);
            }
            start += source.text.len() + 1;
        }
        (&self.sources[self.sources.len() - 1], start)
    }

    /// Between two texts is one byte, so that the end of one is not the start of the next.
    fn start_of(&self, index: usize) -> usize {
        self.sources[..index].iter().map(|source| source.text.len() + 1).sum()
    }
}

/// The same table with all places `by` bytes further on.
fn shifted(table: DeTable, by: usize) -> DeTable {
    let moved = |span: Range<usize>| span.start + by..span.end + by;
    let entries = table.into_iter();
    let entries =
        entries.map(|(key, value)| (Spanned::new(moved(key.span()), key.into_inner()), shifted_value(value, by)));
    entries.collect()
}

fn shifted_value(value: Spanned<DeValue>, by: usize) -> Spanned<DeValue> {
    let span = value.span();
    let inner = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(shifted(table, by)),
        DeValue::Array(entries) => DeValue::Array(entries.into_iter().map(|entry| shifted_value(entry, by)).collect()),
        other => other,
    };
    Spanned::new(span.start + by..span.end + by, inner)
}
