//! Servers whose sessions nobody can know by looking: stateful TLS 1.3, and tickets that begin with no key name. The
//! status says so, and the address helps.

use std::net::{Ipv4Addr, SocketAddr};

use super::crowd::{Crowd, SMALL, Tally};
use super::support::{Dispatcher, control_path};
use crate::stacks::go_server::GoServer;
use crate::stacks::rustls_server;

/// Each with an address of its own.
const CLIENTS: usize = 9;

/// What clients meet with this policy, and the status afterwards.
fn visit(servers: &[SocketAddr], policy: &str) -> (Tally, serde_json::Value) {
    let control = control_path();
    // No checks: a server that a busy machine makes late would be taken for down, and who is left alone holds every
    // session.
    let dispatcher = Dispatcher::new(servers, &["--policy", policy, "--check", "none", "--control", &control]);
    let from = |number| Ipv4Addr::new(127, 0, 0, 10 + number);
    let crowd = Crowd::start_from(dispatcher.address, CLIENTS, from, &SMALL);
    crowd.await_more(500);
    let tally = crowd.finish();
    assert!(tally.cut.is_empty(), "{:?}", tally.cut);
    let status = dispatcher.status(&control);
    (tally, status)
}

/// Answers the two statuses.
fn assert_only_the_address_helps(server: &str, servers: &[SocketAddr], why: &str) -> [serde_json::Value; 2] {
    let (lost, blind) = visit(servers, "session");
    let (found, hinted) = visit(servers, "session+address");
    println!("| {server} | {} of {} | {} of {} |", lost.resumed(), lost.offered(), found.resumed(), found.offered());
    assert!(lost.resumed() * 2 < lost.offered(), "{} of {}", lost.resumed(), lost.offered());
    let advice = blind["advice"].as_str().unwrap_or_else(|| panic!("the status says nothing: {blind:#}"));
    assert!(advice.contains(why) && advice.contains("session+address"), "{advice}");
    assert_eq!((found.resumed(), hinted["advice"].as_str()), (found.offered(), None));
    let spread: Vec<_> = hinted["backends"].as_array().unwrap().iter().map(|backend| &backend["connections"]).collect();
    assert!(spread.iter().all(|count| count.as_u64().unwrap() > 100), "all have work: {spread:?}");
    [blind, hinted]
}

/// Before Go 1.21, tickets began with the name of their key.
fn go_names_its_ticket_keys() -> bool {
    let said = std::process::Command::new("go").arg("version").output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    let minor = said.split("go1.").nth(1).and_then(|rest| rest.split(['.', ' ']).next()?.parse::<u32>().ok());
    minor.unwrap_or_else(|| panic!("a version of Go: {said}")) < 21
}

#[test]
fn go_whose_tickets_have_no_key_name() {
    let servers: Vec<_> = (0..3).map(|_| GoServer::start(&SMALL.content, None)).collect();
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    if go_names_its_ticket_keys() {
        let (found, _) = visit(&addresses, "session");
        assert!(found.resumed() * 100 >= found.offered() * 98, "{} of {}", found.resumed(), found.offered());
        return;
    }
    let [blind, _] = assert_only_the_address_helps("Go", &addresses, "as Go's");
    assert!(blind["unlearnable_kinds"].as_u64() >= Some(1), "{blind:#}");
    assert!(blind["tables"][0]["entries"].as_u64() < Some(300), "few of their tickets are remembered: {blind:#}");
}

fn start_rustls() -> SocketAddr {
    rustls_server::start(rustls_server::config(false, rustls::ALL_VERSIONS), &SMALL.content, None)
}

#[test]
fn stateful_tls13() {
    let servers: Vec<_> = (0..3).map(|_| start_rustls()).collect();
    let statuses = assert_only_the_address_helps("rustls, stateful", &servers, "stateful TLS 1.3");
    for status in statuses {
        assert_eq!(status["tables"][0]["entries"], 0, "nothing useless is remembered: {status:#}");
    }
}
