//! Who agent and service are to each other: TLS 1.3 with certificates on both sides. The stack is rustls on AWS-LC,
//! which tlsdyno has already. Rust code parses what a network sends to a process full of keys; C code gets only the
//! keys, shares and signatures in it. It is a state machine on bytes, so many requests go into one record.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::input;

/// The protocol's name in ALPN: another service behind the same authority cannot be taken for this one.
pub const PROTOCOL: &[u8] = b"tlsdyno-cryptoserver/1";

/// The files of one side.
#[derive(Clone, Debug, clap::Args)]
pub struct Own {
    /// This side's certificate, with those between it and its authority (PEM)
    #[arg(long, value_name = "FILE", required = true)]
    pub cert: Option<std::path::PathBuf>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE", required = true)]
    pub cert_key: Option<std::path::PathBuf>,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = input::read(path, input::TEXT_BYTES_MAX)?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().unwrap_or_default();
    ensure!(!all.is_empty(), "{} holds no certificate in PEM form", path.display());
    Ok(all)
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>> {
    let mut store = RootCertStore::empty();
    for root in certificates(path)? {
        store.add(root).with_context(|| format!("{} cannot be trusted", path.display()))?;
    }
    Ok(Arc::new(store))
}

impl Own {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let given = self.cert.as_deref().zip(self.cert_key.as_deref());
        let (cert, key) = given.context("--cert and --cert-key are missing")?;
        let private = PrivateKeyDer::from_pem_slice(&input::read(key, input::TEXT_BYTES_MAX)?);
        let private = private.with_context(|| format!("{} holds no private key in PEM form", key.display()))?;
        Ok((certificates(cert)?, private))
    }

    /// The service's side: clients have a certificate of this authority.
    ///
    /// # Errors
    /// [`Fault::Input`]: a file cannot be read or used.
    pub fn service(&self, client_ca: &Path) -> Result<Arc<ServerConfig>> {
        let make = || -> Result<_> {
            let (chain, key) = self.read()?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(client_ca)?, provider()).build()?;
            let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
            let mut config = config.with_client_cert_verifier(verifier).with_single_cert(chain, key)?;
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
            // A certificate that has run out must not live on in a ticket.
            config.send_tls13_tickets = 0;
            Ok(Arc::new(config))
        };
        make().or_fault(Fault::Input)
    }

    /// The agent's side: services have a certificate of this authority.
    ///
    /// # Errors
    /// [`Fault::Input`]: a file cannot be read or used.
    pub fn agent(&self, server_ca: &Path) -> Result<Arc<ClientConfig>> {
        let make = || -> Result<_> {
            let (chain, key) = self.read()?;
            let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
            let mut config = config.with_root_certificates(roots(server_ca)?).with_client_auth_cert(chain, key)?;
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
            config.resumption = rustls::client::Resumption::disabled();
            Ok(Arc::new(config))
        };
        make().or_fault(Fault::Input)
    }
}
