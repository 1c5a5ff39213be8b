//! tlsdyno: a dynamometer for TLS web servers.
//!
//! The program is `main.rs`; it only calls this library, so that integration tests can use the same modules.
#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `cmd::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

pub mod cmd;
pub mod kinds;
pub mod satellites;
// Durations as people write them: the dispatcher's settings hold them too.
pub use tlsdyno_engine::time;

pub use tlsdyno_base::{
    affinity, certificate_files, choice, distribution, exchange, exit, fault, foreign, histogram, input, interrupt,
    listening, namespace, open_files, output, process_tree, random, units,
};
pub use tlsdyno_installed as installed;
pub use tlsdyno_native as native;
pub use tlsdyno_profile::sampling;
pub use tlsdyno_record::{model, store};
pub use tlsdyno_runner::{report, run};
pub use tlsdyno_servers as servers;
pub use tlsdyno_stats as stats;
pub use tlsdyno_traffic::{load, machines, network};
pub use tlsdyno_workloads as workloads;
