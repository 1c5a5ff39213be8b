//! Who makes a load, and several loops of one on this machine, each a thread on a CPU of its own.
//!
//! Threads and not processes: the loop runs on the thread that calls it, shares nothing that it writes to
//! (`tlsdyno_engine::load::Plan::part`), and hands back an outcome that needs no encoding.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use anyhow::Result;
use tlsdyno_base::{affinity, listening, process_tree};
use tlsdyno_engine::load::{
    HeldSessions, LoadError, Outcome, Plan, Share, Watched, merge, run_together, run_together_holding,
};
use tlsdyno_record::model::job::Held;
use tlsdyno_sys::monotonic_ns;

/// From when all loops are ready until they begin, in nanoseconds: enough for each to have gone to sleep again.
const LEAD_NS: u64 = 10_000_000;

const THREADS_MAX: u32 = 1024;

pub trait Crew: Debug {
    /// How many of them a display watches.
    fn count(&self) -> usize;

    /// Runs the plan. `watched` has an end for each of them, or none.
    fn run(&self, plan: &Plan, stop: &AtomicBool, watched: Vec<Watched>) -> Result<Outcome>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One for each CPU that the server does not need.
    Auto,
    Count(u32),
}

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Threads, String> {
        match text.parse() {
            _ if text == "auto" => Ok(Threads::Auto),
            Ok(count) if (1..=THREADS_MAX).contains(&count) => Ok(Threads::Count(count)),
            _ => Err(format!("`{text}` is no number of loops; write 1 to {THREADS_MAX}, or auto")),
        }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threads::Auto => f.write_str("auto"),
            Threads::Count(count) => write!(f, "{count}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loops {
    /// The CPU of each, `None`: wherever the system puts it.
    pub cpus: Vec<Option<usize>>,
    /// Loops of the load before these, on other machines.
    before: u32,
    /// Loops of the whole load that come after these.
    after: u32,
}

impl Loops {
    pub fn one() -> Loops {
        Loops::on(vec![None])
    }

    /// As many loops as asked for, on CPUs that leave the server at `address` alone as far as there are such; without
    /// an address the server is on another machine.
    pub fn choose(threads: Option<Threads>, address: Option<SocketAddr>) -> Loops {
        let Some(threads) = threads else { return Loops::one() };
        let of_server = address.map(cpus_of_server).unwrap_or_default();
        let (free, others) = split(affinity::allowed(), &of_server);
        Loops::on(place(threads, &free, &others).into_iter().map(Some).collect())
    }

    fn on(cpus: Vec<Option<usize>>) -> Loops {
        Loops { cpus, before: 0, after: 0 }
    }

    /// The same loops as those of a larger load that come after so many of its `total`.
    pub fn among(&self, before: u32, total: u32) -> Result<Loops, LoadError> {
        let after = total.checked_sub(before).and_then(|rest| rest.checked_sub(self.cpus.len() as u32));
        let after = after.ok_or(LoadError::Plan("it has fewer loops than were to take part"))?;
        Ok(Loops { before, after, ..self.clone() })
    }

    /// Loops that have to share their CPU with another one.
    pub fn crowded(&self) -> usize {
        self.cpus.len() - self.cpus.iter().collect::<BTreeSet<_>>().len()
    }

    pub fn check(&self, plan: &Plan) -> Result<(), LoadError> {
        plan.check().map_err(LoadError::Plan)?;
        plan.part(self.share(0)).map(drop).map_err(LoadError::Plan)
    }

    fn share(&self, index: usize) -> Share {
        Share { index: self.before + index as u32, count: self.before + self.cpus.len() as u32 + self.after }
    }

    /// Runs their part of the plan, each on a thread of its own (a single one without a CPU on this one), and answers
    /// what each did. When all are ready `begin_at` is called, which may wait for others and answers the moment to
    /// begin at, in nanoseconds of the monotonic clock, or nothing: then the run does not take place. `watched` has an
    /// end for each, or none; `held` the sessions that each has of earlier runs, or nothing yet.
    pub fn run_each(
        &self,
        plan: &Plan,
        stop: &AtomicBool,
        watched: Vec<Watched>,
        held: &mut Vec<HeldSessions>,
        begin_at: impl FnOnce() -> Option<u64>,
    ) -> Result<Vec<(String, Outcome)>, LoadError> {
        plan.check().map_err(LoadError::Plan)?;
        let mut watched = watched.into_iter();
        held.resize_with(self.cpus.len(), || HeldSessions::new(plan.resumption));
        if let [None] = self.cpus[..] {
            let part = plan.part(self.share(0)).map_err(LoadError::Plan)?;
            let outcome = run_together_holding(&part, stop, watched.next(), &mut held[0], begin_at)?;
            return Ok(vec![("loop 1".to_owned(), outcome)]);
        }
        let outcomes: Vec<Result<Outcome, LoadError>> = thread::scope(|scope| {
            let (ready, waiting) = channel::<Sender<u64>>();
            let begin = |((index, cpu), held): ((usize, &Option<usize>), _)| {
                let (share, cpu, ready, watched) = (self.share(index), *cpu, ready.clone(), watched.next());
                scope.spawn(move || run_on(cpu, plan, share, stop, watched, held, ready))
            };
            let loops: Vec<_> = self.cpus.iter().enumerate().zip(held).map(begin).collect();
            drop(ready);
            // Ends when each loop has said that it is ready, or that it never will be by dropping its sender.
            let waiting: Vec<Sender<u64>> = waiting.iter().collect();
            if waiting.len() == loops.len()
                && let Some(at_ns) = begin_at()
            {
                // A loop that is gone by now says so itself.
                waiting.iter().for_each(|begin| begin.send(at_ns).unwrap_or(()));
            }
            drop(waiting);
            loops.into_iter().map(|one| one.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault))).collect()
        });
        let (done, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        if let Some(error) =
            failed.into_iter().filter_map(Result::err).min_by_key(|error| matches!(error, LoadError::NotBegun))
        {
            return Err(error);
        }
        let names = (1..).zip(&self.cpus).map(|(number, cpu)| match cpu {
            Some(cpu) => format!("loop {number} on CPU {cpu}"),
            None => format!("loop {number}"),
        });
        Ok(names.zip(done.into_iter().flatten()).collect())
    }
}

