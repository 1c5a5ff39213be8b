//! The kinds of experiment that a program knows.

use anyhow::{Context, Result};
use tlsdyno_record::store::Record;

use super::{AnySummary, Kind};
use crate::report::{Style, html, terminal};

/// All kinds of a program, in the order of their commands in the help. Files without a kind's key belong to the first;
/// a record belongs to the last kind that accepts it.
pub struct Table(pub &'static [&'static dyn Kind]);

impl Table {
    pub fn summary(&self, record: &Record) -> Result<Box<dyn AnySummary>> {
        let field = record.kind_part.field();
        // It was stopped before its subject was known: there is nothing but its question.
        let kind = self.0.iter().rev().find(|kind| kind.is_of(record)).or(self.0.first().filter(|_| field.is_empty()));
        kind.with_context(|| format!("this tlsdyno knows no `{field}` of records"))?.summary(record)
    }

    pub fn html(&self, record: &Record) -> Result<String> {
        Ok(html::page(&self.summary(record)?.document(record))?)
    }

    /// For a terminal; fails where the record cannot be parsed.
    pub fn terminal_text(&self, record: &Record, style: Style) -> Result<String> {
        Ok(terminal::text(&self.summary(record)?.document(record), style))
    }

    /// One JSON object; fails where the record cannot be parsed.
    pub fn json_text(&self, record: &Record) -> Result<String> {
        Ok(self.summary(record)?.json(record))
    }
}
