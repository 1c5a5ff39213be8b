//! The load on a server of which nothing but its URL is known: runs one after the other as a record, and an experiment
//! whose points (a swept rate, a swept share of reuse) are measured in rounds of random order.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_base::{interrupt, listening, open_files};
use tlsdyno_engine::load::{self, HeldSessions, Outcome, Pacing, Plan as EnginePlan, Rate, Until};
use tlsdyno_record::model::Network;
use tlsdyno_record::model::job::Timed;
use tlsdyno_record::model::without_secrets;
use tlsdyno_record::store::load_run::{Asked, Summary};
use tlsdyno_record::store::{Block, Configuration, Journal, KindPart, Manifest, Record, Store, StoreError, Warning};
use tlsdyno_runner::kinds::perform::{ResultArgs, perform_and_keep};
use tlsdyno_runner::run::manifest;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::runner::{self, Finished, Plan, SlicesOfRound, Subject};
use tlsdyno_runner::run::schedule::{Piece, Schedule, Work};
use tlsdyno_runner::run::sliced::{Failed, TimeOfSlices};
use tlsdyno_runner::run::verify::{death, is_dead, verify_requests};
use tlsdyno_servers::cpu::ProcessClocks;
use tlsdyno_traffic::load::options::{self, Options};
use tlsdyno_traffic::load::threads::{Crew, Loops, Threads};
use tlsdyno_traffic::load::{permission, plan};
use tlsdyno_traffic::machines::carried::NETWORK_IS_HERE;
use tlsdyno_traffic::machines::crew::Workers;
use tlsdyno_traffic::machines::gather::{Gathered, arguments_of_worker, gather};
use tlsdyno_traffic::network::Through;

use super::in_turns::{self, OfSide, Side};
use super::started_server::Started;
use crate::check::check;
use crate::curve::file::CurvePlace;
use crate::curve::subject as curve;
use crate::curve::subject::{Counted, Point};
use crate::file::LoadExperiment;
use crate::{LoadRecord, Loads};

/// CPU use from which on the client counts as the bottleneck, as a part of its CPU.
const CLIENT_BUSY_MAX: f64 = 0.95;
/// Length of the warm-up of a point.
pub const WARM_UP: Duration = Duration::from_millis(500);
/// Minimum and maximum length of a block.
const BLOCK: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// Minimum and maximum length of a block where two URLs are compared.
const PAIRED_BLOCK: [Duration; 2] = [Duration::from_millis(150), Duration::from_secs(1)];
const PAIRS: u32 = 20;
/// Minimum and maximum length of a round in which two loads take turns.
const ROUND_OF_TURNS: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(1)];
/// Length of the slices in the course of a run, nanoseconds.
const SLICE_OF_COURSE_NS: u64 = 500_000_000;
/// Fixed cost of a block: connecting, and the last responses.
const BLOCK_OVERHEAD: Duration = Duration::from_millis(50);

/// The record of consecutive runs, each of which is a configuration with one block. Stored when they are over.
#[derive(Debug)]
pub struct Runs(Record);

impl Runs {
    pub fn begin(question: String, url: &str) -> Runs {
        let experiment = LoadExperiment { question, url: url.to_owned(), ..LoadExperiment::default() };
        let experiment = experiment.without_secrets();
        let mut record = Record::begun_now(&experiment.question, 0);
        record.manifest.seeds.clear();
        manifest::describe_machine(&mut record.manifest);
        record.manifest.server_name.clone_from(&experiment.url);
        record.kind_part = KindPart::from(LoadRecord { experiment, ..LoadRecord::default() });
        Runs(record)
    }

    pub fn add(&mut self, name: String, run: Summary) {
        let record = &mut self.0;
        let valid = run.outcome.hits > 0;
        record.blocks.push(Block { configuration: record.configurations.len(), valid, ..block_of(&run.outcome) });
        record
            .configurations
            .push(Configuration { valid, ..Configuration::setting(name, run.effort.is_some(), Vec::new()) });
        if let Some(effort) = &run.effort {
            record.manifest.effort = effort.clone();
            record.manifest.negotiated = manifest::negotiated_text(&run.outcome);
        }
        record.kind_part.change(|load: &mut LoadRecord| load.runs.push(run));
    }

    /// Stores the record, and returns it, and whether it was stored.
    pub fn keep(self, finished: bool) -> (Record, Result<(), StoreError>) {
        let mut record = Record { finished, ..self.0 };
        let blocks = std::mem::take(&mut record.blocks);
        let stored = Store::open().and_then(|mut store| {
            record.id = store.begin(&record)?;
            let mut numbered = blocks.iter().enumerate();
            numbered.try_for_each(|(sequence, block)| store.add_block(&record.id, sequence, block))
        });
        (Record { blocks, ..record }, stored)
    }
}

