//! What the client must refuse, and the alert that the server then gets.

use std::sync::{Arc, LazyLock, Mutex};

use proptest::prelude::*;
use tlsdyno_tls::crypto::CryptoError;
use tlsdyno_tls::{Alert, Config, Effort, Error, Group, Session, Settings, Suite};

use crate::harness::{
    Caller, EFFORTS, KeyKind, Server, View, config, connect, is_tls13, narrow, pattern, settings, talk, talk_along,
};
use crate::meddler::{ALERT, CHANGE_CIPHER_SPEC, DATA, Epoch, HANDSHAKE, Meddler, Piece};
use crate::openssl_server::{OpensslContext, OpensslServer};

const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const ENCRYPTED_EXTENSIONS: u8 = 8;
const CERTIFICATE: u8 = 11;
const SERVER_KEY_EXCHANGE: u8 = 12;
const SERVER_HELLO_DONE: u8 = 14;
const CERTIFICATE_VERIFY: u8 = 15;
const FINISHED: u8 = 20;

/// One suite on both ends.
struct Scene {
    suite: Suite,
    context: OpensslContext,
    config: Arc<Config>,
    session: Option<Session>,
}

const TLS13: Suite = Suite::Tls13Aes128Gcm;
const TLS12: Suite = Suite::EcdheEcdsaAes128Gcm;

impl Scene {
    fn new(suite: Suite, effort: Effort) -> Scene {
        Scene {
            suite,
            context: OpensslContext::narrow(KeyKind::P256, suite, Group::P256, |_| ()),
            config: config(narrow(suite, Group::P256, effort)),
            session: None,
        }
    }

    fn resumed(suite: Suite, effort: Effort) -> Scene {
        let mut scene = Scene::new(suite, effort);
        scene.session = connect(&scene.config, None, &mut scene.context.server()).taken.sessions.pop();
        assert!(scene.session.is_some());
        scene
    }

    /// A handshake, a request and its answer, with the server's records changed by `edit`. The server's end is given too, since the
    /// alert must reach it.
    fn play(&self, edit: &mut dyn FnMut(&Piece) -> Vec<Piece>) -> (Result<Caller, Error>, View) {
        let mut meddler = Meddler::new(self.suite, true, &self.context.key_log);
        self.play_along(&mut |bytes| vec![meddler.pass(&bytes, edit)])
    }

    fn play_along(&self, way: &mut dyn FnMut(Vec<u8>) -> Vec<Vec<u8>>) -> (Result<Caller, Error>, View) {
        let mut server = self.context.server();
        let mut caller = Caller::new(&self.config, self.session.clone());
        let result = talk_along(&mut caller, &mut server, way).and_then(|()| {
            if caller.client.is_connected() {
                caller.request(300);
                talk_along(&mut caller, &mut server, way)?;
            }
            Ok(())
        });
        (result.map(|()| caller), server.view())
    }

    /// Expects this error, and its alert at the server.
    #[track_caller]
    fn refuses(&self, expected: &Error, edit: &mut dyn FnMut(&Piece) -> Vec<Piece>) {
        let (result, view) = self.play(edit);
        let error = result.map(|_| ()).expect_err("the client refuses");
        assert_eq!(error, *expected);
        assert_eq!(view.alert, expected.alert().map(|alert| alert.0), "{view:?}");
    }

    /// Expects some error with this alert.
    #[track_caller]
    fn refuses_with(&self, alert: Alert, edit: &mut dyn FnMut(&Piece) -> Vec<Piece>) -> Error {
        let (result, view) = self.play(edit);
        let error = result.map(|_| ()).expect_err("the client refuses");
        assert_eq!(error.alert(), Some(alert), "{error}");
        assert_eq!(view.alert, Some(alert.0), "{error} {view:?}");
        error
    }
}

/// Changes the pieces that begin with this handshake message.
fn at(message: u8, mut change: impl FnMut(&mut Vec<u8>)) -> impl FnMut(&Piece) -> Vec<Piece> {
    replace(message, move |piece| {
        let mut content = piece.content.clone();
        change(&mut content);
        vec![piece.with(content)]
    })
}

/// Puts other pieces in the place of those that begin with this handshake message.
fn replace(message: u8, mut change: impl FnMut(&Piece) -> Vec<Piece>) -> impl FnMut(&Piece) -> Vec<Piece> {
    move |piece| {
        if piece.message() == Some(message) { change(piece) } else { vec![piece.clone()] }
    }
}

#[allow(clippy::ptr_arg)] // What `at` calls.
fn flip_last(content: &mut Vec<u8>) {
    *content.last_mut().unwrap() ^= 1;
}

fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (body.len() as u32).to_be_bytes();
    [&[kind], &length[..], body].concat()
}

