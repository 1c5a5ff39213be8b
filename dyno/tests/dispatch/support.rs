//! A dispatcher as people run it, and backends that do what a test wants.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Long enough for a loaded machine; nothing waits this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn tlsdyno() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tlsdyno"))
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

    /// What `dispatch status --json` says.
    pub fn status(&self, control: &str) -> serde_json::Value {
        let output = tlsdyno().args(["dispatch", "status", "--json", "--control", control]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
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

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end: the exit code and what it said.
    pub fn wait(mut self) -> (Option<i32>, String) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), self.said.take().unwrap().join().unwrap());
            }
            assert!(began.elapsed() < PATIENCE, "the dispatcher did not end");
            thread::sleep(Duration::from_millis(5));
        }
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

/// Waits until something holds.
pub fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(2));
    }
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
