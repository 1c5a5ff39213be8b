//! What a service or an agent has done, as a line of JSON on standard output now and then.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value};

/// Numbers that only grow, by name.
pub struct Counters<const N: usize> {
    names: [&'static str; N],
    values: [AtomicU64; N],
}

impl<const N: usize> Counters<N> {
    pub fn new(names: [&'static str; N]) -> Counters<N> {
        Counters { names, values: [const { AtomicU64::new(0) }; N] }
    }

    pub fn add(&self, place: usize, amount: u64) {
        self.values[place].fetch_add(amount, Ordering::Relaxed);
    }

    pub fn get(&self, place: usize) -> u64 {
        self.values[place].load(Ordering::Relaxed)
    }

    /// The counters, the CPU time of this process in nanoseconds, and what else is known.
    pub fn line(&self, others: &[(&str, u64)]) -> String {
        let own = self.names.iter().enumerate().map(|(place, name)| (*name, self.get(place)));
        let all = own.chain(others.iter().copied()).chain([("cpu_ns", cpu_ns())]);
        let fields: Map<String, Value> = all.map(|(name, value)| (name.to_owned(), value.into())).collect();
        format!("{}\n", Value::Object(fields))
    }
}

fn cpu_ns() -> u64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32).as_nanos() as u64
}

/// Lines on standard output or error, written by a thread of its own: whoever has stopped reading holds nobody up.
pub struct Lines {
    waiting: SyncSender<String>,
    ended: Receiver<()>,
}

impl Lines {
    /// How many wait to be read; what comes then is left out.
    const WAITING_MAX: usize = 64;
    /// How long the last ones may take at the end.
    const PATIENCE: Duration = Duration::from_secs(1);

    pub fn of_stdout() -> Lines {
        Lines::to(std::io::stdout())
    }

    /// On `out`, which the thread alone writes to.
    pub fn to(mut out: impl Write + Send + 'static) -> Lines {
        let (waiting, lines) = mpsc::sync_channel::<String>(Lines::WAITING_MAX);
        let (end, ended) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines {
                let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
            }
            let _ = end.send(());
        });
        Lines { waiting, ended }
    }

    pub fn print(&self, line: String) {
        let _ = self.waiting.try_send(line);
    }

    pub fn end(self, line: String) {
        self.print(line);
        drop(self.waiting);
        let _ = self.ended.recv_timeout(Lines::PATIENCE);
    }
}

#[derive(Debug)]
pub struct Pace {
    every: Option<Duration>,
    next: Instant,
}

impl Pace {
    /// A line in each so many seconds; 0: none.
    pub fn new(seconds: u32) -> Pace {
        let every = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        Pace { every, next: Instant::now() + every.unwrap_or_default() }
    }

    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = self.every.filter(|_| now >= self.next);
        self.next += due.unwrap_or_default();
        due.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_reader_who_has_stopped_holds_nobody_up() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let lines = Lines::to(writer);
        // More than any socket's buffer.
        (0..100_000).for_each(|number| lines.print(format!("{number:0100}\n")));
        drop(lines);
        let mut first = [0; 101];
        reader.read_exact(&mut first).unwrap();
        assert_eq!(first.to_vec(), format!("{:0100}\n", 0).into_bytes());
    }

    #[test]
    fn the_last_line_is_there_at_the_end() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let lines = Lines::to(writer);
        lines.print("first\n".to_owned());
        lines.end("last\n".to_owned());
        let mut all = String::new();
        reader.read_to_string(&mut all).unwrap();
        assert_eq!(all, "first\nlast\n");
    }
}
