//! The robot: makes the rounds of a schedule, for weeks.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use tlsdyno_base::fault::{Fault, OrFault, fault_of};
use tlsdyno_base::foreign::visible;
use tlsdyno_base::random::SplitMix64;

use super::entry::Entry;
use super::kept::Keeping;
use super::measure::{awake_ns, measure};
use super::round::now_unix_us;
use super::schedule::{Due, Schedule};
use super::site::Site;
use super::spool::{Claim, Rest, Spool, taken};
use super::store::{Address, Store};

/// Rounds under way at once: sites that hang hold up no others until so many do.
const WORKERS_MAX: usize = 64;
/// How often sleepers look at the clock and at the flag: a machine that was asleep wakes in mid-sleep.
const NAP: Duration = Duration::from_millis(200);
/// The longest pause between two attempts at a store that does not take rounds.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long the store may take for what is spooled once all rounds are made.
const LAST_STORING: Duration = Duration::from_secs(60);
/// Microseconds between two times of housekeeping.
const HOUSE_EVERY_US: u64 = 600_000_000;

pub struct Orders<'a> {
    pub sites: &'a [Site],
    /// The time between two rounds at a site that has none of its own.
    pub every: Duration,
    pub duration: Option<Duration>,
    /// Hours for which single rounds are kept.
    pub raw_hours: u64,
    pub spool_bytes_max: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub made_count: u64,
    /// Rounds whose time passed without one.
    pub missed_count: u64,
    /// Rounds wait in the spool, for the store did not take them.
    pub is_spooled: bool,
    /// Rounds that neither the store nor the spool took: they are lost.
    pub lost_count: u64,
    /// Rounds that found no room anywhere.
    pub dropped_count: u64,
    /// Lines of spools that nobody could read, kept aside.
    pub damaged_count: u64,
}

/// What all threads of the robot share.
struct Shared<'a> {
    orders: &'a Orders<'a>,
    run: String,
    /// The thread that holds this lock sleeps until the next round is due; the others wait for the lock. So one thread
    /// wakes up for a round, not all.
    turn: Mutex<()>,
    schedule: Mutex<Schedule>,
    changed: Condvar,
    /// What rounds of a site hand on to the next ones.
    keeping: Vec<Mutex<Keeping>>,
    end_ns: Option<u64>,
    spool: Spool,
    stop: &'a AtomicBool,
    /// When all rounds were made: what is spooled goes to the store, and then it is over.
    over: OnceLock<Instant>,
    /// Another robot has one of the sites.
    refused: Mutex<Option<String>>,
    made: AtomicU64,
    missed: AtomicU64,
}

