//! The experiment: its model, how it is planned, run and verified.

pub mod cpus;
pub mod exchange;
pub mod files;
pub mod hardware;
pub mod job;
mod load_process;
mod manifest;
pub mod model;
pub mod occurrence;
pub mod preflight;
mod rig;
pub mod run;
pub mod schedule;
pub mod verify;
