//! Key agreement: (EC)DH shares and secrets (RFC 7748, RFC 8422, RFC 9846 section 7.4), alone or joined to ML-KEM
//! (draft-ietf-tls-ecdhe-mlkem), and the RSA encryption of the TLS 1.2 pre-master secret (RFC 5246 section 7.4.7.1).

use std::sync::Arc;

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::kem::DecapsulationKey;
use aws_lc_rs::rsa::{Pkcs1PublicEncryptingKey, PublicEncryptingKey};

use super::kem::{self, Kem};
use super::verify::{KeyKind, PublicKey};
use super::{CryptoError, small_rsa};
use crate::noop::{SECRET_FILL, Stage, StageSet};
use crate::suite::{Effort, Group};

/// Bytes of the longest shared secret: that of P-384 and ML-KEM-1024.
const SECRET_MAX: usize = 48 + kem::SECRET_BYTES;

/// A shared secret, kept without an allocation.
#[derive(Clone, Copy)]
pub struct Secret {
    bytes: [u8; SECRET_MAX],
    length: u8,
}

impl Secret {
    const EMPTY: Secret = Secret { bytes: [0; SECRET_MAX], length: 0 };

    /// The bytes, [`Group::secret_bytes`] of them.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    fn push(&mut self, part: &[u8]) {
        let start = usize::from(self.length);
        self.bytes[start..start + part.len()].copy_from_slice(part);
        self.length += part.len() as u8;
    }
}

impl Group {
    /// Length of the client's share on the wire in bytes: a u coordinate or an uncompressed point, and a hybrid's
    /// encapsulation key.
    pub fn client_share_bytes(self) -> usize {
        self.point_bytes() + self.kem().map_or(0, Kem::encapsulation_key_bytes)
    }

    /// Length of the server's share on the wire in bytes: a u coordinate or an uncompressed point, and a hybrid's
    /// ciphertext.
    pub fn server_share_bytes(self) -> usize {
        self.point_bytes() + self.kem().map_or(0, Kem::ciphertext_bytes)
    }

    /// Length of the shared secret in bytes.
    pub fn secret_bytes(self) -> usize {
        self.curve_secret_bytes() + self.kem().map_or(0, |_| kem::SECRET_BYTES)
    }

    /// The group's curve, itself a group.
    pub const fn curve(self) -> Group {
        match self {
            Group::X25519 | Group::X25519MlKem768 => Group::X25519,
            Group::P256 | Group::P256MlKem768 => Group::P256,
            Group::P384 | Group::P384MlKem1024 => Group::P384,
        }
    }

    const fn kem(self) -> Option<Kem> {
        match self {
            Group::X25519MlKem768 | Group::P256MlKem768 => Some(Kem::MlKem768),
            Group::P384MlKem1024 => Some(Kem::MlKem1024),
            Group::X25519 | Group::P256 | Group::P384 => None,
        }
    }

    /// Whether ML-KEM's part of shares and secret comes before the curve's: the draft has both orders, so that the part
    /// that FIPS approves comes first.
    const fn has_kem_first(self) -> bool {
        matches!(self, Group::X25519MlKem768)
    }

    const fn point_bytes(self) -> usize {
        match self.curve() {
            Group::P256 => 65,
            Group::P384 => 97,
            _ => 32,
        }
    }

    const fn curve_secret_bytes(self) -> usize {
        if matches!(self.curve(), Group::P384) { 48 } else { 32 }
    }

    fn algorithm(self) -> &'static agreement::Algorithm {
        match self.curve() {
            Group::P256 => &agreement::ECDH_P256,
            Group::P384 => &agreement::ECDH_P384,
            _ => &agreement::X25519,
        }
    }

    /// The curve's base point as a share: the public key of the scalar 1.
    fn base_point(self) -> &'static [u8] {
        match self.curve() {
            Group::P256 => &P256_BASE,
            Group::P384 => &P384_BASE,
            _ => &X25519_BASE,
        }
    }

    /// The parts of the server's share, which has the right length: point and ciphertext.
    fn parts(self, share: &[u8]) -> (&[u8], &[u8]) {
        if self.has_kem_first() {
            let (ciphertext, point) = share.split_at(share.len() - self.point_bytes());
            return (point, ciphertext);
        }
        share.split_at(self.point_bytes())
    }
}

/// The client's half of one key agreement.
pub struct KeyShare {
    group: Group,
    half: Half,
}

enum Half {
    /// A real key pair on the curve, and a hybrid's ML-KEM key.
    Pair { private: Arc<PrivateKey>, public: [u8; 97], kem: Option<DecapsulationKey> },
    /// The base point, whose secret is the peer's point itself, and a hybrid's key of zeros (effort floor).
    Base,
    /// The base point, a hybrid's key of zeros, and a constant secret (stage `key_agreement` off).
    Constant,
}

