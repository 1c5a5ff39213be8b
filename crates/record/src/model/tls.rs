//! TLS as the server is configured and as the client offers it.

use serde::{Deserialize, Serialize};
use tlsdyno_tls::{Group, Suite, Version};

use super::{CertificateKind, SessionCache, TicketKeys};

/// TLS settings of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// Version of TLS.
    pub version: Version,
    /// The suite; `None`: the client's order, AES-128-GCM first as browsers do.
    pub suite: Option<Suite>,
    /// The key-agreement group.
    pub group: Group,
    /// The server's certificate; `None`: [`Tls::certificate`]. A server of the user's own has what stands in its
    /// configuration, and so for the next two.
    pub certificate: Option<CertificateKind>,
    /// Certificates that the server sends: its own, and those between it and the root.
    #[serde(skip_serializing_if = "is_one")]
    pub chain_count: u32,
    /// Session tickets on the server (TLS 1.3: stateless tickets).
    pub tickets: bool,
    /// Where the keys of the tickets come from; `None`: [`Tls::ticket_keys`].
    pub ticket_keys: Option<TicketKeys>,
    /// Session cache on the server (TLS 1.2 IDs; TLS 1.3: stateful tickets where tickets are off); `None`:
    /// [`Tls::session_cache`].
    pub session_cache: Option<SessionCache>,
    /// How long the server resumes a session, seconds; `None`: as its driver has it, an hour where it can be told.
    pub session_timeout_s: Option<u32>,
    /// Early data: the client sends its first request with the hello when it resumes (TLS 1.3), and the server takes
    /// it.
    pub early_data: bool,
    /// The client offers encrypt-then-MAC (CBC suites of TLS 1.2).
    pub encrypt_then_mac: bool,
    /// HTTP/2: the client offers it (ALPN), and the server takes it.
    #[serde(skip_serializing_if = "is_off")]
    pub http2: bool,
}

fn is_off(on: &bool) -> bool {
    !on
}

fn is_one(length: &u32) -> bool {
    *length == 1
}

impl Default for Tls {
    fn default() -> Tls {
        Tls {
            version: Version::Tls13,
            suite: None,
            group: Group::X25519,
            certificate: None,
            chain_count: 1,
            tickets: true,
            ticket_keys: None,
            session_cache: None,
            session_timeout_s: None,
            early_data: false,
            encrypt_then_mac: true,
            http2: false,
        }
    }
}

impl Tls {
    /// Certificate of a server that tlsdyno configures, whether it is named or not.
    pub fn certificate(&self) -> CertificateKind {
        self.certificate.unwrap_or(CertificateKind::Rsa2048)
    }

    /// Where the ticket keys of a server that tlsdyno configures come from, whether it is named or not.
    pub fn ticket_keys(&self) -> TicketKeys {
        self.ticket_keys.unwrap_or_default()
    }

    /// Where a server that tlsdyno configures keeps sessions, whether it is named or not.
    pub fn session_cache(&self) -> SessionCache {
        self.session_cache.unwrap_or_default()
    }

    /// With all that is left to the server said, as one has it that tlsdyno configures.
    #[must_use]
    pub fn filled(&self) -> Tls {
        Tls {
            certificate: Some(self.certificate()),
            ticket_keys: Some(self.ticket_keys()),
            session_cache: Some(self.session_cache()),
            ..self.clone()
        }
    }

    /// What is asked of the server itself, not only of the handshakes that a client offers. It can be said as what a
    /// configuration changes.
    pub fn of_server(&self) -> TlsChange {
        TlsChange {
            certificate: self.certificate,
            chain_count: (self.chain_count != 1).then_some(self.chain_count),
            tickets: (!self.tickets).then_some(false),
            ticket_keys: self.ticket_keys,
            session_cache: self.session_cache,
            session_timeout_s: self.session_timeout_s,
            early_data: self.early_data.then_some(true),
            http2: self.http2.then_some(true),
            ..TlsChange::default()
        }
    }

    /// The suites the client offers: the one asked for, or all of the version with AES-128-GCM first.
    pub fn suites(&self) -> Vec<Suite> {
        let of_version = |suite: &Suite| suite.version() == self.version;
        self.suite.map_or_else(|| Suite::ALL.iter().copied().filter(of_version).collect(), |suite| vec![suite])
    }

    /// The group asked for, and the curve of an ECDSA certificate, which TLS 1.2 needs in the list too: OpenSSL picks a
    /// certificate only if the client named its curve. A hybrid, which TLS 1.2 does not have, stays alone: a curve
    /// behind it would get a key share.
    pub fn groups(&self) -> Vec<Group> {
        self.groups_with(self.certificate().curve())
    }

