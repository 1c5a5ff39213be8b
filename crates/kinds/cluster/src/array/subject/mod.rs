//! The array of proxies (Mraz, Witting and Dantzig 2002): none to several machines that end TLS in front of one
//! transaction server, at one percent reuse after the other.
//!
//! All machines are up together; blocks of all places (so many proxies, so much reuse, plain HTTP) alternate in random
//! order within each round.

mod accelerator;
mod machines;
mod verify;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_load::curve::file::hits_per_handshake;
use tlsdyno_record::model::ServerName;
use tlsdyno_record::model::job::Timed;
use tlsdyno_record::store::{Block, Configuration, Journal, KindPart, OfKind, Record, Warning};
use tlsdyno_runner::kinds::AnyExperiment;
use tlsdyno_runner::run::cpus;
use tlsdyno_runner::run::load_process::{LoadProcess, Sessions};
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::runner::{self, Finished, Plan, Subject};
use tlsdyno_runner::run::schedule::Work;
use tlsdyno_runner::run::verify::{death, is_dead};
use tlsdyno_servers::{Proxy, quota};
use tlsdyno_stats::reuse::ReuseAxis;
use tlsdyno_sys::monotonic_ns;

use self::accelerator::Accelerators;
use self::machines::Machines;
use crate::array::ArrayRecord;
use crate::array::file::{ArrayExperiment, ArrayPlace};
use crate::several_machines::block::{block, is_warm, note_negotiated};
use crate::several_machines::placement::Placement;
use crate::several_machines::testbed::Usage;

/// Length of the warm-up of a place.
const WARM_UP: Duration = Duration::from_millis(500);
/// The shortest and the longest block.
const BLOCK: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];
/// Full handshakes that a block is to hold, and requests of each client: with fewer, which reuse comes out is chance.
const FULL_WANTED: u32 = 20;
const REQUESTS_OF_CLIENT_WANTED: u32 = 6;
/// Fixed cost of a block besides its lead-in: command, the last responses.
const BLOCK_OVERHEAD: Duration = Duration::from_millis(100);
/// Longest sleep before Ctrl-C is looked for.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Runs the experiment, which was checked. An error means that measuring did not begin.
pub fn run(experiment: &ArrayExperiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    if experiment.most_proxies() > 0 {
        let proxy = experiment.array.proxy;
        let otherwise = format!(", or take another --proxy than {proxy}; {} is always there", Proxy::Own);
        proxy.refuse_missing(&otherwise)?;
    }
    runner::run(&experiment.question, &experiment.measure, stop, observer, |record, observer| {
        ProxyArray::start(experiment, record, stop, observer)
    })
}

/// The places of an array.
struct ProxyArray<'a> {
    experiment: &'a ArrayExperiment,
    places: Vec<ArrayPlace>,
    /// Seconds that a request of each place took in its last block; 0: it has had none.
    seconds_per_request: Vec<f64>,
    load: LoadProcess,
    machines: Machines<'a>,
}

impl<'a> ProxyArray<'a> {
    fn start(
        experiment: &'a ArrayExperiment,
        record: &mut Record,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<ProxyArray<'a>> {
        let wanted = machines::wanted(experiment);
        let placement = Placement::of(&wanted, &cpus::allowed()).or_fault(Fault::Usage)?;
        let placement = placement.or_unlimited(&wanted, quota::require).or_fault(Fault::Environment)?;
        let started = Machines::start(experiment, placement, &mut |text| observer.step(text));
        let machines = interrupt::before_measuring(stop, started)?;
        let places = experiment.places();
        for (index, place) in places.iter().enumerate() {
            let (name, checks) = (experiment.name(place), machines.checks(index));
            observer.preflight(&name, checks.len(), &[]);
            record.configurations.push(Configuration::setting(name, place.percent.is_some(), checks));
        }
        describe(record, experiment, &machines);
        observer.step("starting the load process");
        let load = machines.start_load(&places)?;
        let seconds_per_request = vec![0.0; places.len()];
        Ok(ProxyArray { experiment, places, seconds_per_request, load, machines })
    }

    /// How long a block of a place counts, so that it holds the reuse that is asked for.
    fn counts_for(&self, index: usize, least: Duration) -> Duration {
        let array = &self.experiment.array;
        let by_hits = self.places[index].percent.filter(|_| array.by == ReuseAxis::Hits);
        let Some(each) = by_hits.and_then(|percent| hits_per_handshake(percent).ok()) else { return least };
        let requests = FULL_WANTED.saturating_mul(each).max(REQUESTS_OF_CLIENT_WANTED * array.clients_count);
        let takes = Duration::from_secs_f64(f64::from(requests) * self.seconds_per_request[index]);
        takes.clamp(least, BLOCK[1].max(least))
    }

