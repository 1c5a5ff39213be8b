//! The kinds of experiment, a folder each: what a file says, how it is measured, its numbers, its page, its commands.
//! A new kind is a folder, and a line in the table of those that the program knows.

pub mod ablation;
mod changes;
pub mod commands;
pub mod files;
pub mod flags;
pub mod load;
pub mod perform;
mod progress;
pub mod table;

use std::any::Any;
use std::path::Path;

use anyhow::{Result, bail};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::subcommand::Subcommand;
use tlsdyno_record::model::Measure;
use tlsdyno_record::store::Record;
use tlsdyno_stats::scoreboard::Claim;

use crate::report::document::Document;
pub use changes::Changes;
use files::Written;
use perform::OutputArgs;
pub use progress::Progress;

/// A kind of experiment.
pub trait Kind: Sync {
    /// The field of its records that holds what only this kind understands.
    fn field(&self) -> &'static str;

    /// The key that only its files have.
    fn key(&self) -> &'static str {
        self.field()
    }

    /// Whether a record is of this kind.
    fn is_of(&self, record: &Record) -> bool {
        record.kind_part.field() == self.field()
    }

    /// What a file says.
    ///
    /// # Errors
    /// A key is unknown or missing, or its value cannot be.
    fn read(&self, file: &Written) -> Result<Box<dyn AnyExperiment>>;

    /// What the blocks of a record say.
    ///
    /// # Errors
    /// The record cannot be understood.
    fn summary(&self, record: &Record) -> Result<Box<dyn AnySummary>>;

    /// What was found so far, in so many lines at most, while measuring goes on; empty where there is nothing to say.
    fn so_far(&self, _record: &Record, _rows: usize) -> String {
        String::new()
    }

    /// Its subcommands.
    fn commands(&self) -> Vec<Subcommand> {
        Vec::new()
    }
}

/// An experiment of any kind, as flags or a file describe it.
pub trait AnyExperiment: Any + Send + Sync {
    /// What it asks.
    fn question(&self) -> &str;

    /// How long and where it is measured.
    fn measure(&self) -> &Measure;

    /// As a file.
    ///
    /// # Errors
    /// A value has no form in TOML.
    fn to_toml(&self) -> Result<String>;

    /// Fills in what follows from the file, which lies in `directory`, and refuses what cannot be.
    ///
    /// # Errors
    /// What is wrong, and the remedy.
    fn complete(&mut self, _directory: &Path) -> Result<()> {
        Ok(())
    }

    /// Does what `tlsdyno run` was told besides the file, which is called `name`.
    ///
    /// # Errors
    /// This kind, or this file, cannot have it.
    fn change(&mut self, changes: &Changes, name: &str) -> Result<()>;

    /// What it is an experiment of.
    fn kind(&self) -> &'static dyn Kind;

    /// Checks, measures, and shows the result as asked.
    ///
    /// # Errors
    /// It asks for what cannot be, nothing could be measured, or a report cannot be written.
    fn perform(&self, output: &OutputArgs) -> Result<Exit>;
}

/// The numbers of a record of any kind.
pub trait AnySummary {
    /// As a page and as text for a terminal.
    fn document(&self, record: &Record) -> Document;

    /// As one JSON object (docs/FORMAT.md).
    fn json(&self, record: &Record) -> String;

    /// The paper that the experiment names, and what became of its claims.
    fn beside_paper(&self) -> Option<(&str, Vec<Claim>)> {
        None
    }

    /// They contradict each other, or what is possible.
    fn is_contradicted(&self, _record: &Record) -> bool {
        false
    }
}

/// The experiment of type `T` that a file of that kind holds: for a command that takes files of one kind. `what` says
/// in an error what they are about.
///
/// # Errors
/// It cannot be read or understood, or is of another kind.
pub fn find<T: AnyExperiment>(kind: &dyn Kind, which: &Path, what: &str) -> Result<T> {
    let is_other = kind.key() != ablation::Ablation.key() && !files::has(which, kind.key())?;
    let found = if is_other { None } else { Some(files::find(&[&ablation::Ablation, kind], which)? as Box<dyn Any>) };
    match found.and_then(|found| found.downcast::<T>().ok()) {
        Some(experiment) => Ok(*experiment),
        None => bail!("{0} is not about {what}; run it with `tlsdyno run {0}`", which.display()),
    }
}

/// What is the same of each experiment with these fields.
#[macro_export]
macro_rules! any_experiment {
    () => {
        fn question(&self) -> &str {
            &self.question
        }

        fn measure(&self) -> &tlsdyno_record::model::Measure {
            &self.measure
        }

        fn to_toml(&self) -> anyhow::Result<String> {
            Ok(toml::to_string(self)?)
        }
    };
}
pub use any_experiment;

/// What is the same of each kind with an experiment, a part of the record and numbers of its own.
#[macro_export]
macro_rules! any_kind {
    ($experiment:ty, $part:ty, $summary:ty) => {
        fn field(&self) -> &'static str {
            <$part as tlsdyno_record::store::OfKind>::FIELD
        }

        fn read(&self, file: &$crate::kinds::files::Written) -> anyhow::Result<Box<dyn $crate::kinds::AnyExperiment>> {
            Ok(Box::new(file.understood::<$experiment>()?))
        }

        fn summary(
            &self,
            record: &tlsdyno_record::store::Record,
        ) -> anyhow::Result<Box<dyn $crate::kinds::AnySummary>> {
            Ok(Box::new(<$summary>::of(record)?))
        }
    };
}
pub use any_kind;
