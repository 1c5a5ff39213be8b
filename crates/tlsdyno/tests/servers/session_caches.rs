//! Session caches and ticket keys with the real servers: what is kept where, who takes whose sessions, and what is
//! refused.

use crate::place;
use crate::ticket_macs::is_by_a_lost_key;

use std::path::Path;

use place::{Place, fetch, fetch_twice_with_one_session, is_gone, kill};
use tlsdyno::model::{CertificateKind, ServerName, SessionCache, TicketKeys};
use tlsdyno::process_tree;
use tlsdyno::servers::{self, Instance, ServerSpec, ServerTls};

fn tls(place: &Place) -> ServerTls {
    ServerTls::new(servers::certificates::create(CertificateKind::P256, place.directory.path()).unwrap())
}

fn start(place: &Place, kind: ServerName, tls: ServerTls, workers: u32) -> Instance {
    let case = format!("{kind:?}, cache {:?}, keys {:?}", tls.session_cache, tls.ticket_keys);
    let spec = ServerSpec { tls: Some(tls), workers, connections: 4, ..place.spec(kind) };
    place.start(&spec).unwrap_or_else(|error| panic!("{case}: {error:#}"))
}

/// Of so many resumptions offered, all from one session, how many the server took. Each goes to whichever worker is
/// first.
fn taken(server: &Instance, offers: u32) -> u32 {
    let session = server.directory.join("session");
    let session = session.to_str().unwrap();
    fetch(server, &["-tls1_2", "-sess_out", session]);
    (0..offers).map(|_| u32::from(fetch(server, &["-tls1_2", "-sess_in", session]))).sum()
}

