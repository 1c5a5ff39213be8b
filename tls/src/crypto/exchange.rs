//! Key agreement: (EC)DH shares and secrets (RFC 7748, RFC 8422, RFC 9846 section 7.4) and the RSA encryption of the
//! TLS 1.2 pre-master secret (RFC 5246 section 7.4.7.1).

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::rsa::{Pkcs1PublicEncryptingKey, PublicEncryptingKey};

use super::CryptoError;
use super::verify::{KeyKind, PublicKey};
use crate::noop::{SECRET_FILL, Stage, StageSet};
use crate::suite::{Effort, Group};

/// A shared secret, held inline.
#[derive(Clone, Copy)]
pub struct Secret {
    bytes: [u8; 48],
    length: u8,
}

impl Secret {
    /// The bytes: 32 for X25519 and P-256, 48 for P-384.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }

    fn copy_of(bytes: &[u8]) -> Secret {
        let mut secret = Secret { bytes: [0; 48], length: bytes.len() as u8 };
        secret.bytes[..bytes.len()].copy_from_slice(bytes);
        secret
    }
}

impl Group {
    /// Length of a share on the wire in bytes: a u coordinate, or an uncompressed point.
    pub const fn share_bytes(self) -> usize {
        match self {
            Group::X25519 => 32,
            Group::P256 => 65,
            Group::P384 => 97,
        }
    }

    /// Length of the shared secret in bytes.
    pub const fn secret_bytes(self) -> usize {
        match self {
            Group::X25519 | Group::P256 => 32,
            Group::P384 => 48,
        }
    }

    fn algorithm(self) -> &'static agreement::Algorithm {
        match self {
            Group::X25519 => &agreement::X25519,
            Group::P256 => &agreement::ECDH_P256,
            Group::P384 => &agreement::ECDH_P384,
        }
    }

    /// The group's base point as a share: the public key of the scalar 1.
    fn base_point(self) -> &'static [u8] {
        match self {
            Group::X25519 => &X25519_BASE,
            Group::P256 => &P256_BASE,
            Group::P384 => &P384_BASE,
        }
    }
}

/// The client's half of one key agreement.
pub struct KeyShare {
    group: Group,
    half: Half,
}

enum Half {
    /// A real key pair.
    Pair { private: Box<PrivateKey>, public: [u8; 97] },
    /// The base point: the secret is the peer's share itself (effort floor).
    Base,
    /// The base point, and a constant secret (stage `key_agreement` off).
    Constant,
}

impl KeyShare {
    /// A share for `group`: a fresh key pair, or at [`Effort::Floor`] and with stage `key_agreement` off the base
    /// point.
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
        public[..group.share_bytes()].copy_from_slice(point.as_ref());
        KeyShare { group, half: Half::Pair { private: Box::new(private), public } }
    }

    /// The group of the share.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The share as sent: 32 bytes (X25519) or an uncompressed point.
    pub fn public(&self) -> &[u8] {
        match &self.half {
            Half::Pair { public, .. } => &public[..self.group.share_bytes()],
            Half::Base | Half::Constant => self.group.base_point(),
        }
    }

    /// The secret shared with the holder of `peer`.
    ///
    /// # Errors
    /// [`CryptoError::BadKeyShare`] if `peer` is not a share of this group. With the base point only its form is
    /// checked, not that it is on the curve: nothing secret depends on it.
    pub fn agree(&self, peer: &[u8]) -> Result<Secret, CryptoError> {
        let refused = CryptoError::BadKeyShare(self.group);
        let uncompressed = self.group == Group::X25519 || peer.first() == Some(&4);
        if peer.len() != self.group.share_bytes() || !uncompressed {
            return Err(refused);
        }
        match &self.half {
            Half::Constant => Ok(Secret { bytes: [SECRET_FILL; 48], length: self.group.secret_bytes() as u8 }),
            Half::Base if self.group == Group::X25519 => Ok(Secret::copy_of(peer)),
            Half::Base => Ok(Secret::copy_of(&peer[1..=self.group.secret_bytes()])),
            Half::Pair { private, .. } => {
                let peer = UnparsedPublicKey::new(self.group.algorithm(), peer);
                agreement::agree(private, peer, refused, |secret| Ok(Secret::copy_of(secret)))
            }
        }
    }
}

/// Largest RSA modulus that aws-lc-rs encrypts to, in bytes.
const MODULUS_MAX: usize = 8192 / 8;

