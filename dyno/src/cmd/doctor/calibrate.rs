//! `tlsdyno doctor --calibrate`: known costs are injected, to see what the instrument makes of them on this machine.

use anyhow::{Result, anyhow};
use serde::Serialize;
use tlsdyno_tls::StageSet;

use crate::choice::choice;
use crate::cmd::json_of;
use crate::cmd::run::Progress;
use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::interrupt;
use crate::model::workload::WorkloadSpec;
use crate::model::{CertificateKind, ConfigurationModel, Experiment, Load, Measure, Server, ServerName, Tls};
use crate::report::document::{Column, Content, Document, Field, Section, Table, row};
use crate::report::terminal::{self, Style};
use crate::run::modes::REFERENCE;
use crate::run::single::run as run_experiment;
use crate::stats::calibration::{Names, PaceEffect, evaluate};
use crate::store::calibration::Recovered;
use crate::store::{Calibration, Record};
use crate::units::format_interval;

/// CPU time injected into each handshake, microseconds.
const INJECTED_US: [f64; 3] = [20.0, 50.0, 200.0];
/// The server with nothing off once more.
const AGAIN: &str = "nothing off, again";
/// Measuring times for which the limit is told, seconds.
const TIMES_S: [f64; 3] = [10.0, 60.0, 180.0];
/// Configurations that share the measuring time: of one comparison, and of a whole `ablate`.
const SHARERS: [(&str, f64); 2] = [("two configurations", 2.0), ("ten (ablate)", 10.0)];
/// What to calibrate, and for how long.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "calibration")]
pub struct Args {
    /// Measure what difference this machine can resolve: the same server twice, and known costs of 20, 50 and 200 µs
    /// of CPU per handshake
    #[arg(long)]
    pub calibrate: bool,
    /// Bound on the measuring time of the calibration, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, requires = "calibrate")]
    time: f64,
    /// Server of the calibration
    #[arg(long, value_name = "NAME", default_value_t = ServerName::Nginx)]
    #[arg(value_parser = choice(ServerName::configured()), requires = "calibrate")]
    server: ServerName,
    /// Certificate of that server
    #[arg(long, value_name = "TYPE", default_value_t = CertificateKind::P256)]
    #[arg(value_parser = choice(CertificateKind::ALL), requires = "calibrate")]
    cert: CertificateKind,
    /// Do not keep the result for later reports
    #[arg(long, requires = "calibrate")]
    dry: bool,
}

/// A limit as the JSON object holds it.
#[derive(Serialize)]
struct Limit {
    time_s: f64,
    configurations: f64,
    /// `null`: too short to say.
    limit_us: f64,
    limit_percent: f64,
}

#[derive(Serialize)]
struct Outcome<'a> {
    calibration: &'a Calibration,
    limits: Vec<Limit>,
    /// `null`: the pace could not be sampled.
    pace: Option<PaceEffect>,
}

/// Runs the calibration, keeps it and answers what to print.
pub fn run(args: &Args, json: bool) -> Result<String> {
    let experiment = experiment(args).or_fault(Fault::Usage)?;
    experiment.check().or_fault(Fault::Usage)?;
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    let mut progress = Progress::default();
    let finished = run_experiment(&experiment, &stop, &mut progress);
    progress.clear();
    let finished = finished?;
    if let Some(error) = finished.cut_short {
        return Err(error.context("the calibration was cut short; nothing is kept"));
    }
    let burning = INJECTED_US.iter().map(|us| (*us, burn_name(*us))).collect();
    let names = Names { again: AGAIN.to_owned(), burning };
    let Some(calibration) = evaluate(&finished.record, &names) else {
        return Err(why_nothing(&finished.record)).or_fault(Fault::Invalid);
    };
    let pace = PaceEffect::of(&finished.record, &names);
    let kept = if args.dry { None } else { Some(calibration.keep()?) };
    if json {
        let limits = limits(&calibration);
        return json_of(&Outcome { calibration: &calibration, limits, pace });
    }
    let mut document = document(&calibration, pace.as_ref());
    let kept = kept.map(|path| format!("Kept in {}: later reports of this machine carry it.", path.display()));
    document.sections.push(Section::default().notes(kept));
    Ok(terminal::text(&document, Style::of_stdout()))
}

/// Why there is nothing to evaluate.
fn why_nothing(record: &Record) -> anyhow::Error {
    let failed = record.configurations.iter().filter(|one| !one.valid);
    let said: Vec<String> = failed.map(|one| format!("{}: {}", one.name, one.preflight.failed.join("; "))).collect();
    match said.is_empty() {
        true => anyhow!("too few rounds were measured; give it more time (--time)"),
        false => anyhow!("configurations failed their checks: {}", said.join(". ")),
    }
}

