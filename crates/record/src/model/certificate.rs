//! The kind of certificate that a server has.

use tlsdyno_tls::crypto::verify::{Certificate, KeyKind};
use tlsdyno_tls::{Group, Signer, named};

named! {
    /// Kind and size of a server's key.
    pub enum CertificateKind: "certificate" {
        /// RSA, 512 bits, as the next two the papers' sizes: TLS 1.2, on loopback only.
        Rsa512 = "rsa-512",
        /// RSA, 768 bits.
        Rsa768 = "rsa-768",
        /// RSA, 1024 bits.
        Rsa1024 = "rsa-1024",
        /// RSA, 2048 bits.
        Rsa2048 = "rsa-2048",
        /// RSA, 3072 bits.
        Rsa3072 = "rsa-3072",
        /// RSA, 4096 bits.
        Rsa4096 = "rsa-4096",
        /// ECDSA on P-256.
        P256 = "p-256",
        /// ECDSA on P-384.
        P384 = "p-384",
        /// Ed25519.
        Ed25519 = "ed25519",
        /// ML-DSA-44, post-quantum (FIPS 204), as the next two: TLS 1.3 and OpenSSL 3.5 or later.
        MlDsa44 = "ml-dsa-44",
        /// ML-DSA-65.
        MlDsa65 = "ml-dsa-65",
        /// ML-DSA-87.
        MlDsa87 = "ml-dsa-87",
    }
}

impl CertificateKind {
    /// Whether the key is RSA: static RSA and ECDHE-RSA suites need that, ECDHE-ECDSA suites the opposite, to which
    /// Ed25519 belongs.
    pub const fn is_rsa(self) -> bool {
        self.rsa_bits().is_some()
    }

    /// Bits of an RSA key's modulus.
    pub const fn rsa_bits(self) -> Option<u32> {
        match self {
            CertificateKind::Rsa512 => Some(512),
            CertificateKind::Rsa768 => Some(768),
            CertificateKind::Rsa1024 => Some(1024),
            CertificateKind::Rsa2048 => Some(2048),
            CertificateKind::Rsa3072 => Some(3072),
            CertificateKind::Rsa4096 => Some(4096),
            _ => None,
        }
    }

    /// Whether it is an RSA key that protects nothing any more, and that OpenSSL has at security level 0 only.
    pub const fn is_small_rsa(self) -> bool {
        matches!(self, CertificateKind::Rsa512 | CertificateKind::Rsa768 | CertificateKind::Rsa1024)
    }

    /// The kind of a certificate (DER); `None`: a kind that is not in this list.
    pub fn of_certificate(der: &[u8]) -> Option<CertificateKind> {
        match Certificate::from_der(der).ok()?.public_key.kind {
            KeyKind::Rsa { modulus_bytes } => {
                CertificateKind::ALL.into_iter().find(|kind| kind.rsa_bits() == Some(8 * modulus_bytes as u32))
            }
            KeyKind::P256 => Some(CertificateKind::P256),
            KeyKind::P384 => Some(CertificateKind::P384),
            KeyKind::Ed25519 => Some(CertificateKind::Ed25519),
            KeyKind::MlDsa44 => Some(CertificateKind::MlDsa44),
            KeyKind::MlDsa65 => Some(CertificateKind::MlDsa65),
            KeyKind::MlDsa87 => Some(CertificateKind::MlDsa87),
            KeyKind::P521 | KeyKind::Other => None,
        }
    }

    /// How a client that takes this kind says so; `None`: the key is neither RSA nor ECDSA.
    pub fn signer(self) -> Option<Signer> {
        let ecdsa = self.curve().map(|_| Signer::Ecdsa);
        if self.is_rsa() { Some(Signer::Rsa) } else { ecdsa }
    }

    /// Whether the key is post-quantum.
    pub const fn is_post_quantum(self) -> bool {
        matches!(self, CertificateKind::MlDsa44 | CertificateKind::MlDsa65 | CertificateKind::MlDsa87)
    }

    /// The curve of an ECDSA key.
    pub const fn curve(self) -> Option<Group> {
        match self {
            CertificateKind::P256 => Some(Group::P256),
            CertificateKind::P384 => Some(Group::P384),
            _ => None,
        }
    }
}
