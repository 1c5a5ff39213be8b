//! Runs experiments: starts servers, checks them, measures, verifies what was measured. `runner.rs` measures any
//! `Subject`. Those of most kinds of experiment stand with their kind; here are `counting.rs`, one server under
//! valgrind, and `foreign.rs`, a server that others load.

pub mod bound;
pub mod check;
pub mod cpus;
pub mod credentials;
pub mod fresh_servers;
pub mod hardware;
pub mod instruments;
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
