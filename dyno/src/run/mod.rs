//! Runs experiments: starts servers, checks them, measures, verifies what was measured. `runner.rs` measures any
//! `Subject`: `single.rs` is the one with one server at a time, `counting.rs` the same under valgrind, `foreign.rs` a
//! server that others load, `cluster/` the one with several behind a dispatcher, `array/` the one with proxies before
//! one.

pub mod array;
pub mod bound;
mod callgrind;
mod check;
pub mod cluster;
mod control_characters;
mod counting;
pub mod cpus;
pub mod credentials;
mod curve;
pub mod exchange;
pub mod files;
mod foreign;
mod fresh_servers;
pub mod hardware;
mod in_turns;
pub(crate) mod lines;
pub(crate) mod load_process;
pub(crate) mod manifest;
mod mode_check;
pub mod modes;
mod neighbours;
pub mod observer;
pub mod occurrence;
mod own_command;
mod pace;
pub mod preflight;
pub mod primitives;
pub mod profile;
pub mod recording;
pub mod runner;
pub mod schedule;
pub mod single;
mod sliced;
mod started_server;
pub mod steps;
mod sweep;
pub mod testbed;
pub mod url;
pub mod verify;
mod warm_up;
