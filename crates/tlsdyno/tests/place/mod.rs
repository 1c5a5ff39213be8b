//! A private place for `tlsdyno` and for servers under test, and what every such test asks of them.

// Each test program uses a part of it.
#![allow(dead_code)]

pub mod postgres;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tlsdyno::model::ServerName;
use tlsdyno::process_tree;
use tlsdyno::satellites::SATELLITES;
use tlsdyno::servers::{self, CommandSpec, Instance, ServerSpec};

/// A private place with a docroot that a server's worker user can read, and a store of its own.
pub struct Place {
    /// Removed in the end.
    pub directory: TempDir,
}

impl Place {
    pub fn new() -> Place {
        servers::launch::set_own_executable(Path::new(env!("CARGO_BIN_EXE_tlsdyno")));
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let docroot = directory.path().join("docroot");
        fs::create_dir(&docroot).unwrap();
        fs::set_permissions(&docroot, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(docroot.join("hello.txt"), "hello, world\n").unwrap();
        Place { directory }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Here is also where reports and temporary files go.
    pub fn tlsdyno(&self, arguments: &[&str]) -> Command {
        require_satellite(arguments[0]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tlsdyno"));
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        command.env("TLSDYNO_STORE", self.path().join("store.sqlite")).env("TMPDIR", self.path());
        command
    }

    /// The same where it finds no control group that it may write: they are covered in a mount namespace of its own,
    /// unless there are none here.
    pub fn tlsdyno_without_control_groups(&self, arguments: &[&str]) -> Command {
        let command = self.tlsdyno(arguments);
        if servers::quota::require().is_err() {
            return command;
        }
        let root = rustix::process::geteuid().is_root();
        let namespaces: &[&str] = if root { &["--mount"] } else { &["--mount", "--user", "--map-root-user"] };
        let cover = "mount -t tmpfs -o ro none /sys/fs/cgroup && exec \"$@\"";
        let mut covered = Command::new("unshare");
        covered.args(namespaces).args(["sh", "-c", cover, "sh"]).arg(command.get_program()).args(command.get_args());
        covered.current_dir(self.path()).stdin(Stdio::null());
        covered.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        covered
    }

    /// The same command where all files beyond this place are read-only, for root.
    pub fn with_all_else_read_only(&self, command: &Command) -> Command {
        let hold = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro / && exec \"$@\"";
        let mut held = Command::new("unshare");
        held.args(["--mount", "sh", "-c", hold]).arg(self.path());
        held.arg(command.get_program()).args(command.get_args()).current_dir(self.path()).stdin(Stdio::null());
        held.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        held
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.tlsdyno(arguments).output().unwrap()
    }

    /// Command lines of processes that were told of this place: servers, supervisors, the load process.
    pub fn processes(&self) -> Vec<String> {
        let place = self.path().to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines.map(|line| String::from_utf8_lossy(&line).into_owned()).filter(|line| line.contains(place)).collect()
    }

    /// The same with the number and the start of each: who was replaced is another one.
    pub fn running(&self) -> Vec<String> {
        let place = self.path().to_str().unwrap();
        let told = |directory: fs::DirEntry| {
            let line = fs::read(directory.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            let stat = fs::read_to_string(directory.path().join("stat")).ok()?;
            // proc(5): the 22nd field, the 20th behind the name.
            let began = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.to_owned();
            line.contains(place).then(|| format!("{:?} since {began}: {line}", directory.file_name()))
        };
        let mut all: Vec<String> = fs::read_dir("/proc").unwrap().flatten().filter_map(told).collect();
        all.sort();
        all
    }

    pub fn docroot(&self) -> PathBuf {
        self.directory.path().join("docroot")
    }

    pub fn spec(&self, kind: ServerName) -> ServerSpec {
        ServerSpec::new(kind, self.docroot())
    }

    pub fn command(&self, command: &str, address: &str) -> ServerSpec {
        let spec =
            CommandSpec { command: command.into(), address: address.into(), plain_address: None, original: None };
        ServerSpec::of_command(spec, self.docroot())
    }

    pub fn start(&self, spec: &ServerSpec) -> anyhow::Result<Instance> {
        servers::start(spec, self.directory.path())
    }

    /// What is left in the place besides the docroot.
    pub fn leftovers(&self) -> Vec<String> {
        let names = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.starts_with("server-")).collect()
    }
}

/// Fails where a command is a satellite's that was not built: cargo builds none with a part of the tests.
pub fn require_satellite(command: &str) {
    let owner = SATELLITES.iter().find(|one| one.commands.iter().any(|(name, _)| *name == command));
    let program = owner.map(|one| Path::new(env!("CARGO_BIN_EXE_tlsdyno")).with_file_name(one.file));
    let missing = program.filter(|path| !path.exists());
    assert_eq!(missing, None, "run `cargo build --workspace --bins` first");
}

/// What a run printed that measured to its end: 0, or 8 where a busy machine left a few seconds too little for a
/// verdict. Requests fail on no machine, nor do checks, but for that of a quota, which stops nobody who does not get as
/// much.
pub fn measured(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!([Some(0), Some(8)].contains(&output.status.code()), "{said}{}", String::from_utf8_lossy(&output.stdout));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    for configuration in result["configurations"].as_array().into_iter().flatten() {
        let has_no_use_of_quota = configuration.to_string().contains("the quota of CPU time is in force");
        assert!(configuration["valid"] == true || has_no_use_of_quota, "{configuration}: {said}");
    }
    for block in result["blocks"].as_array().into_iter().flatten() {
        assert_eq!(block["errors"], serde_json::json!({}), "{block}: {said}");
    }
    result
}

/// What the first run prints that is complete, of `seconds`, four times or 16 times as many: a busy machine does too
/// little in a short time.
pub fn given_time<T>(seconds: u32, run: impl Fn(&str) -> T, is_complete: impl Fn(&T) -> bool) -> T {
    let mut printed = [1, 4, 16].into_iter().map(|times| run(&(times * seconds).to_string()));
    printed.find(is_complete).expect("so long a run is complete")
}

/// Whether an estimate of a few seconds may be: a busy machine may leave none at all.
pub fn is_positive_or_null(estimate: &Value) -> bool {
    estimate.is_null() || estimate.as_f64().is_some_and(|value| value > 0.0 && value.is_finite())
}

pub fn request(address: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    // Long for a machine that others keep busy.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub fn get(address: SocketAddr) -> String {
    request(address, "GET /hello.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
}

/// Asks for the file, and posts to it, which a static file is an answer to as well.
pub fn assert_serves_hello(address: SocketAddr, name: &str) {
    let answer = get(address);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello, world\n"), "{name}: {answer}");
    let post = "POST /hello.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
    let posted = request(address, post);
    assert!(posted.starts_with("HTTP/1.1 200") && posted.ends_with("hello, world\n"), "{name}: {posted}");
}

/// Checks each of these at the same time as the others: nearly all of it is waiting for servers.
pub fn at_once<Item: Send>(items: impl IntoIterator<Item = Item>, check: impl Fn(Item) + Sync) {
    std::thread::scope(|scope| {
        for item in items {
            let check = &check;
            scope.spawn(move || check(item));
        }
    });
}

/// How long a test waits for what other processes bring about: long for a machine that others keep busy. Nobody waits
/// for it where things are as they should.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < limit, "never within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn is_gone(pid: u32) -> bool {
    process_tree::stat(pid).is_none_or(|process| process.state == 'Z')
}

pub fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

pub fn handshake(server: &Instance, options: &[&str]) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect"])
        .arg(server.address().to_string())
        .args(options)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two requests with OpenSSL's client, the second offering the session of the first; answers whether the server took
/// it.
pub fn fetch_twice_with_one_session(server: &Instance, version: &str) -> bool {
    let session = server.directory.join("client-session");
    let _ = fs::remove_file(&session);
    assert!(!fetch(server, &[version, "-sess_out", session.to_str().unwrap()]));
    // A server that gives no session leaves no file to offer.
    match session.exists() {
        true => fetch(server, &[version, "-sess_in", session.to_str().unwrap()]),
        false => fetch(server, &[version]),
    }
}

/// A request with OpenSSL's client; answers whether it resumed a session.
pub fn fetch(server: &Instance, options: &[&str]) -> bool {
    let mut client = Command::new("openssl")
        .args(["s_client", "-nocommands", "-ign_eof"])
        .args(options)
        .arg("-connect")
        .arg(server.address().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let request = "GET /hello.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    client.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    let output = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("hello, world\n"), "{said}");
    said.contains("\nReused, ")
}
