//! Instructions in user space by area, beside the times of a profile: the profiled server under valgrind's callgrind, a
//! second one of which only what it does within stages is counted, and one without TLS. All serve the same few
//! connections one after the other, as counts repeat where times do not.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, ensure};
use tlsdyno_base::exchange::exchange_within;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_native::{Clock, Profiling};
use tlsdyno_record::model::{ConfigurationModel, Experiment};
use tlsdyno_record::store::samples::Area;
use tlsdyno_runner::run::cpus::Cpus;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::preflight::compile;
use tlsdyno_runner::run::request::TIME_LIMIT_COUNTED;
use tlsdyno_runner::run::testbed::Testbed;
use tlsdyno_servers::callgrind::{ByFunction, Callgrind, Executed};
use tlsdyno_tls::Session;

use crate::profile::CountedAreas;
use crate::profile::caches::{CountedCaches, PROCESSORS, SIMULATED, Work, this_mhz};
use crate::profile::file::{Handshakes, ProfileExperiment};
use crate::sampling::{Trampolines, area_of, stage_of_trampoline};

/// Number of connections that are counted, and before them as many that are not. A multiple of 32: OpenSSL makes new
/// blinding values at every 32nd signature.
const CONNECTIONS: u32 = 32;
/// Index of the server whose whole work is counted.
const ALL: usize = 0;
const WITHIN: usize = 1;
const PLAIN: usize = 2;
/// Option of callgrind for the second server: collect within the trampolines only.
const ONLY_WITHIN: &str = "--toggle-collect=trampoline_*";