impl KeyShare {
    /// A share for `group`: fresh keys, or at [`Effort::Floor`] and with stage `key_agreement` off the base point and,
    /// for a hybrid, the ML-KEM key of zeros ([`Kem::decapsulate_with_zeros`]).
    ///
    /// # Panics
    /// If the system gives no randomness.
    pub fn generate(group: Group, effort: Effort, off: StageSet) -> KeyShare {
        if off.contains(Stage::KeyAgreement) {
            return KeyShare { group, half: Half::Constant };
        }
        if effort == Effort::Floor {
            return KeyShare { group, half: Half::Base };
        }
        let private = PrivateKey::generate(group.algorithm()).expect("the system gives randomness");
        let point = private.compute_public_key().expect("a fresh private key has a public key");
        let mut public = [0; 97];
        public[..group.point_bytes()].copy_from_slice(point.as_ref());
        KeyShare { group, half: Half::Pair { private: Arc::new(private), public, kem: group.kem().map(Kem::generate) } }
    }

    /// The share of the curve alone, with the same key pair: it costs nothing, and a client may send both
    /// (draft-ietf-tls-hybrid-design section 3.2).
    pub fn of_curve(&self) -> KeyShare {
        let half = match &self.half {
            Half::Pair { private, public, .. } => {
                Half::Pair { private: Arc::clone(private), public: *public, kem: None }
            }
            Half::Base => Half::Base,
            Half::Constant => Half::Constant,
        };
        KeyShare { group: self.group.curve(), half }
    }

    /// The group that the share belongs to.
    pub fn group(&self) -> Group {
        self.group
    }

    /// Appends the share as sent, [`Group::client_share_bytes`] of it.
    pub fn put(&self, out: &mut Vec<u8>) {
        if self.group.has_kem_first() {
            self.put_encapsulation_key(out);
        }
        match &self.half {
            Half::Pair { public, .. } => out.extend_from_slice(&public[..self.group.point_bytes()]),
            Half::Base | Half::Constant => out.extend_from_slice(self.group.base_point()),
        }
        if !self.group.has_kem_first() {
            self.put_encapsulation_key(out);
        }
    }

    fn put_encapsulation_key(&self, out: &mut Vec<u8>) {
        match (self.group.kem(), &self.half) {
            (_, Half::Pair { kem: Some(key), .. }) => kem::put_encapsulation_key(key, out),
            (Some(kem), _) => out.resize(out.len() + kem.encapsulation_key_bytes(), 0),
            (None, _) => {}
        }
    }

    /// The secret shared with the holder of `peer`, a server's share.
    ///
    /// # Errors
    /// [`CryptoError::KeyShareLength`] and [`CryptoError::BadKeyShare`] if `peer` is not a share of this group. With
    /// the base point only its form is checked, not that it is on the curve: nothing secret depends on it. A ciphertext
    /// that is not for this client's key gives another secret than the server's and no error (FIPS 203, implicit
    /// rejection): the first protected record then does not authenticate.
    pub fn agree(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        let (group, expected) = (self.group, self.group.server_share_bytes());
        if peer.len() != expected {
            return Err(CryptoError::KeyShareLength { group, length: peer.len(), expected });
        }
        let (point, ciphertext) = group.parts(peer);
        if group.curve() != Group::X25519 && point.first() != Some(&4) {
            return Err(CryptoError::BadKeyShare(group));
        }
        let mut secret = Secret::EMPTY;
        if group.has_kem_first() {
            self.decapsulate(ciphertext, &mut secret)?;
        }
        self.agree_on_curve(point, &mut secret)?;
        if !group.has_kem_first() {
            self.decapsulate(ciphertext, &mut secret)?;
        }
        Ok(secret)
    }

