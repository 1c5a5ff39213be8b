//! `tlsdyno top`: what TLS costs the servers that run now, live, with nothing loaded into them. The share is that of
//! samples of their CPU time ([`tlsdyno_sampling`]) whose stacks lie in TLS.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

mod answer;
mod budget;
mod classify;
mod command;
mod confine;
mod counters;
mod find;
mod kinds;
mod libraries;
mod metrics;
mod part;
mod reader;
mod screen;
mod server;
mod shares;
mod what_if;

use tlsdyno_base::program::Program;
use tlsdyno_base::subcommand::subcommand;

/// The satellite with its one subcommand.
pub fn program() -> Program {
    Program { hand_on: reader::become_reader, ..Program::satellite("tlsdyno-top", vec![subcommand!("top", command)]) }
}