/// Runs the experiment with the flags of a command line, shows its result, and returns it.
pub fn perform(experiment: &LoadExperiment, options: &Options, results: &ResultArgs) -> Result<(Exit, Record)> {
    check(experiment, Some(options)).or_fault(Fault::Usage)?;
    perform_and_keep(&Loads, results, &|stop, progress| run(experiment, Some(options), stop, progress), None)
}

/// `options`: flags of its curve, where they are not in `[load]`. Fails if measuring did not begin.
pub fn run(
    experiment: &LoadExperiment,
    options: Option<&Options>,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Finished> {
    let points = check(experiment, options).or_fault(Fault::Usage)?;
    runner::run(&experiment.question, &experiment.measure, stop, observer, |record, observer| {
        LoadedUrl::start(experiment, points, record, stop, observer)
    })
}

/// The points of a URL.
struct LoadedUrl<'a> {
    plans: Vec<EnginePlan>,
    names: Vec<String>,
    /// Emulated network of each point.
    of_points: Vec<Option<Network>>,
    makes: Makes<'a>,
    /// Places of the points on a curve; empty without a curve.
    places: Vec<CurvePlace>,
    counted: Vec<Counted>,
    /// Addresses of two URLs that are compared.
    pair: Option<[SocketAddr; 2]>,
    /// Address of the server that was started for the experiment.
    served: Option<SocketAddr>,
    /// Sessions of both loads between their turns. `None` unless the processes of both servers are on this machine,
    /// with readable clocks, and only the server's answers determine when a request is due.
    in_turns: Option<[HeldSessions; 2]>,
    /// Where each point is one run: the request of each, in the order of the points.
    one_run: Option<Vec<Asking>>,
    /// The blocks are planned: earlier ones were warm-up.
    is_planned: bool,
    _started: Option<Started>,
}

struct Asking {
    asked: Asked,
    effort: Option<String>,
}

impl Asking {
    fn of(Point { options, url, .. }: &Point) -> Asking {
        let effort = url.tls.then(|| options::effort(options).to_string());
        Asking { asked: options::asked(options, url), effort }
    }
}

/// Makes a load: this process, or workers.
struct Makes<'a> {
    crew: Option<Gathered>,
    networks: Vec<(Network, Through)>,
    stop: &'a AtomicBool,
}

impl Makes<'_> {
    /// Runs the plan, here, through an emulated network, or by workers.
    fn run(&self, plan: &EnginePlan, network: Option<Network>) -> Result<Outcome> {
        if let Some((_, through)) = self.networks.iter().find(|(one, _)| Some(*one) == network) {
            return through.run(plan, self.stop, Vec::new());
        }
        let Some(Gathered { workers, .. }) = &self.crew else { return Ok(load::run(plan, self.stop)?) };
        let outcome = workers.run(plan, self.stop, Vec::new())?;
        match outcome.losses.first() {
            // Its points would be of different loads.
            Some(loss) => Err(Fault::Unreachable.wrap(anyhow!("{loss}"))),
            None => Ok(outcome),
        }
    }
}

/// Starts each network of the points once.
fn networks(experiment: &LoadExperiment, points: &[Point], address: SocketAddr) -> Result<Vec<(Network, Through)>> {
    let mut networks: Vec<(Network, Through)> = Vec::new();
    for network in points.iter().filter_map(|point| point.options.network) {
        ensure_fault!(Usage, experiment.workers.is_none(), "{NETWORK_IS_HERE}");
        if networks.iter().all(|(one, _)| *one != network) {
            let loops = Loops::choose(Some(Threads::Count(1)), Some(address));
            networks.push((network, Through::open(&network, loops)?));
        }
    }
    Ok(networks)
}

/// Clocks of the processes that serve an address; `None`: they are elsewhere, or another user's.
fn clocks_of(address: SocketAddr) -> Option<ProcessClocks> {
    let owners = listening::owner_numbers(&address).filter(|owners| !owners.is_empty())?;
    Some(ProcessClocks::with_descendants(owners))
}

