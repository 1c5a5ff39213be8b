//! Post-quantum hybrids against rustls: two shares in browsers' order, HelloRetryRequests, early data, and shares that
//! were changed on their way.

use tlsdyno_tls::crypto::CryptoError;
use tlsdyno_tls::{Alert, EarlyData, Effort, Error, Group, SessionKind, Settings, Stage, Suite, Version};
use tlsdyno_wire::codec::{put_u16, put_vector16};
use tlsdyno_wire::handshake::{self, Body};
use tlsdyno_wire::hello::{self, ClientHello, Extensions, ServerHello, put_extension};
use tlsdyno_wire::record;

use crate::harness::{Caller, EFFORTS, KeyKind, Server, config, connect, keys_for, narrow, pattern, talk, talk_along};
use crate::rustls_server::{RustlsServer, rustls_config};

const SUITE: Suite = Suite::Tls13Aes128Gcm;

/// The order of browsers, and a hybrid of each curve.
const ORDER: [Group; 5] = [Group::X25519MlKem768, Group::X25519, Group::P256, Group::P384, Group::P256MlKem768];

fn offering(groups: &[Group], effort: Effort) -> Settings {
    Settings { groups: groups.to_vec(), ..narrow(SUITE, groups[0], effort) }
}

/// Groups and lengths of the shares in the hello that `caller` sends first.
fn shares_sent(caller: &Caller) -> Vec<(Group, usize)> {
    let hello = ClientHello::decode(&caller.output[record::HEADER + handshake::HEADER..]).unwrap();
    let mut list = &hello.extensions.get(hello::KEY_SHARE).unwrap()[2..];
    let mut shares = Vec::new();
    while let Some((head, rest)) = list.split_first_chunk::<4>() {
        let code = u16::from_be_bytes([head[0], head[1]]);
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        shares.push((Group::ALL.into_iter().find(|group| group.code() == code).unwrap(), length));
        list = &rest[length..];
    }
    shares
}

#[test]
fn a_curve_gets_a_share_beside_a_hybrid() {
    for (groups, expected) in [
        (&ORDER[..], &[(Group::X25519MlKem768, 1216), (Group::X25519, 32)][..]),
        (&[Group::P256MlKem768, Group::X25519], &[(Group::P256MlKem768, 1249), (Group::X25519, 32)]),
        (&[Group::P384MlKem1024, Group::P384], &[(Group::P384MlKem1024, 1665), (Group::P384, 97)]),
        (&[Group::X25519MlKem768, Group::P256MlKem768], &[(Group::X25519MlKem768, 1216)]),
        (&[Group::X25519, Group::X25519MlKem768], &[(Group::X25519, 32)]),
    ] {
        for effort in EFFORTS {
            let caller = Caller::new(&config(offering(groups, effort)), None);
            assert_eq!(shares_sent(&caller), expected);
            assert!(expected[0].1 < 1000 || (1_300..2_000).contains(&caller.output.len()), "{}", caller.output.len());
        }
    }
}

/// docs/NOOP.md: a client without real key agreement must not come through where the server's is real.
#[test]
fn a_client_without_key_agreement_fails_at_a_real_server() {
    let stages_off = [Stage::KeyAgreement].into_iter().collect();
    for group in [Group::X25519MlKem768, Group::P256MlKem768] {
        let mut server = RustlsServer::new(&rustls_config(KeyKind::P256, &[SUITE], &[group], true));
        let settings = Settings { stages_off, ..offering(&[group], Effort::Lean) };
        assert_eq!(talk(&mut Caller::new(&config(settings), None), &mut server), Err(Error::BadRecordMac));
    }
}

/// The server takes the hybrid, or the second share, or asks for another: full, resumed and counted.
#[test]
fn servers_choose_among_what_browsers_offer() {
    for (known, chosen, retries) in [
        (&[Group::X25519MlKem768, Group::X25519][..], Group::X25519MlKem768, false),
        (&[Group::X25519], Group::X25519, false),
        (&[Group::P384], Group::P384, true),
        (&[Group::P256MlKem768], Group::P256MlKem768, true),
    ] {
        let server = rustls_config(KeyKind::P256, &[SUITE], known, true);
        for effort in EFFORTS {
            let config = config(offering(&ORDER, effort));
            let first = connect(&config, None, &mut RustlsServer::new(&server));
            assert_eq!((first.handshake().group, first.handshake().hello_retry), (Some(chosen), retries));
            let session = first.taken.sessions.last().cloned();
            let resumed = connect(&config, session, &mut RustlsServer::new(&server));
            let handshake = resumed.handshake();
            assert_eq!((handshake.group, handshake.hello_retry), (Some(chosen), retries));
            assert_eq!(handshake.resumed, Some(SessionKind::Tls13Psk));
        }
    }
}

