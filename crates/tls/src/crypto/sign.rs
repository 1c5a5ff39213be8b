//! The client's own certificate, and its handshake signatures (RFC 9846 section 4.4.3, RFC 5246 section 7.4.8).

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair as RsaKeyPair;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding,
};

use super::CryptoError;
use super::verify::{
    ECDSA_SHA256, ECDSA_SHA384, KeyKind, PKCS1_SHA256, PKCS1_SHA384, PKCS1_SHA512, PSS_SHA256, PSS_SHA384, PSS_SHA512,
    public_key, verify_signature,
};
use crate::noop::StageSet;
use crate::suite::Version;

/// A chain of certificates, the client's own first, with the private key of that one.
pub struct ClientCertificate {
    chain_der: Vec<Vec<u8>>,
    key: Key,
}

enum Key {
    Rsa(RsaKeyPair),
    /// With its only scheme.
    Ecdsa(EcdsaKeyPair, u16),
}

impl std::fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the key.
        write!(f, "ClientCertificate({} certificates)", self.chain_der.len())
    }
}

impl ClientCertificate {
    /// `chain_der`: the client's certificate, then its issuers. `key_der`: PKCS#8, PKCS#1 (RSA) or SEC 1 (ECDSA).
    ///
    /// # Errors
    /// [`CryptoError::MalformedCertificate`], [`CryptoError::UnsuitableKey`]: a certificate or key that cannot be
    /// read, a key that is neither RSA nor on P-256 or P-384, or that is not the certificate's.
    pub fn new(chain_der: Vec<Vec<u8>>, key_der: &[u8]) -> Result<ClientCertificate, CryptoError> {
        let own = chain_der.first().ok_or(CryptoError::MalformedCertificate("there is no client certificate"))?;
        let unreadable = CryptoError::UnsuitableKey("the client's private key cannot be read, or is of another kind");
        let ecdsa = |algorithm, scheme| {
            EcdsaKeyPair::from_private_key_der(algorithm, key_der).map(|key| Key::Ecdsa(key, scheme))
        };
        let key = match public_key(own)?.kind {
            KeyKind::Rsa { .. } => {
                RsaKeyPair::from_pkcs8(key_der).or_else(|_| RsaKeyPair::from_der(key_der)).map(Key::Rsa)
            }
            KeyKind::P256 => ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_SHA256),
            KeyKind::P384 => ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_SHA384),
            KeyKind::P521
            | KeyKind::Ed25519
            | KeyKind::MlDsa44
            | KeyKind::MlDsa65
            | KeyKind::MlDsa87
            | KeyKind::Other => {
                return Err(CryptoError::UnsuitableKey("a client certificate has an RSA, P-256 or P-384 key here"));
            }
        };
        let certificate = ClientCertificate { key: key.map_err(|_| unreadable)?, chain_der };
        let (scheme, probe) = (certificate.schemes()[0], b"whose key is this");
        let signature = certificate.sign(scheme, probe)?;
        verify_signature(&certificate.chain_der[0], scheme, probe, &signature, StageSet::NONE)
            .map_err(|_| CryptoError::UnsuitableKey("the private key does not belong to the client's certificate"))?;
        Ok(certificate)
    }

    /// The chain, the client's own certificate first.
    pub fn chain_der(&self) -> &[Vec<u8>] {
        &self.chain_der
    }

    fn schemes(&self) -> &[u16] {
        match &self.key {
            Key::Rsa(_) => &[PSS_SHA256, PSS_SHA384, PSS_SHA512, PKCS1_SHA256, PKCS1_SHA384, PKCS1_SHA512],
            Key::Ecdsa(_, scheme) => std::slice::from_ref(scheme),
        }
    }

    /// The scheme to sign with for a server that takes `offered`, as on the wire. PKCS#1 signatures are for TLS 1.2
    /// only. `None`: there is none in common.
    pub fn scheme(&self, version: Version, offered: &[u8]) -> Option<u16> {
        let (pairs, _) = offered.as_chunks::<2>();
        let offers = |scheme: &u16| pairs.iter().any(|pair| u16::from_be_bytes(*pair) == *scheme);
        let allowed =
            |scheme: &u16| version == Version::Tls12 || *scheme >> 8 == 0x08 || matches!(self.key, Key::Ecdsa(..));
        self.schemes().iter().copied().find(|scheme| offers(scheme) && allowed(scheme))
    }

    /// Signs a message.
    ///
    /// # Errors
    /// [`CryptoError::UnsuitableKey`]: the key is too short for the scheme.
    pub fn sign(&self, scheme: u16, message: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let too_short = |_| CryptoError::UnsuitableKey("the client's key is too short for the signature scheme");
        match &self.key {
            Key::Ecdsa(key, _) => {
                key.sign(&SystemRandom::new(), message).map(|signature| signature.as_ref().to_vec()).map_err(too_short)
            }
            Key::Rsa(key) => {
                let encoding: &'static dyn RsaEncoding = match scheme {
                    PSS_SHA256 => &RSA_PSS_SHA256,
                    PSS_SHA384 => &RSA_PSS_SHA384,
                    PSS_SHA512 => &RSA_PSS_SHA512,
                    PKCS1_SHA256 => &RSA_PKCS1_SHA256,
                    PKCS1_SHA384 => &RSA_PKCS1_SHA384,
                    PKCS1_SHA512 => &RSA_PKCS1_SHA512,
                    other => return Err(CryptoError::UnsupportedScheme(other)),
                };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(encoding, &SystemRandom::new(), message, &mut signature).map_err(too_short)?;
                Ok(signature)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn self_signed(algorithm: &'static rcgen::SignatureAlgorithm) -> (Vec<u8>, KeyPair) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let der = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().der().to_vec();
        (der, key)
    }

    #[test]
    fn signatures_verify_under_every_scheme_of_the_key() {
        for algorithm in [&rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
            let (der, key) = self_signed(algorithm);
            let certificate = ClientCertificate::new(vec![der.clone()], key.serialized_der()).unwrap();
            for &scheme in certificate.schemes() {
                let signature = certificate.sign(scheme, b"message").unwrap();
                let verify = |message| verify_signature(&der, scheme, message, &signature, StageSet::NONE);
                assert_eq!((verify(b"message"), verify(b"another")), (Ok(()), Err(CryptoError::BadSignature)));
            }
        }
    }

    #[test]
    fn schemes_are_those_that_both_know_and_the_version_allows() {
        let (der, key) = self_signed(&rcgen::PKCS_RSA_SHA256);
        let certificate = ClientCertificate::new(vec![der], key.serialized_der()).unwrap();
        let (old, new) = ([0x04, 0x01, 0x04, 0x03], [0x04, 0x03, 0x04, 0x01, 0x08, 0x05]);
        assert_eq!(certificate.scheme(Version::Tls12, &old), Some(PKCS1_SHA256));
        assert_eq!(certificate.scheme(Version::Tls13, &old), None);
        assert_eq!(certificate.scheme(Version::Tls12, &new), Some(PSS_SHA384));
        assert_eq!(certificate.scheme(Version::Tls13, &new), Some(PSS_SHA384));
        let (der, key) = self_signed(&rcgen::PKCS_ECDSA_P256_SHA256);
        let certificate = ClientCertificate::new(vec![der], key.serialized_der()).unwrap();
        assert_eq!(certificate.scheme(Version::Tls13, &old), Some(ECDSA_SHA256));
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let (der, _) = self_signed(&rcgen::PKCS_ECDSA_P256_SHA256);
        for (algorithm, word) in
            [(&rcgen::PKCS_ECDSA_P256_SHA256, "does not belong"), (&rcgen::PKCS_RSA_SHA256, "cannot be read")]
        {
            let (_, other) = self_signed(algorithm);
            let fault = ClientCertificate::new(vec![der.clone()], other.serialized_der()).unwrap_err().to_string();
            assert!(fault.contains(word), "{fault}");
        }
        assert!(ClientCertificate::new(Vec::new(), &[]).is_err());
    }
}
