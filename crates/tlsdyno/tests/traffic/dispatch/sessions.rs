//! Offered sessions are taken, because connections go to the server that holds them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use tlsdyno::model::ServerName;

use super::cluster::{Cluster, Sessions, load, load_at};
use super::crowd::SMALL;
use super::support::{Dispatcher, backend, control_path};
use crate::stacks::rustls_server;

const SERVERS: u64 = 3;
/// Connections at a time: so many may be under way when a key is first met.
const AT_ONCE: u64 = 8;

fn reuse(percent: &'static str) -> [&'static str; 6] {
    ["--total-connections", "600", "--connections", "8", "--reuse", percent]
}

fn assert_sessions_are_found(server: &str, kind: ServerName) {
    for sessions in Sessions::ALL {
        let cluster = Cluster::new(kind, sessions, SERVERS as usize);
        assert_sessions_are_found_at(server, &cluster.addresses(), sessions);
    }
}

fn assert_sessions_are_found_at(server: &str, addresses: &[SocketAddr], sessions: Sessions) {
    let control = control_path();
    let dispatcher = Dispatcher::new(addresses, &["--policy", "session", "--loops", "1", "--control", &control]);
    let learning = load(&dispatcher, sessions, &reuse("50%"));
    // Apache's processes share a session only after the client can offer it, so that one now and then refuses what
    // another has given out.
    let is_shared_late = server == "Apache" && sessions == Sessions::Ids;
    let refused = || dispatcher.count(&control, "sessions_refused_by_holder");
    let refused_before = refused();
    let misrouted = dispatcher.count(&control, "sessions_rejected") - refused_before;
    assert!(refused_before == 0 || is_shared_late, "{server} refused {refused_before} sessions of its own");
    // TLS 1.2 shows what it issues; a key of TLS 1.3 is found by trying, N - 1 times at most, and each time by all that
    // are under way.
    let most = if sessions == Sessions::Tickets13 { SERVERS * (SERVERS - 1 + AT_ONCE) } else { 0 };
    assert!(misrouted <= most, "{sessions:?} while learning: {learning:?}, {misrouted} misrouted");
    let mut offered = learning.offered;
    let mut row = format!("| {server} | {} | {misrouted} |", sessions.name());
    // Of the offers that a server answered: now and then one closes a connection without a word (Apache, when it ends a
    // process), and the client offers its session again.
    let answered = || dispatcher.count(&control, "sessions_offered");
    for percent in ["50%", "80%", "100%"] {
        let (answered_before, refused_before) = (answered(), refused());
        let seen = load(&dispatcher, sessions, &reuse(percent));
        let (answered, refused) = (answered() - answered_before, refused() - refused_before);
        row += &format!(" {} of {answered} |", seen.accepted);
        assert!(
            seen.connections == 600 && answered > 250 && seen.accepted <= answered,
            "{seen:?}, {answered} answered"
        );
        let found = seen.accepted + if is_shared_late { refused } else { 0 };
        assert!(found * 100 >= answered * 99, "{sessions:?} {percent}: {seen:?}, {answered} answered");
        offered += seen.offered;
        // All clients have one address, and yet the load is even. At 100 % the load resumes one and the same session
        // all the time.
        let spread = dispatcher.spread(&control);
        let even = spread.iter().sum::<u64>() / SERVERS;
        let is_even = spread.iter().all(|&count| count.abs_diff(even) * 10 <= even);
        assert!(is_even || percent == "100%", "{sessions:?} {percent}: {spread:?}");
    }
    println!("{row}");
    // The dispatcher sees what the client does.
    let seen = answered();
    assert!(seen <= offered && seen * 100 >= offered * 98, "{seen} of {offered}");
}

fn start_rustls(tickets: bool, versions: &[&'static rustls::SupportedProtocolVersion]) -> SocketAddr {
    rustls_server::start(rustls_server::config(tickets, versions), &SMALL.content, None)
}

#[test]
fn rustls() {
    let [tls12, tls13] = [&rustls::version::TLS12, &rustls::version::TLS13];
    for sessions in Sessions::ALL {
        let version = if sessions == Sessions::Tickets13 { tls13 } else { tls12 };
        let start = |_| start_rustls(sessions != Sessions::Ids, &[version]);
        let servers: Vec<_> = (0..SERVERS).map(start).collect();
        assert_sessions_are_found_at("rustls", &servers, sessions);
    }
}

/// Hellos of 1.6 KB, whole and in segments of 100 bytes, and ServerHellos of 1.2 KB.
#[test]
fn hellos_with_post_quantum_shares() {
    let servers: Vec<_> = (0..SERVERS).map(|_| start_rustls(true, &[&rustls::version::TLS13])).collect();
    let control = control_path();
    let dispatcher = Dispatcher::new(&servers, &["--policy", "session", "--loops", "1", "--control", &control]);
    for address in [dispatcher.address, in_segments(dispatcher.address, 100)] {
        for percent in ["50%", "80%"] {
            let arguments = [&reuse(percent)[..], &["--group", "X25519MLKEM768"]].concat();
            let learned = dispatcher.count(&control, "sessions_accepted");
            let seen = load_at(address, Sessions::Tickets13, &arguments);
            assert_eq!(dispatcher.count(&control, "sessions_accepted") - learned, seen.accepted);
            // The first to offer a key find its holder by trying.
            let most = if learned == 0 { SERVERS * (SERVERS - 1 + AT_ONCE) } else { seen.offered / 100 };
            assert!(seen.connections == 600 && seen.offered > 250, "{seen:?}");
            assert!(seen.offered - seen.accepted <= most, "{address} {percent}: {seen:?}");
        }
    }
    assert_eq!(dispatcher.count(&control, "hellos_malformed") + dispatcher.count(&control, "hellos_oversized"), 0);
}

/// A way to `address` on which what clients send is cut.
fn in_segments(address: SocketAddr, most: usize) -> SocketAddr {
    let (way, _) = backend(move |client: TcpStream| {
        let server = TcpStream::connect(address).unwrap();
        server.set_nodelay(true).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _ = std::io::copy(&mut &server, &mut &client);
                let _ = client.shutdown(Shutdown::Write);
            });
            let mut bytes = vec![0; most];
            while let Ok(count @ 1..) = (&client).read(&mut bytes) {
                if (&server).write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = server.shutdown(Shutdown::Write);
        });
    });
    way
}

#[test]
fn a_source_address_sends_everything_to_one() {
    let servers: Vec<_> = (0..SERVERS).map(|_| start_rustls(true, rustls::ALL_VERSIONS)).collect();
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
    assert_sessions_are_found("nginx", ServerName::Nginx);
}

mod long {
    use super::*;

    #[test]
    #[ignore = "every server: make test-long"]
    fn apache() {
        assert_sessions_are_found("Apache", ServerName::ApacheEvent);
    }

    #[test]
    #[ignore = "every server: make test-long"]
    fn haproxy() {
        assert_sessions_are_found("HAProxy", ServerName::Haproxy);
    }
}
