//! Stock servers whose stages are doubled while OpenSSL's client, curl and our own ask them, over flips every 20 ms, a
//! reload, and the owner's end.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tlsdyno::exchange::exchange;
use tlsdyno::model::{CertificateKind, ServerName, Tls};
use tlsdyno::native::layout::doubler as layout;
use tlsdyno::native::{Doubled, Doubling};
use tlsdyno::run::credentials::Credentials;
use tlsdyno::servers::{self, Instance, ServerSpec, ServerTls};
use tlsdyno_tls::{Config, Effort, Settings, Stage, StageSet, Suite, Version};

use crate::place::{Place, eventually, fetch_twice_with_one_session};

const BODY_BYTES: usize = 100_000;
const REQUEST: &[u8] = b"GET /body.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Every kind of record protection and of key exchange.
const SUITES: [(Version, Suite); 7] = [
    (Version::Tls13, Suite::Tls13Aes256Gcm),
    (Version::Tls13, Suite::Tls13ChaCha20),
    (Version::Tls12, Suite::EcdheRsaAes128Gcm),
    (Version::Tls12, Suite::EcdheRsaChaCha20),
    (Version::Tls12, Suite::EcdheRsaAes128Sha),
    (Version::Tls12, Suite::RsaAes128Gcm),
    (Version::Tls12, Suite::RsaAes128Sha),
];

fn body() -> Vec<u8> {
    (0..BODY_BYTES).map(|at| (at % 251 + at / 977) as u8).collect()
}

struct Stand {
    server: Instance,
    doubling: Option<Doubling>,
    credentials: Credentials,
    name: String,
}

impl Stand {
    fn start(place: &Place, kind: ServerName) -> Stand {
        let own = place.directory.path().join(format!("doubler-{kind:?}"));
        servers::run_directory::make_private(&own).unwrap();
        fs::write(place.docroot().join("body.bin"), body()).unwrap();
        let doubling = Doubling::prepare(&own).unwrap();
        let credentials = Credentials::create(CertificateKind::Rsa2048, place.directory.path()).unwrap();
        let tls = ServerTls {
            suites: SUITES.iter().map(|(_, suite)| *suite).collect(),
            ..ServerTls::new(credentials.files.clone())
        };
        let workers = if matches!(kind, ServerName::Nginx) { 2 } else { 1 };
        let spec =
            ServerSpec { tls: Some(tls), handed: doubling.handed(), workers, connections: 8, ..place.spec(kind) };
        let server = place.start(&spec).unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
        let stand = Stand { server, doubling: Some(doubling), credentials, name: format!("{kind:?}") };
        stand.require_mapped();
        stand
    }

    fn doubling(&self) -> &Doubling {
        self.doubling.as_ref().expect("it is there until its owner ends")
    }

    fn require_mapped(&self) {
        let library = self.doubling().library_path();
        eventually("it is mapped in every worker", || {
            servers::require_mapped(&self.server.worker_pids(), library).is_ok()
        });
    }

    fn reload(&mut self) {
        self.server.reload().unwrap_or_else(|error| panic!("{}: {error:#}", self.name));
    }
}

/// The whole body, by our own client, which checks certificates and signatures, with a session of the first connection
/// for a second one.
fn ask_with_own_client(stand: &Stand, version: Version, suite: Suite) {
    let settings = stand.credentials.client_settings(&Tls::default(), Effort::Honest);
    let settings = Settings { versions: vec![version], suites: vec![suite], ..settings };
    let config = Arc::new(Config::new(settings).unwrap());
    let ask = |session| {
        let answer = exchange(stand.server.address(), Some(&config), session, REQUEST)
            .unwrap_or_else(|error| panic!("{}, {suite:?}: {error}", stand.name));
        assert_eq!((answer.status, answer.body() == body()), (200, true), "{}, {suite:?}", stand.name);
        answer
    };
    let first = ask(None);
    assert!(!first.is_resumed(), "{}, {suite:?}", stand.name);
    let session = first.sessions.into_iter().next().unwrap_or_else(|| panic!("{}, {suite:?}: none", stand.name));
    assert!(ask(Some(session)).is_resumed(), "{}, {suite:?}: a session that is not resumed", stand.name);
}

fn ask_with_curl(stand: &Stand, version: &str) {
    let address = stand.server.address();
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--insecure", version, "--tls-max", &version[version.len() - 3..]])
        .arg(format!("https://{address}/body.bin"))
        .stdin(Stdio::null())
        .output()
        .expect("curl is not installed; Debian: apt install curl");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == body(), "{}, curl {version}: {said}", stand.name);
}

