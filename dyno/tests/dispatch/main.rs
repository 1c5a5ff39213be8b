//! `tlsdyno dispatch` end to end.

mod cluster;
mod config;
mod faults;
mod relay;
mod rustls_server;
mod sessions;
mod support;
