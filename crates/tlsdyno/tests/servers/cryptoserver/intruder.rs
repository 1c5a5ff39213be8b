//! What a cryptoserver gives to strangers, and to agents that ask for more than handshakes; services that stand still.

use std::io::ErrorKind;

use openssl::ssl::{SslFiletype, SslStream, SslVerifyMode};
use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams};
use rustix::process::Signal;
use tlsdyno_cryptoserver::form;
use tlsdyno_cryptoserver::frame::{Answer, KeyId, Operation, Request, Status, first};
use tlsdyno_cryptoserver::identity::PROTOCOL;
use tlsdyno_cryptoserver::keys::id_of;

use super::*;
use crate::place::eventually;

/// Nobody waits longer for the service.
const PATIENCE: Duration = Duration::from_secs(20);

/// How somebody connects to a service.
struct Caller<'a> {
    /// Whose certificate it has.
    identity: Option<&'a str>,
    protocol: &'a [u8],
    version: SslVersion,
}

const AGENT: Caller = Caller { identity: Some("agent"), protocol: PROTOCOL, version: TLS13 };

impl Caller<'_> {
    fn connect(&self, site: &Site, service: SocketAddr) -> Option<SslStream<TcpStream>> {
        let mut connector = SslConnector::builder(SslMethod::tls_client()).unwrap();
        // Who the service is matters to agents.
        connector.set_verify(SslVerifyMode::NONE);
        connector.set_max_proto_version(Some(self.version)).unwrap();
        let protocol = [&[self.protocol.len() as u8][..], self.protocol].concat();
        if !self.protocol.is_empty() {
            connector.set_alpn_protos(&protocol).unwrap();
        }
        if let Some(identity) = self.identity {
            connector.set_certificate_file(site.path(&format!("{identity}.pem")), SslFiletype::PEM).unwrap();
            connector.set_private_key_file(site.path(&format!("{identity}.key")), SslFiletype::PEM).unwrap();
        }
        let stream = TcpStream::connect(service).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        connector.build().connect("127.0.0.1", stream).ok()
    }

    /// Whether the service answers at all.
    fn is_answered(&self, site: &Site, service: SocketAddr) -> bool {
        let asked = [ask(&[0; 16], Operation::Sign, 0x0804, b"")];
        self.connect(site, service).is_some_and(|mut link| answers(&mut link, &asked).is_some())
    }
}

fn ask(key: &KeyId, operation: Operation, detail: u16, message: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    Request { tag: 7, operation, key: *key, detail, message }.encode(&mut frame);
    frame
}

/// How each request ended; `None`: the connection has.
fn answers(link: &mut SslStream<TcpStream>, asked: &[Vec<u8>]) -> Option<Vec<Status>> {
    link.write_all(&asked.concat()).ok()?;
    let (mut input, mut ended) = (Vec::new(), Vec::new());
    while ended.len() < asked.len() {
        let mut buffer = [0; 4096];
        let read = link.read(&mut buffer);
        assert!(read.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::WouldBlock), "nobody answers");
        input.extend_from_slice(&buffer[..read.ok().filter(|bytes| *bytes > 0)?]);
        while let Some((answer, bytes)) = first::<Answer>(&input).unwrap() {
            ended.push(answer.status);
            input.drain(..bytes);
        }
    }
    Some(ended)
}

fn key_of(site: &Site) -> KeyId {
    let pem = fs::read(&site.certificate.key).unwrap();
    id_of(&openssl::pkey::PKey::private_key_from_pem(&pem).unwrap()).unwrap()
}

#[test]
fn only_an_agent_of_the_authority_is_answered() {
    let site = Site::new(CertificateKind::P256);
    let other = Site::new(CertificateKind::P256);
    for end in ["pem", "key"] {
        fs::copy(other.path(&format!("agent.{end}")), site.path(&format!("stranger.{end}"))).unwrap();
    }
    let service = site.service(any_port(), &[]);
    let mut silent = TcpStream::connect(service.address).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let is_answered = |caller: Caller| caller.is_answered(&site, service.address);
    assert!(is_answered(AGENT));
    assert!(!is_answered(Caller { identity: None, ..AGENT }));
    assert!(!is_answered(Caller { identity: Some("stranger"), ..AGENT }), "another authority");
    assert!(!is_answered(Caller { protocol: b"h2", ..AGENT }));
    assert!(!is_answered(Caller { protocol: b"", ..AGENT }), "an authority may have other services");
    assert!(!is_answered(Caller { version: TLS12, ..AGENT }));
    assert_eq!(silent.read(&mut [0]).unwrap(), 0, "who says nothing is let go");
    assert!(is_answered(AGENT));
    let told = service.end();
    assert_eq!(told["not_let_in"], 6, "{told}");
}

