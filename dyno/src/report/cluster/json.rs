//! The result of a cluster as one JSON object (`--json`), documented in `docs/FORMAT.md`.

use serde::Serialize;

use super::answer;
use crate::report::json::print;
use crate::stats::cluster::{CellSummary, ClusterSummary, PublishedStatement};
use crate::store::Record;

/// What only a cluster has.
#[derive(Serialize)]
struct Results<'a> {
    cells: &'a [CellSummary],
    published: &'a [PublishedStatement],
}

/// The results of a record.
pub fn results(record: &Record, summary: &ClusterSummary) -> String {
    let results = Results { cells: &summary.cells, published: &summary.published };
    print(record, answer(summary), summary.rounds, results, &summary.warnings)
}