    /// As [`Tls::groups`], for a server of the user's own, whose certificate may be any where none is asked for.
    pub fn groups_of_own(&self) -> Vec<Group> {
        match self.certificate {
            None if self.version == Version::Tls12 => self.groups_with([Group::P256, Group::P384, Group::P521]),
            None => vec![self.group],
            Some(_) => self.groups(),
        }
    }

    fn groups_with(&self, curves: impl IntoIterator<Item = Group>) -> Vec<Group> {
        let curves = curves.into_iter().filter(|curve| *curve != self.group && !self.group.is_hybrid());
        [self.group].into_iter().chain(curves).collect()
    }

    /// Whether the server keeps or hands out sessions that can be resumed.
    pub fn is_resumable(&self) -> bool {
        self.tickets || self.session_cache() != SessionCache::Off
    }
}

/// What a configuration changes of [`Tls`]. What is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsChange {
    /// See [`Tls::version`].
    pub version: Option<Version>,
    /// See [`Tls::suite`].
    pub suite: Option<Suite>,
    /// See [`Tls::group`].
    pub group: Option<Group>,
    /// See [`Tls::certificate`].
    pub certificate: Option<CertificateKind>,
    /// See [`Tls::chain_count`].
    pub chain_count: Option<u32>,
    /// See [`Tls::tickets`].
    pub tickets: Option<bool>,
    /// See [`Tls::ticket_keys`].
    pub ticket_keys: Option<TicketKeys>,
    /// See [`Tls::session_cache`].
    pub session_cache: Option<SessionCache>,
    /// See [`Tls::session_timeout_s`].
    pub session_timeout_s: Option<u32>,
    /// See [`Tls::early_data`].
    pub early_data: Option<bool>,
    /// See [`Tls::http2`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2: Option<bool>,
    /// How long an installed server keeps a connection without a request, seconds. Users of a log close theirs then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive_s: Option<u32>,
    /// Bytes of one TLS record of an installed server, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_bytes: Option<u32>,
}

impl TlsChange {
    /// `tls` with the changes. A suite belongs to one version, so that another version without a suite of its own has
    /// its usual ones.
    pub fn applied(&self, tls: &Tls) -> Tls {
        let version = self.version.unwrap_or(tls.version);
        Tls {
            version,
            suite: self.suite.or(tls.suite.filter(|_| version == tls.version)),
            group: self.group.unwrap_or(tls.group),
            certificate: self.certificate.or(tls.certificate),
            chain_count: self.chain_count.unwrap_or(tls.chain_count),
            tickets: self.tickets.unwrap_or(tls.tickets),
            ticket_keys: self.ticket_keys.or(tls.ticket_keys),
            session_cache: self.session_cache.or(tls.session_cache),
            session_timeout_s: self.session_timeout_s.or(tls.session_timeout_s),
            early_data: self.early_data.unwrap_or(tls.early_data),
            encrypt_then_mac: tls.encrypt_then_mac,
            http2: self.http2.unwrap_or(tls.http2),
        }
    }

    /// These changes, and those of `base` where they say nothing.
    #[must_use]
    pub fn over(&self, base: &TlsChange) -> TlsChange {
        TlsChange {
            version: self.version.or(base.version),
            suite: self.suite.or(base.suite),
            group: self.group.or(base.group),
            certificate: self.certificate.or(base.certificate),
            chain_count: self.chain_count.or(base.chain_count),
            tickets: self.tickets.or(base.tickets),
            ticket_keys: self.ticket_keys.or(base.ticket_keys),
            session_cache: self.session_cache.or(base.session_cache),
            session_timeout_s: self.session_timeout_s.or(base.session_timeout_s),
            early_data: self.early_data.or(base.early_data),
            http2: self.http2.or(base.http2),
            keep_alive_s: self.keep_alive_s.or(base.keep_alive_s),
            record_bytes: self.record_bytes.or(base.record_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificates_curve_is_offered_behind_another_curve_only() {
        let groups = |group: &str, certificate: &str| {
            let (group, certificate) = (group.parse().unwrap(), Some(certificate.parse().unwrap()));
            Tls { group, certificate, ..Tls::default() }.groups()
        };
        let unknown = Tls { version: Version::Tls12, ..Tls::default() };
        assert_eq!(unknown.groups_of_own(), [Group::X25519, Group::P256, Group::P384, Group::P521]);
        assert_eq!((unknown.groups(), Tls::default().groups_of_own()), (vec![Group::X25519], vec![Group::X25519]));
        assert_eq!(groups("X25519", "rsa-2048"), [Group::X25519]);
        assert_eq!(groups("X25519", "p-384"), [Group::X25519, Group::P384]);
        assert_eq!(groups("P-256", "p-256"), [Group::P256]);
        assert_eq!(groups("X25519MLKEM768", "p-256"), [Group::X25519MlKem768]);
    }
}
