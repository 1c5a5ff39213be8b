//! What needs no server: statistics, the store and reports on made-up records with known truth, and published numbers.
//! Chromium looks at the report.

mod answers;
mod calibration;
mod install_packages;
mod names;
mod old_records;
mod plan;
mod questions;
mod records;
mod reference_pairs;
mod report_html;
mod results;
mod satellites;
mod scoreboard;
mod shares;
mod store;
mod synthetic;
