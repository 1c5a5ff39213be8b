//! The kinds of experiment of this crate.

pub mod primitives;
pub mod profile;
pub mod steps;

pub use tlsdyno_bench::kinds::*;
