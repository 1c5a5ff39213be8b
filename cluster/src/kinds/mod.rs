//! The kinds of experiment of this crate.

pub mod array;
pub mod cluster;
mod several_machines;

pub use tlsdyno_bench::kinds::*;
