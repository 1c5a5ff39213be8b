//! Several loops of one load on this machine, each a thread on a CPU of its own.
//!
//! Threads and not processes: the loop runs on the thread that calls it, shares nothing that it writes to
//! (`tlsdyno_engine::load::Plan::part`), and hands back an outcome that needs no encoding.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use tlsdyno_engine::load::{LoadError, Outcome, Plan, Share, Watched, merge, run_together};
use tlsdyno_engine::sys::monotonic_ns;

use crate::servers::listening;
use crate::{affinity, process_tree};

/// From when all loops are ready until they begin, in nanoseconds: enough for each to have gone to sleep again.
const LEAD_NS: u64 = 10_000_000;

/// Most loops: what --threads takes.
const THREADS_MAX: u32 = 1024;

/// The value of --threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One for each CPU that the server does not need.
    Auto,
    /// So many.
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

/// The loops of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loops {
    /// The CPU of each, `None`: wherever the system puts it.
    cpus: Vec<Option<usize>>,
}

impl Loops {
    /// A single loop, on the CPUs that the process may use.
    pub fn one() -> Loops {
        Loops { cpus: vec![None] }
    }

    /// As many loops as asked for, on CPUs that leave the server at `address` alone as far as there are such.
    pub fn choose(threads: Option<Threads>, address: SocketAddr) -> Loops {
        let Some(threads) = threads else { return Loops::one() };
        let (free, others) = split(affinity::allowed(), &cpus_of_server(address));
        Loops { cpus: place(threads, &free, &others).into_iter().map(Some).collect() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.cpus.len()
    }

    /// Loops that have to share their CPU with another one.
    pub fn crowded(&self) -> usize {
        let mut distinct = self.cpus.clone();
        distinct.sort_unstable();
        distinct.dedup();
        self.cpus.len() - distinct.len()
    }

    /// Whether the plan can be cut into their parts.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(&self, plan: &Plan) -> Result<(), LoadError> {
        plan.check().map_err(LoadError::Plan)?;
        plan.part(self.share(0)).map(drop).map_err(LoadError::Plan)
    }

    fn share(&self, index: usize) -> Share {
        Share { index: index as u32, count: self.cpus.len() as u32 }
    }

    /// Runs the plan: a single loop on this thread, several on one each, which begin together. `watched` has an end for
    /// each, or none.
    ///
    /// # Errors
    /// The first of those of the loops.
    pub fn run(&self, plan: &Plan, stop: &AtomicBool, watched: Vec<Watched>) -> Result<Outcome, LoadError> {
        plan.check().map_err(LoadError::Plan)?;
        let mut watched = watched.into_iter();
        if let [None] = self.cpus[..] {
            return run_together(plan, stop, watched.next(), || Some(0));
        }
        let outcomes: Vec<Result<Outcome, LoadError>> = thread::scope(|scope| {
            let (ready, waiting) = channel::<Sender<u64>>();
            let begin = |(index, cpu): (usize, &Option<usize>)| {
                let (share, cpu, ready, watched) = (self.share(index), *cpu, ready.clone(), watched.next());
                scope.spawn(move || run_on(cpu, plan, share, stop, watched, ready))
            };
            let loops: Vec<_> = self.cpus.iter().enumerate().map(begin).collect();
            drop(ready);
            // Ends when each loop has said that it is ready, or that it never will be by dropping its sender.
            let waiting: Vec<Sender<u64>> = waiting.iter().collect();
            if waiting.len() == loops.len() {
                let at_ns = monotonic_ns() + LEAD_NS;
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
        let loops = names.zip(done.into_iter().flatten()).collect();
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
    ready: Sender<Sender<u64>>,
) -> Result<Outcome, LoadError> {
    if let Some(cpu) = cpu {
        let what = "a CPU of its own (--threads)";
        affinity::stay_on(cpu).map_err(|error| LoadError::System { what, error })?;
    }
    let part = plan.part(share).map_err(LoadError::Plan)?;
    run_together(&part, stop, watched, move || {
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
        let crowded = Loops { cpus: placed("5", &[0, 1], &[0, 1]).into_iter().map(Some).collect() };
        assert_eq!((crowded.crowded(), Loops::one().crowded()), (3, 0));
        assert!(["0", "", "2000", "many"].iter().all(|text| text.parse::<Threads>().is_err()));
    }
}
