//! Prints what an open connection occupies, and what a handshake costs the client, without sockets, in microseconds: at
//! floor effort (best of 200 rounds), then with each group at lean effort (median of 4000 handshakes):
//!
//! ```text
//! cargo run --release -p tlsdyno-tls --example handshake_cost
//! ```
//!
//! At floor effort the client's key share is constant, and here its randomness is too: a conversation with OpenSSL,
//! recorded once, can be replayed, so that only the client's own work is timed. At lean effort the client makes keys,
//! so that rustls answers each handshake anew, and the clock stands while it does. The groups take turns.

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
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use tlsdyno_tls::{Client, Config, Effort, Entropy, Group, Receiver, Session, Settings, Suite};

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
    time_groups();
}

/// Each group alone, and what browsers offer, also to a server without hybrids.
fn time_groups() {
    const HANDSHAKES: usize = 4000;
    let browsers = [Group::X25519MlKem768, Group::X25519, Group::P256, Group::P384];
    let (new, old) = (rustls_config(true), rustls_config(false));
    let mut offers =
        vec![(browsers.to_vec(), &new, "browsers' offer"), (browsers.to_vec(), &old, "the same, X25519 taken")];
    offers.extend(Group::ALL.map(|group| (vec![group], &new, "")));
    offers.retain(|(groups, ..)| groups != &[Group::P384MlKem1024]); // rustls does not have it
    let configs: Vec<Arc<Config>> = offers
        .iter()
        .map(|(groups, ..)| {
            let suites = vec![Suite::Tls13Aes128Gcm];
            let settings = Settings { suites, groups: groups.clone(), effort: Effort::Lean, ..Settings::default() };
            Arc::new(Config::new(settings).unwrap())
        })
        .collect();
    let mut times_us = vec![Vec::with_capacity(HANDSHAKES); offers.len()];
    for _ in 0..HANDSHAKES {
        for (index, (_, server, _)) in offers.iter().enumerate() {
            times_us[index].push(handshake_us(&configs[index], server));
        }
    }
    for ((groups, _, name), times_us) in offers.iter().zip(&mut times_us) {
        times_us.sort_by(f64::total_cmp);
        let name = if name.is_empty() { groups[0].to_string() } else { (*name).to_owned() };
        println!("{:<60} {:8.2} us", format!("TLS 1.3 full, lean, {name}"), times_us[HANDSHAKES / 2]);
    }
}

/// What one full handshake takes the client.
fn handshake_us(config: &Arc<Config>, server: &Arc<rustls::ServerConfig>) -> f64 {
    let mut server = rustls::ServerConnection::new(Arc::clone(server)).unwrap();
    let (mut out, mut flight) = (Vec::with_capacity(4096), Vec::new());
    let start = Instant::now();
    let mut client = Client::new(config, None, &mut Constant, 0, &mut out);
    let mut took = start.elapsed();
    while !out.is_empty() {
        server.read_tls(&mut &out[..]).unwrap();
        server.process_new_packets().unwrap();
        out.clear();
        flight.clear();
        while server.wants_write() {
            server.write_tls(&mut flight).unwrap();
        }
        let start = Instant::now();
        client.receive(&mut flight, 0, &mut Constant, &mut out, &mut NoSessions).unwrap();
        took += start.elapsed();
    }
    assert!(client.is_connected());
    took.as_secs_f64() * 1e6
}

fn rustls_config(hybrids: bool) -> Arc<rustls::ServerConfig> {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let chain = vec![params.self_signed(&key).unwrap().der().clone()];
    let mut provider = default_provider();
    provider.kx_groups = vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
    if hybrids {
        provider.kx_groups.splice(0..0, [kx_group::X25519MLKEM768, kx_group::SECP256R1MLKEM768]);
    }
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions().unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.send_tls13_tickets = 0;
    Arc::new(config)
}
