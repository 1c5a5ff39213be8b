//! The texts of a chain of files as one: every place in it belongs to one file, also after their tables were merged.

use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use toml::Spanned;
use toml::de::DeTable;

use super::source::Source;

pub struct Texts<'s> {
    sources: &'s [Source],
    /// Each text after as many spaces as the texts before it are long, so that places in it are places in the
    /// concatenation.
    padded: Vec<String>,
}

impl<'s> Texts<'s> {
    /// `sources`: at least one.
    pub fn of(sources: &'s [Source]) -> Texts<'s> {
        let mut start = 0;
        let padded = sources.iter().map(|source| {
            let text = " ".repeat(start) + &source.text;
            // Between two texts is one byte, so that the end of one is not the start of the next.
            start = text.len() + 1;
            text
        });
        Texts { sources, padded: padded.collect() }
    }

    /// Parsed TOML of each, with places in the concatenation.
    pub fn tables(&self) -> Result<Vec<DeTable<'_>>> {
        let parsed = self.padded.iter().map(|text| DeTable::parse(text).map(Spanned::into_inner));
        parsed
            .map(|table| {
                table.map_err(|error| self.fault(error.span().unwrap_or_else(|| self.last()), error.message()))
            })
            .collect()
    }

    /// Place of the last text.
    pub fn last(&self) -> Range<usize> {
        let start = self.start_of(self.sources.len() - 1);
        start..start
    }

    /// An error at a place, which names its file.
    pub fn fault(&self, span: Range<usize>, message: &str) -> anyhow::Error {
        let (source, start) = self.at(span.start);
        source.fault(span.start - start..span.end.saturating_sub(start), message)
    }

    /// Directory of the file that names a log or a recording: relative paths start there.
    pub fn directory_of_workload(&self, table: &DeTable) -> &'s Path {
        let workload = table.get("workload").and_then(|workload| workload.get_ref().as_table());
        let path = workload.and_then(|workload| workload.get("path"));
        let start = path.map_or(self.last().start, |path| path.span().start);
        &self.at(start).0.directory
    }

    /// The source with the byte at `place`, and the place of its first byte.
    fn at(&self, place: usize) -> (&'s Source, usize) {
        let index = self.padded.iter().position(|text| place <= text.len()).unwrap_or(self.sources.len() - 1);
        (&self.sources[index], self.start_of(index))
    }

    fn start_of(&self, index: usize) -> usize {
        self.padded[index].len() - self.sources[index].text.len()
    }
}
