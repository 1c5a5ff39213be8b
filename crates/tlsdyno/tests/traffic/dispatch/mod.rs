//! `tlsdyno dispatch` end to end.

mod backend_faults;
mod bytes;
mod client_faults;
mod cluster;
mod config;
mod control;
pub mod crowd;
mod descriptors;
mod faults;
mod lard;
mod relay;
mod reloads;
mod sessions;
pub mod support;
mod unlearnable;