#[test]
fn nothing_changed_is_accepted() {
    for suite in [TLS13, TLS12, Suite::EcdheEcdsaAes128Sha] {
        for scene in [Scene::new(suite, Effort::Honest), Scene::resumed(suite, Effort::Honest)] {
            let mut messages = Vec::new();
            let (result, _) = scene.play(&mut |piece| {
                messages.extend(piece.message());
                vec![piece.clone()]
            });
            let caller = result.unwrap();
            assert!(caller.taken.data == pattern(300));
            assert_eq!(caller.handshake().resumed.is_some(), scene.session.is_some());
            assert!(messages.contains(&FINISHED) && messages.contains(&SERVER_HELLO), "{messages:?}");
        }
    }
}

#[test]
fn a_wrong_finished_is_refused_at_every_effort() {
    for suite in [TLS13, TLS12, Suite::EcdheEcdsaAes128Sha, Suite::Tls13Aes256Gcm] {
        for effort in EFFORTS {
            for scene in [Scene::new(suite, effort), Scene::resumed(suite, effort)] {
                scene.refuses(&Error::BadFinished, &mut at(FINISHED, flip_last));
                scene.refuses(&Error::BadFinished, &mut at(FINISHED, |content| content[4] ^= 0x80));
                let short = |content: &mut Vec<u8>| *content = handshake(FINISHED, &content[4..content.len() - 1]);
                scene.refuses_with(Alert::DECRYPT_ERROR, &mut at(FINISHED, short));
            }
        }
    }
}

#[test]
fn a_wrong_signature_is_refused_at_honest_effort() {
    let bad_signature = Error::Refused(CryptoError::BadSignature);
    for (suite, message) in [(TLS13, CERTIFICATE_VERIFY), (TLS12, SERVER_KEY_EXCHANGE)] {
        Scene::new(suite, Effort::Honest).refuses(&bad_signature, &mut at(message, flip_last));
    }
    // At lean effort the transcript still tells: in TLS 1.3 the server's Finished is over other bytes, in TLS 1.2 it is the server
    // that refuses the client's.
    for effort in [Effort::Lean, Effort::Floor] {
        Scene::new(TLS13, effort).refuses(&Error::BadFinished, &mut at(CERTIFICATE_VERIFY, flip_last));
        let (result, view) = Scene::new(TLS12, effort).play(&mut at(SERVER_KEY_EXCHANGE, flip_last));
        assert!(result.is_ok_and(|caller| !caller.client.is_connected()) || view.failure.is_some());
    }
}

/// A server with stage `authentication` off signs with a constant: no client that has the stage on completes a handshake with it.
#[test]
fn the_noop_signature_is_refused_at_every_effort() {
    for (suite, message, signature_at) in [(TLS13, CERTIFICATE_VERIFY, 8), (TLS12, SERVER_KEY_EXCHANGE, 4 + 4 + 65 + 4)]
    {
        for effort in EFFORTS {
            let fill = |content: &mut Vec<u8>| content[signature_at..].fill(0xa5);
            Scene::new(suite, effort).refuses(&Error::Refused(CryptoError::BadSignature), &mut at(message, fill));
        }
    }
}

#[test]
fn the_signature_must_be_over_what_was_negotiated() {
    // TLS 1.2: another public share than the signed one.
    let share = |content: &mut Vec<u8>| {
        let other = tlsdyno_tls::crypto::exchange::KeyShare::generate(Group::P256, Effort::Honest, Default::default());
        content[8..8 + 65].copy_from_slice(other.public());
    };
    Scene::new(TLS12, Effort::Honest)
        .refuses(&Error::Refused(CryptoError::BadSignature), &mut at(SERVER_KEY_EXCHANGE, share));
    // Schemes that the key cannot have made, or that were not offered.
    for scheme in [0x0401, 0x0804, 0x0503, 0x0807, 0xffff_u16] {
        let rename = |content: &mut Vec<u8>| content[4..6].copy_from_slice(&scheme.to_be_bytes());
        Scene::new(TLS13, Effort::Honest).refuses_with(Alert::ILLEGAL_PARAMETER, &mut at(CERTIFICATE_VERIFY, rename));
    }
}

#[test]
fn invalid_key_shares_are_refused() {
    let off_curve = |content: &mut Vec<u8>, share_end: usize| content[share_end - 1] ^= 1;
    for effort in [Effort::Honest, Effort::Lean] {
        let expected = Error::Refused(CryptoError::BadKeyShare(Group::P256));
        // The share is the last thing of OpenSSL's ServerHello but for supported_versions, whose place varies: find the point.
        let point = |content: &[u8]| content.windows(4).position(|window| window == [0, 23, 0, 65]).unwrap() + 4;
        Scene::new(TLS13, effort).refuses(
            &expected,
            &mut at(SERVER_HELLO, |content| {
                let end = point(content) + 65;
                off_curve(content, end);
            }),
        );
        if effort == Effort::Lean {
            Scene::new(TLS12, effort)
                .refuses(&expected, &mut at(SERVER_KEY_EXCHANGE, |content| off_curve(content, 8 + 65)));
        }
    }
}

