//! What needs servers under test: their drivers, the no-ops inside them, and experiments from end to end.

mod array;
mod calibrate;
mod cluster;
mod directives;
mod experiments;
mod faults;
mod hardware;
mod lifecycle;
mod machines;
mod matrix;
mod noop_client;
#[path = "../place/mod.rs"]
mod place;
mod profile;
mod safety;
mod server_drivers;
mod session_caches;
mod shim_client;
mod slices;
