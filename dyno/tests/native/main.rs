//! The C that runs inside other people's servers: `provider`, `doubler` and `shim`.

mod build;
mod doubler;
#[path = "../place/mod.rs"]
mod place;
mod provider;
mod shim;
