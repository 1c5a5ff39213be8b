//! A capture beside a real nginx, in network namespaces of its own. Where this user may not have any, nothing is tried.

#[allow(dead_code)]
#[path = "../../../tls/tests/interop/harness.rs"]
mod harness;
mod network;
mod nginx;
#[allow(dead_code)]
#[path = "../../../tls/tests/interop/processes.rs"]
mod processes;
#[allow(dead_code)]
#[path = "../../../tls/tests/interop/rustls_server.rs"]
mod rustls_server;
mod visit;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use harness::{Caller, KeyKind, Server};
use network::Network;
use nginx::{HASHED, Nginx, PROXIED, STRICT, USUAL};
use rustls_server::{RustlsServer, rustls_config};
use tlsdyno_base::namespace::Namespace;
use tlsdyno_packets::{Capture, Counts, Settings};
use tlsdyno_tls::config::Lack;
use tlsdyno_tls::{Effort, Group, Settings as Client, Suite, Version};
use visit::{Header, visit};

/// How long packets may take on a busy machine before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);
const BROWSER: [Group; 3] = [Group::X25519MlKem768, Group::X25519, Group::P256];

const HYBRIDS: [Group; 2] = [Group::X25519MlKem768, Group::P256MlKem768];

/// A client with the groups of browsers; TLS 1.2 has no hybrids.
fn client(version: Version) -> Client {
    let groups = if version == Version::Tls13 { &BROWSER[..] } else { &BROWSER[1..] };
    Client { versions: vec![version], groups: groups.to_vec(), ..harness::settings() }
}

/// Everything that clients do in this test, and how many hellos they sent.
fn call(ip: &str) -> u64 {
    let at = |port: u16| -> SocketAddr { format!("{ip}:{port}").parse().unwrap() };
    let mut hellos = 0;
    for version in [Version::Tls12, Version::Tls13] {
        let config = harness::config(client(version));
        for (port, header) in [(USUAL, Header::None), (PROXIED, Header::Version1), (PROXIED, Header::Version2)] {
            let mut session = None;
            for _ in 0..5 {
                session = visit(at(port), header, &config, session).unwrap().pop();
                hellos += 1;
            }
            assert!(session.is_some());
        }
    }
    for (port, groups) in [(STRICT, &[Group::X25519, Group::P384][..]), (HASHED, &BROWSER)] {
        let config = harness::config(Client { groups: groups.to_vec(), ..client(Version::Tls13) });
        let session = visit(at(port), Header::None, &config, None).unwrap().pop();
        visit(at(port), Header::None, &config, session).unwrap();
        hellos += 2;
    }
    for version in [Version::Tls12, Version::Tls13] {
        let distrusting = Client { server_name: Some("other.example".to_owned()), ..client(version) };
        assert!(visit(at(USUAL), Header::None, &harness::config(distrusting), None).is_err());
        let lacking = Client { lack: Some(Lack::Suites), ..client(version) };
        assert!(visit(at(USUAL), Header::None, &harness::config(lacking), None).is_err());
        hellos += 2;
    }
    // A health check.
    TcpStream::connect(at(USUAL)).unwrap().shutdown(Shutdown::Both).unwrap();
    hellos
}

/// What was counted at all listeners, once as many hellos were, and connections without one.
fn counted(capture: &mut Capture, hellos: u64, without: u64) -> Counts {
    let begun = Instant::now();
    let mut sum = Counts::default();
    while sum.offers.hellos < hellos || sum.connections.without_hellos < without {
        assert!(begun.elapsed() < PATIENCE, "{:?} {:?}", sum.offers, sum.connections);
        capture.read(Instant::now() + Duration::from_millis(100)).unwrap();
        let captured = capture.take().unwrap();
        assert_eq!(captured.dropped_packets, 0);
        captured.listeners.iter().for_each(|counts| sum.add(counts));
    }
    sum
}