#[test]
fn a_stolen_connection_gets_signatures_of_handshakes_and_nothing_else() {
    let site = Site::new(CertificateKind::Rsa2048);
    let service = site.service(any_port(), &[]);
    let (key, sign) = (key_of(&site), Operation::Sign);
    let texts: Vec<Vec<u8>> = form::examples().into_iter().map(|(message, _)| message).collect();
    let client = [&[b' '; 64][..], b"TLS 1.3, client CertificateVerify\0", &[7; 32]].concat();
    let asked = [
        (ask(&key, sign, 0x0804, &texts[0]), Status::Done),
        (ask(&key, sign, 0x0804, &texts[2]), Status::Done),
        (ask(&key, sign, 0x0804, &[7; 32]), Status::Refused),
        (ask(&key, sign, 0x0804, &client), Status::Refused),
        (ask(&key, sign, 0x0201, &texts[2]), Status::Refused),
        (ask(&key, sign, 0x0403, &texts[0]), Status::Refused),
        (ask(&key, Operation::Decrypt, 0x0303, &[1; 256]), Status::Refused),
        (ask(&[9; 16], sign, 0x0804, &texts[0]), Status::NoKey),
    ];
    let (frames, expected): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    let mut link = AGENT.connect(&site, service.address).unwrap();
    assert_eq!(answers(&mut link, &frames).unwrap(), expected);
    // Garbage ends its own connection.
    let mut other = AGENT.connect(&site, service.address).unwrap();
    assert_eq!(answers(&mut other, &[vec![0xff; 64]]), None);
    assert_eq!(answers(&mut link, &frames).unwrap(), expected);
}

/// The connection has ended.
fn is_ended(link: &mut SslStream<TcpStream>) -> bool {
    link.get_ref().set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    link.read(&mut [0]).is_ok_and(|bytes| bytes == 0) || link.get_ref().read(&mut [0]).is_ok_and(|bytes| bytes == 0)
}

#[test]
fn silent_strangers_keep_no_agent_out() {
    let site = Site::new(CertificateKind::P256);
    let service = site.service(any_port(), &["--max-connections", "8"]);
    let (address, is_over) = (service.address, AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(mut silent) = TcpStream::connect(address) else { continue };
                    let _ = silent.read(&mut [0]);
                }
            });
        }
        // An agent tries again, as on a busy machine strangers may come faster than its handshake goes on. What fails
        // in there must not keep the strangers going.
        let agents = scope.spawn(|| {
            (0..8).for_each(|_| eventually("an agent is answered", || AGENT.is_answered(&site, address)));
        });
        let agents = agents.join();
        is_over.store(true, Ordering::Relaxed);
        drop(service);
        agents.unwrap();
    });
}

#[test]
fn a_certificate_that_runs_out_ends_its_connection() {
    let site = Site::new(CertificateKind::P256);
    let service = site.service(any_port(), &[]);
    let asked = [ask(&[0; 16], Operation::Sign, 0x0804, b"")];
    let short = Caller { identity: Some("short"), ..AGENT };
    fs::copy(site.path("agent.key"), site.path("short.key")).unwrap();
    // On a busy machine the handshake may take longer than that.
    let mut link = [3, 10, 40].into_iter().find_map(|seconds| {
        site.certify("short", "agent", 7, Duration::from_secs(seconds));
        short.connect(&site, service.address).and_then(|mut link| answers(&mut link, &asked).map(|_| link))
    });
    assert!(is_ended(link.as_mut().unwrap()));
    assert!(!short.is_answered(&site, service.address));
    assert!(AGENT.is_answered(&site, service.address), "the same key with a certificate that holds");
}