/// The sessions that loops have of earlier runs, by the numbers that those runs gave them.
#[derive(Debug, Default)]
pub struct Stores(BTreeMap<u64, Vec<HeldSessions>>);

impl Stores {
    /// Runs the loops' part of the plan as [`Loops::run_each`], with the sessions that are named; `None`: with none of
    /// earlier runs.
    pub fn run(
        &mut self,
        loops: &Loops,
        plan: &Plan,
        stop: &AtomicBool,
        watched: Vec<Watched>,
        held: Option<&Held>,
        begin_at: impl FnOnce() -> Option<u64>,
    ) -> Result<Vec<(String, Outcome)>, LoadError> {
        let Some(held) = held else { return loops.run_each(plan, stop, watched, &mut Vec::new(), begin_at) };
        held.dropped_numbers.iter().for_each(|number| drop(self.0.remove(number)));
        let store = self.0.entry(held.number).or_default();
        let mut outcomes = loops.run_each(plan, stop, watched, store, begin_at)?;
        if held.is_slice {
            outcomes.iter_mut().for_each(|(_, outcome)| outcome.phases.clear());
        }
        Ok(outcomes)
    }
}

impl Crew for Loops {
    fn count(&self) -> usize {
        self.cpus.len()
    }

    /// A single loop runs on this thread, several on one each.
    fn run(&self, plan: &Plan, stop: &AtomicBool, watched: Vec<Watched>) -> Result<Outcome> {
        if let [None] = self.cpus[..] {
            return Ok(run_together(plan, stop, watched.into_iter().next(), || Some(0))?);
        }
        let loops = self.run_each(plan, stop, watched, &mut Vec::new(), || Some(monotonic_ns() + LEAD_NS))?;
        Ok(merge(loops).expect("there is at least one loop"))
    }
}

