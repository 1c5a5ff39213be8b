//! The runner's decisions, in virtual time.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tlsdyno_record::store::{Configuration, Role, Slice, Store};

use super::*;
use crate::run::bound::Clock;
use crate::run::schedule::{Piece, Schedule, schedule};

#[test]
fn slices_leave_time_for_the_rounds_that_are_wanted() {
    let seconds = Duration::from_secs;
    let slices = SlicesOfRound { length: seconds(2), rounds_wanted: Some(8), rounds_least: 8, blocks_share: None };
    let none = Duration::ZERO;
    assert_eq!(slices.fitting(0, seconds(16), none, none), seconds(2));
    // What a round takes besides is half of what is left for it, or all of it.
    assert_eq!(slices.fitting(4, seconds(8), seconds(1), seconds(1)), seconds(1));
    assert_eq!(slices.fitting(4, seconds(8), seconds(3), seconds(3)), none);
    // More time than was planned makes no longer slices, and more rounds are as long as planned.
    assert_eq!(slices.fitting(7, seconds(9), none, none), seconds(2));
    assert_eq!(slices.fitting(8, seconds(1), seconds(1), seconds(1)), seconds(2));
    let unbounded = SlicesOfRound { rounds_wanted: None, ..slices };
    assert_eq!(unbounded.fitting(4, seconds(8), seconds(3), seconds(3)), seconds(2));
}

#[test]
fn rounds_that_take_long_to_begin_are_fewer_and_longer() {
    let seconds = Duration::from_secs;
    let slices =
        SlicesOfRound { length: seconds(4), rounds_wanted: Some(90), rounds_least: 8, blocks_share: Some(0.6) };
    // As long as beginning them takes, whatever blocks take besides.
    assert_eq!(slices.fitting(1, seconds(400), seconds(10), seconds(10)), seconds(10));
    assert_eq!(slices.fitting(1, seconds(400), seconds(30), seconds(10)), seconds(10));
    // Eight rounds come all the same.
    assert_eq!(slices.fitting(2, seconds(120), seconds(16), seconds(16)), seconds(4));
    // Blocks that take longer than planned, with servers that start at once, leave slices as they are planned.
    assert_eq!(slices.fitting(1, seconds(280), seconds(10), seconds(0)), seconds(4));
    // Those that begin at once are as planned.
    assert_eq!(slices.fitting(1, seconds(445), seconds(1), seconds(0)), seconds(4));
}

#[test]
fn blocks_have_their_share_of_the_time() {
    let seconds = Duration::from_secs;
    let of = |blocks_share| SlicesOfRound { length: seconds(4), rounds_wanted: None, rounds_least: 8, blocks_share };
    assert!(of(Some(0.2)).has_blocks(0, seconds(0), seconds(0)) && !of(None).has_blocks(0, seconds(0), seconds(0)));
    assert!(
        !of(Some(0.2)).has_blocks(1, seconds(3), seconds(8)) && of(Some(0.2)).has_blocks(2, seconds(3), seconds(16))
    );
    // Some in the first round alone, or in each.
    assert!(!of(Some(0.0)).has_blocks(9, seconds(1), seconds(900)));
    assert!(of(Some(1.0)).has_blocks(9, seconds(900), seconds(900)));
}

/// Time that only work takes.
struct WorkedTime {
    began: Instant,
    worked: Cell<Duration>,
}

impl Clock for Rc<WorkedTime> {
    fn now(&self) -> Instant {
        self.began + self.worked.get()
    }
}

impl WorkedTime {
    fn work(&self, length: Duration) {
        self.worked.set(self.worked.get() + length);
    }
}

/// A simulated server, with the duration of each step.
#[derive(Clone)]
struct Takes {
    time: Duration,
    warm_up: Duration,
    begin: Duration,
    /// Duration of a sweep of slices; `None`: no slices.
    sweep: Option<Duration>,
    /// Duration of a block, without slices or beside them.
    block: Option<Duration>,
}

struct MadeUp {
    takes: Takes,
    clock: Rc<WorkedTime>,
    is_planned: bool,
}

