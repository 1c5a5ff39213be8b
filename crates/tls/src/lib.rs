//! The lean TLS 1.2/1.3 client of tlsdyno: a state machine on bytes. No I/O, no clock. Randomness on the wire is handed
//! in ([`Entropy`]), but for honest key pairs and the padding of RSA encryption, which aws-lc-rs draws from the system
//! itself.
//!
//! It exists because a load client must be much cheaper than the server it loads, and because both ends of a connection
//! must agree on every no-op stage (`docs/NOOP.md`). Primitives come from aws-lc-rs (SHA-2 from sha2: see
//! `crypto::hash`).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod authenticate;
mod client;
pub mod compressed;
pub mod config;
pub mod crypto;
pub mod error;
pub mod names;
pub mod noop;
mod offer;
mod records;
pub mod script;
mod session;
mod skeleton;
pub mod suite;
mod tls12;
mod tls13;

pub use client::{Client, EarlyData, Entropy, Handshake, Receiver};
pub use config::{Config, ConfigError, Lack, Settings, Signer};
pub use crypto::sign::ClientCertificate;
pub use error::{Alert, Error};
pub use noop::{Stage, StageSet};
pub use script::{Script, Scripts};
pub use session::{BadSession, Session, SessionKind};
pub use suite::{Effort, Group, Suite, Version};
