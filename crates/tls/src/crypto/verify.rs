//! Certificate chains (through rustls-webpki) and handshake signatures (RFC 9846 section 4.4.3, RFC 5246 section
//! 7.4.3).

use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use rustls_pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

pub use super::certificate::{Certificate, KeyKind, PublicKey};
use super::{CryptoError, small_rsa};
use crate::noop::{SIGNATURE_FILL, Stage, StageSet};

/// The authorities that a client trusts, compiled.
pub struct Trust {
    anchors: Vec<TrustAnchor<'static>>,
    /// The certificates themselves: a server may present one of them as its own.
    certificates: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trust({} authorities)", self.anchors.len())
    }
}

impl Trust {
    /// Compiles DER certificates. One that cannot be read is left out, since the stores of operating systems contain
    /// such.
    ///
    /// # Errors
    /// [`CryptoError::MalformedCertificate`] if certificates were given and none can be read.
    pub fn new(certificates: &[Vec<u8>]) -> Result<Trust, CryptoError> {
        let anchors: Vec<_> = certificates
            .iter()
            .filter_map(|der| {
                let certificate = CertificateDer::from(der.as_slice());
                webpki::anchor_from_trusted_cert(&certificate).ok().map(|anchor| anchor.to_owned())
            })
            .collect();
        if anchors.is_empty() && !certificates.is_empty() {
            return Err(CryptoError::MalformedCertificate("no certificate of the CA file can be read"));
        }
        Ok(Trust { anchors, certificates: certificates.to_vec() })
    }

    /// Verifies a chain, end entity first: signatures up to a trusted authority, validity at `now_unix_s`, use for
    /// servers, and `server_name` (a DNS name or an IP address). A certificate that is itself among the trusted
    /// ones, as self-signed ones are, only needs to be valid now and for the name.
    ///
    /// # Errors
    /// Any certificate variant of [`CryptoError`].
    pub fn verify(&self, chain_der: &[&[u8]], server_name: &str, now_unix_s: u64) -> Result<(), CryptoError> {
        let (end_entity, rest) =
            chain_der.split_first().ok_or(CryptoError::MalformedCertificate("the chain is empty"))?;
        let end_entity_der = CertificateDer::from(*end_entity);
        let certificate = EndEntityCert::try_from(&end_entity_der).map_err(chain_fault)?;
        if self.certificates.iter().any(|trusted| trusted == end_entity) {
            within_validity(&Certificate::from_der(end_entity)?, now_unix_s)?;
        } else {
            let intermediates: Vec<_> = rest.iter().map(|der| CertificateDer::from(*der)).collect();
            let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now_unix_s));
            certificate
                .verify_for_usage(
                    webpki::ALL_VERIFICATION_ALGS,
                    &self.anchors,
                    &intermediates,
                    time,
                    KeyUsage::server_auth(),
                    None,
                    None,
                )
                .map_err(|fault| match fault {
                    webpki::Error::UnknownIssuer | webpki::Error::CaUsedAsEndEntity if is_self_issued(end_entity) => {
                        CryptoError::SelfSigned
                    }
                    fault => chain_fault(fault),
                })?;
        }
        let mismatch = || CryptoError::NameMismatch {
            asked: server_name.to_owned(),
            presented: certificate.valid_dns_names().take(NAMES_TOLD).map(str::to_owned).collect(),
        };
        let name = ServerName::try_from(server_name).map_err(|_| mismatch())?;
        certificate.verify_is_valid_for_subject_name(&name).map_err(|fault| match fault {
            webpki::Error::CertNotValidForName(_) => mismatch(),
            fault => chain_fault(fault),
        })
    }
}

/// Names of a certificate that an error tells.
const NAMES_TOLD: usize = 3;

fn is_self_issued(certificate_der: &[u8]) -> bool {
    Certificate::from_der(certificate_der).is_ok_and(|certificate| certificate.self_issued)
}

