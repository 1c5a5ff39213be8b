//! The C that runs inside other people's servers: `provider` and `shim`.

mod build;
#[path = "../place/mod.rs"]
mod place;
mod provider;
mod shim;
