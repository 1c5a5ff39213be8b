//! tlsdyno: a dynamometer for TLS web servers.
#![forbid(unsafe_code)]

mod experiment;

fn main() {}
