//! The shim: its library, refusals, its C parts over memory, and stock servers with it.

mod library;
mod parts;
mod refusal;
mod servers;
