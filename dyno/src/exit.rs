//! Exit codes, documented in `tlsdyno --help`, and how an error gets one.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::foreign::visible;

/// How the program ends. The numbers are part of the command line's contract: never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All went as asked.
    Done = 0,
    /// Something failed that no other code names.
    Failed = 1,
    /// A flag or its value is wrong (clap uses this number too).
    Usage = 2,
    /// An input file cannot be read or understood.
    Input = 3,
    /// The target cannot be reached, or not one request succeeded.
    Unreachable = 4,
    /// The server under test did not start, or died.
    Server = 5,
    /// Something the job needs is missing or too small on this machine: a program, a library, a limit.
    Environment = 6,
    /// Measured and printed, but with failed requests.
    Errors = 7,
    /// Measured and printed, but a check failed: it is not what was asked for (for example another share of resumed
    /// connections).
    Invalid = 8,
    /// The record could not be written; what was measured was printed.
    Store = 9,
    /// `compare`: the second result is slower.
    Slower = 10,
    /// `compare --strict`: the difference is undecided.
    Undecided = 11,
    /// Stopped by Ctrl-C; what was measured until then was printed and kept.
    Interrupted = 130,
}

/// The table in `tlsdyno --help`.
pub const HELP: &str = "\
Exit codes:
    0  all went as asked
    1  something failed that no other code names
    2  a flag or its value is wrong
    3  an input file cannot be read or understood
    4  the target cannot be reached, or not one request succeeded
    5  the server under test did not start, or died
    6  something the job needs is missing or too small on this machine
    7  measured and printed, but with failed requests
    8  measured and printed, but a check failed: it is not what was asked for
    9  the record could not be written; what was measured was printed
   10  compare: the second result is slower
   11  compare --strict: undecided
  130  stopped by Ctrl-C; what was measured until then was printed and kept";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// An error that knows its exit code. It reads exactly like the error it wraps.
#[derive(Debug)]
struct Coded {
    exit: Exit,
    error: anyhow::Error,
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Coded {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Gives an error its exit code; without one it ends the program with [`Exit::Failed`].
pub trait OrExit<T> {
    /// The same result, whose error ends the program with `exit`, unless its cause already has a code: who was nearer
    /// to the fault knows it better.
    fn or_exit(self, exit: Exit) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit) -> anyhow::Result<T> {
        self.map_err(|error| {
            let error = error.into();
            if given(&error).is_some() { error } else { anyhow::Error::new(Coded { exit, error }) }
        })
    }
}

/// The exit code of an error: the first one given to it.
pub fn code_of(error: &anyhow::Error) -> Exit {
    given(error).unwrap_or(Exit::Failed)
}

fn given(error: &anyhow::Error) -> Option<Exit> {
    error.chain().find_map(|cause| cause.downcast_ref::<Coded>()).map(|coded| coded.exit)
}

/// Prints an error once, on standard error, with its causes. A reader that closed our output (`| head`) is no error.
pub fn report(result: anyhow::Result<Exit>) -> Exit {
    match result {
        Ok(exit) => exit,
        Err(error) if is_broken_pipe(&error) => Exit::Done,
        Err(error) => {
            // Errors quote configurations and the logs of servers.
            eprintln!("tlsdyno: {}", visible(&format!("{error:#}")));
            code_of(&error)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn an_error_keeps_its_text_and_its_code_under_further_context() {
        let missing = io::Error::new(io::ErrorKind::NotFound, "no such file");
        let error = Err::<(), _>(missing)
            .context("failed to read access.log")
            .or_exit(Exit::Input)
            .context("failed to make the workload")
            .unwrap_err();
        assert_eq!(code_of(&error), Exit::Input);
        assert_eq!(format!("{error:#}"), "failed to make the workload: failed to read access.log: no such file");
        let restated = Err::<(), _>(error).or_exit(Exit::Server).unwrap_err();
        assert_eq!(code_of(&restated), Exit::Input, "the first code stays");
        assert_eq!(code_of(&anyhow::anyhow!("odd")), Exit::Failed);
    }

    #[test]
    fn every_code_is_documented() {
        use Exit::*;
        for exit in [
            Done,
            Failed,
            Usage,
            Input,
            Unreachable,
            Server,
            Environment,
            Errors,
            Invalid,
            Store,
            Slower,
            Undecided,
            Interrupted,
        ] {
            let line = format!("\n{:5}  ", exit as u8);
            assert!(HELP.contains(&line), "{exit:?} is missing from the help text");
        }
    }

    #[test]
    fn a_closed_reader_is_no_error() {
        let closed = Err(io::Error::from(io::ErrorKind::BrokenPipe)).context("failed to print");
        assert_eq!(report(closed), Exit::Done);
    }
}
