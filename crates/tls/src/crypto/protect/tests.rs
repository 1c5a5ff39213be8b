use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use openssl::symm::{Cipher, Crypter, Mode, decrypt_aead, encrypt_aead};
use proptest::prelude::*;

use super::*;
use crate::crypto::hex;
use crate::noop::{MAC_FILL, Stage};
use crate::suite::Version;

const ON: StageSet = StageSet::NONE;

/// Everything that gives one direction of a connection its own record shape.
#[derive(Clone, Copy, Debug)]
struct Shape {
    suite: Suite,
    off: StageSet,
    encrypt_then_mac: bool,
}

impl Shape {
    fn all() -> Vec<Shape> {
        let halves = [ON, ON.with(Stage::Cipher), ON.with(Stage::Mac), ON.with(Stage::Cipher).with(Stage::Mac)];
        let mut shapes = Vec::new();
        for &suite in Suite::ALL {
            for off in halves {
                let forms = if suite.protection().is_cbc() { &[false, true][..] } else { &[false] };
                shapes.extend(forms.iter().map(|&encrypt_then_mac| Shape { suite, off, encrypt_then_mac }));
            }
        }
        shapes
    }

    /// The secret everything is keyed by: a traffic secret, or a key block whose bytes all differ.
    fn secret(&self) -> Vec<u8> {
        let length = match self.suite.version() {
            Version::Tls13 => self.suite.hash().digest_bytes(),
            Version::Tls12 => self.suite.protection().key_block_bytes(),
        };
        (0..length as u8).collect()
    }

    fn ends(&self, side: Side) -> (Sealer, Opener) {
        let (suite, off, secret) = (self.suite, self.off, self.secret());
        match suite.version() {
            Version::Tls13 => (Sealer::tls13(suite, off, &secret), Opener::tls13(suite, off, &secret)),
            Version::Tls12 => (
                Sealer::tls12(suite, off, &secret, side, self.encrypt_then_mac),
                Opener::tls12(suite, off, &secret, side, self.encrypt_then_mac),
            ),
        }
    }

    fn seal(&self, plain: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        self.ends(Side::Client).0.seal(23, plain, &mut record);
        record
    }

    /// Opens one whole record with fresh keys.
    fn open(&self, record: &[u8]) -> Result<(u8, Vec<u8>), CryptoError> {
        open_next(&mut self.ends(Side::Client).1, record).map(|(content_type, plain, _)| (content_type, plain))
    }
}

fn open_next<'a>(opener: &mut Opener, records: &'a [u8]) -> Result<(u8, Vec<u8>, &'a [u8]), CryptoError> {
    let (header, rest) = records.split_first_chunk::<HEADER>().expect("a header");
    let length = u16::from_be_bytes([header[3], header[4]]) as usize;
    let (body, rest) = rest.split_at(length);
    let mut body = body.to_vec();
    let (content_type, plain) = opener.open(*header, &mut body)?;
    Ok((content_type, body[plain].to_vec(), rest))
}

fn off_has(shape: &Shape, stage: Stage) -> bool {
    shape.off.contains(stage)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_is_sealed_opens(
        plains in prop::collection::vec((20u8..26, prop::collection::vec(any::<u8>(), 0..200)), 1..5),
    ) {
        for shape in Shape::all() {
            let (mut sealer, mut opener) = shape.ends(Side::Server);
            let mut records = Vec::new();
            for (content_type, plain) in &plains {
                sealer.seal(*content_type, plain, &mut records);
            }
            let mut rest = &records[..];
            for (content_type, plain) in &plains {
                let (opened_type, opened, later) = open_next(&mut opener, rest).unwrap();
                prop_assert_eq!((opened_type, &opened), (*content_type, plain));
                rest = later;
            }
            prop_assert!(rest.is_empty());
        }
    }
}

