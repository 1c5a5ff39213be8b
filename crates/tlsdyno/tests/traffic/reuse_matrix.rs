//! Reuse exactness: the share of resumed connections that `tlsdyno load` is asked for, beside the share in the server's
//! own log.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustls::version::{TLS12, TLS13};
use serde_json::Value;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::servers::session_log::SessionLog;
use tlsdyno::servers::{self, Instance, RunDirectory, ServerSpec, SessionCounts};

use crate::stacks::go_server::GoServer;
use crate::stacks::rustls_server;
pub use crate::stacks::sessions::Sessions;

const CONTENT: [u8; 1024] = [b'x'; 1024];
/// Connections of the load at a time.
const AT_ONCE: &str = "8";
/// How long a server may take to log what it has done.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whose word is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// `$ssl_session_reused`.
    Nginx,
    /// `SSL_SESSION_RESUMED`, event MPM.
    Apache,
    /// `ssl_fc_is_resumed`.
    Haproxy,
    /// `ConnectionState.DidResume`.
    Go,
    /// `handshake_kind`.
    Rustls,
}

impl Server {
    fn driver(self) -> Option<ServerName> {
        match self {
            Server::Nginx => Some(ServerName::Nginx),
            Server::Apache => Some(ServerName::ApacheEvent),
            Server::Haproxy => Some(ServerName::Haproxy),
            Server::Go | Server::Rustls => None,
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Server::Nginx => "nginx",
            Server::Apache => "Apache",
            Server::Haproxy => "HAProxy",
            Server::Go => "Go",
            Server::Rustls => "rustls",
        })
    }
}

impl Sessions {
    /// Why this server cannot resume so.
    pub fn impossible(self, server: Server) -> Option<&'static str> {
        let is = server == Server::Go && self == Sessions::Ids;
        is.then_some("impossible: crypto/tls keeps no sessions on a server, it resumes by ticket only")
    }
}

impl fmt::Display for Sessions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Sessions::Ids => "TLS 1.2 ID",
            Sessions::Tickets12 => "TLS 1.2 ticket",
            Sessions::Tickets13 => "TLS 1.3 PSK",
        })
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub asked_percent: u32,
    /// Connections with a request, by the server's log.
    pub connections: u64,
    /// Those of them that resumed, by the server's log.
    pub resumed: u64,
    /// Connections that offered a session, by the client's count.
    pub offered: u64,
    /// Resumed connections by the client's count.
    pub accepted: u64,
}

impl Cell {
    /// By the server's log.
    pub fn achieved_percent(&self) -> f64 {
        100.0 * self.resumed as f64 / self.connections as f64
    }

    /// Of what the server resumed, percentage points.
    pub fn deviation(&self) -> f64 {
        (self.achieved_percent() - f64::from(self.asked_percent)).abs()
    }

    /// Of what the client offered, percentage points.
    pub fn deviation_offered(&self) -> f64 {
        (100.0 * self.offered as f64 / self.connections as f64 - f64::from(self.asked_percent)).abs()
    }
}

/// A server with the log that it writes.
enum Running {
    Driver(Box<Instance>),
    Stack { address: SocketAddr, log: SessionLog, _process: Option<GoServer> },
}

impl Running {
    fn start(server: Server, sessions: Sessions, directory: &Path) -> Result<Running> {
        if let Some(kind) = server.driver() {
            return start_driver(kind, sessions, directory);
        }
        let log = SessionLog { path: directory.join("sessions.log"), mark: "", resumed: "r", first: "1" };
        let file = OpenOptions::new().append(true).create(true).open(&log.path)?;
        if server == Server::Go {
            let process = GoServer::start(&CONTENT, Some(&log.path));
            return Ok(Running::Stack { address: process.address, log, _process: Some(process) });
        }
        let version = if sessions == Sessions::Tickets13 { &TLS13 } else { &TLS12 };
        let config = rustls_server::config(sessions != Sessions::Ids, &[version]);
        let address = rustls_server::start(config, &CONTENT, Some(file));
        Ok(Running::Stack { address, log, _process: None })
    }

    fn address(&self) -> SocketAddr {
        match self {
            Running::Driver(instance) => instance.address(),
            Running::Stack { address, .. } => *address,
        }
    }

    fn counts(&self) -> Result<SessionCounts> {
        match self {
            Running::Driver(instance) => instance.session_counts(),
            Running::Stack { log, .. } => log.read(),
        }
    }

    /// What the log says once so many connections are in it.
    fn counts_of(&self, connections: u64) -> Result<SessionCounts> {
        let began = Instant::now();
        loop {
            let counts = self.counts();
            if counts.as_ref().is_ok_and(|counts| counts.connections >= connections) || began.elapsed() > PATIENCE {
                return counts;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn start_driver(kind: ServerName, sessions: Sessions, directory: &Path) -> Result<Running> {
    let docroot = directory.join("docroot");
    servers::run_directory::make_passable(&docroot)?;
    fs::write(docroot.join("1k.bin"), CONTENT)?;
    let certificate = servers::certificates::create(CertificateKind::P256, directory)?;
    let tls = sessions.tls(certificate);
    let spec = ServerSpec { tls: Some(tls), log_sessions: true, ..ServerSpec::new(kind, docroot) };
    Ok(Running::Driver(Box::new(servers::start(&spec, directory)?)))
}

/// Loads one server, which stays up, with each percentage in turn. `program`: the `tlsdyno` that loads.
///
/// # Errors
/// The server does not start; the load fails, or the server has not seen as many connections as it made.
pub fn measure(
    program: &Path,
    server: Server,
    sessions: Sessions,
    percents: &[u32],
    connections: u64,
) -> Result<Vec<Cell>> {
    let directory = RunDirectory::create()?;
    let running = Running::start(server, sessions, directory.path())?;
    let mut before = SessionCounts::default();
    let mut cells = Vec::new();
    for &percent in percents {
        let (offered, accepted) = load(program, running.address(), sessions, percent, connections)
            .with_context(|| format!("{server}, {sessions}, {percent} %"))?;
        let after = running.counts_of(before.connections + connections)?;
        let cell = Cell {
            asked_percent: percent,
            connections: after.connections - before.connections,
            resumed: after.resumed - before.resumed,
            offered,
            accepted,
        };
        ensure!(cell.connections == connections, "{server} logged {} of {connections} connections", cell.connections);
        before = after;
        cells.push(cell);
    }
    Ok(cells)
}

/// Answers the offered and the accepted resumptions by the client's count.
fn load(program: &Path, address: SocketAddr, sessions: Sessions, percent: u32, connections: u64) -> Result<(u64, u64)> {
    let mut command = Command::new(program);
    command.args(["load", &format!("https://{address}/1k.bin"), "--effort", "floor", "--json", "--strict"]);
    command.args(["--connections", AT_ONCE, "--total-connections", &connections.to_string()]);
    command.args(["--reuse", &format!("{percent}%"), "--tls", &sessions.version().to_string()]);
    if sessions == Sessions::Ids {
        command.arg("--no-tickets");
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let json: Value = serde_json::from_slice(&output.stdout).with_context(|| said.trim().to_owned())?;
    // What it missed is for the caller to see in the server's log.
    if !matches!(output.status.code(), Some(0 | 8)) || json["errors"] != serde_json::json!({}) {
        bail!("{} {}", said.trim(), json["errors"]);
    }
    let count = |name: &str| json["handshakes"][name].as_u64().with_context(|| format!("no count {name}"));
    Ok((count("resumed_offered")?, count("resumed_accepted")?))
}
