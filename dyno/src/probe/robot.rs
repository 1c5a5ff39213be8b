//! The robot: makes the rounds of a schedule, for weeks.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::time::{ClockId, clock_gettime};

use super::entry::Entry;
use super::measure::{measure, now_unix_us};
use super::schedule::{Due, Schedule};
use super::site::Site;
use super::spool::{Claim, Spool};
use super::store::Store;
use crate::random::SplitMix64;

/// The shortest time between two rounds at a site that is not this machine.
pub const FOREIGN_EVERY_MIN: Duration = Duration::from_secs(10);
/// Rounds under way at once: sites that hang hold up no others until so many do.
const WORKERS_MAX: usize = 8;
/// How often sleepers look at the clock and at the flag: a machine that was asleep wakes in mid-sleep.
const NAP: Duration = Duration::from_millis(200);
/// The longest pause between two attempts at a store that does not take rounds.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What the robot is to do.
pub struct Orders<'a> {
    /// The sites.
    pub sites: &'a [Site],
    /// The time between two rounds at a site.
    pub every: Duration,
    /// The end, if there is one.
    pub duration: Option<Duration>,
    /// Names this robot in the store: who sees the sites from here.
    pub vantage: &'a str,
    /// Hours for which single rounds are kept.
    pub raw_hours: u64,
    /// Largest size of the spool, in bytes.
    pub spool_bytes_max: u64,
}

/// What became of the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rounds that were made.
    pub made_count: u64,
    /// Rounds whose time passed without one.
    pub missed_count: u64,
    /// Rounds that wait in the spool, for the store did not take them.
    pub is_spooled: bool,
    /// Rounds that found no room anywhere.
    pub dropped_count: u64,
}

/// What all threads of the robot share.
struct Shared<'a> {
    orders: &'a Orders<'a>,
    run: String,
    schedule: Mutex<Schedule>,
    changed: Condvar,
    end_ns: Option<u64>,
    spool: Spool,
    stop: &'a AtomicBool,
    /// All rounds are made: what is spooled goes to the store, and then it is over.
    over: AtomicBool,
    done: Mutex<Done>,
}