#[test]
fn long_plain_text_is_split_at_the_limit() {
    let plain: Vec<u8> = (0..2 * MAX_PLAIN + 100).map(|index| (index % 251) as u8).collect();
    for shape in Shape::all() {
        let (mut sealer, mut opener) = shape.ends(Side::Client);
        let mut records = Vec::new();
        sealer.seal(23, &plain, &mut records);
        let mut rest = &records[..];
        let mut opened = Vec::new();
        for expected in [MAX_PLAIN, MAX_PLAIN, 100] {
            let (_, fragment, later) = open_next(&mut opener, rest).unwrap();
            assert_eq!(fragment.len(), expected);
            opened.extend(fragment);
            rest = later;
        }
        assert_eq!((opened, rest.len()), (plain.clone(), 0), "{shape:?}");
    }
}

/// A changed byte that nothing authenticates is only acceptable where the no-ops say so; everything else must be
/// refused.
#[test]
fn every_changed_byte_is_refused() {
    let plain: Vec<u8> = (1..=50).collect();
    for shape in Shape::all() {
        let record = shape.seal(&plain);
        for position in HEADER..record.len() {
            for flip in [1, 0x80] {
                let mut changed = record.clone();
                changed[position] ^= flip;
                let opened = shape.open(&changed);
                if !off_has(&shape, Stage::Mac) {
                    assert_eq!(opened, iv_alone_is_open(&shape, position, &plain), "{shape:?} at {position}");
                } else if is_constant(&shape, &record, position) {
                    assert_eq!(opened, Err(CryptoError::BadRecordMac), "{shape:?} at {position}");
                }
            }
        }
        for content_type in [22, 21] {
            let mut changed = record.clone();
            changed[0] = content_type;
            match shape.suite.version() {
                Version::Tls13 => assert_eq!(shape.open(&changed), Err(CryptoError::NoContentType)),
                Version::Tls12 if off_has(&shape, Stage::Mac) => {
                    assert_eq!(shape.open(&changed).unwrap().0, content_type)
                }
                Version::Tls12 => assert_eq!(shape.open(&changed), Err(CryptoError::BadRecordMac)),
            }
        }
    }
}

/// With the MAC on, one thing alone is not authenticated: the explicit IV of MAC-then-encrypt while the cipher is off
/// (with the cipher on it changes the first block).
fn iv_alone_is_open(shape: &Shape, position: usize, plain: &[u8]) -> Result<(u8, Vec<u8>), CryptoError> {
    let in_iv = shape.suite.protection().is_cbc() && position < HEADER + 16;
    if in_iv && !shape.encrypt_then_mac && off_has(shape, Stage::Cipher) {
        return Ok((23, plain.to_vec()));
    }
    Err(CryptoError::BadRecordMac)
}

/// With the MAC off: whether the byte is one of the constants that replace it, in clear.
fn is_constant(shape: &Shape, record: &[u8], position: usize) -> bool {
    let from_end = record.len() - position;
    match shape.suite.protection().mac_bytes() {
        0 => from_end <= 16,
        mac if shape.encrypt_then_mac => from_end <= mac,
        // 50 bytes, MAC, padding to whole blocks.
        mac => off_has(shape, Stage::Cipher) && (HEADER + 16 + 50..HEADER + 16 + 50 + mac).contains(&position),
    }
}

#[test]
fn truncated_reordered_and_repeated_records_are_refused() {
    for shape in Shape::all().into_iter().filter(|shape| !off_has(shape, Stage::Mac)) {
        let record = shape.seal(b"some plain text");
        for length in 0..record.len() - HEADER {
            let mut cut = record[..HEADER + length].to_vec();
            cut[3..5].copy_from_slice(&(length as u16).to_be_bytes());
            assert_eq!(shape.open(&cut), Err(CryptoError::BadRecordMac), "{shape:?} cut to {length}");
        }
        let (_, mut opener) = shape.ends(Side::Client);
        open_next(&mut opener, &record).unwrap();
        assert_eq!(open_next(&mut opener, &record), Err(CryptoError::BadRecordMac), "repeated, {shape:?}");
        // The other direction's keys do not open it (TLS 1.3 gives each direction a secret of its own instead).
        if shape.suite.version() == Version::Tls12 {
            let (_, mut other) = shape.ends(Side::Server);
            assert_eq!(open_next(&mut other, &record), Err(CryptoError::BadRecordMac), "{shape:?}");
        }
    }
}

