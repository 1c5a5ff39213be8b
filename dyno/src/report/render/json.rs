//! The results as one JSON object (`--json`), documented in `docs/FORMAT.md`.

use serde::Serialize;
use serde_json::Value;

use crate::foreign::harmless_json;
use crate::report::answer::answer;
use crate::report::{array, cluster, load, primitives, profile, published, remedies, steps};
use crate::stats::accelerators::Prediction;
use crate::stats::array::{ArrayLine, ArrayModel, ArraySummary};
use crate::stats::array_keys::KeySharing;
use crate::stats::between_runs::BetweenRuns;
use crate::stats::cluster::{CellSummary, ClusterSummary, PublishedStatement};
use crate::stats::compared::{Comparison, Word, verdict};
use crate::stats::counts::Counts;
use crate::stats::curve::{CurveSummary, Limit};
use crate::stats::findings::{ComparisonFinding, Relative, RemedyFinding, SetupAndData, Unmeasured};
use crate::stats::libraries::Libraries;
use crate::stats::load::{LoadSummary, PointSummary};
use crate::stats::load_checks::LoadCheck;
use crate::stats::log_on_curve::LogOnCurve;
use crate::stats::machines::Machines;
use crate::stats::methods::ByMethods;
use crate::stats::moment::Moment;
use crate::stats::pace::Pace;
use crate::stats::primitives::PrimitivesSummary;
use crate::stats::profile::ProfileSummary;
use crate::stats::scoreboard::{self, Claim};
use crate::stats::shares::Share;
use crate::stats::statement::Difference;
use crate::stats::steps::StepsSummary;
use crate::stats::traffic::Traffic;
use crate::stats::{ConfigurationSummary, Published, Summary};
use crate::store::{Block, Manifest, PageScale, Record, Warning};

/// What `--json` prints of every kind of record: `results` are those of the kind.
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

/// The results of a record, with what stands around them whatever they are. The blocks are given without their
/// histograms, whose percentiles are among the results.
fn print<T: Serialize>(record: &Record, answer: String, rounds: u32, results: T, warnings: &[Warning]) -> String {
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

/// The results of a record.
pub fn results(record: &Record, summary: &Summary) -> String {
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
    print(record, answer(summary), summary.rounds, results, &summary.warnings)
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

/// A block as JSON, without its histograms.
fn without_histograms(block: &Block) -> Value {
    let mut value = serde_json::to_value(block).expect("blocks have string keys only, so that they are always JSON");
    if let Some(fields) = value.as_object_mut() {
        fields.remove("phases");
    }
    value
}

/// The results of a cluster experiment.
#[derive(Serialize)]
struct ClusterResults<'a> {
    cells: &'a [CellSummary],
    published: &'a [PublishedStatement],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    checks: &'a [LoadCheck],
}

/// The results of a cluster's record.
pub fn cluster_results(record: &Record, summary: &ClusterSummary) -> String {
    let results = ClusterResults { cells: &summary.cells, published: &summary.published, checks: &summary.checks };
    print(record, cluster::answer(summary), summary.rounds, results, &summary.warnings)
}

/// The results of an array experiment.
#[derive(Serialize)]
struct ArrayResults<'a> {
    scale: &'a PageScale,
    pages_per_second: f64,
    plain: Option<&'a Limit>,
    lines: &'a [ArrayLine],
    models: &'a [ArrayModel],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    ticket_keys: &'a [KeySharing],
}

/// The results of an array's record.
pub fn array_results(record: &Record, summary: &ArraySummary) -> String {
    let results = ArrayResults {
        scale: &summary.scale,
        pages_per_second: summary.pages_per_second(),
        plain: summary.plain.as_ref(),
        lines: &summary.lines,
        models: &summary.models,
        ticket_keys: &summary.ticket_keys,
    };
    print(record, array::answer(summary), summary.rounds, results, &summary.warnings)
}

/// The results of a load experiment.
#[derive(Serialize)]
struct LoadResults<'a> {
    points: &'a [PointSummary],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    curves: &'a [CurveSummary],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    connections: &'a [u32],
    #[serde(skip_serializing_if = "Option::is_none")]
    log_on_curve: Option<&'a LogOnCurve>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Word>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    comparisons: &'a [Comparison],
    runs: &'a [crate::load::summary::Summary],
}

/// The results of a load experiment's record.
pub fn load_results(record: &Record, summary: &LoadSummary) -> String {
    let runs = record.measured.load().map_or(&[][..], |load| &load.runs);
    let connections = record.measured.load().map_or(&[][..], |load| &load.connections);
    let (points, curves, log_on_curve) = (&summary.points, &summary.curves, summary.log.as_ref());
    let comparisons = &summary.against[..];
    let verdict = (!comparisons.is_empty()).then(|| verdict(comparisons));
    let results = LoadResults { points, curves, connections, log_on_curve, verdict, comparisons, runs };
    print(record, load::answer(summary), summary.rounds, results, &summary.warnings)
}

/// The results of a profile.
#[derive(Serialize)]
struct ProfileResults<'a> {
    profile: &'a ProfileSummary,
}

/// The results of a profile's record.
pub fn profile_results(record: &Record, summary: &ProfileSummary) -> String {
    print(record, profile::answer(summary), summary.rounds, ProfileResults { profile: summary }, &summary.warnings)
}

/// The results of primitives.
#[derive(Serialize)]
struct PrimitivesResults<'a> {
    primitives: &'a PrimitivesSummary,
}

/// The results of a record of primitives.
pub fn primitives_results(record: &Record, summary: &PrimitivesSummary) -> String {
    let results = PrimitivesResults { primitives: summary };
    print(record, primitives::answer(summary), summary.rounds, results, &summary.warnings)
}

/// The results of handshakes step by step.
#[derive(Serialize)]
struct StepsResults<'a> {
    steps: &'a StepsSummary,
}

/// The results of a record of handshakes step by step.
pub fn steps_results(record: &Record, summary: &StepsSummary) -> String {
    let results = StepsResults { steps: summary };
    print(record, steps::answer(summary), summary.rounds, results, &summary.warnings)
}

/// A load run, ending in a line feed.
///
/// # Errors
/// It cannot be encoded, which no run can bring about.
pub fn load(summary: &crate::load::summary::Summary) -> serde_json::Result<String> {
    Ok(harmless_json(&serde_json::to_string_pretty(summary)?).into_owned() + "\n")
}
