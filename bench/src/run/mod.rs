//! Runs experiments: starts servers, checks them, measures, verifies what was measured. `runner.rs` measures any
//! `Subject`: `single.rs` is the one with one server at a time, `counting.rs` the same under valgrind, `foreign.rs` a
//! server that others load, `cluster/` the one with several behind a dispatcher, `array/` the one with proxies before
//! one.

pub mod bound;
pub mod callgrind;
pub mod check;
pub mod control_characters;
pub mod counting;
pub mod cpus;
pub mod credentials;
pub mod foreign;
pub mod fresh_servers;
pub mod hardware;
pub mod lines;
pub mod load_process;
pub mod manifest;
pub mod mode_check;
pub mod modes;
pub mod neighbours;
pub mod observer;
pub mod occurrence;
pub mod own_command;
pub mod pace;
pub mod preflight;
pub mod recording;
pub mod request;
pub mod runner;
pub mod schedule;
pub mod sliced;
pub mod sweep;
pub mod testbed;
pub mod verify;
pub mod warm_up;
