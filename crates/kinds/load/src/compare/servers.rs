//! `tlsdyno compare --run A --run B`: two builds of a server, both up, loaded in turn.

use std::path::PathBuf;

use anyhow::Result;
use tlsdyno_ablation::page::compared::{self, Builds};
use tlsdyno_ablation::summary::Summary;
use tlsdyno_ablation::{Ablation, subject};
use tlsdyno_base::choice::{choice, percent};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_record::model::{
    CertificateKind, ComparisonModel, ConfigurationModel, Experiment, Load, Measure, Method, Server, ServerName,
};
use tlsdyno_record::store::Record;
use tlsdyno_runner::kinds::AnySummary;
use tlsdyno_runner::kinds::perform::{self, ResultArgs, perform_and_keep};
use tlsdyno_runner::report::circumstances;
use tlsdyno_runner::report::document::{Document, Section};
use tlsdyno_runner::run::check::CheckExperiment;
use tlsdyno_stats::compared::{CPU_START_TO_START_PERCENT, Word};
use tlsdyno_tls::{Effort, Version};

use super::{Gates, Shown};
use crate::compared::{Scatter, table};

/// Default duration for both together.
const DURATION: Time = Time::seconds(60);

/// Two servers to start.
#[derive(Debug, clap::Args)]
pub struct Servers {
    /// A server to start, like --server-command of `tlsdyno ablate`; twice: the earlier build, then the later one
    #[arg(long, value_name = "COMMAND", num_args = 1, conflicts_with = "first", help_heading = "Two builds")]
    run: Vec<String>,

    /// Where both listen
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:{port}", help_heading = "Two builds")]
    address: String,

    /// What is requested of them, over and over [default: the objects of a made-up shop in {docroot}]
    #[arg(long, value_name = "PATH", help_heading = "Two builds")]
    path: Option<String>,

    /// Share of connections that resume a session, for example 0%; implies one request per connection
    #[arg(long, value_name = "P%", value_parser = percent, help_heading = "Two builds")]
    reuse: Option<f64>,

    /// TLS version
    #[arg(long, value_name = "VERSION", default_value_t = Version::Tls13, help_heading = "Two builds")]
    #[arg(value_parser = choice(Version::ALL))]
    tls: Version,

    /// Both speak HTTP/2, which clients offer and their configurations have on
    #[arg(long, help_heading = "Two builds")]
    http2: bool,

    /// Certificate that {certificate} and {key} stand for [default: rsa-2048]
    #[arg(long, value_name = "TYPE", value_parser = choice(CertificateKind::ALL), help_heading = "Two builds")]
    cert: Option<CertificateKind>,

    /// How long both together are measured [default: 60s]
    #[arg(short = 'd', short_alias = 't', long, alias = "time", value_name = "TIME", help_heading = "Two builds")]
    duration: Option<Time>,

    /// `counting`: compare the instructions of a hit under valgrind instead of CPU time; repeats on any machine, and
    /// lasts as long as it takes
    #[arg(long, value_name = "METHOD", value_parser = choice([Method::Counting]), help_heading = "Two builds")]
    method: Option<Method>,

    /// Also write the report to this file
    #[arg(long, value_name = "FILE", help_heading = "Two builds")]
    report: Option<PathBuf>,
}

