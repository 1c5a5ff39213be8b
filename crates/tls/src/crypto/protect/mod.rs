//! Record protection: whole records out, records opened in place (RFC 9846 section 5, RFC 5246 section 6.2.3, RFC
//! 7366).

mod aead;
mod cbc;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

use std::ops::Range;

use self::aead::Aead;
use self::cbc::Cbc;
use super::CryptoError;
use crate::noop::StageSet;
use crate::suite::{Protection, Suite, Version};

/// Most bytes of plain text in a record (RFC 9846 section 5.1).
pub const MAX_PLAIN: usize = 16384;
/// Bytes of a record header.
pub const HEADER: usize = 5;
/// Most bytes of a TLS 1.3 record after its header (RFC 9846 section 5.2).
pub const MAX_BODY_13: usize = MAX_PLAIN + 256;
/// Most bytes of a TLS 1.2 record after its header (RFC 5246 section 6.2.3).
pub const MAX_BODY_12: usize = MAX_PLAIN + 2048;

/// Longest TLS 1.2 key block: AES-256-CBC with HMAC-SHA256 has two keys and two MAC keys of 32 bytes.
pub const KEY_BLOCK_MAX: usize = 136;

/// The end whose writing is protected: a client seals with `Client` and opens with `Server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The direction from client to server.
    Client,
    /// The direction from server to client.
    Server,
}

impl Protection {
    /// Bytes of one encryption key.
    pub const fn key_bytes(self) -> usize {
        match self {
            Protection::Aes128Gcm | Protection::Aes128CbcSha | Protection::Aes128CbcSha256 => 16,
            _ => 32,
        }
    }

    /// Bytes of one record MAC and its key; 0 for AEAD suites.
    const fn mac_bytes(self) -> usize {
        match self {
            Protection::Aes128CbcSha | Protection::Aes256CbcSha => 20,
            Protection::Aes128CbcSha256 | Protection::Aes256CbcSha256 => 32,
            _ => 0,
        }
    }

    /// Bytes of one fixed IV in the TLS 1.2 key block (RFC 5288 section 3, RFC 7905 section 2).
    const fn fixed_iv_bytes(self) -> usize {
        match self {
            Protection::Aes128Gcm | Protection::Aes256Gcm => 4,
            Protection::ChaCha20Poly1305 => 12,
            _ => 0,
        }
    }

    /// Bytes of the TLS 1.2 key block (RFC 5246 section 6.3): at most 136.
    pub const fn key_block_bytes(self) -> usize {
        2 * (self.mac_bytes() + self.key_bytes() + self.fixed_iv_bytes())
    }

    /// Whether this is a CBC suite with a MAC of its own, to which encrypt-then-MAC applies.
    pub const fn is_cbc(self) -> bool {
        self.mac_bytes() > 0
    }
}

/// Protects what one end writes, under one key.
pub struct Sealer(Half);

/// Opens what the other end writes, under one key.
pub struct Opener(Half);

struct Half {
    method: Method,
    /// Records so far under this key.
    sequence: u64,
}

/// CBC is boxed: its expanded keys would make every connection larger.
enum Method {
    Aead(Aead),
    Cbc(Box<Cbc>),
}

impl Half {
    fn tls13(suite: Suite, off: StageSet, traffic_secret: &[u8]) -> Half {
        Half { method: Method::Aead(Aead::tls13(suite, off, traffic_secret)), sequence: 0 }
    }

    fn tls12(suite: Suite, off: StageSet, key_block: &[u8], side: Side, encrypt_then_mac: bool) -> Half {
        let protection = suite.protection();
        let keys = Keys12::new(protection, key_block, side);
        let method = if protection.is_cbc() {
            Method::Cbc(Box::new(Cbc::new(protection, off, &keys, encrypt_then_mac)))
        } else {
            Method::Aead(Aead::tls12(protection, off, &keys))
        };
        Half { method, sequence: 0 }
    }

    fn with_zero_keys(suite: Suite, off: StageSet, encrypt_then_mac: bool) -> Half {
        let protection = suite.protection();
        match suite.version() {
            Version::Tls13 => Half { method: Method::Aead(Aead::tls13_with_zero_keys(protection, off)), sequence: 0 },
            Version::Tls12 => {
                let zeros = [0; KEY_BLOCK_MAX];
                let block = &zeros[..protection.key_block_bytes()];
                Half::tls12(suite, off, block, Side::Client, encrypt_then_mac)
            }
        }
    }

    fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        // 2^64 records never happen (RFC 9846 section 5.3 forbids wrapping).
        self.sequence += 1;
        sequence
    }
}

/// One end's slices of a TLS 1.2 key block.
struct Keys12<'a> {
    mac: &'a [u8],
    key: &'a [u8],
    iv: &'a [u8],
}

