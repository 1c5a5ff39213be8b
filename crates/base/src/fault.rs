//! What kind of fault an error is: code decides by the kind, never by the text. The top (`exit.rs`) turns kinds into
//! exit codes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A flag or its value is wrong.
    Usage,
    /// An input file cannot be read or understood.
    Input,
    /// The target cannot be reached, or not one request succeeded.
    Unreachable,
    /// The server under test did not start, or died.
    Server,
    /// The same, because another process has the port that it was to listen on: another port may help.
    PortTaken,
    /// Something the job needs is missing or too small on this machine: a program, a library, a limit.
    Environment,
    /// It was measured, but a check failed: it is not what was asked for.
    Invalid,
    /// The record cannot be read or written.
    Store,
    /// Ctrl-C or SIGTERM.
    Interrupted,
}

impl Fault {
    /// Whether the server under test is at fault.
    pub fn is_of_server(self) -> bool {
        matches!(self, Fault::Server | Fault::PortTaken)
    }

    /// The error with this kind, unless its cause already has one: who was nearer to the fault knows it better.
    pub fn wrap(self, error: anyhow::Error) -> anyhow::Error {
        if fault_of(&error).is_some() { error } else { anyhow::Error::new(Known { fault: self, error }) }
    }
}

/// An error that knows its kind. It reads exactly like the error it wraps.
#[derive(Debug)]
struct Known {
    fault: Fault,
    error: anyhow::Error,
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Known {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Gives an error its kind.
pub trait OrFault<T> {
    /// The same result, whose error is of this kind: [`Fault::wrap`].
    fn or_fault(self, fault: Fault) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrFault<T> for Result<T, E> {
    fn or_fault(self, fault: Fault) -> anyhow::Result<T> {
        self.map_err(|error| fault.wrap(error.into()))
    }
}

/// The error of who asks for something that this program was built without. `feature`: cargo's, which has it.
pub fn left_out(what: &str, feature: &str) -> anyhow::Error {
    Fault::Environment.wrap(anyhow::anyhow!(
        "{what} is left out of this build: install the package tlsdyno, or build with the feature `{feature}`, as \
         `make install` does"
    ))
}

/// Returns an error of this kind, with this text, unless the condition holds.
#[macro_export]
macro_rules! ensure_fault {
    ($fault:ident, $holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err($crate::fault::Fault::$fault.wrap(anyhow::anyhow!($($text)+)));
        }
    };
}

/// The kind of an error: the first one given to it.
pub fn fault_of(error: &anyhow::Error) -> Option<Fault> {
    error.chain().find_map(|cause| cause.downcast_ref::<Known>()).map(|known| known.fault)
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context;

    use super::*;

    #[test]
    fn an_error_keeps_its_text_and_its_kind_under_further_context() {
        let missing = io::Error::new(io::ErrorKind::NotFound, "no such file");
        let error = Err::<(), _>(missing)
            .context("failed to read access.log")
            .or_fault(Fault::Input)
            .context("failed to make the workload")
            .unwrap_err();
        assert_eq!(fault_of(&error), Some(Fault::Input));
        assert_eq!(format!("{error:#}"), "failed to make the workload: failed to read access.log: no such file");
        let restated = Err::<(), _>(error).or_fault(Fault::Server).unwrap_err();
        assert_eq!(fault_of(&restated), Some(Fault::Input), "the first kind stays");
        assert_eq!(fault_of(&anyhow::anyhow!("odd")), None);
    }
}
