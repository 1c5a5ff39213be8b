//! The client's side of the shim's stages (docs/NOOP.md), against peers made here from real servers of OpenSSL or from
//! the contract.

use tlsdyno_tls::crypto::protect::{Opener, Sealer};
use tlsdyno_tls::{
    Config, ConfigError, EarlyData, Effort, Error, Group, Script, Scripts, Session, SessionKind, Settings, Stage,
};
use tlsdyno_tls::{StageSet, Suite, Version};

use crate::harness::talk_along;
use crate::harness::{Caller, KeyKind, Server, View, answer, config, connect, keys_for, narrow, pattern, talk};
use crate::openssl_server::{OpensslContext, OpensslServer, no_tickets};
use crate::scripted_server::{ScriptedServer, scripts, scripts_12, skeleton};

fn without(stages: impl IntoIterator<Item = Stage>) -> StageSet {
    stages.into_iter().collect()
}

fn lean(suite: Suite, stages_off: StageSet) -> Settings {
    Settings { stages_off, ..narrow(suite, Group::X25519, Effort::Lean) }
}

const SUITES: [Suite; 3] = [Suite::Tls13Aes128Gcm, Suite::EcdheRsaAes128Gcm, Suite::RsaAes128Sha];

/// Data that begin like a record: a body may.
fn like_a_record() -> Vec<u8> {
    [&[0x17, 3, 3, 0, 10][..], &pattern(2000)].concat()
}

/// A server of OpenSSL whose data are plain once the handshake is complete: what the shim makes of a real one.
struct PlainServer {
    server: OpensslServer,
    requests: Vec<u8>,
    output: Vec<u8>,
}

impl Server for PlainServer {
    fn receive(&mut self, bytes: &[u8]) {
        if !self.server.view().connected {
            return self.server.receive(bytes);
        }
        self.requests.extend_from_slice(bytes);
        let answers = answer(&mut self.requests);
        self.output.extend_from_slice(&answers);
    }

    fn take_output(&mut self) -> Vec<u8> {
        // Tickets come first.
        let mut sent = self.server.take_output();
        sent.append(&mut self.output);
        sent
    }

    fn close(&mut self) {}

    fn view(&self) -> View {
        self.server.view()
    }
}

fn plain(context: &OpensslContext) -> PlainServer {
    PlainServer { server: context.server(), requests: Vec::new(), output: Vec::new() }
}

#[test]
fn data_in_plain_follow_real_handshakes_and_their_tickets() {
    for suite in SUITES {
        for tickets in [true, false] {
            let context = OpensslContext::narrow(keys_for(suite)[0], suite, Group::X25519, |builder| {
                if !tickets {
                    no_tickets(builder);
                }
            });
            let config = config(lean(suite, without([Stage::Marshalling])));
            let mut session = None;
            for resumed in [false, true] {
                let mut server = plain(&context);
                let mut caller = Caller::new(&config, session.take());
                talk(&mut caller, &mut server).unwrap();
                assert_eq!(caller.handshake().resumed.is_some(), resumed, "{suite}");
                session = caller.taken.sessions.last().cloned();
                caller.request(3000);
                assert_eq!(caller.output, 3000u32.to_be_bytes(), "the request is in plain");
                talk(&mut caller, &mut server).unwrap();
                assert!(caller.taken.data == pattern(3000));
                // What looks like a ticket's record is data, once data have begun.
                caller.receive(&mut like_a_record()).unwrap();
                assert!(caller.taken.data[3000..] == like_a_record());
                caller.client.close(&mut caller.output);
                assert!(caller.output.is_empty(), "nobody says goodbye");
                assert_eq!(caller.client.end_of_input(), Ok(()));
            }
        }
    }
}

