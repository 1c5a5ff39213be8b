//! The inputs that are kept of the fuzz target of requests for pages (`fuzz/corpus/`).

use super::query;

#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/src/probe/request.rs"]
mod request_target;

#[test]
fn kept_inputs() {
    corpus::run_kept("probe_request", request_target::request);
}
