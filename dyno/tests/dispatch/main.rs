//! `tlsdyno dispatch` end to end.

mod backend_faults;
mod bytes;
mod client_faults;
mod cluster;
mod config;
mod crowd;
mod faults;
mod go_server;
mod lard;
mod relay;
mod reloads;
mod rustls_server;
mod sessions;
mod support;
mod unlearnable;
