//! What every part of tlsdyno needs. Nothing here knows of experiments, servers under test or no-ops.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `output::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

/// Prints a line on standard error, harmless whoever wrote what it quotes. That nobody reads it is no reason to end.
#[macro_export]
macro_rules! tell {
    ($($line:tt)*) => {{
        let line = format!($($line)*);
        let line = $crate::foreign::visible(&line);
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
    }};
}

pub mod affinity;
pub mod bootstrap;
pub mod certificate_files;
pub mod choice;
pub mod distribution;
pub mod exchange;
pub mod exit;
pub mod fault;
pub mod foreign;
pub mod help;
pub mod histogram;
pub mod input;
pub mod interrupt;
pub mod least_squares;
pub mod listening;
pub mod metrics;
pub mod namespace;
pub mod open_files;
pub mod output;
pub mod pages;
pub mod permission;
pub mod private;
pub mod process_tree;
pub mod program;
pub mod protocol;
pub mod random;
pub mod robust;
mod socket_diag;
pub mod store_path;
pub mod subcommand;
#[cfg(feature = "screen")]
pub mod terminal;
pub mod units;
pub mod until;
pub mod url;
pub mod verdict;
mod written_command;
