//! Real handshakes in memory, recorded.

use std::sync::{Arc, LazyLock};

use openssl::ssl::SslVerifyMode;
use tlsdyno_tls::config::Lack;
use tlsdyno_tls::{ClientCertificate, Config, Effort, Group, Session, Settings, Suite, Version};

use crate::harness::{Caller, KeyKind, Server, View, config, identity, narrow, settings, talk};
use crate::openssl_server::{OpensslContext, no_tickets};
use crate::packets::Flight;
use crate::rustls_server::{RustlsServer, rustls_config};

/// What must be counted of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    pub full: u64,
    pub resumed: u64,
    pub refused_by_client: u64,
    pub closed_by_server: u64,
    pub tls13: u64,
    pub offered: u64,
    pub refused: u64,
    pub retried: u64,
    pub early_data: u64,
    /// The group that the ServerHello tells, or zero.
    pub group: u16,
}

#[derive(Clone, Debug)]
pub struct Conversation {
    pub name: String,
    pub flights: Vec<Flight>,
    pub expected: Expected,
}

/// Keeps what both ends send.
struct Tape<S> {
    server: S,
    flights: Vec<Flight>,
}

impl<S> Tape<S> {
    fn note(&mut self, from_client: bool, bytes: &[u8]) {
        match self.flights.last_mut() {
            _ if bytes.is_empty() => {}
            Some(last) if last.from_client == from_client => last.bytes.extend_from_slice(bytes),
            _ => self.flights.push(Flight { from_client, bytes: bytes.to_vec() }),
        }
    }
}

impl<S: Server> Server for Tape<S> {
    fn receive(&mut self, bytes: &[u8]) {
        self.note(true, bytes);
        self.server.receive(bytes);
    }

    fn take_output(&mut self) -> Vec<u8> {
        let bytes = self.server.take_output();
        self.note(false, &bytes);
        bytes
    }

    fn close(&mut self) {
        self.server.close();
    }

    fn view(&self) -> View {
        self.server.view()
    }
}

/// A connection with a request of so many bytes of answer, if its handshake comes to an end; and its last session.
fn recorded(server: impl Server, config: &Arc<Config>, session: Option<Session>) -> (Vec<Flight>, Option<Session>) {
    let mut tape = Tape { server, flights: Vec::new() };
    let mut caller = Caller::new(config, session);
    if talk(&mut caller, &mut tape).is_ok() && caller.client.is_connected() {
        caller.request(300);
        talk(&mut caller, &mut tape).unwrap();
        caller.client.close(&mut caller.output);
        tape.receive(&std::mem::take(&mut caller.output));
    }
    (tape.flights, caller.taken.sessions.pop())
}

/// All of them, made once.
pub static ALL: LazyLock<Vec<Conversation>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for suite in [Suite::Tls13Aes128Gcm, Suite::Tls13Aes256Gcm, Suite::EcdheEcdsaAes128Gcm, Suite::RsaAes128Sha] {
        for tickets in [true, false] {
            all.extend(resumptions(suite, tickets));
        }
    }
    all.extend(hybrids());
    all.extend(breaks());
    all.extend(certificates());
    all.extend(early_data());
    all
});

fn version_of(suite: Suite) -> u64 {
    u64::from(suite.version() == Version::Tls13)
}

/// A full handshake, one that resumes it, and one whose session another server does not know.
fn resumptions(suite: Suite, tickets: bool) -> Vec<Conversation> {
    let key = if suite == Suite::RsaAes128Sha { KeyKind::Rsa2048 } else { KeyKind::P256 };
    let context = || {
        OpensslContext::narrow(key, suite, Group::P256, |builder| {
            if !tickets {
                no_tickets(builder);
            }
        })
    };
    let (own, stranger) = (context(), context());
    let config = config(narrow(suite, Group::P256, Effort::Honest));
    let tls13 = version_of(suite);
    let common = Expected { tls13, group: if tls13 == 1 { Group::P256.code() } else { 0 }, ..Expected::default() };
    let (full, session) = recorded(own.server(), &config, None);
    let (refused, _) = recorded(stranger.server(), &config, session.clone());
    let (resumed, _) = recorded(own.server(), &config, session);
    let of = |kind: &str, flights, expected| Conversation {
        name: format!("{kind}, {suite}, {}", if tickets { "tickets" } else { "cache" }),
        flights,
        expected,
    };
    vec![
        of("full", full, Expected { full: 1, ..common }),
        of("refused resumption", refused, Expected { full: 1, offered: 1, refused: 1, ..common }),
        of("resumed", resumed, Expected { resumed: 1, offered: 1, ..common }),
    ]
}

