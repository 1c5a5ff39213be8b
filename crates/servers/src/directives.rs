//! What an operator writes into the configuration of a server to have a setting: the lines under a remedy.
//!
//! Paths are examples. A test (`tests/servers/directives.rs`) has each server check these lines, and starts it with
//! those for ticket keys: nginx 1.22, Apache httpd 2.4, HAProxy 2.6 and lighttpd 1.4 on Debian 12.

use tlsdyno_record::model::{CertificateKind, ServerName, SessionCache, TicketKeys, TlsChange};
use tlsdyno_tls::{Group, Suite, Version};

use super::driver_of;

pub(super) const SITE_CHAIN: &str = "/etc/ssl/site.pem";
pub(super) const SITE_KEY: &str = "/etc/ssl/site.key";
pub(super) const SITE_TICKET_KEY: &str = "/run/tls/ticket.key";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The version of TLS, and no other.
    Version(Version),
    /// TLS 1.3 beside TLS 1.2.
    AlsoTls13,
    /// This suite of its version, and no other.
    Suite(Suite),
    /// This group before others.
    Group(Group),
    /// These groups, the preferred one first, by OpenSSL's names with colons between.
    Groups(String),
    /// These cipher suites up to TLS 1.2, the preferred one first, by OpenSSL's names with colons between.
    Ciphers(&'static str),
    /// The kind of certificate, in place of what is there.
    Certificate(CertificateKind),
    /// A certificate beside that which is there, in these files, where the server can show two.
    AlsoCertificate(CertificateFile),
    SessionCache(SessionCache),
    SessionTimeout(u32),
    Tickets(bool),
    TicketKeys(TicketKeys),
    /// Early data is taken (RFC 9846 section 8: only requests that may be repeated are safe in it).
    EarlyData,
    /// HTTP/2 beside HTTP/1.1, where clients offer it.
    Http2,
    /// A connection without a request is kept so long, seconds.
    KeepAlive(u32),
    RecordBytes(u32),
    Processors(u32),
    /// An accelerator, which comes as a provider of OpenSSL 3.
    Accelerator {
        /// The server works on other connections while the accelerator computes.
        asynchronous: bool,
    },
    /// Kernel TLS. The stage of plain data bounds what it gains.
    KernelTls,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFile {
    pub chain: String,
    pub key: String,
    pub advice: String,
}

impl CertificateFile {
    /// Of this kind, beside the first of these: where certbot got that, another of certbot's for the same name.
    pub fn beside(paths: &[String], host: Option<&str>, kind: CertificateKind) -> CertificateFile {
        let mut names = paths.iter().filter_map(|path| path.strip_prefix("/etc/letsencrypt/live/"));
        let Some(name) = names.next().and_then(|path| path.split('/').next()) else {
            return CertificateFile::example(kind);
        };
        let (second, host) = (format!("{name}-ecdsa"), host.and_then(|host| host.split(':').next()).unwrap_or(name));
        CertificateFile {
            chain: format!("/etc/letsencrypt/live/{second}/fullchain.pem"),
            key: format!("/etc/letsencrypt/live/{second}/privkey.pem"),
            advice: format!("certbot certonly --key-type ecdsa --cert-name {second} -d {host}, as you got the first"),
        }
    }

    /// An example of this kind, beside the certificate of the other examples.
    pub fn example(kind: CertificateKind) -> CertificateFile {
        CertificateFile {
            chain: "/etc/ssl/site-second.pem".to_owned(),
            key: "/etc/ssl/site-second.key".to_owned(),
            advice: advice_for(kind).replace("site.key", "site-second.key"),
        }
    }
}

impl Setting {
    /// A version where the other one is spoken now: nobody is locked out by the newer one.
    pub fn of_version(version: Version) -> Setting {
        if version == Version::Tls13 { Setting::AlsoTls13 } else { Setting::Version(version) }
    }

    pub fn of_change(change: &TlsChange) -> Vec<Setting> {
        let settings = [
            change.certificate.map(Setting::Certificate),
            change.version.map(Setting::of_version),
            change.suite.map(Setting::Suite),
            change.group.map(Setting::Group),
            change.session_cache.map(Setting::SessionCache),
            change.tickets.map(Setting::Tickets),
            change.ticket_keys.map(Setting::TicketKeys),
            change.session_timeout_s.map(Setting::SessionTimeout),
            change.early_data.filter(|on| *on).map(|_| Setting::EarlyData),
            change.http2.filter(|on| *on).map(|_| Setting::Http2),
            change.keep_alive_s.map(Setting::KeepAlive),
            change.record_bytes.map(Setting::RecordBytes),
        ];
        settings.into_iter().flatten().collect()
    }
}

/// What an operator offers with a group: the usual ones behind it.
pub(super) fn groups_with(group: Group) -> String {
    let usual = [Group::X25519, Group::P256, Group::P384].into_iter().filter(|other| *other != group);
    std::iter::once(group).chain(usual).map(|group| group.to_string()).collect::<Vec<_>>().join(":")
}

/// The lines for a setting of a server. Empty where no line does it.
pub fn lines(server: ServerName, setting: Setting) -> Vec<String> {
    let advice = match &setting {
        Setting::Certificate(kind) => Some(advice_for(*kind)),
        Setting::AlsoCertificate(file) => Some(file.advice.clone()),
        _ => None,
    };
    let own = (driver_of(server).lines)(setting);
    advice.map(|advice| format!("# {advice}")).into_iter().chain(own).collect()
}

fn advice_for(kind: CertificateKind) -> String {
    format!("{}, then a certificate for it from your authority", key_command(kind))
}

fn key_command(kind: CertificateKind) -> String {
    match kind {
        CertificateKind::P256 => "openssl ecparam -name prime256v1 -genkey -noout -out site.key".to_owned(),
        CertificateKind::P384 => "openssl ecparam -name secp384r1 -genkey -noout -out site.key".to_owned(),
        CertificateKind::Ed25519 | CertificateKind::MlDsa44 | CertificateKind::MlDsa65 | CertificateKind::MlDsa87 => {
            format!("openssl genpkey -algorithm {} -out site.key", kind.name())
        }
        rsa => format!("openssl genrsa -out site.key {}", rsa.rsa_bits().unwrap_or_default()),
    }
}

/// The lines for a provider in the configuration of OpenSSL, which most servers leave it to.
pub(super) fn openssl_provider() -> Vec<String> {
    owned(&[
        "# in the openssl.cnf that the server reads; CARD is what the maker calls its provider",
        "[provider_sect]",
        "CARD = card_sect",
        "default = default_sect",
        "[card_sect]",
        "activate = 1",
        // Comes by itself only where no other provider is named.
        "[default_sect]",
        "activate = 1",
    ])
}

pub(super) fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
