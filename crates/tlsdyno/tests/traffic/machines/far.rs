//! Experiments whose load is made on another machine, which is a network namespace here: the server stays, and serves
//! its workers only.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::place::{eventually, given_time};

use super::{TLSDYNO, json, launch, text};

/// Runs `ip`.
fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", text(&output.stderr));
}

/// Two network namespaces, machines of their own addresses, one for the coordinator and the server, one for workers.
pub struct Network {
    pub near: String,
    pub far: String,
}

impl Network {
    /// Nothing where there are no namespaces for this user.
    pub fn new() -> Option<Network> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            println!("no network namespaces without root: not tried");
            return None;
        }
        let id = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let (near, far) = (format!("dyno-near-{id}"), format!("dyno-far-{id}"));
        let network = Network { near: near.clone(), far: far.clone() };
        for name in [&near, &far] {
            ip(&["netns", "add", name]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        ip(&["-n", &near, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", &far]);
        for (name, address) in [(&near, "10.99.0.1/24"), (&far, "10.99.0.2/24"), (&far, "10.99.0.3/24")] {
            ip(&["-n", name, "address", "add", address, "dev", "cable"]);
            ip(&["-n", name, "link", "set", "cable", "up"]);
        }
        Some(network)
    }

    pub fn cable(&self, state: &str) {
        ip(&["-n", &self.far, "link", "set", "cable", state]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

/// Runs a program in a namespace. `ip netns exec` would hide the control groups.
pub fn inside(namespace: &str, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command.args([&format!("--net=/run/netns/{namespace}"), program]).args(arguments).stdin(Stdio::null());
    command
}

/// An experiment on servers in the near one, whose load the far one makes. Workers start when there is a file `gate`.
pub fn begin(network: &Network, place: &Path, arguments: &[&str]) -> Child {
    let gate = place.join("gate");
    let far = format!("while ! [ -e {} ]; do sleep 0.01; done; exec ip netns exec {} ", gate.display(), network.far);
    let launch = launch("--may-load 10.99.0.1").replace("exec ", &far);
    let workers = ["--listen", "10.99.0.1", "--launch", &launch, "--json", "--no-report"];
    let mut command = inside(&network.near, TLSDYNO, &[arguments, &workers].concat());
    command.env("TLSDYNO_STORE", place.join("store.sqlite")).current_dir(place);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The ports on which servers listen for the far one.
pub fn ports(network: &Network) -> Vec<String> {
    let output = inside(&network.near, "ss", &["-Htln"]).output().unwrap();
    let said = text(&output.stdout);
    said.split_whitespace().filter_map(|word| word.strip_prefix("10.99.0.1:")).map(str::to_owned).collect()
}

/// What a stranger's connection comes to: hits, and kinds of errors.
fn knock(network: &Network, source: &str, port: &str) -> (u64, Value) {
    let url = format!("https://10.99.0.1:{port}/");
    let flags = ["-k", "--i-may-load-this", "10.99.0.1", "--source", source, "--total-connections", "1", "-c", "1"];
    let more = ["--close", "--expect-status", "any", "--json", "--timeout", "2s"];
    let output: Output =
        inside(&network.far, TLSDYNO, &[&["load", &url], &flags[..], &more].concat()).output().unwrap();
    let result = json(&output);
    (result["hits"].as_u64().unwrap(), result["errors"].clone())
}

/// On how many of the servers' ports a connection from there is closed before anything of TLS.
fn closed(network: &Network, source: &str) -> usize {
    let knocks = ports(network).into_iter().map(|port| knock(network, source, &port));
    // Reset, where the hello had come already.
    knocks.filter(|(_, errors)| errors["closed"] == 1 || errors["reset"] == 1).count()
}

/// Connections from there to whatever listens for the far one.
fn strangers(network: &Network, source: &str) -> Vec<TcpStream> {
    let enter = || {
        let namespace = File::open(format!("/run/netns/{}", network.far)).unwrap();
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        let connect = |port: String| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            let [from, to] = [format!("{source}:0"), format!("10.99.0.1:{port}")];
            socket.bind(&from.parse::<SocketAddr>().unwrap().into()).unwrap();
            socket.connect(&to.parse::<SocketAddr>().unwrap().into()).unwrap();
            TcpStream::from(socket)
        };
        ports(network).into_iter().map(connect).collect()
    };
    thread::scope(|scope| scope.spawn(enter).join().unwrap())
}

/// What it printed.
pub fn end(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    // A block that something disturbed is told, and no fault here.
    assert!([Some(0), Some(8)].contains(&output.status.code()), "{}\n{}", text(&output.stderr), text(&output.stdout));
    json(&output)
}

const ABLATE: [&str; 4] = ["ablate", "--workers", "2", "--allow-insecure-listen"];

#[test]
fn a_server_without_a_stage_serves_its_workers_and_nobody_else() {
    let Some(network) = Network::new() else { return };
    let place = tempfile::tempdir().unwrap();
    let flags = ["--server", "nginx", "--stages", "authentication", "--reuse", "0%", "--time", "15", "--slice", "0"];
    let child = begin(&network, place.path(), &[&ABLATE[..], &flags].concat());
    // Who only connects to the coordinator when workers join is none of them.
    eventually("servers and coordinator", || ports(&network).len() == 4);
    let held = strangers(&network, "10.99.0.3");
    File::create(place.path().join("gate")).unwrap();
    // As is, without authentication, plain HTTP; then the coordinator, which knows strangers by their silence.
    eventually("letting workers in", || ports(&network).len() == 4 && closed(&network, "10.99.0.2") == 1);
    assert_eq!(closed(&network, "10.99.0.3"), 2, "the server without authentication closes, too");
    drop(held);
    let result = end(child);
    let blocks = result["blocks"].as_array().unwrap();
    assert!(!blocks.is_empty() && blocks.iter().all(|block| block["valid"] == true), "{blocks:?}");
}

#[test]
fn slices_by_workers_keep_their_sessions() {
    let Some(network) = Network::new() else { return };
    let place = tempfile::tempdir().unwrap();
    let flags = ["--server", "nginx", "--stages", "authentication", "--reuse", "50%", "--seed", "1", "--time"];
    File::create(place.path().join("gate")).unwrap();
    let run = |time_s: &str| end(begin(&network, place.path(), &[&ABLATE[..], &flags, &[time_s]].concat()));
    let has_all = |result: &Value| {
        let all = result["configurations"].as_array().unwrap();
        all.iter().all(|configuration| configuration["hits"].as_u64() > Some(0))
    };
    let result = given_time(10, run, has_all);
    for (index, configuration) in result["configurations"].as_array().unwrap().iter().enumerate() {
        let all = result["blocks"].as_array().unwrap();
        let sliced = all.iter().filter(|block| block["configuration"] == index && block["slices"].is_array());
        let sum = |field: &str| sliced.clone().map(|block| block[field].as_u64().unwrap()).sum::<u64>();
        assert!(sum("hits") > 0, "{configuration} has no slices");
        if configuration["tls"] == true {
            let (resumed, connections) = (sum("resumed_accepted"), sum("connections"));
            let percent = 100.0 * resumed as f64 / connections as f64;
            assert!((45.0..=50.5).contains(&percent), "{configuration}: {resumed} of {connections} resumed");
        }
    }
}
