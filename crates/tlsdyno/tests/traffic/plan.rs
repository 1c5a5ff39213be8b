//! The simulator of `tlsdyno plan` against the real dispatcher before real servers, under the same plan of visits.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Arc;

use tlsdyno::exchange::{Exchange, TIME_LIMIT, get};
use tlsdyno::random::SplitMix64;
use tlsdyno_engine::dispatch::{Check, CheckKind, Policy};
use tlsdyno_plan::simulate::{Kept, Scenario, Storm, Visits};
use tlsdyno_tls::{Config, Effort, Session, Settings};

use crate::dispatch::crowd::SMALL;
use crate::dispatch::support::{Dispatcher, control_path, tlsdyno};
use crate::stacks::rustls_server;

const SERVERS: u32 = 3;
const USERS: u32 = 40;
const VISITS: u32 = 600;

/// Who comes, one after the other.
fn plan() -> Vec<(f64, u32)> {
    let mut random = SplitMix64::new(41);
    (0..VISITS).map(|number| (f64::from(number), random.below(USERS as usize) as u32)).collect()
}

/// What each of the visits comes to: sessions offered and taken, connections of each server.
#[derive(Debug)]
struct Outcome {
    offered: u64,
    kept: u64,
    by_machine: Vec<u64>,
}

fn real(policy: Policy) -> Outcome {
    let start = |_| {
        let config = rustls_server::config(true, &[&rustls::version::TLS13]);
        rustls_server::start(config, &SMALL.content, None)
    };
    let servers: Vec<_> = (0..SERVERS).map(start).collect();
    let control = control_path();
    let arguments = ["--policy", policy.name(), "--loops", "1", "--control", &control];
    let dispatcher = Dispatcher::new(&servers, &arguments);
    let settings = Settings { server_name: Some("localhost".to_owned()), effort: Effort::Lean, ..Settings::default() };
    let config = Arc::new(Config::new(settings).unwrap());
    let request = get(SMALL.path, "", "localhost");
    let mut sessions: Vec<Option<Session>> = vec![None; USERS as usize];
    let (mut offered, mut kept) = (0, 0);
    for (_, user) in plan() {
        let session = sessions[user as usize].take();
        offered += u64::from(session.is_some());
        let connected = Exchange::connect(dispatcher.address, TIME_LIMIT).unwrap();
        let answer = connected.asking(Some(&config), session, &request, b"").unwrap().whole().unwrap();
        kept += u64::from(answer.handshake.is_some_and(|handshake| handshake.resumed.is_some()));
        sessions[user as usize] = answer.sessions.into_iter().next_back();
        assert!(sessions[user as usize].is_some(), "each connection brings a ticket");
        // By open connections, a policy decides as if the last one went on.
        dispatcher.await_rest(&control);
    }
    Outcome { offered, kept, by_machine: dispatcher.spread(&control) }
}

fn scenario(policy: Policy) -> Scenario {
    Scenario {
        ends: SERVERS,
        behind: 0,
        cpus: 1,
        opening_s: [1e-3, 1e-3],
        request_s: 1e-4,
        behind_s: 0.0,
        slow_times: 1.0,
        policy,
        shares_keys: false,
        kept: Kept::Tickets,
        lifetime_s: 3600,
        rotation_s: 0,
        table: 1 << 14,
        remembers_s: 3600,
        check: Check::default(),
        users: USERS.into(),
        visits: Visits::Plan(plan()),
        requests: 1,
        gap_s: 1.0,
        length_s: f64::from(VISITS),
        storm: None,
        seed: 1,
    }
}

fn simulated(policy: Policy) -> Outcome {
    let seen = scenario(policy).run(1);
    Outcome { offered: seen.offered, kept: seen.kept, by_machine: seen.by_machine }
}

#[test]
fn the_simulator_keeps_the_sessions_that_the_dispatcher_keeps() {
    // All these users have one address, by which the other policies decide.
    for policy in [Policy::RoundRobin, Policy::LeastConnections, Policy::Session] {
        let (real, simulated) = (real(policy), simulated(policy));
        println!("{}: {real:?} {simulated:?}", policy.name());
        // Within 1 % of all visits: full handshakes and their share are what is left of them.
        let near = |one: u64, two: u64| one.abs_diff(two) * 100 <= u64::from(VISITS);
        assert_eq!(real.offered, simulated.offered);
        assert!(near(real.kept, simulated.kept), "{policy:?}: {real:?} {simulated:?}");
        let [mut one, mut two] = [real.by_machine, simulated.by_machine];
        one.sort_unstable();
        two.sort_unstable();
        assert!(one.iter().zip(&two).all(|(one, two)| near(*one, *two)), "{policy:?}: {one:?} {two:?}");
    }
}