#[test]
fn short_records_are_refused_with_every_stage_off() {
    for shape in Shape::all() {
        for length in 0..16 {
            let mut record = header(23, length).to_vec();
            record.resize(HEADER + length, 0);
            assert_eq!(shape.open(&record), Err(CryptoError::BadRecordMac), "{shape:?} {length}");
        }
    }
}

#[test]
fn ends_with_different_stages_off_never_understand_each_other() {
    for shape in Shape::all() {
        let content = [7; 60];
        let record = shape.seal(&content);
        for other in Shape::all() {
            let same_suite = (other.suite, other.encrypt_then_mac) == (shape.suite, shape.encrypt_then_mac);
            if !same_suite || other.off == shape.off || confuses_only_the_content(&shape, &other) {
                continue;
            }
            match other.open(&record) {
                Err(fault) => assert_eq!(fault, CryptoError::BadRecordMac, "{shape:?} {other:?}"),
                // One time in 256 the padding looks right by chance, and then the content is wrong.
                Ok((_, plain)) => {
                    assert!(only_the_padding_tells(&shape, &other) && plain != content, "{shape:?} {other:?}");
                }
            }
        }
    }
}

/// With the MAC off at both ends the cipher alone differs: AEAD and encrypt-then-MAC have nothing left to notice that
/// by but the content (the handshake's Finished is wrong then).
fn confuses_only_the_content(shape: &Shape, other: &Shape) -> bool {
    let both = off_has(shape, Stage::Mac) && off_has(other, Stage::Mac);
    both && (!shape.suite.protection().is_cbc() || shape.encrypt_then_mac)
}

/// The MAC of encrypt-then-MAC covers what was sent, so ends that differ in the cipher alone agree on it.
fn only_the_padding_tells(shape: &Shape, other: &Shape) -> bool {
    shape.encrypt_then_mac && off_has(shape, Stage::Mac) == off_has(other, Stage::Mac)
}

#[test]
fn oversized_records_are_refused() {
    for shape in Shape::all() {
        let limit = if shape.suite.version() == Version::Tls13 { MAX_BODY_13 } else { MAX_BODY_12 };
        let mut record = header(23, limit + 1).to_vec();
        record.resize(HEADER + limit + 1, 0);
        let overflow = CryptoError::RecordOverflow { length: limit + 1, limit };
        assert_eq!(shape.open(&record), Err(overflow), "{shape:?}");
    }
    // A body within the limit whose plain text is too long: all in clear, since no sealer makes one.
    let clear = ON.with(Stage::Cipher).with(Stage::Mac);
    for suite in [Suite::Tls13Aes128Gcm, Suite::EcdheRsaChaCha20, Suite::RsaAes128Sha] {
        let shape = Shape { suite, off: clear, encrypt_then_mac: false };
        let length = match suite.protection().is_cbc() {
            true => 16 + (MAX_PLAIN + 1 + 20) / 16 * 16 + 16,
            false => MAX_PLAIN + 2 + 16,
        };
        let mut record = header(23, length).to_vec();
        record.resize(HEADER + length, 0);
        if suite.protection().is_cbc() {
            record[HEADER + 16 + MAX_PLAIN + 1..][..20].fill(MAC_FILL);
            let padding = length - 16 - MAX_PLAIN - 1 - 20;
            let start = record.len() - padding;
            record[start..].fill(padding as u8 - 1);
        }
        assert!(matches!(shape.open(&record), Err(CryptoError::RecordOverflow { .. })), "{suite:?}");
    }
}

#[test]
fn padding_of_tls13_is_removed_and_must_leave_a_type() {
    let shape =
        Shape { suite: Suite::Tls13Aes128Gcm, off: ON.with(Stage::Cipher).with(Stage::Mac), encrypt_then_mac: false };
    let record = |inner: &[u8]| [&header(23, inner.len() + 16)[..], inner, &[0; 16]].concat();
    assert_eq!(shape.open(&record(b"text\x17\0\0\0")), Ok((23, b"text".to_vec())));
    assert_eq!(shape.open(&record(b"\x16")), Ok((22, Vec::new())));
    for inner in [&b""[..], b"\0\0\0"] {
        assert_eq!(shape.open(&record(inner)), Err(CryptoError::NoContentType));
    }
}

