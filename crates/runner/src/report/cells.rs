//! What tables of every kind show of a configuration.

use tlsdyno_base::histogram::Percentiles;
use tlsdyno_base::units::{NONE, format_duration, format_quantity};
use tlsdyno_stats::ConfigurationSummary;

pub fn hits(of: &ConfigurationSummary) -> String {
    bounded(of.client_bound, format_quantity(of.hits_per_second.value))
}

/// Number of usable blocks; 0 for an invalid configuration.
pub fn blocks(of: &ConfigurationSummary) -> String {
    match (of.valid, of.is_left_out) {
        (true, _) => of.blocks.to_string(),
        (false, true) => "not measured".to_owned(),
        (false, false) => "INVALID".to_owned(),
    }
}

pub fn latency(of: Option<&Percentiles>, percentile: fn(&Percentiles) -> u64) -> String {
    of.map_or(NONE.to_owned(), |of| format_duration(percentile(of) as f64))
}

/// Adds the sign of a lower bound if `is_least`.
pub fn bounded(is_least: bool, number: String) -> String {
    if is_least { format!("≥ {number}") } else { number }
}
