//! `tlsdyno dispatch` end to end.

mod relay;
mod support;
