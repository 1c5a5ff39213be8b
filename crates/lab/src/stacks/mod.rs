//! Stacks: servers with their TLS libraries, as data (`experiments/stacks`). `tlsdyno stacks` builds them,
//! `tlsdyno run stacks` measures all that there are beside each other, as one experiment of `cost` each.

pub mod apt;
mod build;
pub mod command;
mod experiment;
pub mod mirror;
mod recipe;
mod source;

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_cost::Costs;
use tlsdyno_record::store::Record;
use tlsdyno_runner::kinds::files::Written;
use tlsdyno_runner::kinds::{AnyExperiment, AnySummary, Kind};

use self::experiment::StacksExperiment;

/// A kind of file alone: the records are those of `cost`.
pub struct Stacks;

impl Kind for Stacks {
    fn field(&self) -> &'static str {
        "stacks"
    }

    fn read(&self, file: &Written) -> Result<Box<dyn AnyExperiment>> {
        Ok(Box::new(file.understood::<StacksExperiment>()?))
    }

    fn summary(&self, record: &Record) -> Result<Box<dyn AnySummary>> {
        Costs.summary(record)
    }
}

/// Where sources and what is built of them are kept: below the user's cache directory (XDG Base Directory
/// Specification 0.8).
fn home() -> Result<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let cache = cache.context("no place for stacks: neither XDG_CACHE_HOME nor HOME is an absolute path");
    Ok(cache.or_fault(Fault::Environment)?.join("tlsdyno/stacks"))
}

/// Runs a command to its end; fails with what it said.
fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.trim().lines().rev().take(3).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("; ");
    ensure!(output.status.success(), "{program} failed ({}): {last}", output.status);
    Ok(())
}
