//! CPU time of a server: of its control group where there is one, else summed over its processes
//! (`docs/METHODOLOGY.md`, "Two metrics").

use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tlsdyno_base::process_tree::{self, ProcessStat};
use tlsdyno_sys::process_cpu_ns;

use super::cgroup::{Cgroup, GroupClock};

/// Nanoseconds per clock tick of `/proc/PID/stat`: USER_HZ is 100 on every Linux platform that Rust supports.
const TICK_NS: u64 = 10_000_000;

/// How a record calls the account of [`Clocks::Waited`].
pub const WAITED: &str = "waited";

/// Pause between two readings of accounts that still move.
const SETTLING_STEP: Duration = Duration::from_millis(2);
/// Maximum number of these readings.
const SETTLING_STEPS: u32 = 20;

/// What `read` says of a server that has come to rest: the last closes are still its work. One that does not rest is
/// read for 40 ms.
pub fn at_rest<T: PartialEq>(read: impl FnMut() -> Result<T>) -> Result<T> {
    still(SETTLING_STEPS, || thread::sleep(SETTLING_STEP), read, || false)
}

/// The clocks of a server's processes: exact where nobody of them runs. While one runs, the kernel brings its clock up
/// to date at ticks only, some milliseconds apart. What processes that begin or end use is not in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessClocks(Vec<u32>);

impl ProcessClocks {
    /// Time between two looks at clocks that may still go: more than a process that was woken up takes to begin.
    const LOOK: Duration = Duration::from_micros(30);
    /// Maximum number of readings: a process that never rests is read for about 40 ms.
    const READINGS_MAX: u32 = 400;

    pub fn new(mut pids: Vec<u32>) -> ProcessClocks {
        pids.sort_unstable();
        ProcessClocks(pids)
    }

    pub fn with_descendants(pids: impl IntoIterator<Item = u32>) -> ProcessClocks {
        let with_own = |pid| process_tree::descendants(pid).into_iter().map(|process| process.pid).chain([pid]);
        let mut all: Vec<u32> = pids.into_iter().flat_map(with_own).collect();
        all.sort_unstable();
        all.dedup();
        ProcessClocks(all)
    }

    /// Their numbers, ascending.
    pub fn pids(&self) -> &[u32] {
        &self.0
    }

    /// CPU time of all of them so far, nanoseconds; `None`: one has ended.
    pub fn read_ns(&self) -> Option<u64> {
        self.0.iter().map(|pid| process_cpu_ns(*pid)).sum()
    }

    /// The same once they stand still, so that the last closes are in it.
    pub fn at_rest_ns(&self) -> Option<u64> {
        let read = || self.read_ns().ok_or(());
        still(ProcessClocks::READINGS_MAX, ProcessClocks::pause, read, || self.is_ready_to_run()).ok()
    }

    fn pause() {
        thread::sleep(ProcessClocks::LOOK);
    }

    /// Whether they come to rest within this time: their clocks stand still for `quiet`, and none has work.
    pub fn rest_within(&self, limit: Duration, quiet: Duration) -> bool {
        let began = Instant::now();
        let mut last = self.read_ns();
        while began.elapsed() < limit {
            thread::sleep(quiet);
            let now = self.read_ns();
            if now == last && !self.is_ready_to_run() && self.read_ns() == last {
                return true;
            }
            last = now;
        }
        false
    }

    /// Whether a thread of theirs runs or waits for a CPU, so that its clock stands still all the same.
    fn is_ready_to_run(&self) -> bool {
        !process_tree::nobody_else_runs() && self.0.iter().any(|pid| process_tree::has_thread_to_run(*pid))
    }
}

/// How the CPU time of a server is read between two moments of rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// By the clocks of its processes, which are always the same.
    Processes(ProcessClocks),
    /// By the account of its control group: its processes come and go, as those of a server with one for each
    /// connection.
    Group(GroupClock),
    /// By the clocks of these processes and of all descendants that live, and by what each of them waited for.
    Waited(Vec<u32>),
}

/// Processes, their descendants that live, and CPU time of theirs and of what they waited for, nanoseconds, the latter
/// in whole [`TICK_NS`] (proc_pid_stat(5)); `None`: all of them have ended.
fn with_waited_ns(roots: &[u32]) -> Option<(Vec<u32>, u64)> {
    let own = roots.iter().filter_map(|pid| process_tree::stat(*pid));
    // One that has ended keeps its clock until its parent has it.
    let all: Vec<ProcessStat> = own.chain(roots.iter().copied().flat_map(process_tree::living_and_dead)).collect();
    let of_process = |of: &ProcessStat| process_cpu_ns(of.pid).unwrap_or(0) + of.children_ticks * TICK_NS;
    let is_living = all.iter().any(|of| of.state != 'Z');
    is_living.then(|| (all.iter().map(|of| of.pid).collect(), all.iter().map(of_process).sum()))
}

