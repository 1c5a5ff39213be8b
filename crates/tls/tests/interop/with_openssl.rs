//! Interoperation with OpenSSL.

use std::sync::Arc;

use openssl::ssl::{AlpnError, SslContextBuilder, SslOptions, SslVersion, select_next_proto};
use tlsdyno_tls::suite::KeyExchange;
use tlsdyno_tls::{ClientCertificate, Effort, Group, Lack, SessionKind, Settings, Suite, Version};

use crate::harness::{
    Caller, EFFORTS, KeyKind, Server, config, connect, identity, is_tls13, keys_for, narrow, settings, talk,
};
use crate::openssl_server::{OpensslContext, no_tickets};

#[test]
fn every_suite_key_group_and_effort() {
    for &suite in Suite::ALL {
        for &key in keys_for(suite) {
            for group in groups_of(suite) {
                let context = OpensslContext::narrow(key, suite, group, |_| ());
                for effort in EFFORTS {
                    let caller =
                        connect(&config(narrow_with_curve(suite, key, group, effort)), None, &mut context.server());
                    let handshake = caller.handshake();
                    let ephemeral = suite.key_exchange() != KeyExchange::Rsa;
                    assert_eq!((handshake.version, handshake.suite), (suite.version(), suite));
                    assert_eq!(handshake.group, ephemeral.then_some(group));
                    assert_eq!((handshake.offered, handshake.resumed), (None, None));
                    assert!(!handshake.hello_retry && !handshake.certificate_requested);
                    assert_eq!(handshake.extended_master_secret, !is_tls13(suite));
                }
            }
        }
    }
}

/// Static RSA has no group: one is enough. OpenSSL has hybrids from version 3.5 on, GnuTLS from 3.8.8.
pub fn groups_of(suite: Suite) -> Vec<Group> {
    match suite.key_exchange() {
        KeyExchange::Rsa => vec![Group::X25519],
        _ => Group::CURVES.to_vec(),
    }
}

/// libssl (TLS 1.2) only uses an ECDSA certificate whose curve the client lists.
pub fn narrow_with_curve(suite: Suite, key: KeyKind, group: Group, effort: Effort) -> Settings {
    let mut settings = narrow(suite, group, effort);
    let curve = match key {
        KeyKind::P256 => Group::P256,
        KeyKind::P384 => Group::P384,
        KeyKind::Rsa2048 => return settings,
    };
    if !is_tls13(suite) && curve != group {
        settings.groups.push(curve);
    }
    settings
}

#[test]
fn every_suite_resumes_by_every_kind_of_session_at_every_effort() {
    for &suite in Suite::ALL {
        let key = keys_for(suite)[0];
        let kinds = match suite.version() {
            Version::Tls13 => &[(SessionKind::Tls13Psk, true), (SessionKind::Tls13Psk, false)][..],
            Version::Tls12 => &[(SessionKind::Tls12Ticket, true), (SessionKind::Tls12Id, false)],
        };
        for &(kind, server_tickets) in kinds {
            let configure = |builder: &mut SslContextBuilder| {
                if !server_tickets {
                    no_tickets(builder);
                }
            };
            let context = OpensslContext::narrow(key, suite, Group::P256, configure);
            let stranger = OpensslContext::narrow(key, suite, Group::P256, configure);
            for effort in EFFORTS {
                let config = config(narrow(suite, Group::P256, effort));
                let first = connect(&config, None, &mut context.server());
                let session = first.taken.sessions.last().expect("the server issued a session").clone();
                assert_eq!(session.kind(), kind);

                let refused = connect(&config, Some(session.clone()), &mut stranger.server());
                assert_eq!((refused.handshake().offered, refused.handshake().resumed), (Some(kind), None));

                // A TLS 1.3 session without tickets is in the server's cache, once.
                let times = if kind == SessionKind::Tls13Psk && !server_tickets { 1 } else { 3 };
                for _ in 0..times {
                    let resumed = connect(&config, Some(session.clone()), &mut context.server());
                    let handshake = resumed.handshake();
                    assert_eq!((handshake.offered, handshake.resumed), (Some(kind), Some(kind)), "{suite} {effort}");
                    assert_eq!(handshake.group, is_tls13(suite).then_some(Group::P256));
                }
            }
        }
    }
}

