//! How many machines carry a site, and what a change would save: `tlsdyno plan`. Costs come from records, with their
//! intervals; equations and a simulation in virtual time make sizes of them.

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `output::print` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

mod check;
pub mod command;
pub mod costs;
mod fit;
mod lifetimes;
pub mod measured;
pub mod model;
mod page;
#[cfg(test)]
mod papers;
pub mod queue;
pub mod simulate;
mod simulated;
mod traffic;
mod what_if;
