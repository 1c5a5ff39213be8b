//! Records of AES-CBC with HMAC: MAC-then-encrypt (RFC 5246 section 6.2.3.2) and encrypt-then-MAC (RFC 7366).
//!
//! Padding and MAC are checked one after the other and not in constant time: this client measures servers and guards no
//! secrets. All failures are one error.

use std::ops::Range;

use aws_lc_rs::cipher::{self, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;

use super::{HEADER, Keys12, MAX_BODY_12, MAX_PLAIN, additional_data_12, at_most, header};
use crate::crypto::CryptoError;
use crate::noop::{MAC_FILL, Stage, StageSet};
use crate::suite::Protection;

const BLOCK: usize = 16;
const MAC_MAX: usize = 32;

/// One direction's keys under a CBC suite.
pub(super) struct Cbc {
    /// `None` with stage `cipher` off.
    cipher: Option<CbcKeys>,
    /// `None` with stage `mac` off.
    mac: Option<hmac::Key>,
    mac_bytes: usize,
    encrypt_then_mac: bool,
}

struct CbcKeys {
    encrypting: EncryptingKey,
    decrypting: DecryptingKey,
}

impl Cbc {
    pub(super) fn new(protection: Protection, off: StageSet, keys: &Keys12<'_>, encrypt_then_mac: bool) -> Cbc {
        let hash = match protection {
            Protection::Aes128CbcSha | Protection::Aes256CbcSha => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            _ => hmac::HMAC_SHA256,
        };
        Cbc {
            cipher: (!off.contains(Stage::Cipher)).then(|| CbcKeys::new(keys.key)),
            mac: (!off.contains(Stage::Mac)).then(|| hmac::Key::new(hash, keys.mac)),
            mac_bytes: protection.mac_bytes(),
            encrypt_then_mac,
        }
    }

    pub(super) fn seal(&self, sequence: u64, content_type: u8, plain: &[u8], out: &mut Vec<u8>) {
        let mut iv = [0; BLOCK];
        aws_lc_rs::rand::fill(&mut iv).expect("the system gives randomness");
        self.seal_with_iv(iv, sequence, content_type, plain, out);
    }

    /// Appends one record with this explicit IV.
    pub(super) fn seal_with_iv(
        &self,
        iv: [u8; BLOCK],
        sequence: u64,
        content_type: u8,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) {
        let (inner_mac, outer_mac) = if self.encrypt_then_mac { (0, self.mac_bytes) } else { (self.mac_bytes, 0) };
        let padded = (plain.len() + inner_mac) / BLOCK * BLOCK + BLOCK;
        out.reserve(HEADER + BLOCK + padded + outer_mac);
        out.extend_from_slice(&header(content_type, BLOCK + padded + outer_mac));
        let start = out.len();
        out.extend_from_slice(&iv);
        out.extend_from_slice(plain);
        if !self.encrypt_then_mac {
            let mac = self.mac(sequence, content_type, [3, 3], plain);
            out.extend_from_slice(&mac[..self.mac_bytes]);
        }
        let padding = start + BLOCK + padded - out.len();
        out.resize(start + BLOCK + padded, (padding - 1) as u8);
        if let Some(keys) = &self.cipher {
            keys.encrypt(iv, &mut out[start + BLOCK..]);
        }
        if self.encrypt_then_mac {
            let mac = self.mac(sequence, content_type, [3, 3], &out[start..]);
            out.extend_from_slice(&mac[..self.mac_bytes]);
        }
    }

    pub(super) fn open(
        &self,
        sequence: u64,
        header: [u8; HEADER],
        body: &mut [u8],
    ) -> Result<(u8, Range<usize>), CryptoError> {
        at_most(MAX_BODY_12, body.len())?;
        let version = [header[1], header[2]];
        let mut sealed = body.len();
        if self.encrypt_then_mac {
            sealed = sealed.checked_sub(self.mac_bytes).ok_or(CryptoError::BadRecordMac)?;
            self.check_mac(sequence, header[0], version, &body[..sealed], &body[sealed..])?;
        }
        if sealed < 2 * BLOCK || !sealed.is_multiple_of(BLOCK) {
            return Err(CryptoError::BadRecordMac);
        }
        let (iv, blocks) = body[..sealed].split_at_mut(BLOCK);
        if let Some(keys) = &self.cipher {
            keys.decrypt(iv.try_into().expect("one block"), blocks);
        }
        let mut end = BLOCK + unpadded(blocks)?;
        if !self.encrypt_then_mac {
            let data =
                end.checked_sub(self.mac_bytes).filter(|&data| data >= BLOCK).ok_or(CryptoError::BadRecordMac)?;
            self.check_mac(sequence, header[0], version, &body[BLOCK..data], &body[data..end])?;
            end = data;
        }
        at_most(MAX_PLAIN, end - BLOCK)?;
        Ok((header[0], BLOCK..end))
    }

    /// The record MAC over `data`; only the first `mac_bytes` count.
    fn mac(&self, sequence: u64, content_type: u8, version: [u8; 2], data: &[u8]) -> [u8; MAC_MAX] {
        let mut mac = [MAC_FILL; MAC_MAX];
        if let Some(key) = &self.mac {
            let mut context = hmac::Context::with_key(key);
            context.update(&additional_data_12(sequence, content_type, version, data.len()));
            context.update(data);
            mac[..self.mac_bytes].copy_from_slice(context.sign().as_ref());
        }
        mac
    }

    fn check_mac(
        &self,
        sequence: u64,
        content_type: u8,
        version: [u8; 2],
        data: &[u8],
        received: &[u8],
    ) -> Result<(), CryptoError> {
        let mac = self.mac(sequence, content_type, version, data);
        if mac[..self.mac_bytes] == *received { Ok(()) } else { Err(CryptoError::BadRecordMac) }
    }
}

/// How many of the decrypted bytes come before the padding: its last byte, the padding length, repeated that often and
/// once more.
fn unpadded(blocks: &[u8]) -> Result<usize, CryptoError> {
    let last = *blocks.last().ok_or(CryptoError::BadRecordMac)?;
    let length = blocks.len().checked_sub(last as usize + 1).ok_or(CryptoError::BadRecordMac)?;
    if blocks[length..].iter().all(|&byte| byte == last) { Ok(length) } else { Err(CryptoError::BadRecordMac) }
}

impl CbcKeys {
    fn new(key: &[u8]) -> CbcKeys {
        let algorithm = if key.len() == 16 { &cipher::AES_128 } else { &cipher::AES_256 };
        let unbound = || UnboundCipherKey::new(algorithm, key).expect("the key is as long as the algorithm says");
        CbcKeys {
            encrypting: EncryptingKey::cbc(unbound()).expect("AES has a CBC mode"),
            decrypting: DecryptingKey::cbc(unbound()).expect("AES has a CBC mode"),
        }
    }

    fn encrypt(&self, iv: [u8; BLOCK], blocks: &mut [u8]) {
        let done = self.encrypting.less_safe_encrypt(blocks, EncryptionContext::Iv128(FixedLength::from(iv)));
        done.expect("whole blocks were given");
    }

    fn decrypt(&self, iv: [u8; BLOCK], blocks: &mut [u8]) {
        let done = self.decrypting.decrypt(blocks, DecryptionContext::Iv128(FixedLength::from(iv)));
        done.expect("whole blocks were given");
    }
}
