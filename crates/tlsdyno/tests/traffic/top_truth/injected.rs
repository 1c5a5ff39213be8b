//! Work of a known amount is found in the part that it was put into.

use super::go::{burning_go, in_go};
use super::*;
use crate::cost::burning_server::BurningServer;
use crate::place::given_time;

/// Parts of TLS that work is put into; the rest of the server has the third.
const PARTS: [&str; 2] = ["signature", "key_agreement"];
/// Each connection has three requests, so that there are pages that do not follow a handshake.
pub const LOAD: [&str; 6] = ["--connections", "1", "--reuse", "0%", "--requests-per-connection", "3"];

/// What `top` finds in signatures, in key agreements and outside of TLS: low, value and high in µs of CPU time for
/// each handshake that it counts.
pub type Found = [[f64; 3]; 3];

pub fn found(server: &Value) -> Found {
    let cpu = &server["cpu"];
    let per_s = |count: f64, of: &Value| count * 1e9 / of["elapsed_ns"].as_f64().unwrap();
    let passed = &server["handshakes"];
    let handshakes = per_s(passed["connections"]["full_handshakes"].as_f64().unwrap(), passed);
    let us = per_s(cpu["cpu_ns"].as_f64().unwrap() / 1e3, cpu) / handshakes / 100.0;
    let ends = |share: &Value| ["low", "percent", "high"].map(|end| share[end].as_f64().unwrap_or(f64::NAN));
    let parts = cpu["parts"].as_array().unwrap();
    let [signature, agreement] = PARTS.map(|name| ends(parts.iter().find(|part| part["part"] == name).unwrap()));
    let [low, value, high] = ends(&cpu["tls"]);
    [signature, agreement, [100.0 - high, 100.0 - value, 100.0 - low]].map(|ends| ends.map(|end| end * us))
}

/// What a server with work that was put into it has more than another: low, value, high. Beside it what was put in.
fn more(usual: &Found, burning: &Found, injected_us: [f64; 3]) -> [([f64; 3], f64); 3] {
    [0, 1, 2].map(|at| {
        let ([low, value, high], [low_before, value_before, high_before]) = (burning[at], usual[at]);
        ([low - high_before, value - value_before, high - low_before], injected_us[at])
    })
}

/// The truth is in the interval. A call that works for longer leaves colder caches for what comes after it.
fn is_found(([low, _, high], truth): &([f64; 3], f64)) -> bool {
    *low <= 1.05 * truth + 3.0 && *truth - 3.0 <= *high
}

fn print(server: &str, more: &[([f64; 3], f64); 3]) {
    for (part, ([low, value, high], truth)) in ["signature", "key agreement", "page"].iter().zip(more) {
        println!("{server}, {part}: {truth:.0} µs put in, {value:.0} [{low:.0}, {high:.0}] found");
    }
}

/// What is found of so much work, nanoseconds, in a driver's server, beside what it was for each handshake. `pages`:
/// how often it accepts a connection, and reads a file, for each.
fn in_openssl(
    watched: &Watched,
    pages: u64,
    seconds: &str,
    [signature, agreement, page]: [u64; 3],
) -> (Found, [f64; 3]) {
    watched.inject([signature, agreement, page / pages]);
    let (server, done) = watched.told(seconds, &LOAD);
    let handshakes = done.injected[0].0;
    (found(&server), done.injected.map(|(_, ns)| ns / 1e3 / handshakes))
}

fn is_root() -> bool {
    // Handshakes are counted by who may see packets.
    rustix::process::geteuid().is_root()
}

#[test]
fn what_is_put_into_nginx_is_found_in_its_parts() {
    if !is_root() {
        return;
    }
    let watched = Watched::start(ServerName::Nginx, CertificateKind::P256, 1_000);
    let run = |seconds: &str| {
        let [(usual, _), (burning, truth)] =
            [[0; 3], [400_000, 300_000, 100_000]].map(|ns| in_openssl(&watched, 4, seconds, ns));
        more(&usual, &burning, truth)
    };
    let more = given_time(2, run, |more| more.iter().all(is_found) && more[0].0[0] > 100.0);
    print("nginx", &more);
}

mod long {
    use super::*;

    /// What is put in, nanoseconds: nothing at first and in the end, for the machine's pace changes.
    const AMOUNTS: [[u64; 3]; 5] =
        [[0; 3], [50_000, 200_000, 500_000], [500_000, 50_000, 200_000], [200_000, 500_000, 50_000], [0; 3]];

    /// All is found, but for one of 20 that may lie outside.
    fn check(server: &str, runs: &[(Found, [f64; 3])]) {
        let [(first, _), burning @ .., (last, _)] = runs else { panic!("{runs:?}") };
        let usual = [0, 1, 2].map(|at| {
            let ([low, value, high], [last_low, last_value, last_high]) = (first[at], last[at]);
            [low.min(last_low), (value + last_value) / 2.0, high.max(last_high)]
        });
        let all: Vec<_> = burning.iter().map(|(found, truth)| more(&usual, found, *truth)).collect();
        all.iter().for_each(|more| print(server, more));
        assert!(all.iter().flatten().filter(|one| !is_found(one)).count() <= 1, "{server}");
    }

    #[test]
    #[ignore = "three minutes; make test-long"]
    fn what_is_put_into_nginx_and_haproxy_is_found() {
        for (name, pages) in [(ServerName::Nginx, 4), (ServerName::Haproxy, 1)] {
            let watched = Watched::start(name, CertificateKind::P256, 1_000);
            check(&format!("{name:?}"), &AMOUNTS.map(|ns| in_openssl(&watched, pages, "20", ns)));
        }
    }

    #[test]
    #[ignore = "two minutes; make test-long"]
    fn what_is_put_into_rustls_is_found() {
        let place = Place::new();
        let run = |ns: [u64; 3]| {
            let [signature, agreement, page] = ns.map(|ns| (ns / 1_000) as u32);
            let server = BurningServer::start_with_agreement([0, signature, 0, page / 3], agreement);
            let seen = told(&place, server.address.parse().unwrap(), "20", &LOAD, || ());
            let [_, signature, _, page, _, agreement] = server.ended();
            (found(&seen), [signature, agreement, 3.0 * page])
        };
        check("rustls", &AMOUNTS.map(run));
    }

    #[test]
    #[ignore = "two minutes; make test-long"]
    fn what_is_put_into_go_is_found() {
        let place = Place::new();
        let program = burning_go(place.path());
        check("Go", &AMOUNTS.map(|ns| in_go(&place, &program, ns)));
    }
}
