//! Documents as text for a terminal and as pages; records as JSON and CSV, whose forms are contracts (docs/FORMAT.md).

pub mod csv;
pub mod json;

pub use tlsdyno_report::{html, terminal};
