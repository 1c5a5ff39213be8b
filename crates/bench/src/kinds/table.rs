//! The kinds of experiment that a program knows.

use anyhow::{Context, Result};
use tlsdyno_record::store::Record;

use super::{AnySummary, Kind};
use crate::report::{Style, html, terminal};

/// All kinds of a program, in the order of their commands in the help. Files without any other's key are of the first;
/// a record is of the last that takes it.
pub struct Table(pub &'static [&'static dyn Kind]);

impl Table {
    /// The numbers of a record.
    ///
    /// # Errors
    /// It is of none of these kinds, or cannot be understood.
    pub fn summary(&self, record: &Record) -> Result<Box<dyn AnySummary>> {
        let field = record.kind_part.field();
        // It was stopped before its subject was known: there is nothing but its question.
        let kind = self.0.iter().rev().find(|kind| kind.is_of(record)).or(self.0.first().filter(|_| field.is_empty()));
        kind.with_context(|| format!("this tlsdyno knows no `{field}` of records"))?.summary(record)
    }

    /// The results of a record as one self-contained HTML file.
    ///
    /// # Errors
    /// The record cannot be understood.
    pub fn html(&self, record: &Record) -> Result<String> {
        Ok(html::page(&self.summary(record)?.document(record))?)
    }

    /// The results of a record as text for a terminal.
    ///
    /// # Errors
    /// The record cannot be understood.
    pub fn terminal_text(&self, record: &Record, style: Style) -> Result<String> {
        Ok(terminal::text(&self.summary(record)?.document(record), style))
    }

    /// The results of a record as one JSON object.
    ///
    /// # Errors
    /// The record cannot be understood.
    pub fn json_text(&self, record: &Record) -> Result<String> {
        Ok(self.summary(record)?.json(record))
    }
}
