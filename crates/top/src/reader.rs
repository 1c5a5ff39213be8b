//! The process that reads strangers' packets, confined, and its parent's end of it.
//!
//! `top` opens a packet socket and hands it to a process of its own as standard input. That gives up all privileges,
//! reads, and answers what it counted as JSON on a stream, its standard output.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _, stdin, stdout};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::set_name;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::interrupt;
use tlsdyno_packets::{Capture, Captured, Settings};
use tlsdyno_sys::process_cpu_ns;

use crate::confine::confine;

/// The only argument of the process.
const WORD: &str = "--read-packets";
/// Packets gather for so long, 100 ms: their ring has room for much more.
const GATHERS: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer that is taken, bytes: one of some hundred listeners has less.
const ANSWER_BYTES: u64 = 64 << 20;

/// A process that reads what a packet socket gets. It ends when this is dropped.
pub struct Reader {
    process: Child,
    stream: BufReader<UnixStream>,
}

impl Reader {
    /// Starts it. `socket`: opened for these listeners with these settings. The thread that calls must live as long.
    ///
    /// # Errors
    /// There is no process more, or it cannot be confined.
    pub fn start(socket: OwnedFd, listeners: &[SocketAddr], settings: Settings) -> Result<Reader> {
        let (own, other) = UnixStream::pair()?;
        own.set_read_timeout(Some(PATIENCE))?;
        // This very program, also when its file was replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("tlsdyno-top").arg(WORD).stdin(socket).stdout(OwnedFd::from(other));
        let process = command.spawn().context("failed to start the process that reads packets")?;
        let mut reader = Reader { process, stream: BufReader::new(own) };
        let asked = serde_json::to_string(&(listeners, settings))?;
        writeln!(reader.stream.get_mut(), "{asked}").context("failed to reach the process that reads packets")?;
        Ok(reader)
    }

    /// Asks what it counted: it answers when all packets that came before have gathered, while others are asked.
    pub fn ask(&mut self) {
        // Where it has ended there is no answer, which is told then.
        let _ = self.stream.get_mut().write_all(b"\n");
    }

    /// What it counted until it was asked, since the time before.
    ///
    /// # Errors
    /// It has ended, or does not answer.
    pub fn answer(&mut self) -> Result<Captured> {
        let mut line = Vec::new();
        let read = (&mut self.stream).take(ANSWER_BYTES).read_until(b'\n', &mut line);
        read.context("the process that reads packets does not answer")?;
        ensure!(line.ends_with(b"\n"), "the process that reads packets has ended");
        serde_json::from_slice(&line).context("the process that reads packets answers nonsense")
    }

    /// It has not ended.
    pub fn is_there(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// CPU time that it has used, nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        process_cpu_ns(self.process.id()).unwrap_or_default()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Becomes that process if these words are for it.
///
/// # Errors
/// It is none, or cannot be confined.
pub fn become_reader(words: &[OsString]) -> Result<Option<Infallible>> {
    if words.first().is_none_or(|word| word != WORD) {
        return Ok(None);
    }
    set_name(c"tlsdyno-packets")?;
    // Ctrl-C is for the parent, which asks once more.
    interrupt::flag(Exit::Interrupted as i32)?;
    // A byte at a time: what is behind the line is the first question already.
    let mut stream = BufReader::with_capacity(1, UnixStream::from(stdout().as_fd().try_clone_to_owned()?));
    let mut asked = String::new();
    stream.read_line(&mut asked)?;
    let (listeners, settings): (Vec<SocketAddr>, Settings) = serde_json::from_str(&asked)?;
    let mut capture = Capture::of(stdin().as_fd().try_clone_to_owned()?, &listeners, settings)?;
    confine()?;
    let mut stream = stream.into_inner();
    loop {
        let mut ready = [PollFd::new(&stream, PollFlags::IN), PollFd::new(&capture, PollFlags::IN)];
        // A signal says nothing to it.
        let _ = poll(&mut ready, None);
        if ready[0].revents().is_empty() {
            // What comes meanwhile is read at once with it.
            let _ = poll(&mut ready[..1], Some(&GATHERS));
        }
        let is_asked = !ready[0].revents().is_empty();
        capture.read_waiting();
        if is_asked {
            if stream.read(&mut [0])? == 0 {
                std::process::exit(Exit::Done as i32);
            }
            // The kernel hands packets over after half of that time: those that came until now, too.
            let _ = poll(&mut [PollFd::new(&capture, PollFlags::IN)], Some(&GATHERS));
            capture.read_waiting();
            writeln!(stream, "{}", serde_json::to_string(&capture.take()?)?)?;
        }
    }
}
