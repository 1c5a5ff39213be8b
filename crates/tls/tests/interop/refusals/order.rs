//! Messages and records that come when they must not, and what may come where.

use super::*;
use crate::harness::{EFFORTS, is_tls13};
use crate::meddler::{ALERT, CHANGE_CIPHER_SPEC, DATA, Epoch, HANDSHAKE};
use crate::openssl_server::OpensslServer;

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