/// Tickets and the first data arrive together, cut at every place.
#[test]
fn tickets_are_told_from_plain_data_however_the_input_is_cut() {
    let suite = Suite::Tls13Aes128Gcm;
    let context = OpensslContext::narrow(KeyKind::P256, suite, Group::X25519, |_| ());
    let config = config(lean(suite, without([Stage::Marshalling])));
    let mut cut = 0;
    loop {
        let mut server = plain(&context);
        let mut caller = Caller::new(&config, None);
        server.receive(&std::mem::take(&mut caller.output));
        caller.receive(&mut server.take_output()).unwrap();
        caller.request(50);
        let sent = std::mem::take(&mut caller.output);
        let (finished, request) = sent.split_at(sent.len() - 4);
        server.receive(finished);
        server.receive(request);
        let mut output = server.take_output();
        if cut > output.len() {
            break;
        }
        let (first, second) = output.split_at_mut(cut);
        caller.receive(first).unwrap();
        caller.receive(second).unwrap();
        assert_eq!(caller.taken.sessions.len(), 2, "cut at {cut}");
        assert!(caller.taken.data == pattern(50), "cut at {cut}");
        cut += 1;
    }
}

#[test]
fn a_client_without_the_no_op_fails_on_plain_data() {
    for suite in SUITES {
        let context = OpensslContext::narrow(keys_for(suite)[0], suite, Group::X25519, |_| ());
        let mut caller = Caller::new(&config(lean(suite, StageSet::NONE)), None);
        let mut server = plain(&context);
        talk(&mut caller, &mut server).unwrap();
        caller.request(10);
        let error = caller.receive(&mut b"HTTP/1.1 200 OK".to_vec()).unwrap_err();
        assert!(error.to_string().contains("HTTP/"), "{error}");
    }
}

#[test]
fn the_universal_session_takes_the_place_of_every_other() {
    for suite in SUITES {
        for tickets in [true, false] {
            let context = OpensslContext::narrow(keys_for(suite)[0], suite, Group::X25519, |builder| {
                if !tickets {
                    no_tickets(builder);
                }
            });
            let off = without([Stage::SessionCache]);
            // Before there is one, sessions are kept as they come: that is how it is made.
            let first = connect(&config(lean(suite, off)), None, &mut context.server());
            let universal = first.taken.sessions.last().unwrap().clone();
            // It goes to another process.
            let universal = Session::from_bytes(&universal.to_bytes(), 0).unwrap();
            let settings = Settings { universal: Some(universal.clone()), ..lean(suite, off) };
            let config = config(settings);
            let full = connect(&config, None, &mut context.server());
            let held: Vec<_> = full.taken.sessions.iter().map(Session::to_bytes).collect();
            assert_eq!(held.len(), 1);
            assert_eq!(identity(&full.taken.sessions[0]), identity(&universal));
            let mut later = Caller::new(&config, Some(full.taken.sessions[0].clone()));
            later.now_ms = u64::MAX / 2;
            talk(&mut later, &mut context.server()).unwrap();
            assert_eq!(later.handshake().resumed, Some(universal.kind()));
            assert!(later.taken.sessions.is_empty(), "after a resumption there is nothing to keep");
        }
    }
}

/// What tells two sessions apart, lifetimes aside.
fn identity(session: &Session) -> Vec<u8> {
    let bytes = session.to_bytes();
    [&bytes[..7], &bytes[11..]].concat()
}

#[test]
fn flights_are_recorded_as_they_were_on_the_wire() {
    for (suite, tickets) in [
        (Suite::Tls13Aes128Gcm, true),
        (Suite::Tls13Aes256Gcm, false),
        (Suite::EcdheRsaAes128Gcm, true),
        (Suite::RsaAes128Sha, false),
    ] {
        let context = OpensslContext::narrow(keys_for(suite)[0], suite, Group::X25519, |builder| {
            if !tickets {
                no_tickets(builder);
            }
        });
        let config = config(lean(suite, StageSet::NONE));
        let mut session = None;
        for resumed in [false, true] {
            let (mut caller, mut server) = (Caller::new(&config, session.take()), context.server());
            let mut sizes = vec![caller.output.len() as u32];
            loop {
                server.receive(&std::mem::take(&mut caller.output));
                let mut sent = server.take_output();
                if sent.is_empty() {
                    break;
                }
                sizes.push(sent.len() as u32);
                // In pieces, which must make no difference.
                for piece in sent.chunks_mut(100) {
                    caller.receive(piece).unwrap();
                }
                if !caller.output.is_empty() {
                    sizes.push(caller.output.len() as u32);
                }
            }
            caller.request(5000);
            talk(&mut caller, &mut server).unwrap();
            let script = caller.client.script();
            assert_eq!(script.flights, sizes, "{suite}");
            assert_eq!(script.fault(), None);
            let ready = if suite.version() == Version::Tls12 && !resumed { 4 } else { 3 };
            assert_eq!(script.ready_after, ready, "{suite}");
            session = caller.taken.sessions.last().cloned();
        }
    }
}

