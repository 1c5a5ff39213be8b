//! The load engine over TLS, against OpenSSL in threads: kinds of handshakes, who resumes what, and TLS faults by name.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use openssl::pkey::PKey;
use openssl::ssl::{SslAcceptor, SslMethod, SslSessionCacheMode, SslStream, SslVersion};
use openssl::x509::X509;
use support::*;
use tlsdyno_engine::load::{
    ErrorKind, Handshakes, HeldSessions, NextTurn, Phase, Plan, Resumption, Turn, Until, Workload, run_in_turns,
};
use tlsdyno_tls::{Config, Effort, Settings, Version};

fn acceptor(version: Version) -> Arc<SslAcceptor> {
    let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).unwrap();
    builder.set_private_key(&PKey::private_key_from_der(&identity.signing_key.serialize_der()).unwrap()).unwrap();
    builder.set_certificate(&X509::from_der(identity.cert.der()).unwrap()).unwrap();
    let version = match version {
        Version::Tls12 => SslVersion::TLS1_2,
        Version::Tls13 => SslVersion::TLS1_3,
    };
    builder.set_min_proto_version(Some(version)).unwrap();
    builder.set_max_proto_version(Some(version)).unwrap();
    builder.set_session_cache_mode(SslSessionCacheMode::SERVER);
    builder.set_session_id_context(b"test").unwrap();
    Arc::new(builder.build())
}

fn tls_server(version: Version, serve: impl Fn(SslStream<TcpStream>) + Send + Sync + 'static) -> SocketAddr {
    let acceptor = acceptor(version);
    server(move |stream| {
        if let Ok(stream) = acceptor.accept(stream) {
            serve(stream);
        }
    })
}

/// Answers each request with one byte; closes with close_notify where asked to.
fn answer(mut stream: SslStream<TcpStream>) {
    let mut request = Vec::new();
    let mut some = [0; 4096];
    while let Ok(bytes @ 1..) = stream.read(&mut some) {
        request.extend_from_slice(&some[..bytes]);
        if !request.ends_with(b"\r\n\r\n") {
            continue;
        }
        let close = request.windows(17).any(|window| window == b"Connection: close");
        request.clear();
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").is_err() {
            return;
        }
        if close {
            break;
        }
    }
    let _ = stream.shutdown();
}

fn tls_plan(address: SocketAddr, workload: Workload, total: u32, per_user: u32, each: Option<u32>) -> Plan {
    let mut plan = plan(address, workload, connections(total, per_user, each));
    let settings = Settings { server_name: Some("localhost".to_owned()), effort: Effort::Lean, ..Settings::default() };
    plan.target.tls = Some(Arc::new(Config::new(settings).unwrap()));
    plan
}

fn one_byte() -> Vec<tlsdyno_engine::load::Object> {
    vec![object("GET", "/", Some(1))]
}

#[test]
fn kept_connections_shake_hands_once() {
    for version in [Version::Tls12, Version::Tls13] {
        let plan = tls_plan(tls_server(version, answer), workload(one_byte(), 3, 20, 1), 3, 1, None);
        let outcome = go(&plan);
        assert_eq!((outcome.hits, outcome.errors.len()), (60, 0), "{:?} {:?}", outcome.errors, outcome.tls_faults);
        assert_eq!(outcome.handshakes, Handshakes { full: 3, ..Handshakes::default() });
        assert_eq!(outcome.phases[&Phase::FullHandshake].len(), 3);
        assert_eq!(outcome.negotiated.len(), 1);
        assert!(outcome.negotiated.keys().all(|key| key.starts_with(&version.to_string())), "{:?}", outcome.negotiated);
    }
}

/// A page of eight requests over four connections: with `first_alone` the other three resume the session of the first.
#[test]
fn the_other_connections_of_a_page_resume_the_session_of_the_first() {
    for version in [Version::Tls12, Version::Tls13] {
        let mut plan = tls_plan(tls_server(version, answer), workload(one_byte(), 5, 8, 8), 4, 4, Some(2));
        plan.resumption = Resumption::Always;
        let outcome = go(&plan);
        assert_eq!((outcome.hits, outcome.errors.len()), (40, 0), "{:?}", outcome.errors);
        let resumed = outcome.connections - 5;
        assert!(outcome.connections >= 20, "each makes two requests at most");
        let all = Handshakes {
            full: 5,
            resumed_intended: resumed,
            resumed_offered: resumed,
            resumed_accepted: resumed,
            ..Handshakes::default()
        };
        assert_eq!(outcome.handshakes, all, "{version}");

        plan.connections.first_alone = false;
        assert!(go(&plan).handshakes.full > 5, "all at once costs more full handshakes");
    }
}

