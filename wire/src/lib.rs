//! The bytes of TLS, as tlsdyno's client and dispatcher see them: record framing, reassembly, hello and handshake codecs.
//!
//! No I/O, no clock, no randomness, no dependencies. Decoders borrow from their input, never panic, and are bounded by [`limits`].
#![forbid(unsafe_code)]

pub mod codec;
pub mod handshake;
pub mod hello;
pub mod limits;
pub mod record;
