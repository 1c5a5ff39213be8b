//! Real TLS clients (rustls), each with sessions of its own, that load a site all the time and check the SHA-256 of
//! everything they get.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, SignatureScheme, StreamOwned,
};
use tlsdyno_wire::session_keys::{ClientReader, SessionKeys};

use super::bytes::{Digest, digest};
use super::support::{PATIENCE, noise};
use crate::place::eventually;

/// Something that every server of these tests has.
#[derive(Debug)]
pub struct Object {
    pub path: &'static str,
    pub content: Vec<u8>,
}

/// Fits one read.
pub static SMALL: LazyLock<Object> = LazyLock::new(|| Object { path: "/1k.bin", content: [b'x'; 1024].to_vec() });
/// Is spliced.
pub static LARGE: LazyLock<Object> = LazyLock::new(|| Object { path: "/300k.bin", content: noise(300, 300_000) });

/// Name of a ticket's key.
pub type KeyName = [u8; 16];

/// One connection that was served to its end.
#[derive(Clone, Debug)]
pub struct Visit {
    pub began: Instant,
    pub ended: Instant,
    /// A TLS 1.3 session was offered.
    pub offered: bool,
    /// The key of its ticket, where that has a name.
    pub key: Option<KeyName>,
    /// It was taken.
    pub resumed: bool,
    /// Whose certificate that was; of a resumed session, that of the handshake it goes back to.
    pub server: Digest,
}

/// A client.
pub struct Member {
    dispatcher: SocketAddr,
    from: Ipv4Addr,
    config: Arc<ClientConfig>,
}

impl Member {
    /// One with this address.
    pub fn new(dispatcher: SocketAddr, from: Ipv4Addr) -> Member {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Arc::new(OfAnybody(Arc::clone(&provider)));
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.resumption = Resumption::in_memory_sessions(8);
        Member { dispatcher, from, config: Arc::new(config) }
    }

    /// Connects and says hello; answers the connection and what is offered.
    pub fn begin(&self) -> std::io::Result<(StreamOwned<ClientConnection, TcpStream>, SessionKeys)> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((self.from, 0)).into())?;
        socket.connect(&self.dispatcher.into())?;
        let mut socket = TcpStream::from(socket);
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let (mut tls, hello) = self.hello();
        let keys = ClientReader::new(16_384).read(&hello).unwrap().expect("a whole hello");
        socket.write_all(&hello)?;
        tls.set_buffer_limit(None);
        Ok((StreamOwned::new(tls, socket), keys))
    }

    /// A connection that has not been made, and its hello.
    pub fn hello(&self) -> (ClientConnection, Vec<u8>) {
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).unwrap();
        (tls, hello)
    }

    /// Gets an object over a connection of its own. Fails where the connection is cut; what came until then is what it
    /// should be.
    pub fn get(&self, object: &Object) -> std::io::Result<Visit> {
        let began = Instant::now();
        let (mut stream, keys) = self.begin().map_err(not_stuck)?;
        ask(&mut stream, object).map_err(not_stuck)?;
        let stream = receive(stream, object).map_err(not_stuck)?;
        let certificates = stream.conn.peer_certificates().unwrap();
        Ok(Visit {
            began,
            ended: Instant::now(),
            offered: keys.identities_offered > 0,
            key: keys.identities().first().and_then(|ticket| ticket.key_name().copied()),
            resumed: stream.conn.handshake_kind() == Some(HandshakeKind::Resumed),
            server: digest(&certificates[0]),
        })
    }
}

/// Sends the request.
pub fn ask(stream: &mut StreamOwned<ClientConnection, TcpStream>, object: &Object) -> std::io::Result<()> {
    write!(stream, "GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", object.path)
}

