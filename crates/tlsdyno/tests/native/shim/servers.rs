//! Stock servers and the built-in one with the shim: skeletons and fast resumption by hand, the perfect cache with
//! OpenSSL's client, each with bodies compared and a reload in between.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tlsdyno::exchange::{exchange, get};
use tlsdyno::model::{CertificateKind, ServerName, SessionCache};
use tlsdyno::native::layout::shim as layout;
use tlsdyno::native::{ShimCounters, ShimInjection, ShimSettings};
use tlsdyno::servers::{self, Instance, ServerSpec, ServerTls};
use tlsdyno_tls::{Config, Effort, Script, Session, Settings, Stage, StageSet, Suite, Version};

use crate::place::{Place, eventually, fetch};

/// Connections open at once, of skeletons.
const TOGETHER: usize = 64;
/// Connections that other servers are made for; prefork starts a process for each.
const FEW: u32 = 4;
const BODY_BYTES: usize = 100_000;

struct Stand {
    server: Instance,
    injection: ShimInjection,
    name: String,
}

impl Stand {
    fn start(place: &Place, kind: ServerName, settings: &ShimSettings, connections: u32) -> Stand {
        let own = place.directory.path().join(format!("shim-{kind:?}"));
        servers::run_directory::make_private(&own).unwrap();
        let injection = ShimInjection::prepare(&own, settings).unwrap();
        let certificate = servers::certificates::create(CertificateKind::P256, place.directory.path()).unwrap();
        let tls = ServerTls {
            versions: vec![settings.version],
            tickets: settings.tickets,
            session_cache: SessionCache::Shared,
            ..ServerTls::new(certificate)
        };
        let workers = if matches!(kind, ServerName::Nginx) { 2 } else { 1 };
        let spec = ServerSpec { tls: Some(tls), handed: injection.handed(), workers, connections, ..place.spec(kind) };
        let server = place.start(&spec).unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
        servers::require_mapped(&server.worker_pids(), injection.library_path()).unwrap();
        Stand { server, injection, name: format!("{kind:?}, off: {}", settings.stages) }
    }

    fn counters(&self) -> ShimCounters {
        self.injection.counters().unwrap()
    }

    /// Where the server knows how; not so the built-in one.
    fn reload(&mut self) {
        match self.server.reload() {
            // Workers of before may be ending just now.
            Ok(()) => eventually("it is mapped in every worker", || {
                servers::require_mapped(&self.server.worker_pids(), self.injection.library_path()).is_ok()
            }),
            Err(error) => assert!(self.name.starts_with("Builtin"), "{}: {error:#}", self.name),
        }
    }

    fn end(self) {
        assert_eq!(self.server.error_log_alarms(), Vec::<String>::new(), "{}", self.name);
        self.server.stop().unwrap();
    }
}

fn body() -> Vec<u8> {
    (0..BODY_BYTES).map(|at| (at % 251 + at / 977) as u8).collect()
}

fn place() -> Place {
    let place = Place::new();
    fs::write(place.docroot().join("body.bin"), body()).unwrap();
    place
}

fn off(stages: &[Stage]) -> StageSet {
    stages.iter().copied().collect()
}

/// A client of skeleton handshakes: messages of the script's sizes, then plain HTTP.
struct Skeleton {
    stream: TcpStream,
}

const REQUEST: &[u8] = b"GET /body.bin HTTP/1.1\r\nHost: localhost\r\n\r\n";