impl Clocks {
    /// Those of these processes, and of what begins and ends with their connections; `None`: a parent among them does
    /// not wait for its children.
    pub fn waited(pids: &[u32]) -> Option<Clocks> {
        let parents: Vec<(u32, u32)> =
            pids.iter().filter_map(|pid| Some((*pid, process_tree::stat(*pid)?.parent))).collect();
        // A process of a connection is not to be looked for once it has ended: its number goes to another one.
        let (below, roots): (Vec<_>, Vec<_>) = parents.into_iter().partition(|(_, parent)| pids.contains(parent));
        let ignores = below.iter().any(|(_, parent)| process_tree::ignores(*parent, libc::SIGCHLD));
        (!ignores).then(|| Clocks::Waited(roots.into_iter().map(|(pid, _)| pid).collect()))
    }

    /// What a record calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Clocks::Processes(_) => "processes",
            Clocks::Group(_) => "cgroup",
            Clocks::Waited(_) => WAITED,
        }
    }

    /// Those that live now.
    pub fn pids(&self) -> Vec<u32> {
        match self {
            Clocks::Processes(clocks) => clocks.pids().to_vec(),
            Clocks::Group(clock) => clock.pids(),
            Clocks::Waited(roots) => with_waited_ns(roots).map(|(pids, _)| pids).unwrap_or_default(),
        }
    }

    /// CPU time so far, nanoseconds; `None`: a process has ended, so that its clock is gone.
    pub fn read_ns(&self) -> Option<u64> {
        match self {
            Clocks::Processes(clocks) => clocks.read_ns(),
            Clocks::Group(clock) => clock.cpu_ns().ok(),
            Clocks::Waited(roots) => with_waited_ns(roots).map(|(_, ns)| ns),
        }
    }

    /// The same once they stand still, so that the last closes are in it.
    pub fn at_rest_ns(&self) -> Option<u64> {
        match self {
            Clocks::Processes(clocks) => clocks.at_rest_ns(),
            Clocks::Group(_) | Clocks::Waited(_) => {
                let runs = || self.pids().iter().any(|pid| process_tree::has_thread_to_run(*pid));
                still(ProcessClocks::READINGS_MAX, ProcessClocks::pause, || self.read_ns().ok_or(()), runs).ok()
            }
        }
    }
}

/// What `read` says once it stands still, and nobody runs, after at most so many looks. A process that ran until just
/// now stood still by its clock too: what it used is seen once it does not run, so that it is read once more then.
fn still<T: PartialEq, E>(
    readings: u32,
    mut pause: impl FnMut(),
    mut read: impl FnMut() -> Result<T, E>,
    mut runs: impl FnMut() -> bool,
) -> Result<T, E> {
    let mut last = read()?;
    for _ in 0..readings {
        pause();
        let now = read()?;
        if now == last && !runs() && read()? == last {
            break;
        }
        last = now;
    }
    Ok(last)
}

#[derive(Debug)]
pub enum CpuAccount {
    /// A control group around all its processes: exact.
    Cgroup(Cgroup),
    /// The clocks of its processes, with a memory for what has exited.
    Processes(ProcessAccount),
}

impl CpuAccount {
    /// The best account that this machine allows.
    pub fn best() -> CpuAccount {
        Cgroup::create().map_or_else(|_| CpuAccount::Processes(ProcessAccount::default()), CpuAccount::Cgroup)
    }

    pub fn method(&self) -> &'static str {
        match self {
            CpuAccount::Cgroup(_) => "cgroup",
            CpuAccount::Processes(_) => "processes",
        }
    }

    /// CPU time so far, in nanoseconds; `processes` looks for the server's living ones, where that is needed.
    pub fn read_ns(&mut self, processes: impl FnOnce() -> Vec<ProcessStat>) -> Result<u64> {
        match self {
            CpuAccount::Cgroup(group) => group.0.cpu_ns(),
            CpuAccount::Processes(account) => {
                let processes = processes();
                ensure!(!processes.is_empty(), "the server has no process left whose CPU time could be read");
                Ok(account.read_ns(&processes))
            }
        }
    }
}

/// Sum over the clocks of processes that come and go. A process's clock has all its threads, ended ones too, and is
/// gone with it: what was last seen of it is kept.
#[derive(Debug, Default)]
pub struct ProcessAccount {
    /// By process id and start time, so that a reused id is another process.
    usage: HashMap<(u32, u64), ProcessUsage>,
}

/// CPU time of a process at the last reading, nanoseconds.
#[derive(Debug, Default)]
struct ProcessUsage {
    own_ns: u64,
    /// CPU time of children that it has waited for; the kernel counts it in ticks.
    children_ns: u64,
}

