//! The lean client against libssl with the provider: both ends with the same stages off understand each other in every
//! version, suite and kind of session; ends with different stages off never complete a handshake where a stage shows on
//! the wire.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tempfile::TempDir;
use tlsdyno::native::Injection;
use tlsdyno_tls::suite::{KeyExchange, Protection};
use tlsdyno_tls::{
    Client, Config, Effort, Entropy, Group, Receiver, Session, SessionKind, Settings, Stage, StageSet, Suite, Version,
};

const NAME: &str = "server.example";
/// 2027-01-15.
const NOW_UNIX_S: u64 = 1_800_000_000;

struct Identity {
    certificate_der: Vec<u8>,
    certificate_pem: String,
    key_pem: String,
}

impl Identity {
    fn new(algorithm: &'static rcgen::SignatureAlgorithm) -> Identity {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let certificate = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
        Identity {
            certificate_der: certificate.der().to_vec(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }
}

static RSA: LazyLock<Identity> = LazyLock::new(|| Identity::new(&rcgen::PKCS_RSA_SHA256));
static P256: LazyLock<Identity> = LazyLock::new(|| Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256));

/// `openssl s_server` with an RSA and an ECDSA certificate and every suite; ends with this value.
struct Server {
    child: Child,
    address: String,
    /// Its heartbeat ends with it.
    _injection: Option<Injection>,
    /// Injection and certificates.
    _directory: TempDir,
}

impl Server {
    /// A server with these stages off; `None`: without the provider.
    fn start(off: Option<StageSet>, arguments: &[&str]) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let injection = off.map(|off| Injection::prepare(directory.path(), off).unwrap());
        let environment = injection.as_ref().map(|injection| injection.let_children_inherit().unwrap());
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-www", "-cipher", "ALL:@SECLEVEL=0"])
            .args(["-ciphersuites", "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"])
            .arg("-cert")
            .arg(write("rsa.pem", &RSA.certificate_pem))
            .arg("-key")
            .arg(write("rsa.key", &RSA.key_pem))
            .arg("-dcert")
            .arg(write("ec.pem", &P256.certificate_pem))
            .arg("-dkey")
            .arg(write("ec.key", &P256.key_pem))
            .args(arguments)
            .env_remove("OPENSSL_CONF")
            .envs(environment.unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("this test needs the program openssl: install the package openssl");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address =
            lines.by_ref().map_while(Result::ok).find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned));
        // Nobody reads on, and the server must not wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, address: address.expect("the server listens"), _injection: injection, _directory: directory }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Random;

impl Entropy for Random {
    fn fill(&mut self, bytes: &mut [u8]) {
        openssl::rand::rand_bytes(bytes).unwrap();
    }
}

#[derive(Default)]
struct Taken {
    page: Vec<u8>,
    session: Option<Session>,
}

impl Receiver for Taken {
    fn plaintext(&mut self, bytes: &[u8]) {
        self.page.extend_from_slice(bytes);
    }

    fn session(&mut self, session: Session) {
        self.session = Some(session);
    }
}

/// A page got over a connection of its own.
#[derive(Debug)]
struct Page {
    session: Option<Session>,
    resumed: Option<SessionKind>,
}

/// Gets the page; `Err` says why the handshake did not complete, or the page did not come.
fn get(server: &Server, config: &Arc<Config>, session: Option<Session>) -> Result<Page, String> {
    let mut stream = TcpStream::connect(&server.address).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (mut out, mut taken, mut requested) = (Vec::new(), Taken::default(), false);
    let mut client = Client::new(config, session, &mut Random, 1_000, &mut out);
    let mut buffer = [0; 20_000];
    loop {
        if client.is_connected() && !requested {
            requested = true;
            client.send(b"GET / HTTP/1.0\r\n\r\n", &mut out).unwrap();
        }
        // A server that refused the handshake may be gone.
        let sent = stream.write_all(&std::mem::take(&mut out));
        if client.peer_closed() && requested {
            break;
        }
        let length = match stream.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("both ends wait: {:?}", config.settings())
            }
            result => sent.and(result).map_err(|error| error.to_string())?,
        };
        if length == 0 {
            client.end_of_input().map_err(|error| error.to_string())?;
            break;
        }
        let received = client.receive(&mut buffer[..length], 1_000, &mut Random, &mut out, &mut taken);
        if let Err(error) = received {
            // The server may already have closed: then the alert has nobody to reach.
            let _ = stream.write_all(&out);
            return Err(error.to_string());
        }
    }
    let page = String::from_utf8_lossy(&taken.page);
    if !(page.starts_with("HTTP/1.0 200 ok") && page.to_lowercase().contains("</html>")) {
        return Err(format!("not the page: {page}"));
    }
    Ok(Page { session: taken.session, resumed: client.handshake().and_then(|handshake| handshake.resumed) })
}