#[test]
fn cbc_padding_must_be_whole() {
    let off = ON.with(Stage::Cipher).with(Stage::Mac);
    let shape = Shape { suite: Suite::RsaAes128Sha, off, encrypt_then_mac: false };
    let record = |tail: &[u8]| {
        let inner = [&[0; 16], &b"0123456789ab"[..], &[MAC_FILL; 20], tail].concat();
        [&header(23, inner.len())[..], &inner].concat()
    };
    let plain = b"0123456789ab".to_vec();
    // 12 + 20 = two blocks: a whole block of padding, or several.
    assert_eq!(shape.open(&record(&[15; 16])), Ok((23, plain.clone())));
    assert_eq!(shape.open(&record(&[255; 256])), Ok((23, plain)));
    let mut broken = [15; 16];
    broken[0] = 14;
    assert_eq!(shape.open(&record(&broken)), Err(CryptoError::BadRecordMac));
    assert_eq!(shape.open(&record(&[200; 16])), Err(CryptoError::BadRecordMac));
}

/// RFC 8448 section 3: the client's Finished and its first application data.
#[test]
fn rfc8448_records() {
    let handshake = hex("b3eddb126e067f35a780b3abf45e2d8f3b1a950738f52e9600746a0e27a55a21");
    let application = hex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
    let finished = hex("14000020a8ec436d677634ae525ac1fcebe11a039ec17694fac6e98527b642f2edd5ce61");
    let data: Vec<u8> = (0..50).collect();
    let cases = [
        (
            &handshake,
            22,
            &finished,
            "170303003575ec4dc238cce60b298044a71e219c56cc77b0517fe9b93c7a4bfc44d87f38f80338ac98fc46deb384bd1caeacab6867\
             d726c40546",
        ),
        (
            &application,
            23,
            &data,
            "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a\
             6292a2977014bd1e3deae63aeebb21694915e4",
        ),
    ];
    for (secret, content_type, plain, expected) in cases {
        let mut record = Vec::new();
        Sealer::tls13(Suite::Tls13Aes128Gcm, ON, secret).seal(content_type, plain, &mut record);
        assert_eq!(record, hex(expected));
    }
}

/// The whole AEADs and the CBC form against OpenSSL, over a record taken apart by hand.
#[test]
fn openssl_reads_tls12_records() {
    let plain = b"one record of the client";
    for suite in [Suite::RsaAes128Gcm, Suite::RsaAes256Gcm, Suite::EcdheRsaChaCha20] {
        let shape = Shape { suite, off: ON, encrypt_then_mac: false };
        let (record, block) = (shape.seal(plain), shape.secret());
        let keys = Keys12::new(suite.protection(), &block, Side::Client);
        let explicit = if suite == Suite::EcdheRsaChaCha20 { 0 } else { 8 };
        let body = &record[HEADER..];
        let nonce = [keys.iv, &body[..explicit]].concat();
        let (sealed, tag) = body[explicit..].split_at(plain.len());
        let cipher = match suite {
            Suite::RsaAes128Gcm => Cipher::aes_128_gcm(),
            Suite::RsaAes256Gcm => Cipher::aes_256_gcm(),
            _ => Cipher::chacha20_poly1305(),
        };
        let additional = additional_data_12(0, 23, [3, 3], plain.len());
        let opened = decrypt_aead(cipher, keys.key, Some(&nonce), &additional, sealed, tag);
        assert_eq!(opened.unwrap(), plain, "{suite:?}");
    }
    for suite in [Suite::RsaAes128Sha, Suite::RsaAes256Sha, Suite::RsaAes128Sha256, Suite::RsaAes256Sha256] {
        for encrypt_then_mac in [false, true] {
            openssl_reads_cbc(Shape { suite, off: ON, encrypt_then_mac }, plain);
        }
    }
}

