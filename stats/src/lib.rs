//! From blocks to statements: relative costs of the stages with intervals, and a summary of each configuration.
//!
//! The method is described in `docs/METHODOLOGY.md`. In short: rounds are paired samples; a share is the 20 % trimmed
//! mean over rounds of the relative cost; its interval is a bootstrap over rounds in which all shares use the same
//! resample, so that what is left over ("other TLS") has an interval of its own and the sum is 100 % by construction.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod accelerators;
pub mod between_runs;
pub mod calibration;
pub mod change_limit;
pub mod compared;
pub mod compared_shares;
pub mod counts;
pub mod covariance;
pub mod findings;
pub mod libraries;
pub mod loaded;
pub mod machines;
pub mod methods;
pub mod moment;
pub mod pace;
pub mod papers;
pub mod published;
pub mod reuse;
pub mod rounds;
pub mod scoreboard;
pub mod shares;
pub mod statement;
pub mod summary;
pub mod sweeps;
pub mod traffic;

pub use bootstrap::Estimate;
pub use findings::Findings;
pub use loaded::Loaded;
pub use published::Published;
pub use shares::{Share, Shares};
pub use statement::{Direction, Metric, Part, Ratio, Verdict};
pub use summary::{ConfigurationSummary, Summary};
pub use tlsdyno_base::{bootstrap, robust};

/// Of a thousand requests that were due, so many may remain unsent.
const UNSERVED_PER_MILLE: u64 = 1;

/// More of the requests that were due remained unsent than may.
pub fn is_rate_missed(unserved: u64, due: u64) -> bool {
    unserved * 1000 > due * UNSERVED_PER_MILLE
}