fn within_validity(certificate: &Certificate<'_>, now_unix_s: u64) -> Result<(), CryptoError> {
    if now_unix_s < certificate.not_before_unix_s {
        return Err(CryptoError::CertificateExpired("it is not valid yet".to_owned()));
    }
    if now_unix_s > certificate.not_after_unix_s {
        return Err(expired(now_unix_s, certificate.not_after_unix_s));
    }
    Ok(())
}

fn expired(now_unix_s: u64, not_after_unix_s: u64) -> CryptoError {
    let days = now_unix_s.saturating_sub(not_after_unix_s) / 86_400;
    CryptoError::CertificateExpired(format!("it expired {days} days ago"))
}

fn chain_fault(fault: webpki::Error) -> CryptoError {
    let bad = |what: &str| CryptoError::BadCertificate(what.to_owned());
    match fault {
        webpki::Error::UnknownIssuer => CryptoError::UnknownIssuer,
        webpki::Error::CertExpired { time, not_after } => expired(time.as_secs(), not_after.as_secs()),
        webpki::Error::CertNotValidYet { .. } => CryptoError::CertificateExpired("it is not valid yet".to_owned()),
        webpki::Error::InvalidSignatureForPublicKey => bad(
            "a certificate was not signed with the key of the authority that it names (was that authority made anew?)",
        ),
        webpki::Error::CaUsedAsEndEntity => bad("the server uses the certificate of an authority as its own"),
        webpki::Error::EndEntityUsedAsCa => bad("a certificate that is no authority's issued another"),
        webpki::Error::RequiredEkuNotFoundContext(_) => {
            bad("it was not issued for servers (its extended key usage lacks serverAuth)")
        }
        webpki::Error::UnsupportedSignatureAlgorithmContext(_)
        | webpki::Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
            bad("a certificate is signed by an algorithm that is not accepted, as SHA-1 is not")
        }
        webpki::Error::UnsupportedCertVersion => bad("it is no X.509 certificate of version 3"),
        other => CryptoError::BadCertificate(format!("{other:?}")),
    }
}

/// Verifies a handshake signature by the key of `cert_der`; with stage `authentication` off compares it with the
/// no-op's constant.
///
/// ECDSA schemes are taken with either curve, as TLS 1.2 needs; a TLS 1.3 state machine first asks
/// [`scheme_allowed_in_13`].
///
/// # Errors
/// [`CryptoError::BadSignature`], [`CryptoError::UnsupportedScheme`], [`CryptoError::MalformedCertificate`],
/// [`CryptoError::UnsuitableKey`].
pub fn verify_signature(
    cert_der: &[u8],
    scheme: u16,
    message: &[u8],
    signature: &[u8],
    off: StageSet,
) -> Result<(), CryptoError> {
    if !off.contains(Stage::Authentication) {
        return Verifier::new(cert_der, scheme, false)?.verify(message, signature);
    }
    let kind = public_key(cert_der)?.kind;
    algorithm(scheme, kind)?;
    let constant =
        signature.len() == noop_signature_bytes(kind)? && signature.iter().all(|&byte| byte == SIGNATURE_FILL);
    if constant { Ok(()) } else { Err(CryptoError::BadSignature) }
}

/// The key of one certificate, ready for signatures of one scheme. Reading it anew would add to each verification, most
/// for RSA (`cargo run --release -p tlsdyno-tls --example primitives` has both).
#[derive(Debug)]
pub struct Verifier {
    certificate: Vec<u8>,
    scheme: u16,
    kind: KeyKind,
    key: Key,
}

/// By the library that takes it.
#[derive(Debug)]
enum Key {
    Usual(ParsedPublicKey),
    SmallRsa(small_rsa::Key),
}