fn ask_with_everything(stand: &Stand) {
    for (version, suite) in SUITES {
        ask_with_own_client(stand, version, suite);
    }
    for version in ["--tlsv1.2", "--tlsv1.3"] {
        ask_with_curl(stand, version);
    }
    assert!(fetch_twice_with_one_session(&stand.server, "-tls1_2"), "{}: not resumed", stand.name);
}

/// Modes, of which every one can be followed by every other.
fn modes() -> Vec<Doubled> {
    let records = StageSet::NONE.with(Stage::Cipher).with(Stage::Mac);
    let single = Stage::PROVIDER.map(|stage| Doubled::stages(StageSet::NONE.with(stage)));
    let copies = Doubled { copies: true, ..Doubled::NOTHING };
    let all = [Doubled::NOTHING, Doubled::stages(StageSet::PROVIDER), Doubled::stages(records), copies];
    all.into_iter().chain(single).collect()
}

/// Works while the mode changes every 20 ms.
fn over_flips(doubling: &Doubling, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flips = scope.spawn(|| {
            for mode in modes().iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                doubling.set_mode(*mode).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        // Also where the work fails, for the scope waits.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        flips.join().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// All that was doubled, read from the area itself, which outlives its owner here.
fn all_doubled(area: &File) -> u64 {
    let mut bytes = vec![0; layout::AREA.size - layout::AREA.slots_at];
    area.read_exact_at(&mut bytes, layout::AREA.slots_at as u64).unwrap();
    let numbers = bytes.chunks_exact(8).map(|number| u64::from_ne_bytes(number.try_into().unwrap()));
    numbers.enumerate().filter(|(at, _)| at / layout::SLOT_COUNTERS % 2 == 1).map(|(_, number)| number).sum()
}

/// The owner ends in the middle of requests: none fails, and after a second nothing is doubled.
fn owner_ends(stand: &mut Stand) {
    let area = File::open(stand.doubling().area_path()).unwrap();
    stand.doubling().set_mode(Doubled::stages(StageSet::PROVIDER)).unwrap();
    ask_with_own_client(stand, Version::Tls13, Suite::Tls13Aes256Gcm);
    let before = all_doubled(&area);
    assert!(before > 0);
    stand.doubling = None;
    let end = Instant::now() + Duration::from_millis(1200);
    while Instant::now() < end {
        ask_with_own_client(stand, Version::Tls12, Suite::EcdheRsaAes128Gcm);
    }
    let after = all_doubled(&area);
    ask_with_everything(stand);
    assert_eq!(all_doubled(&area), after, "{}: still doubling", stand.name);
}

fn check(kind: ServerName) {
    let place = Place::new();
    let mut stand = Stand::start(&place, kind);
    over_flips(stand.doubling(), || ask_with_everything(&stand));
    stand.reload();
    stand.require_mapped();
    over_flips(stand.doubling(), || ask_with_everything(&stand));

    // With everything doubled each full handshake is one signature or decryption, and a second one.
    let before = stand.doubling().counters().unwrap();
    stand.doubling().set_mode(Doubled::stages(StageSet::PROVIDER)).unwrap();
    ask_with_everything(&stand);
    let counters = stand.doubling().counters().unwrap() - before;
    let full = SUITES.len() as u64 + 3;
    let of = |name| counters.get(name).unwrap();
    let ([signed, signed_twice], [decrypted, decrypted_twice]) = (of("sign"), of("rsa_decrypt"));
    assert_eq!((signed + decrypted, signed, decrypted), (full, signed_twice, decrypted_twice), "{counters}");
    for stage in Stage::PROVIDER {
        assert!(counters.doubled(stage) > 0, "{}, {stage}: {counters}", stand.name);
    }
    assert_eq!((counters.event("lost"), stand.doubling().modes_ignored().unwrap()), (0, 0), "{counters}");
    stand.doubling().set_mode(Doubled { copies: true, ..Doubled::NOTHING }).unwrap();
    ask_with_everything(&stand);
    assert!(stand.doubling().counters().unwrap().event("copies") > 0);

    owner_ends(&mut stand);
    stand.reload();
    ask_with_everything(&stand);
    assert_eq!(stand.server.error_log_alarms(), Vec::<String>::new(), "{}", stand.name);
    stand.server.stop().unwrap();
}

#[test]
fn nginx() {
    check(ServerName::Nginx);
}

mod long {
    use super::*;

    #[test]
    #[ignore = "every server: make test-long"]
    fn apache() {
        check(ServerName::ApacheEvent);
    }

    #[test]
    #[ignore = "every server: make test-long"]
    fn haproxy() {
        check(ServerName::Haproxy);
    }

    #[test]
    #[ignore = "every server: make test-long"]
    fn lighttpd() {
        check(ServerName::Lighttpd);
    }
}
