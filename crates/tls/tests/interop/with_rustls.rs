//! Interoperation with rustls.

use tlsdyno_tls::{Effort, Group, SessionKind, Settings, Suite, Version};

use crate::harness::{
    Caller, EFFORTS, KeyKind, Server, config, connect, groups_for, is_tls13, keys_for, narrow, settings, talk,
};
use crate::rustls_server::{RustlsServer, has_group, rustls_config, speaks};

#[test]
fn every_suite_key_group_and_effort() {
    for suite in Suite::ALL.iter().copied().filter(|suite| speaks(*suite)) {
        for &key in keys_for(suite) {
            for &group in groups_for(suite).iter().filter(|group| has_group(**group)) {
                let server = rustls_config(key, &[suite], &[group], true);
                for effort in EFFORTS {
                    let caller = connect(&config(narrow(suite, group, effort)), None, &mut RustlsServer::new(&server));
                    let handshake = caller.handshake();
                    assert_eq!((handshake.suite, handshake.group), (suite, Some(group)));
                    assert_eq!(handshake.resumed, None);
                }
            }
        }
    }
}

#[test]
fn every_suite_resumes_by_every_kind_of_session_at_every_effort() {
    for suite in Suite::ALL.iter().copied().filter(|suite| speaks(*suite)) {
        for tickets in [true, false] {
            let kind = match (suite.version(), tickets) {
                (Version::Tls13, _) => SessionKind::Tls13Psk,
                (Version::Tls12, true) => SessionKind::Tls12Ticket,
                (Version::Tls12, false) => SessionKind::Tls12Id,
            };
            let server = rustls_config(keys_for(suite)[0], &[suite], &[Group::X25519], tickets);
            for effort in EFFORTS {
                let config = config(narrow(suite, Group::X25519, effort));
                let first = connect(&config, None, &mut RustlsServer::new(&server));
                let session = first.taken.sessions.last().expect("the server issued a session").clone();
                assert_eq!(session.kind(), kind);
                let resumed = connect(&config, Some(session.clone()), &mut RustlsServer::new(&server));
                assert_eq!(resumed.handshake().resumed, Some(kind), "{suite} {effort}");
                // Stateless tickets any number of times, a TLS 1.3 session of the cache only once.
                let again = connect(&config, Some(session), &mut RustlsServer::new(&server));
                let single_use = is_tls13(suite) && !tickets;
                assert_eq!(again.handshake().resumed, (!single_use).then_some(kind));
            }
        }
    }
}

#[test]
fn a_retry_is_answered() {
    for effort in EFFORTS {
        let server = rustls_config(KeyKind::P256, &[Suite::Tls13Aes256Gcm], &[Group::P256], true);
        let wide = config(Settings { effort, ..settings() });
        let first = connect(&wide, None, &mut RustlsServer::new(&server));
        assert!(first.handshake().hello_retry);
        let session = first.taken.sessions.last().cloned();
        let resumed = connect(&wide, session, &mut RustlsServer::new(&server));
        assert!(resumed.handshake().hello_retry && resumed.handshake().resumed.is_some());
    }
}

#[test]
fn the_server_closes_in_order() {
    for suite in [Suite::Tls13Aes128Gcm, Suite::EcdheEcdsaAes128Gcm] {
        let server = rustls_config(KeyKind::P256, &[suite], &[Group::X25519], true);
        let mut server = RustlsServer::new(&server);
        let mut caller = Caller::new(&config(narrow(suite, Group::X25519, Effort::Honest)), None);
        talk(&mut caller, &mut server).unwrap();
        server.close();
        talk(&mut caller, &mut server).unwrap();
        assert!(caller.client.peer_closed());
        assert_eq!(caller.client.end_of_input(), Ok(()));
    }
}

#[test]
fn a_certificate_is_compressed_for_who_asks() {
    let server = rustls_config(KeyKind::Rsa2048, &[Suite::Tls13Aes128Gcm], &[Group::X25519], true);
    for effort in [Effort::Honest, Effort::Lean] {
        let bytes_in = [false, true].map(|compressed_certificate| {
            let narrow = narrow(Suite::Tls13Aes128Gcm, Group::X25519, effort);
            let config = config(Settings { compressed_certificate, ..narrow });
            let caller = connect(&config, None, &mut RustlsServer::new(&server));
            assert_eq!(caller.handshake().certificate_compressed, compressed_certificate);
            caller.handshake().bytes_in
        });
        assert!(bytes_in[1] < bytes_in[0], "{bytes_in:?}");
    }
}