impl Verifier {
    /// `small_rsa_keys`: whether RSA keys below 2048 bits may be used.
    ///
    /// # Errors
    /// [`CryptoError::UnsupportedScheme`], [`CryptoError::MalformedCertificate`], [`CryptoError::SmallRsaKey`], and
    /// [`CryptoError::BadSignature`] for a key that verifies nothing.
    pub fn new(cert_der: &[u8], scheme: u16, small_rsa_keys: bool) -> Result<Verifier, CryptoError> {
        let public_key = public_key(cert_der)?;
        let algorithm = algorithm(scheme, public_key.kind)?;
        let small = match public_key.kind {
            KeyKind::Rsa { modulus_bytes } => small_rsa::is_small(modulus_bytes, small_rsa_keys)?,
            _ => false,
        };
        let key = match small {
            true => small_rsa::Key::new(public_key.key, scheme).map(Key::SmallRsa),
            false => ParsedPublicKey::new(algorithm, public_key.key).ok().map(Key::Usual),
        };
        let key = key.ok_or(CryptoError::BadSignature)?;
        Ok(Verifier { certificate: cert_der.to_vec(), scheme, kind: public_key.kind, key })
    }

    /// Whether it is of this certificate and scheme.
    pub fn is_of(&self, cert_der: &[u8], scheme: u16) -> bool {
        self.scheme == scheme && self.certificate == cert_der
    }

    /// Algorithm and size of the key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Verifies one signature.
    ///
    /// # Errors
    /// [`CryptoError::BadSignature`].
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let verified = match &self.key {
            Key::Usual(key) => key.verify_sig(message, signature).is_ok(),
            Key::SmallRsa(key) => key.verifies(message, signature),
        };
        if verified { Ok(()) } else { Err(CryptoError::BadSignature) }
    }
}

/// The public key of a certificate.
///
/// # Errors
/// [`CryptoError::MalformedCertificate`].
pub fn public_key(cert_der: &[u8]) -> Result<PublicKey<'_>, CryptoError> {
    Certificate::from_der(cert_der).map(|certificate| certificate.public_key)
}

/// Whether TLS 1.3 allows a CertificateVerify of this scheme by a key of this kind: no PKCS#1, and each ECDSA scheme
/// with its own curve only (RFC 9846 section 4.2.3). ML-DSA (draft-ietf-tls-mldsa) signs nowhere else.
pub fn scheme_allowed_in_13(scheme: u16, kind: KeyKind) -> bool {
    matches!(
        (scheme, kind),
        (ECDSA_SHA256, KeyKind::P256)
            | (ECDSA_SHA384, KeyKind::P384)
            | (ECDSA_SHA512, KeyKind::P521)
            | (PSS_SHA256 | PSS_SHA384 | PSS_SHA512, KeyKind::Rsa { .. })
            | (ED25519, KeyKind::Ed25519)
            | (ML_DSA_44, KeyKind::MlDsa44)
            | (ML_DSA_65, KeyKind::MlDsa65)
            | (ML_DSA_87, KeyKind::MlDsa87)
    )
}

/// The signature schemes that the client verifies, for its signature_algorithms extension, best first. The PKCS#1 ones
/// are for certificates and TLS 1.2. What browsers do not offer comes last, so that a server with several certificates
/// chooses as it does for them.
pub const SIGNATURE_SCHEMES: [u16; 13] = [
    ECDSA_SHA256,
    ECDSA_SHA384,
    PSS_SHA256,
    PSS_SHA384,
    PSS_SHA512,
    PKCS1_SHA256,
    PKCS1_SHA384,
    PKCS1_SHA512,
    ECDSA_SHA512,
    ED25519,
    ML_DSA_44,
    ML_DSA_65,
    ML_DSA_87,
];
/// Signature schemes of RSA keys.
pub const RSA_SCHEMES: [u16; 6] = [PSS_SHA256, PSS_SHA384, PSS_SHA512, PKCS1_SHA256, PKCS1_SHA384, PKCS1_SHA512];
/// Signature schemes of ECDSA keys.
pub const ECDSA_SCHEMES: [u16; 3] = [ECDSA_SHA256, ECDSA_SHA384, ECDSA_SHA512];

