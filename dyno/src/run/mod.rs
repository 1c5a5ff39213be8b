//! Runs experiments: plans, starts servers, checks them, measures, verifies what was measured. `single.rs` runs the
//! experiment with one server at a time, `cluster/` the one with several behind a dispatcher.

pub mod admission;
mod check;
pub mod cluster;
mod control_characters;
pub mod cpus;
pub mod credentials;
pub mod exchange;
pub mod files;
pub mod hardware;
pub mod journal;
pub(crate) mod lines;
pub(crate) mod load_process;
pub(crate) mod manifest;
pub mod observer;
pub mod occurrence;
mod own_command;
mod pace;
pub mod preflight;
pub mod recording;
pub mod rig;
pub mod schedule;
pub mod single;
mod stock;
pub mod verify;
