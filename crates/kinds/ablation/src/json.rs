//! The results of an experiment with one server as JSON.

use serde::Serialize;
use tlsdyno_record::store::Record;
use tlsdyno_runner::report::json;
use tlsdyno_stats::scoreboard::Claim;

use super::page::answer::answer;
use super::page::remedies;
use crate::page::published;
use crate::summary::findings::RemedyFinding;
use crate::summary::{Summary, scoreboard};

/// Results of an experiment with one server: its summary, and what reports derive from it.
#[derive(Serialize)]
struct Results<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    remedies: Vec<Remedy<'a>>,
    what_changed: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    claims: Vec<Claim>,
}

/// A remedy with the lines of configuration that it needs.
#[derive(Serialize)]
struct Remedy<'a> {
    #[serde(flatten)]
    answer: &'a RemedyFinding,
    configuration_lines: Vec<String>,
}

pub fn json(record: &Record, summary: &Summary) -> String {
    let remedy = |answer| Remedy { answer, configuration_lines: remedies::configuration_lines(answer, record) };
    let results = Results {
        summary,
        remedies: summary.findings.remedies.iter().map(remedy).collect(),
        what_changed: published::what_changed(summary),
        claims: scoreboard::claims(summary),
    };
    json::results(record, answer(summary), summary.rounds, results, &summary.warnings)
}
