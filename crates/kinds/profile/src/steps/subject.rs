//! Handshakes step by step (Apostolopoulos et al. 2000, Figure 6): one connection after the other, whose steps the shim
//! writes down in the server, with nothing off, and the client beside it, both with the machine's own clock.

mod client;
mod server;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_base::until::until;
use tlsdyno_native::stock_client::StockClient;
use tlsdyno_native::{ShimInjection, ShimSettings, TimeStamp};
use tlsdyno_record::model::{ConfigurationModel, Experiment};
use tlsdyno_record::store::{
    Block, Configuration, Flow, FlowEvent, Journal, KindPart, ProfileBlock, Record, StepSum, StepsBlock,
};
use tlsdyno_runner::kinds::AnyExperiment;
use tlsdyno_runner::run::check::CheckExperiment;
use tlsdyno_runner::run::cpus::{self, Cpus};
use tlsdyno_runner::run::manifest;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::preflight::compile;
use tlsdyno_runner::run::runner::{self, Finished, Plan, Subject};
use tlsdyno_runner::run::schedule::{Piece, Work};
use tlsdyno_runner::run::testbed::{Testbed, log_tail};
use tlsdyno_tls::StageSet;

use self::client::{Client, Target};
use crate::profile::file::Handshakes;
use crate::steps::StepsRecord;
use crate::steps::file::{StepsCell, StepsClient, StepsExperiment};

/// Connections of a warm-up: the first of a process cost twice as much.
const WARM_UP: u32 = 20;
/// Minimum and maximum length of a block.
const BLOCK: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// Fixed cost of a block besides its connections.
const BLOCK_OVERHEAD: Duration = Duration::from_millis(15);
/// Maximum number of connections of a block: the ring of steps has no room for more.
const CONNECTIONS_MAX: u32 = 2_000;
/// Maximum time for the server to write down the last connection, after its response.
const SETTLING: Duration = Duration::from_millis(500);
/// Interval at which the server's steps are polled.
const PAUSE: Duration = Duration::from_millis(1);

pub fn run(experiment: &StepsExperiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    check(experiment)?;
    let cpus = cpus::choose(&cpus::allowed(), experiment.measure.server_cpu, experiment.measure.load_cpu)?;
    runner::run(&experiment.question, &experiment.measure, stop, observer, |record, observer| {
        StepByStep::start(experiment, cpus, record, stop, observer)
    })
}

/// Refuses what contradicts itself or no server can do, with the remedy.
pub fn check(experiment: &StepsExperiment) -> Result<()> {
    experiment.check().or_fault(Fault::Usage)?;
    let servers = experiment.of_servers();
    let each = |model: &ConfigurationModel| {
        let tls = model.tls.applied(&servers.tls);
        Experiment { tls, configurations: vec![ConfigurationModel::as_is()], ..servers.clone() }.check()
    };
    servers.configurations.iter().try_for_each(each).or_fault(Fault::Usage)
}

struct StepByStep {
    cells: Vec<StepsCell>,
    clients: Vec<Client>,
    testbed: Testbed,
    request: Vec<u8>,
    /// Number of connections whose events are still to be kept, by cell.
    events_left: Vec<u32>,
}

