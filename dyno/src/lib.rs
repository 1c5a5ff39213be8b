//! tlsdyno: a dynamometer for TLS web servers.
//!
//! The program is `main.rs`; it only calls this library, so that integration tests can use the same modules.
#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `cmd::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

/// Prints a line on standard error, harmless whoever wrote what it quotes. That nobody reads it is no reason to end.
macro_rules! tell {
    ($($line:tt)*) => {{
        let line = format!($($line)*);
        let line = $crate::foreign::visible(&line);
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
    }};
}

pub mod affinity;
pub mod choice;
pub mod cmd;
pub mod dispatch;
pub mod distribution;
pub mod exit;
pub mod fault;
pub mod foreign;
pub mod histogram;
pub mod input;
pub mod interrupt;
pub mod kinds;
pub mod load;
pub mod machines;
pub mod model;
pub mod native;
pub mod open_files;
pub mod printing;
pub mod probe;
pub mod process_tree;
pub mod random;
pub mod report;
pub mod run;
pub mod sampling;
pub mod servers;
pub mod stats;
pub mod store;
// Durations as people write them: the dispatcher's settings hold them too.
pub use tlsdyno_engine::time;
pub mod trace;
pub mod units;