#[test]
fn skeletons_have_the_bytes_of_their_scripts() {
    let off = without([Stage::Handshake, Stage::Marshalling]);
    for (suite, scripts) in [(Suite::Tls13Aes128Gcm, scripts()), (Suite::RsaAes128Sha, scripts_12())] {
        let config = config(Settings { scripts: Some(scripts.clone()), ..lean(suite, off) });
        let mut session = None;
        for resumed in [false, true] {
            for piece in [1, 7, 100_000] {
                let mut server = ScriptedServer::new(scripts.clone());
                let mut caller = Caller::new(&config, session.clone());
                assert_eq!(caller.client.room(), 0);
                let mut way = |bytes: Vec<u8>| bytes.chunks(piece).map(<[u8]>::to_vec).collect();
                talk_along(&mut caller, &mut server, &mut way).unwrap();
                assert_eq!(server.view(), View { connected: true, resumed, ..View::default() });
                let handshake = caller.handshake();
                assert_eq!((handshake.resumed.is_some(), handshake.offered.is_some()), (resumed, resumed));
                let script = server.script(u8::from(resumed));
                assert_eq!(caller.client.script(), *script);
                assert_eq!(caller.taken.sessions.len(), usize::from(!resumed));
                caller.request(70_000);
                talk_along(&mut caller, &mut server, &mut way).unwrap();
                assert!(caller.taken.data == pattern(70_000));
                assert_eq!(caller.client.end_of_input(), Ok(()));
                session = session.or_else(|| caller.taken.sessions.pop()).filter(|_| resumed || piece > 7);
            }
        }
    }
}

#[test]
fn the_request_goes_with_the_hello_of_a_fast_resumption() {
    let off = without([Stage::Handshake, Stage::Marshalling, Stage::RoundTrip]);
    let suite = Suite::Tls13Aes128Gcm;
    let config = config(Settings { scripts: Some(scripts()), ..lean(suite, off) });
    let mut full = Caller::new(&config, None);
    talk(&mut full, &mut ScriptedServer::new(scripts())).unwrap();
    let session = full.taken.sessions.pop();
    let mut caller = Caller::new(&config, session);
    let mut server = ScriptedServer::new(scripts());
    assert!(caller.client.room() > 0 && !caller.client.is_connected());
    caller.request(500);
    assert_eq!(caller.output.len(), 514 + 4);
    talk(&mut caller, &mut server).unwrap();
    assert!(caller.taken.data == pattern(500));
    assert_eq!(caller.handshake().resumed, Some(SessionKind::Tls13Psk));
    assert_eq!(caller.client.script(), Script { flights: vec![514, 241], ready_after: 2 });
}

/// What the shim makes of libssl: the request comes behind the hello in a record of its own, and is skipped where the
/// session is not taken; else the handshake ends with the server's Finished.
struct FastServer {
    server: PlainServer,
    hello: Vec<u8>,
    early: Option<Vec<u8>>,
}

impl Server for FastServer {
    fn receive(&mut self, bytes: &[u8]) {
        if self.early.is_some() {
            return match self.view().resumed {
                true => self.answer(bytes),
                false => self.records_then_data(bytes),
            };
        }
        self.hello.extend_from_slice(bytes);
        let length = |at: usize| 5 + usize::from(u16::from_be_bytes([self.hello[at + 3], self.hello[at + 4]]));
        let hello = length(0);
        assert_eq!(self.hello[hello], 0xd5);
        assert_eq!(hello + length(hello), self.hello.len());
        self.early = Some(self.hello.split_off(hello)[5..].to_vec());
        self.server.server.input(&self.hello);
        self.server.server.receive(&[]);
        if self.view().resumed {
            let early = self.early.clone().unwrap();
            self.answer(&early);
        }
    }

