//! The programs of the benchmark: servers, dispatchers, load. Each ends with the benchmark.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::{self, Ending};
use crate::tlsdyno;

const DISPATCHER_CPU: &str = "0";
/// CPU of the built-in servers and of the load.
const SERVER_CPU: &str = "1";

pub struct Dispatcher {
    pub address: String,
    process: Ending,
    /// HAProxy's socket for questions.
    control: Option<PathBuf>,
}

pub struct Answered {
    /// CPU time of the dispatcher meanwhile, in microseconds.
    pub cpu_us: f64,
    /// Handshakes that offered a session.
    pub offered: u64,
    /// Handshakes in which it was taken.
    pub accepted: u64,
}

/// A program on the dispatcher's CPU.
fn pinned(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", DISPATCHER_CPU]).arg(program).args(arguments);
    command
}

/// A built-in server and its address. `ids`: TLS 1.2 with session IDs, else TLS 1.3 with tickets.
pub fn serve(tlsdyno: &Path, docroot: &Path, ids: bool) -> Result<(Ending, String)> {
    let arguments: &[&str] = if ids { &["--tls", "1.2", "--no-tickets"] } else { &["--tls", "1.3"] };
    tlsdyno::serve(tlsdyno, SERVER_CPU, docroot, arguments)
}

/// A dispatcher of tlsdyno with one loop.
pub fn own(tlsdyno: &Path, policy: &str, backends: &[&str]) -> Result<Dispatcher> {
    let mut arguments =
        vec!["dispatch", "--listen", "127.0.0.1:0", "--print-address", "--loops", "1", "--policy", policy];
    arguments.extend(["--check", "none"]);
    backends.iter().for_each(|backend| arguments.extend(["--backend", backend]));
    let (process, address) = process::first_line(&mut pinned(tlsdyno, &arguments))?;
    ensure!(!address.is_empty(), "the dispatcher did not start");
    Ok(Dispatcher { address, process, control: None })
}

/// What HAProxy needs to route by session ID, as `tlsdyno cluster` tells it.
const STICK: &str = include_str!("../../../crates/servers/templates/haproxy_stick.cfg");

/// HAProxy with one thread in TCP mode; it splices responses. `name`: of its files in `directory`.
pub fn haproxy(name: &str, sticks: bool, backends: &[&str], directory: &Path) -> Result<Dispatcher> {
    let program = process::find("haproxy").context("haproxy is missing; run `scripts/install-packages bench`")?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let servers: String =
        backends.iter().enumerate().map(|(number, backend)| format!("    server s{number} {backend}\n")).collect();
    let control = directory.join(format!("{name}.sock"));
    let config = format!(
        "global\n    nbthread 1\n    maxconn 4000\n    stats socket {}\ndefaults\n    mode tcp\n    timeout connect \
         3s\n    timeout client 60s\n    timeout server 60s\n    option splice-response\nlisten l\n    bind \
         {address}\n    balance roundrobin\n{}{servers}",
        control.display(),
        if sticks { STICK } else { "" }
    );
    let file = directory.join(format!("{name}.cfg"));
    fs::write(&file, config)?;
    let file = file.to_str().context("a directory with a readable name")?;
    let mut command = pinned(&program, &["-db", "-f", file]);
    let mut process = Ending(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("start haproxy")?);
    ensure!(process::comes_to_listen(&mut process.0, address)?, "haproxy does not listen on {address}");
    Ok(Dispatcher { address: address.to_string(), process, control: Some(control) })
}

impl Dispatcher {
    /// Loads the dispatcher; answers what that cost it.
    pub fn load(&self, tlsdyno: &Path, object: &str, arguments: &[&str]) -> Result<Answered> {
        let process = self.process.0.id();
        let before_ns = process::cpu_ns(process)?;
        let url = format!("https://{}/{object}", self.address);
        let mut command = Command::new("taskset");
        command.args(["-c", SERVER_CPU]).arg(tlsdyno).args(["load", &url, "--effort", "floor", "--json"]);
        let json = tlsdyno::json(command.args(arguments))?;
        let cpu_us = (process::cpu_ns(process)? - before_ns) as f64 / 1e3;
        let errors = json["errors"].as_object().context("the load counts errors")?;
        ensure!(errors.is_empty(), "the load through {} failed: {errors:?}", self.address);
        let count = |name: &str| json["handshakes"][name].as_u64().context("the load counts handshakes");
        Ok(Answered { cpu_us, offered: count("resumed_offered")?, accepted: count("resumed_accepted")? })
    }

    /// Sees to it that HAProxy did what it is compared for: it learned sessions into its table, and spliced.
    pub fn check_work(&self, sticks: bool) -> Result<()> {
        if self.control.is_none() {
            return Ok(());
        }
        let table = self.ask("show table l")?;
        ensure!(!sticks || number_after(&table, "used:")? > 0, "haproxy learned no session: {table}");
        let info = self.ask("show info")?;
        let pipes = number_after(&info, "PipesUsed: ")? + number_after(&info, "PipesFree: ")?;
        ensure!(pipes > 0, "haproxy spliced nothing; is it built with USE_LINUX_SPLICE?");
        Ok(())
    }

    fn ask(&self, question: &str) -> Result<String> {
        let path = self.control.as_deref().context("a socket to ask")?;
        let mut socket = UnixStream::connect(path)?;
        writeln!(socket, "{question}")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

fn number_after(text: &str, word: &str) -> Result<u64> {
    let rest = text.split(word).nth(1).with_context(|| format!("no `{word}` in `{text}`"))?;
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().with_context(|| format!("no number after `{word}`"))
}
