//! A server that is sampled, whose processes come and go.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::{affinity, ensure_fault};
use tlsdyno_sampling::{Sample, Sampler, Settings};
use tlsdyno_sys::process_cpu_ns;

use crate::classify::{is_of, place_of};
use crate::find::{Group, name_of};
use crate::libraries::{self, Found};
use crate::shares::{Counts, Shares, Times};

/// CPU time between two samples of a thread, nanoseconds: 99 a second, no divisor of what servers do in rhythm.
pub const PERIOD_NS: u64 = 10_101_010;
/// Bytes of the stack in a sample: ring has a table of 18 KB on it while it computes an RSA signature.
const STACK_BYTES: u32 = 32 * 1024;
/// Samples of a third of a second of a thread; they are read much sooner.
const RING_BYTES: usize = 1024 * 1024;

/// A server with its samples so far.
pub struct Server {
    pub name: String,
    pub root: u32,
    pub addresses: BTreeSet<SocketAddr>,
    pub libraries: Vec<Found>,
    pids: Vec<u32>,
    /// Of so many samples one is taken.
    pub one_sample_in: u32,
    sampler: Sampler,
    /// CPU time between two samples, nanoseconds.
    period_ns: u64,
    times: Times,
    total: Counts,
    cpu: CpuTime,
    began: Instant,
}

impl Server {
    /// Begins to sample a server. `window`: what is older is forgotten. `None`: it has no TLS library that is known.
    ///
    /// # Errors
    /// This user may not look into it, the kernel lets nobody sample, or its program has no names.
    pub fn of(group: &Group, window: Option<Duration>) -> Result<Option<Server>> {
        let mut libraries = libraries::of_processes(&group.pids).or_fault(Fault::Environment)?;
        if libraries.is_empty() {
            return Ok(None);
        }
        let sampler = sampler(group, &mut libraries)?;
        Ok(Some(Server {
            name: name_of(group.root),
            root: group.root,
            addresses: group.addresses.clone(),
            libraries,
            pids: group.pids.clone(),
            one_sample_in: 1,
            sampler,
            period_ns: PERIOD_NS,
            times: Times::new(window),
            total: Counts::default(),
            cpu: CpuTime::new(&group.pids, window),
            began: Instant::now(),
        }))
    }

    /// Takes the samples that wait.
    pub fn read(&mut self) {
        let (libraries, mut new) = (&self.libraries, Counts::default());
        let lost_count =
            self.sampler.read(|Sample { is_kernel, frames }| new.add(place_of(libraries, is_kernel, frames)));
        new.add_lost(lost_count);
        self.times.at(self.began.elapsed()).add_all(&new);
        // Each sample stands for so many of the usual ones.
        (0..self.period_ns / PERIOD_NS).for_each(|_| self.total.add_all(&new));
    }

    /// All samples since it is watched, and the CPU time of its processes, nanoseconds.
    pub fn since_begin(&self) -> (Counts, u64) {
        (self.total, self.cpu.used_ns)
    }

    /// Follows its processes: workers and threads come and go, others take its place, and each may execute another
    /// program.
    ///
    /// # Errors
    /// The kernel does not let them be sampled any more, or another program has no names.
    pub fn follow(&mut self, group: &Group) -> Result<()> {
        self.read();
        let period_ns = PERIOD_NS * u64::from(self.one_sample_in);
        let is_other = self.sampler.takes_new_code() || group.root != self.root;
        if is_other {
            self.name = name_of(group.root);
        }
        let found = is_other.then(|| libraries::of_processes(&group.pids).ok()).flatten();
        if let Some(found) = found.filter(|found| !found.is_empty() && *found != self.libraries) {
            self.libraries = found;
            self.sampler = sampler(group, &mut self.libraries)?;
        }
        self.sampler.follow(&group.pids, period_ns).or_fault(Fault::Environment)?;
        if std::mem::replace(&mut self.period_ns, period_ns) != period_ns {
            // Samples of two periods are not worth the same.
            (self.times, self.began) = (Times::new(self.cpu.window), Instant::now());
        }
        (self.pids, self.addresses, self.root) = (group.pids.clone(), group.addresses.clone(), group.root);
        self.cpu.read(&self.pids);
        Ok(())
    }

