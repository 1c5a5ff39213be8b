//! Who else used the machine while it measured: what makes a server's CPU busy that is not the server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tlsdyno_base::process_tree::{self, ProcessStat};

/// Minimum CPU use of another program, per cent of a CPU, that is mentioned.
const TOLD_PERCENT: f64 = 5.0;
/// Clock ticks of /proc in a second (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU use by other programs on the server's CPUs while it was measured.
#[derive(Debug, Default)]
pub struct Neighbours {
    /// Ticks of all other processes at the start of the block.
    before: BTreeMap<(u32, u64), u64>,
    /// Processes that descend from this one. They are not read again: servers with a process for each connection have
    /// thousands, and reading those twice per block took longer than short blocks.
    own: BTreeSet<u32>,
    began: Option<Instant>,
    /// Ticks within blocks of processes that were on a CPU of the server at the end of a block.
    used: BTreeMap<(u32, u64), u64>,
    measured: Duration,
}

impl Neighbours {
    /// Reads the ticks of all others.
    pub fn block_begins(&mut self) {
        self.before = self.others().iter().map(|process| (identity(process), process.ticks)).collect();
        self.began = Some(Instant::now());
    }

    /// `cpus`: of the server. Processes on other CPUs took nothing from it.
    pub fn block_ends(&mut self, cpus: &[usize]) {
        let Some(began) = self.began.take() else { return };
        self.measured += began.elapsed();
        for process in self.others().into_iter().filter(|process| cpus.contains(&process.cpu)) {
            let id = identity(&process);
            let before = self.before.get(&id).copied().unwrap_or(0);
            *self.used.entry(id).or_default() += process.ticks.saturating_sub(before);
        }
    }

    /// Processes that are neither this one nor descend from it.
    fn others(&mut self) -> Vec<ProcessStat> {
        let pids = process_tree::numbers_in("/proc");
        let there: BTreeSet<u32> = pids.iter().copied().collect();
        self.own.retain(|pid| there.contains(pid));
        self.own.insert(std::process::id());
        let unknown = pids.into_iter().filter(|pid| !self.own.contains(pid));
        let mut others: Vec<ProcessStat> = unknown.filter_map(process_tree::stat).collect();
        // A child may come before its parent.
        loop {
            let before = others.len();
            others.retain(|process| {
                let is_own = self.own.contains(&process.parent);
                if is_own {
                    self.own.insert(process.pid);
                }
                !is_own
            });
            if others.len() == before {
                return others;
            }
        }
    }

    /// Name and id of the process with most time on the server's CPUs in all blocks, and per cent of one CPU; `None`:
    /// no process used much.
    pub fn busiest(&self) -> Option<(String, f64)> {
        let ((pid, _), ticks) = self.used.iter().max_by_key(|(_, ticks)| **ticks)?;
        let percent = percent_of(*ticks, self.measured);
        (percent >= TOLD_PERCENT).then(|| (format!("\"{}\" (process {pid})", title_of(*pid)), percent))
    }
}

fn percent_of(ticks: u64, elapsed: Duration) -> f64 {
    100.0 * ticks as f64 / TICKS_PER_SECOND / elapsed.as_secs_f64().max(1e-3)
}

fn identity(process: &ProcessStat) -> (u32, u64) {
    (process.pid, process.started_ticks)
}

/// A process's program without its directory, and its arguments before the first option, for options may be secrets;
/// its name where it has none.
fn title_of(pid: u32) -> String {
    const LETTERS_MAX: usize = 40;
    let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let [line, name] =
        ["cmdline", "comm"].map(|file| String::from_utf8_lossy(&read(file)).replace('\0', " ").trim().to_owned());
    let (program, arguments) = line.split_once(' ').unwrap_or((&line, ""));
    // A process may call itself what it likes, as `nginx: worker process` does.
    let program = if program.starts_with('/') { program.rsplit('/').next().unwrap_or(program) } else { program };
    let title = [program].into_iter().chain(arguments.split(' ').take_while(|word| !word.starts_with('-')));
    let title = if program.is_empty() { name } else { title.collect::<Vec<_>>().join(" ") };
    let title = if title.trim().is_empty() { "a process that has ended".to_owned() } else { title };
    title.trim().chars().take(LETTERS_MAX).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn shares_of_a_cpu_come_from_ticks() {
        assert_eq!(percent_of(44, Duration::from_secs(1)), 44.0);
        assert!(title_of(std::process::id()).len() > 2);
    }

    #[test]
    fn options_of_strangers_are_not_told() {
        let mut child = busy("sh", &["-c", "while :; do :; done", "--password", "hunter2"], 1);
        assert_eq!(title_of(child.id()), "sh");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A shell that counts until it has used `ticks` of CPU time.
    fn busy(program: &str, arguments: &[&str], ticks: u64) -> std::process::Child {
        let child = Command::new(program).args(arguments).stdin(Stdio::null()).spawn().unwrap();
        while process_tree::stat(child.id()).is_some_and(|process| process.ticks < ticks) {
            std::thread::yield_now();
        }
        child
    }

    #[test]
    fn who_ran_on_another_cpu_is_not_the_cause() {
        let mut neighbours = Neighbours::default();
        let everywhere: Vec<usize> = (0..1024).collect();
        // A child of this process is none; one that its parent has left is.
        let script = "sh -c 'while :; do :; done' >/dev/null 2>&1 & echo $!";
        let output = Command::new("sh").args(["-c", script]).output().unwrap();
        let stranger: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        neighbours.block_begins();
        let mut child = busy("sh", &["-c", "while :; do :; done"], 10);
        while process_tree::stat(stranger).is_some_and(|process| process.ticks < 10) {
            std::thread::yield_now();
        }
        let cpu = process_tree::stat(stranger).unwrap().cpu;
        let mut elsewhere =
            Neighbours { before: neighbours.before.clone(), began: neighbours.began, ..Neighbours::default() };
        neighbours.block_ends(&everywhere);
        elsewhere.block_ends(&[1024]);
        let pid = rustix::process::Pid::from_raw(stranger as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let had = |id: u32| neighbours.used.iter().find(|((pid, _), _)| *pid == id).map(|(_, ticks)| *ticks);
        assert!(had(stranger).is_some_and(|ticks| ticks > 0), "on CPU {cpu}");
        assert_eq!(had(child.id()), None, "our own children are no neighbours");
        assert_eq!(elsewhere.busiest(), None);
    }
}
