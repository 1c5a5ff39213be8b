//! A dispatcher as people run it, and backends that do what a test wants.

use crate::place::eventually;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tlsdyno_engine::dispatch::limits::SPARE_PIPES;
use tlsdyno_sys::process_cpu_ns;

use crate::place::require_satellite;

/// Long enough for a loaded machine; nothing waits this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn tlsdyno() -> Command {
    require_satellite("dispatch");
    Command::new(env!("CARGO_BIN_EXE_tlsdyno"))
}

/// What a dispatcher holds at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Holdings {
    pub user_memory_bytes: usize,
    pub descriptors: usize,
}

/// A running dispatcher; ended with the test.
pub struct Dispatcher {
    child: Child,
    pub address: SocketAddr,
    said: Option<JoinHandle<String>>,
}

impl Dispatcher {
    /// With backends, and `arguments` besides.
    pub fn new(backends: &[SocketAddr], arguments: &[&str]) -> Dispatcher {
        let mut command = tlsdyno();
        command.args(["dispatch", "--listen", "127.0.0.1:0", "--print-address"]).args(arguments);
        for backend in backends {
            command.args(["--backend", &backend.to_string()]);
        }
        Dispatcher::start(command)
    }

    pub fn start(mut command: Command) -> Dispatcher {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let said = thread::spawn(move || {
            let mut said = String::new();
            let _ = stderr.read_to_string(&mut said);
            said
        });
        let address = line.trim().parse().unwrap_or_else(|_| panic!("it did not start"));
        Dispatcher { child, address, said: Some(said) }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// With a configuration file, which lives as long as what is answered beside it.
    pub fn from_file(config: &str) -> (Dispatcher, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config).unwrap();
        let mut command = tlsdyno();
        command.args(["dispatch", "--print-address", "--config"]).arg(file.path());
        (Dispatcher::start(command), file)
    }

    /// What `dispatch status --json` says, asked for without a process of its own: tests ask often.
    pub fn status(&self, control: &str) -> serde_json::Value {
        let mut socket = UnixStream::connect(control).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(b"GET /status HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no status but `{answer}`"));
        serde_json::from_str(body).unwrap()
    }

    /// Whether it takes this backend for up.
    pub fn is_up(&self, control: &str, backend: usize) -> bool {
        self.status(control)["backends"][backend]["up"].as_bool().unwrap()
    }

    /// One of its counts.
    pub fn count(&self, control: &str, name: &str) -> u64 {
        let status = self.status(control);
        let mut counts = status["counts"].as_array().unwrap().iter();
        counts.find(|count| count[0] == name).unwrap_or_else(|| panic!("no count {name}"))[1].as_u64().unwrap()
    }

    /// Connections made to each backend so far.
    pub fn spread(&self, control: &str) -> Vec<u64> {
        let status = self.status(control);
        status["backends"].as_array().unwrap().iter().map(|backend| backend["connections"].as_u64().unwrap()).collect()
    }

    /// Anonymous memory in use.
    pub fn user_memory_bytes(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    }

    /// Open descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// CPU time so far, with that of threads that have ended.
    pub fn cpu_time(&self) -> Duration {
        Duration::from_nanos(process_cpu_ns(self.pid()).unwrap())
    }

    /// What it holds now.
    pub fn holdings(&self) -> Holdings {
        Holdings { user_memory_bytes: self.user_memory_bytes(), descriptors: self.descriptors() }
    }

    /// Waits until no connection is open.
    pub fn await_rest(&self, control: &str) {
        let is_open = |of: &serde_json::Value| of["open"] != 0;
        eventually("every connection ends", || {
            let status = self.status(control);
            !is_open(&status) && !status["backends"].as_array().unwrap().iter().any(is_open)
        });
    }

    /// Nothing is left of what went on since: no connection is stuck, and it holds no more than `before`.
    pub fn assert_at_rest(&self, control: &str, before: &Holdings) {
        self.await_rest(control);
        let pipes = 2 * SPARE_PIPES * thread::available_parallelism().unwrap().get();
        eventually("descriptors are given back", || self.descriptors() <= before.descriptors + pipes);
        let grown = self.user_memory_bytes().saturating_sub(before.user_memory_bytes);
        assert!(grown < 4 << 20, "{grown} bytes of user memory are kept");
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end: the exit code and what it said.
    pub fn wait(mut self) -> (Option<i32>, String) {
        let mut status = None;
        eventually("the dispatcher ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        (status.unwrap().code(), self.said.take().unwrap().join().unwrap())
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A backend: every connection is handled by `serve`, whose answers are collected.
pub fn backend<T: Send + 'static>(
    serve: impl Fn(TcpStream) -> T + Send + Sync + Clone + 'static,
) -> (SocketAddr, Receiver<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (results, received) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            let (results, serve) = (results.clone(), serve.clone());
            thread::spawn(move || drop(results.send(serve(stream))));
        }
    });
    (address, received)
}

/// Bytes that do not repeat soon, the same for the same seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Lets this process open as many descriptors as it may. They do not suffice for two tests that need thousands: such
/// tests wait for each other.
pub fn many_descriptors() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    assert!(hard >= 20_000, "this test needs 20,000 open files, the hard limit is {hard}; raise it with `ulimit -Hn`");
    setrlimit(Resource::Nofile, Rlimit { current: Some(hard), maximum: Some(hard) }).unwrap();
    turn
}

/// A path for a control socket of one test.
pub struct ControlPath {
    path: String,
    _directory: tempfile::TempDir,
}

impl std::ops::Deref for ControlPath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.path
    }
}

pub fn control_path() -> ControlPath {
    let directory = tempfile::tempdir().unwrap();
    ControlPath { path: directory.path().join("control").to_str().unwrap().to_owned(), _directory: directory }
}
