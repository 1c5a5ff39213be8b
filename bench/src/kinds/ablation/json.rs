//! The results of an experiment with one server as JSON.

use serde::Serialize;

use super::page::answer::answer;
use super::page::remedies;
use crate::report::{json, published};
use crate::stats::accelerators::Prediction;
use crate::stats::between_runs::BetweenRuns;
use crate::stats::counts::Counts;
use crate::stats::findings::{ComparisonFinding, Relative, RemedyFinding, SetupAndData, Unmeasured};
use crate::stats::libraries::Libraries;
use crate::stats::machines::Machines;
use crate::stats::methods::ByMethods;
use crate::stats::moment::Moment;
use crate::stats::pace::Pace;
use crate::stats::scoreboard::{self, Claim};
use crate::stats::shares::Share;
use crate::stats::statement::Difference;
use crate::stats::traffic::Traffic;
use crate::stats::{ConfigurationSummary, Published, Summary};
use crate::store::Record;

/// The results of an experiment with one server.
#[derive(Serialize)]
struct Results<'a> {
    shares: &'a [Share],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unmeasured: &'a [Unmeasured],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    between_runs: &'a [BetweenRuns],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    by_methods: &'a [ByMethods],
    #[serde(skip_serializing_if = "Option::is_none")]
    counted: Option<&'a Counts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    libraries: Option<&'a Libraries>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traffic: Option<&'a Traffic>,
    interaction: &'a [Difference],
    instrument: &'a [Difference],
    pace: Option<&'a Pace>,
    #[serde(skip_serializing_if = "Option::is_none")]
    moment: Option<&'a Moment>,
    detection_limit_percent: Option<f64>,
    relative_to_plain_http: &'a [Relative],
    comparisons: &'a [ComparisonFinding],
    accelerators: &'a [Prediction],
    setup_and_data: &'a [SetupAndData],
    remedies: Vec<Remedy<'a>>,
    paper: Option<&'a Published>,
    what_changed: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machines: Option<&'a Machines>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    claims: Vec<Claim>,
    configurations: &'a [ConfigurationSummary],
}

pub fn json(record: &Record, summary: &Summary) -> String {
    let results = Results {
        shares: &summary.shares.shares,
        unmeasured: &summary.findings.unmeasured,
        between_runs: &summary.between_runs,
        by_methods: &summary.by_methods,
        counted: summary.counted.as_ref(),
        libraries: summary.libraries.as_ref(),
        traffic: summary.traffic.as_ref(),
        interaction: &summary.shares.interaction,
        instrument: &summary.shares.instrument,
        pace: summary.pace.as_ref(),
        moment: summary.moment.as_ref(),
        detection_limit_percent: summary.detection.limit_percent,
        relative_to_plain_http: &summary.findings.relative,
        comparisons: &summary.findings.comparisons,
        accelerators: &summary.findings.accelerators,
        setup_and_data: &summary.findings.setup_and_data,
        remedies: summary.findings.remedies.iter().map(|answer| remedy(answer, record)).collect(),
        paper: summary.published.as_ref(),
        what_changed: published::what_changed(summary),
        machines: summary.machines.as_ref(),
        claims: scoreboard::claims(summary),
        configurations: &summary.configurations,
    };
    json::results(record, answer(summary), summary.rounds, results, &summary.warnings)
}

/// A remedy with what the server needs for it.
#[derive(Serialize)]
struct Remedy<'a> {
    #[serde(flatten)]
    answer: &'a RemedyFinding,
    configuration_lines: Vec<String>,
}

fn remedy<'a>(answer: &'a RemedyFinding, record: &Record) -> Remedy<'a> {
    Remedy { answer, configuration_lines: remedies::configuration_lines(answer, record) }
}