#[test]
fn sessions_of_resumed_connections_resume_too() {
    for suite in [Suite::Tls13Aes128Gcm, Suite::EcdheEcdsaAes128Gcm] {
        let context = OpensslContext::narrow(KeyKind::P256, suite, Group::P256, |_| ());
        let config = config(narrow(suite, Group::P256, Effort::Lean));
        let mut session = connect(&config, None, &mut context.server()).taken.sessions.pop();
        for _ in 0..4 {
            let mut caller = connect(&config, session.clone(), &mut context.server());
            assert!(caller.handshake().resumed.is_some());
            session = caller.taken.sessions.pop().or(session);
        }
    }
}

#[test]
fn tls12_extensions_may_be_left_out() {
    let cbc = [Suite::RsaAes128Sha, Suite::RsaAes256Sha256, Suite::EcdheRsaAes256Sha, Suite::EcdheRsaAes128Sha256];
    for suite in cbc.into_iter().chain([Suite::EcdheRsaAes128Gcm]) {
        let context = OpensslContext::narrow(KeyKind::Rsa2048, suite, Group::X25519, |_| ());
        for encrypt_then_mac in [false, true] {
            for extended_master_secret in [false, true] {
                let config = config(Settings {
                    encrypt_then_mac,
                    extended_master_secret,
                    ..narrow(suite, Group::X25519, Effort::Honest)
                });
                let first = connect(&config, None, &mut context.server());
                let expected = (encrypt_then_mac && cbc.contains(&suite), extended_master_secret);
                let negotiated = |caller: &Caller| {
                    let handshake = caller.handshake();
                    (handshake.encrypt_then_mac, handshake.extended_master_secret)
                };
                assert_eq!(negotiated(&first), expected, "{suite}");
                let session = first.taken.sessions.last().cloned();
                let resumed = connect(&config, session, &mut context.server());
                assert!(resumed.handshake().resumed.is_some());
                assert_eq!(negotiated(&resumed), expected, "{suite}");
            }
        }
    }
}

#[test]
fn without_tickets_the_client_takes_ids() {
    let context = OpensslContext::narrow(KeyKind::P256, Suite::EcdheEcdsaAes128Gcm, Group::P256, |_| ());
    let config = config(Settings { tickets: false, ..narrow(Suite::EcdheEcdsaAes128Gcm, Group::P256, Effort::Lean) });
    let first = connect(&config, None, &mut context.server());
    let session = first.taken.sessions.last().unwrap().clone();
    assert_eq!(session.kind(), SessionKind::Tls12Id);
    let resumed = connect(&config, Some(session), &mut context.server());
    assert_eq!(resumed.handshake().resumed, Some(SessionKind::Tls12Id));
}

#[test]
fn a_retry_is_answered_full_and_resumed_at_every_effort() {
    for suite in [Suite::Tls13Aes128Gcm, Suite::Tls13Aes256Gcm] {
        for effort in EFFORTS {
            let context = OpensslContext::narrow(KeyKind::P256, suite, Group::P384, |_| ());
            let settings =
                Settings { groups: vec![Group::X25519, Group::P384], ..narrow(suite, Group::X25519, effort) };
            let config = config(settings);
            let first = connect(&config, None, &mut context.server());
            assert!(first.handshake().hello_retry);
            assert_eq!(first.handshake().group, Some(Group::P384));
            let session = first.taken.sessions.last().cloned();
            let resumed = connect(&config, session, &mut context.server());
            assert!(resumed.handshake().hello_retry);
            assert_eq!(resumed.handshake().resumed, Some(SessionKind::Tls13Psk));
        }
    }
}

/// Sessions are resumed by their key alone where the server agrees (SSL_OP_ALLOW_NO_DHE_KEX, ssl(3)); elsewhere it asks
/// for a key share, and the handshake is full.
#[test]
fn a_session_resumes_without_a_key_agreement() {
    const ALLOW_NO_DHE_KEX: SslOptions = SslOptions::from_bits_retain(1 << 10);
    for suite in [Suite::Tls13Aes128Gcm, Suite::Tls13Aes256Gcm] {
        for (allowed, kind) in [(ALLOW_NO_DHE_KEX, Some(SessionKind::Tls13Psk)), (SslOptions::empty(), None)] {
            let context = OpensslContext::narrow(KeyKind::P256, suite, Group::X25519, |builder| {
                builder.set_options(allowed);
            });
            let usual = narrow(suite, Group::X25519, Effort::Honest);
            let session = connect(&config(usual.clone()), None, &mut context.server()).taken.sessions.pop();
            let lacking = Settings { lack: Some(Lack::Agreement), ..usual };
            let resumed = connect(&config(lacking), session, &mut context.server());
            assert_eq!(resumed.handshake().resumed, kind);
            assert_eq!(resumed.handshake().group, kind.is_none().then_some(Group::X25519));
        }
    }
}

