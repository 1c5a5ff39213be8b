//! `tlsdyno doctor --calibrate`: known costs are injected, to see what the instrument makes of them on this machine.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde::Serialize;
use tlsdyno_tls::StageSet;

use super::alone;
use crate::choice::choice;
use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::interrupt;
use crate::kinds::Progress;
use crate::kinds::ablation::Ablation;
use crate::kinds::ablation::subject::run as run_experiment;
use crate::kinds::ablation::summary::calibration::{Names, SliceTrial, Starts, evaluate};
use crate::kinds::flags::number;
use crate::model::workload::WorkloadSpec;
use crate::model::{CertificateKind, ConfigurationModel, Experiment, Load, Measure, Server, ServerName, Tls};
use crate::output::json_of;
use crate::report::document::{Column, Content, Document, Field, Section, Table, row};
use crate::report::terminal::{self, Style};
use crate::run::check::CheckExperiment;
use crate::run::modes::REFERENCE;
use crate::stats::rounds::Rounds;
use crate::store::calibration::Recovered;
use crate::store::{Calibration, Record};
use crate::time::Time;
use crate::units::{format_duration, format_interval};

/// CPU time injected into each handshake, microseconds.
const INJECTED_US: [f64; 3] = [20.0, 50.0, 200.0];
/// The server with nothing off once more.
const AGAIN: &str = "nothing off, again";
/// Measuring times for which the limit is told, seconds.
const TIMES_S: [f64; 3] = [10.0, 60.0, 180.0];
/// Configurations that share the measuring time: of one comparison, and of a whole `ablate`.
const SHARERS: [(&str, f64); 2] = [("two configurations", 2.0), ("ten (ablate)", 10.0)];
/// Part of the measuring time that each length of slices is tried for, in addition, and the least of it in seconds.
const TRIAL_SHARE: f64 = 1.0 / 6.0;
const TRIAL_LEAST_S: f64 = 5.0;
/// Most seconds that burns are measured for without a server.
const ALONE_MOST_S: f64 = 10.0;
/// A length of slices is recommended if intervals are narrower with it by this factor.
const WORTH_CHANGING: f64 = 0.8;

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
    #[arg(value_parser = number("a number of seconds from 1 to 86,400", 1.0..=86_400.0))]
    time: f64,
    /// Server of the calibration
    #[arg(long, value_name = "NAME", default_value_t = ServerName::Nginx)]
    #[arg(value_parser = choice(ServerName::configured()), requires = "calibrate")]
    server: ServerName,
    /// Certificate of that server
    #[arg(long, value_name = "TYPE", default_value_t = CertificateKind::P256)]
    #[arg(value_parser = choice(CertificateKind::ALL), requires = "calibrate")]
    cert: CertificateKind,
    /// Try slices of these lengths too, each for a sixth of the time besides, at least 5 s; 0: none
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "2ms,5ms,20ms,100ms")]
    #[arg(requires = "calibrate")]
    slices: Vec<Time>,
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
    /// The calibration's own slices, then the other lengths.
    slice_trials: &'a [SliceTrial],
    /// `null`: too few of them.
    starts: Option<Starts>,
    /// What the same burns come to in a bare server without the instrument.
    alone: &'a [Recovered],
}

/// Runs the calibration, keeps it and answers what to print.
pub fn run(args: &Args, json: bool) -> Result<String> {
    let experiment = experiment(args).or_fault(Fault::Usage)?;
    experiment.check().or_fault(Fault::Usage)?;
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    let burning = INJECTED_US.iter().map(|us| (*us, burn_name(*us))).collect();
    let names = Names { again: AGAIN.to_owned(), burning };
    let record = measured(&experiment, &stop)?;
    let rounds = Rounds::of(&record);
    let Some(mut calibration) = evaluate(&rounds, &names) else {
        return Err(why_nothing(&record)).or_fault(Fault::Invalid);
    };
    let mut trials: Vec<SliceTrial> = SliceTrial::of(&rounds, &names).into_iter().collect();
    for slice in args.slices.iter().filter(|slice| !slice.0.is_zero()) {
        let slice_us = Some(slice.0.as_micros() as u64);
        let measure =
            Measure { slice_us, time_s: (args.time * TRIAL_SHARE).max(TRIAL_LEAST_S), ..experiment.measure.clone() };
        let record = measured(&Experiment { measure, ..experiment.clone() }, &stop)?;
        trials.extend(SliceTrial::of(&Rounds::of(&record), &names));
    }
    calibration.slice_us = better_length(&trials);
    let starts = Starts::of(&trials);
    let length = Duration::from_secs_f64((args.time * TRIAL_SHARE).min(ALONE_MOST_S));
    let alone = match (record.manifest.server_cpus.first(), record.manifest.client_cpus.first()) {
        (Some(server), Some(client)) => {
            let cpus = alone::Cpus { server: *server as usize, client: *client as usize };
            alone::recovered(&INJECTED_US, args.cert, cpus, length, &stop)?
        }
        _ => Vec::new(),
    };
    let kept = if args.dry { None } else { Some(calibration.keep()?) };
    if json {
        let limits = limits(&calibration);
        return json_of(&Outcome { calibration: &calibration, limits, slice_trials: &trials, starts, alone: &alone });
    }
    let mut document = document(&calibration, &alone);
    document.sections.extend(trials_section(&trials, starts, calibration.slice_us));
    let kept = kept.map(|path| format!("Kept in {}: later reports of this machine carry it.", path.display()));
    document.sections.push(Section::default().notes(kept));
    Ok(terminal::text(&document, Style::of_stdout()))
}

