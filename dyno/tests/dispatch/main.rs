//! `tlsdyno dispatch` end to end.

mod cluster;
mod relay;
mod sessions;
mod support;