/// Plan and target of each point, with its configuration in the record.
fn prepared(
    experiment: &LoadExperiment,
    points: &[Point],
    record: &mut Record,
    observer: &mut dyn Observer,
) -> Result<(Vec<EnginePlan>, Vec<SocketAddr>)> {
    let most = experiment.curve.as_ref().map_or(0, |curve| curve.connections_max_count);
    let (mut plans, mut addresses) = (Vec::new(), Vec::new());
    for Point { name, options, url, .. } in points {
        observer.step(&format!("preparing: {name}"));
        let address = options::address(options, url).or_fault(Fault::Unreachable)?;
        permission::check(&url.host, address, &options.i_may_load_this).or_fault(Fault::Usage)?;
        open_files::make_room_for(options.connections.max(most)).or_fault(Fault::Environment)?;
        let rated = || anyhow!("--receive-rate is for a run of `tlsdyno load URL`; points and blocks have no lead-in");
        options.receive_rate.map_or(Ok(()), |_| Err(rated())).or_fault(Fault::Usage)?;
        plans.push(plan::plan(options, url, address).or_fault(Fault::Usage)?);
        if url.tls || record.configurations.is_empty() {
            record.manifest.effort = if url.tls { options::effort(options).to_string() } else { String::new() };
        }
        record.configurations.push(Configuration::setting(name.clone(), url.tls, Vec::new()));
        addresses.push(address);
    }
    Ok((plans, addresses))
}

/// Plan of a point of a curve, with the number of connections that saturates its server.
fn saturating(
    experiment: &LoadExperiment,
    (index, points): (usize, &[Point]),
    address: SocketAddr,
    makes: &Makes,
    record: &mut Record,
) -> Result<EnginePlan> {
    let most = experiment.curve.as_ref().map_or(0, |curve| curve.connections_max_count);
    let time = Duration::from_secs_f64(experiment.measure.time_s) / points.len().max(1) as u32;
    let network = points[index].options.network;
    let run = |plan: &_| makes.run(plan, network);
    let (plan, saturated) = curve::saturated(&points[index], address, most, time, makes.stop, run)?;
    let connections = plan.connections.total;
    if !saturated {
        let what = format!("{connections} connections may be too few to saturate the server");
        let warning = Warning::new("few_connections", what).with_remedy("Raise --connections-max");
        record.configurations[index].warnings.push(warning);
    }
    record.kind_part.change(|load: &mut LoadRecord| load.connections.push(connections));
    Ok(plan)
}