#[test]
fn certificates_are_refused_at_honest_effort() {
    let stranger = rcgen::generate_simple_self_signed(vec!["other.example".to_owned()]).unwrap().cert.der().to_vec();
    let narrow = || narrow(TLS13, Group::P256, Effort::Honest);
    let cases = [
        (Settings { trust_anchors: vec![stranger], ..narrow() }, Alert::UNKNOWN_CA),
        (Settings { server_name: Some("another.example".to_owned()), ..narrow() }, Alert::BAD_CERTIFICATE),
        (Settings { now_unix_s: 100_000_000_000, ..narrow() }, Alert::CERTIFICATE_EXPIRED),
        (Settings { now_unix_s: 0, ..narrow() }, Alert::CERTIFICATE_EXPIRED),
    ];
    for (settings, alert) in cases {
        for suite in [TLS13, TLS12] {
            let settings = Settings { suites: vec![suite], versions: vec![suite.version()], ..settings.clone() };
            let scene = Scene { config: config(settings), ..Scene::new(suite, Effort::Honest) };
            scene.refuses_with(alert, &mut |piece| vec![piece.clone()]);
        }
    }
    for scene in [Scene::new(TLS13, Effort::Honest), Scene::new(TLS12, Effort::Honest)] {
        let empty: &[u8] = if is_tls13(scene.suite) { &[0, 0, 0, 0] } else { &[0, 0, 0] };
        scene.refuses_with(
            Alert::DECODE_ERROR,
            &mut at(CERTIFICATE, |content| *content = handshake(CERTIFICATE, empty)),
        );
        scene.refuses_with(Alert::BAD_CERTIFICATE, &mut at(CERTIFICATE, |content| content[15] ^= 1));
    }
}

#[test]
fn every_changed_byte_of_a_protected_record_is_a_bad_record_mac() {
    for suite in [TLS13, TLS12, Suite::EcdheEcdsaAes128Sha] {
        let scene = Scene::new(suite, Effort::Lean);
        // Once for the first protected record, once for the first one with data.
        for wanted in [0, 1] {
            let mut position = 5;
            loop {
                let mut length = 0;
                let (result, view) = scene.play_along(&mut |bytes| {
                    let mut bytes = bytes;
                    let data_follows = scene_has_data(&bytes, wanted, suite);
                    if let Some(start) = data_follows.filter(|_| length == 0) {
                        length = 5 + usize::from(u16::from_be_bytes([bytes[start + 3], bytes[start + 4]]));
                        bytes[start + position] ^= 0x10;
                    }
                    vec![bytes]
                });
                assert_eq!(result.err(), Some(Error::BadRecordMac), "{suite} byte {position} of {length}");
                assert_eq!(view.alert, Some(Alert::BAD_RECORD_MAC.0));
                position += if position + 20 > length || position < 24 { 1 } else { 13 };
                if position >= length {
                    break;
                }
            }
        }
    }
}

/// Where the record to be changed starts: the first protected one (`wanted` 0), or the answer's (1), which comes alone.
fn scene_has_data(bytes: &[u8], wanted: usize, suite: Suite) -> Option<usize> {
    let mut start = 0;
    let mut changed = false;
    while start < bytes.len() {
        let length = 5 + usize::from(u16::from_be_bytes([bytes[start + 3], bytes[start + 4]]));
        let protected = if is_tls13(suite) { bytes[start] == DATA } else { changed };
        changed |= bytes[start] == CHANGE_CIPHER_SPEC;
        let is_answer = start == 0 && bytes[0] == DATA && length > 300 && length == bytes.len();
        if (wanted == 0 && protected) || (wanted == 1 && is_answer) {
            return Some(start);
        }
        start += length;
    }
    None
}

/// Any changed byte of the server's handshake: nobody is ever connected, except where the byte means nothing.
#[test]
fn no_changed_byte_of_the_handshake_goes_unnoticed() {
    // The messages of CBC suites are those of the others: a sample is enough.
    for (suite, step) in [(TLS13, 1), (TLS12, 1), (Suite::EcdheEcdsaAes128Sha, 7)] {
        for scene in [Scene::new(suite, Effort::Lean), Scene::resumed(suite, Effort::Lean)] {
            let mut position = 0;
            loop {
                let (mut passed, mut at_version) = (0, false);
                let (result, _) = scene.play_along(&mut |mut bytes| {
                    if (passed..passed + bytes.len()).contains(&position) {
                        at_version = is_record_version(&bytes, position - passed);
                        bytes[position - passed] ^= 1 << (position % 8);
                    }
                    passed += bytes.len();
                    vec![bytes]
                });
                let connected = result.is_ok_and(|caller| caller.taken.data == pattern(300));
                // The minor version of a record in clear, and the middlebox record of TLS 1.3, are not authenticated.
                assert!(!connected || at_version || position >= passed, "{suite} byte {position}");
                if connected && position >= passed {
                    break;
                }
                position += step;
            }
        }
    }
}

