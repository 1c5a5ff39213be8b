//! The traffic: who sends it ([`load`]), through what network ([`network`]), and how several machines send it together
//! ([`machines`]).

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

pub mod load;
pub mod machines;
pub mod network;