    fn take_output(&mut self) -> Vec<u8> {
        self.server.take_output()
    }

    fn close(&mut self) {}

    fn view(&self) -> View {
        let resumed = self.server.server.is_resuming();
        View { connected: resumed || self.server.view().connected, resumed, ..View::default() }
    }
}

impl FastServer {
    fn new(context: &OpensslContext) -> FastServer {
        FastServer { server: plain(context), hello: Vec::new(), early: None }
    }

    /// OpenSSL's server here would read on behind the client's Finished.
    fn records_then_data(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !self.view().connected && !rest.is_empty() {
            let (record, after) = rest.split_at(5 + usize::from(u16::from_be_bytes([rest[3], rest[4]])));
            self.server.receive(record);
            rest = after;
        }
        self.server.receive(rest);
    }

    fn answer(&mut self, bytes: &[u8]) {
        self.server.requests.extend_from_slice(bytes);
        let answers = answer(&mut self.server.requests);
        self.server.output.extend_from_slice(&answers);
    }
}

#[test]
fn a_fast_resumption_ends_with_the_servers_finished_or_becomes_a_full_handshake() {
    let off = without([Stage::SessionCache, Stage::Marshalling, Stage::RoundTrip]);
    for suite in SUITES {
        for tickets in [true, false] {
            let configure = |builder: &mut openssl::ssl::SslContextBuilder| {
                if !tickets {
                    no_tickets(builder);
                }
            };
            let context = OpensslContext::narrow(keys_for(suite)[0], suite, Group::X25519, configure);
            let stranger = OpensslContext::narrow(keys_for(suite)[0], suite, Group::X25519, configure);
            let real = connect(&config(lean(suite, StageSet::NONE)), None, &mut context.server());
            let universal = real.taken.sessions[0].clone();
            let config = config(Settings { universal: Some(universal.clone()), ..lean(suite, off) });
            for (context, resumes) in [(&context, true), (&stranger, false)] {
                let mut server = FastServer::new(context);
                let mut caller = Caller::new(&config, Some(universal.clone()));
                assert!(caller.client.room() > 4 && !caller.client.is_connected());
                let hello = caller.output.len();
                caller.request(500);
                assert_eq!((caller.output.len(), caller.client.room()), (hello + 5 + 4, 0));
                talk_along(&mut caller, &mut server, &mut |bytes| bytes.chunks(3).map(<[u8]>::to_vec).collect())
                    .unwrap_or_else(|error| panic!("{suite}, {resumes}: {error}"));
                assert!(caller.taken.data == pattern(500), "{suite}, {resumes}");
                let handshake = caller.handshake();
                assert_eq!(handshake.resumed, resumes.then_some(universal.kind()));
                assert_eq!((handshake.offered, handshake.early_data), (Some(universal.kind()), EarlyData::NotOffered));
                if resumes {
                    assert_eq!(caller.client.script().flights.len(), 2, "{suite}");
                }
                caller.request(3000);
                talk(&mut caller, &mut server).unwrap();
                assert!(caller.taken.data[500..] == pattern(3000));
            }
        }
    }
}

#[test]
fn what_is_no_skeleton_is_refused() {
    let off = without([Stage::Handshake, Stage::Marshalling]);
    let suite = Suite::Tls13Aes128Gcm;
    let config = config(Settings { scripts: Some(scripts()), ..lean(suite, off) });
    let refused = |mut bytes: Vec<u8>| Caller::new(&config, None).receive(&mut bytes).unwrap_err().to_string();
    assert!(refused(vec![0x15, 3, 3, 0, 2, 2, 10]).contains("does not answer with a skeleton"));
    let mut flight = skeleton(1363);
    *flight.last_mut().unwrap() = 1;
    assert!(refused(flight).contains("does not end in 0"));
    // A real server refuses the skeleton's hello.
    let context = OpensslContext::narrow(KeyKind::P256, suite, Group::X25519, |_| ());
    assert!(talk(&mut Caller::new(&config, None), &mut context.server()).is_err());
    assert_eq!(Caller::new(&config, None).client.end_of_input(), Err(Error::ClosedInHandshake));
}

