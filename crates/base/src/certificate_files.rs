//! Files with certificates and keys in PEM form.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tlsdyno_tls::ClientCertificate;

use crate::input;

/// A client's certificate with its key, from files in PEM form.
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
    ensure!(!all.is_empty(), "the {what} file {} holds no certificate in PEM form", path.display());
    Ok(all)
}

/// The certificates that are trusted as roots: those of the file, else the system's.
pub fn trust_anchors(ca_file: Option<&Path>) -> Result<Vec<Vec<u8>>> {
    if let Some(path) = ca_file {
        return certificates(path, "CA");
    }
    let system = rustls_native_certs::load_native_certs();
    ensure!(
        !system.certs.is_empty(),
        "this system has no trusted certificates to verify the server with; name some with --ca-file, install the \
         package ca-certificates, or do not verify (--effort lean)"
    );
    Ok(system.certs.iter().map(|certificate| certificate.as_ref().to_vec()).collect())
}
