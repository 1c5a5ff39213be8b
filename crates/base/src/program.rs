//! What every program does alike. `tlsdyno` is the core; its satellites are programs of their own with a part of its
//! subcommands, which it starts by name.

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use rustix::fs::{Access, Mode, access};
use rustix::process::umask;

use crate::exit::{self, Exit};
use crate::fault::{Fault, OrFault};
use crate::help::{self, Below};
use crate::output;
use crate::subcommand::Subcommand;
use crate::written_command::Written;

/// The program that has the load process, the supervisor, the built-in server and the worker.
pub const CORE: &str = "tlsdyno";

/// The argument by which the core asks a satellite for its flags.
const DESCRIBE: &str = "--describe-commands";

/// Which program this is, once it has started.
static STARTED: OnceLock<&str> = OnceLock::new();

/// A program's command line: its subcommands. A satellite with one subcommand takes its flags at once.
pub struct Program {
    /// The file's name.
    pub file: &'static str,
    /// In the order of the help.
    pub subcommands: Vec<Subcommand>,
    /// Commands of the core that a satellite has, too, for its own kinds of files and records.
    pub shared: Vec<Subcommand>,
    /// What `-h` shows of commands below them.
    pub below: Below,
    /// What the list of all commands has besides.
    pub whole: fn(Command) -> Command,
    /// Answers an error of a subcommand in other words than clap's.
    pub explain: Explain,
    /// Becomes another program that these words are for.
    pub hand_on: HandOn,
}

/// An error, the subcommand that it is about, and all words of the command line.
pub type Explain = fn(&Error, &mut Command, &[String]) -> Option<Error>;

/// Returns only where it does not become another program.
pub type HandOn = fn(&[OsString]) -> Result<Option<Infallible>>;

impl Program {
    /// A satellite with these subcommands, and nothing of its own besides.
    pub fn satellite(file: &'static str, subcommands: Vec<Subcommand>) -> Program {
        Program {
            file,
            subcommands,
            shared: Vec::new(),
            below: &[],
            whole: |command| command,
            explain: |_, _, _| None,
            hand_on: |_| Ok(None),
        }
    }

    /// Runs this program to its end.
    pub fn main(self) -> ExitCode {
        // Nobody else may change what tlsdyno writes, and root runs what some of it says.
        let others = Mode::WGRP | Mode::WOTH;
        umask(umask(others) | others);
        let _ = STARTED.set(self.file);
        exit::report(self.answer(env::args_os().skip(1).collect())).into()
    }

    fn answer(&self, mut words: Vec<OsString>) -> Result<Exit> {
        let is_satellite = self.file != CORE;
        match words.first().and_then(|word| word.to_str()) {
            Some(DESCRIBE) if is_satellite => return output::answer(self.described()?),
            Some("--version" | "-V") if is_satellite => {
                return output::answer(format!("{} {}\n", self.file, env!("CARGO_PKG_VERSION")));
            }
            _ => {}
        }
        (self.hand_on)(&words)?;
        if let ([only], []) = (&self.subcommands[..], &self.shared[..]) {
            words.insert(0, only.name.into());
        }
        self.run(words)
    }

    /// The command line with all subcommands, for helps, completions and the man page.
    pub fn command(&self) -> Command {
        (self.whole)(self.of(&self.subcommands.iter().collect::<Vec<_>>()))
    }

    fn all(&self) -> impl Iterator<Item = &Subcommand> {
        self.subcommands.iter().chain(&self.shared)
    }

    /// The command line with these subcommands.
    fn of(&self, subcommands: &[&Subcommand]) -> Command {
        let command = Command::new(CORE)
            .version(env!("CARGO_PKG_VERSION"))
            .max_term_width(110)
            .after_long_help(exit::HELP)
            .subcommand_required(true)
            .arg_required_else_help(true)
            .subcommands(subcommands.iter().map(|one| help::shortened(one.command(), self.below)));
        help::with_helps(command)
    }

    /// The command line that these arguments are parsed with. The flags of all commands would take ten times as long,
    /// and each server under test is started by several processes of ours.
    fn parser(&self, words: &[String]) -> Command {
        let named = self.all().find(|one| words.first().is_some_and(|name| name == one.name));
        named.map_or_else(|| self.command(), |one| self.of(&[one]))
    }

    /// Parses the words and runs the subcommand. Wrong words end the process here, with [`Exit::Usage`].
    fn run(&self, given: Vec<OsString>) -> Result<Exit> {
        let words: Vec<String> = given.iter().map(|word| word.to_string_lossy().into()).collect();
        if let Some(text) = help::asked_for(&words, |words| self.parser(words)) {
            return output::answer(text);
        }
        let given = [OsString::from(CORE)].into_iter().chain(given);
        let given = self.parser(&words).try_get_matches_from(given);
        let given = given.unwrap_or_else(|error| self.explained(error, &words).exit());
        let (name, given) = given.subcommand().expect("clap refuses a command line without one");
        let asked = self.all().find(|one| one.name == name);
        asked.expect("clap refuses what is none of them").run(given)
    }

