//! Weeks of a robot in virtual time: real servers, a network that is played, the robot's own schedule and store.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_probe::entry::Entry;
use tlsdyno_probe::round::now_unix_us;
use tlsdyno_probe::schedule::Schedule;
use tlsdyno_probe::store::{Address, Store};
use tlsdyno_probe::summary::SiteSummary;
use tlsdyno_probe::{Keeping, Round, Site, SiteOptions, SiteSpec, measure};
use tlsdyno_runner::run::credentials::Credentials;
use tlsdyno_servers::ServerSpec;
use tlsdyno_servers::run_directory::{RunDirectory, make_passable};

use super::file::{ProbeExperiment, SimulatedSite};
use super::virtual_round::round;

/// Goldberg's time between rounds.
const EVERY: Duration = Duration::from_secs(600);
/// How long single rounds are kept, in hours.
const KEEP_ROUNDS_HOURS: u64 = 7 * 24;
const DAY_NS: u64 = 86_400_000_000_000;
const DAY_US: i64 = 86_400_000_000;
/// Real rounds of a site, however little time there is.
const ROUNDS_MIN: usize = 20;
/// And however much: what is drawn from must not be kept for ever.
const ROUNDS_MAX: usize = 2000;
/// The object that is asked for: below 5000 bytes, as in the paper, so that it travels in one flight.
const OBJECT_BYTES: usize = 4000;

pub fn check(experiment: &ProbeExperiment) -> Result<()> {
    let robot = &experiment.probe;
    ensure!(!robot.site.is_empty(), "there is no [[probe.site]]");
    ensure!((1..=400).contains(&robot.days), "`days` is between 1 and 400");
    if let Some(every) = robot.every {
        every.nanoseconds()?;
    }
    if let Some(path) = &robot.store {
        ensure!(!path.exists(), "{} is there; the rounds go to a new file", path.display());
    }
    let names: std::collections::BTreeSet<&str> = robot.site.iter().map(|site| site.name.as_str()).collect();
    ensure!(names.len() == robot.site.len(), "two sites have one name");
    for site in &robot.site {
        site.network.check().with_context(|| site.name.clone())?;
        ensure!(!site.server.kind.is_users_own(), "{}: a server of tlsdyno's is measured", site.name);
        ensure!(!site.tls.http2, "{}: a robot speaks HTTP/1.1; leave `http2` out", site.name);
        ensure!(site.server.libraries.is_empty(), "{}: a robot's servers use the system's OpenSSL", site.name);
    }
    Ok(())
}

/// Measures real rounds at each server, and plays weeks of them. Answers what they come to.
///
/// # Errors
/// A server does not start or answer, or Ctrl-C.
pub fn run(experiment: &ProbeExperiment, stop: &AtomicBool) -> Result<Vec<SiteSummary>> {
    let directory = RunDirectory::create().or_fault(Fault::Environment)?;
    let mut random = SplitMix64::new(experiment.measure.seed.unwrap_or(1));
    let robot = &experiment.probe;
    let budget = Duration::from_secs_f64((experiment.measure.time_s / robot.site.len() as f64).clamp(0.0, 1e6));
    let mut real = Vec::with_capacity(robot.site.len());
    for site in &robot.site {
        interrupt::check(stop)?;
        real.push(real_rounds(site, directory.path(), budget, &mut random, stop).with_context(|| site.name.clone())?);
    }
    let own = || directory.path().join("probe.sqlite");
    let store = Store::open(&Address::File(robot.store.clone().unwrap_or_else(own)))?;
    play(experiment, &real, store, &mut random, stop)
}