impl Servers {
    /// `None`: no servers are given. Fails unless there are two.
    pub fn experiment(&self) -> Result<Option<Experiment>> {
        let [first, second] = match &self.run[..] {
            [] => return Ok(None),
            [first, second] => [first, second],
            runs => anyhow::bail!("--run is given {} times; two builds are compared: --run A --run B", runs.len()),
        };
        let second = ConfigurationModel {
            name: "second".to_owned(),
            server_command: Some(second.clone()),
            ..ConfigurationModel::as_is()
        };
        let mut experiment = Experiment {
            question: "Is the second build of this server slower than the first?".to_owned(),
            methods: self.method.map_or_else(|| Experiment::default().methods, |method| vec![method]),
            server: Server {
                kind: ServerName::Command,
                command: Some(first.clone()),
                address: Some(self.address.clone()),
                ..Server::default()
            },
            load: Load {
                requests_per_connection: self.reuse.map(|_| 1),
                reuse_percent: self.reuse,
                effort: Effort::Lean,
                ..Load::default()
            },
            measure: Measure { time_s: self.duration.unwrap_or(DURATION).0.as_secs_f64(), ..Measure::default() },
            configurations: vec![
                ConfigurationModel { name: "first".to_owned(), ..ConfigurationModel::as_is() },
                second,
            ],
            comparisons: vec![ComparisonModel {
                question: "Is the second slower?".to_owned(),
                a: "first".to_owned(),
                b: "second".to_owned(),
                paper: None,
                published_times: None,
            }],
            ..Experiment::default()
        };
        experiment.tls.certificate = self.cert;
        experiment.tls.version = self.tls;
        experiment.tls.http2 = self.http2;
        if let Some(path) = &self.path {
            let path = path.clone();
            experiment.workload = WorkloadSpec::Url { path, bytes: None, users: 20_000, requests_per_user: 12 };
        }
        experiment.check().or_fault(Fault::Usage)?;
        Ok(Some(experiment))
    }
}

/// Measures both, prints the report, and returns whether the second is slower.
pub fn run(experiment: &Experiment, args: &Servers, gate: &Gates, shown: &Shown) -> Result<Exit> {
    let mut output = ResultArgs::of(shown.json, args.report.clone());
    output.markdown = shown.markdown;
    let tolerance = gate.tolerance.unwrap_or(CPU_START_TO_START_PERCENT);
    let comment =
        |record: &Record, summary: &dyn AnySummary| summary.document(record).pasted(comment(record, tolerance));
    let comment: Option<&perform::Shown> = if shown.markdown { Some(&comment) } else { None };
    let (measured, record) =
        perform_and_keep(&Ablation, &output, &|stop, progress| subject::run(experiment, stop, progress), comment)?;
    let Builds { word, sentence, changes } = compared_builds(&record, tolerance);
    shown.write(&changes)?;
    let failed = record.configurations.iter().find(|of| !of.valid);
    if let Some(of) = failed.filter(|_| measured == Exit::Invalid) {
        tell!("tlsdyno: the {} build failed its checks, so that nothing is compared; the warnings say how", of.name);
        return Ok(Exit::Server);
    }
    if measured != Exit::Done {
        return Ok(measured);
    }
    // With the usual tolerance the report has said so, and a comment with any.
    if !shown.json && !shown.markdown && tolerance != CPU_START_TO_START_PERCENT {
        tlsdyno_base::output::print(format!("\n{sentence}\n"))?;
    }
    Ok(gate.exit(word, &changes))
}

fn compared_builds(record: &Record, tolerance: f64) -> Builds {
    let nothing = || Builds {
        word: Word::Undecided,
        sentence: "The two could not be compared; see the warnings.".to_owned(),
        changes: Vec::new(),
    };
    compared::builds(&Summary::of(record), tolerance).unwrap_or_else(nothing)
}

/// What a reviewer reads: result, table, doubts.
fn comment(record: &Record, tolerance: f64) -> Document {
    let Builds { sentence, changes, .. } = compared_builds(record, tolerance);
    let table = if changes.is_empty() { Section::default() } else { table(&changes, Scatter::Repeats) };
    let of_builds = Summary::of(record).configurations;
    let of_builds = of_builds.iter().map(|of| (&of.name, &of.warnings));
    let doubts = circumstances::warnings(circumstances::texts(&record.warnings, of_builds));
    let by = format!("tlsdyno {}, record {}.", record.manifest.tool_version, record.id);
    Document { answer: sentence, ..Document::from_sections([table, doubts, Section::default().text(by)]) }
}
