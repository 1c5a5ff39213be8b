//! A server under somebody else's traffic, which can neither be repeated nor drained: the mode changes at random every
//! 20 to 100 ms, and each interval tells what the server's processes used and what the doubler counted. What a second
//! computation costs comes from a regression over all intervals (`summary/traffic.rs`).

mod watch;

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tlsdyno_base::exchange::exchange;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_native::{Doubled, Doubling, DoublingCounters};
use tlsdyno_record::model::{Experiment, ForeignTraffic};
use tlsdyno_record::store::{Block, Configuration, Interval, Journal, KindPart, Record, Role, of_interval};
use tlsdyno_runner::run::cpus::Cpus;
use tlsdyno_runner::run::manifest;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::preflight::{compile, roles};
use tlsdyno_runner::run::runner::{Plan, SlicesOfRound, Subject};
use tlsdyno_runner::run::schedule::{Piece, Schedule, Work};
use tlsdyno_runner::run::sliced::{Failed, TimeOfSlices};
use tlsdyno_runner::run::testbed::Testbed;
use tlsdyno_servers::Instance;
use tlsdyno_servers::cpu::ProcessClocks;
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_tls::{Effort, Settings};

use crate::summary::Shares;
use watch::{Band, Watch};

/// Minimum and maximum length of an interval.
const INTERVAL_MS: [u64; 2] = [20, 100];
/// Length of a round, after which progress is shown.
const ROUND: Duration = Duration::from_secs(10);
/// Maximum part of CPU time that doubling may add in an interval: a second computation of everything doubles the
/// server's CPU time.
const ADDED_MOST: f64 = 0.5;

/// A server under its users' traffic, with its watch.
pub struct Foreign<'a> {
    testbed: Testbed,
    /// Index of the configuration with the server: nothing doubled.
    host: usize,
    watch: Watch,
    clocks: ProcessClocks,
    at_most: f64,
    random: SplitMix64,
    began: Instant,
    /// Maximum CPU time added so far, nanoseconds; then all CPU time.
    added_most_ns: f64,
    used_ns: f64,
    stop: &'a AtomicBool,
}

/// Counters of a server at one moment.
#[derive(Clone, Copy)]
struct Moment {
    at: Instant,
    cpu_ns: u64,
    counted: DoublingCounters,
}

impl<'a> Foreign<'a> {
    pub fn start(
        experiment: &Experiment,
        traffic: &ForeignTraffic,
        cpus: Cpus,
        record: &mut Record,
        stop: &'a AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Foreign<'a>> {
        let mut testbed = Testbed::prepare(experiment, cpus, &mut |text| observer.step(text))?;
        record.kind_part = KindPart::from(experiment.without_secrets());
        let host = testbed.servers.iter().position(|server| server.host.is_none()).context("there is no server")?;
        observer.step("starting the server");
        testbed.activate(host)?;
        let address = testbed.address(host);
        let instance = testbed.instance(host).context("the server does not run")?;
        let clocks = ProcessClocks::new(instance.pids());
        testbed.require_libraries(host)?;
        let (request, _) = testbed.preflight_request();
        let settings = testbed.servers[host].settings.clone().context("the server has no TLS")?;
        // Its certificate is its owner's: whether it is trusted is not the question.
        let client = compile(&Settings { effort: Effort::Lean, ..settings })?;
        let answer = exchange(address, Some(&client), None, &request);
        let answer = answer.context("the first request, which was our own").or_fault(Fault::Server)?;
        manifest::describe(&mut record.manifest, &mut testbed);
        record.manifest.negotiated = answer.handshake.map(|of| of.suite.to_string()).unwrap_or_default();
        for (server, role) in testbed.servers.iter().zip(roles(experiment)) {
            record.configurations.push(configuration(&server.model.name, role, server.host));
        }
        observer.step("watching the server without anything doubled");
        let band = Band { latency_within: traffic.latency_within_percent / 100.0 };
        let watch = Watch::start(address, client, request, band, stop).or_fault(Fault::Server)?;
        let at_most = traffic.at_most_percent / 100.0;
        let random = SplitMix64::new(experiment.measure.seed.unwrap_or(1));
        let began = Instant::now();
        Ok(Foreign { testbed, host, watch, clocks, at_most, random, began, added_most_ns: 0.0, used_ns: 0.0, stop })
    }

    fn doubling(&self) -> Result<&Doubling> {
        self.testbed.servers[self.host].instruments.doubler.as_ref().context("the server has no doubler")
    }

    fn instance(&mut self) -> Result<&mut Instance> {
        self.testbed.instance(self.host).context("the server does not run").or_fault(Fault::Server)
    }

    fn moment(&self) -> Result<Option<Moment>> {
        let cpu_ns = self.clocks.read_ns();
        let counted = self.doubling()?.counters()?;
        Ok(cpu_ns.map(|cpu_ns| Moment { at: Instant::now(), cpu_ns, counted }))
    }

    /// One interval in this configuration's mode; `None`: processes started or ended in it.
    fn interval(&mut self, index: usize) -> Result<Option<Interval>> {
        self.testbed.enter_mode(index)?;
        let Some(before) = self.moment()? else { return self.look_again() };
        let [shortest, longest] = INTERVAL_MS;
        let length = shortest + self.random.below((longest - shortest + 1) as usize) as u64;
        thread::sleep(Duration::from_millis(length));
        let Some(after) = self.moment()? else { return self.look_again() };
        let interval = Interval {
            started_us: (before.at - self.began).as_micros() as u64,
            elapsed_us: (after.at - before.at).as_micros() as u32,
            server_cpu_ns: after.cpu_ns.saturating_sub(before.cpu_ns),
            counts: counts(after.counted - before.counted),
        };
        let cpu_ns = interval.server_cpu_ns as f64;
        self.used_ns += cpu_ns;
        if interval.is_doubled() {
            self.added_most_ns += ADDED_MOST * cpu_ns;
        }
        Ok(Some(interval))
    }

    /// Follows the processes after a reload.
    fn look_again(&mut self) -> Result<Option<Interval>> {
        self.clocks = ProcessClocks::new(self.instance()?.pids());
        self.refuse_dead()?;
        Ok(None)
    }

    fn refuse_dead(&mut self) -> Result<()> {
        let obituary = self.instance()?.obituary();
        match obituary {
            Some(obituary) => Err(Fault::Server.wrap(anyhow!("{obituary}"))),
            None => Ok(()),
        }
    }

    /// One more interval of a doubling mode keeps within the limit.
    fn may_double(&self) -> bool {
        self.added_most_ns < self.at_most * (self.used_ns - self.added_most_ns)
    }

    fn end(&self) {
        if let Ok(doubling) = self.doubling() {
            // Without it the doubling ends with the heartbeat.
            let _ = doubling.set_mode(Doubled::NOTHING);
        }
    }
}

impl Drop for Foreign<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Subject for Foreign<'_> {
    fn widest_points(&self, record: &Record) -> Option<f64> {
        Shares::of(&Rounds::of(record)).widest_points()
    }

