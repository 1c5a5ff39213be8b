//! Processes as `/proc` shows them: who descends from whom, and what they are called.

use std::collections::{HashMap, HashSet};
use std::fs;

/// In the flags of a process that ends (`linux/sched.h`).
const PF_EXITING: u64 = 4;

/// One line of `/proc/PID/stat` (proc_pid_stat(5)), as far as it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Process id.
    pub pid: u32,
    /// Process id of the parent.
    pub parent: u32,
    /// State letter; `Z` is a zombie.
    pub state: char,
    /// It is ending: its memory is gone before its state says so.
    pub is_ending: bool,
    /// User and system time of all threads, exited ones included, in clock ticks.
    pub ticks: u64,
    /// User and system time of waited-for children, in clock ticks.
    pub children_ticks: u64,
    /// The CPU that it ran on last.
    pub cpu: usize,
    /// Start time in clock ticks since boot: together with the id it identifies a process for good.
    pub started_ticks: u64,
}

/// This process, by the numbers that `/proc` knows: in a PID namespace of its own, getpid(2) answers another one.
pub fn own() -> Option<ProcessStat> {
    parse_stat(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// The number that the process has for itself, in its own PID namespace; `None` when there is no such process (any
/// more).
pub fn own_number_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // From the outermost namespace inwards, proc_pid_status(5).
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Whether the process has a handler for the signal: without one it would miss the signal, or end.
pub fn catches(pid: u32, signal: i32) -> bool {
    has_signal(pid, "SigCgt:", signal)
}

/// Whether the process ignores the signal: of SIGCHLD, it does not wait for its children, so that nobody learns what
/// they used, wait(2).
pub fn ignores(pid: u32, signal: i32) -> bool {
    has_signal(pid, "SigIgn:", signal)
}

fn has_signal(pid: u32, set: &str, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    // A bit for each signal, the lowest for number 1, proc_pid_status(5).
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix(set)?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Reads `/proc/PID/stat`; `None` when there is no such process (any more).
pub fn stat(pid: u32) -> Option<ProcessStat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether there is no such process, or it has ended or is ending.
pub fn is_gone(pid: u32) -> bool {
    stat(pid).is_none_or(|process| process.is_ending || process.state == 'Z')
}

/// Whether the calling thread is the only one of the machine that runs or waits for a CPU, as /proc/loadavg says.
pub fn nobody_else_runs() -> bool {
    fs::read_to_string("/proc/loadavg")
        .is_ok_and(|text| text.split(' ').nth(3).is_some_and(|ran| ran.starts_with("1/")))
}

/// Whether a thread of this process runs or waits for a CPU.
pub fn has_thread_to_run(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    stats.filter_map(|text| parse_stat(&text)).any(|thread| thread.state == 'R')
}

/// The command name is in parentheses and may itself hold blanks and parentheses, so fields are counted from the last
/// `)`.
fn parse_stat(text: &str) -> Option<ProcessStat> {
    let pid = text.split(' ').next()?.parse().ok()?;
    let rest: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let number = |field: usize| rest.get(field - 3)?.parse::<u64>().ok();
    Some(ProcessStat {
        pid,
        parent: u32::try_from(number(4)?).ok()?,
        state: rest.first()?.chars().next()?,
        is_ending: number(9)? & PF_EXITING != 0,
        ticks: number(14)? + number(15)?,
        children_ticks: number(16)? + number(17)?,
        cpu: number(39)? as usize,
        started_ticks: number(22)?,
    })
}

/// The processes of `/proc`, or the threads of `/proc/PID/task`; none where the directory cannot be read.
pub fn numbers_in(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Every process there is. Those that end meanwhile are left out.
pub fn all() -> Vec<ProcessStat> {
    numbers_in("/proc").into_iter().filter_map(stat).collect()
}

/// How many looks at most, until two in a row agree.
const LOOKS_MAX: usize = 5;

/// All living descendants of `ancestor` (zombies excluded, `ancestor` itself too), parents before children.
///
/// `/proc` is no snapshot: a process that forks and ends meanwhile hides its child. So it is looked at until two looks
/// agree.
pub fn descendants(ancestor: u32) -> Vec<ProcessStat> {
    let pids = |processes: &[ProcessStat]| processes.iter().map(|process| process.pid).collect::<HashSet<u32>>();
    let mut found = look_for_descendants(ancestor);
    for _ in 1..LOOKS_MAX {
        let again = look_for_descendants(ancestor);
        let agree = pids(&again) == pids(&found);
        found = again;
        if agree {
            break;
        }
    }
    found
}

fn look_for_descendants(ancestor: u32) -> Vec<ProcessStat> {
    let mut found = living_and_dead(ancestor);
    found.retain(|process| process.state != 'Z');
    found
}

/// The descendants at a glance, with those that have ended and that nobody has waited for yet.
pub fn living_and_dead(ancestor: u32) -> Vec<ProcessStat> {
    // Beside the thousands of processes of servers that have one for each connection, all would take long to read.
    if fs::exists(format!("/proc/{ancestor}/task/{ancestor}/children")).unwrap_or(false) {
        with_descendants(ancestor, children_told)
    } else {
        let mut children: HashMap<u32, Vec<ProcessStat>> = HashMap::new();
        for process in all() {
            children.entry(process.parent).or_default().push(process);
        }
        with_descendants(ancestor, |parent| children.remove(&parent).unwrap_or_default())
    }
}

fn with_descendants(ancestor: u32, mut children: impl FnMut(u32) -> Vec<ProcessStat>) -> Vec<ProcessStat> {
    let mut found: Vec<ProcessStat> = Vec::new();
    let mut parents = vec![ancestor];
    while let Some(parent) = parents.pop() {
        let children_of = children(parent);
        parents.extend(children_of.iter().map(|process| process.pid));
        found.extend(children_of);
    }
    found
}

/// The children of a process, as each of its threads tells those that it made (proc_pid_task(5); the kernel may leave
/// this out).
fn children_told(parent: u32) -> Vec<ProcessStat> {
    let threads = numbers_in(&format!("/proc/{parent}/task"));
    let told =
        threads.iter().filter_map(|thread| fs::read_to_string(format!("/proc/{parent}/task/{thread}/children")).ok());
    let pids: Vec<u32> = told
        .flat_map(|text| text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    pids.into_iter().filter_map(stat).filter(|process| process.parent == parent).collect()
}

/// Those of `processes` that are no other's parent: the workers of the usual master-and-workers servers.
pub fn leaves(processes: &[ProcessStat]) -> Vec<u32> {
    let parents: HashSet<u32> = processes.iter().map(|process| process.parent).collect();
    processes.iter().map(|process| process.pid).filter(|pid| !parents.contains(pid)).collect()
}

/// The command line of a process, arguments separated by blanks; empty when it is gone.
pub fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments: Vec<_> = bytes.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    arguments.join(" ").trim_end().to_owned()
}

/// The variables that a process was started with; empty when it is gone, is somebody else's, or has written over them,
/// as nginx does for its title.
pub fn environment(pid: u32) -> Vec<(String, String)> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let texts = bytes.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    texts.filter_map(|text| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_with_a_handler_are_told_from_others() {
        let own = std::process::id();
        assert!(!catches(own, signal_hook::consts::SIGUSR1));
        let _handled = signal_hook::flag::register(signal_hook::consts::SIGUSR1, std::sync::Arc::default()).unwrap();
        assert!(catches(own, signal_hook::consts::SIGUSR1) && !catches(own, signal_hook::consts::SIGKILL));
    }

    #[test]
    fn stat_survives_a_hostile_command_name() {
        let line = "42 (a) R (b)) S 7 42 42 0 -1 4194560 1 2 3 4 11 22 33 44 20 0 1 0 987654 \
                    23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 3 40\n";
        let parsed = parse_stat(line).unwrap();
        assert_eq!((parsed.cpu, parsed.is_ending), (3, false));
        assert!(parse_stat(&line.replace("4194560", "4194564")).unwrap().is_ending);
        assert_eq!((parsed.pid, parsed.parent, parsed.state), (42, 7, 'S'));
        assert_eq!((parsed.ticks, parsed.children_ticks, parsed.started_ticks), (33, 77, 987_654));
        assert_eq!(parse_stat("42 (short) S 7"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn children_of_any_thread_are_told() {
        let child = || std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut others = std::thread::spawn(move || [child(), child()]).join().unwrap();
        let own = std::process::id();
        // Other tests' children end meanwhile, and the kernel may then pass over one in a look.
        let look = |pid| children_told(own).iter().any(|process| process.pid == pid);
        let is_told = fs::exists(format!("/proc/{own}/task/{own}/children")).unwrap();
        for child in &mut others {
            assert!(!is_told || (0..LOOKS_MAX).any(|_| look(child.id())), "{}", child.id());
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_child_is_found_among_the_descendants_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id();
        let found = descendants(own);
        assert!(found.iter().any(|process| process.pid == child.id() && process.parent == own));
        assert!(leaves(&found).contains(&child.id()));
        // The kernel lets the parent go on a moment before the arguments of the new program are in their place.
        while command_line(child.id()).is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(command_line(child.id()), "sleep 60");
        child.kill().unwrap();
        // Not waited for yet: a zombie does not count.
        while stat(child.id()).is_some_and(|process| process.state != 'Z') {
            std::thread::yield_now();
        }
        assert!(is_gone(child.id()) && !is_gone(own));
        assert!(!descendants(own).iter().any(|process| process.pid == child.id()));
        child.wait().unwrap();
    }
}