impl<'a> Keys12<'a> {
    fn new(protection: Protection, key_block: &'a [u8], side: Side) -> Keys12<'a> {
        assert_eq!(key_block.len(), protection.key_block_bytes(), "the key block is as long as the suite says");
        let (macs, rest) = key_block.split_at(2 * protection.mac_bytes());
        let (keys, ivs) = rest.split_at(2 * protection.key_bytes());
        let own = |both: &'a [u8]| {
            let (client, server) = both.split_at(both.len() / 2);
            if side == Side::Client { client } else { server }
        };
        Keys12 { mac: own(macs), key: own(keys), iv: own(ivs) }
    }
}

impl Sealer {
    /// For TLS 1.3, from a traffic secret (RFC 9846 section 7.3).
    pub fn tls13(suite: Suite, off: StageSet, traffic_secret: &[u8]) -> Sealer {
        Sealer(Half::tls13(suite, off, traffic_secret))
    }

    /// For TLS 1.2, from a key block of [`Protection::key_block_bytes`].
    ///
    /// # Panics
    /// If the key block has another length.
    pub fn tls12(suite: Suite, off: StageSet, key_block: &[u8], side: Side, encrypt_then_mac: bool) -> Sealer {
        Sealer(Half::tls12(suite, off, key_block, side, encrypt_then_mac))
    }

    /// Without any set-up: keys, fixed IVs and MAC keys are zeros (docs/NOOP.md, "setup").
    pub fn with_zero_keys(suite: Suite, off: StageSet, encrypt_then_mac: bool) -> Sealer {
        Sealer(Half::with_zero_keys(suite, off, encrypt_then_mac))
    }

    /// Records sealed so far: keys have a limit (RFC 9846 section 5.5).
    pub fn records(&self) -> u64 {
        self.0.sequence
    }

    /// Appends `plain` to `out` as whole records, header and all, of at most [`MAX_PLAIN`] bytes each; an empty `plain`
    /// makes one empty record.
    pub fn seal(&mut self, content_type: u8, plain: &[u8], out: &mut Vec<u8>) {
        let mut rest = plain;
        loop {
            let (fragment, later) = rest.split_at(rest.len().min(MAX_PLAIN));
            let sequence = self.0.next_sequence();
            match &self.0.method {
                Method::Aead(aead) => aead.seal(sequence, content_type, fragment, out),
                Method::Cbc(cbc) => cbc.seal(sequence, content_type, fragment, out),
            }
            rest = later;
            if rest.is_empty() {
                return;
            }
        }
    }
}

impl Opener {
    /// For TLS 1.3, from a traffic secret (RFC 9846 section 7.3).
    pub fn tls13(suite: Suite, off: StageSet, traffic_secret: &[u8]) -> Opener {
        Opener(Half::tls13(suite, off, traffic_secret))
    }

    /// For TLS 1.2, from a key block of [`Protection::key_block_bytes`].
    ///
    /// # Panics
    /// If the key block has another length.
    pub fn tls12(suite: Suite, off: StageSet, key_block: &[u8], side: Side, encrypt_then_mac: bool) -> Opener {
        Opener(Half::tls12(suite, off, key_block, side, encrypt_then_mac))
    }

    /// Without any set-up: keys, fixed IVs and MAC keys are zeros (docs/NOOP.md, "setup").
    pub fn with_zero_keys(suite: Suite, off: StageSet, encrypt_then_mac: bool) -> Opener {
        Opener(Half::with_zero_keys(suite, off, encrypt_then_mac))
    }

    /// Opens one record in place: `body` is everything after the header. Gives the content type (TLS 1.3: the inner
    /// one, padding removed) and where the plain text lies within `body`.
    ///
    /// # Errors
    /// [`CryptoError::BadRecordMac`], [`CryptoError::RecordOverflow`], [`CryptoError::NoContentType`]; `body` is then
    /// garbage.
    pub fn open(&mut self, header: [u8; HEADER], body: &mut [u8]) -> Result<(u8, Range<usize>), CryptoError> {
        let sequence = self.0.next_sequence();
        match &self.0.method {
            Method::Aead(aead) => aead.open(sequence, header, body),
            Method::Cbc(cbc) => cbc.open(sequence, header, body),
        }
    }
}

/// The 13 bytes that a TLS 1.2 record authenticates besides its data (RFC 5246 sections 6.2.3.1 and 6.2.3.3).
fn additional_data_12(sequence: u64, content_type: u8, version: [u8; 2], length: usize) -> [u8; 13] {
    let mut data = [0; 13];
    data[..8].copy_from_slice(&sequence.to_be_bytes());
    data[8] = content_type;
    data[9..11].copy_from_slice(&version);
    data[11..].copy_from_slice(&(length as u16).to_be_bytes());
    data
}

fn at_most(limit: usize, length: usize) -> Result<(), CryptoError> {
    if length > limit { Err(CryptoError::RecordOverflow { length, limit }) } else { Ok(()) }
}

/// A record header of the version that both TLS 1.2 and TLS 1.3 put there.
fn header(content_type: u8, length: usize) -> [u8; HEADER] {
    let [high, low] = (length as u16).to_be_bytes();
    [content_type, 3, 3, high, low]
}
