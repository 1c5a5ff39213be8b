//! Offered sessions are taken, because connections go to the server that holds them.

use std::net::SocketAddr;

use tlsdyno::servers::ServerKind;

use crate::cluster::{Cluster, Sessions, load};
use crate::rustls_server;
use crate::support::{Dispatcher, await_that, control_path};

const SERVERS: u64 = 3;
/// Connections at a time: so many may be under way when a key is first met.
const AT_ONCE: u64 = 8;

fn reuse(percent: &'static str) -> [&'static str; 6] {
    ["--total-connections", "600", "--connections", "8", "--reuse", percent]
}

fn assert_sessions_are_found(kind: &ServerKind, sessions: Sessions) {
    let cluster = Cluster::new(kind, sessions, SERVERS as usize);
    assert_sessions_are_found_at(&cluster.addresses(), sessions);
}

fn assert_sessions_are_found_at(addresses: &[SocketAddr], sessions: Sessions) {
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
    for percent in ["50%", "80%", "100%"] {
        let seen = load(&dispatcher, sessions, &reuse(percent));
        println!("{sessions:?} {percent}: {seen:?}, {misrouted} misrouted while learning");
        assert!(seen.connections == 600 && seen.offered > 250, "{seen:?}");
        assert!(seen.accepted * 100 >= seen.offered * 99, "{sessions:?} {percent}: {seen:?}");
        offered += seen.offered;
        // All clients have one address, and yet the load is even. At 100 % the load resumes one and the same session all the time.
        let spread = dispatcher.spread(&control);
        let even = spread.iter().sum::<u64>() / SERVERS;
        let is_even = spread.iter().all(|&count| count.abs_diff(even) * 10 <= even);
        assert!(is_even || percent == "100%", "{sessions:?} {percent}: {spread:?}");
    }
    // The dispatcher sees what the client does, but for connections that a server closed without a word (Apache, when it ends a process) and the client
    // made anew.
    let seen = dispatcher.count(&control, "sessions_offered");
    assert!(seen <= offered && seen * 100 >= offered * 99, "{seen} of {offered}");
}

#[test]
fn rustls_tls13_tickets() {
    let servers: Vec<_> = (0..SERVERS).map(|_| rustls_server::start(true)).collect();
    assert_sessions_are_found_at(&servers, Sessions::Tickets13);
}

#[test]
fn a_source_address_sends_everything_to_one() {
    let servers: Vec<_> = (0..SERVERS).map(|_| rustls_server::start(true)).collect();
    let control = control_path();
    let dispatcher = Dispatcher::new(&servers, &["--policy", "source-address", "--control", &control]);
    let seen = load(&dispatcher, Sessions::Tickets13, &reuse("80%"));
    assert_eq!(seen.offered, seen.accepted);
    let mut spread = dispatcher.spread(&control);
    spread.sort_unstable();
    assert_eq!(spread, [0, 0, 600]);
}

#[test]
fn stateful_tls13_sessions_are_recognised_and_go_by_address_where_that_is_allowed() {
    let servers: Vec<_> = (0..SERVERS).map(|_| rustls_server::start(false)).collect();
    let control = control_path();
    let dispatcher = Dispatcher::new(&servers, &["--policy", "session", "--control", &control]);
    let blind = load(&dispatcher, Sessions::Tickets13, &reuse("80%"));
    assert!(blind.accepted * 2 < blind.offered, "{blind:?}");
    assert_eq!(dispatcher.count(&control, "routed_unknown"), blind.offered);
    let status = dispatcher.status(&control);
    assert!(status["advice"].as_str().unwrap().contains("session+address"), "{status:#}");
    assert_eq!(status["tables"][0]["entries"], 0, "nothing useless is remembered: {status:#}");

    let control = control_path();
    let dispatcher = Dispatcher::new(&servers, &["--policy", "session+address", "--control", &control]);
    // All clients of the load share one address, so that only the decision can be looked at, not what it brings (engine/tests/dispatch.rs).
    let hinted = load(&dispatcher, Sessions::Tickets13, &reuse("80%"));
    assert_eq!(dispatcher.count(&control, "routed_address"), hinted.offered);
}

#[test]
fn sessions_are_found_again_after_keys_change() {
    let mut cluster = Cluster::new(&ServerKind::Nginx, Sessions::Tickets13, SERVERS as usize);
    let control = control_path();
    let dispatcher = Dispatcher::new(&cluster.addresses(), &["--policy", "session", "--control", &control]);
    load(&dispatcher, Sessions::Tickets13, &reuse("80%"));
    for server in 0..SERVERS as usize {
        let old = cluster.servers[server].worker_pids();
        cluster.servers[server].reload().unwrap();
        // As long as an old worker accepts connections, the server refuses its own tickets now and then.
        let is_gone = |pid: &u32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
        await_that("the old workers end", || old.iter().all(is_gone));
        let seen = load(&dispatcher, Sessions::Tickets13, &reuse("80%"));
        let lost = seen.offered - seen.accepted;
        println!("key of server {server} changed: {seen:?}");
        // The new key is found by trying; each load starts without sessions of the old one.
        assert!(lost <= 2 * (SERVERS - 1 + AT_ONCE), "{seen:?}");
        let after = load(&dispatcher, Sessions::Tickets13, &reuse("80%"));
        assert!(after.accepted * 100 >= after.offered * 99, "{after:?}");
    }
}

#[test]
fn nginx_tls13_tickets() {
    assert_sessions_are_found(&ServerKind::Nginx, Sessions::Tickets13);
}

#[test]
fn nginx_tls12_tickets() {
    assert_sessions_are_found(&ServerKind::Nginx, Sessions::Tickets12);
}

#[test]
fn nginx_tls12_ids() {
    assert_sessions_are_found(&ServerKind::Nginx, Sessions::Ids);
}

#[test]
fn apache() {
    for sessions in [Sessions::Tickets13, Sessions::Tickets12, Sessions::Ids] {
        assert_sessions_are_found(&ServerKind::ApacheEvent, sessions);
    }
}

#[test]
fn haproxy() {
    for sessions in [Sessions::Tickets13, Sessions::Tickets12, Sessions::Ids] {
        assert_sessions_are_found(&ServerKind::Haproxy, sessions);
    }
}