#[test]
fn forgetting_the_session_makes_the_next_handshake_full() {
    for version in [Version::Tls12, Version::Tls13] {
        let mut workload = workload(one_byte(), 4, 6, 1);
        for (index, request) in workload.requests.iter_mut().enumerate() {
            request.close_after = true;
            request.forget_session = index % 3 == 0;
        }
        let mut plan = tls_plan(tls_server(version, answer), workload, 2, 1, None);
        plan.resumption = Resumption::Always;
        let outcome = go(&plan);
        assert_eq!((outcome.hits, outcome.connections, outcome.errors.len()), (24, 24, 0), "{:?}", outcome.errors);
        assert_eq!((outcome.handshakes.full, outcome.handshakes.resumed_accepted), (8, 16), "{version}");
    }
}

#[test]
fn a_share_is_met_to_a_connection() {
    for version in [Version::Tls12, Version::Tls13] {
        let mut plan = tls_plan(tls_server(version, answer), workload(one_byte(), 16, 100, 1), 16, 1, Some(1));
        plan.resumption = Resumption::Share(0.9);
        plan.until = Until::ConnectionsMade(500);
        let outcome = go(&plan);
        assert_eq!((outcome.hits, outcome.errors.len()), (500, 0), "{:?}", outcome.errors);
        assert!(outcome.handshakes.resumed_accepted.abs_diff(450) <= 1, "{:?}", outcome.handshakes);
    }
}

/// A turn that is over lets the connections that it opened make their requests, so that each turn has the handshakes of
/// its hits, and a run those of its turns that count.
#[test]
fn a_turn_ends_when_the_connections_that_it_opened_have() {
    for (each, version) in [(1, Version::Tls13), (1, Version::Tls12), (3, Version::Tls13)] {
        let mut plan = tls_plan(tls_server(version, answer), workload(one_byte(), 8, 3000, 1), 8, 1, Some(each));
        plan.until = Until::Elapsed(60_000_000_000);
        let mut turns: Vec<Turn> = Vec::new();
        let mut ask = |turn: Option<Turn>| {
            turns.extend(turn);
            // Each is over as soon as it has begun.
            (turns.len() < 12).then_some(if turns.is_empty() { NextTurn::LeadsIn(8) } else { NextTurn::Lasts(1) })
        };
        let stop = AtomicBool::new(false);
        let outcome = run_in_turns(&plan, &stop, &mut HeldSessions::new(plan.resumption), &mut ask).unwrap();
        assert!(outcome.errors.is_empty() && turns.iter().all(|turn| turn.hits >= 8), "{:?} {turns:?}", outcome.errors);
        for turn in &turns {
            assert_eq!(turn.hits, turn.handshakes_full * u64::from(each), "{version} {turns:?}");
        }
        let counted: u64 = turns[1..].iter().map(|turn| turn.handshakes_full).sum();
        assert_eq!((outcome.hits, outcome.handshakes.full), (counted * u64::from(each), counted));
    }
}

#[test]
fn tls_faults_are_named() {
    let garbage = server(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let plan = tls_plan(garbage, workload(one_byte(), 2, 1, 1), 2, 1, None);
    let outcome = go(&plan);
    assert_eq!(outcome.errors.into_iter().collect::<Vec<_>>(), [(ErrorKind::Tls, 2)]);
    assert_eq!(outcome.tls_faults.values().sum::<u64>(), 2);

    // Honest effort without the server's root.
    let mut honest = tls_plan(tls_server(Version::Tls13, answer), workload(one_byte(), 2, 1, 1), 2, 1, None);
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let settings = Settings {
        server_name: Some("localhost".to_owned()),
        trust_anchors: vec![stranger.cert.der().to_vec()],
        now_unix_s: 1_800_000_000,
        ..Settings::default()
    };
    honest.target.tls = Some(Arc::new(Config::new(settings).unwrap()));
    let outcome = go(&honest);
    assert_eq!((outcome.hits, outcome.errors[&ErrorKind::Tls]), (0, 2));
    assert!(outcome.tls_faults.keys().all(|fault| fault.contains("authenticated")), "{:?}", outcome.tls_faults);
}

#[test]
fn a_body_until_the_end_needs_close_notify() {
    let head = b"HTTP/1.0 200 OK\r\n\r\nx";
    let proper = tls_server(Version::Tls13, move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(head).unwrap();
        let _ = stream.shutdown();
    });
    let outcome = go(&tls_plan(proper, workload(one_byte(), 2, 2, 1), 2, 1, None));
    assert_eq!((outcome.hits, outcome.errors.len()), (4, 0), "{:?}", outcome.errors);

    let cut = tls_server(Version::Tls13, move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        stream.write_all(head).unwrap();
    });
    let outcome = go(&tls_plan(cut, workload(one_byte(), 2, 2, 1), 2, 1, None));
    assert_eq!((outcome.hits, outcome.errors.get(&ErrorKind::Closed)), (0, Some(&4)), "{:?}", outcome.errors);
}
