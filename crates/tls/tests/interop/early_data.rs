//! Early data (RFC 9846 section 2.3) against OpenSSL: taken, refused for every reason that a server may have, and sent
//! again then.

use std::io::Write;

use openssl::ssl::{SslContextBuilder, SslOptions};
use tlsdyno_tls::{EarlyData, Effort, Group, SessionKind, Settings, Suite, Version};

use crate::harness::{
    Caller, KeyKind, Server, View, answer, config, connect, keys_for, narrow, pattern, settings, talk,
};
use crate::openssl_server::{OpensslContext, OpensslServer};

/// SSL_OP_NO_ANTI_REPLAY of `openssl/ssl.h`: tickets for early data may be used several times.
const NO_ANTI_REPLAY: u64 = 1 << 24;

fn takes_early_data(builder: &mut SslContextBuilder) {
    builder.set_max_early_data(16_384).unwrap();
    builder.set_options(SslOptions::from_bits_retain(NO_ANTI_REPLAY));
}

/// Answers what comes early at once, and the rest as the server of the other tests does.
struct EarlyServer {
    server: OpensslServer,
    early: bool,
    requests: Vec<u8>,
    /// Bytes of early data taken.
    taken: usize,
}

impl EarlyServer {
    fn new(context: &OpensslContext) -> EarlyServer {
        EarlyServer { server: context.server(), early: true, requests: Vec::new(), taken: 0 }
    }
}

impl Server for EarlyServer {
    fn receive(&mut self, bytes: &[u8]) {
        if !self.early {
            return self.server.receive(bytes);
        }
        self.server.input(bytes);
        let mut buffer = [0; 1024];
        while self.early {
            match self.server.stream().read_early_data(&mut buffer) {
                Ok(0) => self.early = false,
                Ok(length) => {
                    self.taken += length;
                    self.requests.extend_from_slice(&buffer[..length]);
                    let answers = answer(&mut self.requests);
                    if !answers.is_empty() {
                        self.server.stream().write_early_data(&answers).unwrap();
                    }
                }
                Err(_) => return,
            }
        }
        self.server.receive(&[]);
    }

    fn take_output(&mut self) -> Vec<u8> {
        self.server.stream().flush().unwrap();
        self.server.take_output()
    }

    fn close(&mut self) {
        self.server.close();
    }

    fn view(&self) -> View {
        self.server.view()
    }
}

fn early(suite: Suite, group: Group) -> Settings {
    Settings { early_data: true, ..narrow(suite, group, Effort::Lean) }
}

const SUITES: [Suite; 3] = [Suite::Tls13Aes128Gcm, Suite::Tls13Aes256Gcm, Suite::Tls13ChaCha20];

#[test]
fn a_request_with_the_hello_is_answered_with_the_servers_first_flight() {
    for suite in SUITES {
        let context = OpensslContext::narrow(keys_for(suite)[0], suite, Group::X25519, takes_early_data);
        let config = config(early(suite, Group::X25519));
        let first = connect(&config, None, &mut EarlyServer::new(&context));
        assert_eq!(first.handshake().early_data, EarlyData::NotOffered);
        let mut session = first.taken.sessions.last().cloned();
        assert_eq!(session.as_ref().unwrap().max_early_data(), 16_384);
        for _ in 0..3 {
            let mut server = EarlyServer::new(&context);
            let mut caller = Caller::new(&config, session.take());
            assert_eq!(caller.client.room(), 16_384);
            caller.request(700);
            caller.request(30);
            assert_eq!(caller.client.room(), 16_384 - 8);
            // Before the client says anything more it has its answers.
            server.receive(&std::mem::take(&mut caller.output));
            caller.receive(&mut server.take_output()).unwrap();
            assert!(caller.taken.data == [pattern(700), pattern(30)].concat());
            assert_eq!(caller.handshake().early_data, EarlyData::Accepted);
            assert_eq!(caller.handshake().resumed, Some(SessionKind::Tls13Psk));
            caller.request(40_000);
            talk(&mut caller, &mut server).unwrap();
            assert_eq!(server.taken, 8);
            assert!(caller.taken.data[730..] == pattern(40_000));
            session = caller.taken.sessions.last().cloned();
        }
    }
}

#[test]
fn early_data_that_the_server_refuses_are_sent_again() {
    let suite = Suite::Tls13Aes128Gcm;
    let context = OpensslContext::narrow(KeyKind::P256, suite, Group::X25519, takes_early_data);
    let stranger = OpensslContext::narrow(KeyKind::P256, suite, Group::X25519, takes_early_data);
    let x25519 = config(early(suite, Group::X25519));
    let session = || connect(&x25519, None, &mut EarlyServer::new(&context)).taken.sessions.pop();

    // The session is of another server: a full handshake.
    check_refused(Caller::new(&x25519, session()), &stranger, false);

    // The ticket is too old for early data: they could be a replay (RFC 9846 section 8.3).
    check_refused(Caller::at(&x25519, session(), 100_000), &context, true);

    // The server asks for another group first: a HelloRetryRequest refuses early data.
    let both = Settings { groups: vec![Group::P256, Group::X25519], ..early(suite, Group::P256) };
    let retried = Caller::new(&config(both), session());
    check_refused(retried, &context, true);
}

/// The request is sent early, refused, and answered all the same.
fn check_refused(mut caller: Caller, context: &OpensslContext, resumed: bool) {
    let mut server = EarlyServer::new(context);
    caller.request(700);
    talk(&mut caller, &mut server).unwrap_or_else(|error| panic!("{error}; {:?}", server.view()));
    let handshake = caller.handshake();
    assert_eq!((handshake.early_data, handshake.resumed.is_some()), (EarlyData::Rejected, resumed));
    assert_eq!(server.taken, 0);
    assert!(caller.taken.data == pattern(700));
    caller.request(50);
    talk(&mut caller, &mut server).unwrap();
    assert!(caller.taken.data[700..] == pattern(50));
}

#[test]
fn nothing_is_sent_early_that_nobody_announced_to_take() {
    let suite = Suite::Tls13Aes128Gcm;
    let silent = OpensslContext::narrow(KeyKind::P256, suite, Group::X25519, |_| ());
    let willing = OpensslContext::narrow(KeyKind::P256, suite, Group::X25519, takes_early_data);
    for (context, asks) in [(&silent, true), (&willing, false)] {
        let config = config(Settings { early_data: asks, ..early(suite, Group::X25519) });
        let session = connect(&config, None, &mut EarlyServer::new(context)).taken.sessions.pop();
        let mut caller = Caller::new(&config, session);
        assert_eq!(caller.client.room(), 0);
        assert!(caller.client.send(b"x", &mut caller.output).is_err());
        talk(&mut caller, &mut EarlyServer::new(context)).unwrap();
        assert_eq!(caller.handshake().early_data, EarlyData::NotOffered);
        assert!(caller.handshake().resumed.is_some());
    }
    // A server that fell back to TLS 1.2 could not even skip them (RFC 9846 section 4.2.10).
    let both = config(Settings { early_data: true, effort: Effort::Lean, ..settings() });
    let old = OpensslContext::narrow(KeyKind::P256, Suite::EcdheEcdsaAes128Gcm, Group::X25519, |_| ());
    let session = connect(&both, None, &mut EarlyServer::new(&OpensslContext::new(KeyKind::P256, takes_early_data)));
    assert_eq!(session.handshake().version, Version::Tls13);
    let mut caller = Caller::new(&both, session.taken.sessions.last().cloned());
    let error = talk(&mut caller, &mut old.server()).unwrap_err();
    assert!(error.to_string().contains("early data"), "{error}");
}
