//! The results as one JSON object (`--json`), documented in `docs/FORMAT.md`.

use serde::Serialize;
use serde_json::Value;
use tlsdyno_base::foreign::harmless_json;
use tlsdyno_record::store::{Block, Manifest, Record, Warning};

/// Output of `--json` for every kind of record: `results` are those of the kind.
#[derive(Serialize)]
struct Printed<'a, T> {
    format: u32,
    id: &'a str,
    created_unix_s: u64,
    finished: bool,
    question: &'a str,
    answer: String,
    rounds: u32,
    #[serde(flatten)]
    results: T,
    warnings: Vec<String>,
    manifest: &'a Manifest,
    blocks: Vec<Value>,
}

/// Results of a record, with the fields that all kinds have. Blocks have no histograms, whose percentiles are among the
/// results.
pub fn results(record: &Record, answer: String, rounds: u32, results: impl Serialize, warnings: &[Warning]) -> String {
    let printed = Printed {
        format: record.format,
        id: &record.id,
        created_unix_s: record.created_unix_s,
        finished: record.finished,
        question: &record.question,
        answer,
        rounds,
        results,
        warnings: warnings.iter().map(Warning::to_string).collect(),
        manifest: &record.manifest,
        blocks: record.blocks.iter().map(without_histograms).collect(),
    };
    let json = serde_json::to_string_pretty(&printed).expect("results have string keys only: they are always JSON");
    harmless_json(&json).into_owned()
}

fn without_histograms(block: &Block) -> Value {
    let mut value = serde_json::to_value(block).expect("blocks have string keys only, so that they are always JSON");
    if let Some(fields) = value.as_object_mut() {
        fields.remove("phases");
    }
    value
}

/// A load run, with a final line feed.
pub fn load(summary: &tlsdyno_record::store::load_run::Summary) -> serde_json::Result<String> {
    Ok(harmless_json(&serde_json::to_string_pretty(summary)?).into_owned() + "\n")
}
