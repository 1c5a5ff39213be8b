//! A record of tlsdyno: what an experiment asks ([`model`]), what was measured, and where both are kept ([`store`]).

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod model;
pub mod store;
