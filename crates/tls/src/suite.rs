//! Versions, cipher suites, groups and efforts that the lean client speaks, with the names people type.

use std::fmt;
use std::str::FromStr;

use crate::named;
pub use crate::names::UnknownName;

named! {
    /// A TLS protocol version.
    pub enum Version: "TLS version" {
        /// TLS 1.2, RFC 5246.
        Tls12 = "1.2" | "TLSv1.2",
        /// TLS 1.3, RFC 9846.
        Tls13 = "1.3" | "TLSv1.3",
    }
}

/// The hash of a suite's transcript and key derivation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
}

/// How a TLS 1.2 suite agrees on its pre-master secret and authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyExchange {
    /// TLS 1.3: group and signature are negotiated apart from the suite.
    Tls13,
    /// Ephemeral ECDH signed with an ECDSA certificate.
    EcdheEcdsa,
    /// Ephemeral ECDH signed with an RSA certificate.
    EcdheRsa,
    /// Pre-master secret encrypted to the RSA certificate.
    Rsa,
}

/// The algorithm that protects the records of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protection {
    /// AES-128-GCM.
    Aes128Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
    /// AES-128-CBC with HMAC-SHA1.
    Aes128CbcSha,
    /// AES-256-CBC with HMAC-SHA1.
    Aes256CbcSha,
    /// AES-128-CBC with HMAC-SHA256.
    Aes128CbcSha256,
    /// AES-256-CBC with HMAC-SHA256.
    Aes256CbcSha256,
}

