//! Pages whose bodies are asked for when they are requested, instead of being there.

use std::fmt::Debug;

/// Who is asked, of one worker. It does nothing else meanwhile, as in a server with a process for each connection.
pub trait Pages: Debug + Send {
    /// The body of the page at this path; `None`: it cannot be had.
    fn body(&mut self, path: &[u8]) -> Option<Vec<u8>>;
}
