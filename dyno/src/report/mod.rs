//! Showing records: on the terminal, as JSON and CSV, and as one self-contained HTML file.

mod accelerators;
pub mod answer;
pub mod charts;
pub mod cluster;
pub mod csv;
mod html;
pub mod json;
mod log_page;
pub mod published;
pub mod remedies;
pub mod sections;
pub mod terminal;
pub mod text;
mod visible;

pub use log_page::log_page;
pub use terminal::Style;

use crate::stats::Summary;
use crate::stats::cluster::ClusterSummary;
use crate::store::{Record, Warning};
use visible::visible_record;

/// The results of a record as one self-contained HTML file.
///
/// # Errors
/// A template cannot be filled, which no record can bring about.
pub fn html(record: &Record) -> Result<String, askama::Error> {
    match ClusterSummary::of(record) {
        Some(summary) => cluster::page(record, &summary),
        None => html::page(record, &Summary::of(record)),
    }
}

/// The results of a record as text for a terminal.
pub fn terminal_text(record: &Record, style: Style) -> String {
    let record = visible_record(record);
    match ClusterSummary::of(&record) {
        Some(summary) => cluster::terminal::results(&record, &summary, style),
        None => terminal::results(&record, &Summary::of(&record), style),
    }
}

/// The results of a record as one JSON object (docs/FORMAT.md).
pub fn json_text(record: &Record) -> String {
    match ClusterSummary::of(record) {
        Some(summary) => cluster::json::results(record, &summary),
        None => json::results(record, &Summary::of(record)),
    }
}

/// The texts of all warnings: of the experiment, then of each configuration under its name.
fn warnings(summary: &Summary) -> Vec<String> {
    let own = summary.warnings.iter().map(Warning::to_string);
    let of_configurations = summary
        .configurations
        .iter()
        .flat_map(|of| of.warnings.iter().map(move |warning| format!("{}: {warning}", of.name)));
    own.chain(of_configurations).collect()
}
