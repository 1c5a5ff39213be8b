//! Properties of framing and codecs: what is encoded decodes to the same, any bytes at all are refused or understood
//! but never panic, and how the input is cut does not matter.

use proptest::collection::vec;
use proptest::prelude::*;
use tlsdyno_wire::codec::{Problem, put_vector16};
use tlsdyno_wire::handshake::{
    self, Body, Certificate12, Certificate13, CertificateRequest12, CertificateRequest13, CertificateVerify,
    EncryptedExtensions, Joiner, KeyUpdate, NewSessionTicket12, NewSessionTicket13, ServerKeyExchange,
};
use tlsdyno_wire::hello::{self, ClientHello, Extensions, OfferedPsks, ServerHello, Template, put_extension};
use tlsdyno_wire::limits;
use tlsdyno_wire::record::{self, Deframer, FrameError};

fn encoded<'a>(message: &impl Body<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

/// Decodes, encodes, decodes: whatever is understood survives. Everything else must be refused without a panic.
fn survives<'a, M: Body<'a> + PartialEq + std::fmt::Debug>(body: &'a [u8], again: &'a mut Vec<u8>) -> bool {
    let Ok(message) = M::decode(body) else {
        return false;
    };
    message.encode(again);
    assert_eq!(M::decode(again).as_ref(), Ok(&message), "what was understood is understood again");
    true
}

fn every_decoder(body: &[u8]) -> u32 {
    let mut buffers = vec![Vec::new(); 12];
    let mut buffers = buffers.iter_mut();
    let mut next = || buffers.next().expect("a buffer per decoder");
    u32::from(survives::<ClientHello>(body, next()))
        + u32::from(survives::<ServerHello>(body, next()))
        + u32::from(survives::<EncryptedExtensions>(body, next()))
        + u32::from(survives::<Certificate12>(body, next()))
        + u32::from(survives::<Certificate13>(body, next()))
        + u32::from(survives::<CertificateRequest12>(body, next()))
        + u32::from(survives::<CertificateRequest13>(body, next()))
        + u32::from(survives::<CertificateVerify>(body, next()))
        + u32::from(survives::<ServerKeyExchange>(body, next()))
        + u32::from(survives::<NewSessionTicket12>(body, next()))
        + u32::from(survives::<NewSessionTicket13>(body, next()))
        + u32::from(survives::<KeyUpdate>(body, next()))
}

/// Every view into a hello.
fn look_at(hello: &ClientHello<'_>) {
    let _ = hello.server_name();
    let _ = hello.offers_version(hello::TLS13);
    if let Ok(Some(psks)) = hello.pre_shared_keys() {
        assert_eq!(psks.identities().count(), psks.binders().count());
    }
}

fn extension_block() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![
        Just(hello::SERVER_NAME),
        Just(hello::SUPPORTED_VERSIONS),
        Just(hello::SESSION_TICKET),
        Just(hello::PRE_SHARED_KEY),
        Just(hello::KEY_SHARE),
        Just(hello::COOKIE),
        any::<u16>()
    ];
    vec((kinds, vec(any::<u8>(), 0..60)), 0..8).prop_map(|extensions| {
        let mut out = Vec::new();
        let mut seen = Vec::new();
        for (kind, body) in extensions {
            if !seen.contains(&kind) {
                seen.push(kind);
                put_extension(&mut out, kind, |out| out.extend_from_slice(&body));
            }
        }
        out
    })
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=most)
}

