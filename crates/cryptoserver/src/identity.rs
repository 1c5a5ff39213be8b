//! Who agent and service are to each other: TLS 1.3 with certificates on both sides. The stack is rustls on AWS-LC,
//! which tlsdyno has already. Rust code parses what a network sends to a process full of keys; C code gets only the
//! keys, shares and signatures in it. It is a state machine on bytes, so many requests go into one record.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
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
    /// Its private key (PEM), which only its owner and group may read
    #[arg(long, value_name = "FILE", required = true)]
    pub cert_key: Option<std::path::PathBuf>,
}

/// Who an agent is: the SHA-256 of its public key. One certificate has several forms, as an ECDSA signature has two.
pub type Client = [u8; 32];

/// The agent that has this certificate.
pub fn client_of(certificate: &CertificateDer<'_>) -> Result<Client> {
    let certificate = webpki::EndEntityCert::try_from(certificate).map_err(|why| anyhow!("{why}"))?;
    Ok(digest(&SHA256, &certificate.subject_public_key_info()).as_ref().try_into()?)
}

/// What a service is to agents: its side of TLS, and what it knows their certificates by.
#[derive(Debug)]
pub struct ServiceSide {
    pub(crate) tls: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ServiceSide {
    /// Whether an agent with these certificates, its own first, may ask now.
    ///
    /// # Errors
    /// Why not: it has run out, is revoked, or its authority is trusted no more.
    pub fn check(&self, certificates: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let (own, others) = certificates.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
        self.verifier.verify_client_cert(own, others, UnixTime::now()).map(drop)
    }
}

/// A file with a private key, which not everybody may read.
///
/// # Errors
/// It cannot be read, or by everybody.
pub fn read_private(file: &Path) -> Result<Vec<u8>> {
    let text = input::read(file, input::TEXT_BYTES_MAX)?;
    let mode = std::fs::metadata(file)?.permissions().mode();
    ensure!(mode & 0o007 == 0, "everybody may read {0}: chmod o= {0}", file.display());
    Ok(text)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

/// What a file holds of a kind, one at least. `what`: the kind in words.
fn all_in<T: PemObject>(path: &Path, what: &str) -> Result<Vec<T>> {
    let text = input::read(path, input::TEXT_BYTES_MAX)?;
    let all: Vec<T> = T::pem_slice_iter(&text).collect::<Result<_, _>>().unwrap_or_default();
    ensure!(!all.is_empty(), "{} holds no {what} in PEM form", path.display());
    Ok(all)
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>> {
    let mut store = RootCertStore::empty();
    for root in all_in(path, "certificate")? {
        store.add(root).with_context(|| format!("{} cannot be trusted", path.display()))?;
    }
    Ok(Arc::new(store))
}

impl Own {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let given = self.cert.as_deref().zip(self.cert_key.as_deref());
        let (cert, key) = given.context("--cert and --cert-key are missing")?;
        let private = PrivateKeyDer::from_pem_slice(&read_private(key)?);
        let private = private.with_context(|| format!("{} holds no private key in PEM form", key.display()))?;
        Ok((all_in(cert, "certificate")?, private))
    }

    /// The service's side: clients have a certificate of this authority that these lists do not revoke.
    pub fn service(&self, client_ca: &Path, revoked: Option<&Path>) -> Result<ServiceSide> {
        let make = || -> Result<_> {
            let (chain, key) = self.read()?;
            let lists: Option<Vec<CertificateRevocationListDer>> =
                revoked.map(|path| all_in(path, "revocation list")).transpose()?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(client_ca)?, provider());
            let verifier = verifier.with_crls(lists.unwrap_or_default()).build()?;
            let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13])?;
            let mut config = config.with_client_cert_verifier(Arc::clone(&verifier)).with_single_cert(chain, key)?;
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
            // A certificate that has run out must not live on in a ticket.
            config.send_tls13_tickets = 0;
            Ok(ServiceSide { tls: Arc::new(config), verifier })
        };
        make().or_fault(Fault::Input)
    }

    /// The agent's side: services have a certificate of this authority.
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
