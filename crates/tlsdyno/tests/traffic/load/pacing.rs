//! The open loop and the session limits against real servers.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Running, built_in, json, load, stderr, tlsdyno};
use crate::place::eventually;

/// The server stands still for a second. By the schedule, a request that fell due `t` before the end of the stall waits
/// for `t`: of six seconds of requests the one at the 99th percentile fell due 60 ms after the stall began. A busy
/// machine stops the server seconds after the load began.
#[test]
fn a_stalled_server_is_charged_by_the_schedule() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = built_in(directory.path());
    let url = format!("https://{}/x", server.address());
    let mut command = tlsdyno();
    command.args(["load", &url, "-k", "--rate", "200/s", "--connections", "4", "-n", "1200", "--json"]);
    let child = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    eventually("it has begun", || is_connected(server.address().port()));
    let signal = |signal| {
        for pid in server.pids() {
            kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
        }
    };
    signal(Signal::STOP);
    let stopped = Instant::now();
    thread::sleep(Duration::from_secs(1));
    signal(Signal::CONT);
    let stall_ns = stopped.elapsed().as_nanos() as f64;
    let measured = finish(child);
    server.stop().unwrap();

    assert_eq!((&measured["hits"], &measured["unserved"]), (&1200.into(), &0.into()), "{measured}");
    let p99 = measured["latency_ns"]["scheduled_response"]["p99"].as_f64().unwrap();
    let expected = stall_ns - 0.01 * 6e9;
    // Other work on the machine adds to it.
    assert!(p99 > 0.95 * expected, "{p99} ns instead of {expected} ns");
    let served = measured["latency_ns"]["whole_response"]["p99"].as_f64().unwrap();
    assert!(served < p99, "four requests of 1200 were under way in the stall: {served} ns");
}

/// Whether somebody is connected to the port.
fn is_connected(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    sockets.lines().skip(1).any(|line| {
        let [_, local, _, state, ..] = line.split_ascii_whitespace().collect::<Vec<_>>()[..] else { return false };
        state == "01" && local.ends_with(&format!(":{port:04X}"))
    })
}

fn finish(mut child: Running) -> Value {
    use std::io::Read;
    let mut text = String::new();
    child.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(0), "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_rate_that_nobody_can_serve_is_said_to_be_missed() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = built_in(directory.path());
    let url = format!("https://{}/x", server.address());
    let flags = ["-k", "--rate", "1000000/s", "--arrivals", "poisson", "--connections", "2", "--duration", "300ms"];
    let output = load(&[&[url.as_str(), "--json"], &flags[..]].concat());
    assert_eq!(output.status.code(), Some(8), "{}", stderr(&output));
    let measured = json(&output);
    let due = measured["hits"].as_u64().unwrap() + measured["unserved"].as_u64().unwrap();
    assert!((297_000..303_000).contains(&due), "{due}");
    let warnings = measured["warnings"].to_string();
    assert!(warnings.contains("could not be sent"), "{warnings}");
    server.stop().unwrap();
}

#[test]
fn sessions_are_as_long_as_asked_for_in_every_profile() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = built_in(directory.path());
    let url = format!("https://{}/x", server.address());
    for version in ["1.2", "1.3"] {
        let run = |flags: &[&str]| {
            let always = [&url, "-k", "--duration", "300ms", "--connections", "2", "--json", "--tls", version];
            let output = load(&[&always[..], flags].concat());
            assert_eq!(output.status.code(), Some(0), "{flags:?}: {}", stderr(&output));
            let measured = json(&output);
            let count = |name: &str| measured["handshakes"][name].as_u64().unwrap();
            let hits = measured["hits"].as_u64().unwrap();
            let lifetimes = measured["elapsed_ns"].as_u64().unwrap().div_ceil(100_000_000);
            let connections = measured["connections"].as_u64().unwrap();
            (hits, count("full"), count("resumed_accepted"), connections, lifetimes)
        };
        // Two users, each with a session that is not used up at the end.
        let (hits, full, resumed, connections, _) = run(&["--hits-per-handshake", "10"]);
        assert!((hits / 10..=hits / 10 + 2).contains(&full) && resumed == 0 && connections == full);
        let (hits, full, resumed, _, _) = run(&["--hits-per-handshake", "10", "--requests-per-connection", "2"]);
        assert!((hits / 10..=hits / 10 + 2).contains(&full), "{hits} {full}");
        assert!(resumed.abs_diff(full * 4) <= 8, "{resumed} {full}");
        let (hits, full, resumed, connections, _) = run(&["--profile", "intermittent", "--session-limit", "20"]);
        assert!((hits / 20..=hits / 20 + 2).contains(&full) && connections == hits && resumed == hits - full);
        let (hits, full, resumed, _, _) = run(&["--profile", "continuous"]);
        assert!((hits / 500..=hits / 500 + 2).contains(&full) && resumed == 0, "{hits} {full}");
        let (hits, full, resumed, _, _) = run(&["--profile", "one-time"]);
        assert!((hits / 25..=hits / 25 + 2).contains(&full) && resumed == 0, "{hits} {full}");
        let (_, full, resumed, _, lifetimes) =
            run(&["--reuse", "always", "--keep-alive", "--session-lifetime", "100ms"]);
        assert!((2..=2 * lifetimes).contains(&full) && resumed == 0, "two users, {lifetimes} lifetimes: {full}");
    }
    server.stop().unwrap();
}