/// Hellos of two segments, and those that a HelloRetryRequest has the client send again.
fn hybrids() -> Vec<Conversation> {
    let suite = Suite::Tls13Aes128Gcm;
    let mut all = Vec::new();
    for (name, chosen, retried) in
        [("hybrid", Group::X25519MlKem768, 0), ("beside a hybrid", Group::X25519, 0), ("retried", Group::P384, 1)]
    {
        let server = rustls_config(KeyKind::P256, &[suite], &[chosen], true);
        let groups = vec![Group::X25519MlKem768, Group::X25519, Group::P384];
        let config = config(Settings { groups, ..narrow(suite, Group::X25519MlKem768, Effort::Lean) });
        let common = Expected { tls13: 1, group: chosen.code(), retried, ..Expected::default() };
        let (flights, session) = recorded(RustlsServer::new(&server), &config, None);
        all.push(Conversation { name: name.into(), flights, expected: Expected { full: 1, ..common } });
        let (flights, _) = recorded(RustlsServer::new(&server), &config, session);
        let expected = Expected { resumed: 1, offered: 1, ..common };
        all.push(Conversation { name: format!("{name}, resumed"), flights, expected });
    }
    all
}

/// Handshakes that either end refuses.
fn breaks() -> Vec<Conversation> {
    let mut all = Vec::new();
    for suite in [Suite::Tls13Aes128Gcm, Suite::Tls13Aes256Gcm, Suite::EcdheEcdsaAes128Gcm] {
        let context = OpensslContext::narrow(KeyKind::P256, suite, Group::P256, |_| ());
        let usual = narrow(suite, Group::P256, Effort::Honest);
        let other_name = Settings { server_name: Some("other.example".to_owned()), ..usual.clone() };
        let (flights, _) = recorded(context.server(), &config(other_name), None);
        let expected = Expected { refused_by_client: 1, ..Expected::default() };
        all.push(Conversation { name: format!("refused by the client, {suite}"), flights, expected });
        let lacking = Settings { lack: Some(Lack::Suites), ..usual };
        let (flights, _) = recorded(context.server(), &config(lacking), None);
        let expected = Expected { closed_by_server: 1, ..Expected::default() };
        all.push(Conversation { name: format!("refused by the server, {suite}"), flights, expected });
    }
    all
}

/// Clients that are asked for a certificate, with and without one.
fn certificates() -> Vec<Conversation> {
    let mut all = Vec::new();
    for version in [Version::Tls12, Version::Tls13] {
        let context = OpensslContext::new(KeyKind::Rsa2048, |builder| {
            builder.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
        });
        let own = identity(KeyKind::P256);
        let client = ClientCertificate::new(vec![own.certificate_der.clone()], &own.key_pkcs8).unwrap();
        for client_certificate in [None, Some(Arc::new(client))] {
            let name = format!("a client's certificate: {}, {version}", client_certificate.is_some());
            let settings = Settings { versions: vec![version], client_certificate, ..settings() };
            let (flights, _) = recorded(context.server(), &config(settings), None);
            let tls13 = u64::from(version == Version::Tls13);
            let group = if tls13 == 1 { Group::X25519.code() } else { 0 };
            all.push(Conversation {
                name,
                flights,
                expected: Expected { full: 1, tls13, group, ..Expected::default() },
            });
        }
    }
    all
}

/// Early data that a server takes, and that one does not take.
fn early_data() -> Vec<Conversation> {
    let suite = Suite::Tls13Aes128Gcm;
    let mut all = Vec::new();
    for taken in [true, false] {
        let mut server = (*rustls_config(KeyKind::P256, &[suite], &[Group::P256], false)).clone();
        server.max_early_data_size = 16_384;
        let taking = Arc::new(server.clone());
        server.max_early_data_size = 0;
        let second = if taken { Arc::clone(&taking) } else { Arc::new(server) };
        let config = config(Settings { early_data: true, ..narrow(suite, Group::P256, Effort::Lean) });
        let (_, session) = recorded(RustlsServer::new(&taking), &config, None);
        let mut tape = Tape { server: RustlsServer::new(&second), flights: Vec::new() };
        let mut caller = Caller::new(&config, session);
        // Of every length that a Finished or an alert could have.
        (0..30).for_each(|_| caller.request(1));
        talk(&mut caller, &mut tape).unwrap();
        let expected = Expected {
            resumed: 1,
            offered: 1,
            tls13: 1,
            early_data: 1,
            group: Group::P256.code(),
            ..Expected::default()
        };
        all.push(Conversation { name: format!("early data, taken: {taken}"), flights: tape.flights, expected });
    }
    all
}
