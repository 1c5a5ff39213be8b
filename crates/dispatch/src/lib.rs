//! `tlsdyno dispatch`, the dispatcher: its command, its configuration, and everything around the loops of
//! [`tlsdyno_engine::dispatch`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

pub mod address;
pub mod command;
pub mod config;
pub mod control;
pub mod descriptors;
pub mod service;
pub mod status;

use tlsdyno_base::program::Program;
use tlsdyno_base::subcommand::subcommand;

pub fn program() -> Program {
    let only = subcommand!("dispatch", command).with_short_help(
        &["config", "listen", "backends", "policy", "session_timeout", "drain_time", "control", "check"],
        "tlsdyno dispatch --listen 127.0.0.1:8443 --backend 127.0.0.1:9001 --backend 127.0.0.1:9002",
    );
    Program::satellite("tlsdyno-dispatch", vec![only])
}
