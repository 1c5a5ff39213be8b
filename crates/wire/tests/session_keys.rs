//! What a bystander reads of sessions does not depend on how the bytes are cut, and nothing at all makes it panic.

use proptest::collection::vec;
use proptest::prelude::*;
use tlsdyno_wire::codec::{put_u16, put_vector8, put_vector16};
use tlsdyno_wire::handshake::{self, NewSessionTicket12};
use tlsdyno_wire::hello::{self, ClientHello, Extensions, RETRY_RANDOM, ServerHello, put_extension};
use tlsdyno_wire::record;
use tlsdyno_wire::session_keys::{ClientReader, ServerReader, ServerSays, SessionKeys, Unreadable};

const HELLO_MAX: usize = 16 * 1024;

/// What a hello is made of.
#[derive(Clone, Debug, Default)]
struct Parts {
    id: Vec<u8>,
    tls13: bool,
    ticket: Option<Vec<u8>>,
    identities: Vec<Vec<u8>>,
    early_data: bool,
    grease: bool,
    encrypted: bool,
    padding: usize,
}

fn client_hello(parts: &Parts) -> Vec<u8> {
    let mut extensions = Vec::new();
    let out = &mut extensions;
    if parts.grease {
        put_extension(out, 0x7a7a, |_| {});
    }
    if parts.padding > 0 {
        put_extension(out, 21, |out| out.resize(out.len() + parts.padding, 0));
    }
    if parts.tls13 {
        put_extension(out, hello::SUPPORTED_VERSIONS, |out| {
            put_vector8(out, |out| [hello::TLS13, hello::TLS12].iter().for_each(|version| put_u16(out, *version)));
        });
    }
    if let Some(ticket) = &parts.ticket {
        put_extension(out, hello::SESSION_TICKET, |out| out.extend_from_slice(ticket));
    }
    if parts.early_data {
        put_extension(out, 42, |_| {});
    }
    if parts.encrypted {
        put_extension(out, 0xfe0d, |out| out.extend_from_slice(&[0; 40]));
    }
    if !parts.identities.is_empty() {
        put_extension(out, hello::PRE_SHARED_KEY, |out| {
            put_vector16(out, |out| {
                for identity in &parts.identities {
                    put_vector16(out, |out| out.extend_from_slice(identity));
                    out.extend_from_slice(&[0; 4]);
                }
            });
            put_vector16(out, |out| {
                parts.identities.iter().for_each(|_| put_vector8(out, |out| out.extend_from_slice(&[7; 32])));
            });
        });
    }
    let hello = ClientHello {
        version: hello::TLS12,
        random: &[3; 32],
        session_id: &parts.id,
        suites: &[0x13, 1, 0xc0, 0x2b],
        compression: &[0],
        extensions: Extensions::decode("test", &extensions).unwrap(),
    };
    let mut out = Vec::new();
    handshake::put(&mut out, &hello);
    out
}

/// The content in records of these lengths, over and over.
fn records(content: &[u8], lengths: &[usize]) -> Vec<u8> {
    let (mut out, mut rest, mut lengths) = (Vec::new(), content, lengths.iter().cycle());
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((*lengths.next().unwrap()).clamp(1, 16_384).min(rest.len()));
        out.extend_from_slice(&record::Header::new(record::HANDSHAKE, piece.len() as u16).bytes);
        out.extend_from_slice(piece);
        rest = after;
    }
    out
}

/// Hands the bytes over in pieces of these lengths; answers what was found, and after how many bytes.
fn read(bytes: &[u8], pieces: &[usize]) -> (Result<Option<SessionKeys>, Unreadable>, usize) {
    let mut reader = ClientReader::new(HELLO_MAX);
    let (mut rest, mut pieces, mut taken) = (bytes, pieces.iter().cycle(), 0);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((*pieces.next().unwrap()).clamp(1, rest.len()));
        taken += piece.len();
        match reader.read(piece) {
            Ok(None) => rest = after,
            found => return (found, taken),
        }
    }
    (Ok(None), taken)
}

fn named(first: u8, length: usize) -> Vec<u8> {
    (0..length).map(|index| first.wrapping_add(index as u8)).collect()
}

#[test]
fn sessions_of_every_kind_are_seen() {
    let parts = Parts {
        id: named(1, 32),
        tls13: true,
        ticket: Some(named(50, 192)),
        identities: vec![named(100, 208), named(7, 32), named(9, 15), named(120, 33), named(130, 200)],
        early_data: true,
        grease: true,
        encrypted: true,
        padding: 0,
    };
    let (found, _) = read(&records(&client_hello(&parts), &[16_384]), &[usize::MAX]);
    let keys = found.unwrap().unwrap();
    assert_eq!(keys.session_id.bytes(), named(1, 32));
    assert_eq!(keys.ticket.unwrap().key_name().unwrap()[..], named(50, 16));
    let names: Vec<_> = keys.identities().iter().map(|identity| identity.key_name().map(|name| name[0])).collect();
    assert_eq!(names, [Some(100), None, None, Some(120)], "a stateful and an external identity name no key");
    assert_eq!(keys.identities_offered, 5);
    assert!(keys.tls13 && keys.early_data && keys.grease && keys.encrypted_hello);

    let (found, _) = read(&records(&client_hello(&Parts::default()), &[16_384]), &[usize::MAX]);
    assert_eq!(found, Ok(Some(SessionKeys::default())));
    let asked = Parts { ticket: Some(Vec::new()), ..Parts::default() };
    let (found, _) = read(&records(&client_hello(&asked), &[16_384]), &[usize::MAX]);
    assert_eq!(found.unwrap().unwrap().ticket, None, "an empty ticket only asks for one");
}

