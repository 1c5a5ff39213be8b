//! Key agreement: (EC)DH shares and secrets (RFC 7748, RFC 8422, RFC 9846 section 7.4), alone or joined to ML-KEM
//! (draft-ietf-tls-ecdhe-mlkem), and the RSA encryption of the TLS 1.2 pre-master secret (RFC 5246 section 7.4.7.1).

use std::sync::{Arc, LazyLock};

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

/// Bytes of the longest point: that of P-521.
const POINT_MAX: usize = 133;

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
            Group::P521 => Group::P521,
        }
    }

    const fn kem(self) -> Option<Kem> {
        match self {
            Group::X25519MlKem768 | Group::P256MlKem768 => Some(Kem::MlKem768),
            Group::P384MlKem1024 => Some(Kem::MlKem1024),
            Group::X25519 | Group::P256 | Group::P384 | Group::P521 => None,
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
            Group::P521 => POINT_MAX,
            _ => 32,
        }
    }

    const fn curve_secret_bytes(self) -> usize {
        if matches!(self.curve(), Group::X25519) { 32 } else { self.point_bytes() / 2 }
    }

    fn algorithm(self) -> &'static agreement::Algorithm {
        match self.curve() {
            Group::P256 => &agreement::ECDH_P256,
            Group::P384 => &agreement::ECDH_P384,
            Group::P521 => &agreement::ECDH_P521,
            _ => &agreement::X25519,
        }
    }

    /// The curve's base point as a share: the public key of the scalar 1.
    fn base_point(self) -> &'static [u8] {
        static OF_CURVES: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
            [Group::P256, Group::P384, Group::P521].map(|curve| {
                let one = [&vec![0; curve.curve_secret_bytes() - 1][..], &[1]].concat();
                let key = PrivateKey::from_private_key(curve.algorithm(), &one).expect("1 is a private key");
                key.compute_public_key().expect("a private key has a public key").as_ref().to_vec()
            })
        });
        match self.curve() {
            Group::P256 => &OF_CURVES[0],
            Group::P384 => &OF_CURVES[1],
            Group::P521 => &OF_CURVES[2],
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
    Pair { private: Arc<PrivateKey>, public: [u8; POINT_MAX], kem: Option<DecapsulationKey> },
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
        let mut public = [0; POINT_MAX];
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
            Half::Constant => secret.push(&[SECRET_FILL; SECRET_MAX][..bytes]),
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

#[cfg(test)]
mod tests;
