//! The kind of certificate that a server has.

use tlsdyno_tls::{Group, named};

named! {
    /// Kind and size of a server's key.
    pub enum CertificateKind: "certificate" {
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
        matches!(self, CertificateKind::Rsa2048 | CertificateKind::Rsa3072 | CertificateKind::Rsa4096)
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
