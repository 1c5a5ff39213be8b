//! Exit codes, documented in `tlsdyno --help`, and which one an error ends with.

use std::io;
use std::process::ExitCode;

use crate::fault::{Fault, fault_of};
use crate::foreign::shortened;

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
    /// `compare`, `load --against`: the second is slower.
    Slower = 10,
    /// `compare --strict`, `load --against --strict`: the difference is undecided.
    Undecided = 11,
    /// `--fail-if` of `load` and `compare`: measured and printed, but a limit was broken.
    Limit = 12,
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
   10  compare, load --against: the second is slower
   11  compare --strict: undecided
   12  load --fail-if: measured and printed, but a limit was broken
  130  stopped by Ctrl-C; what was measured until then was printed and kept";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

impl From<Option<Fault>> for Exit {
    fn from(fault: Option<Fault>) -> Exit {
        match fault {
            None => Exit::Failed,
            Some(Fault::Usage) => Exit::Usage,
            Some(Fault::Input) => Exit::Input,
            Some(Fault::Unreachable) => Exit::Unreachable,
            Some(Fault::Server | Fault::PortTaken) => Exit::Server,
            Some(Fault::Environment) => Exit::Environment,
            Some(Fault::Invalid) => Exit::Invalid,
            Some(Fault::Store) => Exit::Store,
            Some(Fault::Interrupted) => Exit::Interrupted,
        }
    }
}

/// The exit code of an error.
pub fn code_of(error: &anyhow::Error) -> Exit {
    fault_of(error).into()
}

/// Prints an error once, on standard error, with its causes. A reader that closed our output (`| head`) is no error.
pub fn report(result: anyhow::Result<Exit>) -> Exit {
    match result {
        Ok(exit) => exit,
        Err(error) if is_broken_pipe(&error) => Exit::Done,
        Err(error) => {
            // Errors quote configurations and the logs of servers.
            tell!("tlsdyno: {}", shortened(&format!("{error:#}")));
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
            Limit,
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
