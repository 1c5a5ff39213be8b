//! The kinds of experiment of this crate.

pub mod array;
pub mod cluster;

pub use tlsdyno_bench::kinds::*;
