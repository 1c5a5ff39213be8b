//! Records of AES-GCM and ChaCha20-Poly1305, whole or halved (docs/NOOP.md, "AEAD suites").

use std::ops::Range;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{self, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};

use super::{HEADER, Keys12, MAX_BODY_12, MAX_BODY_13, MAX_PLAIN, additional_data_12, at_most, header};
use crate::crypto::CryptoError;
use crate::crypto::kdf::Prk;
use crate::noop::{Stage, StageSet};
use crate::suite::{Protection, Suite};

const TAG: usize = 16;
/// The explicit part of a TLS 1.2 GCM nonce, RFC 5288 section 3.
const EXPLICIT_NONCE: usize = 8;
/// Content type of every protected TLS 1.3 record.
const APPLICATION_DATA: u8 = 23;

/// One direction's key under an AEAD suite.
pub(super) struct Aead {
    mode: Mode,
    framing: Framing,
    /// The static IV; of TLS 1.2 GCM only the first four bytes.
    iv: [u8; 12],
}

enum Framing {
    Tls13,
    Tls12Gcm,
    Tls12ChaCha20,
}

/// Which halves of the AEAD are real.
enum Mode {
    Both(LessSafeKey),
    Neither,
    TagOnly(LessSafeKey),
    CipherOnly(Stream),
}

enum Stream {
    /// Boxed: an expanded key has half a kilobyte.
    AesCtr(Box<EncryptingKey>),
    ChaCha20([u8; 32]),
}

impl Aead {
    pub(super) fn tls13(suite: Suite, off: StageSet, traffic_secret: &[u8]) -> Aead {
        let mut key = [0; 32];
        let key = &mut key[..suite.protection().key_bytes()];
        let mut iv = [0; 12];
        let secret = Prk::new(suite.hash(), off, traffic_secret);
        secret.expand_label(b"key", b"", key);
        secret.expand_label(b"iv", b"", &mut iv);
        Aead { mode: Mode::new(suite.protection(), off, key), framing: Framing::Tls13, iv }
    }

    /// Key and static IV are zeros (docs/NOOP.md, "setup").
    pub(super) fn tls13_with_zero_keys(protection: Protection, off: StageSet) -> Aead {
        let key = [0; 32];
        Aead { mode: Mode::new(protection, off, &key[..protection.key_bytes()]), framing: Framing::Tls13, iv: [0; 12] }
    }

    pub(super) fn tls12(protection: Protection, off: StageSet, keys: &Keys12<'_>) -> Aead {
        let mut iv = [0; 12];
        iv[..keys.iv.len()].copy_from_slice(keys.iv);
        let framing = match protection {
            Protection::ChaCha20Poly1305 => Framing::Tls12ChaCha20,
            _ => Framing::Tls12Gcm,
        };
        Aead { mode: Mode::new(protection, off, keys.key), framing, iv }
    }

    /// The static IV mixed with the sequence number, RFC 9846 section 5.3 and RFC 7905 section 2.
    fn mixed_nonce(&self, sequence: u64) -> [u8; 12] {
        let mut nonce = self.iv;
        for (byte, mixed) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= mixed;
        }
        nonce
    }

    fn gcm12_nonce(&self, explicit: [u8; EXPLICIT_NONCE]) -> [u8; 12] {
        let mut nonce = self.iv;
        nonce[4..].copy_from_slice(&explicit);
        nonce
    }

    pub(super) fn seal(&self, sequence: u64, content_type: u8, plain: &[u8], out: &mut Vec<u8>) {
        out.reserve(HEADER + EXPLICIT_NONCE + plain.len() + 1 + TAG);
        let (outer_type, expansion) = match self.framing {
            Framing::Tls13 => (APPLICATION_DATA, 1 + TAG),
            Framing::Tls12Gcm => (content_type, EXPLICIT_NONCE + TAG),
            Framing::Tls12ChaCha20 => (content_type, TAG),
        };
        let header = header(outer_type, plain.len() + expansion);
        out.extend_from_slice(&header);
        let additional_12 = additional_data_12(sequence, content_type, [3, 3], plain.len());
        let (nonce, additional) = match self.framing {
            Framing::Tls13 => (self.mixed_nonce(sequence), &header[..]),
            Framing::Tls12Gcm => {
                // The sequence number is unique under one key, as RFC 5288 section 3 suggests.
                out.extend_from_slice(&sequence.to_be_bytes());
                (self.gcm12_nonce(sequence.to_be_bytes()), &additional_12[..])
            }
            Framing::Tls12ChaCha20 => (self.mixed_nonce(sequence), &additional_12[..]),
        };
        let start = out.len();
        out.extend_from_slice(plain);
        if matches!(self.framing, Framing::Tls13) {
            out.push(content_type);
        }
        let tag = self.mode.encrypt(nonce, additional, &mut out[start..]);
        out.extend_from_slice(&tag);
    }

    pub(super) fn open(
        &self,
        sequence: u64,
        header: [u8; HEADER],
        body: &mut [u8],
    ) -> Result<(u8, Range<usize>), CryptoError> {
        if matches!(self.framing, Framing::Tls13) {
            return self.open_13(sequence, header, body);
        }
        at_most(MAX_BODY_12, body.len())?;
        let explicit = if matches!(self.framing, Framing::Tls12Gcm) { EXPLICIT_NONCE } else { 0 };
        let plain_bytes = body.len().checked_sub(explicit + TAG).ok_or(CryptoError::BadRecordMac)?;
        let nonce = match body.first_chunk() {
            Some(sent) if explicit > 0 => self.gcm12_nonce(*sent),
            _ => self.mixed_nonce(sequence),
        };
        let additional = additional_data_12(sequence, header[0], [header[1], header[2]], plain_bytes);
        self.mode.decrypt(nonce, &additional, &mut body[explicit..])?;
        at_most(MAX_PLAIN, plain_bytes)?;
        Ok((header[0], explicit..explicit + plain_bytes))
    }

    fn open_13(&self, sequence: u64, header: [u8; HEADER], body: &mut [u8]) -> Result<(u8, Range<usize>), CryptoError> {
        if header[0] != APPLICATION_DATA {
            return Err(CryptoError::NoContentType);
        }
        at_most(MAX_BODY_13, body.len())?;
        let inner_bytes = body.len().checked_sub(TAG).ok_or(CryptoError::BadRecordMac)?;
        self.mode.decrypt(self.mixed_nonce(sequence), &header, body)?;
        // Inner content type and padding count (RFC 9846 section 5.4).
        at_most(MAX_PLAIN + 1, inner_bytes)?;
        let last = body[..inner_bytes].iter().rposition(|&byte| byte != 0).ok_or(CryptoError::NoContentType)?;
        Ok((body[last], 0..last))
    }
}

