//! What a kind of experiment is: what a file says, how it is measured, its numbers, its page, its commands. The kinds
//! themselves are in `crates/kinds/`.

mod changes;
pub mod commands;
pub mod files;
pub mod flags;
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

/// A kind of experiment, with its files, records, summaries and commands.
pub trait Kind: Sync {
    fn field(&self) -> &'static str;

    /// A key that only files of this kind have.
    fn key(&self) -> &'static str {
        self.field()
    }

    fn is_of(&self, record: &Record) -> bool {
        record.kind_part.field() == self.field()
    }

    /// Parses a file; fails on a key that is unknown or missing, or an impossible value.
    fn read(&self, file: &Written) -> Result<Box<dyn AnyExperiment>>;

    /// Computes the numbers of a record from its blocks.
    fn summary(&self, record: &Record) -> Result<Box<dyn AnySummary>>;

    /// Interim results while measuring, in at most `rows` lines; empty: nothing to show yet.
    fn so_far(&self, _record: &Record, _rows: usize) -> String {
        String::new()
    }

    fn commands(&self) -> Vec<Subcommand> {
        Vec::new()
    }
}

/// An experiment of any kind, from flags or a file.
pub trait AnyExperiment: Any + Send + Sync {
    fn question(&self) -> &str;

    /// Duration and machine of the measurement.
    fn measure(&self) -> &Measure;

    /// As an experiment file.
    fn to_toml(&self) -> Result<String>;

    /// Fills in what follows from the file, whose directory is given, and refuses impossible values with the remedy.
    fn complete(&mut self, _directory: &Path) -> Result<()> {
        Ok(())
    }

    /// Applies the flags of `tlsdyno run` to the file called `name`; fails where the kind or the file cannot have one.
    fn change(&mut self, changes: &Changes, name: &str) -> Result<()>;

    fn kind(&self) -> &'static dyn Kind;

    /// Checks the experiment, measures, and shows the result as `output` says.
    fn perform(&self, output: &OutputArgs) -> Result<Exit>;
}

/// Numbers of a record of any kind.
pub trait AnySummary {
    /// For a page and for a terminal.
    fn document(&self, record: &Record) -> Document;

    fn json(&self, record: &Record) -> String;

    /// The paper that the experiment names, with its claims beside our numbers.
    fn beside_paper(&self) -> Option<(&str, Vec<Claim>)> {
        None
    }

    /// The numbers contradict each other, or are impossible.
    fn is_contradicted(&self, _record: &Record) -> bool {
        false
    }
}

/// Reads an experiment of type `T` for a command that takes files of one kind, the last of `kinds`; files without a
/// key of theirs belong to the first. `what` names the subject in errors.
pub fn find<T: AnyExperiment>(kinds: &[&dyn Kind], which: &Path, what: &str) -> Result<T> {
    let is_other = kinds.len() > 1 && !files::has(which, kinds[kinds.len() - 1].key())?;
    let found = if is_other { None } else { Some(files::find(kinds, which)? as Box<dyn Any>) };
    match found.and_then(|found| found.downcast::<T>().ok()) {
        Some(experiment) => Ok(*experiment),
        None => bail!("{0} is not about {what}; run it with `tlsdyno run {0}`", which.display()),
    }
}

/// Implements the common part of [`AnyExperiment`] for a type with the usual fields; `inner`: of what these are.
#[macro_export]
macro_rules! any_experiment {
    ($kind:expr $(, $inner:tt)?) => {
        fn question(&self) -> &str {
            &self$(.$inner)?.question
        }

        fn measure(&self) -> &tlsdyno_record::model::Measure {
            &self$(.$inner)?.measure
        }

        fn to_toml(&self) -> anyhow::Result<String> {
            Ok(toml::to_string(self)?)
        }

        fn kind(&self) -> &'static dyn $crate::kinds::Kind {
            &$kind
        }
    };
}
pub use any_experiment;

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
