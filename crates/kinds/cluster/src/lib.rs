//! Several machines: clusters behind dispatchers, and arrays of proxies before a server.

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `output::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod array;
pub mod cluster;
mod several_machines;