/// The record of a calibration that was not cut short.
fn measured(experiment: &Experiment, stop: &AtomicBool) -> Result<Record> {
    let mut progress = Progress::of(&Ablation);
    let finished = run_experiment(experiment, stop, &mut progress);
    progress.clear();
    let finished = finished?;
    match finished.cut_short {
        Some(error) => Err(error.context("the calibration was cut short; nothing is kept")),
        None => Ok(finished.record),
    }
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
        tls: Tls { certificate: Some(args.cert), ..Tls::default() },
        workload: WorkloadSpec::Url {
            path: "/object".to_owned(),
            bytes: Some(1024),
            users: 20_000,
            requests_per_user: 1,
        },
        load: Load { reuse_percent: Some(0.0), requests_per_connection: Some(1), ..Load::default() },
        measure: Measure { time_s: args.time, slice_us: Some(Measure::SLICE_US), ..Measure::default() },
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

fn document(calibration: &Calibration, alone: &[Recovered]) -> Document {
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
    let recovered = Content::Table(Table::from_fields(fields, &calibration.recovered));
    let without: Vec<String> = alone
        .iter()
        .map(|one| format!("{:.1} {}", one.measured_us, format_interval(one.low_us, one.high_us)))
        .collect();
    let without = (!alone.is_empty()).then(|| {
        format!(
            "In a bare server, a loop around OpenSSL without the instrument, the same burns come to {} µs: so much \
             dearer warm work is here after a pause.",
            without.join(", ")
        )
    });
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
    Document::from_sections([
        Section::default().text(what).with(recovered).notes(without),
        Section::titled("", limits).table(times, found.collect()),
        Section::default().notes([formula]),
    ])
}

/// The length of slices, microseconds, that compares much better than the first one, which is the default.
fn better_length(trials: &[SliceTrial]) -> Option<u64> {
    let (first, others) = trials.split_first()?;
    let narrowest = others.iter().min_by(|a, b| a.half_width_us.total_cmp(&b.half_width_us))?;
    (narrowest.half_width_us < first.half_width_us * WORTH_CHANGING).then_some(narrowest.asked_us)
}

/// What slices of several lengths came to, what a difference scatters by, and what starts of the servers differ by.
fn trials_section(trials: &[SliceTrial], starts: Option<Starts>, better_us: Option<u64>) -> Option<Section> {
    let first = trials.first()?;
    let fields: [Field<SliceTrial>; _] = [
        (Column::number("slices of"), |trial| format_duration(trial.slice_us * 1e3)),
        (Column::number("sweeps"), |trial| trial.sweeps_number.to_string()),
        (Column::number("a hit"), |trial| format!("{:.0} µs", trial.hit_us)),
        (Column::number("200 µs burnt"), |trial| format!("{:.0} µs", trial.largest_us)),
        (Column::number("spread"), |trial| format!("{:.1} µs", trial.spread_us)),
        (Column::number("± after 1 min"), |trial| format!("{:.1} µs", trial.half_width_us)),
    ];
    let advice = (trials.len() > 1).then(|| match better_us {
        Some(us) => format!(
            "On this machine slices of {} compare better than those by default: later runs use them where --slice \
             names no other length.",
            format_duration(us as f64 * 1e3)
        ),
        None => "On this machine no other length of slices compares much better than the default.".to_owned(),
    });
    let scatter = first.scatter.map(|of| {
        format!(
            "The difference of two equal modes scatters by {:.1} µs from slice to slice, besides by {:.1} µs from \
             sweep to sweep and by {:.1} µs from start to start of the server (standard deviations); of the variance \
             of its mean {:.0} % is of slices, {:.0} % of sweeps, {:.0} % of starts.",
            of.slices_us, of.sweeps_us, of.starts_us, of.of_slices_percent, of.of_sweeps_percent, of.of_starts_percent
        )
    });
    let starts = starts.map(|Starts { starts_number, seen_us, explained_us }| {
        format!(
            "In {starts_number} starts of the servers, what provider and shim cost differed by {seen_us:.1} µs \
             (standard deviation); {explained_us:.1} µs of that are in the intervals."
        )
    });
    let table = Content::Table(Table::from_fields(fields, trials));
    Some(
        Section::titled("", "Lengths of slices, the default first:")
            .with(table)
            .notes(advice.into_iter().chain(scatter).chain(starts)),
    )
}

fn words(limit: &Limit) -> String {
    if limit.limit_us.is_finite() {
        format!("{:.1} µs ({:.1} %)", limit.limit_us, limit.limit_percent)
    } else {
        "too short".to_owned()
    }
}