fn settings(suite: Suite, group: Group, off: StageSet, effort: Effort) -> Settings {
    // libssl wants an ECDSA certificate's curve among the groups in TLS 1.2.
    let groups = if group == Group::P256 { vec![group] } else { vec![group, Group::P256] };
    Settings {
        suites: vec![suite],
        groups,
        server_name: Some(NAME.to_owned()),
        effort,
        stages_off: off,
        trust_anchors: vec![RSA.certificate_der.clone(), P256.certificate_der.clone()],
        now_unix_s: NOW_UNIX_S,
        ..Settings::default()
    }
}

/// Settings for every suite, CBC suites with and without encrypt-then-MAC (libssl's separate and stitched
/// implementations); the groups take turns.
fn every_suite(off: StageSet, effort: Effort) -> Vec<(Suite, Settings)> {
    let mut all = Vec::new();
    for (index, &suite) in Suite::ALL.iter().enumerate() {
        let group = Group::CURVES[index % 3];
        let cbc =
            !matches!(suite.protection(), Protection::Aes128Gcm | Protection::Aes256Gcm | Protection::ChaCha20Poly1305);
        for encrypt_then_mac in if cbc { &[true, false][..] } else { &[true] } {
            let encrypt_then_mac = *encrypt_then_mac;
            all.push((suite, Settings { encrypt_then_mac, ..settings(suite, group, off, effort) }));
        }
    }
    all
}

/// Nothing, each stage alone, the two halves of record protection, all but each, and all.
fn stage_sets() -> Vec<StageSet> {
    let mut sets = vec![StageSet::NONE, [Stage::Cipher, Stage::Mac].into_iter().collect(), StageSet::PROVIDER];
    for stage in Stage::PROVIDER {
        sets.push(StageSet::NONE.with(stage));
        sets.push(StageSet::PROVIDER.without(stage));
    }
    sets
}

/// Full, then resumed twice by what the server issued.
fn full_and_resumed(server: &Server, suite: Suite, settings: Settings, ticket: bool) {
    let said = format!("{suite} with {} off, etm {}", settings.stages_off, settings.encrypt_then_mac);
    let config = Arc::new(Config::new(settings).unwrap());
    let full = get(server, &config, None).unwrap_or_else(|error| panic!("{said}: {error}"));
    assert_eq!(full.resumed, None);
    let kind = match (suite.version(), ticket) {
        (Version::Tls13, _) => SessionKind::Tls13Psk,
        (Version::Tls12, true) => SessionKind::Tls12Ticket,
        (Version::Tls12, false) => SessionKind::Tls12Id,
    };
    let session = full.session.expect("the server issues sessions");
    let resumed = get(server, &config, Some(session)).unwrap_or_else(|error| panic!("{said}, resuming: {error}"));
    assert_eq!(resumed.resumed, Some(kind), "{said}");
}

fn matching_ends_understand_each_other(off: StageSet, ticket: bool) {
    let server = Server::start(Some(off), if ticket { &[] } else { &["-no_ticket"] });
    for (suite, settings) in every_suite(off, Effort::Honest) {
        full_and_resumed(&server, suite, settings, ticket);
    }
}

