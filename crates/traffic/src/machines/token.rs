//! Who is who between a coordinator and its workers: a certificate and a secret, both made for one run.
//!
//! The token file has the certificate, by which a worker knows the coordinator, and the secret, by which the
//! coordinator knows its workers. Whoever can read it can take part, so that it is never on a command line.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

const HEAD: &str = "tlsdyno token 2";

const FILE_BYTES_MAX: u64 = 4096;

/// The name in the certificate. Nobody is known by it.
const NAME: &str = "coordinator.tlsdyno.invalid";

#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    certificate: CertificateDer<'static>,
    secret: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the secret.
        write!(f, "Token({})", hash_of(&self.certificate))
    }
}

impl Token {
    /// A token for a new run, with the coordinator's side of TLS.
    pub fn new() -> Result<(Token, Arc<ServerConfig>)> {
        let certified = rcgen::generate_simple_self_signed([NAME.to_owned()]).context("make a certificate")?;
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let certificate = certified.cert.der().clone();
        let mut secret = [0; 32];
        openssl::rand::rand_bytes(&mut secret).context("make a secret")?;
        let token = Token { certificate: certificate.clone(), secret: hexadecimal(&secret) };
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        Ok((token, Arc::new(config)))
    }

    /// Writes the token file, for its owner only.
    pub fn write(&self, path: &Path) -> Result<std::fs::Metadata> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| {
            let written = file.write_all(self.text().as_bytes()).and_then(|()| file.metadata());
            if written.is_err() {
                // Half of it is of no use.
                let _ = std::fs::remove_file(path);
            }
            written
        });
        written.with_context(|| format!("failed to write the token file {}", path.display()))
    }

    pub fn text(&self) -> String {
        format!("{HEAD}\ncertificate {}\nsecret {}\n", STANDARD.encode(&self.certificate), self.secret)
    }

    pub fn read(path: &Path) -> Result<Token> {
        let mut text = String::new();
        let read = if path == Path::new("-") {
            std::io::stdin().lock().take(FILE_BYTES_MAX).read_to_string(&mut text)
        } else {
            let open = || format!("failed to read the token file {}", path.display());
            let file = tlsdyno_base::input::open(path).with_context(open)?;
            let about = file.metadata().with_context(open)?;
            let own = rustix::process::geteuid().as_raw();
            ensure!(
                [own, 0].contains(&about.uid()),
                "the token file {} belongs to another user, who could have this one load whatever it likes; have it \
                 written by this user",
                path.display()
            );
            ensure!(
                about.mode() & 0o077 == 0,
                "others may read the token file {}, and so could take part in the load; `chmod 600` it",
                path.display()
            );
            file.take(FILE_BYTES_MAX).read_to_string(&mut text)
        };
        read.with_context(|| format!("failed to read the token file {}", path.display()))?;
        Token::parse(&text).with_context(|| format!("{} is no token file of tlsdyno", path.display()))
    }

    fn parse(text: &str) -> Option<Token> {
        let mut lines = text.lines();
        (lines.next() == Some(HEAD)).then_some(())?;
        let certificate = STANDARD.decode(lines.next()?.strip_prefix("certificate ")?).ok()?.into();
        let secret = lines.next()?.strip_prefix("secret ")?.to_owned();
        let is_whole = secret.len() == 64 && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_whole.then_some(Token { certificate, secret })
    }

    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Compares secrets in constant time.
    pub fn is_secret(&self, candidate: &str) -> bool {
        candidate.len() == self.secret.len() && openssl::memcmp::eq(candidate.as_bytes(), self.secret.as_bytes())
    }

    /// A worker's side of TLS.
    pub fn client(&self) -> Result<rustls::ClientConnection> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).context("the certificate of the token cannot be used")?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(rustls::ClientConnection::new(Arc::new(config), ServerName::try_from(NAME)?)?)
    }
}

/// SHA-256, hexadecimal: what data are called.
pub fn hash_of(bytes: &[u8]) -> String {
    hexadecimal(&openssl::sha::sha256(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_survives_its_file_which_is_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let (token, _) = Token::new().unwrap();
        token.write(&path).unwrap();
        assert_eq!(Token::read(&path).unwrap(), token);
        assert!(token.is_secret(token.secret()) && !token.is_secret("") && !token.is_secret(&"0".repeat(64)));
        assert!(!format!("{token:?}").contains(token.secret()));
        assert!(token.write(&path).is_err(), "never another's file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(Token::read(&path).unwrap_err().to_string().contains("chmod 600"));
        if rustix::process::geteuid().is_root() {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            assert!(Token::read(&path).unwrap_err().to_string().contains("another user"));
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let (token, _) = Token::new().unwrap();
        for wrong in ["", "x", &token.text()[..90], &token.text().replace("secret ", "secret g")] {
            assert!(Token::parse(wrong).is_none(), "{wrong}");
        }
    }
}