pub(super) fn instructions(
    experiment: &ProfileExperiment,
    cpus: Cpus,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Vec<CountedAreas>> {
    Callgrind::require()?;
    let named = |name: &str| ConfigurationModel { name: name.to_owned(), ..ConfigurationModel::as_is() };
    let mut configurations = vec![named("counted"), named("counted within stages")];
    configurations.extend(experiment.has_plain().then(ConfigurationModel::plain_http));
    let servers = Experiment { configurations, ..experiment.of_servers() };
    let mut testbed = Testbed::prepare(&servers, cpus, &mut |text| observer.step(text))?;
    let mut callgrinds = Vec::new();
    for index in 0..testbed.servers.len() {
        interrupt::check(stop)?;
        observer.step(&format!("starting under callgrind: {}", testbed.servers[index].model.name));
        let callgrind = Callgrind::new()?;
        let mut options = if index == WITHIN { vec![ONLY_WITHIN] } else { Vec::new() };
        options.extend(SIMULATED.iter().filter(|_| experiment.profile.caches && index == WITHIN));
        testbed.servers[index].run_under(callgrind.command(&options), callgrind.folder.path());
        callgrinds.push(callgrind);
        if index != PLAIN {
            let profiling = Profiling::prepare(&testbed.make_directory(&format!("counted-{index}"))?, Clock::best())?;
            testbed.servers[index].profile_with(profiling);
        }
        testbed.activate(index)?;
        if let Some(profiling) = &testbed.servers[index].profiling {
            // A call that is timed returns to its trampoline, so that callgrind sees where it ends.
            profiling.set_timed(true)?;
        }
    }
    let kinds: Vec<Handshakes> = experiment.cells().iter().map(|cell| cell.handshakes).collect();
    let mut counted = Vec::new();
    let mut caches = with_caches(experiment, &kinds, cpus, stop, observer)?;
    for handshakes in Handshakes::ALL.into_iter().filter(|kind| kinds.contains(kind)) {
        observer.step(&format!("counting instructions of {} handshakes", handshakes.name()));
        let mut of = Vec::new();
        for (index, callgrind) in callgrinds.iter().enumerate() {
            interrupt::check(stop)?;
            of.push(counts(&mut testbed, index, callgrind, handshakes)?);
        }
        let profiling = testbed.servers[WITHIN].profiling.as_ref().context("the server is profiled")?;
        let caches = caches.remove(&handshakes).unwrap_or_default();
        counted.push(CountedAreas { caches, ..areas(handshakes, &of, &profiling.trampolines()?) });
    }
    Ok(counted)
}

/// The untouched server and plain HTTP, with the caches of each processor.
fn with_caches(
    experiment: &ProfileExperiment,
    kinds: &[Handshakes],
    cpus: Cpus,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<BTreeMap<Handshakes, Vec<CountedCaches>>> {
    let mut all: BTreeMap<Handshakes, Vec<CountedCaches>> = BTreeMap::new();
    ensure!(
        experiment.has_plain() || !experiment.profile.caches,
        "--caches compares with plain HTTP, which a command of your own has not: leave it out"
    );
    let wanted = PROCESSORS.iter().filter(|processor| processor.counted_as() == processor.name);
    for processor in wanted.filter(|_| experiment.profile.caches) {
        let configurations = vec![ConfigurationModel::as_is(), ConfigurationModel::plain_http()];
        let servers = Experiment { configurations, ..experiment.of_servers() };
        let mut testbed = Testbed::prepare(&servers, cpus, &mut |text| observer.step(text))?;
        observer.step(&format!("simulating caches: {}", processor.name));
        let callgrinds = (0..testbed.servers.len()).map(|index| {
            interrupt::check(stop)?;
            let callgrind = Callgrind::new()?;
            let options = [&SIMULATED[..], processor.options].concat();
            testbed.servers[index].run_under(callgrind.command(&options), callgrind.folder.path());
            testbed.activate(index)?;
            anyhow::Ok(callgrind)
        });
        let callgrinds = callgrinds.collect::<Result<Vec<Callgrind>>>()?;
        for handshakes in Handshakes::ALL.into_iter().filter(|kind| kinds.contains(kind)) {
            let mut of = |index: usize| {
                interrupt::check(stop)?;
                let counted = counts(&mut testbed, index, &callgrinds[index], handshakes)?;
                anyhow::Ok(counted.own.values().map(|own| per_hit(*own)).fold(Work::default(), Work::plus))
            };
            let (tls, plain) = (of(0)?, of(1)?);
            let processor = processor.name.to_owned();
            let caches = CountedCaches { processor, tls, plain, this_mhz: this_mhz()? };
            all.entry(handshakes).or_default().push(caches);
        }
    }
    Ok(all)
}

fn per_hit(executed: Executed) -> Work {
    let each = |count: u64| count as f64 / f64::from(CONNECTIONS);
    Work {
        instructions_count: each(executed.instructions),
        near_misses_count: each(executed.near_misses),
        far_misses_count: each(executed.far_misses),
        mispredicted_count: each(executed.mispredicted),
    }
}

fn counts(testbed: &mut Testbed, index: usize, callgrind: &Callgrind, handshakes: Handshakes) -> Result<ByFunction> {
    let dump = |testbed: &mut Testbed| {
        let instance = testbed.instance(index).context("the server under callgrind does not run")?;
        callgrind.dump(&*instance).or_fault(Fault::Server)
    };
    let session = connections(testbed, index, handshakes, None)?;
    // What was executed until here is not counted.
    dump(testbed)?;
    connections(testbed, index, handshakes, session)?;
    dump(testbed)
}

/// Returns the last session from the server. The first connection resumes none if there is none.
fn connections(
    testbed: &Testbed,
    index: usize,
    handshakes: Handshakes,
    mut session: Option<Session>,
) -> Result<Option<Session>> {
    let config = testbed.servers[index].settings.as_ref().map(compile).transpose()?;
    let (request, _) = testbed.preflight_request();
    let resumes = handshakes == Handshakes::Resumed && config.is_some();
    for _ in 0..CONNECTIONS {
        let is_to_resume = resumes && session.is_some();
        let (address, offered) = (testbed.address(index), session.clone().filter(|_| resumes));
        let answer = exchange_within(TIME_LIMIT_COUNTED, address, config.as_ref(), offered, &request)
            .map_err(|failure| anyhow!("a connection to the server under callgrind failed: {failure}"))
            .or_fault(Fault::Server)?;
        ensure!(answer.status == 200, "the server under callgrind answered with status {}", answer.status);
        ensure!(
            answer.is_resumed() == is_to_resume,
            "the server under callgrind did not take a session that it had given"
        );
        session = answer.sessions.last().cloned().or(session);
    }
    Ok(session)
}

/// Instructions per connection by area.
fn areas(handshakes: Handshakes, of: &[ByFunction], trampolines: &Trampolines) -> CountedAreas {
    let each = |executed: &Executed| executed.instructions as f64 / f64::from(CONNECTIONS);
    let by_area = |of: &ByFunction| {
        let mut sums: BTreeMap<Area, f64> = BTreeMap::new();
        for (function, count) in &of.own {
            *sums.entry(area_of(&function.object, &function.name)).or_default() += each(count);
        }
        sums
    };
    let (mut areas, within) = (by_area(&of[ALL]), by_area(&of[WITHIN]));
    for (area, count) in within.iter().filter(|(area, _)| **area != Area::Instrument) {
        *areas.entry(*area).or_default() -= count;
        *areas.entry(Area::Stages).or_default() += count;
    }
    let mut works: BTreeMap<String, Work> = BTreeMap::new();
    for (function, executed) in &of[WITHIN].called {
        if let Some(stage) = stage_of_trampoline(&function.name, trampolines) {
            let sum = works.entry(stage.to_owned()).or_default();
            *sum = sum.plus(per_hit(*executed));
        }
    }
    let stages = works.iter().map(|(stage, work)| (stage.clone(), work.instructions_count)).collect();
    let is_simulated = works.values().any(|work| work.near_misses_count > 0.0);
    let told = |areas: BTreeMap<Area, f64>| areas.into_iter().map(|(area, count)| (area.name().to_owned(), count));
    CountedAreas {
        handshakes,
        areas: told(areas).collect(),
        stages,
        plain: of.get(PLAIN).map(|of| told(by_area(of)).collect()).unwrap_or_default(),
        stages_work: if is_simulated { works } else { BTreeMap::new() },
        caches: Vec::new(),
    }
}