impl Skeleton {
    fn open(address: SocketAddr) -> Skeleton {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Skeleton { stream }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn receive_flight(&mut self, size: u32) {
        let mut flight = vec![0xff; size as usize];
        self.stream.read_exact(&mut flight).unwrap();
        assert!(flight[0] == 0x16 && flight[1..].iter().all(|byte| *byte == 0), "{flight:?}");
    }

    fn first_flight(size: u32, kind: u8) -> Vec<u8> {
        let length = (size as u16 - 5).to_be_bytes();
        let mut flight = vec![0x16, 3, 1, length[0], length[1], 0xd5, kind];
        flight.resize(size as usize, 0);
        flight
    }

    /// The handshake, and the first request as early as the script allows it.
    fn shake_hands(&mut self, script: &Script, kind: u8) {
        let mut flight = Skeleton::first_flight(script.flights[0], kind);
        if kind == 2 {
            flight.extend(REQUEST);
            self.send(&flight);
            return self.receive_flight(script.flights[1]);
        }
        for (index, size) in script.flights.iter().enumerate() {
            let ready = index + 1 == script.ready_after;
            if index % 2 == 1 {
                self.receive_flight(*size);
                flight.clear();
            } else if index > 0 {
                flight = vec![0; *size as usize];
                flight[0] = 0x16;
            }
            if ready {
                flight.extend(REQUEST);
            }
            if !flight.is_empty() {
                self.send(&flight);
            }
        }
    }

    fn receive_body(&mut self, what: &str) {
        let mut answer = Vec::new();
        let mut piece = vec![0; 16_384];
        let body_at = loop {
            let got = self.stream.read(&mut piece).unwrap();
            assert!(got > 0, "{what}: ended after {}", String::from_utf8_lossy(&answer));
            answer.extend(&piece[..got]);
            if let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
        };
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{what}: {}", String::from_utf8_lossy(&answer[..body_at]));
        let mut received = answer.split_off(body_at);
        let already = received.len();
        received.resize(BODY_BYTES, 0);
        self.stream.read_exact(&mut received[already..]).unwrap();
        assert!(received == body(), "{what}: another body");
    }
}

/// Many connections at once, half of them resumed, with this many requests each.
fn skeletons_at_once(stand: &Stand, scripts: [&Script; 2], resumed_kind: u8, requests: usize) {
    let address = stand.server.address();
    std::thread::scope(|scope| {
        for number in 0..TOGETHER {
            scope.spawn(move || {
                let resumed = number % 2 == 1;
                let mut client = Skeleton::open(address);
                client.shake_hands(scripts[usize::from(resumed)], if resumed { resumed_kind } else { 0 });
                client.receive_body(&stand.name);
                for _ in 1..requests {
                    client.send(REQUEST);
                    client.receive_body(&stand.name);
                }
            });
        }
    });
}

fn check_skeletons(stages: StageSet, full: &Script, resumed: &Script, resumed_kind: u8, counted: &str) {
    let place = place();
    for kind in ServerName::configured() {
        let settings = ShimSettings {
            full_script: Some(full.clone()),
            resumed_script: Some(resumed.clone()),
            time_stamps: true,
            ..ShimSettings::new(stages, Version::Tls13)
        };
        let mut stand = Stand::start(&place, kind, &settings, TOGETHER as u32);
        skeletons_at_once(&stand, [full, resumed], resumed_kind, 2);
        stand.reload();
        // A worker that ends still answers what it has accepted, but keeps no connection for a second request.
        skeletons_at_once(&stand, [full, resumed], resumed_kind, 1);
        let counters = stand.counters();
        let half = TOGETHER as u64;
        let get = |name| counters.get(name).unwrap();
        assert_eq!((get("skeleton_full"), get(counted)), (half, half), "{}: {counters}", stand.name);
        assert_eq!(get("plain_connections"), 2 * half, "{}: {counters}", stand.name);
        check_stamps(&stand, full, resumed, counted);
        refuses_others(&stand);
        stand.end();
    }
}

/// The server sends exactly what the script says, and by the first stamp of a connection it has read no less.
fn check_stamps(stand: &Stand, full: &Script, resumed: &Script, counted: &str) {
    let stamps = stand.injection.time_stamps().unwrap();
    assert_eq!(stamps.len(), 2 * TOGETHER, "{}", stand.name);
    for stamp in stamps {
        let script = if stamp.kind == counted { resumed } else { full };
        let fast = stamp.kind == "skeleton_fast";
        let of = |end: usize| script.flights.iter().skip(end).step_by(2).map(|bytes| u64::from(*bytes)).sum::<u64>();
        let expected = if fast { (u64::from(script.flights[0]), 0) } else { (of(0), of(1)) };
        assert!(stamp.bytes_received >= expected.0, "{}: {stamp:?}", stand.name);
        assert_eq!(stamp.bytes_sent, expected.1, "{}: {stamp:?}", stand.name);
        assert!(stamp.end_ns >= stamp.start_ns && stamp.calls > 0, "{stamp:?}");
    }
}

/// A client with real TLS, and one of a kind that the server has no script for, get nothing.
fn refuses_others(stand: &Stand) {
    let before = stand.counters();
    let hello = Skeleton::first_flight(400, 9);
    for first in [&hello, &vec![0x16; 400]] {
        let mut client = Skeleton::open(stand.server.address());
        client.send(first);
        let mut rest = Vec::new();
        // It may also be reset, for what it sent was not read to the end.
        let _ = client.stream.read_to_end(&mut rest);
        assert!(!rest.starts_with(&[0x16, 0]) && !rest.starts_with(b"HTTP/1.1 200"), "{}: {rest:?}", stand.name);
    }
    let after = stand.counters() - before;
    assert!(after.get("failed_handshakes") >= Some(2), "{}: {after}", stand.name);
    assert_eq!(after.connections(), 0, "{}: {after}", stand.name);
}

#[test]
fn skeletons_of_tls13() {
    let full = Script { flights: vec![243, 1363, 80, 510], ready_after: 3 };
    let resumed = Script { flights: vec![514, 241, 80, 255], ready_after: 3 };
    check_skeletons(off(&[Stage::Handshake, Stage::Marshalling]), &full, &resumed, 1, "skeleton_resumed");
}

#[test]
fn skeletons_of_tls12_with_fast_resumption() {
    let full = Script { flights: vec![206, 1206, 93, 258], ready_after: 4 };
    let resumed = Script { flights: vec![430, 141, 51], ready_after: 3 };
    let stages = off(&[Stage::Handshake, Stage::Marshalling, Stage::RoundTrip]);
    check_skeletons(stages, &full, &resumed, 2, "skeleton_fast");
}

/// One client's session again and again, before and after a reload.
fn resume(stand: &Stand, session: &Path, times: u64) {
    for _ in 0..times {
        assert!(fetch(&stand.server, &["-sess_in", session.to_str().unwrap()]), "{}: not resumed", stand.name);
    }
}

/// Whether a full handshake has made the session that `session_cache` off resumes for everybody.
fn has_universal_session(stand: &Stand) -> bool {
    let area = fs::read(stand.injection.area_path()).unwrap();
    area[layout::SESSION_STATE_AT..][..4] == layout::SESSION_READY.to_ne_bytes()
}

fn check_perfect_cache(version: Version, tickets: bool) {
    let place = place();
    for kind in ServerName::configured() {
        let stages = off(&[Stage::SessionCache]);
        let settings = ShimSettings { tickets, ..ShimSettings::new(stages, version) };
        let mut stand = Stand::start(&place, kind, &settings, FEW);
        let session = stand.server.directory.join("client-session");
        assert!(!has_universal_session(&stand));
        assert!(!fetch(&stand.server, &["-sess_out", session.to_str().unwrap()]));
        assert!(has_universal_session(&stand), "{}", stand.name);
        resume(&stand, &session, 4);
        stand.reload();
        resume(&stand, &session, 4);
        assert!(!fetch(&stand.server, &[]), "full handshakes still happen in full");
        let counters = stand.counters();
        let get = |name| counters.get(name).unwrap();
        assert_eq!((get("resumed_handshakes"), get("universal_hits")), (8, 8), "{}: {counters}", stand.name);
        assert_eq!(get("full_handshakes"), 2, "{}: {counters}", stand.name);
        stand.end();
    }
}

#[test]
fn perfect_cache_of_session_ids() {
    check_perfect_cache(Version::Tls12, false);
}

#[test]
fn perfect_cache_of_tickets() {
    check_perfect_cache(Version::Tls12, true);
}

#[test]
fn perfect_cache_of_tls13() {
    check_perfect_cache(Version::Tls13, true);
}

/// What our client gets with the session that another server made, and with this server's own.
fn check_fast_resumption(kind: ServerName, suite: Suite, tickets: bool) {
    let stages = off(&[Stage::SessionCache, Stage::Marshalling, Stage::RoundTrip]);
    let settings = ShimSettings { tickets, ..ShimSettings::new(stages, suite.version()) };
    let of_client = Settings {
        versions: vec![suite.version()],
        suites: vec![suite],
        tickets,
        stages_off: stages,
        effort: Effort::Lean,
        ..Settings::default()
    };
    let ask = |stand: &Stand, universal: Option<&Session>, offered: Option<&Session>| {
        let config = Config::new(Settings { universal: universal.cloned(), ..of_client.clone() }).unwrap();
        let request = get("/body.bin", "", "localhost");
        let answer = exchange(stand.server.address(), Some(&Arc::new(config)), offered.cloned(), &request);
        let answer = answer.unwrap_or_else(|failure| panic!("{}, {suite}: {failure}", stand.name));
        assert_eq!((answer.status, answer.body_bytes), (200, BODY_BYTES as u64), "{}, {suite}", stand.name);
        answer
    };
    let places = [place(), place()];
    let stands = places.each_ref().map(|place| Stand::start(place, kind, &settings, FEW));
    let [own, foreign] = stands.each_ref().map(|stand| ask(stand, None, None).sessions.last().cloned().unwrap());
    let [stand, other] = stands;
    for _ in 0..3 {
        let resumed = ask(&stand, Some(&own), Some(&own));
        assert!(resumed.is_resumed(), "{}, {suite}", stand.name);
        assert_eq!(resumed.script.unwrap().flights.len(), 2, "{}, {suite}", stand.name);
        assert!(!ask(&stand, Some(&own), Some(&foreign)).is_resumed(), "{}, {suite}", stand.name);
    }
    let counters = stand.counters();
    let get = |name| counters.get(name).unwrap();
    assert_eq!((get("fast_resume"), get("full_handshakes"), get("universal_misses")), (3, 4, 3), "{counters}");
    stand.end();
    other.end();
}

/// Coarfa et al. 2006, section 2.3.8: where the server does not take the session, a full handshake follows.
#[test]
fn a_fast_resumption_becomes_a_full_handshake_where_the_session_is_not_taken() {
    for kind in ServerName::configured() {
        check_fast_resumption(kind, Suite::Tls13Aes128Gcm, true);
        check_fast_resumption(kind, Suite::EcdheEcdsaAes128Gcm, false);
    }
}

/// Skeletons, real handshakes and skeletons again in the same processes: each mode takes its own clients and no others.
#[test]
fn servers_take_every_mode_without_a_restart() {
    let full = Script { flights: vec![243, 1363, 80, 510], ready_after: 3 };
    let resumed = Script { flights: vec![514, 241, 80, 255], ready_after: 3 };
    let skeleton = off(&[Stage::Handshake, Stage::Marshalling]);
    let fast = skeleton.with(Stage::RoundTrip);
    let place = place();
    for kind in ServerName::configured() {
        let settings = ShimSettings {
            full_script: Some(full.clone()),
            resumed_script: Some(resumed.clone()),
            ..ShimSettings::new(fast, Version::Tls13)
        };
        let stand = Stand::start(&place, kind, &settings, TOGETHER as u32);
        let processes = stand.server.worker_pids();
        for round in 1..=2 {
            for (mode, resumed_kind) in [(skeleton, 1), (fast, 2)] {
                stand.injection.set_mode(mode).unwrap();
                skeletons_at_once(&stand, [&full, &resumed], resumed_kind, 2);
                refuses_others(&stand);
            }
            stand.injection.set_mode(StageSet::NONE).unwrap();
            assert!(!fetch(&stand.server, &[]), "{}", stand.name);
            let counters = stand.counters();
            let half = TOGETHER as u64 / 2 * round;
            let get = |name| counters.get(name).unwrap();
            assert_eq!((get("skeleton_resumed"), get("skeleton_fast")), (half, half), "{}: {counters}", stand.name);
            assert_eq!((get("skeleton_full"), get("full_handshakes")), (2 * half, round), "{counters}");
        }
        // Prefork starts and ends processes as it likes.
        assert!(kind == ServerName::ApachePrefork || stand.server.worker_pids() == processes, "{}", stand.name);
        let error = stand.injection.set_mode(off(&[Stage::Setup])).unwrap_err().to_string();
        assert!(error.contains("`setup`"), "{error}");
        stand.end();
    }
}

/// An idle shim changes nothing that a client sees, and counts what it sees.
#[test]
fn idle_it_only_counts() {
    let place = place();
    for kind in ServerName::configured() {
        let settings = ShimSettings { time_stamps: true, ..ShimSettings::new(StageSet::NONE, Version::Tls13) };
        let stand = Stand::start(&place, kind, &settings, FEW);
        let session = stand.server.directory.join("client-session");
        assert!(!fetch(&stand.server, &["-sess_out", session.to_str().unwrap()]));
        resume(&stand, &session, 1);
        let counters = stand.counters();
        assert_eq!(counters.get("full_handshakes"), Some(1), "{}: {counters}", stand.name);
        assert_eq!(counters.get("resumed_handshakes"), Some(1), "{}: {counters}", stand.name);
        let stamps = stand.injection.time_stamps().unwrap();
        assert_eq!(
            stamps.iter().map(|stamp| stamp.kind).collect::<Vec<_>>(),
            ["full_handshakes", "resumed_handshakes"]
        );
        for stamp in stamps {
            assert!(stamp.steps.len() > 5 && stamp.bytes_sent > 200 && stamp.bytes_received > 200, "{stamp:?}");
            assert!(stamp.steps.is_sorted_by_key(|step| (step.after_ns, step.cpu_ns)), "{stamp:?}");
        }
        stand.end();
    }
}
