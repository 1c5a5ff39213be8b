//! tlsdyno: a dynamometer for TLS web servers.
//!
//! The program is `main.rs`; it only calls this library, so that integration tests can use the same modules.
#![forbid(unsafe_code)]

pub mod cli;
pub mod cluster;
pub mod cmd;
pub mod dispatch;
pub mod exit;
pub mod experiment;
pub mod foreign;
pub mod interrupt;
pub mod load;
pub mod native;
pub mod report;
pub mod servers;
pub mod stats;
pub mod store;
pub mod time;
pub mod trace;