/// One of several loops, on its thread. What it writes to is made here, in memory that the allocator gives to this
/// thread: no cache line is written by two of them.
fn run_on(
    cpu: Option<usize>,
    plan: &Plan,
    share: Share,
    stop: &AtomicBool,
    watched: Option<Watched>,
    held: &mut HeldSessions,
    ready: Sender<Sender<u64>>,
) -> Result<Outcome, LoadError> {
    if let Some(cpu) = cpu {
        let what = "a CPU of its own (--threads)";
        affinity::stay_on(cpu).map_err(|error| LoadError::System { what, error })?;
    }
    let part = plan.part(share).map_err(LoadError::Plan)?;
    run_together_holding(&part, stop, watched, held, move || {
        let (begin, begun) = channel();
        ready.send(begin).ok()?;
        // The others wait until this sender is gone, too.
        drop(ready);
        begun.recv().ok()
    })
}

/// The CPUs that a server on this machine was given; empty if it is elsewhere, all if it was not told where to run, or
/// if nobody knows.
fn cpus_of_server(address: SocketAddr) -> Vec<usize> {
    if !listening::is_of_this_host(address.ip()) {
        return Vec::new();
    }
    // Of a server with workers these, not their master, which need not be told where to run.
    let owners = listening::owner_numbers(&address).unwrap_or_default();
    let workers = process_tree::leaves(&owners.iter().filter_map(|pid| process_tree::stat(*pid)).collect::<Vec<_>>());
    let cpus: Vec<usize> = workers.iter().filter_map(|pid| affinity::of_process(Some(*pid))).flatten().collect();
    if cpus.is_empty() { affinity::allowed() } else { cpus }
}

/// The CPUs that the load should use, and those that it uses if it is to have more. A server that may run everywhere is
/// left the first half.
fn split(allowed: Vec<usize>, of_server: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let (others, free): (Vec<usize>, Vec<usize>) = allowed.iter().partition(|cpu| of_server.contains(cpu));
    if !free.is_empty() {
        return (free, others);
    }
    let half = allowed.len() / 2;
    (allowed[half..].to_vec(), allowed[..half].to_vec())
}

/// The CPU of each loop. More loops than CPUs share them.
fn place(threads: Threads, free: &[usize], others: &[usize]) -> Vec<usize> {
    match threads {
        Threads::Auto => free.to_vec(),
        Threads::Count(count) => free.iter().chain(others).copied().cycle().take(count as usize).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_leave_the_server_alone_as_far_as_they_can() {
        let placed = |threads: &str, allowed: &[usize], of_server: &[usize]| {
            let (free, others) = split(allowed.to_vec(), of_server);
            place(threads.parse().unwrap(), &free, &others)
        };
        assert_eq!(placed("auto", &[0, 1, 2, 3], &[0]), [1, 2, 3]);
        assert_eq!(placed("auto", &[0, 1, 2, 3], &[]), [0, 1, 2, 3], "the server is elsewhere");
        assert_eq!(placed("auto", &[0, 1, 2, 3], &[0, 1, 2, 3]), [2, 3], "it was not told where to run");
        assert_eq!(placed("auto", &[5], &[5]), [5]);
        assert_eq!(placed("3", &[0, 1, 2, 3], &[0, 1]), [2, 3, 0]);
        assert_eq!(placed("5", &[0, 1], &[0, 1]), [1, 0, 1, 0, 1]);
        let crowded = Loops::on(placed("5", &[0, 1], &[0, 1]).into_iter().map(Some).collect());
        assert_eq!((crowded.crowded(), Loops::one().crowded()), (3, 0));
        assert!(["0", "", "2000", "many"].iter().all(|text| text.parse::<Threads>().is_err()));
    }
}