/// Rounds at the server itself.
fn real_rounds(
    site: &SimulatedSite,
    directory: &std::path::Path,
    budget: Duration,
    random: &mut SplitMix64,
    stop: &AtomicBool,
) -> Result<Vec<Round>> {
    let docroot = directory.join("docroot");
    make_passable(&docroot)?;
    let object = docroot.join("object");
    std::fs::write(&object, vec![b'x'; OBJECT_BYTES]).context("failed to write the object")?;
    std::fs::set_permissions(&object, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    let credentials = Credentials::create(site.tls.certificate(), directory)?;
    let tls = Some(credentials.server_tls(&site.tls));
    let server = tlsdyno_servers::start(&ServerSpec { tls, ..ServerSpec::new(site.server.kind, docroot) }, directory)?;
    let options = SiteOptions {
        version: Some(site.tls.version),
        no_early_data: true,
        ca_file: Some(credentials.files.ca.clone()),
        ..SiteOptions::default()
    };
    let spec = SiteSpec { url: format!("https://{}/object", server.address()), every: None, options };
    let probed = Site::all(&[spec], "")?.remove(0);
    let (mut rounds, began) = (Vec::new(), Instant::now());
    while rounds.len() < ROUNDS_MIN || (began.elapsed() < budget && rounds.len() < ROUNDS_MAX) {
        interrupt::check(stop)?;
        let mut round = measure(&probed, random, &mut Keeping::default());
        if let Some(fault) = &round.fault {
            return Err(anyhow::anyhow!("{} failed ({}): {}", fault.step, fault.kind, fault.text))
                .or_fault(Fault::Server);
        }
        // It stands for a site elsewhere.
        round.site.clone_from(&site.name);
        round.facts.address.clear();
        round.facts.certificate_fault.clear();
        rounds.push(round);
    }
    Ok(rounds)
}

/// Weeks of rounds by the robot's schedule, each drawn from the real ones of its site.
fn play(
    experiment: &ProbeExperiment,
    real: &[Vec<Round>],
    mut store: Store,
    random: &mut SplitMix64,
    stop: &AtomicBool,
) -> Result<Vec<SiteSummary>> {
    let robot = &experiment.probe;
    let every_ns = robot.every.map_or(EVERY, |every| every.0).as_nanos() as u64;
    let order: Vec<usize> = random.shuffled(&(0..real.len()).collect::<Vec<_>>());
    let mut schedule = Schedule::new(&vec![every_ns; real.len()], &order, 0);
    let end_ns = u64::from(robot.days) * DAY_NS;
    let day_of = |ns: u64| ns / DAY_NS;
    let raw_hours = robot.keep_rounds.map_or(KEEP_ROUNDS_HOURS, |keep| keep.0.as_secs().div_ceil(3600));
    // It ends with the day before today, so that reports about the last days find it.
    let begin_unix_us = (now_unix_us().div_euclid(DAY_US) - i64::from(robot.days)) * DAY_US;
    let (mut batch, mut day) = (Vec::new(), 0);
    while let Some(due_ns) = schedule.next_ns().filter(|due_ns| *due_ns < end_ns) {
        let due = schedule.take(due_ns).context("a round is due when it is due")?;
        let (site, rounds) = (&robot.site[due.site], &real[due.site]);
        let started_unix_us = begin_unix_us + (due_ns / 1000) as i64;
        let one = round(site, &rounds[random.below(rounds.len())], started_unix_us, random);
        batch.push(Entry::made("simulated", due.number, one));
        schedule.done(due.site);
        if day_of(due_ns) > day {
            interrupt::check(stop)?;
            day = day_of(due_ns);
            store.add(&std::mem::take(&mut batch))?;
            store.keep_house(started_unix_us, raw_hours)?;
        }
    }
    store.add(&batch)?;
    store.keep_house(begin_unix_us + (end_ns / 1000) as i64, raw_hours)?;
    let stored = store.sites()?;
    let number = |site: &SimulatedSite| {
        stored.iter().find(|(_, name)| *name == site.name).cloned().context("each site has rounds")
    };
    let sites = robot.site.iter().map(number).collect::<Result<Vec<_>>>()?;
    let ever = (i64::MIN, i64::MAX);
    let by = store.by(&sites.iter().map(|(site, _)| *site).collect::<Vec<_>>(), ever)?;
    SiteSummary::read(&mut store, &sites, ever, by)
}