/// Whether the byte is the minor version of a record header.
fn is_record_version(bytes: &[u8], position: usize) -> bool {
    let mut start = 0;
    while start + 5 <= position {
        start += 5 + usize::from(u16::from_be_bytes([bytes[start + 3], bytes[start + 4]]));
        if start > position {
            return false;
        }
    }
    position == start + 2
}

#[test]
fn records_longer_than_allowed_are_refused() {
    let overflow = |length: usize, limit: usize| {
        Error::InvalidRecord(tlsdyno_wire::record::FrameError::Oversized { length, limit })
    };
    for suite in [TLS13, TLS12] {
        let scene = Scene::new(suite, Effort::Lean);
        let header = |content_type, length: usize| [&[content_type, 3, 3], &(length as u16).to_be_bytes()[..]].concat();
        // In clear: from the first header on, before any content is there.
        let (result, view) = scene.play_along(&mut |_| vec![header(HANDSHAKE, 16_385)]);
        assert_eq!(result.err(), Some(overflow(16_385, 16_384)));
        assert_eq!(view.alert, Some(Alert::RECORD_OVERFLOW.0));
        // Protected: by the version's expansion.
        let limit = if is_tls13(suite) { 16_384 + 256 } else { 16_384 + 2_048 };
        let (mut server, mut caller) = (scene.context.server(), Caller::new(&scene.config, None));
        talk(&mut caller, &mut server).unwrap();
        caller.receive(&mut header(DATA, limit)).unwrap();
        let (mut server, mut caller) = (scene.context.server(), Caller::new(&scene.config, None));
        talk(&mut caller, &mut server).unwrap();
        assert_eq!(caller.receive(&mut header(DATA, limit + 1)), Err(overflow(limit + 1, limit)));
        server.receive(&caller.output);
        assert_eq!(server.view().alert, Some(Alert::RECORD_OVERFLOW.0));
    }
}

#[test]
fn what_is_not_tls_is_named() {
    let scene = Scene::new(TLS13, Effort::Lean);
    let (result, _) = scene.play_along(&mut |_| vec![b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()]);
    let error = result.map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::InvalidRecord(_)) && error.to_string().contains("HTTP/"), "{error}");
}

#[test]
fn truncated_connections_are_told_apart() {
    for suite in [TLS13, TLS12] {
        let scene = Scene::new(suite, Effort::Lean);
        let (result, _) = scene.play_along(&mut |bytes| vec![bytes[..bytes.len() / 2].to_vec()]);
        let mut caller = result.unwrap();
        assert!(!caller.client.is_connected());
        assert_eq!(caller.client.end_of_input(), Err(Error::ClosedInHandshake));

        let mut caller = scene.play_along(&mut |bytes| vec![bytes]).0.unwrap();
        assert_eq!(caller.client.end_of_input(), Err(Error::Truncated));
    }
}

#[test]
fn messages_out_of_order_are_refused() {
    let drop_message = |kind| replace(kind, |_| Vec::new());
    let twice = |kind| replace(kind, |piece| vec![piece.clone(), piece.clone()]);
    for (suite, messages) in [
        (TLS13, &[ENCRYPTED_EXTENSIONS, CERTIFICATE, CERTIFICATE_VERIFY][..]),
        (TLS12, &[CERTIFICATE, SERVER_KEY_EXCHANGE]),
    ] {
        let scene = Scene::new(suite, Effort::Lean);
        for message in messages {
            scene.refuses_with(Alert::UNEXPECTED_MESSAGE, &mut drop_message(*message));
            scene.refuses_with(Alert::UNEXPECTED_MESSAGE, &mut twice(*message));
        }
        // Data before Finished.
        scene.refuses_with(
            Alert::UNEXPECTED_MESSAGE,
            &mut replace(FINISHED, |piece| {
                vec![Piece { content_type: DATA, ..piece.with(b"too early".to_vec()) }, piece.clone()]
            }),
        );
        // A message that no server sends.
        let ours = |piece: &Piece| vec![piece.with(handshake(1, &[0; 60]))];
        scene.refuses_with(Alert::UNEXPECTED_MESSAGE, &mut replace(CERTIFICATE, ours));
        // An empty handshake record.
        let empty = |piece: &Piece| vec![piece.with(Vec::new()), piece.clone()];
        scene.refuses_with(Alert::UNEXPECTED_MESSAGE, &mut replace(CERTIFICATE, empty));
        // A message interrupted by another type.
        let interrupted = |piece: &Piece| {
            let (first, second) = piece.content.split_at(20);
            let change = Piece { content_type: CHANGE_CIPHER_SPEC, epoch: Epoch::Clear, content: vec![1] };
            vec![piece.with(first.to_vec()), change, piece.with(second.to_vec())]
        };
        scene.refuses_with(Alert::UNEXPECTED_MESSAGE, &mut replace(CERTIFICATE, interrupted));
    }
}