#[test]
fn a_share_that_gives_no_secret_is_refused() {
    let context = OpensslContext::narrow(KeyKind::P256, Suite::Tls13Aes128Gcm, Group::X25519, |_| ());
    let settings = Settings { lack: Some(Lack::Secret), ..narrow(Suite::Tls13Aes128Gcm, Group::X25519, Effort::Lean) };
    let refusal = talk(&mut Caller::new(&config(settings), None), &mut context.server()).unwrap_err();
    assert!(refusal.to_string().contains("alert"), "{refusal}");
}

#[test]
fn keys_that_are_used_up_are_changed() {
    for suite in [Suite::Tls13Aes128Gcm, Suite::Tls13Aes256Gcm] {
        let context = OpensslContext::narrow(KeyKind::P256, suite, Group::X25519, |_| ());
        // `connect` sends four requests and close_notify: several keys, the last one after two updates at least.
        for records_per_key_count in [1, 2] {
            let settings = Settings { records_per_key_count, ..narrow(suite, Group::X25519, Effort::Honest) };
            connect(&config(settings), None, &mut context.server());
        }
        let updates = |records_per_key_count| {
            let settings = Settings { records_per_key_count, ..narrow(suite, Group::X25519, Effort::Lean) };
            let mut caller = Caller::new(&config(settings), None);
            talk(&mut caller, &mut context.server()).unwrap();
            (0..10).for_each(|_| caller.request(1));
            caller.output.len()
        };
        assert!(updates(1) > updates(5) && updates(5) > updates(100), "each update is a record more");
    }
}

#[test]
fn a_cookie_is_sent_back() {
    for suite in [Suite::Tls13Aes128Gcm, Suite::Tls13Aes256Gcm] {
        let context = OpensslContext::narrow(KeyKind::P256, suite, Group::X25519, |builder| {
            builder.set_stateless_cookie_generate_cb(|_, cookie| {
                cookie[..4].copy_from_slice(b"tart");
                Ok(4)
            });
            builder.set_stateless_cookie_verify_cb(|_, cookie| cookie == b"tart");
        });
        let config = config(narrow(suite, Group::X25519, Effort::Honest));
        let caller = connect(&config, None, &mut context.stateless_server());
        assert!(caller.handshake().hello_retry);
    }
}

/// Everything offered at once: the server picks, and the transcript's hash is only known with the ServerHello.
#[test]
fn a_wide_offer_finds_what_the_server_speaks() {
    let config = config(settings());
    for (suite, group) in [
        (Suite::Tls13Aes256Gcm, Group::X25519),
        (Suite::Tls13Aes128Gcm, Group::P384),
        (Suite::EcdheEcdsaAes256Gcm, Group::P256),
        (Suite::EcdheEcdsaAes128Sha, Group::P256),
    ] {
        let context = OpensslContext::narrow(KeyKind::P256, suite, group, |_| ());
        let first = connect(&config, None, &mut context.server());
        assert_eq!((first.handshake().suite, first.handshake().group), (suite, Some(group)));
        let session = first.taken.sessions.last().cloned();
        assert!(connect(&config, session, &mut context.server()).handshake().resumed.is_some());
    }
}

/// A session of a version that the server no longer speaks, or of another suite, costs nothing but a full handshake.
#[test]
fn sessions_that_do_not_fit_are_not_resumed() {
    let config = config(settings());
    let tls13 = OpensslContext::narrow(KeyKind::P256, Suite::Tls13Aes256Gcm, Group::X25519, |_| ());
    let tls12 = OpensslContext::narrow(KeyKind::P256, Suite::EcdheEcdsaAes128Gcm, Group::P256, |_| ());
    let other_hash = OpensslContext::narrow(KeyKind::P256, Suite::Tls13Aes128Gcm, Group::X25519, |_| ());
    let session13 = connect(&config, None, &mut tls13.server()).taken.sessions.pop();
    let session12 = connect(&config, None, &mut tls12.server()).taken.sessions.pop();
    for (session, context) in [(&session13, &tls12), (&session12, &tls13), (&session13, &other_hash)] {
        let caller = connect(&config, session.clone(), &mut context.server());
        assert!(caller.handshake().offered.is_some());
        assert_eq!(caller.handshake().resumed, None);
    }
    // A client that does not offer the session's suite or version does not offer the session either.
    let narrow = crate::harness::config(narrow(Suite::Tls13Aes128Gcm, Group::X25519, Effort::Lean));
    for session in [session12, session13] {
        assert_eq!(connect(&narrow, session, &mut other_hash.server()).handshake().offered, None);
    }
}