/// Takes the answer and checks it.
pub fn receive(
    stream: StreamOwned<ClientConnection, TcpStream>,
    object: &Object,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), None);
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        length = length.or_else(|| line.to_ascii_lowercase().strip_prefix("content-length: ")?.trim().parse().ok());
    }
    assert_eq!(length, Some(object.content.len()), "{}", object.path);
    let mut body = Vec::new();
    let outcome = reader.by_ref().take(object.content.len() as u64).read_to_end(&mut body);
    assert_eq!(digest(&body), digest(&object.content[..body.len()]), "{} bytes of {}", body.len(), object.path);
    outcome?;
    if body.len() < object.content.len() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    // Up to the end, so that closing resets nothing. A server that has seen the client's end already says no goodbye.
    match reader.read(&mut [0]) {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error),
        more => {
            assert!(!matches!(more, Ok(1..)), "there is more than was announced");
            Ok(reader.into_inner())
        }
    }
}

/// A connection may be cut, but it must not hang.
fn not_stuck(error: std::io::Error) -> std::io::Error {
    assert!(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "a connection is stuck: {error}");
    error
}

/// Takes anybody's certificate, and checks that they have its key.
#[derive(Debug)]
struct OfAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for OfAnybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer,
        _: &[CertificateDer],
        _: &ServerName,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What clients have met.
#[derive(Debug, Default)]
pub struct Tally {
    pub visits: Vec<Visit>,
    pub cut: Vec<std::io::Error>,
}

impl Tally {
    pub fn offered(&self) -> usize {
        self.visits.iter().filter(|visit| visit.offered).count()
    }

    pub fn resumed(&self) -> usize {
        self.visits.iter().filter(|visit| visit.resumed).count()
    }
}

/// Several clients, each getting one object after the other until told to stop. Every eighth object is large; every
/// tenth time the client is one that was never there before, and goes wherever the dispatcher wants.
pub struct Crowd {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    members: Vec<JoinHandle<Tally>>,
}

impl Crowd {
    /// So many, all with one address.
    pub fn start(dispatcher: SocketAddr, members: usize) -> Crowd {
        Crowd::start_from(dispatcher, members, |_| Ipv4Addr::LOCALHOST, &LARGE)
    }

    /// With these addresses; every eighth object is this one.
    pub fn start_from(
        dispatcher: SocketAddr,
        members: usize,
        from: impl Fn(u8) -> Ipv4Addr,
        eighth: &'static Object,
    ) -> Crowd {
        let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let member = |number: usize| {
            let from = from(number as u8);
            let (stop, served) = (Arc::clone(&stop), Arc::clone(&served));
            thread::spawn(move || work(|| Member::new(dispatcher, from), number, eighth, &stop, &served))
        };
        let members = (0..members).map(member).collect();
        Crowd { stop, served, members }
    }

    /// Connections served so far.
    pub fn served(&self) -> u64 {
        self.served.load(Relaxed)
    }

    /// Waits until so many more have been served.
    pub fn await_more(&self, more: u64) {
        let goal = self.served() + more;
        let nobody_fails = || !self.members.iter().any(JoinHandle::is_finished);
        eventually("clients are served", || {
            assert!(nobody_fails(), "a client failed; its message is above");
            self.served() >= goal
        });
    }

    /// Ends it; answers what the clients met.
    pub fn finish(mut self) -> Tally {
        self.stop.store(true, Relaxed);
        let mut sum = Tally::default();
        for member in std::mem::take(&mut self.members) {
            let tally = member.join().expect("a client failed; its message is above");
            sum.visits.extend(tally.visits);
            sum.cut.extend(tally.cut);
        }
        sum
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

fn work(
    new_member: impl Fn() -> Member,
    number: usize,
    eighth: &Object,
    stop: &AtomicBool,
    served: &AtomicU64,
) -> Tally {
    let (mut tally, mut member) = (Tally::default(), new_member());
    for turn in number.. {
        if stop.load(Relaxed) {
            break;
        }
        if turn % 10 == 9 {
            member = new_member();
        }
        let object = if turn % 8 == 7 { eighth } else { &SMALL };
        match member.get(object) {
            Ok(visit) => {
                served.fetch_add(1, Relaxed);
                tally.visits.push(visit);
            }
            Err(error) => tally.cut.push(error),
        }
    }
    tally
}
