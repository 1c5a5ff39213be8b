//! RSA with keys below 2048 bits, as the papers of 1998 to 2006 have them, by the system's OpenSSL: aws-lc-rs takes
//! none. For servers of experiments only ([`crate::Settings::small_rsa_keys`]).

use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Public};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Verifier};

use super::CryptoError;
use super::verify::{PKCS1_SHA256, PKCS1_SHA384, PKCS1_SHA512, PSS_SHA256, PSS_SHA384, PSS_SHA512};

/// The smallest modulus that is not small, in bytes.
const USUAL_BYTES: usize = 2048 / 8;

/// Whether a modulus of so many bytes makes a small key, and whether one may be used.
///
/// # Errors
/// [`CryptoError::SmallRsaKey`] if it is one and may not.
pub(super) fn is_small(modulus_bytes: usize, allowed: bool) -> Result<bool, CryptoError> {
    let small = modulus_bytes < USUAL_BYTES;
    if small && !allowed { Err(CryptoError::SmallRsaKey { bits: modulus_bytes * 8 }) } else { Ok(small) }
}

/// Encrypts with PKCS#1 v1.5. `key`: an RSAPublicKey (RFC 8017 appendix A.1.1).
///
/// # Errors
/// [`CryptoError::UnsuitableKey`] if the secret does not fit or the key is none.
pub(super) fn encrypt(key: &[u8], secret: &[u8], encrypted: &mut [u8]) -> Result<(), CryptoError> {
    let key = Rsa::public_key_from_der_pkcs1(key);
    let written = key.and_then(|key| key.public_encrypt(secret, encrypted, Padding::PKCS1));
    written.map(drop).map_err(|_| CryptoError::UnsuitableKey("the RSA key is malformed, or too small for the secret"))
}

/// A key ready for signatures of one scheme.
#[derive(Debug)]
pub(super) struct Key {
    key: PKey<Public>,
    scheme: u16,
}

impl Key {
    /// `key`: an RSAPublicKey. `None`: it is none.
    pub(super) fn new(key: &[u8], scheme: u16) -> Option<Key> {
        let key = PKey::from_rsa(Rsa::public_key_from_der_pkcs1(key).ok()?).ok()?;
        Some(Key { key, scheme })
    }

    /// Whether this is the message's signature, which has the length of the modulus (RFC 8017 sections 8.1.2, 8.2.2):
    /// OpenSSL takes one of PSS without its leading zero, too.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        if signature.len() != self.key.size() {
            return false;
        }
        let digest = match self.scheme {
            PKCS1_SHA256 | PSS_SHA256 => MessageDigest::sha256(),
            PKCS1_SHA384 | PSS_SHA384 => MessageDigest::sha384(),
            PKCS1_SHA512 | PSS_SHA512 => MessageDigest::sha512(),
            _ => return false,
        };
        let verify = || {
            let mut verifier = Verifier::new(digest, &self.key)?;
            if matches!(self.scheme, PSS_SHA256 | PSS_SHA384 | PSS_SHA512) {
                verifier.set_rsa_padding(Padding::PKCS1_PSS)?;
                verifier.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)?;
            }
            verifier.verify_oneshot(signature, message)
        };
        // An error is a signature that cannot be one, of the wrong length for example.
        verify().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use openssl::sign::Signer;
    use rcgen::{CertificateParams, PublicKeyData, SignatureAlgorithm};

    use super::*;
    use crate::crypto::exchange::rsa_encrypt_premaster;
    use crate::noop::{Stage, StageSet};

    const ON: StageSet = StageSet::NONE;

    struct PublicRsa(Vec<u8>);

    impl PublicKeyData for PublicRsa {
        fn der_bytes(&self) -> &[u8] {
            &self.0
        }

        fn algorithm(&self) -> &'static SignatureAlgorithm {
            &rcgen::PKCS_RSA_SHA256
        }
    }

    #[test]
    fn openssl_decrypts_what_small_keys_encrypt() {
        let premaster = std::array::from_fn(|index| index as u8);
        for bits in [512, 768, 1024] {
            let rsa = Rsa::generate(bits).unwrap();
            let spki = PKey::from_rsa(rsa.clone()).unwrap().public_key_to_der().unwrap();
            let refused = rsa_encrypt_premaster(&spki, &premaster, ON, false).unwrap_err();
            assert_eq!(refused, CryptoError::SmallRsaKey { bits: bits as usize });
            let encrypted = rsa_encrypt_premaster(&spki, &premaster, ON, true).unwrap();
            let mut decrypted = vec![0; bits as usize / 8];
            let length = rsa.private_decrypt(&encrypted, &mut decrypted, Padding::PKCS1).unwrap();
            assert_eq!(decrypted[..length], premaster);
            // A server with the stage off is one of ours.
            let off = rsa_encrypt_premaster(&spki, &premaster, ON.with(Stage::Authentication), false).unwrap();
            assert_eq!((off.len(), &off[2..50]), (bits as usize / 8, &premaster[..]));
        }
        let tiny = PKey::from_rsa(Rsa::from_public_components(odd(384), odd(17)).unwrap()).unwrap();
        let fault = rsa_encrypt_premaster(&tiny.public_key_to_der().unwrap(), &premaster, ON, true).unwrap_err();
        assert!(matches!(fault, CryptoError::UnsuitableKey(_)), "48 bytes and padding need 59: {fault}");
    }

    fn odd(bits: i32) -> openssl::bn::BigNum {
        let mut number = openssl::bn::BigNum::new().unwrap();
        number.set_bit(bits - 1).unwrap();
        number.set_bit(0).unwrap();
        number
    }

    #[test]
    fn signatures_of_small_keys_are_verified_where_they_are_allowed() {
        let rsa = Rsa::generate(1024).unwrap();
        let leaf = PublicRsa(rsa.public_key_to_der_pkcs1().unwrap());
        let root = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let issuer = rcgen::Issuer::new(CertificateParams::default(), root);
        let certificate = CertificateParams::new(vec!["x".to_owned()]).unwrap().signed_by(&leaf, &issuer).unwrap();
        let key = PKey::from_rsa(rsa).unwrap();
        for (scheme, digest) in [(PKCS1_SHA256, MessageDigest::sha256()), (PSS_SHA384, MessageDigest::sha384())] {
            let sign = |message: [u8; 2]| {
                let mut signer = Signer::new(digest, &key).unwrap();
                if scheme == PSS_SHA384 {
                    signer.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
                    signer.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH).unwrap();
                }
                (message, signer.sign_oneshot_to_vec(&message).unwrap())
            };
            // One signature in 256 begins with a zero: it is none without it.
            let mut signed = (0..u16::MAX).map(|number| sign(number.to_be_bytes()));
            let (message, signature) = signed.find(|(_, signature)| signature[0] == 0).unwrap();
            let new = |allowed| crate::crypto::verify::Verifier::new(certificate.der(), scheme, allowed);
            assert_eq!(new(false).unwrap_err(), CryptoError::SmallRsaKey { bits: 1024 });
            let verifier = new(true).unwrap();
            assert_eq!(verifier.verify(&message, &signature), Ok(()));
            assert_eq!(verifier.verify(b"another", &signature), Err(CryptoError::BadSignature));
            assert_eq!(verifier.verify(&message, &signature[1..]), Err(CryptoError::BadSignature));
        }
    }
}
