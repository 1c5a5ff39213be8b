//! Keeping records.

pub mod record;
pub mod warning;

pub use record::{Block, Configuration, FORMAT, Kind, Manifest, Preflight, Record};
pub use warning::Warning;
