//! Changed, missing and foreign bytes, in the clear and inside the encryption.

use std::sync::{LazyLock, Mutex};

use proptest::prelude::*;

use super::*;
use crate::harness::{is_tls13, talk};
use crate::meddler::{CHANGE_CIPHER_SPEC, DATA, Epoch, HANDSHAKE};

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
            let of_suite = |suite| [Scene::new(suite, Effort::Lean), Scene::resumed(suite, Effort::Lean)];
            Mutex::new([TLS13, TLS12].into_iter().flat_map(of_suite).collect())
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