    /// An error of the command line as it is told: without tips that mean something else.
    pub fn explained(&self, mut error: Error, words: &[String]) -> Error {
        let mut command = self.command();
        command.build();
        let name = words.first().map(String::as_str).unwrap_or_default();
        let Some(of) = command.find_subcommand_mut(name) else { return error };
        if let Some(explained) = (self.explain)(&error, of, words) {
            return explained;
        }
        drop_false_tips(&mut error);
        error
    }

    /// Its subcommands by themselves.
    pub fn commands(&self) -> impl Iterator<Item = Command> {
        self.subcommands.iter().map(|one| help::shortened(one.command(), self.below))
    }

    /// Its subcommands as [`described_by`] reads them.
    fn described(&self) -> Result<String> {
        // Flags may conflict with those of the helps, and with groups that are there once a command is built.
        let written = self.commands().map(|one| {
            let mut one = help::with_helps(one).disable_help_subcommand(true);
            one.build();
            Written::from(&one)
        });
        output::json_of(&written.collect::<Vec<_>>())
    }
}

/// The subcommands of the satellite in this file, with their flags, for helps, completions and man pages.
///
/// # Errors
/// It does not run, or is of another version.
pub fn described_by(satellite: &Path) -> Result<Vec<Command>> {
    let read = || -> Result<Vec<Written>> {
        let output = process::Command::new(satellite).arg(DESCRIBE).stderr(Stdio::inherit()).output()?;
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let commands = read().with_context(|| format!("{} does not tell its flags", satellite.display()));
    Ok(commands.or_fault(Fault::Environment)?.into_iter().map(Command::from).collect())
}

/// The flag that clap does not know.
pub fn unknown_flag(error: &Error) -> Option<&str> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::UnknownArgument => word.split('=').next(),
        _ => None,
    }
}

/// Leaves a tip only where it is a misspelling, by a letter in four at most: clap's own are about anything that has
/// letters in common, and that a flag could be meant as a value.
fn drop_false_tips(error: &mut Error) {
    error.remove(ContextKind::Suggested);
    let Some(unknown) = unknown_flag(error).map(str::to_owned) else { return };
    let Some(ContextValue::String(tip)) = error.get(ContextKind::SuggestedArg) else { return };
    if strsim::damerau_levenshtein(&unknown, tip) > unknown.len() / 4 {
        error.remove(ContextKind::SuggestedArg);
        // It is that of the tip.
        error.remove(ContextKind::Usage);
    }
}

/// The core's program: this one, also when its file was replaced meanwhile, or for a satellite the one that is
/// installed with it.
///
/// # Errors
/// There is none.
pub fn core() -> Result<PathBuf> {
    if STARTED.get().is_some_and(|file| *file != CORE) {
        let missing = || format!("{CORE} is missing beside this program and on the path; install it, too");
        return find(CORE).with_context(missing).or_fault(Fault::Environment);
    }
    let path = env::current_exe().context("find the tlsdyno program itself")?;
    Ok(if path.exists() { path } else { PathBuf::from("/proc/self/exe") })
}

/// A program of ours by its file's name: beside this one, wherever links to it stand, or on the path.
pub fn find(file: &str) -> Option<PathBuf> {
    let beside = env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
    let path = env::var_os("PATH").unwrap_or_default();
    // Whoever chooses the working directory must not choose the program.
    let on_path = env::split_paths(&path).filter(|directory| directory.is_absolute());
    executable_in(beside.into_iter().chain(on_path), file)
}

/// The first file of this name that this user may execute.
pub fn executable_in(mut directories: impl Iterator<Item = PathBuf>, file: &str) -> Option<PathBuf> {
    let is_executable = |path: &PathBuf| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    directories.find_map(|directory| Some(directory.join(file)).filter(is_executable))
}

/// Becomes this program: signals, standard streams and the exit code are those of the caller. With a name, it is called
/// by that instead of its path.
///
/// # Errors
/// It cannot be started.
pub fn become_program(path: &Path, words: &[OsString], name: Option<OsString>) -> Result<Infallible> {
    let mut command = process::Command::new(path);
    command.arg0(name.as_deref().unwrap_or(path.as_os_str()));
    let error = command.args(words).exec();
    Err(error).with_context(|| format!("failed to run {}", path.display())).or_fault(Fault::Environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_beside_this_one_and_on_the_path() {
        let own = env::current_exe().unwrap();
        assert_eq!(find(own.file_name().unwrap().to_str().unwrap()), Some(own.clone()));
        assert!(find("sh").unwrap().is_absolute());
        assert_eq!(find("no-such-program"), None);
        assert_eq!(core().unwrap(), own, "no satellite has started");
    }
}