#[test]
fn the_first_refusal_counts_however_the_bytes_are_cut() {
    // A ServerHello without a body, then the header of a ClientHello of 16 MB (shortened from what the fuzzer found).
    let bytes = records(&[handshake::SERVER_HELLO, 0, 0, 0, handshake::CLIENT_HELLO, 255, 255, 255], &[16_384]);
    for piece in 1..=bytes.len() {
        assert_eq!(read(&bytes, &[piece]).0, Err(Unreadable::NoHello), "in pieces of {piece}");
    }
}

#[test]
fn a_hello_as_long_as_chromes_may_be_cut_at_every_byte_over_one_two_and_three_records() {
    let parts = Parts { tls13: true, identities: vec![named(100, 208)], padding: 1_300, ..Parts::default() };
    let hello = client_hello(&parts);
    assert!(hello.len() > 1_600);
    for lengths in [&[16_384][..], &[1_000], &[600], &[1, 1_500]] {
        let mut bytes = records(&hello, lengths);
        let whole = bytes.len();
        bytes.extend_from_slice(b"\x17\x03\x03\x00\x03abc");
        let expected = read(&bytes, &[usize::MAX]).0;
        assert!(matches!(expected, Ok(Some(_))));
        for cut in 1..whole {
            assert_eq!(read(&bytes, &[cut, whole - cut]), (expected, whole));
        }
    }
}

#[test]
fn what_is_no_hello_is_told_at_once() {
    assert!(matches!(read(b"GET / HTTP/1.1\r\n\r\n", &[1]), (Err(Unreadable::Records(_)), 5)));
    assert_eq!(read(b"\x15\x03\x01\x00\x02\x02\x28", &[1]), (Err(Unreadable::NoHello), 5));
    assert_eq!(read(b"\x16\x03\x01\x40\x00\x02\xff\xff\xff", &[1]), (Err(Unreadable::NoHello), 9));
    let long = Parts { padding: HELLO_MAX, ..Parts::default() };
    let hello = client_hello(&long);
    let length = hello.len() - handshake::HEADER;
    assert_eq!(read(&records(&hello, &[16_384]), &[1]), (Err(Unreadable::Oversized { length }), 9));
    let most = Parts { padding: HELLO_MAX - 4 - (length - HELLO_MAX), ..long };
    assert!(matches!(read(&records(&client_hello(&most), &[16_384]), &[1_000]), (Ok(Some(_)), _)));
}

fn server_hello(random: &[u8; 32], id: &[u8], tls13: bool, identity: Option<u16>) -> Vec<u8> {
    let mut extensions = Vec::new();
    if tls13 {
        put_extension(&mut extensions, hello::SUPPORTED_VERSIONS, |out| put_u16(out, hello::TLS13));
    }
    if let Some(index) = identity {
        put_extension(&mut extensions, hello::PRE_SHARED_KEY, |out| put_u16(out, index));
    }
    let extensions = Extensions::decode("test", &extensions).unwrap();
    let hello =
        ServerHello { version: hello::TLS12, random, session_id: id, suite: 0x1301, compression: 0, extensions };
    let mut out = Vec::new();
    handshake::put(&mut out, &hello);
    out
}

const CHANGE: &[u8] = b"\x14\x03\x03\x00\x01\x01";

/// What the server says, with the bytes handed over in pieces of this length.
fn hear(bytes: &[u8], piece: usize) -> (Vec<ServerSays>, bool) {
    let (mut reader, mut said) = (ServerReader::default(), Vec::new());
    bytes.chunks(piece).for_each(|piece| reader.read(piece, |says| said.push(says)));
    (said, reader.is_done())
}

fn assert_heard(bytes: &[u8], expected: &[fn(&ServerSays) -> bool]) {
    for piece in [1, 2, 7, 100, usize::MAX] {
        let (said, done) = hear(bytes, piece.min(bytes.len()));
        assert!(done, "{said:?}");
        assert_eq!(said.len(), expected.len(), "{said:?}");
        assert!(said.iter().zip(expected).all(|(says, is_expected)| is_expected(says)), "{said:?}");
    }
}

