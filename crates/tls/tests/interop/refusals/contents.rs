//! Messages of the handshake that say what they must not.

use tlsdyno_tls::Settings;
use tlsdyno_tls::crypto::CryptoError;

use super::*;
use crate::harness::{EFFORTS, is_tls13, settings};

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
    // At lean effort the transcript still tells: in TLS 1.3 the server's Finished is over other bytes, in TLS 1.2 it is
    // the server that refuses the client's.
    for effort in [Effort::Lean, Effort::Floor] {
        Scene::new(TLS13, effort).refuses(&Error::BadFinished, &mut at(CERTIFICATE_VERIFY, flip_last));
        let (result, view) = Scene::new(TLS12, effort).play(&mut at(SERVER_KEY_EXCHANGE, flip_last));
        assert!(result.is_ok_and(|caller| !caller.client.is_connected()) || view.failure.is_some());
    }
}

/// A server with stage `authentication` off signs with a constant: no client that has the stage on completes a
/// handshake with it.
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
        let mut point = Vec::new();
        other.put(&mut point);
        content[8..8 + 65].copy_from_slice(&point);
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
        // The share is the last thing of OpenSSL's ServerHello but for supported_versions, whose place varies: find the
        // point.
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
