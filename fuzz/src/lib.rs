//! What the fuzz targets run, as plain functions that panic on a fault: `fuzz_targets/` hands them libFuzzer's inputs,
//! and `crates/tls/tests/fuzz_briefly.rs` random and mutated ones. What needs the engine or the program is in
//! `dispatch/`, `serve.rs` and `trace/`, whose tests are theirs.

mod client;
mod http2;
mod opening;
mod script;
mod seeds;
mod stages;

use tlsdyno_tls::crypto::exchange::rsa_encrypt_premaster;
use tlsdyno_tls::crypto::kdf::hkdf_expand_label;
use tlsdyno_tls::crypto::protect::{Opener, Side};
use tlsdyno_tls::crypto::verify::{public_key, verify_signature};
use tlsdyno_tls::{Stage, StageSet, Suite};
use tlsdyno_wire::handshake::{
    Body, Certificate12, Certificate13, CertificateRequest12, CertificateRequest13, CertificateVerify,
    CompressedCertificate, EncryptedExtensions, Joiner, KeyUpdate, NewSessionTicket12, NewSessionTicket13,
    ServerKeyExchange,
};
use tlsdyno_wire::hello::{self, ClientHello, ServerHello};
use tlsdyno_wire::http::{HttpFault, Reference, Response};
use tlsdyno_wire::session_keys::{ClientReader, ServerReader};
use tlsdyno_wire::{limits, record};

pub use client::{client_receive, connects};
pub use http2::{hpack_decode, hpack_seeds, http2_receive, http2_seeds};
pub use opening::{answer_receive, answer_seeds, opening_receive, opening_seeds};
pub use seeds::{conversations, stages_seeds};
pub use stages::{client_stages, stages_connect};

/// Records and a ClientHello in them, as a dispatcher reads them.
pub fn hello_parse(data: &[u8]) {
    let mut bytes = data.to_vec();
    let (mut deframer, mut joiner) = (record::Deframer::default(), Joiner::default());
    let mut rest = &mut bytes[..];
    while !rest.is_empty() {
        let Ok((found, after)) = deframer.next(rest, limits::RECORD_PLAINTEXT) else {
            return;
        };
        rest = after;
        let Some((_, mut body)) = found else { return };
        let mut content: &[u8] = body.bytes();
        while let Ok(Some(message)) = joiner.next(&mut content) {
            look_at_hello(message.body());
        }
    }
}

fn look_at_hello(body: &[u8]) {
    let Ok(hello) = ClientHello::decode(body) else {
        return;
    };
    let _ = hello.server_name();
    let _ = hello.offers_version(hello::TLS13);
    if let Ok(Some(psks)) = hello.pre_shared_keys() {
        assert_eq!(psks.identities().count(), psks.binders().count());
    }
    let mut again = Vec::new();
    hello.encode(&mut again);
    assert_eq!(ClientHello::decode(&again), Ok(hello));
}

/// Bytes of both sides as a dispatcher sees them: however they are cut, the answer is the same.
pub fn session_keys(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else {
        return;
    };
    for second in [false, true] {
        let reader = || if second { ClientReader::second(16 * 1024) } else { ClientReader::new(16 * 1024) };
        let at_once = reader().read(bytes);
        let mut in_pieces = reader();
        let answers = bytes.chunks(usize::from(cut) + 1).map(|piece| in_pieces.read(piece));
        let answer = answers.into_iter().find(|answer| *answer != Ok(None)).unwrap_or(Ok(None));
        assert_eq!(answer, at_once);
    }
    let says = |piece: usize| {
        let (mut reader, mut said) = (ServerReader::default(), Vec::new());
        bytes.chunks(piece).for_each(|piece| reader.read(piece, |says| said.push(says)));
        said
    };
    assert_eq!(says(usize::from(cut) + 1), says(bytes.len().max(1)));
}

