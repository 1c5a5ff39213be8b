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
    }
}

impl CertificateKind {
    /// Whether the key is RSA: static RSA and ECDHE-RSA suites need that, ECDHE-ECDSA suites the opposite.
    pub const fn is_rsa(self) -> bool {
        self.curve().is_none()
    }

    /// The curve of an ECDSA key.
    pub const fn curve(self) -> Option<Group> {
        match self {
            CertificateKind::P256 => Some(Group::P256),
            CertificateKind::P384 => Some(Group::P384),
            CertificateKind::Rsa2048 | CertificateKind::Rsa3072 | CertificateKind::Rsa4096 => None,
        }
    }
}