/// Encrypts the pre-master secret to the RSA key of the server's certificate with PKCS#1 v1.5; with stage
/// `authentication` off writes the no-op form instead: its length in 2 bytes, the secret in clear, zeros up to the
/// modulus size.
///
/// # Errors
/// [`CryptoError::UnsuitableKey`] if the key is not RSA, or smaller than 2048 or larger than 8192 bits (aws-lc-rs's
/// limits; with the stage off a smaller key will do),
/// [`CryptoError::MalformedCertificate`] if it cannot be read.
pub fn rsa_encrypt_premaster(spki_der: &[u8], premaster: &[u8; 48], off: StageSet) -> Result<Vec<u8>, CryptoError> {
    let KeyKind::Rsa { modulus_bytes } = PublicKey::from_spki(spki_der)?.kind else {
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
    let refused = CryptoError::UnsuitableKey("the RSA key is smaller than 2048 or larger than 8192 bits, or malformed");
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
mod tests {
    use openssl::pkey::PKey;
    use openssl::rsa::{Padding, Rsa};

    use super::*;

    const ON: StageSet = StageSet::NONE;

    #[test]
    fn two_honest_ends_agree_and_bad_shares_are_refused() {
        for group in Group::ALL {
            let [client, server] = [Effort::Honest, Effort::Lean].map(|effort| KeyShare::generate(group, effort, ON));
            assert_ne!(client.public(), server.public());
            let secret = client.agree(server.public()).unwrap();
            assert_eq!(secret.as_slice(), server.agree(client.public()).unwrap().as_slice());
            assert_eq!(secret.as_slice().len(), group.secret_bytes());

            let refused = CryptoError::BadKeyShare(group);
            let mut off_curve = server.public().to_vec();
            *off_curve.last_mut().unwrap() ^= 1;
            let refuses = |share: &[u8]| assert_eq!(client.agree(share).err(), Some(refused.clone()));
            refuses(&server.public()[1..]);
            refuses(&[]);
            refuses(&vec![0; group.share_bytes()]);
            if group != Group::X25519 {
                refuses(&off_curve);
                let mut compressed = server.public()[..=group.secret_bytes()].to_vec();
                compressed[0] = 2;
                refuses(&compressed);
            }
        }
    }

    /// At floor effort the honest server's secret is its own share: that is what "scalar 1" means.
    #[test]
    fn the_base_point_is_a_share_whose_secret_is_the_peers_share() {
        for group in Group::ALL {
            let floor = KeyShare::generate(group, Effort::Floor, ON);
            assert_eq!(floor.public().len(), group.share_bytes());
            let server = KeyShare::generate(group, Effort::Honest, ON);
            let secret = floor.agree(server.public()).unwrap();
            assert_eq!(server.agree(floor.public()).unwrap().as_slice(), secret.as_slice());
            assert_eq!(floor.agree(&server.public()[1..]).err(), Some(CryptoError::BadKeyShare(group)));
        }
    }

    #[test]
    fn stage_off_sends_the_base_point_and_gives_the_constant() {
        for group in Group::ALL {
            for effort in [Effort::Honest, Effort::Floor] {
                let off = KeyShare::generate(group, effort, ON.with(Stage::KeyAgreement));
                assert_eq!(off.public(), group.base_point());
                let secret = off.agree(group.base_point()).unwrap();
                assert_eq!(secret.as_slice(), vec![SECRET_FILL; group.secret_bytes()]);
            }
        }
    }

    #[test]
    fn openssl_decrypts_the_premaster_secret() {
        let premaster = std::array::from_fn(|index| index as u8);
        let rsa = Rsa::generate(2048).unwrap();
        let spki = PKey::from_rsa(rsa.clone()).unwrap().public_key_to_der().unwrap();
        let encrypted = rsa_encrypt_premaster(&spki, &premaster, ON).unwrap();
        let mut decrypted = vec![0; 256];
        let length = rsa.private_decrypt(&encrypted, &mut decrypted, Padding::PKCS1).unwrap();
        assert_eq!(decrypted[..length], premaster);

        let noop = rsa_encrypt_premaster(&spki, &premaster, ON.with(Stage::Authentication)).unwrap();
        assert_eq!(noop.len(), 256);
        assert_eq!((&noop[..2], &noop[2..50], &noop[50..]), (&[0, 48][..], &premaster[..], &[0; 206][..]));
    }

    /// Whatever a server's certificate says: there is an error and no message that could not be built.
    #[test]
    fn oversized_moduli_are_refused_with_the_stage_on_and_off() {
        use openssl::bn::BigNum;
        for (bits, fits) in [(8192, true), (8200, false), (8 * 65536, false)] {
            let mut modulus = BigNum::new().unwrap();
            modulus.set_bit(bits - 1).unwrap();
            modulus.set_bit(0).unwrap();
            let rsa = Rsa::from_public_components(modulus, BigNum::from_u32(65537).unwrap()).unwrap();
            let spki = PKey::from_rsa(rsa).unwrap().public_key_to_der().unwrap();
            let off = rsa_encrypt_premaster(&spki, &[1; 48], ON.with(Stage::Authentication));
            assert_eq!(off.is_ok(), fits, "{bits} bits: {off:?}");
            if !fits {
                let on = rsa_encrypt_premaster(&spki, &[1; 48], ON);
                assert!(matches!(on, Err(CryptoError::UnsuitableKey(_))), "{bits} bits: {on:?}");
            }
        }
    }

    #[test]
    fn only_an_rsa_key_encrypts() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let fault =
            rsa_encrypt_premaster(&rcgen::PublicKeyData::subject_public_key_info(&key), &[0; 48], ON).unwrap_err();
        assert!(matches!(fault, CryptoError::UnsuitableKey(_)), "{fault}");
        assert!(matches!(rsa_encrypt_premaster(b"not DER", &[0; 48], ON), Err(CryptoError::MalformedCertificate(_))));
    }
}