#[test]
fn early_data_go_with_a_hybrids_hello() {
    for group in [Group::X25519MlKem768, Group::P256MlKem768] {
        let mut server = rustls_config(KeyKind::P256, &[SUITE], &[group], false);
        std::sync::Arc::get_mut(&mut server).unwrap().max_early_data_size = 16_384;
        for effort in EFFORTS {
            let config = config(Settings { early_data: true, ..offering(&[group, group.curve()], effort) });
            let first = connect(&config, None, &mut RustlsServer::new(&server));
            let mut caller = Caller::new(&config, first.taken.sessions.last().cloned());
            caller.request(700);
            talk(&mut caller, &mut RustlsServer::new(&server)).unwrap();
            assert_eq!(caller.handshake().early_data, EarlyData::Accepted);
            assert_eq!((caller.handshake().group, caller.taken.data == pattern(700)), (Some(group), true));
        }
    }
}

/// A server of TLS 1.2 ignores what it does not know.
#[test]
fn a_server_of_tls_12_takes_a_curve() {
    let suite = Suite::EcdheEcdsaAes128Gcm;
    let server = rustls_config(keys_for(suite)[0], &[suite], &[Group::P256], true);
    let both = Settings { versions: Vec::new(), suites: vec![SUITE, suite], ..offering(&ORDER, Effort::Honest) };
    let caller = connect(&config(both), None, &mut RustlsServer::new(&server));
    assert_eq!((caller.handshake().version, caller.handshake().group), (Version::Tls12, Some(Group::P256)));
}

/// Plays a handshake in which the server's share is changed on its way; the client's fault and the alert it sends.
fn with_share(group: Group, effort: Effort, change: impl Fn(&mut Vec<u8>)) -> (Error, Option<u8>) {
    let mut server = RustlsServer::new(&rustls_config(KeyKind::P256, &[SUITE], &[group], true));
    let mut caller = Caller::new(&config(offering(&[group], effort)), None);
    let mut way = |bytes: Vec<u8>| match bytes.get(record::HEADER) {
        Some(&handshake::SERVER_HELLO) => vec![change_share(&bytes, &change)],
        _ => vec![bytes],
    };
    let error = talk_along(&mut caller, &mut server, &mut way).unwrap_err();
    (error, server.view().alert)
}

/// `flight` begins with a record that holds a ServerHello and nothing else.
fn change_share(flight: &[u8], change: &dyn Fn(&mut Vec<u8>)) -> Vec<u8> {
    let record_end = record::HEADER + usize::from(u16::from_be_bytes([flight[3], flight[4]]));
    let hello = ServerHello::decode(&flight[record::HEADER + handshake::HEADER..record_end]).unwrap();
    let mut extensions = Vec::new();
    for (kind, body) in hello.extensions.iter() {
        if kind != hello::KEY_SHARE {
            put_extension(&mut extensions, kind, |out| out.extend_from_slice(body));
            continue;
        }
        let (group, share) = hello.key_share().unwrap().unwrap();
        let mut share = share.to_vec();
        change(&mut share);
        put_extension(&mut extensions, kind, |out| {
            put_u16(out, group);
            put_vector16(out, |out| out.extend_from_slice(&share));
        });
    }
    let mut out = flight[..3].to_vec();
    let extensions = Extensions::decode("ServerHello", &extensions).unwrap();
    put_vector16(&mut out, |out| handshake::put(out, &ServerHello { extensions, ..hello.clone() }));
    out.extend_from_slice(&flight[record_end..]);
    out
}

#[test]
fn shares_of_another_length_are_named_and_refused() {
    for (group, expected) in [(Group::X25519MlKem768, 1120), (Group::P256MlKem768, 1153)] {
        for effort in EFFORTS {
            for length in [0, 32, 65, 1088, expected - 1, expected + 1] {
                let (error, alert) = with_share(group, effort, |share| share.resize(length, 0));
                assert_eq!(error, Error::Refused(CryptoError::KeyShareLength { group, length, expected }));
                assert_eq!(alert, Some(Alert::ILLEGAL_PARAMETER.0));
                let text = format!("the peer's {group} key share has {length} bytes instead of {expected}");
                assert!(error.to_string().contains(&text), "{error}");
            }
        }
    }
}

/// ML-KEM rejects implicitly: the ends have different keys, and the server's first protected record shows it.
#[test]
fn a_changed_ciphertext_ends_the_handshake() {
    for (group, at) in [(Group::X25519MlKem768, 0), (Group::X25519MlKem768, 1087), (Group::P256MlKem768, 65)] {
        for effort in EFFORTS {
            // The alert goes out under the client's keys, which the server does not have.
            assert_eq!(with_share(group, effort, |share| share[at] ^= 1), (Error::BadRecordMac, None));
        }
    }
}

/// The curve's half is checked as ever, except at floor effort, to which nothing is secret.
#[test]
fn a_point_off_the_curve_is_refused() {
    for effort in [Effort::Honest, Effort::Lean] {
        let (error, _) = with_share(Group::P256MlKem768, effort, |share| share[64] ^= 1);
        assert_eq!(error, Error::Refused(CryptoError::BadKeyShare(Group::P256MlKem768)));
        let (error, _) = with_share(Group::X25519MlKem768, effort, |share| share[1088..].fill(0));
        assert_eq!(error, Error::Refused(CryptoError::BadKeyShare(Group::X25519MlKem768)));
    }
}
