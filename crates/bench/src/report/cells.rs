//! What tables of every kind show of a configuration.

use tlsdyno_base::histogram::Percentiles;
use tlsdyno_base::units::{NONE, format_duration, format_quantity};
use tlsdyno_stats::ConfigurationSummary;

/// Hits per second, with a sign where something else than the server limited them.
pub fn hits(of: &ConfigurationSummary) -> String {
    bounded(of.client_bound, format_quantity(of.hits_per_second.value))
}

/// How many usable blocks it has; one that is not valid has none.
pub fn blocks(of: &ConfigurationSummary) -> String {
    match (of.valid, of.is_left_out) {
        (true, _) => of.blocks.to_string(),
        (false, true) => "not measured".to_owned(),
        (false, false) => "INVALID".to_owned(),
    }
}

/// A percentile of a latency.
pub fn latency(of: Option<&Percentiles>, percentile: fn(&Percentiles) -> u64) -> String {
    of.map_or(NONE.to_owned(), |of| format_duration(percentile(of) as f64))
}

/// A number of which only the least is known, if that is so.
pub fn bounded(is_least: bool, number: String) -> String {
    if is_least { format!("≥ {number}") } else { number }
}