#[test]
fn alpn_is_reported_in_both_versions() {
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let context = OpensslContext::new(KeyKind::P256, |builder| {
            builder.set_max_proto_version(Some(version)).unwrap();
            builder.set_alpn_select_callback(|_, offered| {
                select_next_proto(b"\x08http/1.1", offered).ok_or(AlpnError::NOACK)
            });
        });
        for (offered, chosen) in
            [(&["h2", "http/1.1"][..], Some(1)), (&["http/1.1"], Some(0)), (&["h2"], None), (&[], None)]
        {
            let alpn = offered.iter().map(|name| (*name).to_owned()).collect();
            let caller = connect(&config(Settings { alpn, ..settings() }), None, &mut context.server());
            assert_eq!(caller.handshake().alpn, chosen);
        }
    }
}

#[test]
fn a_server_that_asks_for_a_certificate_gets_none() {
    use openssl::ssl::SslVerifyMode;
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let context = OpensslContext::new(KeyKind::Rsa2048, |builder| {
            builder.set_max_proto_version(Some(version)).unwrap();
            builder.set_verify(SslVerifyMode::PEER);
        });
        let caller = connect(&config(settings()), None, &mut context.server());
        assert!(caller.handshake().certificate_requested);
    }
}

/// OpenSSL checks the client's signature before it asks whether its certificate is welcome.
#[test]
fn a_server_that_asks_for_a_certificate_gets_it() {
    use openssl::ssl::SslVerifyMode;
    for version in [Version::Tls12, Version::Tls13] {
        for key in [KeyKind::Rsa2048, KeyKind::P256, KeyKind::P384] {
            let (seen, sees) = std::sync::mpsc::channel();
            let sees = std::sync::Mutex::new(sees);
            let context = OpensslContext::new(KeyKind::Rsa2048, |builder| {
                let mode = SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT;
                builder.set_verify_callback(mode, move |_, chain| {
                    let certificate = chain.current_cert().unwrap().to_der().unwrap();
                    seen.send(certificate).unwrap();
                    true
                });
            });
            let own = identity(key);
            let client = ClientCertificate::new(vec![own.certificate_der.clone()], &own.key_pkcs8).unwrap();
            let client_certificate = Some(Arc::new(client));
            for suites in [Vec::new(), vec![Suite::EcdheRsaAes256Gcm], vec![Suite::RsaAes128Sha]] {
                let suites = if version == Version::Tls13 { Vec::new() } else { suites };
                for extended_master_secret in [true, false] {
                    let settings = Settings {
                        versions: vec![version],
                        suites: suites.clone(),
                        extended_master_secret,
                        client_certificate: client_certificate.clone(),
                        ..settings()
                    };
                    let caller = connect(&config(settings), None, &mut context.server());
                    assert!(caller.handshake().certificate_requested);
                    assert!(sees.lock().unwrap().try_iter().any(|der| der == own.certificate_der), "{version} {key:?}");
                }
            }
            let none = Settings { versions: vec![version], ..settings() };
            let mut caller = Caller::new(&config(none), None);
            assert!(talk(&mut caller, &mut context.server()).is_err(), "the server insists");
        }
    }
}

#[test]
fn the_server_closes_in_order() {
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let context = OpensslContext::new(KeyKind::P256, |builder| {
            builder.set_max_proto_version(Some(version)).unwrap();
        });
        let (mut caller, mut server) = (Caller::new(&config(settings()), None), context.server());
        talk(&mut caller, &mut server).unwrap();
        server.close();
        talk(&mut caller, &mut server).unwrap();
        assert!(caller.client.peer_closed());
        assert_eq!(caller.client.end_of_input(), Ok(()));
    }
}