    /// What was seen so far.
    pub fn seen(&mut self) -> Seen {
        self.read();
        self.cpu.read(&self.pids);
        let cpus: BTreeSet<usize> =
            self.pids.iter().filter_map(|pid| affinity::of_process(Some(*pid))).flatten().collect();
        let (cpu_ns, elapsed) = self.cpu.used();
        Seen {
            shares: self.times.shares(),
            cpu_ns,
            elapsed,
            cpus_count: cpus.len(),
            processes_count: self.pids.len(),
            sees_kernel: self.sampler.sees_kernel(),
            period_ns: self.period_ns,
        }
    }
}

/// What was seen of a server.
pub struct Seen {
    pub shares: Shares,
    /// CPU time of its processes meanwhile, as the kernel's clocks of them say.
    pub cpu_ns: u64,
    /// The time in which that was.
    pub elapsed: Duration,
    /// CPUs that it may run on.
    pub cpus_count: usize,
    pub processes_count: usize,
    /// Time in the kernel is sampled too.
    pub sees_kernel: bool,
    /// CPU time between two samples of a thread, nanoseconds.
    pub period_ns: u64,
}

/// Samples a server from now on, of whose libraries those without names are left out where it has others.
fn sampler(group: &Group, libraries: &mut Vec<Found>) -> Result<Sampler> {
    let mut sampler = Sampler::of(&group.pids, settings(libraries)).or_fault(Fault::Environment)?;
    let has_names =
        |found: &Found| found.program.is_none() || sampler.has_function(|function| is_of(found.library, function));
    if libraries.iter().any(has_names) {
        libraries.retain(has_names);
    }
    for found in libraries.iter() {
        ensure_fault!(
            Environment,
            has_names(found),
            "{} (process {}) has {} as a part of it but no symbol table, so that its samples have no names; run a \
             build of it that is not stripped, or put its debug symbols below /usr/lib/debug/.build-id",
            name_of(group.root),
            group.root,
            found.version
        );
    }
    sampler.enable().or_fault(Fault::Server)?;
    Ok(sampler)
}

/// What is sampled of a server with these libraries. A program that a library is part of may have its assembler.
fn settings(libraries: &[Found]) -> Settings {
    let owned = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect::<Vec<_>>();
    let of = |found: &Found, files: &[&[&str]]| {
        files.iter().flat_map(|files| owned(files)).chain(found.program.clone()).collect::<Vec<String>>()
    };
    let without_tables = |found: &Found| of(found, &[found.library.assembler]);
    let callers = |found: &Found| of(found, &[found.library.files, found.library.beneath_files]);
    Settings {
        period_ns: PERIOD_NS,
        stack_bytes: STACK_BYTES,
        ring_bytes: RING_BYTES,
        without_tables: libraries.iter().flat_map(without_tables).collect(),
        callers: libraries.iter().flat_map(callers).collect(),
    }
}

/// CPU time of processes that come and go. What one uses before its first and after its last reading is not in it.
struct CpuTime {
    last_ns: HashMap<u32, u64>,
    used_ns: u64,
    /// What was used until when: the first and the last reading, and those between as long as a window moves.
    readings: VecDeque<(Instant, u64)>,
    window: Option<Duration>,
}

impl CpuTime {
    fn new(pids: &[u32], window: Option<Duration>) -> CpuTime {
        let mut new = CpuTime { last_ns: HashMap::new(), used_ns: 0, readings: VecDeque::new(), window };
        new.read(pids);
        new
    }

    fn read(&mut self, pids: &[u32]) {
        let now: HashMap<u32, u64> = pids.iter().filter_map(|pid| Some((*pid, process_cpu_ns(*pid)?))).collect();
        let used = |(pid, now): (&u32, &u64)| now.saturating_sub(*self.last_ns.get(pid).unwrap_or(now));
        self.used_ns += now.iter().map(used).sum::<u64>();
        self.last_ns = now;
        self.readings.push_back((Instant::now(), self.used_ns));
        let is_old = |(at, _): &(Instant, u64)| self.window.is_some_and(|window| at.elapsed() > window);
        while self.readings.len() > 2 && (self.window.is_none() || self.readings.get(1).is_some_and(is_old)) {
            // The first of all stays where there is no window.
            self.readings.remove(usize::from(self.window.is_none()));
        }
    }

    /// CPU time, nanoseconds, and the time in which it was used.
    fn used(&self) -> (u64, Duration) {
        let ends = self.readings.front().zip(self.readings.back());
        ends.map_or((0, Duration::ZERO), |((began, before), (ended, after))| (after - before, *ended - *began))
    }
}