/// Mraz et al. 2002, Figure 2: what a pause does depends on how long sessions last.
#[test]
fn sessions_expire_in_the_pauses_between_connections() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = built_in(directory.path());
    let url = format!("https://{}/x", server.address());
    let always = [&url, "-k", "-c", "4", "-d", "2s", "--profile", "intermittent", "--pause", "const:250ms", "--json"];
    for (lifetime, expires) in [("150ms", true), ("60s", false)] {
        let output = load(&[&always[..], &["--session-lifetime", lifetime]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let measured = json(&output);
        let (full, hits) = (measured["handshakes"]["full"].as_u64().unwrap(), measured["hits"].as_u64().unwrap());
        // Four users, each at 0, 0.25, … 1.75 s at best.
        assert!((4..=32).contains(&hits), "{measured:#}");
        assert_eq!(full, if expires { hits } else { 4 }, "{measured:#}");
    }
    server.stop().unwrap();
}

/// The transaction server of Mraz et al.: its own times give the rate that it can do without TLS.
#[test]
fn a_server_whose_pages_cost_something_serves_no_faster_than_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let docroot = directory.path().join("docroot");
    std::fs::create_dir(&docroot).unwrap();
    std::fs::write(docroot.join("x"), "x").unwrap();
    let stamps = directory.path().join("stamps.csv");
    let mut command = tlsdyno();
    command.arg("serve").arg("--docroot").arg(&docroot).args(["--listen-plain", "127.0.0.1:0", "--print-address"]);
    command.args(["--transaction", "wait:7ms"]).arg("--stamps").arg(&stamps).stdout(Stdio::piped());
    let mut server = Running(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address: Value = serde_json::from_str(&line).unwrap();
    let url = format!("http://{}/x", address["address"].as_str().unwrap());
    let measured = json(&load(&[&url, "-c", "8", "-d", "2s", "--json"]));
    let rate = measured["hits_per_second"].as_f64().unwrap();
    // How much less depends on what else the machine does.
    assert!(rate > 0.0 && rate <= 143.5, "{rate} of 142.9 a second");
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
    let text = std::fs::read_to_string(&stamps).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("worker,asked_ns,begun_ns,done_ns"));
    let pages: Vec<Vec<u64>> =
        lines.map(|line| line.split(',').map(|number| number.parse().unwrap()).collect()).collect();
    assert!(pages.len() as u64 >= measured["hits"].as_u64().unwrap());
    assert!(pages.iter().all(|page| page[3] - page[2] >= 7_000_000 && page[1] <= page[2]), "{text}");
    assert!(pages.windows(2).all(|pair| pair[0][3] <= pair[1][2]), "one after the other");
    // What a page took by the server's own times is what the client's rate says, and the fastest what was stated.
    let took_ns = || pages.iter().map(|page| page[3] - page[2]);
    let mean_s = took_ns().sum::<u64>() as f64 / 1e9 / pages.len() as f64;
    assert!(rate * mean_s <= 1.02, "{rate} a second of {mean_s} s each");
    assert!(took_ns().min().unwrap() < 14_000_000, "no page has the cost of two: {text}");
}