fn burn_name(us: f64) -> String {
    format!("burn {us} µs")
}

/// One connection with a full handshake for each request, so that what is injected into a handshake is injected into a
/// hit.
fn experiment(args: &Args) -> Result<Experiment> {
    let as_is = ConfigurationModel::as_is();
    let named = |name: &str| ConfigurationModel { name: name.to_owned(), ..as_is.clone() };
    let reference = ConfigurationModel { wrapped: StageSet::PROVIDER, ..named(REFERENCE) };
    let again = ConfigurationModel { repeat_of: Some(reference.name.clone()), ..reference.clone() };
    let mut configurations = vec![as_is.clone(), reference, ConfigurationModel { name: AGAIN.to_owned(), ..again }];
    configurations
        .extend(INJECTED_US.iter().map(|us| ConfigurationModel { burn_us: Some(*us), ..named(&burn_name(*us)) }));
    Ok(Experiment {
        question: "What is the smallest difference that this machine can resolve?".to_owned(),
        server: Server { kind: args.server, ..Server::default() },
        tls: Tls { certificate: args.cert, ..Tls::default() },
        workload: WorkloadSpec::Url {
            path: "/object".to_owned(),
            bytes: Some(1024),
            users: 20_000,
            requests_per_user: 1,
        },
        load: Load { reuse_percent: Some(0.0), requests_per_connection: Some(1), ..Load::default() },
        measure: Measure { time_s: args.time, ..Measure::default() },
        configurations,
        ..Experiment::default()
    })
}

fn limits(calibration: &Calibration) -> Vec<Limit> {
    let of = |time_s: f64, configurations: f64| {
        let seconds = time_s / configurations;
        let (limit_us, limit_percent) = (calibration.limit_us(seconds), calibration.limit_percent(seconds));
        Limit { time_s, configurations, limit_us, limit_percent }
    };
    TIMES_S.iter().flat_map(|time| SHARERS.iter().map(move |(_, sharers)| of(*time, *sharers))).collect()
}

fn document(calibration: &Calibration, pace: Option<&PaceEffect>) -> Document {
    let what = format!(
        "Calibration of {} (certificate {}) on {}: {} rounds; a hit with its full handshake costs {:.1} µs of server \
         CPU.",
        calibration.server, calibration.certificate, calibration.machine, calibration.rounds, calibration.hit_us
    );
    let fields: [Field<Recovered>; _] = [
        (Column::number("injected"), |of| match of.injected_us {
            0.0 => "nothing (A/A)".to_owned(),
            us => format!("{us} µs"),
        }),
        (Column::number("measured"), |of| format!("{:.1} µs", of.measured_us)),
        (Column::interval(), |of| format_interval(of.low_us, of.high_us)),
        (Column::number("bias"), |of| format!("{:+.1} µs", of.bias_us())),
        (Column::number("half-width"), |of| format!("{:.1} µs", of.half_width_us())),
    ];
    let recovered = Content::Table(Table::of(fields, &calibration.recovered));
    let limits = limits(calibration);
    let found = TIMES_S
        .iter()
        .zip(limits.chunks(SHARERS.len()))
        .map(|(time, pair)| row([format!("{time:.0} s")].into_iter().chain(pair.iter().map(words)), false));
    let times = [""].into_iter().chain(SHARERS.map(|(name, _)| name)).map(Column::number).collect();
    let limits =
        "Smallest difference that is found 19 times in 20, by measuring time and configurations that share it:";
    let formula = format!(
        "(t₀.₉₇₅ + t₀.₉₅) · spread / √n, where n rounds of {:.0} ms for each configuration fit into the time, and \
         the paired differences of rounds spread by {:.1} µs.",
        calibration.block_s * 1e3,
        calibration.spread_us
    );
    let pace = pace.map(|pace| pace_sentence(pace, calibration));
    Document::of([
        Section::default().text(what).with(recovered),
        Section::titled("", limits).table(times, found.collect()),
        Section::default().notes([formula].into_iter().chain(pace)),
    ])
}

fn pace_sentence(pace: &PaceEffect, calibration: &Calibration) -> String {
    format!(
        "The machine's pace varied by {:.1} % (standard deviation) between blocks, and explains {:.0} % of what \
         blocks of one configuration differed by; without it the differences would spread by {:.1} instead of {:.1} \
         µs.",
        pace.pace_spread_percent, pace.explained_percent, pace.spread_uncorrected_us, calibration.spread_us
    )
}

fn words(limit: &Limit) -> String {
    if limit.limit_us.is_finite() {
        format!("{:.1} µs ({:.1} %)", limit.limit_us, limit.limit_percent)
    } else {
        "too short".to_owned()
    }
}