    fn warm_up(&self, _index: usize, _factor: u32) -> Work {
        Piece { users: 0..0, requests: 0 }.into()
    }

    fn plan(&mut self, _seconds_per_request: &[f64], left: Duration) -> Plan {
        let slices = SlicesOfRound { length: ROUND, rounds_wanted: None, rounds_least: 0, blocks_share: Some(0.0) };
        Plan { slices: Some(slices), ..Plan::of(Schedule::of_rounds(ROUND, left), vec![self.warm_up(0, 1)]) }
    }

    fn block(&mut self, index: usize, _work: &Work, _journal: &mut Journal) -> Result<Block> {
        let index = if self.may_double() { index } else { self.host };
        let mut block = Block { valid: true, ..Block::default() };
        let interval = self.interval(index)?;
        interval.into_iter().for_each(|interval| add(&mut block, interval));
        Ok(block)
    }

    fn slices(
        &mut self,
        configurations: &[usize],
        TimeOfSlices { length, .. }: TimeOfSlices,
        random: &mut SplitMix64,
    ) -> Result<Vec<Block>, Failed> {
        let host = self.host;
        let failed = |error| (host, error);
        let began = Instant::now();
        let mut blocks: Vec<Block> = configurations
            .iter()
            .map(|&configuration| Block { configuration, valid: true, ..Block::default() })
            .collect();
        let mut next = Vec::new();
        while began.elapsed() < length {
            interrupt::check(self.stop).map_err(failed)?;
            if let Some(why) = self.watch.left_its_band() {
                self.end();
                return Err(failed(Fault::Server.wrap(anyhow!("doubling was ended: {why}"))));
            }
            if next.is_empty() {
                // As many intervals without anything doubled as with.
                let rest = vec![host; configurations.len() - 1];
                next = random.shuffled(&[configurations.to_vec(), rest].concat());
            }
            let index = next.pop().filter(|_| self.may_double()).unwrap_or(host);
            let interval = self.interval(index).map_err(failed)?;
            let block = blocks.iter_mut().find(|block| block.configuration == index);
            if let (Some(interval), Some(block)) = (interval, block) {
                add(block, interval);
            }
        }
        self.end();
        // Worker processes may have come without one going.
        self.look_again().map_err(failed)?;
        Ok(blocks.into_iter().filter(|block| !block.intervals.is_empty()).collect())
    }

    fn log_tail(&mut self, index: usize) -> String {
        self.testbed.log_tail(index)
    }
}

fn add(block: &mut Block, interval: Interval) {
    if block.intervals.is_empty() {
        block.started_ns = interval.started_us * 1_000;
    }
    block.elapsed_ns += u64::from(interval.elapsed_us) * 1_000;
    block.server_cpu_ns += interval.server_cpu_ns;
    block.intervals.push(interval);
}

fn configuration(name: &str, role: Role, host: Option<usize>) -> Configuration {
    Configuration { role, host_number: host, ..Configuration::setting(name, true, Vec::new()) }
}

/// Counters of the doubler, by kind of call.
fn counts(counted: DoublingCounters) -> [u64; of_interval::LENGTH] {
    let mut counts = [0; of_interval::LENGTH];
    for (stage, name, [calls, doubled]) in counted.of_stages() {
        let kind = if name.ends_with("_bytes") { of_interval::BYTES } else { of_interval::of(stage) };
        counts[kind] += calls;
        counts[of_interval::CALLS + kind] += doubled;
    }
    counts[of_interval::COPIES] = counted.event("copies");
    counts
}