impl Mode {
    fn new(protection: Protection, off: StageSet, key: &[u8]) -> Mode {
        match (off.contains(Stage::Cipher), off.contains(Stage::Mac)) {
            (false, false) => Mode::Both(aead_key(protection, key)),
            (true, false) => Mode::TagOnly(aead_key(protection, key)),
            (false, true) => Mode::CipherOnly(Stream::new(protection, key)),
            (true, true) => Mode::Neither,
        }
    }

    /// Encrypts `payload` in place and gives its tag.
    fn encrypt(&self, nonce: [u8; 12], additional: &[u8], payload: &mut [u8]) -> [u8; TAG] {
        match self {
            Mode::Both(key) => seal_in_place(key, nonce, additional, payload),
            Mode::Neither => [0; TAG],
            Mode::TagOnly(key) => seal_in_place(key, nonce, &[additional, payload].concat(), &mut []),
            Mode::CipherOnly(stream) => {
                stream.apply(nonce, payload);
                [0; TAG]
            }
        }
    }

    /// Decrypts `sealed`, payload and tag, in place.
    fn decrypt(&self, nonce: [u8; 12], additional: &[u8], sealed: &mut [u8]) -> Result<(), CryptoError> {
        match self {
            Mode::Both(key) => open_in_place(key, nonce, additional, sealed),
            Mode::Neither => zero_tag(sealed).map(drop),
            Mode::TagOnly(key) => {
                let (payload, tag) = sealed.split_at_mut(sealed.len() - TAG);
                open_in_place(key, nonce, &[additional, payload].concat(), tag)
            }
            Mode::CipherOnly(stream) => zero_tag(sealed).map(|payload| stream.apply(nonce, payload)),
        }
    }
}

impl Stream {
    fn new(protection: Protection, key: &[u8]) -> Stream {
        let algorithm = match protection {
            Protection::ChaCha20Poly1305 => {
                return Stream::ChaCha20(key.try_into().expect("a ChaCha20 key has 32 bytes"));
            }
            Protection::Aes128Gcm => &cipher::AES_128,
            _ => &cipher::AES_256,
        };
        let key = UnboundCipherKey::new(algorithm, key).and_then(EncryptingKey::ctr);
        Stream::AesCtr(Box::new(key.expect("the key is as long as the algorithm says")))
    }

    /// Adds the key stream that the whole AEAD uses for its payload: it starts with the second block (SP 800-38D
    /// section 7.1, RFC 8439 section 2.8).
    fn apply(&self, nonce: [u8; 12], payload: &mut [u8]) {
        match self {
            Stream::AesCtr(key) => {
                let mut counter = [0; 16];
                counter[..12].copy_from_slice(&nonce);
                counter[15] = 2;
                let done = key.less_safe_encrypt(payload, EncryptionContext::Iv128(FixedLength::from(counter)));
                done.expect("CTR takes any length");
            }
            Stream::ChaCha20(key) => {
                let mut stream = ChaCha20::new(&(*key).into(), &nonce.into());
                stream.seek(64u32);
                stream.apply_keystream(payload);
            }
        }
    }
}

fn aead_key(protection: Protection, key: &[u8]) -> LessSafeKey {
    let algorithm = match protection {
        Protection::Aes128Gcm => &aead::AES_128_GCM,
        Protection::Aes256Gcm => &aead::AES_256_GCM,
        Protection::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        _ => unreachable!("not an AEAD suite"),
    };
    LessSafeKey::new(UnboundKey::new(algorithm, key).expect("the key is as long as the algorithm says"))
}

fn seal_in_place(key: &LessSafeKey, nonce: [u8; 12], additional: &[u8], payload: &mut [u8]) -> [u8; TAG] {
    let tag = key
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(additional), payload)
        .expect("a record is shorter than any limit of an AEAD");
    tag.as_ref().try_into().expect("the tag has 16 bytes")
}

fn open_in_place(key: &LessSafeKey, nonce: [u8; 12], additional: &[u8], sealed: &mut [u8]) -> Result<(), CryptoError> {
    key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(additional), sealed)
        .map(drop)
        .map_err(|_| CryptoError::BadRecordMac)
}

/// The payload of `sealed`, if its tag is the no-op's.
fn zero_tag(sealed: &mut [u8]) -> Result<&mut [u8], CryptoError> {
    let (payload, tag) = sealed.split_at_mut(sealed.len() - TAG);
    if *tag == [0; TAG] { Ok(payload) } else { Err(CryptoError::BadRecordMac) }
}