pub(super) const PKCS1_SHA256: u16 = 0x0401;
pub(super) const PKCS1_SHA384: u16 = 0x0501;
pub(super) const PKCS1_SHA512: u16 = 0x0601;
pub(super) const ECDSA_SHA256: u16 = 0x0403;
pub(super) const ECDSA_SHA384: u16 = 0x0503;
const ECDSA_SHA512: u16 = 0x0603;
pub(super) const PSS_SHA256: u16 = 0x0804;
pub(super) const PSS_SHA384: u16 = 0x0805;
pub(super) const PSS_SHA512: u16 = 0x0806;

const ED25519: u16 = 0x0807;
const ML_DSA_44: u16 = 0x0904;
const ML_DSA_65: u16 = 0x0905;
const ML_DSA_87: u16 = 0x0906;

fn algorithm(scheme: u16, kind: KeyKind) -> Result<&'static dyn VerificationAlgorithm, CryptoError> {
    Ok(match (scheme, kind) {
        (ECDSA_SHA256, KeyKind::P256) => &signature::ECDSA_P256_SHA256_ASN1,
        (ECDSA_SHA256, KeyKind::P384) => &signature::ECDSA_P384_SHA256_ASN1,
        (ECDSA_SHA384, KeyKind::P256) => &signature::ECDSA_P256_SHA384_ASN1,
        (ECDSA_SHA384, KeyKind::P384) => &signature::ECDSA_P384_SHA384_ASN1,
        (ECDSA_SHA256, KeyKind::P521) => &signature::ECDSA_P521_SHA256_ASN1,
        (ECDSA_SHA384, KeyKind::P521) => &signature::ECDSA_P521_SHA384_ASN1,
        (ECDSA_SHA512, KeyKind::P521) => &signature::ECDSA_P521_SHA512_ASN1,
        (PKCS1_SHA256, KeyKind::Rsa { .. }) => &signature::RSA_PKCS1_2048_8192_SHA256,
        (PKCS1_SHA384, KeyKind::Rsa { .. }) => &signature::RSA_PKCS1_2048_8192_SHA384,
        (PKCS1_SHA512, KeyKind::Rsa { .. }) => &signature::RSA_PKCS1_2048_8192_SHA512,
        (PSS_SHA256, KeyKind::Rsa { .. }) => &signature::RSA_PSS_2048_8192_SHA256,
        (PSS_SHA384, KeyKind::Rsa { .. }) => &signature::RSA_PSS_2048_8192_SHA384,
        (PSS_SHA512, KeyKind::Rsa { .. }) => &signature::RSA_PSS_2048_8192_SHA512,
        (ED25519, KeyKind::Ed25519) => &signature::ED25519,
        (ML_DSA_44, KeyKind::MlDsa44) => &signature::ML_DSA_44,
        (ML_DSA_65, KeyKind::MlDsa65) => &signature::ML_DSA_65,
        (ML_DSA_87, KeyKind::MlDsa87) => &signature::ML_DSA_87,
        _ => return Err(CryptoError::UnsupportedScheme(scheme)),
    })
}

/// Length of a no-op signature: what the server's size query answers (the largest DER form of an ECDSA signature).
fn noop_signature_bytes(kind: KeyKind) -> Result<usize, CryptoError> {
    match kind {
        KeyKind::Rsa { modulus_bytes } => Ok(modulus_bytes),
        KeyKind::P256 => Ok(72),
        KeyKind::P384 => Ok(104),
        KeyKind::P521 => Ok(139),
        KeyKind::Ed25519 => Ok(64),
        // FIPS 204 table 2.
        KeyKind::MlDsa44 => Ok(2420),
        KeyKind::MlDsa65 => Ok(3309),
        KeyKind::MlDsa87 => Ok(4627),
        KeyKind::Other => Err(CryptoError::UnsuitableKey(
            "only RSA, P-256, P-384, P-521, Ed25519 and ML-DSA keys sign handshakes here",
        )),
    }
}

#[cfg(test)]
mod tests;