/// When all servers of the storm stop; two seconds later they are there again.
const STORM_S: f64 = 299.5;
/// A visit that no server took is tried again a second later, so often at most.
const TRIES: u8 = 5;

/// A server that can be ended and started again at its address.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(docroot: &std::path::Path, address: &str) -> Server {
        let mut command = tlsdyno();
        command.arg("serve").arg("--docroot").arg(docroot).args(["--listen", address, "--print-address"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        Server { child, address: said["address"].as_str().unwrap().parse().unwrap() }
    }

    fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The same visits with the restart in their midst: for each that a server took, when, and whether it resumed; and how
/// many were given up.
fn real_storm(policy: Policy) -> (Vec<(f64, bool)>, u64) {
    let docroot = tempfile::tempdir().unwrap();
    std::fs::write(docroot.path().join("page"), "a page").unwrap();
    let mut servers: Vec<Server> = (0..SERVERS).map(|_| Server::start(docroot.path(), "127.0.0.1:0")).collect();
    let mut text = format!("listen = [\"127.0.0.1:0\"]\npolicy = \"{}\"\nloops = 1\n", policy.name());
    text += "[check]\nkind = \"none\"\nfall = 10000\n";
    servers.iter().for_each(|server| text += &format!("[[backend]]\naddress = \"{}\"\n", server.address));
    let (dispatcher, _file) = Dispatcher::from_file(&text);
    let settings = Settings { server_name: Some("localhost".to_owned()), effort: Effort::Lean, ..Settings::default() };
    let config = Arc::new(Config::new(settings).unwrap());
    let request = get("/page", "", "localhost");
    let mut sessions: Vec<Option<Session>> = vec![None; USERS as usize];
    // In the simulator's order: first who comes for the first time, then who tries again.
    let ms = |s: f64| (s * 1e3) as u64;
    let mut coming: BTreeSet<(u64, bool, u32, u8)> = plan().iter().map(|(s, user)| (ms(*s), false, *user, 0)).collect();
    let (mut taken, mut given_up, mut is_down, mut is_over) = (Vec::new(), 0, false, false);
    while let Some((at_ms, _, user, tries)) = coming.pop_first() {
        if at_ms >= ms(STORM_S) && !is_down {
            servers.iter_mut().for_each(Server::stop);
            is_down = true;
        }
        if at_ms >= ms(STORM_S + 2.0) && !is_over {
            let again = |server: &Server| Server::start(docroot.path(), &server.address.to_string());
            let started: Vec<Server> = servers.iter().map(again).collect();
            servers = started;
            is_over = true;
        }
        let session = sessions[user as usize].clone();
        let connected = Exchange::connect(dispatcher.address, TIME_LIMIT).unwrap();
        let answer = connected.asking(Some(&config), session, &request, b"").and_then(|asked| asked.whole());
        match answer {
            Ok(answer) => {
                taken.push((at_ms as f64 / 1e3, answer.handshake.is_some_and(|of| of.resumed.is_some())));
                sessions[user as usize] = answer.sessions.into_iter().next_back();
            }
            Err(_) if tries + 1 < TRIES => {
                coming.insert((at_ms + 1000, true, user, tries + 1));
            }
            Err(_) => given_up += 1,
        }
    }
    (taken, given_up)
}

#[test]
fn a_restart_costs_the_full_handshakes_that_were_simulated() {
    for policy in [Policy::RoundRobin, Policy::Session] {
        let mut scenario = Scenario { storm: Some((Storm::Restart, STORM_S)), ..scenario(policy) };
        (scenario.check.kind, scenario.check.fall) = (CheckKind::None, 10_000);
        let seen = scenario.run(1);
        let (taken, given_up) = real_storm(policy);
        assert_eq!(given_up, seen.given_up);
        // Before it, the time after it in parts of 20 s, and the rest.
        let parts = [0.0, 300.0, 320.0, 340.0, 360.0, 400.0, 600.0];
        for part in parts.windows(2) {
            let is_in = |at_s: f64| at_s >= part[0] && at_s < part[1];
            let real = taken.iter().filter(|(at_s, resumed)| is_in(*at_s) && !resumed).count() as u64;
            let at = |at: usize| (at as f64 + 0.5) * seen.interval_s;
            let intervals = seen.intervals.iter().enumerate().filter(|(number, _)| is_in(at(*number)));
            let simulated: u64 = intervals.map(|(_, of)| of.full).sum();
            println!("{}, {part:?} s: full handshakes {real}, simulated {simulated}", policy.name());
            // One at the edge of an interval may be in the next part.
            assert!(real.abs_diff(simulated) <= 2, "{policy:?} {part:?}: {real} {simulated}");
        }
    }
}