#[test]
fn keys_change_only_between_records() {
    let more = |content: &mut Vec<u8>| content.extend(handshake(NEW_SESSION_TICKET, &[0; 20]));
    Scene::new(TLS13, Effort::Lean).refuses_with(Alert::UNEXPECTED_MESSAGE, &mut at(FINISHED, more));
    let more = |content: &mut Vec<u8>| content.extend(handshake(ENCRYPTED_EXTENSIONS, &[0, 0]));
    Scene::new(TLS13, Effort::Lean).refuses_with(Alert::UNEXPECTED_MESSAGE, &mut at(SERVER_HELLO, more));
    // TLS 1.2: a message begun in clear must not go on under keys.
    let begun = |piece: &Piece| vec![piece.clone(), piece.with(vec![NEW_SESSION_TICKET, 0])];
    Scene::new(TLS12, Effort::Lean).refuses_with(Alert::UNEXPECTED_MESSAGE, &mut replace(SERVER_HELLO_DONE, begun));
}

#[test]
fn change_cipher_spec_has_its_place() {
    let change = |content: Vec<u8>| Piece { epoch: Epoch::Clear, content_type: CHANGE_CIPHER_SPEC, content };
    // TLS 1.3: dropped during the handshake, if it is the one byte 1.
    let scene = Scene::new(TLS13, Effort::Lean);
    let mut inserted = |piece: &Piece| vec![change(vec![1]), piece.clone()];
    let (result, _) = scene.play(&mut replace(CERTIFICATE, &mut inserted));
    assert!(result.is_ok_and(|caller| caller.client.is_connected()));
    let wrong = |piece: &Piece| vec![change(vec![2]), piece.clone()];
    scene.refuses_with(Alert::UNEXPECTED_MESSAGE, &mut replace(CERTIFICATE, wrong));
    let protected = |piece: &Piece| vec![Piece { epoch: Epoch::Handshake, ..change(vec![1]) }, piece.clone()];
    scene.refuses_with(Alert::UNEXPECTED_MESSAGE, &mut replace(CERTIFICATE, protected));
    // TLS 1.2: not early (CVE-2014-0224), not twice, not missing.
    let scene = Scene::new(TLS12, Effort::Lean);
    let early = |piece: &Piece| vec![change(vec![1]), piece.clone()];
    for message in [CERTIFICATE, SERVER_KEY_EXCHANGE] {
        scene.refuses_with(Alert::UNEXPECTED_MESSAGE, &mut replace(message, early));
    }
    let twice = |piece: &Piece| match piece.content_type {
        CHANGE_CIPHER_SPEC => vec![piece.clone(), piece.clone()],
        _ => vec![piece.clone()],
    };
    // The second one is no longer in clear: it does not even authenticate.
    scene.refuses(&Error::BadRecordMac, &mut { twice });
    let missing = |piece: &Piece| match piece.content_type {
        CHANGE_CIPHER_SPEC => Vec::new(),
        _ => vec![piece.clone()],
    };
    assert!(scene.play(&mut { missing }).0.is_err());
}

/// Handshake messages do not care about records: one byte each, or all of a flight in one.
#[test]
fn messages_cut_and_joined_over_records_are_accepted() {
    for suite in [TLS13, TLS12, Suite::EcdheEcdsaAes128Sha] {
        for scene in [Scene::new(suite, Effort::Honest), Scene::resumed(suite, Effort::Honest)] {
            for length in [1, 3, 100] {
                let (result, _) = scene.play(&mut |piece| match piece.content_type {
                    CHANGE_CIPHER_SPEC | ALERT => vec![piece.clone()],
                    _ => piece.content.chunks(length).map(|part| piece.with(part.to_vec())).collect(),
                });
                assert!(result.unwrap().taken.data == pattern(300), "{suite} {length}");
            }
            let mut held: Option<Piece> = None;
            let (result, _) = scene.play(&mut |piece| join_flight(&mut held, piece));
            assert!(result.unwrap().taken.data == pattern(300), "{suite} joined");
        }
    }
}

/// Holds handshake messages back until the last of their flight and epoch.
fn join_flight(held: &mut Option<Piece>, piece: &Piece) -> Vec<Piece> {
    if piece.content_type != HANDSHAKE {
        return held.take().into_iter().chain([piece.clone()]).collect();
    }
    let mut joined = held.take().unwrap_or_else(|| piece.with(Vec::new()));
    let mut before = Vec::new();
    if joined.epoch != piece.epoch {
        before.push(std::mem::replace(&mut joined, piece.with(Vec::new())));
    }
    joined.content.extend_from_slice(&piece.content);
    let last = match (piece.message(), piece.epoch) {
        (Some(FINISHED | SERVER_HELLO_DONE | NEW_SESSION_TICKET), _) => true,
        // A TLS 1.3 ServerHello is followed by a key change.
        (Some(SERVER_HELLO), _) => piece.content.windows(6).any(|window| window == [0, 43, 0, 2, 3, 4]),
        _ => false,
    };
    if last {
        before.push(joined);
    } else {
        *held = Some(joined);
    }
    before
}