#[test]
fn a_tls13_server_shows_what_it_accepted_also_after_a_retry() {
    let accepted: fn(&ServerSays) -> bool =
        |says| matches!(says, ServerSays::Hello { version: hello::TLS13, identity: Some(1), .. });
    let retried: fn(&ServerSays) -> bool = |says| *says == ServerSays::Retry;
    let hello = records(&server_hello(&[1; 32], &[5; 32], true, Some(1)), &[40]);
    let mut bytes = [&hello[..], CHANGE, b"\x17\x03\x03\x00\x02xy"].concat();
    assert_heard(&bytes, &[accepted]);
    bytes.splice(0..0, [&records(&server_hello(&RETRY_RANDOM, &[5; 32], true, None), &[16_384])[..], CHANGE].concat());
    assert_heard(&bytes, &[retried, accepted]);
}

#[test]
fn a_tls12_server_shows_what_it_gives_out() {
    let mut ticket = Vec::new();
    handshake::put(&mut ticket, &NewSessionTicket12 { lifetime_s: 300, ticket: &named(60, 190) });
    let mut no_ticket = Vec::new();
    handshake::put(&mut no_ticket, &NewSessionTicket12 { lifetime_s: 0, ticket: &[] });
    let certificate = [&[handshake::CERTIFICATE, 0, 0x40, 0][..], &[9; 0x4000]].concat();
    let done = [handshake::SERVER_HELLO_DONE, 0, 0, 0];
    let hello = server_hello(&[1; 32], &[5; 32], false, None);
    let issued: fn(&ServerSays) -> bool = |says| match says {
        ServerSays::Hello { version: hello::TLS12, session_id, identity: None } => session_id.bytes() == [5; 32],
        _ => false,
    };
    let gave: fn(&ServerSays) -> bool = |says| match says {
        ServerSays::Ticket(ticket) => ticket.key_name().is_some_and(|name| name[..] == named(60, 16)),
        _ => false,
    };
    let encrypts: fn(&ServerSays) -> bool = |says| *says == ServerSays::Encrypts;
    let first = [&hello[..], &certificate, &done].concat();
    let full = [&records(&[&first[..], &ticket].concat(), &[9_000])[..], CHANGE, b"junk"].concat();
    assert_heard(&full, &[issued, gave, encrypts]);
    let without = [&records(&[&first[..], &no_ticket].concat(), &[16_384])[..], CHANGE].concat();
    assert_heard(&without, &[issued, encrypts]);
    let nothing: fn(&ServerSays) -> bool = |says| *says == ServerSays::Nothing;
    assert_heard(b"HTTP/1.1 400 Bad Request\r\n\r\n", &[nothing]);
    assert_heard(b"\x15\x03\x03\x00\x02\x02\x28", &[nothing]);
}

fn any_parts() -> impl Strategy<Value = Parts> {
    let identities = vec(vec(any::<u8>(), 1..300), 0..6);
    let ticket = proptest::option::of(vec(any::<u8>(), 0..300));
    (vec(any::<u8>(), 0..=32), any::<[bool; 4]>(), ticket, identities, 0..3_000_usize).prop_map(
        |(id, [tls13, early_data, grease, encrypted], ticket, identities, padding)| Parts {
            id,
            tls13,
            ticket,
            identities,
            early_data,
            grease,
            encrypted,
            padding,
        },
    )
}

proptest! {
    #[test]
    fn any_split_gives_the_same_answer(
        parts in any_parts(),
        lengths in vec(1..2_000_usize, 1..6),
        pieces in vec(1..700_usize, 1..6),
        after in vec(any::<u8>(), 0..50),
    ) {
        let hello = client_hello(&parts);
        let expected = read(&records(&hello, &[16_384]), &[usize::MAX]).0;
        prop_assert!(matches!(expected, Ok(Some(_))));
        let mut bytes = records(&hello, &lengths);
        let whole = bytes.len();
        bytes.extend_from_slice(&after);
        let (found, taken) = read(&bytes, &pieces);
        prop_assert_eq!(found, expected);
        prop_assert!(taken >= whole && taken < whole + 700, "the hello ends where it ends");
        // Cut short anywhere, it is never taken for whole.
        let short = taken.min(whole) * 2 / 3;
        prop_assert_eq!(read(&bytes[..short], &pieces).0, Ok(None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn malformed_hellos_are_refused_or_understood_the_same_in_any_split(
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
        pieces in vec(1..200_usize, 1..4),
    ) {
        let parts = Parts {
            tls13: true,
            ticket: Some(named(50, 60)),
            identities: vec![named(100, 70)],
            id: named(1, 32),
            ..Parts::default()
        };
        let mut bytes = records(&client_hello(&parts), &[150]);
        let place = place.index(bytes.len());
        bytes[place] = byte;
        bytes.truncate(cut.index(bytes.len() * 2) + 1);
        let (found, taken) = read(&bytes, &pieces);
        let at_once = read(&bytes, &[usize::MAX]);
        prop_assert_eq!(found, at_once.0);
        prop_assert!(taken <= bytes.len());
        // A server's reader holds out too.
        hear(&bytes, pieces[0]);
    }
}
