//! tlsdyno-wire
#![forbid(unsafe_code)]
