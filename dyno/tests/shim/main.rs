//! The shim: its library and layout, refusals, its C parts over memory, and stock servers with it.

#[path = "../native/build.rs"]
mod build;
mod library;
mod parts;
#[path = "../place/mod.rs"]
mod place;
mod refusal;
mod servers;