impl<'a> LoadedUrl<'a> {
    fn start(
        experiment: &LoadExperiment,
        mut points: Vec<Point>,
        record: &mut Record,
        stop: &'a AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<LoadedUrl<'a>> {
        let started = started(experiment, &mut points, stop, observer)?;
        let (mut plans, addresses) = prepared(experiment, &points, record, observer)?;
        describe(&mut record.manifest, experiment, started.as_ref());
        let networks = networks(experiment, &points, addresses[0])?;
        // A long log takes a while to read, and workers give up on a coordinator that is silent for long.
        let log = experiment.curve.as_ref().map(curve::logged).transpose()?.flatten();
        let crew = match &experiment.workers {
            Some(workers) => {
                observer.step(&format!("waiting for {} workers", workers.count()));
                let packer = Workers::check(&plans[0], workers.count()).or_fault(Fault::Usage)?;
                let may_load = &points[0].options.i_may_load_this;
                Some(gather(workers, packer, addresses[0], &arguments_of_worker(may_load, None), stop)?)
            }
            None => None,
        };
        let makes = Makes { crew, networks, stop };
        let kept = LoadRecord { experiment: experiment.without_secrets(), log, ..LoadRecord::default() };
        record.kind_part = KindPart::from(kept);
        for (index, plan) in plans.iter_mut().enumerate().filter(|_| experiment.curve.is_some()) {
            observer.step(&format!("looking for connections that saturate: {}", points[index].name));
            *plan = saturating(experiment, (index, &points), addresses[index], &makes, record)?;
        }
        let pair = experiment.against.as_ref().and_then(|_| <[SocketAddr; 2]>::try_from(&addresses[..]).ok());
        Ok(LoadedUrl {
            in_turns: pair.and_then(|pair| sessions_in_turns(pair, &plans, !makes.networks.is_empty())),
            one_run: experiment.one_run.then(|| points.iter().map(Asking::of).collect()),
            places: experiment.curve.as_ref().map(|curve| curve.places()).unwrap_or_default(),
            counted: vec![Counted::default(); points.len()],
            of_points: points.iter().map(|point| point.options.network).collect(),
            makes,
            names: points.into_iter().map(|point| point.name).collect(),
            plans,
            pair,
            served: started.as_ref().map(|started| started.instance.address()),
            is_planned: false,
            _started: started,
        })
    }
}

/// The server of `[server]`, to which all points then connect; `None`: there is no such table.
fn started(
    experiment: &LoadExperiment,
    points: &mut [Point],
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Option<Started>> {
    let Some(server) = &experiment.server else { return Ok(None) };
    let most = points.iter().map(|point| point.options.connections).max().unwrap_or(1);
    let objects =
        points.iter().map(|point| (point.url.path.clone(), point.object_bytes.unwrap_or(server.object_bytes)));
    let started = Started::start(server, &objects.collect(), most, &mut |text| observer.step(text));
    let started = interrupt::before_measuring(stop, started)?;
    let address = started.instance.address().to_string();
    points.iter_mut().for_each(|point| point.options.connect_to = Some(address.clone()));
    Ok(Some(started))
}

/// Describes the target of the load in the manifest.
fn describe(manifest: &mut Manifest, experiment: &LoadExperiment, started: Option<&Started>) {
    manifest.server_name = without_secrets(&experiment.url);
    if let (Some(started), Some(server)) = (started, &experiment.server) {
        manifest::describe_server(manifest, started.instance.description());
        manifest.server_name = server.kind.to_string();
        manifest.certificate = server.tls.certificate().to_string();
    }
}

/// Sessions of two servers that take turns within a round. `None`: they take turns by blocks, because the CPU time of
/// one cannot be read here, or its load cannot pause.
fn sessions_in_turns(pair: [SocketAddr; 2], plans: &[EnginePlan], through_network: bool) -> Option<[HeldSessions; 2]> {
    let has_clocks = pair.iter().all(|address| clocks_of(*address).is_some());
    let can_wait = plans.iter().all(|plan| plan.pacing == Pacing::Closed && plan.window.is_none());
    (has_clocks && can_wait && !through_network).then(|| [0, 1].map(|side| HeldSessions::new(plans[side].resumption)))
}

impl Subject for LoadedUrl<'_> {
    fn warm_up(&self, index: usize, _factor: u32) -> Work {
        let users = self.plans[index].users.clone();
        let timed = Timed { for_ns: WARM_UP.as_nanos() as u64, seed: 0 };
        Work { timed: Some(timed), ..Piece { users, requests: 0 }.into() }
    }

    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan {
        self.is_planned = true;
        let blocks = seconds_per_request.len().max(1) as u32;
        // Users come as they are; a request counts as one of the block's time.
        let piece = Piece { users: 0..0, requests: 1 };
        if self.in_turns.is_some() {
            let [shortest, longest] = ROUND_OF_TURNS;
            let length = (left / PAIRS).clamp(shortest, longest);
            let slices = Some(SlicesOfRound { length, rounds_wanted: None, rounds_least: 0, blocks_share: None });
            return Plan { slices, ..Plan::of(Schedule::of_rounds(length, left), vec![piece.into()]) };
        }
        let paired = |bound: Duration| bound.min(left / (PAIRS * blocks));
        let whole = (left / blocks).saturating_sub(BLOCK_OVERHEAD);
        let bounds = match self.pair {
            _ if self.one_run.is_some() => [whole, whole],
            Some(_) => PAIRED_BLOCK.map(paired),
            None => BLOCK,
        };
        let plan = Plan::of_timed_blocks(piece, left, seconds_per_request, bounds, BLOCK_OVERHEAD);
        Plan { rounds_most: self.one_run.as_ref().map(|_| 1), ..plan }
    }

    fn block(&mut self, index: usize, work: &Work, journal: &mut Journal) -> Result<Block> {
        let mut plan = self.plans[index].clone();
        let timed = work.timed.context("the load of a URL lasts for a time")?;
        plan.until = Until::Elapsed(timed.for_ns);
        if self.one_run.is_some() {
            plan.slice_ns = Some(SLICE_OF_COURSE_NS);
        }
        if let Pacing::Open(rate) = plan.pacing {
            plan.pacing = Pacing::Open(Rate { seed: timed.seed, ..rate });
        }
        let clocks = self.clocks(index);
        let before_ns = clocks.as_ref().and_then(ProcessClocks::at_rest_ns);
        let outcome = self.makes.run(&plan, self.of_points[index])?;
        let after_ns = clocks.as_ref().and_then(ProcessClocks::at_rest_ns);
        interrupt::check(self.makes.stop)?;
        let used_ns = before_ns.zip(after_ns).map(|(before, after)| after.saturating_sub(before));
        let block = self.block_of(index, &outcome, clocks, used_ns.unwrap_or(0))?;
        // The points come in random order, and their runs are told in theirs.
        let asking = self.one_run.as_ref().filter(|_| self.is_planned).map(|all| &all[index]);
        if let Some(Asking { asked, effort }) = asking {
            let run = Summary::of(self.names[index].clone(), effort.clone(), *asked, outcome.clone(), Vec::new());
            let (points, empty) = (self.plans.len(), Summary::default());
            journal.change(|record| {
                record.kind_part.change(|load: &mut LoadRecord| {
                    load.runs.resize(points, empty);
                    load.runs[index] = run;
                });
            });
        }
        if journal.record().manifest.negotiated.is_empty() {
            let negotiated = manifest::negotiated_text(&outcome);
            journal.change(|record| record.manifest.negotiated = negotiated);
        }
        Ok(block)
    }

    /// Two loads that are compared take turns as often as possible: changes of the machine then affect both.
    fn slices(
        &mut self,
        _configurations: &[usize],
        TimeOfSlices { since, length, .. }: TimeOfSlices,
        random: &mut SplitMix64,
    ) -> Result<Vec<Block>, Failed> {
        let (Some(pair), Some(sessions)) = (self.pair, &mut self.in_turns) else { return Ok(Vec::new()) };
        let started_ns = since.elapsed().as_nanos() as u64;
        let clocks = pair.map(clocks_of);
        let mut plans: Vec<EnginePlan> = self.plans.clone();
        let mut parts = plans.iter_mut().zip(sessions.iter_mut()).zip(&clocks).map(|((plan, sessions), clocks)| {
            // Turns end it, and cut it.
            (plan.until, plan.slice_ns) = (Until::Elapsed(u64::MAX / 4), None);
            Side { plan, sessions, clocks: clocks.clone().unwrap_or(ProcessClocks::new(Vec::new())) }
        });
        let (Some(first), Some(second)) = (parts.next(), parts.next()) else { return Ok(Vec::new()) };
        drop(parts);
        let sides = in_turns::round([first, second], random.below(2), length, self.makes.stop);
        let sides = sides.map_err(|error| (0, error.into()))?;
        interrupt::check(self.makes.stop).map_err(|error| (0, error))?;
        let of_side = |(index, (side, clocks)): (usize, (Option<OfSide>, Option<ProcessClocks>))| {
            let OfSide { outcome, server_cpu_ns } = side?;
            let block = self.block_of(index, &outcome, clocks, server_cpu_ns);
            let block = block.map(|block| Block { configuration: index, started_ns, ..block });
            Some(block.map_err(|error| (index, error)))
        };
        sides.into_iter().zip(clocks).enumerate().filter_map(of_side).collect()
    }

    fn warnings(&self) -> Vec<Warning> {
        let points = self.places.iter().zip(&self.names).zip(&self.counted).zip(&self.plans);
        let missed =
            points.filter_map(|(((place, name), counted), plan)| counted.missed(name, *place, plan.connections.total));
        missed.collect()
    }
}

impl LoadedUrl<'_> {
    /// Clocks of a point's server, if its CPU time can be read.
    fn clocks(&self, index: usize) -> Option<ProcessClocks> {
        clocks_of(self.pair.map(|pair| pair[index]).or(self.served)?)
    }

    /// The block of an outcome, with the server's processes and CPU time.
    fn block_of(
        &mut self,
        index: usize,
        outcome: &Outcome,
        clocks: Option<ProcessClocks>,
        server_cpu_ns: u64,
    ) -> Result<Block> {
        if is_dead(outcome) {
            return Err(death(&self.names[index], outcome, ""));
        }
        self.counted[index].add(outcome);
        let mut warnings = verify_requests(outcome, outcome.hits).warnings;
        if outcome.unserved > 0 {
            let what = format!("{} requests that were due found no user free in time", outcome.unserved);
            let remedy = "Give a lower rate or more connections; they are in no latency";
            warnings.push(Warning::new("unserved", what).with_remedy(remedy));
        }
        // What processes that began or ended meanwhile used is not known.
        let same = clocks.is_some() && clocks == self.clocks(index);
        let server_cpu_ns = if same { server_cpu_ns } else { 0 };
        Ok(Block { valid: true, warnings, server_cpu_ns, ..block_of(outcome) })
    }
}

fn block_of(outcome: &Outcome) -> Block {
    Block { client_bound: outcome.busy_fraction() >= CLIENT_BUSY_MAX, ..Block::from(outcome) }
}
