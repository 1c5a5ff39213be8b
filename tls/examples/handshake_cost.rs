//! Prints what an open connection occupies, and what a handshake costs the client at floor effort, without sockets, in
//! microseconds (best of 200 rounds):
//!
//! ```text
//! cargo run --release -p tlsdyno-tls --example handshake_cost
//! ```
//!
//! At floor effort the client's key share is constant, and here its randomness is too: a conversation with OpenSSL,
//! recorded once, can be replayed, so that only the client's own work is timed.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Instant;

use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::ssl::{Ssl, SslContext, SslMethod, SslStream};
use openssl::x509::X509;
use tlsdyno_tls::{Client, Config, Effort, Entropy, Receiver, Session, Settings, Suite};

struct Constant;

impl Entropy for Constant {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(0x42);
    }
}

#[derive(Default)]
struct Sessions(Option<Session>);

/// As the load engine where no session is to be resumed.
struct NoSessions;

impl Receiver for NoSessions {
    fn plaintext(&mut self, bytes: &[u8]) {
        black_box(bytes);
    }

    fn session(&mut self, _: Session) {}

    fn wants_sessions(&self) -> bool {
        false
    }
}

impl Receiver for Sessions {
    fn plaintext(&mut self, bytes: &[u8]) {
        black_box(bytes);
    }

    fn session(&mut self, session: Session) {
        self.0 = Some(session);
    }
}

#[derive(Default)]
struct Pipe {
    inbound: Vec<u8>,
    outbound: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.inbound.len());
        buffer[..length].copy_from_slice(&self.inbound[..length]);
        self.inbound.drain(..length);
        if length == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(length) }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outbound.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The server's flights of one conversation, and the last session that came of it.
struct Recording {
    flights: Vec<Vec<u8>>,
    session: Option<Session>,
}

fn server_context() -> SslContext {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut certificate = X509::builder().unwrap();
    certificate.set_pubkey(&key).unwrap();
    certificate.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    certificate.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    certificate.sign(&key, MessageDigest::sha256()).unwrap();
    let mut context = SslContext::builder(SslMethod::tls_server()).unwrap();
    context.set_certificate(&certificate.build()).unwrap();
    context.set_private_key(&key).unwrap();
    context.build()
}

fn record(config: &Arc<Config>, session: Option<Session>, context: &SslContext) -> Recording {
    let mut stream = SslStream::new(Ssl::new(context).unwrap(), Pipe::default()).unwrap();
    let (mut flights, mut sessions, mut out) = (Vec::new(), Sessions::default(), Vec::new());
    let mut client = Client::new(config, session, &mut Constant, 0, &mut out);
    while !out.is_empty() {
        stream.get_mut().inbound.append(&mut out);
        let _ = stream.accept();
        let flight = std::mem::take(&mut stream.get_mut().outbound);
        flights.push(flight.clone());
        client.receive(&mut { flight }, 0, &mut Constant, &mut out, &mut sessions).unwrap();
    }
    assert!(client.is_connected());
    Recording { flights, session: sessions.0 }
}

/// One connection: ClientHello, the server's flights, a request. `buffers` are overwritten by decryption.
fn replay(
    config: &Arc<Config>,
    session: Option<Session>,
    buffers: &mut [Vec<u8>],
    out: &mut Vec<u8>,
    receiver: &mut impl Receiver,
) {
    out.clear();
    let mut client = Client::new(config, session, &mut Constant, 0, out);
    for flight in buffers {
        client.receive(flight, 0, &mut Constant, out, receiver).unwrap();
    }
    client.send(b"GET /1k.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", out).unwrap();
    black_box(&out);
}

fn time(
    name: &str,
    config: &Arc<Config>,
    session: Option<&Session>,
    recording: &Recording,
    receiver: &mut impl Receiver,
) {
    const CALLS: u32 = 50; // a round fits a time slice, so that the best one is undisturbed even on a busy machine
    let mut out = Vec::with_capacity(4096);
    let mut best = f64::MAX;
    for _ in 0..200 {
        let mut copies: Vec<Vec<Vec<u8>>> = (0..CALLS).map(|_| recording.flights.clone()).collect();
        let start = Instant::now();
        for buffers in &mut copies {
            replay(config, session.cloned(), buffers, &mut out, receiver);
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS));
    }
    println!("{name:<60} {best:8.2} us");
}

/// Memory of this process, in bytes (Linux).
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// What an open connection occupies, keys included.
fn size(config: &Arc<Config>, recording: &Recording) -> usize {
    const CLIENTS: usize = 10_000;
    let mut out = Vec::new();
    let mut clients = Vec::with_capacity(CLIENTS);
    let before = resident_bytes();
    for _ in 0..CLIENTS {
        out.clear();
        let mut client = Client::new(config, None, &mut Constant, 0, &mut out);
        for mut flight in recording.flights.clone() {
            client.receive(&mut flight, 0, &mut Constant, &mut out, &mut Sessions::default()).unwrap();
        }
        clients.push(client);
    }
    let bytes = resident_bytes() - before;
    std::mem::forget(clients); // otherwise the next suite would use their memory again
    bytes / CLIENTS
}

fn main() {
    let context = server_context();
    for suite in [
        Suite::Tls13Aes128Gcm,
        Suite::Tls13Aes256Gcm,
        Suite::Tls13ChaCha20,
        Suite::EcdheEcdsaAes128Gcm,
        Suite::EcdheEcdsaAes256Gcm,
        Suite::EcdheEcdsaAes128Sha,
    ] {
        let settings = Settings { suites: vec![suite], effort: Effort::Floor, ..Settings::default() };
        let config = Arc::new(Config::new(settings).unwrap());
        let full = record(&config, None, &context);
        println!("{:<60} {:8} bytes in memory while open", suite.name(), size(&config, &full));
        time(&format!("{} full", suite.name()), &config, None, &full, &mut Sessions::default());
        time(&format!("{} full, no sessions wanted", suite.name()), &config, None, &full, &mut NoSessions);
        let session = full.session.clone().unwrap();
        let resumed = record(&config, Some(session.clone()), &context);
        time(&format!("{} resumed", suite.name()), &config, Some(&session), &resumed, &mut Sessions::default());
    }
}