/// Any one of the messages with some content, as kind and body.
fn message() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let random = any::<[u8; 32]>();
    prop_oneof![
        (random, bytes(32), vec(any::<u16>(), 1..20), extension_block()).prop_map(
            |(random, id, suites, extensions)| {
                let suites: Vec<u8> = suites.iter().flat_map(|suite| suite.to_be_bytes()).collect();
                let extensions = Extensions::decode("test", &extensions).unwrap();
                let session_id = &id[..];
                let hello = ClientHello {
                    version: hello::TLS12,
                    random: &random,
                    session_id,
                    suites: &suites,
                    compression: &[0],
                    extensions,
                };
                (handshake::CLIENT_HELLO, encoded(&hello))
            }
        ),
        (random, bytes(32), any::<u16>(), extension_block()).prop_map(|(random, id, suite, extensions)| {
            let extensions = Extensions::decode("test", &extensions).unwrap();
            let hello = ServerHello {
                version: hello::TLS12,
                random: &random,
                session_id: &id,
                suite,
                compression: 0,
                extensions,
            };
            (handshake::SERVER_HELLO, encoded(&hello))
        }),
        vec(bytes(300), 0..4).prop_map(|chain| {
            let chain = chain.iter().map(Vec::as_slice).collect();
            (handshake::CERTIFICATE, encoded(&Certificate12 { chain }))
        }),
        (bytes(20), vec((bytes(300), extension_block()), 0..4)).prop_map(|(context, chain)| {
            let block = |extensions| Extensions::decode("test", extensions).unwrap();
            let chain =
                chain.iter().map(|(der, extensions): &(Vec<u8>, Vec<u8>)| (&der[..], block(extensions))).collect();
            (handshake::CERTIFICATE, encoded(&Certificate13 { context: &context, chain }))
        }),
        (any::<u16>(), bytes(100), any::<u16>(), bytes(300)).prop_map(|(group, public, scheme, signature)| {
            let message = ServerKeyExchange { parameters: &[], group, public: &public, scheme, signature: &signature };
            (handshake::SERVER_KEY_EXCHANGE, encoded(&message))
        }),
        (any::<u32>(), any::<u32>(), bytes(20), vec(any::<u8>(), 1..300), extension_block()).prop_map(
            |(lifetime_s, age_add, nonce, ticket, extensions)| {
                let extensions = Extensions::decode("test", &extensions).unwrap();
                let message = NewSessionTicket13 { lifetime_s, age_add, nonce: &nonce, ticket: &ticket, extensions };
                (handshake::NEW_SESSION_TICKET, encoded(&message))
            }
        ),
        any::<bool>().prop_map(|requested| (handshake::KEY_UPDATE, encoded(&KeyUpdate { requested }))),
    ]
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(body in vec(any::<u8>(), 0..400)) {
        every_decoder(&body);
        let _ = OfferedPsks::decode(&body);
        let _ = hello::decode_alpn(&body);
        if let Ok(hello) = ClientHello::decode(&body) {
            look_at(&hello);
        }
    }

    #[test]
    fn what_is_encoded_is_understood((_, body) in message()) {
        prop_assert!(every_decoder(&body) > 0);
    }

    #[test]
    fn damaged_messages_never_panic(
        (_, mut body) in message(),
        changes in vec((any::<usize>(), any::<u8>()), 1..4),
        cut in any::<usize>(),
    ) {
        for (place, value) in changes {
            let length = body.len();
            body[place % length] = value;
        }
        every_decoder(&body);
        if let Ok(hello) = ClientHello::decode(&body) {
            look_at(&hello);
        }
        every_decoder(&body[..cut % body.len()]);
    }

    #[test]
    fn joiner_gives_the_same_messages_for_every_cut(
        messages in vec(message(), 1..5),
        cuts in vec(1_usize..200, 1..50),
    ) {
        let mut stream = Vec::new();
        for (kind, body) in &messages {
            stream.push(*kind);
            stream.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
            stream.extend_from_slice(body);
        }
        let mut joiner = Joiner::default();
        let mut found = Vec::new();
        let (mut rest, mut cuts) = (&stream[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (mut piece, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            while let Some(message) = joiner.next(&mut piece).unwrap() {
                found.push((message.kind(), message.body().to_vec()));
            }
            prop_assert!(piece.is_empty(), "everything was used up");
            rest = later;
        }
        prop_assert!(!joiner.is_partial());
        prop_assert_eq!(found, messages);
    }

    #[test]
    fn deframer_gives_the_same_records_for_every_cut(
        contents in vec((20_u8..=23, bytes(500)), 1..6),
        cuts in vec(1_usize..300, 1..50),
    ) {
        let mut stream = Vec::new();
        for (content_type, content) in &contents {
            stream.extend_from_slice(&record::Header::new(*content_type, content.len() as u16).bytes);
            stream.extend_from_slice(content);
        }
        let mut deframer = Deframer::default();
        let mut found = Vec::new();
        let (mut rest, mut cuts) = (&mut stream[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (mut piece, later) = rest.split_at_mut((*cuts.next().unwrap()).min(rest.len()));
            while !piece.is_empty() {
                let (record, after) = deframer.next(piece, limits::RECORD_PLAINTEXT).unwrap();
                if let Some((header, mut body)) = record {
                    found.push((header.content_type, body.bytes().to_vec()));
                }
                piece = after;
            }
            rest = later;
        }
        prop_assert!(!deframer.is_partial());
        prop_assert_eq!(found, contents);
    }

    #[test]
    fn framing_of_arbitrary_bytes_never_panics(mut stream in vec(any::<u8>(), 0..600), piece in 1_usize..100) {
        let mut deframer = Deframer::default();
        let mut joiner = Joiner::default();
        for piece in stream.chunks_mut(piece) {
            let mut rest = piece;
            while !rest.is_empty() {
                let Ok((record, after)) = deframer.next(rest, limits::RECORD_TLS12) else {
                    return Ok(());
                };
                if let Some((_, mut body)) = record {
                    let mut content: &[u8] = body.bytes();
                    while let Ok(Some(_)) = joiner.next(&mut content) {}
                }
                rest = after;
            }
        }
    }
}

/// A hello by the template, with every extension that can be appended.
fn hello_record(ticket: &[u8]) -> Vec<u8> {
    let template = Template::new(&[0x1301, 0xc02b], |out| {
        put_extension(out, hello::SERVER_NAME, |out| {
            put_vector16(out, |out| {
                out.push(0);
                put_vector16(out, |out| out.extend_from_slice(b"localhost"));
            });
        });
        put_extension(out, hello::SUPPORTED_VERSIONS, |out| out.extend_from_slice(&[2, 3, 4]));
    });
    let mut out = b"before".to_vec();
    let mut writer = template.write(&mut out, 0x0301, &[7; 32], &[9; 32]);
    writer.extension(hello::SESSION_TICKET, |out| out.extend_from_slice(b"old ticket"));
    writer.pre_shared_key(ticket, 0x0102_0304, 32);
    let message = writer.finish();
    assert_eq!(message, 6 + record::HEADER);
    out.split_off(6)
}

#[test]
fn a_hello_by_the_template_reads_back() {
    let mut bytes = hello_record(&[5; 200]);
    let (found, rest) = Deframer::default().next(&mut bytes, limits::RECORD_PLAINTEXT).unwrap();
    assert!(rest.is_empty());
    let (header, mut body) = found.unwrap();
    assert_eq!((header.content_type, header.bytes[1..3].to_vec()), (record::HANDSHAKE, vec![3, 1]));
    let mut content: &[u8] = body.bytes();
    let message = Joiner::default().next(&mut content).unwrap().unwrap();
    let hello = ClientHello::decode(message.body()).unwrap();
    assert_eq!((hello.random, hello.session_id), (&[7; 32], &[9; 32][..]));
    assert_eq!(hello.server_name(), Ok(Some(&b"localhost"[..])));
    assert_eq!(hello.extensions.get(hello::SESSION_TICKET), Some(&b"old ticket"[..]));
    assert_eq!((hello.offers_version(hello::TLS13), hello.offers_version(hello::TLS12)), (Ok(true), Ok(false)));
    assert_eq!(hello.suites, [0x13, 0x01, 0xc0, 0x2b]);
    let psks = hello.pre_shared_keys().unwrap().unwrap();
    assert_eq!(psks.identities().collect::<Vec<_>>(), [(&[5; 200][..], 0x0102_0304)]);
    assert_eq!(psks.binders().collect::<Vec<_>>(), [&[0; 32][..]]);
    assert_eq!(hello.extensions.iter().last().unwrap().0, hello::PRE_SHARED_KEY);
}

#[test]
fn a_hello_over_two_and_three_records_and_cut_at_every_byte() {
    // As long as hellos with ML-KEM shares are (1,783 bytes on the wire).
    let whole = hello_record(&[5; 1600]);
    let message = &whole[record::HEADER..];
    for records in [1, 2, 3] {
        let mut stream = Vec::new();
        for fragment in message.chunks(message.len().div_ceil(records)) {
            record::put_plain(&mut stream, record::HANDSHAKE, fragment);
        }
        for cut in 0..stream.len() {
            let mut copy = stream.clone();
            let (mut first, mut second) = copy.split_at_mut(cut);
            let (mut deframer, mut joiner, mut found) = (Deframer::default(), Joiner::default(), None);
            for part in [&mut first, &mut second] {
                let mut rest = std::mem::take(part);
                while !rest.is_empty() {
                    let (record, after) = deframer.next(rest, limits::RECORD_PLAINTEXT).unwrap();
                    rest = after;
                    if let Some((_, mut body)) = record {
                        let mut content: &[u8] = body.bytes();
                        found = joiner.next(&mut content).unwrap().map(|message| message.whole().to_vec()).or(found);
                    }
                }
            }
            assert_eq!(found.as_deref(), Some(message), "{records} records, cut at {cut}");
        }
    }
}

#[test]
fn limits_hold() {
    // A record longer than allowed is refused by its header alone.
    let mut header = record::Header::new(record::HANDSHAKE, 16385).bytes;
    let error = Deframer::default().next(&mut header, limits::RECORD_PLAINTEXT).unwrap_err();
    assert_eq!(error, FrameError::Oversized { length: 16385, limit: 16384 });
    // So is one that comes byte by byte.
    let mut deframer = Deframer::default();
    let results: Vec<bool> =
        header.iter_mut().map(|byte| deframer.next(std::slice::from_mut(byte), 16384).is_ok()).collect();
    assert_eq!(results, [true, true, true, true, false]);
    // Not TLS at all: the error shows what came.
    let error = Deframer::default().next(&mut b"HTTP/1.1 400 Bad Request".to_vec(), 16384).unwrap_err();
    assert_eq!(error.to_string(), "not a TLS record: `HTTP/`");
    // A message larger than its limit is refused by its header alone, and nothing is held for it.
    for kind in 0..=255 {
        let length = limits::handshake_body(kind) as u32;
        for (length, ok) in [(length, true), (length + 1, false)] {
            let mut bytes = [kind, 0, 0, 0];
            bytes[1..].copy_from_slice(&length.to_be_bytes()[1..]);
            assert_eq!(Joiner::default().next(&mut &bytes[..]).is_ok(), ok);
        }
    }
}

#[test]
fn extension_blocks_are_bounded_and_without_repetition() {
    let block = |count: u16| {
        let mut out = Vec::new();
        (0..count).for_each(|kind| put_extension(&mut out, kind, |_| ()));
        out
    };
    assert!(Extensions::decode("test", &block(limits::EXTENSIONS as u16)).is_ok());
    assert!(Extensions::decode("test", &block(limits::EXTENSIONS as u16 + 1)).is_err());
    let twice = [block(1), block(1)].concat();
    let error = Extensions::decode("ServerHello", &twice).unwrap_err();
    assert_eq!(error.problem, Problem::Value("extension that comes twice"));
    assert_eq!(error.to_string(), "ServerHello has a forbidden extension that comes twice");
}

#[test]
fn identities_and_binders_are_equally_many() {
    let identity = |out: &mut Vec<u8>| {
        put_vector16(out, |out| out.extend_from_slice(b"id"));
        out.extend_from_slice(&[0; 4]);
    };
    for (identities, binders, ok) in [(1, 1, true), (2, 2, true), (1, 2, false), (2, 1, false), (0, 0, false)] {
        let mut body = Vec::new();
        put_vector16(&mut body, |out| (0..identities).for_each(|_| identity(out)));
        put_vector16(&mut body, |out| (0..binders).for_each(|_| out.extend_from_slice(&[1, 0xaa])));
        assert_eq!(OfferedPsks::decode(&body).is_ok(), ok, "{identities} identities, {binders} binders");
    }
}
