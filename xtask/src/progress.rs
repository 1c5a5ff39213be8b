//! What goes on, in a line that renews itself on a terminal; nothing where it would fill a file.

use std::io::IsTerminal;

/// Replaces the line; an empty one erases it.
pub fn tell(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
    }
}