    /// Appends the secret shared on the curve with the holder of `point`.
    fn agree_on_curve(&self, point: &[u8], secret: &mut Secret) -> Result<(), CryptoError> {
        let bytes = self.group.curve_secret_bytes();
        match &self.half {
            Half::Constant => secret.push(&[SECRET_FILL; 48][..bytes]),
            Half::Base if self.group.curve() == Group::X25519 => secret.push(point),
            Half::Base => secret.push(&point[1..=bytes]),
            Half::Pair { private, .. } => {
                let peer = UnparsedPublicKey::new(self.group.algorithm(), point);
                let refused = CryptoError::BadKeyShare(self.group);
                agreement::agree(private, peer, refused, |shared| {
                    secret.push(shared);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// Appends the secret of a hybrid's ciphertext.
    fn decapsulate(&self, ciphertext: &[u8], secret: &mut Secret) -> Result<(), CryptoError> {
        let Some(kem) = self.group.kem() else {
            return Ok(());
        };
        match &self.half {
            Half::Constant => secret.push(&[SECRET_FILL; kem::SECRET_BYTES]),
            Half::Pair { kem: Some(key), .. } => {
                let shared = key.decapsulate(ciphertext.into());
                secret.push(shared.map_err(|_| CryptoError::BadKeyShare(self.group))?.as_ref());
            }
            Half::Base | Half::Pair { .. } => secret.push(&kem.decapsulate_with_zeros(ciphertext)),
        }
        Ok(())
    }
}

/// Largest RSA modulus that aws-lc-rs encrypts to, in bytes.
const MODULUS_MAX: usize = 8192 / 8;

/// Encrypts the pre-master secret to the RSA key of the server's certificate with PKCS#1 v1.5; with stage
/// `authentication` off writes the no-op form instead: its length in 2 bytes, the secret in clear, zeros up to the
/// modulus size.
///
/// # Errors
/// [`CryptoError::UnsuitableKey`] if the key is not RSA, or larger than 8192 bits (aws-lc-rs's limit);
/// [`CryptoError::SmallRsaKey`] if it is smaller than 2048 bits and `small_keys` are not allowed (with the stage off a
/// smaller one will do),
/// [`CryptoError::MalformedCertificate`] if it cannot be read.
pub fn rsa_encrypt_premaster(
    spki_der: &[u8],
    premaster: &[u8; 48],
    off: StageSet,
    small_keys: bool,
) -> Result<Vec<u8>, CryptoError> {
    let public_key = PublicKey::from_spki(spki_der)?;
    let KeyKind::Rsa { modulus_bytes } = public_key.kind else {
        return Err(CryptoError::UnsuitableKey("static RSA key exchange needs an RSA certificate"));
    };
    let mut encrypted = vec![0; modulus_bytes];
    if off.contains(Stage::Authentication) {
        // aws-lc-rs is not asked here, and a longer one would not even fit the message's length field in the end.
        if modulus_bytes < 2 + premaster.len() || modulus_bytes > MODULUS_MAX {
            return Err(CryptoError::UnsuitableKey("the RSA modulus is too small, or larger than 8192 bits"));
        }
        encrypted[..2].copy_from_slice(&(premaster.len() as u16).to_be_bytes());
        encrypted[2..2 + premaster.len()].copy_from_slice(premaster);
        return Ok(encrypted);
    }
    if small_rsa::is_small(modulus_bytes, small_keys)? {
        small_rsa::encrypt(public_key.key, premaster, &mut encrypted)?;
        return Ok(encrypted);
    }
    let refused = CryptoError::UnsuitableKey("the RSA key is larger than 8192 bits, or malformed");
    let key = PublicEncryptingKey::from_der(spki_der)
        .ok()
        .and_then(|key| Pkcs1PublicEncryptingKey::new(key).ok())
        .ok_or_else(|| refused.clone())?;
    key.encrypt(premaster, &mut encrypted).map_err(|_| refused)?;
    Ok(encrypted)
}

/// u = 9, RFC 7748 section 4.1.
const X25519_BASE: [u8; 32] = {
    let mut base = [0; 32];
    base[0] = 9;
    base
};

/// The generator of P-256 as an uncompressed point, SP 800-186 section 3.2.1.3.
const P256_BASE: [u8; 65] = [
    0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40, 0xf2, 0x77, 0x03,
    0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2, 0x96, 0x4f, 0xe3, 0x42, 0xe2, 0xfe,
    0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e, 0x16, 0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce,
    0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51, 0xf5,
];

/// The generator of P-384 as an uncompressed point, SP 800-186 section 3.2.1.4.
const P384_BASE: [u8; 97] = [
    0x04, 0xaa, 0x87, 0xca, 0x22, 0xbe, 0x8b, 0x05, 0x37, 0x8e, 0xb1, 0xc7, 0x1e, 0xf3, 0x20, 0xad, 0x74, 0x6e, 0x1d,
    0x3b, 0x62, 0x8b, 0xa7, 0x9b, 0x98, 0x59, 0xf7, 0x41, 0xe0, 0x82, 0x54, 0x2a, 0x38, 0x55, 0x02, 0xf2, 0x5d, 0xbf,
    0x55, 0x29, 0x6c, 0x3a, 0x54, 0x5e, 0x38, 0x72, 0x76, 0x0a, 0xb7, 0x36, 0x17, 0xde, 0x4a, 0x96, 0x26, 0x2c, 0x6f,
    0x5d, 0x9e, 0x98, 0xbf, 0x92, 0x92, 0xdc, 0x29, 0xf8, 0xf4, 0x1d, 0xbd, 0x28, 0x9a, 0x14, 0x7c, 0xe9, 0xda, 0x31,
    0x13, 0xb5, 0xf0, 0xb8, 0xc0, 0x0a, 0x60, 0xb1, 0xce, 0x1d, 0x7e, 0x81, 0x9d, 0x7a, 0x43, 0x1d, 0x7c, 0x90, 0xea,
    0x0e, 0x5f,
];

#[cfg(test)]
mod tests;
