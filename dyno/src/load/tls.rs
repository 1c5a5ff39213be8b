//! From a description to the lean client's configuration.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tlsdyno_tls::{ClientCertificate, Config, Effort, Session, Settings};

use crate::input;
use crate::model::job::TlsSpec;

/// Compiles the client side of a target. `host`: the name sent and, at honest effort, verified; without port or
/// brackets. It offers these application protocols, and this certificate to a server that asks for one.
///
/// # Errors
/// Settings that contradict each other, roots that cannot be read, names that are empty or too long.
pub fn config(
    spec: &TlsSpec,
    host: &str,
    alpn: &[String],
    client_certificate: Option<ClientCertificate>,
) -> Result<Arc<Config>> {
    let settings = Settings {
        versions: spec.versions.clone(),
        suites: spec.suites.clone(),
        groups: spec.groups.clone(),
        server_name: Some(host.to_owned()),
        alpn: alpn.to_vec(),
        effort: spec.effort,
        stages_off: spec.noop,
        encrypt_then_mac: spec.encrypt_then_mac,
        tickets: spec.tickets,
        early_data: spec.early_data,
        small_rsa_keys: spec.small_rsa_keys,
        trust_anchors: if spec.effort == Effort::Honest { trust_anchors(spec.ca_file.as_deref())? } else { Vec::new() },
        universal: spec.universal.as_deref().map(session).transpose()?,
        scripts: spec.scripts.clone(),
        client_certificate: client_certificate.map(Arc::new),
        now_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?.as_secs(),
        ..Settings::default()
    };
    Ok(Arc::new(Config::new(settings)?))
}

/// A session that another process of this version made. It counts as received now, by this process's clock.
fn session(base64: &str) -> Result<Session> {
    let bytes = STANDARD.decode(base64).context("the universal session is not base64")?;
    Ok(Session::from_bytes(&bytes, tlsdyno_engine::sys::monotonic_ns() / 1_000_000)?)
}

/// A client's certificate with its key, from files in PEM form.
///
/// # Errors
/// A file cannot be read, or the key is not one of the certificate.
pub fn client_certificate(certificate: &Path, key: &Path) -> Result<ClientCertificate> {
    let chain = certificates(certificate, "client certificate")?;
    let private = PrivateKeyDer::from_pem_slice(&input::read(key, input::TEXT_BYTES_MAX)?).with_context(|| {
        format!("failed to read a private key in PEM form, without a passphrase, from {}", key.display())
    })?;
    ClientCertificate::new(chain, private.secret_der()).with_context(|| {
        format!("{} and {} cannot be used as client certificate", certificate.display(), key.display())
    })
}

/// The certificates in a file in PEM form, of which there must be one at least.
fn certificates(path: &Path, what: &str) -> Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    let text = input::read(path, input::TEXT_BYTES_MAX).with_context(|| format!("failed to read the {what} file"))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.with_context(|| format!("the {what} file {} is damaged", path.display()))?;
        all.push(certificate.as_ref().to_vec());
    }
    if all.is_empty() {
        bail!("the {what} file {} holds no certificate in PEM form", path.display());
    }
    Ok(all)
}

/// The certificates that are trusted as roots: those of the file, else the system's.
///
/// # Errors
/// The file cannot be read, or there is not one.
pub fn trust_anchors(ca_file: Option<&Path>) -> Result<Vec<Vec<u8>>> {
    if let Some(path) = ca_file {
        return certificates(path, "CA");
    }
    let system = rustls_native_certs::load_native_certs();
    if system.certs.is_empty() {
        bail!(
            "this system has no trusted certificates to verify the server with; name some with --ca-file, install the \
             package ca-certificates, or do not verify (--effort lean)"
        );
    }
    Ok(system.certs.iter().map(|certificate| certificate.as_ref().to_vec()).collect())
}