fn openssl_reads_cbc(shape: Shape, plain: &[u8]) {
    let protection = shape.suite.protection();
    let (record, block) = (shape.seal(plain), shape.secret());
    let keys = Keys12::new(protection, &block, Side::Client);
    let (mac_bytes, digest) = match protection.mac_bytes() {
        20 => (20, MessageDigest::sha1()),
        _ => (32, MessageDigest::sha256()),
    };
    let mac = |data: &[u8]| {
        let key = PKey::hmac(keys.mac).unwrap();
        let mut signer = Signer::new(digest, &key).unwrap();
        signer.update(&additional_data_12(0, 23, [3, 3], data.len())).unwrap();
        signer.update(data).unwrap();
        signer.sign_to_vec().unwrap()
    };
    let mut sealed = &record[HEADER..];
    if shape.encrypt_then_mac {
        let (before, received) = sealed.split_at(sealed.len() - mac_bytes);
        assert_eq!(received, mac(before), "{shape:?}");
        sealed = before;
    }
    let cipher = if keys.key.len() == 16 { Cipher::aes_128_cbc() } else { Cipher::aes_256_cbc() };
    let mut crypter = Crypter::new(cipher, Mode::Decrypt, keys.key, Some(&sealed[..16])).unwrap();
    crypter.pad(false);
    let mut opened = vec![0; sealed.len()];
    let length = crypter.update(&sealed[16..], &mut opened).unwrap();
    opened.truncate(length);
    let (data, rest) = opened.split_at(plain.len());
    assert_eq!(data, plain);
    let (received, padding) = rest.split_at(if shape.encrypt_then_mac { 0 } else { mac_bytes });
    if !shape.encrypt_then_mac {
        assert_eq!(received, mac(plain), "{shape:?}");
    }
    assert!(padding.iter().all(|&byte| byte as usize == padding.len() - 1));
}

/// The halves of an AEAD by docs/NOOP.md: the cipher's payload is that of the whole AEAD, and the tag is that of an
/// empty plain text with the payload as additional data, both computed by OpenSSL.
#[test]
fn aead_halves_follow_the_contract() {
    let plain = b"half a record";
    let cases = [
        (Suite::RsaAes128Gcm, Cipher::aes_128_gcm(), 8),
        (Suite::RsaAes256Gcm, Cipher::aes_256_gcm(), 8),
        (Suite::EcdheRsaChaCha20, Cipher::chacha20_poly1305(), 0),
    ];
    for (suite, cipher, explicit) in cases {
        let shape = |off| Shape { suite, off, encrypt_then_mac: false };
        let block = shape(ON).secret();
        let keys = Keys12::new(suite.protection(), &block, Side::Client);
        let nonce = [keys.iv, &[0; 8][..explicit]].concat();
        let additional = additional_data_12(0, 23, [3, 3], plain.len());
        let mut tag = [0; 16];
        let encrypted = encrypt_aead(cipher, keys.key, Some(&nonce), &additional, plain, &mut tag).unwrap();
        let body = |off| shape(off).seal(plain)[HEADER + explicit..].to_vec();
        assert_eq!(body(ON), [&encrypted[..], &tag].concat());
        assert_eq!(body(ON.with(Stage::Mac)), [&encrypted[..], &[0; 16]].concat());
        let both = [&additional[..], plain].concat();
        encrypt_aead(cipher, keys.key, Some(&nonce), &both, b"", &mut tag).unwrap();
        assert_eq!(body(ON.with(Stage::Cipher)), [&plain[..], &tag].concat());
        assert_eq!(body(ON.with(Stage::Cipher).with(Stage::Mac)), [&plain[..], &[0; 16]].concat());
    }
}

/// A connection holds two of each: they must stay small.
#[test]
fn a_direction_stays_small() {
    assert!(size_of::<Sealer>() <= 80, "{}", size_of::<Sealer>());
    assert!(size_of::<Opener>() <= 80, "{}", size_of::<Opener>());
}
