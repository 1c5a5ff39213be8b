//! What a check finds.

use std::fmt;

/// Something that must not be, and where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The file, from the workspace's directory.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    pub what: String,
}

impl Finding {
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.what)
    }
}
