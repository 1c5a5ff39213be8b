//! The control side of the dispatcher: its configuration, and everything around the loops of
//! [`tlsdyno_engine::dispatch`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

pub mod address;
pub mod config;
pub mod control;
pub mod descriptors;
pub mod service;
pub mod status;
