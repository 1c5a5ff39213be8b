//! The C that runs inside other people's servers: `provider`, `doubler`, `profiler` and `shim`.

mod batch_rsa;
mod build;
mod doubler;
mod layout;
mod locks;
#[path = "../place/mod.rs"]
mod place;
mod primitives;
mod private_libcrypto;
mod profiler;
mod provider;
mod remote_keys;
mod shim;
