//! What is started and checked before a profile is measured.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_engine::load::{Plan, Resumption};
use tlsdyno_native::{Clock, Profiling};
use tlsdyno_record::model::Experiment;
use tlsdyno_record::store::warning::shared_cpus;
use tlsdyno_record::store::{Configuration, KindPart, Record, Warning};
use tlsdyno_runner::run::cpus::Cpus;
use tlsdyno_runner::run::manifest;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::own_command::tell_effects;
use tlsdyno_runner::run::preflight::{Check, checks_of};
use tlsdyno_runner::run::sliced::SlicedPart;
use tlsdyno_runner::run::testbed::Testbed;
use tlsdyno_tls::{Stage, StageSet};

use super::sampled::Sampling;
use super::{FreshServers, Inside, Profile, Sweeps, Timing, counted, sliced_rounds};
use crate::profile::ProfileRecord;
use crate::profile::file::{self, Cell, Handshakes, ProfileExperiment, Treatment};

/// The configuration of the testbed that is profiled ([`ProfileExperiment::of_servers`]).
const PROFILED: usize = 0;

/// A cell with its server.
pub(super) struct Placed {
    pub(super) cell: Cell,
    /// Index of the configuration in the testbed.
    pub(super) server: usize,
    /// Index of the cell that this one is compared with.
    pub(super) base: Option<usize>,
}

