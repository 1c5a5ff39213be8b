//! Showing what was measured: each kind of record becomes a [`document::Document`], which is rendered for the terminal
//! or as one self-contained page; JSON and CSV are made of the record itself.

mod accelerators;
pub mod answer;
mod array;
mod between_runs;
mod charts;
pub mod circumstances;
pub mod cluster;
pub mod compared;
mod curve;
pub mod document;
pub mod experiment;
mod findings;
mod libraries;
mod load;
mod load_files;
pub mod load_run;
mod machines;
mod methods;
mod primitives;
pub mod probe;
pub mod profile;
pub mod published;
pub mod remedies;
pub mod render;
pub mod scoreboard;
mod steps;
pub mod text;
mod traffic;
pub mod workload;

pub use load_files::{check_endings, check_record_endings, write_load, write_record};
pub use render::terminal::Style;
pub use render::{csv, html, json, terminal};

use crate::stats::array::ArraySummary;
use crate::stats::cluster::ClusterSummary;
use crate::stats::load::LoadSummary;
use crate::stats::primitives::PrimitivesSummary;
use crate::stats::profile::ProfileSummary;
use crate::stats::steps::StepsSummary;
use crate::stats::{Shares, Summary};
use crate::store::Record;
use document::Document;

/// A record's numbers, by its kind.
enum Summarised {
    Experiment(Box<Summary>),
    Cluster(ClusterSummary),
    Load(LoadSummary),
    Profile(ProfileSummary),
    Array(Box<ArraySummary>),
    Primitives(Box<PrimitivesSummary>),
    Steps(StepsSummary),
}

fn summarised(record: &Record) -> Summarised {
    let load = || LoadSummary::of(record).map(Summarised::Load);
    let profile = || ProfileSummary::of(record).map(Summarised::Profile);
    let array = || ArraySummary::of(record).map(Box::new).map(Summarised::Array);
    let cluster = || ClusterSummary::of(record).map(Summarised::Cluster);
    let primitives = || PrimitivesSummary::of(record).map(Box::new).map(Summarised::Primitives);
    let steps = || StepsSummary::of(record).map(Summarised::Steps);
    let special = load().or_else(profile).or_else(array).or_else(cluster).or_else(primitives).or_else(steps);
    special.unwrap_or_else(|| Summarised::Experiment(Box::new(Summary::of(record))))
}

fn document_of(record: &Record) -> Document {
    match summarised(record) {
        Summarised::Experiment(summary) => experiment::document(record, &summary),
        Summarised::Cluster(summary) => cluster::document(record, &summary),
        Summarised::Load(summary) => load::document(record, &summary),
        Summarised::Profile(summary) => profile::document(record, &summary),
        Summarised::Array(summary) => array::document(record, &summary),
        Summarised::Primitives(summary) => primitives::document(record, &summary),
        Summarised::Steps(summary) => steps::document(record, &summary),
    }
}

/// The results of a record as one self-contained HTML file.
///
/// # Errors
/// A template cannot be filled, which no record can bring about.
pub fn html(record: &Record) -> Result<String, askama::Error> {
    html::page(&document_of(record))
}

/// The results of a record as text for a terminal.
pub fn terminal_text(record: &Record, style: Style) -> String {
    terminal::text(&document_of(record), style)
}

/// What an experiment on stages has found so far, in so many lines at most; empty where there is nothing yet.
pub fn so_far(record: &Record, rows: usize) -> String {
    if record.measured.load().is_some() || record.measured.cluster().is_some() {
        return String::new();
    }
    let shares = Shares::of(record);
    let table = experiment::so_far(&shares, rows);
    let table = table
        .map_or_else(String::new, |table| terminal::table_text(&table, Style { rich: false, ..Style::of_stderr() }));
    let widest =
        shares.widest_points().map(|points| format!("the widest interval of a stage is ± {points:.1} points\n"));
    widest.unwrap_or_default() + &table
}

/// The results of a record as one JSON object (docs/FORMAT.md).
pub fn json_text(record: &Record) -> String {
    match summarised(record) {
        Summarised::Experiment(summary) => json::results(record, &summary),
        Summarised::Cluster(summary) => json::cluster_results(record, &summary),
        Summarised::Load(summary) => json::load_results(record, &summary),
        Summarised::Profile(summary) => json::profile_results(record, &summary),
        Summarised::Array(summary) => json::array_results(record, &summary),
        Summarised::Primitives(summary) => json::primitives_results(record, &summary),
        Summarised::Steps(summary) => json::steps_results(record, &summary),
    }
}