impl ProcessAccount {
    /// CPU time so far, in nanoseconds. Never decreases.
    pub fn read_ns(&mut self, processes: &[ProcessStat]) -> u64 {
        let id = |process: &ProcessStat| (process.pid, process.started_ticks);
        for process in processes {
            let usage = self.usage.entry(id(process)).or_default();
            usage.own_ns = usage.own_ns.max(process_cpu_ns(process.pid).unwrap_or(0));
            usage.children_ns = usage.children_ns.max(process.children_ticks * TICK_NS);
        }
        let alive: HashSet<_> = processes.iter().map(id).collect();
        let (living, gone): (Vec<_>, Vec<_>) = self.usage.iter().partition(|(id, _)| alive.contains(id));
        let sum = |processes: &[(&(u32, u64), &ProcessUsage)], ns: fn(&ProcessUsage) -> u64| {
            processes.iter().map(|(_, usage)| ns(usage)).sum::<u64>()
        };
        // What exited is known twice, each way incompletely: seen before it went, or told by the parent that waited for
        // it.
        let exited_ns = sum(&gone, |usage| usage.own_ns).max(sum(&living, |usage| usage.children_ns));
        sum(&living, |usage| usage.own_ns) + exited_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burn(ms: u64) {
        let own = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let ns = |time: rustix::time::Timespec| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        let start = ns(own());
        while ns(own()) - start < ms * 1_000_000 {
            std::hint::black_box(0);
        }
    }

    #[test]
    fn clocks_count_what_a_process_uses_and_end_with_it() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let clocks = ProcessClocks::new(vec![child.id()]);
        let used = |ns: u64| clocks.read_ns().unwrap() > ns;
        while !used(20_000_000) {
            std::thread::yield_now();
        }
        let own = std::process::id();
        assert!(ProcessClocks::new(vec![own]).read_ns() > Some(0));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((clocks.read_ns(), clocks.at_rest_ns()), (None, None));
    }

    /// Children that come, work and go between two looks: what they tell of themselves is the known load.
    #[test]
    fn what_ended_between_two_looks_is_counted_in_ticks() {
        let child = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; read used rest < /proc/$$/schedstat; echo $used";
        let script = "while read line; do sh -c \"$0\"; done";
        let mut parent = std::process::Command::new("sh")
            .args(["-c", script, child])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let clocks = Clocks::waited(&[parent.id()]).unwrap();
        let before = clocks.at_rest_ns().unwrap();
        let (mut asked, answers) = (parent.stdin.take().unwrap(), parent.stdout.take().unwrap());
        let mut answers = std::io::BufRead::lines(std::io::BufReader::new(answers));
        let mut known = 0;
        for _ in 0..8 {
            std::io::Write::write_all(&mut asked, b"\n").unwrap();
            known += answers.next().unwrap().unwrap().parse::<u64>().unwrap();
        }
        let after = clocks.at_rest_ns().unwrap();
        // Beginning and ending a process is not in what it tells.
        let counted = after - before;
        assert!(counted + 2 * TICK_NS > known && counted < known + known / 4 + 8 * TICK_NS, "{counted} {known}");
        drop(asked);
        parent.wait().unwrap();
        assert_eq!((clocks.read_ns(), clocks.at_rest_ns(), clocks.pids()), (None, None, vec![]));
    }

    /// It ran without a tick between two looks, and went to sleep before its state was asked.
    #[test]
    fn what_a_process_used_until_it_went_to_sleep_is_seen() {
        let mut clock = [7, 7, 9, 9, 9, 9].into_iter();
        assert_eq!(still(400, || (), || clock.next().ok_or(()), || false), Ok(9));
        let (mut clock, mut states) = ([7; 9].into_iter(), [true, true, false].into_iter());
        assert_eq!(still(400, || (), || clock.next().ok_or(()), || states.next().unwrap()), Ok(7));
        assert_eq!(clock.len(), 4, "one look at the start, three, and one after the last state");
        assert_eq!(still(400, || (), || Err::<u64, ()>(()), || false), Err(()));
    }

    #[test]
    fn exited_threads_stay_in_the_account() {
        let own = std::process::id();
        let mut account = ProcessAccount::default();
        let mut read = || account.read_ns(&[process_tree::stat(own).unwrap()]);
        let before = read();
        std::thread::spawn(|| burn(60)).join().unwrap();
        let after = read();
        // Other tests may run in this process at the same time, so only the lower side can be checked.
        assert!(after >= before + 60_000_000, "{before} {after}");
        assert!(read() >= after);
    }

    #[test]
    fn waited_for_children_are_counted() {
        let own = std::process::id();
        let mut account = ProcessAccount::default();
        let before = account.read_ns(&[process_tree::stat(own).unwrap()]);
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; cat /proc/self/stat >/dev/null";
        assert!(std::process::Command::new("sh").args(["-c", script]).status().unwrap().success());
        let after = account.read_ns(&[process_tree::stat(own).unwrap()]);
        assert!(after > before + 20_000_000, "{before} {after}");
    }
}