impl Profile {
    pub(super) fn start(
        experiment: &ProfileExperiment,
        cpus: Cpus,
        record: &mut Record,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Profile> {
        // Its servers end before those that are timed start.
        let counted = if experiment.profile.counted {
            counted::instructions(experiment, cpus, stop, observer)?
        } else {
            Vec::new()
        };
        let servers = experiment.of_servers();
        let clock = Clock::best();
        let mut testbed = with_profiler(&servers, clock, cpus, observer)?;
        let checks = check_all(&mut testbed, stop, observer)?;
        let sampling = samplers(experiment, &mut testbed, record);
        let profile = file::Profile { sampled: !sampling.is_empty(), ..experiment.profile.clone() };
        let experiment = &ProfileExperiment { profile, ..experiment.clone() };
        let cells = placed(experiment, &testbed);
        for placed in &cells {
            let configuration = configuration(placed, &checks[placed.server]);
            observer.preflight(&configuration.name, configuration.preflight.passed.len(), &[]);
            record.configurations.push(configuration);
        }
        if cpus.shared() {
            record.warnings.push(shared_cpus(&format!("only CPU {} may be used", cpus.server)));
        }
        let profiling = testbed.servers[PROFILED].profiling.as_ref().context("the profiler was prepared")?;
        record.kind_part = KindPart::from(ProfileRecord {
            experiment: ProfileExperiment { server: experiment.server.without_secrets(), ..experiment.clone() },
            cells: cells.iter().map(|placed| placed.cell).collect(),
            clock,
            clock_reading_ps: (profiling.clock_ns()? * 1e3) as u64,
            sees_kernel: sampling.get(&PROFILED).map(Sampling::sees_kernel),
            counted,
        });
        manifest::describe(&mut record.manifest, &mut testbed);
        observer.step("starting the load process");
        let plans = cells.iter().map(|placed| plan(&testbed, placed)).collect::<Result<Vec<_>>>()?;
        let load = testbed.start_load_on(&plans)?;
        let rounds = sliced_rounds(Duration::from_secs_f64(experiment.measure.time_s));
        let is_own = servers.server.kind.is_users_own();
        let keeps_sessions = cells.iter().any(|placed| placed.cell.handshakes == Handshakes::Resumed);
        let mut profile = Profile {
            sweeps: Sweeps::new(parts(&cells, &testbed), keeps_sessions, false),
            inside: Inside { cells, sampling, counts_before: None },
            connections: experiment.profile.connections,
            slice_us: experiment.measure.slice_us,
            testbed,
            load,
            timing: Timing::default(),
            fresh: (!is_own).then(|| FreshServers::new(servers.server.kind, Some(rounds))),
        };
        profile.start_more_servers(observer)?;
        Ok(profile)
    }

    /// Fills the pools of servers that replace those that are measured first.
    fn start_more_servers(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let hosts = self.hosts();
        let Some(fresh) = &mut self.fresh else { return Ok(()) };
        observer.step("starting more servers of each kind");
        // What the threads of these did in checks and warm-up is forgotten, so that they are not measured.
        hosts.iter().for_each(|host| self.testbed.is_measured(*host));
        fresh.start(&mut self.testbed, &hosts, None)
    }
}

/// Samplers by server; none, with a warning, where the machine does not allow sampling.
fn samplers(experiment: &ProfileExperiment, testbed: &mut Testbed, record: &mut Record) -> BTreeMap<usize, Sampling> {
    if !experiment.profile.sampled {
        return BTreeMap::new();
    }
    let is_sampled = |index: &usize| *index == PROFILED || testbed.servers[*index].model.plain_http;
    let sampled: Vec<usize> = (0..testbed.servers.len()).filter(is_sampled).collect();
    let mut opened = BTreeMap::new();
    // The profiled server comes first: the other one's samples say nothing without its own.
    for index in sampled {
        match Sampling::of(testbed, index) {
            Ok(sampling) => opened.insert(index, sampling),
            Err(error) => {
                let what = if index == PROFILED {
                    format!("everything outside of the stages is one number, for nothing could be sampled: {error:#}")
                } else {
                    format!("the server without TLS could not be sampled: {error:#}")
                };
                let remedy = "--no-sampling says that it is not wanted";
                record.warnings.push(Warning::new("not_sampled", what).with_remedy(remedy));
                break;
            }
        };
    }
    opened
}

/// Prepares the servers, with the profiler in the profiled one, without starting any.
fn with_profiler(servers: &Experiment, clock: Clock, cpus: Cpus, observer: &mut dyn Observer) -> Result<Testbed> {
    let mut testbed = Testbed::prepare(servers, cpus, &mut |text| observer.step(text))?;
    tell_effects(servers, &testbed.network, observer).or_fault(Fault::Input)?;
    let profiling = Profiling::prepare(&testbed.make_directory("profiler")?, clock)?;
    testbed.servers[PROFILED].profile_with(profiling);
    Ok(testbed)
}

/// Starts and checks one server after the other.
fn check_all(testbed: &mut Testbed, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Vec<Vec<Check>>> {
    let mut checks = Vec::new();
    for index in 0..testbed.servers.len() {
        interrupt::before_measuring(stop, interrupt::check(stop))?;
        observer.step(&format!("starting and checking: {}", testbed.servers[index].model.name));
        checks.push(interrupt::before_measuring(stop, check(testbed, index))?);
    }
    Ok(checks)
}

/// The cells as parts of sweeps.
fn parts(cells: &[Placed], testbed: &Testbed) -> Vec<SlicedPart> {
    let server_of = |cell: &Placed| testbed.host(cell.server);
    // The first cell of a server is the one with nothing done to it.
    let host_of = |own: &Placed| cells.iter().position(|other| server_of(other) == server_of(own)).unwrap_or_default();
    let part = |own: &Placed| SlicedPart { server: own.server, host: host_of(own), name: own.cell.to_string() };
    cells.iter().map(part).collect()
}

/// Starts a server and checks it. The profiler must have seen calls in the profiled one.
fn check(testbed: &mut Testbed, index: usize) -> Result<Vec<Check>> {
    testbed.activate(index)?;
    let profiling = |testbed: &Testbed, timed: bool| -> Result<()> {
        testbed.servers[index].profiling.as_ref().map_or(Ok(()), |profiling| profiling.set_timed(timed))
    };
    profiling(testbed, true)?;
    let mut checks = checks_of(testbed, index)?;
    profiling(testbed, false)?;
    let failed: Vec<String> =
        checks.iter().filter(|check| !check.passed).map(|check| format!("{} ({})", check.name, check.seen)).collect();
    let name = &testbed.servers[index].model.name;
    ensure_fault!(Server, failed.is_empty(), "the server \"{name}\" does not pass its checks: {}", failed.join("; "));
    if let Some(profiling) = &testbed.servers[index].profiling {
        let counts = profiling.counts()?;
        let (calls, timed) = counts.calls();
        ensure_fault!(
            Server,
            timed > 0 && counts.ns_of(Stage::Kdf) > 0.0,
            "the server answered, but none of its handshakes called the profiled provider ({calls} calls): it may \
                 be linked with an OpenSSL of its own, use another TLS library, or fetch from a provider that its own \
                 openssl.cnf names"
        );
        checks.push(Check::new("calls into the provider are timed", true, format!("{timed} of {calls} calls")));
    }
    Ok(checks)
}

/// The cells with their servers.
fn placed(experiment: &ProfileExperiment, testbed: &Testbed) -> Vec<Placed> {
    let cells = experiment.cells();
    let server_of = |treatment: Treatment| {
        let name = treatment.configuration().name;
        testbed.servers.iter().position(|server| server.model.name == name).unwrap_or(PROFILED)
    };
    let base_of = |cell: &Cell| {
        let base = Cell { treatment: cell.treatment.base()?, ..*cell };
        cells.iter().position(|other| *other == base)
    };
    cells.iter().map(|cell| Placed { cell: *cell, server: server_of(cell.treatment), base: base_of(cell) }).collect()
}

fn configuration(Placed { cell, base, .. }: &Placed, checks: &[Check]) -> Configuration {
    let passed = checks.iter().map(|check| format!("{} ({})", check.name, check.seen)).collect();
    let noop = if let Treatment::Off(stages) = cell.treatment { stages } else { StageSet::NONE };
    Configuration { noop, host_number: *base, ..Configuration::setting(cell.to_string(), true, passed) }
}

fn plan(testbed: &Testbed, placed: &Placed) -> Result<Plan> {
    let resumes = placed.cell.handshakes == Handshakes::Resumed && !placed.cell.treatment.is_plain();
    let resumption = if resumes { Resumption::Share(1.0) } else { Resumption::Never };
    Ok(Plan { resumption, ..testbed.plan(placed.server)? })
}
