//! What servers of an experiment prove themselves with, and the TLS settings of both ends that follow from it.

use std::path::Path;

use anyhow::{Context, Result};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tlsdyno_base::exchange;
use tlsdyno_engine::load::BROWSER_ALPN;
use tlsdyno_record::model::{CertificateKind, Tls};
use tlsdyno_servers::{CertificateFiles, ServerTls, certificates};
use tlsdyno_tls::{Effort, Settings};

/// The name in certificates, for which clients ask.
pub const HOST: &str = "localhost";

/// A certificate, its key and the root that clients trust.
pub struct Credentials {
    pub files: CertificateFiles,
    /// DER.
    root: Vec<u8>,
}

impl Credentials {
    /// In a new directory below `directory`.
    pub fn create(kind: CertificateKind, directory: &Path) -> Result<Credentials> {
        Credentials::with_chain(kind, 1, directory)
    }

    /// `length`: number of certificates in the chain, without the root.
    pub fn with_chain(kind: CertificateKind, length: u32, directory: &Path) -> Result<Credentials> {
        let own = directory.join(format!("certificate-{kind}-{length}"));
        tlsdyno_servers::run_directory::make_passable(&own)?;
        let files = certificates::create_chain(kind, length, &own)?;
        let root = CertificateDer::from_pem_file(&files.ca).context("read the root certificate")?.to_vec();
        Ok(Credentials { files, root })
    }

    pub fn server_tls(&self, tls: &Tls) -> ServerTls {
        ServerTls {
            versions: vec![tls.version],
            suites: tls.suites(),
            groups: tls.groups(),
            certificate: self.files.clone(),
            tickets: tls.tickets,
            ticket_keys: tls.ticket_keys(),
            session_cache: tls.session_cache(),
            session_timeout_s: tls.session_timeout_s,
            early_data: tls.early_data,
            encrypt_then_mac: tls.encrypt_then_mac,
        }
    }

    pub fn client_settings(&self, tls: &Tls, effort: Effort) -> Settings {
        Settings {
            versions: vec![tls.version],
            suites: tls.suites(),
            groups: tls.groups(),
            server_name: Some(HOST.to_owned()),
            effort,
            encrypt_then_mac: tls.encrypt_then_mac,
            tickets: tls.tickets,
            early_data: tls.early_data,
            alpn: if tls.http2 { BROWSER_ALPN.map(str::to_owned).to_vec() } else { Vec::new() },
            small_rsa_keys: tls.certificate().is_small_rsa(),
            trust_anchors: vec![self.root.clone()],
            now_unix_s: exchange::now_unix_s(),
            ..Settings::default()
        }
    }
}
