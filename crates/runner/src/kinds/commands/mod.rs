//! Commands that each program has for the kinds that it knows.

pub mod report;
pub mod run;
