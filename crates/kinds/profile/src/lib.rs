//! Where the time of a handshake goes inside the server: calls, steps, samples of the CPU.

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `output::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

pub mod profile;
pub mod sampling;
pub mod steps;
