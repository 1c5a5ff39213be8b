//! The experiment: its model, how it is planned, run and verified.

pub mod job;
