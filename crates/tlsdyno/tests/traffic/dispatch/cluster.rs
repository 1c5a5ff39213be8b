//! Several real servers of one kind, each with sessions of its own, and load through a dispatcher before them.

use std::fs;
use std::net::SocketAddr;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::servers::{self, Instance, ServerSpec};

use super::crowd::{LARGE, SMALL};
use super::support::{Dispatcher, tlsdyno};
use crate::place::Place;
pub use crate::stacks::sessions::Sessions;

impl Sessions {
    /// As tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Sessions::Ids => "TLS 1.2 ID",
            Sessions::Tickets12 => "TLS 1.2 ticket",
            Sessions::Tickets13 => "TLS 1.3 ticket",
        }
    }
}

pub struct Cluster {
    // In this order: servers end before their files go.
    pub servers: Vec<Instance>,
    _places: Vec<Place>,
}

impl Cluster {
    pub fn new(kind: ServerName, sessions: Sessions, count: usize) -> Cluster {
        let mut cluster = Cluster { servers: Vec::new(), _places: Vec::new() };
        for _ in 0..count {
            let place = Place::new();
            for object in [&SMALL, &LARGE] {
                fs::write(place.docroot().join(&object.path[1..]), &object.content).unwrap();
            }
            let certificate = servers::certificates::create(CertificateKind::P256, place.path()).unwrap();
            let mut spec = ServerSpec::new(kind, place.docroot());
            spec.tls = Some(sessions.tls(certificate));
            cluster.servers.push(servers::start(&spec, place.path()).unwrap());
            cluster._places.push(place);
        }
        cluster
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(Instance::address).collect()
    }

    /// Kills every process of one server at once.
    pub fn kill(&self, server: usize) {
        signal(&self.servers[server].pids(), Signal::KILL);
    }

    /// Stops every process of one server until what is answered is dropped.
    pub fn freeze(&self, server: usize) -> Frozen {
        let pids = self.servers[server].pids();
        signal(&pids, Signal::STOP);
        Frozen { pids }
    }
}

/// A server that does nothing: its kernel accepts connections, and nobody answers.
pub struct Frozen {
    pids: Vec<u32>,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal(&self.pids, Signal::CONT);
    }
}

/// Processes that have just ended are no fault.
fn signal(pids: &[u32], signal: Signal) {
    for pid in pids.iter().filter_map(|&pid| Pid::from_raw(pid as i32)) {
        let _ = kill_process(pid, signal);
    }
}

/// Handshakes as the client counted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshakes {
    pub connections: u64,
    pub offered: u64,
    pub accepted: u64,
}

/// `tlsdyno load` through the dispatcher; every request must succeed.
pub fn load(dispatcher: &Dispatcher, sessions: Sessions, arguments: &[&str]) -> Handshakes {
    load_at(dispatcher.address, sessions, arguments)
}

/// As [`load`], by way of `address`.
pub fn load_at(address: SocketAddr, sessions: Sessions, arguments: &[&str]) -> Handshakes {
    let mut command = tlsdyno();
    command.args(["load", &format!("https://{address}/1k.bin"), "--effort", "floor", "--json"]);
    if sessions == Sessions::Ids {
        command.arg("--no-tickets");
    }
    let output = command.args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(json["errors"], serde_json::json!({}), "{json:#}");
    let count = |name: &str| json["handshakes"][name].as_u64().unwrap();
    Handshakes {
        connections: json["connections"].as_u64().unwrap(),
        offered: count("resumed_offered"),
        accepted: count("resumed_accepted"),
    }
}