#[test]
fn the_server_may_update_its_keys() {
    for requested in [0, 1] {
        let scene = Scene::new(TLS13, Effort::Lean);
        let (mut server, mut caller) = (scene.context.server(), Caller::new(&scene.config, None));
        let mut meddler = Meddler::new(TLS13, true, &scene.context.key_log);
        talk_along(&mut caller, &mut server, &mut |bytes| vec![meddler.pass(&bytes, &mut |piece| vec![piece.clone()])])
            .unwrap();
        let mut update = Vec::new();
        let piece = Piece { epoch: Epoch::Application, content_type: HANDSHAKE, content: handshake(24, &[requested]) };
        meddler.seal(&piece, &mut update);
        meddler.update_keys();
        caller.receive(&mut update).unwrap();
        // The client's own update comes before its next data, and OpenSSL understands it.
        assert_eq!(caller.output.is_empty(), requested == 0);
        caller.request(300);
        talk_along(&mut caller, &mut server, &mut |bytes| vec![meddler.pass(&bytes, &mut |piece| vec![piece.clone()])])
            .unwrap();
        assert!(caller.taken.data == pattern(300));
    }
}

#[test]
fn what_comes_after_the_handshake_is_checked_too() {
    let piece =
        |content_type, content: &[u8]| Piece { epoch: Epoch::Application, content_type, content: content.to_vec() };
    let cases = [
        (TLS13, piece(HANDSHAKE, &handshake(24, &[2])), Alert::ILLEGAL_PARAMETER),
        (TLS13, piece(HANDSHAKE, &handshake(24, &[])), Alert::DECODE_ERROR),
        (TLS13, piece(HANDSHAKE, &handshake(13, &[0, 0, 0])), Alert::UNEXPECTED_MESSAGE),
        (TLS13, piece(HANDSHAKE, &handshake(NEW_SESSION_TICKET, &[0; 7])), Alert::DECODE_ERROR),
        (TLS13, piece(HANDSHAKE, &handshake(FINISHED, &[0; 32])), Alert::UNEXPECTED_MESSAGE),
        (TLS13, piece(CHANGE_CIPHER_SPEC, &[1]), Alert::UNEXPECTED_MESSAGE),
        (TLS13, piece(ALERT, &[2]), Alert::DECODE_ERROR),
        (TLS12, piece(HANDSHAKE, &handshake(SERVER_HELLO, &[0; 70])), Alert::UNEXPECTED_MESSAGE),
        (TLS12, piece(CHANGE_CIPHER_SPEC, &[1]), Alert::UNEXPECTED_MESSAGE),
        (TLS12, piece(24, &[1]), Alert::UNEXPECTED_MESSAGE),
    ];
    for (suite, piece, alert) in cases {
        let (error, view) = inject(suite, &piece);
        let error = error.expect_err("the client refuses");
        assert_eq!((error.alert(), view.alert), (Some(alert), Some(alert.0)), "{error}: {piece:?}");
    }
    // Received alerts are named and not answered.
    for suite in [TLS13, TLS12] {
        let (result, view) = inject(suite, &piece(ALERT, &[2, 80]));
        assert_eq!(result, Err(Error::AlertReceived(Alert::INTERNAL_ERROR)));
        assert_eq!(view.alert, None);
        assert_eq!(inject(suite, &piece(DATA, &[])).0, Ok(()));
    }
}

/// A request to renegotiate is declined with a warning, once, and the connection lives on.
#[test]
fn renegotiation_is_declined_once() {
    let scene = Scene::new(TLS12, Effort::Lean);
    let (mut server, mut caller) = (scene.context.server(), Caller::new(&scene.config, None));
    let mut meddler = Meddler::new(TLS12, true, &scene.context.key_log);
    let mut passing = |bytes: Vec<u8>| vec![meddler.pass(&bytes, &mut |piece| vec![piece.clone()])];
    talk_along(&mut caller, &mut server, &mut passing).unwrap();
    let request = Piece { epoch: Epoch::Application, content_type: HANDSHAKE, content: handshake(0, &[]) };
    for warnings in [1, 0, 0] {
        let mut record = Vec::new();
        meddler.seal(&request, &mut record);
        caller.receive(&mut record).unwrap();
        // An alert of two bytes with explicit nonce and tag.
        let header = [ALERT, 3, 3, 0, 8 + 2 + 16];
        assert_eq!(caller.output.len(), warnings * (5 + 26));
        assert!(caller.output.starts_with(&header[..5 * warnings]));
        // Not delivered: OpenSSL, which never asked, takes the warning for an end.
        caller.output.clear();
    }
    assert!(caller.client.is_connected());
}