#[test]
fn a_minimal_set_up_protects_data_from_the_first_byte() {
    let off = without([Stage::Setup]);
    for &suite in Suite::ALL {
        for encrypt_then_mac in [false, true] {
            let config = config(Settings { encrypt_then_mac, ..lean(suite, off) });
            let mut caller = Caller::new(&config, None);
            assert!(caller.output.is_empty() && caller.client.is_connected());
            assert_eq!(caller.client.handshake(), None);
            let mut sealer = Sealer::with_zero_keys(suite, StageSet::NONE, encrypt_then_mac);
            let mut opener = Opener::with_zero_keys(suite, StageSet::NONE, encrypt_then_mac);
            for length in [1, 20_000] {
                caller.client.send(&pattern(length), &mut caller.output).unwrap();
                let mut records = std::mem::take(&mut caller.output);
                let mut arrived = Vec::new();
                let mut rest = &mut records[..];
                while let Some(header) = rest.first_chunk::<5>().copied() {
                    let end = 5 + usize::from(u16::from_be_bytes([header[3], header[4]]));
                    let (record, after) = rest.split_at_mut(end);
                    let (content_type, place) = opener.open(header, &mut record[5..]).unwrap();
                    assert_eq!(content_type, 23);
                    arrived.extend_from_slice(&record[5..][place]);
                    rest = after;
                }
                assert!(arrived == pattern(length), "{suite}");
                let mut reply = Vec::new();
                sealer.seal(23, &pattern(length), &mut reply);
                caller.taken.data.clear();
                for piece in reply.chunks_mut(5000) {
                    caller.receive(piece).unwrap();
                }
                assert!(caller.taken.data == pattern(length), "{suite}");
            }
            caller.client.close(&mut caller.output);
            assert!(caller.output.is_empty());
            assert_eq!(caller.client.end_of_input(), Ok(()));
            assert!(Caller::new(&config, None).receive(&mut b"HTTP/1.1 400 Bad Request\r\n".to_vec()).is_err());
        }
    }
}

/// The zero keys of TLS 1.3 as OpenSSL computes them: nonce and additional data as the contract says.
#[test]
fn minimal_records_are_those_of_the_suite() {
    let off = without([Stage::Setup]);
    let config = config(lean(Suite::Tls13Aes256Gcm, off));
    let mut caller = Caller::new(&config, None);
    for sequence in 0..2 {
        caller.client.send(b"GET /", &mut caller.output).unwrap();
        let record = std::mem::take(&mut caller.output);
        assert_eq!(record[..5], [23, 3, 3, 0, 5 + 1 + 16]);
        let cipher = openssl::symm::Cipher::aes_256_gcm();
        let nonce = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, sequence];
        let (sealed, tag) = record[5..].split_at(6);
        let plain = openssl::symm::decrypt_aead(cipher, &[0; 32], Some(&nonce), &record[..5], sealed, tag).unwrap();
        assert_eq!(plain, b"GET /\x17");
    }
}

#[test]
fn settings_that_contradict_each_other_say_so() {
    let suite = Suite::Tls13Aes128Gcm;
    let refused = |settings| Config::new(settings).unwrap_err();
    let skeleton = without([Stage::Handshake, Stage::Marshalling]);
    assert_eq!(refused(lean(suite, skeleton)), ConfigError::NoScript(Stage::Handshake));
    assert!(refused(lean(suite, without([Stage::Handshake]))).to_string().contains("marshalling"));
    assert!(refused(lean(suite, without([Stage::RoundTrip]))).to_string().contains("session_cache"));
    let many = Settings { suites: Vec::new(), ..lean(suite, without([Stage::Setup])) };
    assert_eq!(refused(many), ConfigError::SuiteNotPinned(3));
    let early = Settings { early_data: true, ..lean(suite, without([Stage::Marshalling])) };
    assert!(refused(early).to_string().contains("early data"));
    let resumed = Some(Script { flights: vec![200, 40, 80], ready_after: 9 });
    let scripts = Some(Scripts { resumed, ..scripts() });
    let error = refused(Settings { scripts, ..lean(suite, skeleton) });
    assert!(error.to_string().starts_with("the script of a resumed handshake cannot be played"), "{error}");
}