macro_rules! suites {
    ($($variant:ident = $code:literal, $exchange:ident, $protection:ident, $hash:ident,
        $iana:literal, $openssl:literal;)*) => {
        /// A cipher suite, by its code point in the IANA registry.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types)]
        pub enum Suite { $(#[doc = $iana] $variant,)* }

        impl Suite {
            /// Every suite of the client, strongest preference first.
            pub const ALL: &[Suite] = &[$(Suite::$variant,)*];
            /// The code point on the wire.
            pub const fn code(self) -> u16 { match self { $(Suite::$variant => $code,)* } }
            /// The IANA name.
            pub const fn name(self) -> &'static str { match self { $(Suite::$variant => $iana,)* } }
            /// OpenSSL's name.
            pub const fn openssl_name(self) -> &'static str { match self { $(Suite::$variant => $openssl,)* } }
            /// Key exchange and authentication of the suite.
            pub const fn key_exchange(self) -> KeyExchange {
                match self { $(Suite::$variant => KeyExchange::$exchange,)* }
            }
            /// Record protection of the suite.
            pub const fn protection(self) -> Protection {
                match self { $(Suite::$variant => Protection::$protection,)* }
            }
            /// Hash of transcript and key derivation (TLS 1.2 CBC suites: PRF with SHA-256, RFC 5246 section 5).
            pub const fn hash(self) -> Hash { match self { $(Suite::$variant => Hash::$hash,)* } }
        }
    };
}

suites! {
    Tls13Aes128Gcm = 0x1301, Tls13, Aes128Gcm, Sha256,
        "TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256";
    Tls13Aes256Gcm = 0x1302, Tls13, Aes256Gcm, Sha384,
        "TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384";
    Tls13ChaCha20 = 0x1303, Tls13, ChaCha20Poly1305, Sha256,
        "TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256";
    EcdheEcdsaAes128Gcm = 0xc02b, EcdheEcdsa, Aes128Gcm, Sha256,
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256";
    EcdheRsaAes128Gcm = 0xc02f, EcdheRsa, Aes128Gcm, Sha256,
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256";
    EcdheEcdsaAes256Gcm = 0xc02c, EcdheEcdsa, Aes256Gcm, Sha384,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384";
    EcdheRsaAes256Gcm = 0xc030, EcdheRsa, Aes256Gcm, Sha384,
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384";
    EcdheEcdsaChaCha20 = 0xcca9, EcdheEcdsa, ChaCha20Poly1305, Sha256,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305";
    EcdheRsaChaCha20 = 0xcca8, EcdheRsa, ChaCha20Poly1305, Sha256,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305";
    EcdheEcdsaAes128Sha = 0xc009, EcdheEcdsa, Aes128CbcSha, Sha256,
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "ECDHE-ECDSA-AES128-SHA";
    EcdheRsaAes128Sha = 0xc013, EcdheRsa, Aes128CbcSha, Sha256,
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA";
    EcdheEcdsaAes256Sha = 0xc00a, EcdheEcdsa, Aes256CbcSha, Sha256,
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "ECDHE-ECDSA-AES256-SHA";
    EcdheRsaAes256Sha = 0xc014, EcdheRsa, Aes256CbcSha, Sha256,
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "ECDHE-RSA-AES256-SHA";
    EcdheEcdsaAes128Sha256 = 0xc023, EcdheEcdsa, Aes128CbcSha256, Sha256,
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256";
    EcdheRsaAes128Sha256 = 0xc027, EcdheRsa, Aes128CbcSha256, Sha256,
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256";
    RsaAes128Gcm = 0x009c, Rsa, Aes128Gcm, Sha256,
        "TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256";
    RsaAes256Gcm = 0x009d, Rsa, Aes256Gcm, Sha384,
        "TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384";
    RsaAes128Sha = 0x002f, Rsa, Aes128CbcSha, Sha256,
        "TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA";
    RsaAes256Sha = 0x0035, Rsa, Aes256CbcSha, Sha256,
        "TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA";
    RsaAes128Sha256 = 0x003c, Rsa, Aes128CbcSha256, Sha256,
        "TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256";
    RsaAes256Sha256 = 0x003d, Rsa, Aes256CbcSha256, Sha256,
        "TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256";
}

impl Suite {
    /// The suite with this code point, if the client speaks it.
    pub fn from_code(code: u16) -> Option<Suite> {
        Suite::ALL.iter().copied().find(|suite| suite.code() == code)
    }

    /// The protocol version the suite belongs to.
    pub const fn version(self) -> Version {
        match self.key_exchange() {
            KeyExchange::Tls13 => Version::Tls13,
            _ => Version::Tls12,
        }
    }
}

impl FromStr for Suite {
    type Err = UnknownName;

    /// Accepts IANA and OpenSSL names, in any case.
    fn from_str(name: &str) -> Result<Suite, UnknownName> {
        Suite::ALL
            .iter()
            .copied()
            .find(|suite| suite.name().eq_ignore_ascii_case(name) || suite.openssl_name().eq_ignore_ascii_case(name))
            .ok_or_else(|| UnknownName {
                what: "cipher suite",
                name: name.to_owned(),
                known: Suite::ALL.iter().map(|suite| suite.openssl_name()).collect::<Vec<_>>().join(", "),
            })
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.openssl_name())
    }
}

crate::serde_by_name!(Suite);

impl Version {
    /// The code point on the wire.
    pub const fn code(self) -> u16 {
        match self {
            Version::Tls12 => 0x0303,
            Version::Tls13 => 0x0304,
        }
    }
}

named! {
    /// A key-agreement group: post-quantum hybrids first, then curves alone, each strongest preference first.
    pub enum Group: "group" {
        /// X25519 with ML-KEM-768, draft-ietf-tls-ecdhe-mlkem; TLS 1.3 only, as every hybrid.
        X25519MlKem768 = "X25519MLKEM768",
        /// NIST P-256 with ML-KEM-768, the same draft.
        P256MlKem768 = "SecP256r1MLKEM768",
        /// NIST P-384 with ML-KEM-1024, the same draft.
        P384MlKem1024 = "SecP384r1MLKEM1024",
        /// X25519, RFC 7748.
        X25519 = "X25519",
        /// NIST P-256.
        P256 = "P-256" | "secp256r1" | "prime256v1",
        /// NIST P-384.
        P384 = "P-384" | "secp384r1",
        /// NIST P-521, for who asks for it: a server that prefers its own order would take it, as of few clients.
        P521 = "P-521" | "secp521r1",
    }
}

impl Group {
    /// The curves, strongest preference first: what is offered where nobody names groups.
    ///
    /// Hybrids are for those who ask for them. A hybrid's hello has 1.2 KB more and its key costs the client a third of
    /// a lean handshake, also at servers that cannot answer it (those of OpenSSL before 3.5), so that a default with
    /// them would change every figure that was measured without.
    pub const CURVES: [Group; 3] = [Group::X25519, Group::P256, Group::P384];

    /// The code point in the IANA registry "TLS Supported Groups".
    pub const fn code(self) -> u16 {
        match self {
            Group::X25519MlKem768 => 0x11ec,
            Group::P256MlKem768 => 0x11eb,
            Group::P384MlKem1024 => 0x11ed,
            Group::X25519 => 29,
            Group::P256 => 23,
            Group::P384 => 24,
            Group::P521 => 25,
        }
    }

    /// Whether the group joins ML-KEM to a curve. TLS 1.2 has no such groups.
    pub const fn is_hybrid(self) -> bool {
        matches!(self, Group::X25519MlKem768 | Group::P256MlKem768 | Group::P384MlKem1024)
    }
}

named! {
    /// How much the client does (`docs/BIAS.md`, "The client"). Finished and record integrity are verified at every
    /// effort.
    #[derive(Default)]
    pub enum Effort: "effort" {
        /// Verifies certificates, name and signatures; proper key shares.
        #[default]
        Honest = "honest",
        /// Does not verify certificates and signatures.
        Lean = "lean",
        /// As lean, and a key share without secret (the group's base point): own servers only.
        Floor = "floor",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_round_trip() {
        for suite in Suite::ALL.iter().copied() {
            assert_eq!(suite.name().parse(), Ok(suite));
            assert_eq!(suite.openssl_name().to_lowercase().parse(), Ok(suite));
            assert_eq!(Suite::from_code(suite.code()), Some(suite));
        }
        for group in Group::ALL {
            assert_eq!(group.to_string().parse(), Ok(group));
        }
        assert_eq!("TLSv1.3".parse(), Ok(Version::Tls13));
        assert_eq!("prime256v1".parse(), Ok(Group::P256));
        assert!("RC4-MD5".parse::<Suite>().unwrap_err().to_string().contains("AES128-SHA"));
    }
}