impl Subject for MadeUp {
    fn warm_up(&self, _index: usize, _factor: u32) -> Work {
        Piece { users: 0..1, requests: 100 }.into()
    }

    fn is_bounded(&self) -> bool {
        true
    }

    fn plan(&mut self, seconds_per_request: &[f64], left: Duration) -> Plan {
        self.is_planned = true;
        let schedule = schedule(None, left, seconds_per_request, Duration::ZERO, 1_000_000);
        let slices = self.takes.sweep.map(|_| SlicesOfRound {
            length: left / 8,
            rounds_wanted: Some(8),
            rounds_least: 8,
            blocks_share: self.takes.block.map(|_| 0.2),
        });
        let works = vec![Piece { users: 0..1, requests: schedule.requests_per_block }.into()];
        Plan { slices, round_least: Duration::ZERO, ..Plan::of(schedule, works) }
    }

    fn begin_round(&mut self, _round: &NextRound) -> Result<bool> {
        self.clock.work(self.takes.begin);
        Ok(true)
    }

    fn block(&mut self, _index: usize, work: &Work, _journal: &mut Journal) -> Result<Block> {
        let takes = if self.is_planned { self.takes.block.unwrap() } else { self.takes.warm_up };
        self.clock.work(takes);
        let hits = work.piece.requests;
        Ok(Block { valid: true, hits, elapsed_ns: takes.as_nanos() as u64, server_cpu_ns: 1, ..Block::default() })
    }

    /// At least one sweep; one that is cut short does not count.
    fn slices(
        &mut self,
        configurations: &[usize],
        TimeOfSlices { length, end, .. }: TimeOfSlices,
        _random: &mut SplitMix64,
    ) -> Result<Vec<Block>, Failed> {
        let (sweep, began) = (self.takes.sweep.unwrap(), self.clock.now());
        let mut sweeps = 0;
        while sweeps == 0 || self.clock.now() - began + sweep / 2 < length {
            let left = end.saturating_duration_since(self.clock.now());
            self.clock.work(sweep.min(left));
            if left < sweep {
                break;
            }
            sweeps += 1;
        }
        let slices = vec![Slice { hits: 1, elapsed_us: 1, server_cpu_ns: 1, ..Slice::default() }; sweeps];
        let block =
            |&configuration: &usize| Block { configuration, valid: true, slices: slices.clone(), ..Block::default() };
        Ok(if sweeps > 0 { configurations.iter().map(block).collect() } else { Vec::new() })
    }
}

#[derive(Default)]
struct Told(Vec<Duration>);

impl Observer for Told {
    fn step(&mut self, _text: &str) {}
    fn preflight(&mut self, _name: &str, _passed: usize, _failed: &[String]) {}
    fn warn(&mut self, text: &str) {
        panic!("{text}");
    }
    fn measuring(&mut self, _schedule: &Schedule, _configurations: usize, _left: Duration) {}
    fn progress(&mut self, elapsed: Duration, _time: Duration, _text: &str) {
        self.0.push(elapsed);
    }
    fn finished(&mut self) {}
}

/// Duration, number of rounds, and whether a warning says that nothing was complete.
struct Came {
    took: Duration,
    rounds: usize,
    nothing: bool,
    told: Vec<Duration>,
}

