//! What is checked of the server's certificate and signature at each effort.

use crate::client::Context;
use crate::config::Config;
use crate::crypto::CryptoError;
use crate::crypto::verify::{KeyKind, Verifier, public_key, verify_signature};
use crate::error::{Alert, Error};
use crate::noop::{SIGNATURE_FILL, Stage};
use crate::suite::Effort;

/// A handshake signature and what it should be of.
pub(crate) struct Signature<'a> {
    pub scheme: u16,
    pub bytes: &'a [u8],
    /// What was signed; may be empty where [`Config::checks_signatures`] says no.
    pub message: &'a [u8],
}

/// Verifies the chain at honest effort; gives the server's own certificate for later.
pub(crate) fn chain(context: &mut Context<'_>, chain_der: &[&[u8]]) -> Result<Vec<u8>, Error> {
    let Some(end_entity) = chain_der.first() else {
        return Err(Error::PeerMisbehaved { what: "the server sent no certificate", alert: Alert::DECODE_ERROR });
    };
    context.receiver.certificates(chain_der);
    let settings = context.config.settings();
    if let (Effort::Honest, Some(name)) = (settings.effort, &settings.server_name) {
        context.config.verify_chain(chain_der, name)?;
    }
    Ok(end_entity.to_vec())
}

/// Verifies a signature: really at honest effort, against the constant with stage `authentication` off. Lean efforts
/// only refuse that constant while the stage is on, so that ends with different stages never complete a handshake
/// (docs/NOOP.md).
pub(crate) fn signature(
    config: &Config,
    certificate: &[u8],
    signature: &Signature<'_>,
    allowed: impl Fn(u16, KeyKind) -> bool,
) -> Result<(), Error> {
    let off = config.settings().stages_off;
    if !config.checks_signatures() && !off.contains(Stage::Authentication) {
        return match signature.bytes.iter().all(|byte| *byte == SIGNATURE_FILL) {
            true => Err(CryptoError::BadSignature.into()),
            false => Ok(()),
        };
    }
    // With the stage off no key was ever kept: no signature was really verified.
    let known = config.verifier(certificate, signature.scheme);
    let kind = known.map_or_else(|| public_key(certificate).map(|key| key.kind), |known| Ok(known.kind()))?;
    if !allowed(signature.scheme, kind) {
        return Err(CryptoError::UnsupportedScheme(signature.scheme).into());
    }
    match known {
        Some(known) => known.verify(signature.message, signature.bytes)?,
        None if off.contains(Stage::Authentication) => {
            verify_signature(certificate, signature.scheme, signature.message, signature.bytes, off)?;
        }
        None => {
            let verifier = Verifier::new(certificate, signature.scheme, config.settings().small_rsa_keys)?;
            verifier.verify(signature.message, signature.bytes)?;
            config.keep_verifier(verifier);
        }
    }
    Ok(())
}
