//! `tlsdyno advise`: from an installed server to a decision. It reads the configuration, says what could be changed and
//! what is there already, and measures the rest on a copy beside the server that runs.

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `output::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

mod advice;
mod certificate;
pub mod command;
mod kind;
mod page;
mod reading;
mod record;
mod remedies;
mod rules;

pub use kind::Advised;