    /// CPU times of a block's counted part, while the load is made: from the end of the lead-in until the block's time
    /// is over, by the clock that says when all loops begin. Ends early on Ctrl-C.
    fn used_while_counting(&mut self, index: usize, work: &Work, begins_ns: u64) -> Result<Usage> {
        let lead_in = self.machines.lead_in(&self.places[index]);
        let Machines { testbed, routes, .. } = &mut self.machines;
        let counting_ns = begins_ns + lead_in.as_nanos() as u64;
        sleep_until(counting_ns)?;
        let before = testbed.cpu(&routes[index])?;
        sleep_until(counting_ns + work.timed.map_or(0, |timed| timed.for_ns))?;
        Ok(testbed.cpu(&routes[index])?.since(&before))
    }
}

/// Fills in the circumstances, once everything runs.
fn describe(record: &mut Record, experiment: &ArrayExperiment, machines: &Machines) {
    record.kind_part = KindPart::from(ArrayRecord { experiment: experiment.clone(), scale: machines.scale });
    let (manifest, testbed) = (&mut record.manifest, &machines.testbed);
    let accelerators = machines.accelerators.as_ref().and_then(Accelerators::told);
    let placement = machines::description(&testbed.placement, experiment);
    let placement = [Some(placement), accelerators].into_iter().flatten().collect::<Vec<_>>().join("; ");
    manifest.hardware.insert(ArrayRecord::FIELD.to_owned(), placement);
    manifest.server_name = match experiment.most_proxies() {
        0 => ServerName::Builtin.to_string(),
        _ => experiment.array.proxy.to_string(),
    };
    manifest.certificate = experiment.tls.certificate().to_string();
    manifest.server_config.insert("experiment.toml".to_owned(), experiment.to_toml().unwrap_or_default());
    testbed.describe(manifest, experiment.workers.as_ref(), machines.first, &[]);
}

impl Subject for ProxyArray<'_> {
    fn warm_up(&self, _index: usize, _factor: u32) -> Work {
        let timed = Timed { for_ns: WARM_UP.as_nanos() as u64, seed: 0 };
        Work { timed: Some(timed), ..self.machines.testbed.everybody().into() }
    }

    /// A warm-up tells how long blocks must be to hold their reuse, and need not hold it.
    fn is_warm(&self, block: &Block) -> bool {
        let has_other_reuse_only = |of: &[Warning]| of.iter().all(|of| of.code == verify::HITS_PER_HANDSHAKE);
        is_warm(block) || !block.warnings.is_empty() && has_other_reuse_only(&block.warnings)
    }

    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan {
        let lead_ins: Duration = self.places.iter().map(|place| self.machines.lead_in(place)).sum();
        let longer: Duration = (0..self.places.len()).map(|index| self.counts_for(index, BLOCK[0]) - BLOCK[0]).sum();
        // What is under way at the end takes as long as all beginning at once does, where every page is a beginning.
        let overhead = BLOCK_OVERHEAD + (lead_ins * 3 / 2 + longer) / self.places.len().max(1) as u32;
        Plan::of_timed_blocks(self.machines.testbed.everybody(), left, seconds_per_request, BLOCK, overhead)
    }

    fn block(&mut self, index: usize, work: &Work, journal: &mut Journal) -> Result<Block> {
        let place = self.places[index];
        let name = &journal.record().configurations[index].name;
        let entries = self.machines.entries(index, &place);
        let address = *entries.first().with_context(|| format!("\"{name}\" has no machine"))?;
        let timed = work.timed.map(|timed| {
            let for_ns = self.counts_for(index, Duration::from_nanos(timed.for_ns)).as_nanos() as u64;
            Timed { for_ns, ..timed }
        });
        let work = &Work { timed, ..work.clone() };
        self.load.begin(index, address, work, Sessions::New)?;
        let begins_ns = self.load.begins_ns()?;
        let used = self.used_while_counting(index, work, begins_ns);
        interrupt::check_this_process()?;
        let outcome = self.load.outcome();
        // A proxy that has died is the news, not what the load makes of it.
        let used = used?;
        let outcome = outcome?;
        if is_dead(&outcome) {
            return Err(death(name, &outcome, &self.log_tail(index)));
        }
        note_negotiated(journal, &outcome);
        self.seconds_per_request[index] = outcome.elapsed_ns as f64 / 1e9 / outcome.hits.max(1) as f64;
        let verdict = verify::verify(self.experiment, &place, &outcome, &used);
        Ok(block(&outcome, &used, verdict, None))
    }

    /// Ends nothing: what has died is started anew for the other places that it belongs to.
    fn leave_out(&mut self, _index: usize) -> bool {
        // First, for workers may be waited for at one port only.
        self.load.end();
        let started = self.machines.testbed.replace_dead().and_then(|()| self.machines.start_load(&self.places));
        started.map(|load| self.load = load).is_ok()
    }

    fn log_tail(&mut self, index: usize) -> String {
        self.machines.testbed.log_tail(&self.machines.routes[index])
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
