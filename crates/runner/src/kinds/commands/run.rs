//! `tlsdyno run FILE.toml`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::output;

use crate::kinds::perform::OutputArgs;
use crate::kinds::table::Table;
use crate::kinds::{Changes, files};

/// Runs an experiment: a TOML file, or one that comes with tlsdyno, by its name
///
/// For example `tlsdyno run coarfa-2006-fig7 --server apache-prefork`, or `tlsdyno run remedies`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A file (`tlsdyno ablate --print-experiment` writes one to start from) or a name from --list
    #[arg(value_name = "EXPERIMENT", required_unless_present = "list")]
    file: Option<PathBuf>,
    /// List the experiments that come with tlsdyno, with their questions and times, and run nothing
    #[arg(long, exclusive = true)]
    list: bool,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    /// The experiment to run; `None`: --list.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    pub fn perform(&self, kinds: &Table) -> Result<Exit> {
        let Some(file) = self.file() else {
            return output::answer(listing()?);
        };
        let mut experiment = files::find(kinds.0, file).or_fault(Fault::Input)?;
        experiment.change(&self.changes, &file.display().to_string())?;
        experiment.perform(&self.output)
    }
}

/// Name, measuring time and question of each experiment that comes with tlsdyno.
fn listing() -> Result<String> {
    let widest = files::EMBEDDED.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, outline) in files::outlines()? {
        text.push_str(&format!("{name:widest$}  {:>4.0} s  {}\n", outline.measure.time_s, outline.question));
    }
    Ok(text)
}