/// Has clients call from one network what nginx serves in another, and compares with its log.
fn compare(near: &Namespace, far: &Namespace, ip: &'static str) -> Counts {
    let (nginx, mut capture) = near
        .within(|| {
            let nginx = Nginx::start();
            let listeners: Vec<SocketAddr> =
                nginx::PORTS.iter().map(|port| format!("0.0.0.0:{port}").parse().unwrap()).collect();
            (nginx, Capture::open(&listeners, Settings::default()).unwrap())
        })
        .unwrap();
    let hellos = far.within(|| call(ip)).unwrap();
    let counts = counted(&mut capture, hellos, 1);
    println!("{:?} {:?} {:?}", counts.connections, counts.agreed, counts.hello_to_answer());
    let log = nginx.log();
    let logged = |words: &str| log.lines().filter(|line| line.contains(words)).count() as u64;
    assert_eq!(counts.offers.hellos, hellos);
    assert_eq!(counts.complete(), logged("TLS"));
    assert_eq!(counts.connections.resumed_handshakes, logged(" r end"));
    assert_eq!(counts.connections.full_handshakes, logged(" . end"));
    assert_eq!(counts.agreed.tls13_handshakes, logged("TLSv1.3"));
    assert_eq!(counts.agreed.tls12_handshakes, logged("TLSv1.2"));
    assert_eq!(counts.connections.refused_by_clients, 2);
    assert_eq!(counts.connections.closed_by_servers, 2);
    assert_eq!(counts.connections.without_hellos, 1);
    assert_eq!(counts.agreed.retried_handshakes, 2);
    assert_eq!(counts.opened_connections, hellos + 1);
    assert_eq!(counts.traffic.connections, hellos + 1);
    assert_eq!(counts.offered_groups.get(&Group::X25519MlKem768.code()), Some(&19));
    assert_eq!(counts.hello_to_answer_ns.len(), counts.complete() + 2);
    let unseen = counts.connections.unreadable_handshakes + counts.connections.given_up_handshakes;
    assert_eq!(unseen + counts.connections.without_tls_records, 0);
    counts
}

#[test]
fn loopback_counts_each_packet_once() {
    let Ok(namespace) = Namespace::with_loopback() else {
        println!("no network namespaces without root: not tried");
        return;
    };
    compare(&namespace, &namespace, "127.0.0.1");
}

#[test]
fn a_cable_counts_as_the_server_does_with_and_without_offloads() {
    for offloads in ["on", "off"] {
        let Some(network) = Network::new(offloads, 1500) else { return };
        compare(&network.near(), &network.far(), network::ADDRESS);
    }
}

/// What is lost before the capture comes once, later and out of order; what is lost behind it comes twice.
#[test]
fn a_cable_that_loses_packets_counts_as_the_server_does() {
    for offloads in ["on", "off"] {
        let Some(network) = Network::new(offloads, 1500) else { return };
        if !network.loses_one_in(40) {
            println!("no nft: not tried");
            return;
        }
        compare(&network.near(), &network.far(), network::ADDRESS);
    }
}

/// rustls, which chooses a hybrid. A ServerHello has more bytes than a frame here, as that of the largest hybrid has on
/// any cable: without offloads its end does not pass the filter.
#[test]
fn hybrids_are_told_with_and_without_offloads() {
    for (offloads, group) in ["on", "off"].into_iter().flat_map(|offloads| HYBRIDS.map(|group| (offloads, group))) {
        let Some(network) = Network::new(offloads, 1000) else { return };
        let address: SocketAddr = format!("{}:{USUAL}", network::ADDRESS).parse().unwrap();
        let (listener, mut capture) = network
            .near()
            .within(|| (TcpListener::bind(address).unwrap(), Capture::open(&[address], Settings::default()).unwrap()))
            .unwrap();
        let suite = Suite::Tls13Aes128Gcm;
        let server = rustls_config(KeyKind::P256, &[suite], &[group], true);
        let config = harness::config(harness::narrow(suite, group, Effort::Lean));
        thread::scope(|scope| {
            scope.spawn(|| (0..2).for_each(|_| serve(listener.accept().unwrap().0, RustlsServer::new(&server))));
            let call = |session| {
                let caller = Caller::new(&config, session);
                visit::ask(TcpStream::connect(address).unwrap(), Vec::new(), caller, &300_u32.to_be_bytes(), 300)
                    .unwrap()
                    .pop()
            };
            network.far().within(|| call(call(None))).unwrap();
        });
        let counts = counted(&mut capture, 2, 0);
        let of = &counts.connections;
        assert_eq!((of.full_handshakes, of.resumed_handshakes), (1, 1), "{group}, offloads {offloads}: {of:?}");
        assert_eq!(counts.chosen_groups.get(&group.code()), Some(&2), "{group}, offloads {offloads}");
    }
}

/// Answers until the client closes.
fn serve(mut stream: TcpStream, mut server: RustlsServer) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        server.receive(&buffer[..length]);
        stream.write_all(&server.take_output()).unwrap();
    }
}
