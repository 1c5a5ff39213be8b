//! What needs servers under test: their drivers, the no-ops inside them, and experiments from end to end.

mod advise;
mod array;
mod bounds;
mod calibrate;
mod cluster;
mod counting;
mod cryptoserver;
mod directives;
mod effects;
mod experiments;
mod faults;
mod foreign_traffic;
mod front_ends;
mod hardware;
mod installed_nginx;
mod installed_servers;
mod libraries;
mod lifecycle;
mod machines;
mod matrix;
mod noop_client;
mod own_server;
mod patches;
#[path = "../place/mod.rs"]
mod place;
mod primitives;
mod profile;
mod profiles;
mod safety;
mod server_drivers;
mod session_caches;
mod shim_client;
mod slices;
mod steps;
mod tables;
mod ticket_macs;
