//! The control side of the dispatcher: its configuration, and everything around the loops of
//! [`tlsdyno_engine::dispatch`].

pub mod address;
pub mod config;
pub mod control;
pub mod descriptors;
pub mod service;
pub mod status;