/// A server that sends what means nothing must come to the point.
#[test]
fn records_without_meaning_are_bounded() {
    let change = Piece { epoch: Epoch::Clear, content_type: CHANGE_CIPHER_SPEC, content: vec![1] };
    let warning = Piece { epoch: Epoch::Clear, content_type: ALERT, content: vec![1, 112] };
    let hello_request = Piece { epoch: Epoch::Clear, content_type: HANDSHAKE, content: handshake(0, &[]) };
    for (suite, message, piece) in
        [(TLS13, SERVER_HELLO, change), (TLS12, SERVER_HELLO, warning), (TLS12, CERTIFICATE, hello_request)]
    {
        // OpenSSL's own change_cipher_spec of TLS 1.3, after the ServerHello, counts too.
        let own = usize::from(is_tls13(suite));
        for effort in EFFORTS {
            let scene = Scene::new(suite, effort);
            let with = |count: usize| {
                let piece = piece.clone();
                replace(message, move |last| [vec![piece.clone(); count], vec![last.clone()]].concat())
            };
            let (result, _) = scene.play(&mut with(32 - own));
            assert!(result.is_ok_and(|caller| caller.client.is_connected()), "{suite}");
            scene.refuses_with(Alert::UNEXPECTED_MESSAGE, &mut with(33));
        }
    }
}

#[test]
fn extensions_empty_by_definition_must_be_empty() {
    // Extended master secret and session ticket of a TLS 1.2 ServerHello.
    for kind in [[0, 23, 0, 0], [0, 35, 0, 0]] {
        let fill = |content: &mut Vec<u8>| {
            let start = 4 + 2 + 32 + 1 + usize::from(content[38]) + 3;
            let found = content[start..].windows(4).position(|window| window == kind);
            let at = start + found.expect("OpenSSL sends this extension");
            content[at + 3] = 1;
            content.insert(at + 4, 0);
            let length = u16::from_be_bytes([content[start], content[start + 1]]) + 1;
            content[start..start + 2].copy_from_slice(&length.to_be_bytes());
            *content = handshake(SERVER_HELLO, &content[4..]);
        };
        Scene::new(TLS12, Effort::Lean).refuses_with(Alert::DECODE_ERROR, &mut at(SERVER_HELLO, fill));
    }
    // server_name in EncryptedExtensions: the only one there, empty, full, and when an address was not sent as a name.
    let name = |body: &[u8]| {
        let extension = [&[0, 0, 0, body.len() as u8][..], body].concat();
        let body = [&[0, extension.len() as u8][..], &extension].concat();
        move |content: &mut Vec<u8>| *content = handshake(ENCRYPTED_EXTENSIONS, &body)
    };
    let scene = Scene::new(TLS13, Effort::Lean);
    // The transcripts differ now; what counts is that the extension itself passes.
    scene.refuses(&Error::BadFinished, &mut at(ENCRYPTED_EXTENSIONS, name(&[])));
    scene.refuses_with(Alert::DECODE_ERROR, &mut at(ENCRYPTED_EXTENSIONS, name(&[0])));
    let by_address = Settings { server_name: Some("127.0.0.1".to_owned()), ..narrow(TLS13, Group::P256, Effort::Lean) };
    let scene = Scene { config: config(by_address), ..scene };
    scene.refuses_with(Alert::UNSUPPORTED_EXTENSION, &mut at(ENCRYPTED_EXTENSIONS, name(&[])));
}

/// A resumption verifies nothing anew, so that a session must be as good as what it stands for.
#[test]
fn unverified_and_foreign_sessions_are_not_offered() {
    for suite in [TLS13, TLS12] {
        let scene = Scene::resumed(suite, Effort::Lean);
        let resumes = |settings: Settings| {
            let mut server = scene.context.server();
            let caller = connect(&config(settings), scene.session.clone(), &mut server);
            (caller.handshake().offered.is_some(), caller.handshake().resumed.is_some())
        };
        assert_eq!(resumes(narrow(suite, Group::P256, Effort::Lean)), (true, true));
        assert_eq!(resumes(narrow(suite, Group::P256, Effort::Honest)), (false, false));
        let foreign =
            Settings { server_name: Some("other.example".to_owned()), ..narrow(suite, Group::P256, Effort::Lean) };
        assert_eq!(resumes(foreign), (false, false));
    }
}

/// One more record of the server on a complete connection.
fn inject(suite: Suite, piece: &Piece) -> (Result<(), Error>, View) {
    let scene = Scene::new(suite, Effort::Lean);
    let (mut server, mut caller): (OpensslServer, _) = (scene.context.server(), Caller::new(&scene.config, None));
    let mut meddler = Meddler::new(suite, true, &scene.context.key_log);
    talk_along(&mut caller, &mut server, &mut |bytes| vec![meddler.pass(&bytes, &mut |piece| vec![piece.clone()])])
        .unwrap();
    let mut record = Vec::new();
    meddler.seal(piece, &mut record);
    let result = caller.receive(&mut record);
    server.receive(&caller.output);
    (result, server.view())
}

