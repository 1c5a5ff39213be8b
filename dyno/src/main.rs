//! tlsdyno: a dynamometer for TLS web servers.
#![forbid(unsafe_code)]

fn main() {}
