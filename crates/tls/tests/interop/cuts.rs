//! The client's input, cut in every way: TCP keeps no boundaries.

use tlsdyno_tls::{Config, Effort, Group, Session, Suite};

use crate::harness::{Caller, KeyKind, Server, config, connect, narrow, pattern, talk_along};
use crate::openssl_server::OpensslContext;
use std::sync::Arc;

/// A TLS 1.3 and two TLS 1.2 handshakes, each full and resumed.
fn cases() -> Vec<(OpensslContext, Arc<Config>, Option<Session>)> {
    let mut cases = Vec::new();
    for suite in [Suite::Tls13Aes128Gcm, Suite::EcdheEcdsaAes128Gcm, Suite::EcdheEcdsaAes128Sha] {
        let context = || OpensslContext::narrow(KeyKind::P256, suite, Group::P256, |_| ());
        let config = config(narrow(suite, Group::P256, Effort::Lean));
        cases.push((context(), Arc::clone(&config), None));
        let resuming = context();
        let session = connect(&config, None, &mut resuming.server()).taken.sessions.pop();
        assert!(session.is_some());
        cases.push((resuming, config, session));
    }
    cases
}

/// One connection with a response of 20 000 bytes (two records), everything from the server in pieces made by `cut`,
/// which is given how many bytes the client already got. Returns how many it got in all.
fn exchange(
    (context, config, session): &(OpensslContext, Arc<Config>, Option<Session>),
    cut: &dyn Fn(usize, Vec<u8>) -> Vec<Vec<u8>>,
) -> usize {
    let mut server = context.server();
    let mut caller = Caller::new(config, session.clone());
    let mut received = 0;
    let mut way = |bytes: Vec<u8>| {
        let before = received;
        received += bytes.len();
        cut(before, bytes)
    };
    talk_along(&mut caller, &mut server, &mut way).unwrap();
    assert_eq!(caller.handshake().resumed.is_some(), session.is_some());
    caller.request(20_000);
    talk_along(&mut caller, &mut server, &mut way).unwrap();
    assert!(caller.taken.data == pattern(20_000));
    server.close();
    talk_along(&mut caller, &mut server, &mut way).unwrap();
    assert!(caller.client.peer_closed());
    received
}

#[test]
fn byte_by_byte_and_in_small_pieces() {
    for case in &cases() {
        for length in [1, 2, 3, 7, 64, 1447] {
            exchange(case, &|_, bytes| bytes.chunks(length).map(<[u8]>::to_vec).collect());
        }
    }
}

#[test]
fn cut_once_at_every_byte_of_the_handshake() {
    for (index, case) in cases().iter().enumerate() {
        // The messages of the CBC suite, the last two, are those of the one before: a sample is enough.
        let step = if index < 4 { 1 } else { 7 };
        // Lengths vary by a few bytes from one ECDSA signature to the next; the large response needs no cut at each
        // byte.
        let handshake = exchange(case, &|_, bytes| vec![bytes]) - 20_000;
        for at in (0..=handshake).step_by(step) {
            exchange(case, &|before, mut bytes| {
                if !(before..before + bytes.len()).contains(&at) {
                    return vec![bytes];
                }
                let later = bytes.split_off(at - before);
                vec![bytes, later]
            });
        }
    }
}