/// Makes rounds until the time is over or `stop` is set. `see` is told of each round that was made.
///
/// # Errors
/// The store cannot be opened and never will, or another robot has one of the sites. A server of databases that is not
/// there now is no error: rounds wait for it.
pub fn run(
    orders: &Orders<'_>,
    address: &Address,
    random: &mut SplitMix64,
    stop: &AtomicBool,
    see: &(dyn Fn(&Entry) + Sync),
) -> Result<Done> {
    ensure!(!orders.every.is_zero(), "rounds need a time between them");
    let directory = address.robots_directory()?;
    let series: Vec<String> = orders.sites.iter().map(Site::series).collect();
    let claims = series.iter().map(|series| Claim::of(&directory, series)).collect::<Result<Vec<_>>>();
    let _claims = claims.or_fault(Fault::Store)?;
    let store = match Store::open(address).and_then(|mut store| claim(&mut store, &series).map(|()| store)) {
        Err(error) if fault_of(&error) == Some(Fault::Unreachable) => {
            warn(&format!("the store is away; rounds wait in {}: {error:#}", directory.display()));
            None
        }
        opened => Some(opened?),
    };
    // What a robot left that was killed; this one's own comes behind, and so later.
    let left = Spool::left(&directory)?;
    let shared = Shared::new(orders, Spool::take(&directory, orders.spool_bytes_max)?, random, stop);
    let keeper = Keeper { shared: &shared, address, series: &series, was_claimed: store.is_some(), store };
    let seeds: Vec<u64> = (0..orders.sites.len().min(WORKERS_MAX)).map(|_| random.next_u64()).collect();
    thread::scope(|scope| {
        let keeper = scope.spawn(|| keeper.keep(&left));
        let workers: Vec<_> = seeds
            .into_iter()
            .map(|seed| {
                let shared = &shared;
                scope.spawn(move || shared.work(seed, see))
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("no worker panics"));
        shared.spool.close();
        shared.over.get_or_init(Instant::now);
        keeper.join().expect("the keeper does not panic");
    });
    // What the store took made room for the rest.
    shared.spool.close();
    if let Some(text) = shared.refused.lock().expect("no holder panics").take() {
        return Err(anyhow!(text)).or_fault(Fault::Store);
    }
    Ok(shared.done(&left))
}

fn warn(text: &str) {
    tell!("warning: {}", visible(text));
}

/// Takes all series for this connection to the store.
fn claim(store: &mut Store, all: &[String]) -> Result<()> {
    for series in all {
        ensure_fault!(Store, store.claim(series)?, "{}", taken(series));
    }
    Ok(())
}

impl<'a> Shared<'a> {
    fn new(orders: &'a Orders<'a>, spool: Spool, random: &mut SplitMix64, stop: &'a AtomicBool) -> Shared<'a> {
        let mut order: Vec<usize> = (0..orders.sites.len()).collect();
        random.shuffle(&mut order);
        let now_ns = awake_ns();
        let every = |site: &Site| site.every.unwrap_or(orders.every).as_nanos() as u64;
        let every_ns: Vec<u64> = orders.sites.iter().map(every).collect();
        Shared {
            orders,
            run: format!("{} {:08x}", now_unix_us(), random.next_u64() as u32),
            turn: Mutex::new(()),
            schedule: Mutex::new(Schedule::new(&every_ns, &order, now_ns)),
            changed: Condvar::new(),
            keeping: orders.sites.iter().map(|_| Mutex::default()).collect(),
            end_ns: orders.duration.map(|duration| now_ns + duration.as_nanos() as u64),
            spool,
            stop,
            over: OnceLock::new(),
            refused: Mutex::new(None),
            made: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        }
    }

    /// What became of the rounds; `left`: spools of other robots.
    fn done(&self, left: &[Spool]) -> Done {
        let own = self.spool.rest();
        let rests: Vec<Rest> = left.iter().map(Spool::rest).chain([own]).collect();
        Done {
            made_count: self.made.load(Ordering::Relaxed),
            missed_count: self.missed.load(Ordering::Relaxed),
            is_spooled: rests.iter().any(|rest| !rest.is_file_empty),
            lost_count: own.in_memory_count,
            dropped_count: own.dropped_count,
            damaged_count: rests.iter().map(|rest| rest.damaged_count).sum(),
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.end_ns.is_some_and(|end_ns| awake_ns() >= end_ns)
            || self.refused.lock().expect("no holder panics").is_some()
    }

    fn work(&self, seed: u64, see: &(dyn Fn(&Entry) + Sync)) {
        let mut random = SplitMix64::new(seed);
        while let Some(due) = self.next() {
            let site = &self.orders.sites[due.site];
            if due.missed_count > 0 {
                let first = due.number - due.missed_count;
                self.spool.add(&Entry::missed(&self.run, first, due.missed_count, &site.series(), now_unix_us()));
            }
            let mut keeping = self.keeping[due.site].lock().expect("no holder panics");
            let entry = Entry::made(&self.run, due.number, measure(site, &mut random, &mut keeping));
            drop(keeping);
            self.spool.add(&entry);
            see(&entry);
            self.made.fetch_add(1, Ordering::Relaxed);
            self.missed.fetch_add(due.missed_count, Ordering::Relaxed);
            self.schedule.lock().expect("no holder panics").done(due.site);
            self.changed.notify_all();
        }
    }

    /// Waits for the next round; `None`: there is none any more.
    fn next(&self) -> Option<Due> {
        let _turn = self.turn.lock().expect("no holder panics");
        let mut schedule = self.schedule.lock().expect("no holder panics");
        loop {
            if self.is_over() {
                return None;
            }
            let now_ns = awake_ns();
            if let Some(due) = schedule.take(now_ns) {
                return Some(due);
            }
            let wait = schedule.next_ns().map_or(NAP, |due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns)));
            let waited = self.changed.wait_timeout(schedule, wait.min(NAP));
            schedule = waited.expect("no holder panics").0;
        }
    }

    /// Whether a store that is slow may still take the robot's time.
    fn may_wait(&self) -> bool {
        self.over.get().is_none_or(|over| over.elapsed() < LAST_STORING)
    }

    fn nap(&self, length: Duration) {
        let until_ns = awake_ns() + length.as_nanos() as u64;
        while awake_ns() < until_ns && self.over.get().is_none() {
            thread::sleep(NAP.min(length));
        }
    }
}

/// Takes spooled rounds to the store.
struct Keeper<'a> {
    shared: &'a Shared<'a>,
    address: &'a Address,
    series: &'a [String],
    store: Option<Store>,
    /// The series were this robot's once. A database that comes back may take the old connection for alive a while.
    was_claimed: bool,
}