/// Makes rounds until the time is over or `stop` is set. `see` is told of each round that was made.
///
/// # Errors
/// The store cannot be opened, or another robot has one of the sites.
pub fn run(
    orders: &Orders<'_>,
    store_path: &Path,
    random: &mut SplitMix64,
    stop: &AtomicBool,
    see: &(dyn Fn(&Entry) + Sync),
) -> Result<Done> {
    ensure!(!orders.every.is_zero(), "rounds need a time between them");
    let store = Store::open(store_path)?;
    let directory = store.robots_directory().to_owned();
    let _claims = orders.sites.iter().map(|site| Claim::of(&directory, &site.name)).collect::<Result<Vec<_>>>()?;
    // What a robot left that was killed; this one's own comes behind, and so later.
    let left = Spool::left(&directory)?;
    let mut order: Vec<usize> = (0..orders.sites.len()).collect();
    random.shuffle(&mut order);
    let now_ns = now_ns();
    let shared = Shared {
        orders,
        run: format!("{} {} {:08x}", orders.vantage, now_unix_us(), random.next_u64() as u32),
        schedule: Mutex::new(Schedule::new(orders.every.as_nanos() as u64, &order, now_ns)),
        changed: Condvar::new(),
        end_ns: orders.duration.map(|duration| now_ns + duration.as_nanos() as u64),
        spool: Spool::take(&directory, orders.spool_bytes_max)?,
        stop,
        over: AtomicBool::new(false),
        done: Mutex::new(Done::default()),
    };
    let seeds: Vec<u64> = (0..orders.sites.len().min(WORKERS_MAX)).map(|_| random.next_u64()).collect();
    thread::scope(|scope| {
        let keeper = scope.spawn(|| shared.keep(store, left));
        let workers: Vec<_> = seeds
            .into_iter()
            .map(|seed| {
                scope.spawn({
                    let shared = &shared;
                    move || shared.work(seed, see)
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("no worker panics"));
        shared.over.store(true, Ordering::Release);
        keeper.join().expect("the keeper does not panic");
    });
    let done = *shared.done.lock().expect("no holder panics");
    Ok(Done { is_spooled: !shared.spool.is_empty(), dropped_count: shared.spool.dropped_count(), ..done })
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.end_ns.is_some_and(|end_ns| now_ns() >= end_ns)
    }

    /// Makes rounds that are due.
    fn work(&self, seed: u64, see: &(dyn Fn(&Entry) + Sync)) {
        let mut random = SplitMix64::new(seed);
        while let Some(due) = self.next() {
            let site = &self.orders.sites[due.site];
            if due.missed_count > 0 {
                let first = due.number - due.missed_count;
                self.spool.add(&Entry::missed(&self.run, first, due.missed_count, &site.name, now_unix_us()));
            }
            let entry = Entry::made(&self.run, due.number, measure(site, &mut random));
            self.spool.add(&entry);
            see(&entry);
            let mut done = self.done.lock().expect("no holder panics");
            done.made_count += 1;
            done.missed_count += due.missed_count;
            drop(done);
            self.schedule.lock().expect("no holder panics").done(due.site);
            self.changed.notify_all();
        }
        self.changed.notify_all();
    }

    /// Waits for the next round; `None`: there is none any more.
    fn next(&self) -> Option<Due> {
        let mut schedule = self.schedule.lock().expect("no holder panics");
        loop {
            if self.is_over() {
                return None;
            }
            let now_ns = now_ns();
            if let Some(due) = schedule.take(now_ns) {
                return Some(due);
            }
            let wait = schedule.next_ns().map_or(NAP, |due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns)));
            let waited = self.changed.wait_timeout(schedule, wait.min(NAP));
            schedule = waited.expect("no holder panics").0;
        }
    }

    /// Takes spooled rounds to the store until all is over.
    fn keep(&self, mut store: Store, left: Vec<Spool>) {
        let mut pause = Duration::ZERO;
        let mut house_unix_us = i64::MIN;
        loop {
            // Asked before the spool: what was added until then is taken in this turn.
            let is_last = self.over.load(Ordering::Acquire);
            let outcome =
                left.iter().chain([&self.spool]).try_for_each(|spool| take(&mut store, spool)).and_then(|()| {
                    let now_us = now_unix_us();
                    // The clock may have been set back.
                    if is_last || now_us.abs_diff(house_unix_us) > 600_000_000 {
                        store.keep_house(now_us, self.orders.raw_hours)?;
                        house_unix_us = now_us;
                    }
                    Ok(())
                });
            match outcome {
                Ok(()) => pause = Duration::ZERO,
                Err(error) => {
                    if pause.is_zero() {
                        let text = crate::foreign::visible(&format!("{error:#}")).into_owned();
                        eprintln!("warning: the store takes no rounds; they wait in the spool: {text}");
                    }
                    pause = (pause * 2).clamp(NAP, PAUSE_MAX);
                }
            }
            if is_last {
                return;
            }
            self.nap(pause.max(NAP));
        }
    }

    fn nap(&self, length: Duration) {
        let until_ns = now_ns() + length.as_nanos() as u64;
        while now_ns() < until_ns && !self.over.load(Ordering::Acquire) {
            thread::sleep(NAP.min(length));
        }
    }
}

fn take(store: &mut Store, spool: &Spool) -> Result<()> {
    loop {
        let (entries, until) = spool.oldest()?;
        if !entries.is_empty() {
            store.add(&entries)?;
        }
        spool.taken(until)?;
        if entries.is_empty() || spool.is_empty() {
            return Ok(());
        }
    }
}

/// The clock of the schedule: it never goes back, and goes on while the machine sleeps.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
