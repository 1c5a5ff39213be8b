//! `tlsdyno run FILE.toml`.

use std::path::PathBuf;

use anyhow::Result;

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::kinds::perform::OutputArgs;
use crate::kinds::{Changes, KINDS, files};

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

/// Runs the experiment.
pub fn run(args: &Args) -> Result<Exit> {
    let Some(file) = &args.file else {
        return crate::output::answer(listing()?);
    };
    let mut experiment = files::find(KINDS, file).or_fault(Fault::Input)?;
    experiment.change(&args.changes, &file.display().to_string())?;
    experiment.perform(&args.output)
}

/// The experiments that come with tlsdyno: name, measuring time, question.
fn listing() -> Result<String> {
    let widest = files::EMBEDDED.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, experiment) in files::all(KINDS)? {
        text.push_str(&format!("{name:widest$}  {:>4.0} s  {}\n", experiment.measure().time_s, experiment.question()));
    }
    Ok(text)
}