impl StepByStep {
    fn start(
        experiment: &StepsExperiment,
        cpus: Cpus,
        record: &mut Record,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<StepByStep> {
        let servers = experiment.of_servers();
        let mut testbed = Testbed::prepare(&servers, cpus, &mut |text| observer.step(text))?;
        ensure!(
            !testbed.take_turns || testbed.servers.len() == 1,
            "a server on a fixed port has one key and one chain; let it listen on {{port}}"
        );
        let (request, _) = testbed.preflight_request();
        let mut clients = Vec::new();
        let mut version = String::new();
        for (index, (key, length)) in experiment.servers().into_iter().enumerate() {
            interrupt::before_measuring(stop, interrupt::check(stop))?;
            observer.step(&format!("starting the server with {key}, chain of {length}"));
            let tls = servers.configurations[index].tls.applied(&servers.tls);
            let settings = ShimSettings {
                suite: tls.suite,
                time_stamps: true,
                allow_insecure_listen: servers.server.allow_insecure_listen,
                ..ShimSettings::new(StageSet::NONE, tls.version)
            };
            let directory = testbed.make_directory(&format!("steps-{index}"))?;
            testbed.servers[index].stamp_with(ShimInjection::prepare(&directory, &settings)?);
            interrupt::before_measuring(stop, testbed.activate(index).map(drop))?;
            testbed.require_libraries(index).or_fault(Fault::Server)?;
            let settings = testbed.servers[index].settings.as_ref().context("the server has TLS")?;
            clients.push(match experiment.steps.client {
                StepsClient::Own => Client::Own { config: compile(settings)?, session: None, cpu: cpus.load },
                StepsClient::Openssl => {
                    let address = testbed.address(index);
                    let client = StockClient::start(&directory, cpus.load, address, settings, &request);
                    let client = client.or_fault(Fault::Environment)?;
                    version.clone_from(&client.version);
                    Client::Stock(client)
                }
            });
        }
        let cells = experiment.cells();
        for cell in &cells {
            record.configurations.push(configuration(cell));
        }
        record.kind_part = KindPart::from(StepsRecord { experiment: experiment.clone(), cells: cells.clone() });
        manifest::describe(&mut record.manifest, &mut testbed);
        let keys: Vec<String> = experiment.steps.keys.iter().map(ToString::to_string).collect();
        record.manifest.certificate = keys.join(", ");
        if let Ok(toml) = experiment.to_toml() {
            record.manifest.server_config.insert("experiment.toml".to_owned(), toml);
        }
        if !version.is_empty() {
            record.manifest.effort = format!("stock client, {version}");
        }
        let events_left = vec![experiment.steps.events; cells.len()];
        Ok(StepByStep { cells, clients, testbed, request, events_left })
    }

    /// The server of a cell: its kinds of handshake follow each other.
    fn server_of(&self, index: usize) -> usize {
        index * self.clients.len() / self.cells.len()
    }

    fn shim(&self, server: usize) -> Result<&ShimInjection> {
        self.testbed.servers[server].instruments.shim.as_ref().context("the server has the shim")
    }

    /// Steps that the server wrote after the connection with this number.
    fn stamps_after(&self, server: usize, number: u64) -> Result<Vec<TimeStamp>> {
        let mut stamps = self.shim(server)?.time_stamps()?;
        stamps.retain(|stamp| stamp.number > number);
        Ok(stamps)
    }

    /// Steps of `wanted` connections after the one with this number, of the cell's kind of handshake.
    fn seen(&self, index: usize, number: u64, wanted: usize) -> Result<Vec<TimeStamp>> {
        let kind = match self.cells[index].handshakes {
            Handshakes::Full => "full_handshakes",
            Handshakes::Resumed => "resumed_handshakes",
        };
        let look = || {
            let mut stamps = self.stamps_after(self.server_of(index), number)?;
            stamps.retain(|stamp| stamp.kind == kind && !stamp.steps.is_empty());
            Ok(stamps)
        };
        until(SETTLING, PAUSE, look, |stamps| stamps.len() >= wanted)
    }
}

fn configuration(cell: &StepsCell) -> Configuration {
    let passed = vec!["the shim is mapped in every worker".to_owned()];
    Configuration::setting(cell.to_string(), true, passed)
}

/// Adds the events of one connection.
fn add(sums: &mut Vec<StepSum>, events: &[FlowEvent]) {
    for event in events {
        if sums.iter().all(|sum| sum.name != event.name) {
            sums.push(StepSum { name: event.name.clone(), ..StepSum::default() });
        }
        let Some(sum) = sums.iter_mut().find(|sum| sum.name == event.name) else { continue };
        sum.count += 1;
        sum.elapsed_ns += (event.to_ns - event.from_ns).max(0) as u64;
        sum.cpu_ns += event.cpu_ns;
        sum.bytes += event.bytes;
    }
}

/// Both ends of one connection, on a clock that starts at the client's first event.
fn flow(client: &[FlowEvent], server: &[FlowEvent]) -> Flow {
    let start_ns = client.first().map_or(0, |event| event.from_ns);
    let shifted = |events: &[FlowEvent]| {
        let shift = |event: &FlowEvent| FlowEvent {
            from_ns: event.from_ns - start_ns,
            to_ns: event.to_ns - start_ns,
            ..event.clone()
        };
        events.iter().map(shift).collect()
    };
    Flow { client: shifted(client), server: shifted(server) }
}

/// The server's connection that ended while the client's was open.
fn stamp_of<'a>(client: &[FlowEvent], stamps: &'a [TimeStamp]) -> Option<&'a TimeStamp> {
    let (first, last) = (client.first()?.from_ns, client.last()?.to_ns);
    stamps.iter().find(|stamp| (first..=last).contains(&(stamp.start_ns as i64)))
}