fn measure(takes: &Takes) -> Came {
    let mut record = Record::begun_now("How long does it take?", 1);
    for name in ["as is", "without", "plain"] {
        let role = if name == "as is" { Role::AsIs } else { Role::Setting };
        record.configurations.push(Configuration { role, ..Configuration::setting(name, true, Vec::new()) });
    }
    // Hundreds of stores on a disk would take minutes.
    let journal = Journal::begin_in(Store::open_at(Path::new("/dev/null/records.sqlite")), record);
    let clock = Rc::new(WorkedTime { began: Instant::now(), worked: Cell::default() });
    let subject = MadeUp { takes: takes.clone(), clock: Rc::clone(&clock), is_planned: false };
    let (mut told, stop) = (Told::default(), AtomicBool::new(false));
    let settings = Measure { time_s: takes.time.as_secs_f64(), ..Measure::default() };
    let bound = Bound::new(clock.now(), takes.time);
    let mut run = Run {
        subject: Box::new(subject),
        measure: &settings,
        journal,
        stop: &stop,
        observer: &mut told,
        clock: &clock,
        bound,
        is_bounded: true,
        round_takes: Duration::ZERO,
        first_round: 0,
        pace: &mut None,
    };
    run.measure(1).unwrap();
    let nothing = run.nothing_to_tell().is_some();
    let record = run.journal.record();
    let mut of_rounds: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    for block in &record.blocks {
        of_rounds.entry(block.round).or_default().insert(block.configuration);
    }
    let rounds = of_rounds.values().filter(|configurations| configurations.len() == 3).count();
    drop(run);
    Came { took: clock.worked.get(), rounds, nothing, told: told.0 }
}

const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn a_quiet_machine_has_the_rounds_that_were_planned() {
    let quick = Takes { time: MS(20_000), warm_up: MS(100), begin: MS(300), sweep: Some(MS(500)), block: None };
    let came = measure(&quick);
    assert!(came.rounds >= 8 && came.took <= MS(20_500) && !came.nothing, "{} in {:?}", came.rounds, came.took);
    assert!(came.told.windows(2).all(|pair| pair[1] - pair[0] <= MS(3_000)), "never silent for long: {:?}", came.told);
}

#[test]
fn on_a_busy_machine_rounds_are_fewer_and_the_time_is_kept() {
    // Five rounds took 45 to 110 s of 20.
    let busy = Takes { time: MS(20_000), warm_up: MS(1_000), begin: MS(2_000), sweep: Some(MS(5_000)), block: None };
    let came = measure(&busy);
    assert!(came.took <= MS(20_000) && (1..5).contains(&came.rounds), "{} in {:?}", came.rounds, came.took);
    // A proxied page of 1 s in a sweep of all configurations: nothing fits, which is said after two seconds more.
    let slow = measure(&Takes { warm_up: MS(100), sweep: Some(MS(60_000)), ..busy.clone() });
    assert!(slow.nothing && slow.rounds == 0 && slow.took <= MS(22_000), "{:?}", slow.took);
    // Servers that take turns by restart.
    let blocks = Takes { begin: MS(0), sweep: None, block: Some(MS(9_000)), ..busy };
    let came = measure(&Takes { warm_up: MS(9_000), ..blocks });
    assert!(came.took <= MS(22_000), "{:?}", came.took);
}

/// Measuring ends in time, and has a result where one fits, whatever the durations are.
#[test]
fn time_is_a_bound_whatever_the_machine_does() {
    let lengths = [MS(20), MS(400), MS(1_500), MS(4_000), MS(15_000), MS(90_000)];
    for time in [MS(2_000), MS(5_000), MS(20_000), MS(60_000)] {
        let most = time.mul_f64(1.1).max(MS(10_000));
        for begin in [MS(0), MS(300), MS(3_000)] {
            for (sweep, block) in lengths
                .iter()
                .flat_map(|sweep| [(Some(*sweep), None), (Some(*sweep), Some(*sweep / 4)), (None, Some(*sweep))])
            {
                let takes = Takes { time, warm_up: MS(40), begin, sweep, block };
                let came = measure(&takes);
                let (took, rounds) = (came.took, came.rounds);
                let context = format!("{time:?} {begin:?} {sweep:?} {block:?}: {rounds} rounds in {took:?}");
                // What is under way goes on: the beginning of a round, and a block.
                let last = begin + block.unwrap_or_default();
                assert!(took <= most + last, "{context}");
                assert!(!came.nothing || rounds == 0, "{context}");
                let first = MS(120) + begin + sweep.unwrap_or(block.unwrap_or_default() * 4);
                assert!(first + MS(1) > most || rounds > 0, "{context}");
                let five = MS(120) + (begin + sweep.unwrap_or_default()) * 6;
                assert!(five > time || rounds >= 5 || block.is_some(), "{context}");
            }
        }
    }
}
