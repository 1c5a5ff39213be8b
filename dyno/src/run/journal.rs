//! What experiments of every kind do with their record: begin it in the store, add block after block, and end it with
//! all that was measured.

use std::path::Path;

use anyhow::Result;

use super::observer::Observer;
use crate::fault::{Fault, fault_of};
use crate::interrupt;
use crate::store::{Block, Journal, Record, Warning};

/// A finished run. What was measured comes back even when measuring was cut short.
#[derive(Debug)]
pub struct Finished {
    /// What was measured.
    pub record: Record,
    /// Why measuring ended before its time: Ctrl-C, a server that died.
    pub cut_short: Option<anyhow::Error>,
    /// The record is in the store.
    pub stored: bool,
}

/// Begins a record in the user's store. That it cannot be kept there is told at once; the experiment goes on.
pub(crate) fn begin(record: Record, observer: &mut dyn Observer) -> Journal {
    let journal = Journal::begin(record);
    if let Some(failure) = journal.failure() {
        observer.trouble(&failure.to_string());
    }
    journal
}

/// Adds a block. The first failure of the store is told.
pub(crate) fn add(journal: &mut Journal, block: Block, observer: &mut dyn Observer) {
    let worked = journal.failure().is_none();
    journal.add_block(block);
    if worked && let Some(failure) = journal.failure() {
        observer.trouble(&failure.to_string());
    }
}

/// Ends the record with how measuring ended.
pub(crate) fn end(mut journal: Journal, outcome: Result<()>) -> Finished {
    let cut_short = outcome.err();
    if let Some(error) = &cut_short {
        let cause = match fault_of(error) {
            // Whatever was waited for then is no news.
            Some(Fault::Interrupted) => interrupt::CAUSE.to_owned(),
            _ => format!("{error:#}"),
        };
        let warning = Warning::Stopped { rounds: journal.complete_rounds(), cause };
        journal.change(|record| record.warnings.push(warning));
    }
    let (record, stored) = journal.finish(cut_short.is_none(), Path::new("."));
    Finished { record, cut_short, stored }
}