impl Subject for StepByStep {
    fn warm_up(&self, _index: usize, factor: u32) -> Work {
        Piece { users: 0..0, requests: u64::from(WARM_UP.saturating_mul(factor).min(CONNECTIONS_MAX)) }.into()
    }

    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan {
        let piece = Piece { users: 0..0, requests: 1 };
        Plan::of_timed_blocks(piece, left, seconds_per_request, BLOCK, BLOCK_OVERHEAD)
    }

    fn block(&mut self, index: usize, work: &Work, _journal: &mut Journal) -> Result<Block> {
        let server = self.server_of(index);
        let cell = self.cells[index];
        let target = Target { address: self.testbed.address(server), request: &self.request, cell: &cell };
        if cell.handshakes == Handshakes::Resumed {
            self.clients[server].prepare(&target)?;
        }
        let before = self.stamps_after(server, 0)?.last().map_or(0, |stamp| stamp.number);
        let cpu_ns = |testbed: &mut Testbed| {
            let instance = testbed.instance(server).context("the server runs")?;
            instance.living_cpu_ns(|instance, obituary| format!("{obituary}{}", log_tail(instance)))
        };
        let (began, cpu_before) = (Instant::now(), cpu_ns(&mut self.testbed)?);
        let time = work.timed.map_or(Duration::ZERO, |timed| Duration::from_nanos(timed.for_ns));
        let answers = self.clients[server].connections(&target, work.piece.requests as u32, time)?;
        let elapsed_ns = began.elapsed().as_nanos() as u64;
        let mut stamps = self.seen(index, before, answers.len())?;
        let server_cpu_ns = cpu_ns(&mut self.testbed)?.saturating_sub(cpu_before);
        ensure_fault!(
            Server,
            !stamps.is_empty(),
            "\"{cell}\": the server answered, but none of its handshakes passed through libssl's state machine as the \
             shim sees it; it may be linked with an OpenSSL of its own, or use another TLS library"
        );
        stamps.retain(|stamp| !stamp.is_too_long());
        let lost_count = answers.len().saturating_sub(stamps.len()) as u64;
        let mut steps = StepsBlock { lost_count, ..StepsBlock::default() };
        for stamp in &stamps {
            add(&mut steps.server, &server::events(stamp));
            steps.handshake_ns += stamp.end_ns - stamp.start_ns;
            steps.handshake_cpu_ns += u64::from(stamp.cpu_ns);
            steps.sent_bytes += stamp.bytes_sent;
            steps.received_bytes += stamp.bytes_received;
        }
        for answer in &answers {
            add(&mut steps.client, &answer.events);
            steps.client_sent_bytes += answer.sent_bytes;
            steps.client_received_bytes += answer.received_bytes;
            if work.timed.is_some()
                && self.events_left[index] > 0
                && let Some(stamp) = stamp_of(&answer.events, &stamps)
            {
                self.events_left[index] -= 1;
                steps.flows.push(flow(&answer.events, &server::events(stamp)));
            }
        }
        let count = answers.len() as u64;
        let resumed = if cell.handshakes == Handshakes::Resumed { count } else { 0 };
        Ok(Block {
            elapsed_ns,
            hits: count,
            server_cpu_ns,
            connections: count,
            handshakes_full: count - resumed,
            resumed_accepted: resumed,
            valid: true,
            profile: Some(ProfileBlock { steps: Some(steps), ..ProfileBlock::default() }),
            ..Block::default()
        })
    }

    fn log_tail(&mut self, index: usize) -> String {
        let server = self.server_of(index);
        self.testbed.log_tail(server)
    }
}