/// Tickets and session IDs take turns.
#[test]
fn matching_ends_understand_each_other_with_every_suite_full_and_resumed() {
    for (index, off) in stage_sets().into_iter().enumerate() {
        matching_ends_understand_each_other(off, index % 2 == 0);
    }
}

#[test]
fn matching_ends_understand_each_other_at_lower_efforts() {
    for off in [StageSet::NONE, StageSet::PROVIDER, StageSet::PROVIDER.without(Stage::KeyAgreement)] {
        let server = Server::start(Some(off), &[]);
        for effort in [Effort::Lean, Effort::Floor] {
            for (suite, settings) in every_suite(off, effort) {
                full_and_resumed(&server, suite, settings, true);
            }
        }
    }
}

/// Whether it shows on the wire of this suite's full handshake that only one end, the server or the client, has `stage`
/// off, while `others` are off at both. Clients of every effort must then notice.
fn shows(stage: Stage, suite: Suite, others: StageSet, off_at_server: bool) -> bool {
    let secrets_do_not_matter = others.contains(Stage::Kdf);
    match stage {
        Stage::KeyAgreement => suite.key_exchange() != KeyExchange::Rsa && !secrets_do_not_matter,
        // The no-op refuses a pre-master secret not of its form; real RSA replaces one by random bytes (RFC 5246
        // section 7.4.7.1).
        Stage::Authentication => suite.key_exchange() != KeyExchange::Rsa || off_at_server || !secrets_do_not_matter,
        // The transcript only goes into keys, the Finished and, in TLS 1.3, into the signature.
        Stage::Digest => !secrets_do_not_matter,
        other => other.shows(),
    }
}

/// `efforts`: which the client makes with the suite in that place.
fn ends_that_differ_never_complete_a_handshake(efforts: impl Fn(usize) -> Vec<Effort>) {
    for stage in Stage::PROVIDER {
        let alone = StageSet::NONE.with(stage);
        let others = StageSet::PROVIDER.without(stage);
        for (at_server, at_client, others) in [
            (Some(alone), StageSet::NONE, StageSet::NONE),
            (None, alone, StageSet::NONE),
            (Some(StageSet::PROVIDER), others, others),
            (Some(others), StageSet::PROVIDER, others),
        ] {
            let server = Server::start(at_server, &[]);
            for (index, (suite, settings)) in every_suite(at_client, Effort::Honest).into_iter().enumerate() {
                for effort in efforts(index) {
                    let settings = Settings { effort, ..settings.clone() };
                    let result = get(&server, &Arc::new(Config::new(settings).unwrap()), None);
                    let said = format!("{suite} at effort {effort}, server {at_server:?}, client {at_client}");
                    let off_at_server = at_server.is_some_and(|off| off.contains(stage));
                    assert_eq!(result.is_ok(), !shows(stage, suite, others, off_at_server), "{said}: {result:?}");
                }
            }
        }
    }
}

/// The efforts take turns.
#[test]
fn ends_that_differ_in_one_stage_never_complete_a_handshake() {
    ends_that_differ_never_complete_a_handshake(|index| vec![Effort::ALL[index % Effort::ALL.len()]]);
}

mod long {
    use super::*;

    #[test]
    #[ignore = "every effort with every suite: make test-long"]
    fn ends_that_differ_in_one_stage_never_complete_a_handshake_at_any_effort() {
        ends_that_differ_never_complete_a_handshake(|_| Effort::ALL.to_vec());
    }

    #[test]
    #[ignore = "every stage set with both kinds of session: make test-long"]
    fn matching_ends_understand_each_other_with_the_other_kind_of_session() {
        for (index, off) in stage_sets().into_iter().enumerate() {
            matching_ends_understand_each_other(off, index % 2 == 1);
        }
    }
}
