//! Rounds through a network that is played packet by packet: the times are those of the protocols, and each fault has
//! the step in which it happens. Without root there are no namespaces; then virtual time alone shows it
//! (`crates/lab/src/probe_weeks/virtual_round.rs`).

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;
use tlsdyno::model::ServerName;
use tlsdyno::network::Namespace;
use tlsdyno::servers::ServerTls;
use tlsdyno_lab::probe_weeks::network::Network;
use tlsdyno_tls::Version;

use super::super::place::Place;
use super::super::stacks::go_server::GoServer;
use super::relay::Relay;
use super::{objects, server, server_with, stderr, url};

/// One way.
const DELAY_MS: f64 = 50.0;

fn network(text: &str) -> Network {
    let network: Network = toml::from_str(text).unwrap();
    network.check().unwrap();
    network
}

/// The relay, or nothing where it cannot be.
fn relay(text: &str) -> Option<Relay> {
    let relay = Relay::start(network(text));
    if relay.is_none() {
        assert!(!rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/net/tun").exists(), "root may");
        println!("no network namespaces or TUN devices here: not tried");
    }
    relay
}

fn probe(relay: &Relay, place: &Place, site: &[&str]) -> Value {
    let all = [&["probe", "--once", "--json", "--no-early-data"], site].concat();
    let output = relay.client().within(|| place.run(&all)).unwrap();
    objects(&output).pop().unwrap_or_else(|| panic!("{}", stderr(&output)))
}

/// The shortest T, S full, S resumed and H of some rounds: a busy machine only adds.
fn shortest(relay: &Relay, place: &Place, site: &[&str]) -> [f64; 4] {
    let rounds: Vec<Value> = (0..5).map(|_| probe(relay, place, site)).collect();
    let least = |of: &dyn Fn(&Value) -> Option<f64>| {
        let all = rounds.iter().map(|round| of(round).unwrap_or_else(|| panic!("{round}")));
        all.fold(f64::INFINITY, f64::min)
    };
    [
        least(&|round| round["tcp_ns"].as_f64()),
        least(&|round| round["full"]["handshake_ns"].as_f64()),
        least(&|round| round["resumed"]["handshake_ns"].as_f64()),
        least(&|round| round["full"]["whole_ns"].as_f64()),
    ]
}

/// T = 2d; a full handshake takes a round trip more than a resumed one in TLS 1.2, and as many in TLS 1.3.
#[test]
fn delays_of_packets_are_in_the_phases_that_they_belong_to() {
    let Some(relay) = relay("") else { return };
    for kind in [ServerName::Nginx, ServerName::Haproxy, ServerName::ApacheEvent] {
        let place = Place::new();
        let both = |tls: &mut ServerTls| tls.versions = Version::ALL.to_vec();
        let server = relay.server().within(|| server_with(&place, kind, both).0).unwrap();
        check_both(&relay, &place, &url(&server).replace("localhost", "127.0.0.1"));
    }
    let place = Place::new();
    let go = relay.server().within(|| GoServer::start(b"object", None)).unwrap();
    check_both(&relay, &place, &format!("https://{}/", go.address));
}

/// In both versions of TLS.
fn check_both(relay: &Relay, place: &Place, url: &str) {
    for (version, extra_trips) in [("1.2", 1.0), ("1.3", 0.0)] {
        check(relay, place, url, version, extra_trips);
    }
}

/// What a busy machine adds is another each time, and the shortest of many rounds has the least of it; what is wrong in
/// the times is wrong each time.
fn check(relay: &Relay, place: &Place, url: &str, version: &str, extra_trips: f64) {
    let site = [url, "--tls", version];
    let (mut near, mut far) = ([f64::INFINITY; 4], [f64::INFINITY; 4]);
    let mut found = [("", f64::NAN); 6];
    for _ in 0..8 {
        // Without delays: what the server, the client and the relay take themselves.
        relay.become_network(network(""));
        near = least(near, shortest(relay, place, &site));
        relay.become_network(network(&format!("all.delay = \"{DELAY_MS}ms\"")));
        far = least(far, shortest(relay, place, &site));
        found = apart(near, far, extra_trips);
        println!("TLS {version} at {url}: {found:.4?}");
        if found.iter().all(|(_, difference)| difference.abs() < 0.02) {
            return;
        }
    }
    panic!("TLS {version} at {url}: {found:.4?}");
}

fn least(one: [f64; 4], other: [f64; 4]) -> [f64; 4] {
    std::array::from_fn(|at| one[at].min(other[at]))
}

/// How far from what the protocols say, in parts of a round trip: T, S full, S resumed, H, and full less resumed.
fn apart(near: [f64; 4], far: [f64; 4], extra_trips: f64) -> [(&'static str, f64); 6] {
    let trip_ns = 2e6 * DELAY_MS;
    let [tcp, full, resumed, whole] = std::array::from_fn(|at| (far[at] - near[at]) / trip_ns);
    [
        ("T alone", far[0] / trip_ns - 1.0),
        ("T", tcp - 1.0),
        ("S full", full / (1.0 + extra_trips) - 1.0),
        ("S resumed", resumed - 1.0),
        ("H", whole - 1.0),
        ("full less resumed", full - resumed - extra_trips),
    ]
}

#[test]
fn faults_of_the_network_are_told_in_their_step() {
    let Some(relay) = relay("") else { return };
    let place = Place::new();
    let server = relay.server().within(|| server(&place, ServerName::Nginx, Version::Tls13).0).unwrap();
    let url = url(&server).replace("localhost", "127.0.0.1");
    for (text, steps, kinds) in [
        ("[tcp]\nreset_percent = 100", &["tcp", "full"][..], "refused"),
        ("[tcp]\nblackhole_percent = 100", &["tcp", "full"], "connect_timeout"),
        ("[handshake]\nreset_percent = 100", &["full"], "reset"),
        ("[handshake]\nblackhole_percent = 100", &["full"], "handshake_timeout"),
        ("[answer]\nblackhole_percent = 100", &["full"], "timeout"),
        ("[answer]\nreset_percent = 100", &["full"], "reset"),
    ] {
        relay.become_network(network(text));
        // What must be there before the fault has time on a busy machine.
        let timeout = if kinds.ends_with("_timeout") { "400ms" } else { "2s" };
        let round = probe(&relay, &place, &[&url, "--timeout", timeout]);
        let fault = &round["fault"];
        assert_eq!(fault["kind"], kinds, "{text}: {fault}");
        assert!(steps.contains(&fault["step"].as_str().unwrap()), "{text}: {fault}");
    }
    // Lost packets are sent again: slow, and no fault.
    relay.become_network(network("all = { delay = \"1ms\", loss_percent = 20 }"));
    let rounds =
        (0..8).map(|_| probe(&relay, &place, &[&url, "--timeout", "20s"])).filter(|round| round["fault"].is_null());
    assert!(rounds.count() >= 4);
}

/// Carries a connection to the server and back, to its end at either side.
fn carry(client: &TcpStream, server: &TcpStream) {
    let one_way = |mut from: &TcpStream, mut to: &TcpStream| {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    };
    thread::scope(|scope| {
        scope.spawn(|| one_way(client, server));
        one_way(server, client);
    });
}

/// A laptop that changes networks: its own address is another when the round makes its second connection, or its third
/// where the second was faster than the change.
#[test]
fn a_round_in_which_this_machines_address_changes_is_discarded_and_counted() {
    let Ok(namespace) = Namespace::with_loopback() else {
        assert!(!rustix::process::geteuid().is_root(), "root may");
        return println!("only root has network namespaces: not tried");
    };
    let place = Place::new();
    let server = namespace.within(|| server(&place, ServerName::Nginx, Version::Tls13).0).unwrap();
    let listener = namespace.within(|| TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let url = format!("https://{}/hello.txt", listener.local_addr().unwrap());
    listener.set_nonblocking(true).unwrap();
    let is_over = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            namespace.enter().unwrap();
            while !is_over.load(Ordering::Relaxed) {
                let Ok((client, _)) = listener.accept() else {
                    thread::yield_now();
                    continue;
                };
                namespace.run("ip route replace local 127.0.0.1 dev lo table local src 127.0.0.2").unwrap();
                carry(&client, &TcpStream::connect(server.address()).unwrap());
            }
        });
        let output =
            namespace.within(|| place.run(&["probe", &url, "--once", "--json", "--store", "kept.sqlite"])).unwrap();
        is_over.store(true, Ordering::Relaxed);
        output
    });
    let round = objects(&output).pop().unwrap_or_else(|| panic!("{}", stderr(&output)));
    assert_eq!(round["fault"]["kind"], "moved", "{round}");
    assert!(round["fault"]["text"].as_str().unwrap().contains("127.0.0.1 to 127.0.0.2"), "{round}");
    assert!(["lookup_ns", "tcp_ns", "full", "resumed"].iter().all(|time| round[time].is_null()), "{round}");
    let report = place.run(&["probe", "report", "--store", "kept.sqlite", "--json"]);
    let sites: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((&sites[0]["made_count"], &sites[0]["faults"]["moved"]), (&1.into(), &1.into()), "{sites}");
}
