//! From blocks to estimates with intervals, and a summary of each configuration.
//!
//! The method is described in `docs/METHODOLOGY.md`. In short: a share is the 20 % trimmed mean of the relative cost,
//! over sweeps of slices or over rounds of blocks. Its interval comes from what rounds differ by (`rows`). What is left
//! over ("other TLS") is estimated as one sum with its parts, so that it has an interval of its own.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod compared;
pub mod covariance;
pub mod moment;
pub mod pace;
pub mod papers;
pub mod reference;
pub mod remainders;
pub mod reuse;
pub mod rounds;
pub mod rows;
pub mod scatter;
pub mod scoreboard;
pub mod slope;
pub mod statement;
pub mod summary;
pub mod sweeps;

pub use bootstrap::Estimate;
pub use statement::{Direction, Metric, PartOfWhole, Ratio, Verdict};
pub use summary::ConfigurationSummary;
pub use tlsdyno_base::{bootstrap, robust};
