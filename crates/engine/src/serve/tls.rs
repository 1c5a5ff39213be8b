//! TLS settings of a listener, made into an OpenSSL context through the safe API of the `openssl` crate, which is
//! linked dynamically so that the providers of `OPENSSL_CONF` apply.

use std::path::PathBuf;

use openssl::error::ErrorStack;
use openssl::ssl::{
    AlpnError, SslContext, SslContextBuilder, SslFiletype, SslMethod, SslMode, SslOptions, SslSessionCacheMode,
    SslVersion, select_next_proto,
};
use tlsdyno_tls::{Group, Suite, Version};

use super::limits::SESSIONS;
use crate::sys;

/// SSL_OP_NO_ENCRYPT_THEN_MAC of `openssl/ssl.h`, the same in 1.1.1 to 4.0; the crate has no name for it.
const NO_ENCRYPT_THEN_MAC: u64 = 1 << 19;
/// SSL_OP_NO_ANTI_REPLAY, likewise. With it OpenSSL does not keep tickets for early data in its cache, to be used once.
const NO_ANTI_REPLAY: u64 = 1 << 24;
/// Bytes of early data that a client may send, as nginx has it (its buffer).
const EARLY_DATA_BYTES: u32 = 16_384;

/// TLS settings of a listener. Empty lists mean OpenSSL's defaults.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// PEM file of the chain, leaf first.
    pub certificate: PathBuf,
    /// PEM file of the leaf's private key.
    pub key: PathBuf,
    /// Versions; empty: both.
    pub versions: Vec<Version>,
    /// Suites of both versions, best first.
    pub suites: Vec<Suite>,
    /// Groups, best first.
    pub groups: Vec<Group>,
    /// Issue and accept tickets. Without them TLS 1.3 resumes from the session cache (stateful tickets).
    pub tickets: bool,
    /// Keep sessions for resumption by ID (OpenSSL's internal cache).
    pub session_cache: bool,
    /// How long a session can be resumed, seconds; `None`: as OpenSSL has it (7200).
    pub session_timeout_s: Option<u32>,
    /// Accept encrypt-then-MAC (RFC 7366).
    pub encrypt_then_mac: bool,
    /// Take early data (TLS 1.3, RFC 9846 section 2.3), and so often as they come: tickets stay stateless and
    /// reusable, as nginx has it.
    pub early_data: bool,
}

/// OpenSSL refused a setting.
#[derive(Debug, thiserror::Error)]
#[error("OpenSSL refuses {what}: {source}")]
pub struct TlsError {
    what: String,
    source: ErrorStack,
}

/// Puts the setting's name to OpenSSL's complaint.
trait Refused<T> {
    fn refused(self, what: impl FnOnce() -> String) -> Result<T, TlsError>;
}

impl<T> Refused<T> for Result<T, ErrorStack> {
    fn refused(self, what: impl FnOnce() -> String) -> Result<T, TlsError> {
        self.map_err(|source| TlsError { what: what(), source })
    }
}

impl TlsSettings {
    /// The context that all connections of a listener share.
    pub fn context(&self) -> Result<SslContext, TlsError> {
        let mut context = SslContext::builder(SslMethod::tls_server()).refused(|| "a TLS server context".to_owned())?;
        // So that the experiment decides what is used, not the distribution: a small key too, which is read next.
        context.set_security_level(0);
        self.set_identity(&mut context)?;
        self.set_algorithms(&mut context)?;
        self.set_sessions(&mut context)?;
        // As nginx has it: idle connections hold no buffers, and one read fetches header and body of a record.
        context
            .set_mode(SslMode::RELEASE_BUFFERS | SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
        context.set_read_ahead(true);
        context
            .set_alpn_select_callback(|_, offered| select_next_proto(b"\x08http/1.1", offered).ok_or(AlpnError::NOACK));
        Ok(context.build())
    }

    fn set_identity(&self, context: &mut SslContextBuilder) -> Result<(), TlsError> {
        context
            .set_certificate_chain_file(&self.certificate)
            .refused(|| format!("the certificate {}", self.certificate.display()))?;
        context
            .set_private_key_file(&self.key, SslFiletype::PEM)
            .and_then(|()| context.check_private_key())
            .refused(|| format!("the key {} for the certificate {}", self.key.display(), self.certificate.display()))
    }

    fn set_algorithms(&self, context: &mut SslContextBuilder) -> Result<(), TlsError> {
        let protocol = |version: Option<&Version>| match version {
            Some(Version::Tls12) => SslVersion::TLS1_2,
            _ => SslVersion::TLS1_3,
        };
        let lowest = if self.versions.is_empty() { SslVersion::TLS1_2 } else { protocol(self.versions.iter().min()) };
        context.set_min_proto_version(Some(lowest)).refused(|| "the lowest TLS version".to_owned())?;
        let highest = protocol(self.versions.iter().max());
        context.set_max_proto_version(Some(highest)).refused(|| "the highest TLS version".to_owned())?;
        if let Some(list) = self.names_of(Version::Tls12) {
            context.set_cipher_list(&list).refused(|| format!("the suites {list}"))?;
        }
        if let Some(list) = self.names_of(Version::Tls13) {
            context.set_ciphersuites(&list).refused(|| format!("the suites {list}"))?;
        }
        if !self.groups.is_empty() {
            let list = join(&self.groups);
            context.set_groups_list(&list).refused(|| format!("the groups {list}"))?;
        }
        context.set_options(
            SslOptions::NO_COMPRESSION | SslOptions::NO_RENEGOTIATION | SslOptions::CIPHER_SERVER_PREFERENCE,
        );
        if !self.encrypt_then_mac {
            context.set_options(SslOptions::from_bits_retain(NO_ENCRYPT_THEN_MAC));
        }
        Ok(())
    }

    fn names_of(&self, version: Version) -> Option<String> {
        let names: Vec<_> =
            self.suites.iter().filter(|suite| suite.version() == version).map(|suite| suite.openssl_name()).collect();
        (!names.is_empty()).then(|| names.join(":"))
    }

    fn set_sessions(&self, context: &mut SslContextBuilder) -> Result<(), TlsError> {
        context.set_session_id_context(b"tlsdyno").refused(|| "the session context".to_owned())?;
        context.set_session_cache_mode(if self.session_cache {
            SslSessionCacheMode::SERVER
        } else {
            SslSessionCacheMode::OFF
        });
        context.set_session_cache_size(SESSIONS);
        if let Some(seconds) = self.session_timeout_s {
            sys::set_session_timeout(context, seconds);
        }
        if !self.tickets {
            context.set_options(SslOptions::NO_TICKET);
        }
        if self.early_data {
            context.set_options(SslOptions::from_bits_retain(NO_ANTI_REPLAY));
            context.set_max_early_data(EARLY_DATA_BYTES).refused(|| "early data".to_owned())?;
        }
        if !self.tickets && !self.session_cache {
            // They could never be resumed.
            context.set_num_tickets(0).refused(|| "zero tickets".to_owned())?;
        }
        Ok(())
    }
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(":")
}
