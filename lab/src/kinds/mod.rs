//! The kinds of experiment of this crate.

pub mod probe_weeks;

pub use tlsdyno_bench::kinds::*;
