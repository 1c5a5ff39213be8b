//! Certificate chains (through rustls-webpki) and handshake signatures (RFC 9846 section 4.4.3, RFC 5246 section 7.4.3).

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use rustls_pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use super::CryptoError;
pub use super::certificate::{Certificate, KeyKind, PublicKey};
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
    /// Compiles DER certificates. One that cannot be read is left out, since the stores of operating systems contain such.
    ///
    /// # Errors
    /// [`CryptoError::MalformedCertificate`] if certificates were given and none can be read.
    pub fn new(certificates: &[Vec<u8>]) -> Result<Trust, CryptoError> {
        let anchors: Vec<_> = certificates
            .iter()
            .filter_map(|der| {
                let certificate = CertificateDer::from(der.as_slice());
                webpki::anchor_from_trusted_cert(&certificate)
                    .ok()
                    .map(|anchor| anchor.to_owned())
            })
            .collect();
        if anchors.is_empty() && !certificates.is_empty() {
            return Err(CryptoError::MalformedCertificate(
                "no certificate of the CA file can be read",
            ));
        }
        Ok(Trust {
            anchors,
            certificates: certificates.to_vec(),
        })
    }

    /// Verifies a chain, end entity first: signatures up to a trusted authority, validity at `now_unix_s`, use for servers, and
    /// `server_name` (a DNS name or an IP address). A certificate that is itself among the trusted ones, as self-signed ones are,
    /// only needs to be valid now and for the name.
    ///
    /// # Errors
    /// Any certificate variant of [`CryptoError`].
    pub fn verify(
        &self,
        chain_der: &[&[u8]],
        server_name: &str,
        now_unix_s: u64,
    ) -> Result<(), CryptoError> {
        let (end_entity, rest) = chain_der
            .split_first()
            .ok_or(CryptoError::MalformedCertificate("the chain is empty"))?;
        let end_entity_der = CertificateDer::from(*end_entity);
        let certificate = EndEntityCert::try_from(&end_entity_der)
            .map_err(|fault| chain_fault(fault, server_name))?;
        if self
            .certificates
            .iter()
            .any(|trusted| trusted == end_entity)
        {
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
                .map_err(|fault| chain_fault(fault, server_name))?;
        }
        let name = ServerName::try_from(server_name)
            .map_err(|_| CryptoError::NameMismatch(server_name.to_owned()))?;
        certificate
            .verify_is_valid_for_subject_name(&name)
            .map_err(|fault| chain_fault(fault, server_name))
    }
}

fn within_validity(certificate: &Certificate<'_>, now_unix_s: u64) -> Result<(), CryptoError> {
    if now_unix_s < certificate.not_before_unix_s {
        return Err(CryptoError::CertificateExpired(
            "it is not valid yet".to_owned(),
        ));
    }
    if now_unix_s > certificate.not_after_unix_s {
        return Err(CryptoError::CertificateExpired("it has expired".to_owned()));
    }
    Ok(())
}

fn chain_fault(fault: webpki::Error, server_name: &str) -> CryptoError {
    match fault {
        webpki::Error::UnknownIssuer => CryptoError::UnknownIssuer,
        webpki::Error::CertExpired { .. } => {
            CryptoError::CertificateExpired("it has expired".to_owned())
        }
        webpki::Error::CertNotValidYet { .. } => {
            CryptoError::CertificateExpired("it is not valid yet".to_owned())
        }
        webpki::Error::CertNotValidForName(_) => CryptoError::NameMismatch(server_name.to_owned()),
        other => CryptoError::BadCertificate(format!("{other:?}")),
    }
}

/// Verifies a handshake signature by the key of `cert_der`; with stage `authentication` off compares it with the no-op's constant.
///
/// ECDSA schemes are taken with either curve, as TLS 1.2 needs; a TLS 1.3 state machine first asks [`scheme_allowed_in_13`].
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
    let public_key = public_key(cert_der)?;
    let algorithm = algorithm(scheme, public_key.kind)?;
    if off.contains(Stage::Authentication) {
        let length = noop_signature_bytes(public_key.kind)?;
        let constant =
            signature.len() == length && signature.iter().all(|&byte| byte == SIGNATURE_FILL);
        return if constant {
            Ok(())
        } else {
            Err(CryptoError::BadSignature)
        };
    }
    UnparsedPublicKey::new(algorithm, public_key.key)
        .verify(message, signature)
        .map_err(|_| CryptoError::BadSignature)
}

