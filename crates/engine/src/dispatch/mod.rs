//! The dispatcher: passes TCP and TLS connections through to backends without terminating them.
//!
//! One loop per core, each with listening sockets of its own. What loops know in common is in [`Shared`]: atomics on
//! the fast path, a lock only when settings change. An idle connection holds two descriptors and no buffer.

mod connection;
pub mod counters;
pub mod health;
pub mod lard;
pub mod learn;
pub mod limits;
pub mod memory;
pub mod per_address;
mod pipes;
mod places;
mod relay;
mod room;
pub mod route;
mod run;
mod settings;
mod shared;
pub mod table;

pub use crate::listen::bind;
pub use run::Loop;
pub use settings::{Backend, Check, CheckKind, Limits, Policy, ProxyHeader, Settings, SettingsError};
pub use shared::{Phase, Shared, Slot, SlotBackend, Snapshot};
