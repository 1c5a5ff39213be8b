//! What measures: the runner and what kinds of experiment share ([`run`], [`report`]), and the trait of a kind
//! ([`kinds`]).

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `output::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

pub mod kinds;
pub mod report;
pub mod run;
