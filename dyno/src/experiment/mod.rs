//! The experiment: its model, how it is planned, run and verified.

pub mod admission;
mod control_characters;
pub mod cpus;
pub mod credentials;
pub mod exchange;
pub mod files;
pub mod hardware;
pub mod job;
pub mod journal;
pub(crate) mod lines;
pub(crate) mod load_process;
pub(crate) mod manifest;
pub mod model;
pub mod observer;
pub mod occurrence;
mod pace;
pub mod preflight;
pub mod recording;
pub mod rig;
pub mod run;
pub mod schedule;
mod stock;
pub mod verify;