#[test]
fn each_cache_resumes_across_workers_where_it_is_shared() {
    let place = Place::new();
    let plain = ServerTls { tickets: false, ..tls(&place) };
    let mut cases = vec![(ServerName::Haproxy, SessionCache::Shared), (ServerName::Builtin, SessionCache::Shared)];
    cases.extend([SessionCache::Shared, SessionCache::BuiltinShared].map(|cache| (ServerName::Nginx, cache)));
    let apache = [SessionCache::Shared, SessionCache::Dbm, SessionCache::Memcached, SessionCache::Redis];
    cases.extend(apache.map(|cache| (ServerName::ApacheEvent, cache)));
    // Each process has its own connection to it.
    cases.push((ServerName::ApachePrefork, SessionCache::Memcached));
    for (kind, session_cache) in cases {
        let case = format!("{kind:?}, {session_cache:?}");
        let server = start(&place, kind, ServerTls { session_cache, ..plain.clone() }, 2);
        assert_eq!(taken(&server, 4), 4, "{case}: {}", server.log_tail());
        assert!(fetch_twice_with_one_session(&server, "-tls1_3"), "{case}: {}", server.log_tail());
        assert_eq!(server.error_log_alarms(), Vec::<String>::new(), "{case}");
        let companions = server.companions_cpu_ns().unwrap();
        let needs_server = matches!(session_cache, SessionCache::Memcached | SessionCache::Redis);
        let is_haproxy = server.description().version.starts_with("HAProxy");
        assert_eq!(companions.len(), usize::from(needs_server || is_haproxy), "{case}");
        assert!(companions.iter().all(|(_, ns)| *ns > 0), "{case}: {companions:?}");
        server.stop().unwrap();
    }
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

/// Two workers stopped in turn: each has its own cache, so that only the one with the session takes it.
#[test]
fn what_a_worker_keeps_for_itself_the_other_does_not_take() {
    let place = Place::new();
    let plain = ServerTls { tickets: false, session_cache: SessionCache::Builtin, ..tls(&place) };
    for kind in [ServerName::Nginx, ServerName::Lighttpd] {
        let alone = start(&place, kind, plain.clone(), 1);
        assert_eq!(taken(&alone, 3), 3, "{kind:?}");
        alone.stop().unwrap();
        let two = start(&place, kind, plain.clone(), 2);
        let workers = two.worker_pids();
        let session = two.directory.join("session");
        let session = session.to_str().unwrap();
        let only = |index: usize, work: &dyn Fn() -> bool| {
            let other = workers[1 - index];
            place::signal(other, rustix::process::Signal::STOP);
            let result = work();
            place::signal(other, rustix::process::Signal::CONT);
            result
        };
        only(0, &|| fetch(&two, &["-tls1_2", "-sess_out", session]));
        assert!(only(0, &|| fetch(&two, &["-tls1_2", "-sess_in", session])), "{kind:?}");
        assert!(!only(1, &|| fetch(&two, &["-tls1_2", "-sess_in", session])), "{kind:?}");
        two.stop().unwrap();
    }
}

/// Tickets of one server at another of the same product and run.
#[test]
fn shared_and_rotated_ticket_keys_are_taken_by_the_other_server() {
    let place = Place::new();
    let plain = ServerTls { session_cache: SessionCache::Off, ..tls(&place) };
    let with = |kind, ticket_keys| start(&place, kind, ServerTls { ticket_keys, ..plain.clone() }, 1);
    let kinds = [ServerName::Nginx, ServerName::ApacheEvent, ServerName::Haproxy, ServerName::Lighttpd];
    for kind in kinds {
        let (own, shared) = (with(kind, TicketKeys::Own), with(kind, TicketKeys::Shared));
        let twin = with(kind, TicketKeys::Shared);
        let rotates = matches!(kind, ServerName::Nginx | ServerName::Haproxy);
        let rotating = rotates.then(|| with(kind, TicketKeys::Rotating));
        for version in ["-tls1_2", "-tls1_3"] {
            let fresh = || {
                let session = shared.directory.join("session");
                fetch(&shared, &[version, "-sess_out", session.to_str().unwrap()]);
                session
            };
            let takes =
                |server: &Instance, session: &Path| fetch(server, &[version, "-sess_in", session.to_str().unwrap()]);
            let session = fresh();
            let shares = takes(&twin, &session) || apache_lost_its_key(kind, &shared, &session);
            assert!(shares, "{kind:?}, {version}: the twin");
            assert!(!takes(&own, &fresh()), "{kind:?}, {version}: a server with keys of its own");
            if let Some(rotating) = &rotating {
                assert!(takes(rotating, &fresh()), "{kind:?}, {version}: after rotation");
                let newer = rotating.directory.join("session");
                fetch(rotating, &[version, "-sess_out", newer.to_str().unwrap()]);
                assert!(!takes(&shared, &newer), "{kind:?}, {version}: the newer key is not the shared one");
            }
        }
    }
}

/// Apache's own fault, which no configuration mends.
fn apache_lost_its_key(kind: ServerName, server: &Instance, session: &Path) -> bool {
    let keys = std::fs::read(server.directory.join("ticket-keys")).unwrap();
    kind == ServerName::ApacheEvent && is_by_a_lost_key(session, &keys)
}

#[test]
fn a_killed_cache_server_is_named_and_the_sessions_are_gone() {
    let place = Place::new();
    let tls = ServerTls { tickets: false, session_cache: SessionCache::Memcached, ..tls(&place) };
    let mut server = start(&place, ServerName::ApacheEvent, tls, 1);
    let own = place.directory.path().to_str().unwrap().to_owned();
    let children = process_tree::descendants(std::process::id());
    let of_apache = server.pids();
    let memcached: Vec<u32> = children
        .iter()
        .map(|process| process.pid)
        .filter(|pid| process_tree::command_line(*pid).contains("/memcached -l"))
        .collect();
    assert!(!memcached.is_empty() && memcached.iter().all(|pid| !of_apache.contains(pid)), "{own}");
    // Other tests of this program may have theirs: that of this server is the one whose end it notices.
    let config = server.description().companions[0].1.clone();
    let port = config.split(" -p ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let pid =
        memcached.into_iter().find(|pid| process_tree::command_line(*pid).contains(&format!(" -p {port} "))).unwrap();
    kill(pid);
    place::eventually("it is gone", || is_gone(pid));
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let obituary = loop {
        if let Some(obituary) = server.obituary() {
            break obituary;
        }
        assert!(std::time::Instant::now() < limit);
    };
    assert_eq!(obituary, "its memcached has died (killed by signal 9, SIGKILL)");
    assert_eq!(taken(&server, 2), 0, "it serves on without sessions");
    server.stop().unwrap();
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn early_data_is_taken_where_it_is_on() {
    let place = Place::new();
    let request = place.directory.path().join("request");
    std::fs::write(&request, "GET /hello.txt HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    for kind in [ServerName::Nginx, ServerName::Haproxy, ServerName::Builtin] {
        for early_data in [true, false] {
            let server = start(&place, kind, ServerTls { early_data, ..tls(&place) }, 1);
            let session = server.directory.join("session");
            let session = session.to_str().unwrap();
            fetch(&server, &["-tls1_3", "-sess_out", session]);
            let said =
                place::handshake(&server, &["-tls1_3", "-sess_in", session, "-early_data", request.to_str().unwrap()]);
            assert_eq!(said.contains("Early data was accepted"), early_data, "{kind:?}: {said}");
        }
    }
}

#[test]
fn what_a_server_does_not_have_is_refused_before_anything_starts() {
    let place = Place::new();
    let plain = tls(&place);
    for (kind, tls, words) in [
        (ServerName::Nginx, ServerTls { session_cache: SessionCache::Redis, ..plain.clone() }, "builtin-shared"),
        (ServerName::ApacheEvent, ServerTls { ticket_keys: TicketKeys::Rotating, ..plain.clone() }, "own, shared"),
        (ServerName::Lighttpd, ServerTls { early_data: true, ..plain.clone() }, "takes no early data; nginx, "),
    ] {
        let error = place.start(&ServerSpec { tls: Some(tls), ..place.spec(kind) }).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let refused = |arguments: &[&str]| {
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_tlsdyno")).arg("ablate").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = refused(&["--server", "nginx", "--session-cache", "dbm"]);
    assert!(code == Some(2) && said.contains("it has off, builtin, shared, builtin-shared"), "{said}");
    let (code, said) = refused(&["--server", "apache", "--early-data"]);
    assert!(code == Some(2) && said.contains("takes no early data; nginx, "), "{said}");
    let (code, said) = refused(&["--server", "lighttpd", "--ticket-keys", "rotating"]);
    assert!(code == Some(2) && said.contains("it has own, shared; nginx and "), "{said}");
    assert_eq!(place.leftovers(), Vec::<String>::new());
}
