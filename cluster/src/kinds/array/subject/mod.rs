//! The array of proxies (Mraz, Witting and Dantzig 2002): none to several machines that end TLS in front of one
//! transaction server, at one percent reuse after the other.
//!
//! All machines are up together; blocks of all places (so many proxies, so much reuse, plain HTTP) alternate in random
//! order within each round.

pub mod place;
mod testbed;
mod verify;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use tlsdyno_engine::sys::monotonic_ns;

use self::place::Placement;
use self::testbed::{ArrayTestbed, Usage};
use crate::fault::{Fault, OrFault};
use crate::interrupt;
use crate::kinds::array::ArrayRecord;
use crate::kinds::array::file::{ArrayExperiment, ArrayPlace};
use crate::model::ServerName;
use crate::model::job::Timed;
use crate::run::load_process::{LoadProcess, Sessions};
use crate::run::observer::Observer;
use crate::run::runner::{self, Finished, Plan, Subject};
use crate::run::schedule::{Piece, Work, requests_of_users, timed_blocks};
use crate::run::verify::{death, is_dead};
use crate::run::{cpus, manifest};
use crate::servers::quota;
use crate::store::{BackendUse, Block, ClusterBlock, Configuration, Journal, Measured, Record};

/// Length of the warm-up of a place.
const WARM_UP: Duration = Duration::from_millis(500);
/// The shortest and the longest block.
const BLOCK: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];
/// Fixed cost of a block besides its lead-in: command, the last responses.
const BLOCK_OVERHEAD: Duration = Duration::from_millis(100);
/// Longest sleep before Ctrl-C is looked for.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Runs the experiment. An error means that measuring did not begin.
pub fn run(experiment: &ArrayExperiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    experiment.check().or_fault(Fault::Usage)?;
    if experiment.array.proxies.iter().any(|count| *count > 0) {
        experiment.array.proxy.refuse_missing()?;
    }
    runner::run(&experiment.question, &experiment.measure, stop, observer, |record, observer| {
        ProxyArray::start(experiment, record, stop, observer)
    })
}

/// The places of an array.
struct ProxyArray<'a> {
    experiment: &'a ArrayExperiment,
    places: Vec<ArrayPlace>,
    load: LoadProcess,
    testbed: ArrayTestbed<'a>,
}

impl<'a> ProxyArray<'a> {
    fn start(
        experiment: &'a ArrayExperiment,
        record: &mut Record,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<ProxyArray<'a>> {
        let placement = Placement::of(experiment, &cpus::allowed()).or_fault(Fault::Usage)?;
        if placement.quota_cpus.is_some() {
            quota::require()
                .context("the machines of an array have quotas of CPU time")
                .or_fault(Fault::Environment)?;
        }
        let started = ArrayTestbed::start(experiment, placement, &mut |text| observer.step(text));
        let testbed = interrupt::before_measuring(stop, started)?;
        let places = experiment.places();
        for place in &places {
            let configuration = configuration(experiment.name(place), place, &testbed);
            observer.preflight(&configuration.name, configuration.preflight.passed.len(), &[]);
            record.configurations.push(configuration);
        }
        describe(record, experiment, &testbed);
        observer.step("starting the load process");
        let load = testbed.start_load(&places)?;
        Ok(ProxyArray { experiment, places, load, testbed })
    }
}

fn configuration(name: String, place: &ArrayPlace, testbed: &ArrayTestbed) -> Configuration {
    Configuration::setting(name, place.percent.is_some(), testbed.checks.clone())
}

/// Fills in the circumstances, once everything runs.
fn describe(record: &mut Record, experiment: &ArrayExperiment, testbed: &ArrayTestbed) {
    record.measured = Measured::from(ArrayRecord { experiment: experiment.clone(), scale: testbed.scale });
    let manifest = &mut record.manifest;
    let placement = &testbed.placement;
    let mut cpus: Vec<u32> = placement.proxies.iter().chain([&placement.server]).map(|cpu| *cpu as u32).collect();
    cpus.sort_unstable();
    cpus.dedup();
    manifest.server_cpus = cpus;
    manifest.client_cpus = manifest::cpus_of_load(experiment.workers.as_ref(), placement.load);
    manifest.hardware = BTreeMap::from([("array".to_owned(), placement.description(experiment.workers.as_ref()))]);
    manifest.certificate = experiment.tls.certificate().to_string();
    manifest.effort = experiment.array.effort.to_string();
    manifest.workload = manifest::workload_line(&testbed.site.summary);
    manifest.server_name = match placement.proxies.is_empty() {
        true => ServerName::Builtin.to_string(),
        false => experiment.array.proxy.to_string(),
    };
    for (number, (name, instance)) in testbed.machines().enumerate() {
        let description = instance.description();
        let text = format!("# {}\n{}", description.version, description.config);
        if number == 0 {
            manifest::describe_server(manifest, description);
        }
        manifest.server_config.insert(name, text);
    }
    if let Ok(toml) = experiment.to_toml() {
        manifest.server_config.insert("experiment.toml".to_owned(), toml);
    }
}

