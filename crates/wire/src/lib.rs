//! The bytes of TLS and HTTP/1, as tlsdyno's client, server and dispatcher see them: record framing, reassembly, hello
//! and handshake codecs, and where HTTP messages end; the client's side of HTTP/2; what other protocols say before TLS.
//!
//! No I/O, no clock, no randomness, no dependencies. Decoders borrow from their input, never panic, and are bounded by
//! [`limits`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod answer;
pub mod codec;
pub mod follow;
pub mod handshake;
pub mod hello;
pub mod http;
pub mod http2;
pub mod limits;
pub mod opening;
pub mod proxy_protocol;
pub mod record;
pub mod session_keys;
