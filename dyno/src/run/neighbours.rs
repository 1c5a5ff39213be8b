//! Who else used the machine while it measured: what makes a server's CPU busy that is not the server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::process_tree::{self, ProcessStat};

/// Less of a CPU than this limits nobody.
const TOLD_PERCENT: f64 = 5.0;
/// Clock ticks of /proc in a second (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// The processes beside this one and its own, and what CPU time they had had.
#[derive(Debug)]
pub struct Neighbours {
    since: Instant,
    ticks: BTreeMap<(u32, u64), u64>,
}

impl Neighbours {
    /// As they are now.
    pub fn now() -> Neighbours {
        let all = process_tree::all().into_iter();
        Neighbours { since: Instant::now(), ticks: all.map(|process| (identity(&process), process.ticks)).collect() }
    }

    /// The one that has used most CPU time since, by its name and number, and per cent of one CPU; `None`: nobody has
    /// used much.
    pub fn busiest(&self) -> Option<(String, f64)> {
        let own: BTreeSet<u32> = process_tree::descendants(std::process::id()).iter().map(|one| one.pid).collect();
        let is_own = |process: &ProcessStat| process.pid == std::process::id() || own.contains(&process.pid);
        let used = |process: &ProcessStat| {
            process.ticks.saturating_sub(self.ticks.get(&identity(process)).copied().unwrap_or(0))
        };
        let others = process_tree::all().into_iter().filter(|process| !is_own(process));
        let most = others.max_by_key(used)?;
        let percent = percent_of(used(&most), self.since.elapsed());
        (percent >= TOLD_PERCENT).then(|| (format!("\"{}\" (process {})", title_of(most.pid), most.pid), percent))
    }
}

fn percent_of(ticks: u64, elapsed: Duration) -> f64 {
    100.0 * ticks as f64 / TICKS_PER_SECOND / elapsed.as_secs_f64().max(1e-3)
}

fn identity(process: &ProcessStat) -> (u32, u64) {
    (process.pid, process.started_ticks)
}

/// The program of a process without its directory, and the beginning of its arguments, or its name where it has none.
fn title_of(pid: u32) -> String {
    const LETTERS_MAX: usize = 40;
    let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let [line, name] =
        ["cmdline", "comm"].map(|file| String::from_utf8_lossy(&read(file)).replace('\0', " ").trim().to_owned());
    let (program, arguments) = line.split_once(' ').unwrap_or((&line, ""));
    // A process may call itself what it likes, as `nginx: worker process` does.
    let program = if program.starts_with('/') { program.rsplit('/').next().unwrap_or(program) } else { program };
    let title = format!("{program} {arguments}");
    let title = if program.is_empty() { name } else { title };
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
    fn our_own_children_are_no_neighbours() {
        let neighbours = Neighbours::now();
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        while process_tree::stat(pid).is_some_and(|process| process.ticks < 10) {
            std::thread::yield_now();
        }
        let busiest = neighbours.busiest();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(busiest.is_none_or(|(who, _)| !who.contains(&format!("process {pid})"))));
    }
}
