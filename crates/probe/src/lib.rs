//! `tlsdyno probe`: what users far away feel. A robot connects to sites again and again, after Goldberg, Buff and
//! Schmitt (1998): TCP alone, a full handshake with a GET, a resumed one with a GET.

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `output::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

pub mod buckets;
pub mod command;
mod connection;
pub mod entry;
mod fault;
mod kept;
pub mod measure;
pub mod measures;
pub mod nagios;
pub mod page;
pub mod robot;
pub mod round;
pub mod schedule;
pub mod site;
pub mod spool;
pub mod store;
pub mod summary;

use tlsdyno_base::program::Program;
use tlsdyno_base::subcommand::subcommand;

pub use fault::{Fault, FaultKind};
pub use kept::{AGES_S, Keeping};
pub use measure::measure;
pub use round::{Kept, Resumption, Round};
pub use site::{Site, SiteOptions, SiteSpec};

pub fn program() -> Program {
    let only = subcommand!("probe", command).with_short_help(
        &["url", "i_may_probe", "config", "once", "every", "store", "tls", "json", "nagios"],
        "tlsdyno probe https://localhost:8443/ --once",
    );
    Program::satellite("tlsdyno-probe", vec![only])
}
