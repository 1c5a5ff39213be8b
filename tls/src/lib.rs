//! The lean TLS 1.2/1.3 client of tlsdyno: a state machine on bytes. No I/O, no clock; randomness is handed in.
//!
//! It exists because a load client must be much cheaper than the server it loads, and because both ends of a connection
//! must agree on every no-op stage (`docs/NOOP.md`). Primitives come from aws-lc-rs (SHA-2 from sha2: see `crypto::hash`).
#![forbid(unsafe_code)]

pub mod config;
pub mod crypto;
pub mod noop;
pub mod suite;

pub use config::{Config, Settings};
pub use noop::{Stage, StageSet};
pub use suite::{Effort, Group, Suite, Version};