/// A response, its first byte saying to what and in which pieces: however it is cut, it comes to the same, and a
/// redirect leads to what can stand on a request line.
pub fn http_response(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else {
        return;
    };
    let receive = |piece: usize| {
        let mut response = Response::new(choice & 1 != 0).keeping_location(true);
        let mut consumed = 0;
        for piece in bytes.chunks(piece.max(1)) {
            consumed += response.receive(piece)?;
        }
        assert!(response.body_bytes() <= consumed as u64 && consumed <= bytes.len());
        let end = response.end_of_input();
        Ok::<_, HttpFault>((
            response.head(),
            response.location().map(<[u8]>::to_vec),
            response.body_bytes(),
            consumed,
            end,
        ))
    };
    let whole = receive(bytes.len());
    assert_eq!(whole, receive(1 + usize::from(choice >> 1)));
    if let Ok((_, Some(location), ..)) = whole
        && let Some(reference) = Reference::parse(&location)
    {
        let target = reference.target(b"/a/b?c");
        assert!(target.starts_with(b"/") && target.iter().all(u8::is_ascii_graphic));
    }
}

/// One handshake message body, its first byte choosing the decoder; what is understood must survive encoding.
pub fn handshake_messages(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else {
        return;
    };
    match choice % 13 {
        0 => survives::<ClientHello>(body),
        1 => survives::<ServerHello>(body),
        2 => survives::<EncryptedExtensions>(body),
        3 => survives::<Certificate12>(body),
        4 => survives::<Certificate13>(body),
        5 => survives::<CertificateRequest12>(body),
        6 => survives::<CertificateRequest13>(body),
        7 => survives::<CertificateVerify>(body),
        8 => survives::<ServerKeyExchange>(body),
        9 => survives::<NewSessionTicket12>(body),
        10 => survives::<NewSessionTicket13>(body),
        11 => survives::<CompressedCertificate>(body),
        _ => survives::<KeyUpdate>(body),
    }
}

fn survives<'a, M: Body<'a>>(body: &'a [u8]) {
    if let Ok(message) = M::decode(body) {
        let mut again = Vec::new();
        message.encode(&mut again);
        // The codecs have one form for each value, except that an empty extension block may be left out.
        assert!(again == body || again[..again.len() - 2] == *body);
    }
}

/// What a server's certificate says, with every stage on and with authentication off.
pub fn certificate(der: &[u8]) {
    let Ok(key) = public_key(der) else { return };
    for off in [StageSet::NONE, StageSet::NONE.with(Stage::Authentication)] {
        if let Ok(encrypted) = rsa_encrypt_premaster(key.spki_der, &[1; 48], off, true) {
            assert!(encrypted.len() <= 1024, "it fits a ClientKeyExchange");
        }
        for scheme in [0x0401, 0x0403, 0x0503, 0x0804] {
            let _ = verify_signature(der, scheme, b"message", &[0x30; 70], off);
        }
    }
}

/// Real primitives at bytes of the server's choice: a ticket's nonce, and records of every suite.
pub fn real_crypto(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let suite = Suite::ALL[usize::from(*choice) % Suite::ALL.len()];
    let off = StageSet::NONE;
    let mut psk = [0; 48];
    let psk = &mut psk[..suite.hash().digest_bytes()];
    hkdf_expand_label(suite.hash(), off, &[1; 32], b"resumption", &rest[..rest.len().min(255)], psk);
    assert!(psk.iter().any(|byte| *byte != 0));

    let tls13 = suite.version() == tlsdyno_tls::Version::Tls13;
    let mut opener = if tls13 {
        Opener::tls13(suite, off, psk)
    } else {
        let block = vec![2; suite.protection().key_block_bytes()];
        Opener::tls12(suite, off, &block, Side::Server, *choice >= 128)
    };
    let header = record::Header::new(record::APPLICATION_DATA, rest.len() as u16).bytes;
    assert!(opener.open(header, &mut rest.to_vec()).is_err(), "nobody guesses a tag");
}

/// Seeds for [`http_response`].
pub fn http_seeds() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 4] = [
        b"\x06HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        b"\x02HTTP/1.1 302 Found\r\nLocation: ../a/./b?c#d\r\nTransfer-Encoding: chunked\r\n\r\n\
          5;x=y\r\nhello\r\n0\r\nT: x\r\n\r\n",
        b"\x09HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 301 x\nLOCATION:http://me@[::1]:8080/a/../b\n\nuntil the end",
        b"\x04HTTP/1.1 308 x\r\nLocation: //h\r\nLocation: //h\r\nContent-Length: 0\r\n\r\nHTTP",
    ];
    texts.map(<[u8]>::to_vec).to_vec()
}
