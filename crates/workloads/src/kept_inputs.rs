//! The inputs that are kept of the fuzz targets of files (`fuzz/corpus/`).

use super::har::document;
use super::{access_log, json_line, layout};

#[path = "../../../fuzz/src/trace/access_log.rs"]
pub(super) mod access_log_target;
#[path = "../../../fuzz/src/corpus.rs"]
pub(crate) mod corpus;
#[path = "../../../fuzz/src/trace/har.rs"]
mod har_target;

#[test]
fn kept_inputs() {
    corpus::run_kept("access_log", access_log_target::access_log_line);
    corpus::run_kept("har", har_target::har);
}
