//! Offered sessions are taken, because connections go to the server that holds them.

use std::net::SocketAddr;

use tlsdyno::servers::ServerKind;

use crate::cluster::{Cluster, Sessions, load};
use crate::rustls_server;
use crate::support::{Dispatcher, control_path};

const SERVERS: u64 = 3;
/// Connections at a time: so many may be under way when a key is first met.
const AT_ONCE: u64 = 8;

fn reuse(percent: &'static str) -> [&'static str; 6] {
    ["--total-connections", "600", "--connections", "8", "--reuse", percent]
}

fn assert_sessions_are_found(server: &str, kind: &ServerKind) {
    for sessions in Sessions::ALL {
        let cluster = Cluster::new(kind, sessions, SERVERS as usize);
        assert_sessions_are_found_at(server, &cluster.addresses(), sessions);
    }
}

fn assert_sessions_are_found_at(server: &str, addresses: &[SocketAddr], sessions: Sessions) {
    let control = control_path();
    let dispatcher = Dispatcher::new(addresses, &["--policy", "session", "--loops", "1", "--control", &control]);
    let learning = load(&dispatcher, sessions, &reuse("50%"));
    let misrouted = learning.offered - learning.accepted;
    // TLS 1.2 shows what it issues; a key of TLS 1.3 is found by trying, N - 1 times at most, and each time by all that are under way.
    let unknown = learning.offered - dispatcher.count(&control, "routed_known");
    let most = if sessions == Sessions::Tickets13 { SERVERS * (SERVERS - 1 + AT_ONCE) } else { 0 };
    assert!(unknown <= most, "{sessions:?} while learning: {learning:?}, {unknown} unknown");
    // A server may refuse its own: one that shares its cache among processes stores a session after the client can offer it.
    assert!(misrouted <= most + 3, "{sessions:?} while learning: {learning:?}");
    let mut offered = learning.offered;
    let mut row = format!("| {server} | {} | {misrouted} |", sessions.name());
    for percent in ["50%", "80%", "100%"] {
        let seen = load(&dispatcher, sessions, &reuse(percent));
        row += &format!(" {} of {} |", seen.accepted, seen.offered);
        assert!(seen.connections == 600 && seen.offered > 250, "{seen:?}");
        assert!(seen.accepted * 100 >= seen.offered * 99, "{sessions:?} {percent}: {seen:?}");
        offered += seen.offered;
        // All clients have one address, and yet the load is even. At 100 % the load resumes one and the same session all the time.
        let spread = dispatcher.spread(&control);
        let even = spread.iter().sum::<u64>() / SERVERS;
        let is_even = spread.iter().all(|&count| count.abs_diff(even) * 10 <= even);
        assert!(is_even || percent == "100%", "{sessions:?} {percent}: {spread:?}");
    }
    println!("{row}");
    // The dispatcher sees what the client does, but for connections that a server closed without a word (Apache, when it ends a process) and the client
    // made anew.
    let seen = dispatcher.count(&control, "sessions_offered");
    assert!(seen <= offered && seen * 100 >= offered * 99, "{seen} of {offered}");
}

#[test]
fn rustls() {
    let [tls12, tls13] = [&rustls::version::TLS12, &rustls::version::TLS13];
    for sessions in Sessions::ALL {
        let version = if sessions == Sessions::Tickets13 { tls13 } else { tls12 };
        let start = |_| rustls_server::start(sessions != Sessions::Ids, &[version]);
        let servers: Vec<_> = (0..SERVERS).map(start).collect();
        assert_sessions_are_found_at("rustls", &servers, sessions);
    }
}

#[test]
fn a_source_address_sends_everything_to_one() {
    let servers: Vec<_> = (0..SERVERS).map(|_| rustls_server::start(true, rustls::ALL_VERSIONS)).collect();
    let control = control_path();
    let dispatcher = Dispatcher::new(&servers, &["--policy", "source-address", "--control", &control]);
    let seen = load(&dispatcher, Sessions::Tickets13, &reuse("80%"));
    assert_eq!(seen.offered, seen.accepted);
    let mut spread = dispatcher.spread(&control);
    spread.sort_unstable();
    assert_eq!(spread, [0, 0, 600]);
}

#[test]
fn nginx() {
    assert_sessions_are_found("nginx", &ServerKind::Nginx);
}

#[test]
fn apache() {
    assert_sessions_are_found("Apache", &ServerKind::ApacheEvent);
}

#[test]
fn haproxy() {
    assert_sessions_are_found("HAProxy", &ServerKind::Haproxy);
}
