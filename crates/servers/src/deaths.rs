//! Processes of a server that a signal has ended: the server's own log tells of workers, the supervisor of a server
//! that is gone, and the kernel of the library in which it happened.

mod kernel_log;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::LazyLock;

use regex_lite::Regex;
use signal_hook::low_level::signal_name;
use tlsdyno_base::{listening, process_tree};

use super::growing_log::GrowingLog;
use kernel_log::KernelLog;

/// A shell, and HAProxy's master, add it to the signal that ended a process.
const SIGNAL_STATUS: u32 = 128;

/// What is said of a server's deaths from its making on.
#[derive(Debug)]
pub struct Vigil {
    /// Those that listen: of the others one may end when its work is done.
    serving: Vec<u32>,
    /// It may have ended one of them because it had enough of them: another serves in its place.
    may_replace: bool,
    /// All processes by the numbers that the server's own log calls them: they may live in a PID namespace of their
    /// own.
    own_numbers: BTreeMap<u32, u32>,
    /// The kernel names the thread that failed, not its process.
    threads: BTreeSet<u32>,
    logs: Vec<GrowingLog>,
    kernel: Option<KernelLog>,
    deaths: Vec<String>,
}

impl Vigil {
    /// Begins now: what the logs held before is skipped. Where nobody is seen to listen, every process is taken to
    /// serve.
    pub(super) fn begin(processes: Vec<u32>, logs: Vec<PathBuf>, may_replace: bool) -> Vigil {
        let listeners = listening::listeners(&processes, None);
        let mut vigil = Vigil {
            own_numbers: processes.iter().filter_map(|&pid| Some((process_tree::own_number_of(pid)?, pid))).collect(),
            threads: processes.iter().flat_map(|pid| process_tree::numbers_in(&format!("/proc/{pid}/task"))).collect(),
            serving: if listeners.is_empty() { processes } else { listeners },
            may_replace,
            logs: logs.into_iter().map(GrowingLog::new).collect(),
            kernel: KernelLog::from_now_on(),
            deaths: Vec::new(),
        };
        vigil.new_lines();
        vigil
    }

    /// The first death that anybody has told of, and where it happened. `obituary`: of the server as a whole, where it
    /// is gone.
    pub(super) fn check(&mut self, obituary: Option<String>) -> Option<String> {
        let new = self.new_lines().iter().filter_map(|line| death_in(line, &self.own_numbers)).collect::<Vec<_>>();
        self.deaths.extend(new);
        let mut message = self.deaths.first().cloned().or(obituary)?;
        if self.deaths.len() > 1 {
            message.push_str(&format!(" (and {} more)", self.deaths.len() - 1));
        }
        let place = self.kernel.as_mut().and_then(|kernel| kernel.place_of_fault(&self.threads));
        Some(place.map_or(message.clone(), |place| format!("{message}, in {place}")))
    }

    /// A process that served in the beginning and is not there any more, unless the server may put another in its place
    /// and has. `now`: the processes of the server.
    pub(super) fn missing(&self, now: &[u32]) -> Option<u32> {
        let missing = self.serving.iter().copied().find(|&pid| process_tree::is_gone(pid))?;
        let is_replaced = self.may_replace && listening::listeners(now, None).len() >= self.serving.len();
        (!is_replaced).then_some(missing)
    }

    fn new_lines(&mut self) -> Vec<String> {
        // A log that is not there tells nothing.
        let texts = self.logs.iter_mut().filter_map(|log| log.new_lines().ok());
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }
}

/// `killed by signal 11, SIGSEGV`.
pub(super) fn killed_by(signal: i32) -> String {
    let name = signal_name(signal).map_or(String::new(), |name| format!(", {name}"));
    format!("killed by signal {signal}{name}")
}

/// What a line of a server's log says of a worker's death: nginx (`worker process 9 exited on signal 11`), Apache
/// (`child pid 9 exit signal Segmentation fault (11)`), HAProxy (`worker (9) exited with code 139`).
fn death_in(line: &str, own_numbers: &BTreeMap<u32, u32>) -> Option<String> {
    static DEATH: LazyLock<Regex> = LazyLock::new(|| {
        let text = r"(?:(\d+)\)? )?(?:exited on signal (\d+)|exit signal [^(]*\((\d+)|exited with code (\d+))";
        Regex::new(text).expect("a test uses it")
    });
    let captures = DEATH.captures(line)?;
    let number = |group| captures.get(group)?.as_str().parse::<u32>().ok();
    let of_status = || number(4)?.checked_sub(SIGNAL_STATUS).filter(|&signal| signal > 0);
    let signal = number(2).or_else(|| number(3)).or_else(of_status)?;
    let outside = |pid| own_numbers.get(&pid).copied().unwrap_or(pid);
    let process = number(1).map_or("a process".to_owned(), |pid| format!("process {}", outside(pid)));
    Some(format!("{process} was {}", killed_by(i32::try_from(signal).ok()?)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn servers_tell_of_their_workers_deaths() {
        let lines = [
            "2026/01/01 00:00:00 [alert] 7#7: worker process 4711 exited on signal 11 (core dumped)",
            "[Thu Jan 01 00:00:00.1 2026] [core:notice] [pid 7:tid 7] AH00052: child pid 4711 exit signal \
             Segmentation fault (11)",
            "[ALERT]    (7) : Current worker #1 (4711) exited with code 139 (Segmentation fault)",
        ];
        for line in lines {
            let death = death_in(line, &BTreeMap::new());
            assert_eq!(death.as_deref(), Some("process 4711 was killed by signal 11, SIGSEGV"), "{line}");
            let death = death_in(line, &BTreeMap::from([(4711, 94_711)]));
            assert_eq!(death.as_deref(), Some("process 94711 was killed by signal 11, SIGSEGV"), "{line}");
        }
        let nameless = "some child exited on signal 6";
        assert_eq!(death_in(nameless, &BTreeMap::new()).as_deref(), Some("a process was killed by signal 6, SIGABRT"));
        for line in ["worker process 4711 exited with code 0", "worker process 4711 exited with code 1", "signal 11"] {
            assert_eq!(death_in(line, &BTreeMap::new()), None, "{line}");
        }
    }

    #[test]
    fn only_what_is_new_counts() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        writeln!(log, "worker process 1 exited on signal 9").unwrap();
        let mut vigil =
            Vigil::begin(vec![std::process::id()], vec![log.path().to_owned(), "/nowhere/log".into()], false);
        assert_eq!(vigil.check(None), None);
        assert_eq!(vigil.missing(&[std::process::id()]), None);
        let gone = "the server has died (exit status 1)".to_owned();
        assert_eq!(vigil.check(Some(gone.clone())), Some(gone.clone()));
        writeln!(log, "worker process 2 exited on signal 11\nworker process 3 exited on signal 11").unwrap();
        let message = "process 2 was killed by signal 11, SIGSEGV (and 1 more)".to_owned();
        assert_eq!(vigil.check(Some(gone)), Some(message.clone()));
        assert_eq!(vigil.check(None), Some(message));
    }
}
