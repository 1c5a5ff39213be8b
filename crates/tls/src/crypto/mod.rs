//! The cryptographic primitives of the client, each with the client side of its no-op (docs/NOOP.md).
//!
//! Every function takes the set of stages that are off and then does, instead of the real work, what the contract puts
//! on the wire. Nothing here knows about handshake states or alerts: the state machine maps [`CryptoError`] onto those.

mod certificate;
pub mod exchange;
pub mod hash;
pub mod kdf;
mod kem;
pub mod protect;
pub mod sign;
mod small_rsa;
pub mod verify;

#[cfg(test)]
mod vectors;

use crate::suite::Group;

/// What a primitive refused, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// A record's tag, MAC or padding is wrong (RFC 9846 section 5.2, RFC 5246 section 6.2.3). One variant for all of
    /// them, on purpose.
    #[error("a record failed authentication (wrong tag, MAC or padding)")]
    BadRecordMac,
    /// A record is longer than the protocol allows (RFC 9846 section 5.2, RFC 5246 section 6.2.3).
    #[error("a record of {length} bytes is longer than the {limit} that the protocol allows")]
    RecordOverflow {
        /// Length of the record, bytes.
        length: usize,
        /// Maximum length, bytes.
        limit: usize,
    },
    /// A TLS 1.3 record of a type that is never protected, or without an inner content type (RFC 9846 section 5.4).
    #[error("a protected record has no valid content type")]
    NoContentType,
    /// The peer's key share is not a valid point of the group, or gives no secret (RFC 9846 section 4.2.8.2, RFC 7748
    /// section 6.1).
    #[error("the peer's {0} key share is invalid")]
    BadKeyShare(Group),
    /// The peer's key share has not the length of its group's shares (draft-ietf-tls-ecdhe-mlkem, RFC 9846 section
    /// 4.2.8.2).
    #[error("the peer's {group} key share has {length} bytes instead of {expected}")]
    KeyShareLength {
        /// The group of the share.
        group: Group,
        /// Length of the share, bytes.
        length: usize,
        /// Bytes of a share of this group.
        expected: usize,
    },
    /// A certificate or key that cannot be parsed.
    #[error("the certificate cannot be read: {0}")]
    MalformedCertificate(&'static str),
    /// The certificate's key does not fit what was negotiated.
    #[error("a certificate's key cannot be used: {0}")]
    UnsuitableKey(&'static str),
    /// An RSA key below 2048 bits that only servers of experiments may have.
    #[error(
        "the server's RSA key has {bits} bits, and keys below 2048 bits protect nothing: give the server a larger one, \
         or, for an experiment with a server on this machine, allow small ones (--small-rsa-keys) or do not verify it \
         (--effort lean)"
    )]
    SmallRsaKey {
        /// Bits of the modulus, in whole bytes.
        bits: usize,
    },
    /// The chain ends at nobody who is trusted.
    #[error(
        "the certificate was issued by an authority that is not trusted (give the authority's certificate as CA file)"
    )]
    UnknownIssuer,
    /// The server's certificate is issued by itself, and is not among those that are trusted.
    #[error("the certificate is self-signed, and is not itself among those that are trusted")]
    SelfSigned,
    /// A certificate of the chain has expired or is not valid yet.
    #[error("the certificate is outside its validity period: {0}")]
    CertificateExpired(String),
    /// The certificate is for other names.
    #[error("the certificate is not valid for the name `{asked}`, but for {}", names(presented))]
    NameMismatch {
        /// The name that it was to be valid for.
        asked: String,
        /// The first few names of hosts that it is valid for.
        presented: Vec<String>,
    },
    /// Any other fault of the chain.
    #[error("the certificate chain is not acceptable: {0}")]
    BadCertificate(String),
    /// A signature algorithm that the client does not speak, or that does not fit the certificate's key.
    #[error("signature scheme {0:#06x} is unknown or does not fit the certificate's key")]
    UnsupportedScheme(u16),
    /// A signature that does not verify, or is not the no-op's constant.
    #[error("a handshake signature is wrong")]
    BadSignature,
}

fn names(presented: &[String]) -> String {
    if presented.is_empty() { "no name of a host".to_owned() } else { presented.join(", ") }
}

/// Bytes of a hexadecimal test vector.
#[cfg(test)]
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let nibble = |digit: u8| (digit as char).to_digit(16).expect("a hexadecimal digit") as u8;
    digits.chunks(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect()
}