#[test]
fn a_hangup_takes_certificates_authorities_and_revocation_lists_anew() {
    let site = Site::new(CertificateKind::P256);
    let revoke = |serials: &[u64]| {
        let (this_update, next_update) = (SystemTime::now().into(), (SystemTime::now() + PATIENCE).into());
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: this_update,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update,
            next_update,
            crl_number: 1u64.into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        fs::write(site.path("revoked.pem"), list.signed_by(&site.authority).unwrap().pem().unwrap()).unwrap();
    };
    revoke(&[]);
    let service = site.service(any_port(), &["--crl", "revoked.pem"]);
    let agent = site.agent(&[service.address]);
    let server = site.web_server(ServerName::Nginx, false);
    let visit = || site.visit(server.address(), TLS13, None);
    visit().unwrap();
    let mut link = AGENT.connect(&site, service.address).unwrap();
    let other = Caller { identity: Some("service"), ..AGENT };
    let mut others = other.connect(&site, service.address).unwrap();

    // The agent and the service get new certificates for their keys, and the agent's old one is revoked.
    site.certify("new", "agent", 8, Duration::from_secs(3600));
    fs::copy(site.path("agent.pem"), site.path("old.pem")).unwrap();
    fs::rename(site.path("new.pem"), site.path("agent.pem")).unwrap();
    site.certify("service", "service", 9, Duration::from_secs(3600));
    revoke(&[2]);
    place::signal(agent.process.id(), Signal::HUP);
    place::signal(service.process.id(), Signal::HUP);
    assert!(is_ended(&mut link));
    let asked = [ask(&[0; 16], Operation::Sign, 0x0804, b"")];
    assert!(answers(&mut others, &asked).is_some(), "the other certificate is not revoked");
    let link = AGENT.connect(&site, service.address).unwrap();
    let serial = link.ssl().peer_certificate().unwrap().serial_number().to_bn().unwrap();
    assert_eq!(serial.to_dec_str().unwrap().to_string(), "9");
    fs::copy(site.path("agent.key"), site.path("old.key")).unwrap();
    assert!(!Caller { identity: Some("old"), ..AGENT }.is_answered(&site, service.address));
    eventually("the agent has its new certificate", || visit().is_ok());

    // Files that are wrong change nothing.
    fs::write(site.path("revoked.pem"), "no list").unwrap();
    place::signal(service.process.id(), Signal::HUP);
    assert!(AGENT.is_answered(&site, service.address));
    // No authority, no agent.
    revoke(&[]);
    let stranger = Site::new(CertificateKind::P256);
    fs::copy(stranger.path("links-ca.pem"), site.path("links-ca.pem")).unwrap();
    place::signal(service.process.id(), Signal::HUP);
    assert!(is_ended(&mut others));
    server.stop().unwrap();
    drop(agent);
}

#[test]
fn limits_hold_for_a_key_and_strangers_take_nobodys_place() {
    let site = Site::new(CertificateKind::P256);
    site.certify("again", "agent", 7, Duration::from_secs(3600));
    fs::copy(site.path("agent.key"), site.path("again.key")).unwrap();
    let again = Caller { identity: Some("again"), ..AGENT };
    let service = site.service(any_port(), &["--rate", "1", "--max-connections", "8"]);
    let strangers: Vec<TcpStream> = (0..6).map(|_| TcpStream::connect(service.address).unwrap()).collect();
    let nothing = ask(&[0; 16], Operation::Sign, 0x0804, b"");
    let mut links = [&AGENT, &again].map(|one| one.connect(&site, service.address).unwrap());
    let (began, asked) = (Instant::now(), vec![nothing; 20]);
    let ended = links.iter_mut().flat_map(|link| answers(link, &asked).unwrap());
    let granted = ended.filter(|status| *status == Status::NoKey).count();
    let most = 1 + began.elapsed().as_secs() as usize;
    assert!((1..=most).contains(&granted), "{granted}: the rate is the key's, not a certificate's or connection's");
    assert!(!again.is_answered(&site, service.address), "a key has a quarter of eight");
    assert!(
        Caller { identity: Some("service"), ..AGENT }.is_answered(&site, service.address),
        "another one has its own"
    );
    drop(links);
    eventually("its places are free again", || AGENT.is_answered(&site, service.address));
    drop(strangers);
}

#[test]
fn a_service_that_stands_still_is_left_for_the_next_and_found_again() {
    let site = Site::new(CertificateKind::P256);
    let (first, second) = (site.service(any_port(), &[]), site.service(any_port(), &[]));
    let agent = site.agent(&[first.address, second.address]);
    let server = site.web_server(ServerName::Nginx, false);
    let visit = || site.visit(server.address(), TLS13, None);
    visit().unwrap();
    place::signal(first.process.id(), Signal::STOP);
    // One request at a time: the service has four links, and none of them answers.
    for _ in 0..3 {
        visit().unwrap();
    }
    place::signal(first.process.id(), Signal::CONT);
    drop(second);
    eventually("the first one is found again", || visit().is_ok());
    server.stop().unwrap();
    assert!(first.end()["signatures"].as_u64() >= Some(2));
    drop(agent);
}

#[test]
fn a_service_of_another_name_is_not_trusted_and_the_log_says_so() {
    let site = Site::new(CertificateKind::P256);
    let service = site.service(any_port(), &[]);
    let named = format!("localhost:{}", service.address.port());
    let arguments = ["agent", "--socket", "keys.sock", "--socket-mode", "666", "--server-ca", "links-ca.pem"];
    let agent = site.start(&[&arguments[..], &["--to", &named]].concat(), "agent");
    eventually("the agent listens", || site.path("keys.sock").exists());
    let server = site.web_server(ServerName::Nginx, false);
    site.visit(server.address(), TLS13, None).unwrap_err();
    let log = || fs::read_to_string(server.directory.join("error.log")).unwrap();
    eventually("the log says why", || log().contains("not valid for name"));
    server.stop().unwrap();
    drop((agent, service));
}
