//! The inputs that are kept of the probe's fuzz targets (`fuzz/corpus/`).

use super::query;
use crate::buckets;

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/probe/histograms.rs"]
mod histograms_target;
#[path = "../../../fuzz/src/probe/request.rs"]
mod request_target;

#[test]
fn kept_inputs() {
    corpus::run_kept("probe_histograms", histograms_target::histograms);
    corpus::run_kept("probe_request", request_target::request);
}
