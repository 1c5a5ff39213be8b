//! The share of resumed connections that is asked for is the share in the server's own log, for each kind of session.
//! The whole matrix, with 20,000 connections a cell: `cargo run --release -p xtask -- reuse-matrix`.

use crate::place::Place;
use crate::reuse_matrix;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tlsdyno::model::{CertificateKind, ServerName, SessionCache};
use tlsdyno::servers::{self, Instance, ServerSpec, ServerTls};
use tlsdyno_tls::Version;

use reuse_matrix::{Server, Sessions, measure};

const CONNECTIONS: u64 = 1_000;
/// Percentage points.
const TOLERANCE: f64 = 0.2;

struct Site {
    // In this order: the server ends before its files go.
    server: Instance,
    _place: Place,
}

fn nginx(version: Version, tickets: bool, session_cache: bool) -> Site {
    forgetful(ServerName::Nginx, version, tickets, session_cache, None)
}

fn forgetful(
    server: ServerName,
    version: Version,
    tickets: bool,
    session_cache: bool,
    session_timeout_s: Option<u32>,
) -> Site {
    let place = Place::new();
    fs::write(place.docroot().join("1k.bin"), [b'x'; 1024]).unwrap();
    let certificate = servers::certificates::create(CertificateKind::P256, place.path()).unwrap();
    let mut spec = ServerSpec::new(server, place.docroot());
    let session_cache = if session_cache { SessionCache::Shared } else { SessionCache::Off };
    spec.tls = Some(ServerTls {
        versions: vec![version],
        tickets,
        session_cache,
        session_timeout_s,
        ..ServerTls::new(certificate)
    });
    spec.log_sessions = true;
    let server = servers::start(&spec, place.path()).unwrap();
    Site { server, _place: place }
}

/// Runs `tlsdyno load` against the site; answers its exit code and its JSON.
fn load(site: &Site, arguments: &[&str]) -> (i32, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_tlsdyno"))
        .args(["load", &format!("https://{}/1k.bin", site.server.address()), "--effort", "floor", "--json"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let json = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), json)
}

fn assert_shares_are_met(server: Server) {
    let program = Path::new(env!("CARGO_BIN_EXE_tlsdyno"));
    servers::launch::set_own_executable(program);
    for sessions in Sessions::ALL.into_iter().filter(|sessions| sessions.impossible(server).is_none()) {
        for cell in measure(program, server, sessions, &[33, 98], CONNECTIONS).unwrap() {
            assert_eq!(cell.accepted, cell.resumed, "{sessions}: client and server disagree");
            assert!(cell.deviation_offered() <= TOLERANCE, "{sessions}: {cell:?}");
            // Apache's cache takes a session in after its client has it, and refuses it until then.
            if (server, sessions) != (Server::Apache, Sessions::Ids) {
                assert!(cell.deviation() <= TOLERANCE, "{sessions}: {} % achieved: {cell:?}", cell.achieved_percent());
            }
        }
    }
}

#[test]
fn nginx_sees_the_share_that_was_asked_for() {
    assert_shares_are_met(Server::Nginx);
}

#[test]
fn all_but_the_first_can_resume() {
    for version in [Version::Tls12, Version::Tls13] {
        let site = nginx(version, true, false);
        let (code, json) = load(&site, &["--total-connections", "1000", "--reuse", "100%"]);
        assert_eq!(code, 0, "{json:#}");
        assert_eq!((&json["handshakes"]["full"], &json["handshakes"]["resumed_accepted"]), (&1.into(), &999.into()));
    }
}

#[test]
fn sessions_last_as_long_as_the_server_was_told() {
    use ServerName::{ApacheEvent, Builtin, Haproxy, Nginx};
    use Version::{Tls12, Tls13};
    servers::launch::set_own_executable(Path::new(env!("CARGO_BIN_EXE_tlsdyno")));
    // Sessions by ID in TLS 1.2, by ticket in TLS 1.3.
    let sites = [
        (Nginx, Tls12, Some(1)),
        (Nginx, Tls13, Some(1)),
        (Nginx, Tls12, None),
        (Nginx, Tls13, None),
        (Builtin, Tls12, Some(1)),
        (Builtin, Tls13, Some(1)),
        (ApacheEvent, Tls13, Some(1)),
        (Haproxy, Tls13, Some(1)),
    ];
    let lasts = |(server, version, timeout_s): (ServerName, Version, Option<u32>)| {
        let site = forgetful(server, version, version == Tls13, true, timeout_s);
        let flags = ["-c", "3", "-d", "3s", "--profile", "intermittent", "--pause", "const:2500ms"];
        let (code, json) = load(&site, &flags);
        assert_eq!(code, 0, "{json:#}");
        let (full, hits) = (json["handshakes"]["full"].as_u64().unwrap(), json["hits"].as_u64().unwrap());
        // Each of three users comes twice; on a busy machine the second time may be too late.
        assert!((3..=6).contains(&hits), "{json:#}");
        assert_eq!(full, if timeout_s.is_some() { hits } else { 3 }, "{server:?} {version} {timeout_s:?}: {json:#}");
    };
    // They wait for most of the time.
    std::thread::scope(|scope| {
        for site in sites {
            scope.spawn(move || lasts(site));
        }
    });
}

#[test]
fn a_server_without_sessions_is_named_as_the_cause() {
    let site = nginx(Version::Tls12, false, false);
    let (code, json) = load(&site, &["--total-connections", "500", "--reuse", "50%"]);
    assert_eq!(code, 8, "{json:#}");
    assert_eq!((&json["hits"], &json["handshakes"]["resumed_accepted"]), (&500.into(), &0.into()));
    let warning = json["warnings"][0].as_str().unwrap();
    assert!(warning.contains("50.0 %") && warning.contains("ssl_session_cache"), "{warning}");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "every server: make test-long"]
    fn apache_sees_it() {
        assert_shares_are_met(Server::Apache);
    }

    #[test]
    #[ignore = "every server: make test-long"]
    fn haproxy_sees_it() {
        assert_shares_are_met(Server::Haproxy);
    }

    #[test]
    #[ignore = "every server: make test-long"]
    fn go_sees_it() {
        assert_shares_are_met(Server::Go);
    }

    #[test]
    #[ignore = "every server: make test-long"]
    fn rustls_sees_it() {
        assert_shares_are_met(Server::Rustls);
    }
}
