//! The hot path of tlsdyno: reactor, load engine, dispatcher, built-in server.
//!
//! Bounded memory, no logging, no locks, no async runtime. Unsafe code only in `sys`.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod dispatch;
mod listen;
pub mod load;
pub mod reactor;
pub mod serve;
pub mod sys;
pub mod time;