/// The public key of a certificate.
///
/// # Errors
/// [`CryptoError::MalformedCertificate`].
pub fn public_key(cert_der: &[u8]) -> Result<PublicKey<'_>, CryptoError> {
    Certificate::from_der(cert_der).map(|certificate| certificate.public_key)
}

/// Whether TLS 1.3 allows a CertificateVerify of this scheme by a key of this kind: no PKCS#1, and each ECDSA scheme with its own
/// curve only (RFC 9846 section 4.2.3).
pub fn scheme_allowed_in_13(scheme: u16, kind: KeyKind) -> bool {
    matches!(
        (scheme, kind),
        (ECDSA_SHA256, KeyKind::P256)
            | (ECDSA_SHA384, KeyKind::P384)
            | (PSS_SHA256 | PSS_SHA384 | PSS_SHA512, KeyKind::Rsa { .. })
    )
}

/// The signature schemes that the client verifies, for its signature_algorithms extension, best first. The PKCS#1 ones are for
/// certificates and TLS 1.2.
pub const SIGNATURE_SCHEMES: [u16; 8] = [
    ECDSA_SHA256,
    ECDSA_SHA384,
    PSS_SHA256,
    PSS_SHA384,
    PSS_SHA512,
    PKCS1_SHA256,
    PKCS1_SHA384,
    PKCS1_SHA512,
];

const PKCS1_SHA256: u16 = 0x0401;
const PKCS1_SHA384: u16 = 0x0501;
const PKCS1_SHA512: u16 = 0x0601;
const ECDSA_SHA256: u16 = 0x0403;
const ECDSA_SHA384: u16 = 0x0503;
const PSS_SHA256: u16 = 0x0804;
const PSS_SHA384: u16 = 0x0805;
const PSS_SHA512: u16 = 0x0806;

fn algorithm(
    scheme: u16,
    kind: KeyKind,
) -> Result<&'static dyn VerificationAlgorithm, CryptoError> {
    Ok(match (scheme, kind) {
        (ECDSA_SHA256, KeyKind::P256) => &signature::ECDSA_P256_SHA256_ASN1,
        (ECDSA_SHA256, KeyKind::P384) => &signature::ECDSA_P384_SHA256_ASN1,
        (ECDSA_SHA384, KeyKind::P256) => &signature::ECDSA_P256_SHA384_ASN1,
        (ECDSA_SHA384, KeyKind::P384) => &signature::ECDSA_P384_SHA384_ASN1,
        (PKCS1_SHA256, KeyKind::Rsa { .. }) => &signature::RSA_PKCS1_2048_8192_SHA256,
        (PKCS1_SHA384, KeyKind::Rsa { .. }) => &signature::RSA_PKCS1_2048_8192_SHA384,
        (PKCS1_SHA512, KeyKind::Rsa { .. }) => &signature::RSA_PKCS1_2048_8192_SHA512,
        (PSS_SHA256, KeyKind::Rsa { .. }) => &signature::RSA_PSS_2048_8192_SHA256,
        (PSS_SHA384, KeyKind::Rsa { .. }) => &signature::RSA_PSS_2048_8192_SHA384,
        (PSS_SHA512, KeyKind::Rsa { .. }) => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return Err(CryptoError::UnsupportedScheme(scheme)),
    })
}

/// Length of a no-op signature: what the server's size query answers (the largest DER form of an ECDSA signature).
fn noop_signature_bytes(kind: KeyKind) -> Result<usize, CryptoError> {
    match kind {
        KeyKind::Rsa { modulus_bytes } => Ok(modulus_bytes),
        KeyKind::P256 => Ok(72),
        KeyKind::P384 => Ok(104),
        KeyKind::Other => Err(CryptoError::UnsuitableKey(
            "only RSA, P-256 and P-384 keys sign handshakes here",
        )),
    }
}
