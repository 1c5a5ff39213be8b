//! The kind of certificate that a server has.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tlsdyno_tls::suite::UnknownName;

/// Kind and size of a server's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CertificateKind {
    /// RSA, 2048 bits.
    #[serde(rename = "rsa-2048")]
    Rsa2048,
    /// RSA, 3072 bits.
    #[serde(rename = "rsa-3072")]
    Rsa3072,
    /// RSA, 4096 bits.
    #[serde(rename = "rsa-4096")]
    Rsa4096,
    /// ECDSA on P-256.
    #[serde(rename = "p-256")]
    P256,
    /// ECDSA on P-384.
    #[serde(rename = "p-384")]
    P384,
}

impl CertificateKind {
    /// Every kind.
    pub const ALL: [CertificateKind; 5] = [
        CertificateKind::Rsa2048,
        CertificateKind::Rsa3072,
        CertificateKind::Rsa4096,
        CertificateKind::P256,
        CertificateKind::P384,
    ];

    /// The name people type.
    pub const fn name(self) -> &'static str {
        match self {
            CertificateKind::Rsa2048 => "rsa-2048",
            CertificateKind::Rsa3072 => "rsa-3072",
            CertificateKind::Rsa4096 => "rsa-4096",
            CertificateKind::P256 => "p-256",
            CertificateKind::P384 => "p-384",
        }
    }

    /// Whether the key is RSA: static RSA and ECDHE-RSA suites need that, ECDHE-ECDSA suites the opposite.
    pub const fn is_rsa(self) -> bool {
        !matches!(self, CertificateKind::P256 | CertificateKind::P384)
    }
}

impl fmt::Display for CertificateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CertificateKind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<CertificateKind, UnknownName> {
        CertificateKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            UnknownName {
                what: "certificate",
                name: name.to_owned(),
                known: CertificateKind::ALL.map(CertificateKind::name).join(", "),
            }
        })
    }
}