impl Keeper<'_> {
    fn keep(mut self, left: &[Spool]) {
        let mut pause = Duration::ZERO;
        let mut house_unix_us = i64::MIN;
        loop {
            // Asked before the spool: what was added until then is taken in this turn.
            let is_last = self.shared.over.get().is_some();
            match self.turn(left, is_last, &mut house_unix_us) {
                Ok(()) => {
                    if !pause.is_zero() {
                        tell!("the store takes rounds again");
                    }
                    pause = Duration::ZERO;
                }
                Err(error) => {
                    if pause.is_zero() {
                        warn(&format!("the store takes no rounds; they wait in the spool: {error:#}"));
                    }
                    // A new connection is a new chance: the server was started again, the file is there again.
                    self.store = None;
                    pause = (pause * 2).clamp(NAP, PAUSE_MAX);
                }
            }
            if is_last {
                return;
            }
            self.shared.nap(pause.max(NAP));
        }
    }

    fn turn(&mut self, left: &[Spool], is_last: bool, house_unix_us: &mut i64) -> Result<()> {
        let mut store = match self.store.take() {
            Some(store) => store,
            None => self.reopen()?,
        };
        for spool in left.iter().chain([&self.shared.spool]) {
            take(&mut store, spool, &|| self.shared.may_wait())?;
        }
        let now_us = now_unix_us();
        // The clock may have been set back.
        if is_last || now_us.abs_diff(*house_unix_us) > HOUSE_EVERY_US {
            store.keep_house_warily(now_us, self.shared.orders.raw_hours)?;
            *house_unix_us = now_us;
        }
        self.store = Some(store);
        Ok(())
    }

    fn reopen(&mut self) -> Result<Store> {
        let mut store = Store::open(self.address)?;
        match claim(&mut store, self.series) {
            Ok(()) => self.was_claimed = true,
            Err(_) if self.was_claimed => {}
            Err(error) => {
                *self.shared.refused.lock().expect("no holder panics") = Some(format!("{error:#}"));
                return Err(error);
            }
        }
        Ok(store)
    }
}

/// Takes what is in a spool to the store, as long as that may be waited for.
///
/// # Errors
/// The store does not take it; it stays in the spool. Or the spool cannot be written.
fn take(store: &mut Store, spool: &Spool, may_wait: &dyn Fn() -> bool) -> Result<()> {
    while may_wait() {
        let oldest = spool.oldest()?;
        if !oldest.entries.is_empty() {
            store.add(&oldest.entries)?;
        }
        spool.taken(&oldest)?;
        if oldest.entries.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Keeps rounds that were made alone, and what robots left, and keeps house as a robot does: there may never be one.
/// What the store does not take waits in the spool.
///
/// # Errors
/// The store takes nothing, or there is no room for a spool.
pub fn keep_alone(entries: &[Entry], address: &Address, raw_hours: u64, spool_bytes_max: u64) -> Result<()> {
    let directory: &Path = &address.robots_directory()?;
    let left = Spool::left(directory)?;
    let spool = Spool::take(directory, spool_bytes_max)?;
    entries.iter().for_each(|entry| spool.add(entry));
    spool.close();
    let waits = || match spool.rest().in_memory_count {
        0 => format!("the rounds wait in {} for the next command on this store", directory.display()),
        lost => format!("{lost} rounds are lost: {} has no room for them either", directory.display()),
    };
    let mut store = Store::open(address).with_context(waits)?;
    left.iter().chain([&spool]).try_for_each(|spool| take(&mut store, spool, &|| true)).with_context(waits)?;
    let in_order = store.keep_house_warily(now_unix_us(), raw_hours);
    in_order.map(drop).context("the rounds are kept, but the store could not be put in order")
}