impl Subject for ProxyArray<'_> {
    fn warm_up(&self, _index: usize, _factor: u32) -> Work {
        let timed = Timed { for_ns: WARM_UP.as_nanos() as u64, seed: 0 };
        Work { timed: Some(timed), ..self.everybody().into() }
    }

    fn is_warm(&self, block: &Block) -> bool {
        block.valid
    }

    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan {
        let most = seconds_per_request.iter().map(|seconds| 1.0 / seconds.max(1e-9)).fold(0.0, f64::max);
        let lead_ins: Duration = self.places.iter().map(|place| self.testbed.lead_in(place)).sum();
        // What is under way at the end takes as long as all beginning at once does, where every page is a beginning.
        let overhead = BLOCK_OVERHEAD + lead_ins * 3 / 2 / self.places.len().max(1) as u32;
        let (timed, schedule) = timed_blocks(left, seconds_per_request.len() as u32, BLOCK, overhead, most);
        let work = Work { timed: Some(timed), ..self.everybody().into() };
        Plan { schedule, works: vec![work], rounds_most: None, slices: None, warnings: Vec::new() }
    }

    fn block(&mut self, index: usize, work: &Work, journal: &mut Journal) -> Result<Block> {
        let place = self.places[index];
        let name = &journal.record().configurations[index].name;
        let address = self.testbed.address(&place).with_context(|| format!("\"{name}\" has no machine"))?;
        self.load.begin(index, address, work, Sessions::New)?;
        let begins_ns = self.load.begins_ns()?;
        let used = self.used_while_counting(&place, work, begins_ns);
        interrupt::check_this_process()?;
        let outcome = self.load.outcome();
        // A proxy that has died is the news, not what the load makes of it.
        let used = used?;
        let outcome = outcome?;
        if is_dead(&outcome) {
            return Err(death(name, &outcome, &self.log_tail(index)));
        }
        if journal.record().manifest.negotiated.is_empty() && place.percent.is_some() {
            let negotiated = manifest::negotiated_text(&outcome.negotiated);
            journal.change(|record| record.manifest.negotiated = negotiated);
        }
        let verdict = verify::verify(self.experiment, &place, &outcome, &used);
        let of_machine = |cpu_ns: &u64| BackendUse { cpu_ns: *cpu_ns, connections: 0, locality: None };
        Ok(Block {
            server_cpu_ns: used.ends_ns.iter().sum(),
            companion_cpu_ns: used.behind_ns,
            client_bound: verdict.client_bound,
            valid: verdict.valid,
            warnings: verdict.warnings,
            cluster: Some(ClusterBlock {
                dispatcher_cpu_ns: used.dispatcher_ns,
                backends: used.ends_ns.iter().map(of_machine).collect(),
                unserved: outcome.unserved,
            }),
            ..Block::from(&outcome)
        })
    }

    /// Ends nothing: what has died is started anew for the other places that it belongs to.
    fn leave_out(&mut self, _index: usize) -> bool {
        // First, for workers may be waited for at one port only.
        self.load.end();
        let started = self.testbed.replace_dead().and_then(|_| self.testbed.start_load(&self.places));
        started.map(|load| self.load = load).is_ok()
    }

    fn log_tail(&mut self, index: usize) -> String {
        self.testbed.log_tail(&self.places[index])
    }
}

impl ProxyArray<'_> {
    /// CPU times of a block's counted part, while the load is made: from the end of the lead-in until the block's time
    /// is over, by the clock that says when all loops begin. Ends early on Ctrl-C.
    fn used_while_counting(&mut self, place: &ArrayPlace, work: &Work, begins_ns: u64) -> Result<Usage> {
        let counting_ns = begins_ns + self.testbed.lead_in(place).as_nanos() as u64;
        sleep_until(counting_ns)?;
        let before = self.testbed.cpu(place)?;
        sleep_until(counting_ns + work.timed.map_or(0, |timed| timed.for_ns))?;
        Ok(difference(&before, &self.testbed.cpu(place)?))
    }

    /// All users of the workload, over and over.
    fn everybody(&self) -> Piece {
        let requests = requests_of_users(&self.testbed.site.workload);
        Piece { users: 0..requests.len() as u32, requests: requests.iter().copied().map(u64::from).sum() }
    }
}

/// Waits until then, nanoseconds of the monotonic clock, unless Ctrl-C comes first.
fn sleep_until(moment_ns: u64) -> Result<()> {
    loop {
        interrupt::check_this_process()?;
        let left = Duration::from_nanos(moment_ns.saturating_sub(monotonic_ns()));
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(SLEEP_MAX));
    }
}

/// What was used between two readings.
fn difference(before: &Usage, after: &Usage) -> Usage {
    let each = before.ends_ns.iter().zip(&after.ends_ns);
    Usage {
        ends_ns: each.map(|(before, after)| after.saturating_sub(*before)).collect(),
        behind_ns: after.behind_ns.saturating_sub(before.behind_ns),
        dispatcher_ns: after.dispatcher_ns.saturating_sub(before.dispatcher_ns),
    }
}