/// The ServerHello's own fields.
#[test]
fn server_hellos_that_do_not_answer_the_client_are_refused() {
    // Offsets: header 4, version 2, random 32, session id (length first), suite 2, compression 1, extensions.
    let suite_at = |content: &[u8]| 4 + 2 + 32 + 1 + usize::from(content[38]);
    for (suite, other) in [(TLS13, 0x1302_u16), (TLS12, 0xc02f)] {
        let scene = Scene::new(suite, Effort::Lean);
        for code in [other, 0x0000, 0x5600] {
            scene.refuses_with(
                Alert::ILLEGAL_PARAMETER,
                &mut at(SERVER_HELLO, |content| {
                    let at = suite_at(content);
                    content[at..at + 2].copy_from_slice(&code.to_be_bytes());
                }),
            );
        }
        scene.refuses_with(
            Alert::ILLEGAL_PARAMETER,
            &mut at(SERVER_HELLO, |content| {
                let at = suite_at(content) + 2;
                content[at] = 1;
            }),
        );
        scene.refuses_with(Alert::PROTOCOL_VERSION, &mut at(SERVER_HELLO, |content| content[5] = 2));
        scene.refuses_with(
            Alert::DECODE_ERROR,
            &mut at(SERVER_HELLO, |content| *content = handshake(SERVER_HELLO, &content[4..content.len() - 1])),
        );
        scene.refuses_with(Alert::UNSUPPORTED_EXTENSION, &mut at(SERVER_HELLO, add_extension));
    }
    // A TLS 1.3 server must echo the session id, here none.
    Scene::new(TLS13, Effort::Lean).refuses_with(
        Alert::ILLEGAL_PARAMETER,
        &mut at(SERVER_HELLO, |content| {
            let body = [&content[4..38], &[1, 0xaa], &content[39..]].concat();
            *content = handshake(SERVER_HELLO, &body);
        }),
    );
    // A server that speaks TLS 1.3 but was made to choose TLS 1.2 says so in its random.
    let scene = Scene { config: config(settings()), ..Scene::new(TLS12, Effort::Lean) };
    scene.refuses_with(
        Alert::ILLEGAL_PARAMETER,
        &mut at(SERVER_HELLO, |content| content[30..38].copy_from_slice(b"DOWNGRD\x01")),
    );
}

/// Appends an extension that nobody offered.
fn add_extension(content: &mut Vec<u8>) {
    let at = 4 + 2 + 32 + 1 + usize::from(content[38]) + 3;
    let length = u16::from_be_bytes([content[at], content[at + 1]]) + 4;
    content[at..at + 2].copy_from_slice(&length.to_be_bytes());
    content.extend([0x7a, 0x7a, 0, 0]);
    *content = handshake(SERVER_HELLO, &content[4..]);
}

/// One change of a record's content.
#[derive(Clone, Debug)]
enum Mutation {
    Set(usize, u8),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Replace(Vec<u8>),
}

impl Mutation {
    fn apply(&self, content: &[u8]) -> Vec<u8> {
        let mut content = content.to_vec();
        let place = |at: &usize, length: usize| at % (length + 1);
        match self {
            Mutation::Set(at, byte) => {
                let at = place(at, content.len() - 1);
                content[at] = *byte;
            }
            Mutation::Insert(at, bytes) => {
                let at = place(at, content.len());
                content.splice(at..at, bytes.iter().copied());
            }
            Mutation::Remove(at, length) => {
                let at = place(at, content.len());
                let end = content.len().min(at + length);
                content.drain(at..end);
            }
            Mutation::Replace(bytes) => content.clone_from(bytes),
        }
        content
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (any::<usize>(), bytes()).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (any::<usize>(), 1..9_usize).prop_map(|(at, length)| Mutation::Remove(at, length)),
        bytes().prop_map(Mutation::Replace),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Whatever a message of the handshake is changed to, inside the encryption too: no panic, and no connection.
    #[test]
    fn no_changed_message_connects(
        suite in prop::sample::select(vec![TLS13, TLS12]),
        resumed in any::<bool>(),
        wanted in 0..6_usize,
        mutation in mutation(),
    ) {
        static SCENES: LazyLock<Mutex<Vec<Scene>>> = LazyLock::new(|| {
            let all = [TLS13, TLS12].into_iter();
            Mutex::new(all.flat_map(|suite| [Scene::new(suite, Effort::Lean), Scene::resumed(suite, Effort::Lean)]).collect())
        });
        let scenes = SCENES.lock().unwrap();
        let scene = &scenes[2 * usize::from(suite == TLS12) + usize::from(resumed)];
        let (mut seen, mut changed) = (0, false);
        let (result, _) = scene.play(&mut |piece| {
            let before_application = piece.epoch < Epoch::Application || piece.message() == Some(FINISHED);
            let count = piece.content_type == HANDSHAKE && before_application && !piece.content.is_empty();
            seen += usize::from(count);
            if !count || seen != wanted + 1 {
                return vec![piece.clone()];
            }
            let content = mutation.apply(&piece.content);
            changed = content != piece.content;
            vec![piece.with(content)]
        });
        let connected = result.is_ok_and(|caller| caller.client.is_connected());
        prop_assert_eq!(connected, !changed);
    }
}
