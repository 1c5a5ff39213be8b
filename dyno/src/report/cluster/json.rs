//! The result of a cluster as one JSON object (`--json`), documented in `docs/FORMAT.md`.

use serde::Serialize;
use serde_json::Value;

use super::answer;
use crate::report::json::without_histograms;
use crate::stats::cluster::{Beside, CellSummary, ClusterSummary};
use crate::store::{Manifest, Record, Warning};

/// What `--json` prints.
#[derive(Serialize)]
struct Results<'a> {
    format: u32,
    id: &'a str,
    created_unix_s: u64,
    finished: bool,
    question: &'a str,
    answer: String,
    rounds: u32,
    cells: &'a [CellSummary],
    published: &'a [Beside],
    warnings: Vec<String>,
    manifest: &'a Manifest,
    blocks: Vec<Value>,
}

/// The results of a record. The blocks are given without their histograms, whose percentiles are in the cells.
pub fn results(record: &Record, summary: &ClusterSummary) -> String {
    let results = Results {
        format: record.format,
        id: &record.id,
        created_unix_s: record.created_unix_s,
        finished: record.finished,
        question: &record.question,
        answer: answer(summary),
        rounds: summary.rounds,
        cells: &summary.cells,
        published: &summary.published,
        warnings: summary.warnings.iter().map(Warning::to_string).collect(),
        manifest: &record.manifest,
        blocks: record.blocks.iter().map(without_histograms).collect(),
    };
    serde_json::to_string_pretty(&results).expect("results have string keys only, so that they are always JSON")
}
