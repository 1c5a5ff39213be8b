//! TLS as the server is configured and as the client offers it.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_tls::{Group, Suite, Version};

use super::{SessionCache, TicketKeys};

/// TLS settings of an experiment. Names as people type them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// `1.2` or `1.3`.
    pub version: String,
    /// OpenSSL or IANA name; `None`: the client's order, AES-128-GCM first as browsers do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// `X25519`, `P-256`, `P-384`, or a hybrid with ML-KEM as `X25519MLKEM768`.
    pub group: String,
    /// `rsa-2048`, `rsa-3072`, `rsa-4096`, `p-256`, `p-384`.
    pub certificate: String,
    /// Session tickets on the server (TLS 1.3: stateless tickets).
    pub tickets: bool,
    /// Where the keys of the tickets come from.
    pub ticket_keys: TicketKeys,
    /// Session cache on the server (TLS 1.2 IDs; TLS 1.3: stateful tickets where tickets are off).
    pub session_cache: SessionCache,
    /// Early data: the client sends its first request with the hello when it resumes (TLS 1.3), and the server takes
    /// it.
    pub early_data: bool,
    /// The client offers encrypt-then-MAC (CBC suites of TLS 1.2).
    pub encrypt_then_mac: bool,
}

impl Default for Tls {
    fn default() -> Tls {
        Tls {
            version: "1.3".to_owned(),
            suite: None,
            group: "X25519".to_owned(),
            certificate: "rsa-2048".to_owned(),
            tickets: true,
            ticket_keys: TicketKeys::Own,
            session_cache: SessionCache::Shared,
            early_data: false,
            encrypt_then_mac: true,
        }
    }
}

impl Tls {
    /// The version, parsed.
    pub fn version(&self) -> Result<Version> {
        Ok(self.version.parse()?)
    }

    /// The suites the client offers, parsed: the one asked for, or all of the version with AES-128-GCM first.
    pub fn suites(&self) -> Result<Vec<Suite>> {
        let version = self.version()?;
        match &self.suite {
            Some(name) => {
                let suite: Suite = name.parse()?;
                ensure!(
                    suite.version() == version,
                    "suite {suite} belongs to TLS {}, but the experiment asks for TLS {version}; \
                     choose --tls {} or another --suite",
                    suite.version(),
                    suite.version()
                );
                Ok(vec![suite])
            }
            None => Ok(Suite::ALL.iter().copied().filter(|suite| suite.version() == version).collect()),
        }
    }

    /// The key-agreement group, parsed.
    pub fn group(&self) -> Result<Group> {
        Ok(self.group.parse()?)
    }

    /// The group asked for, and the curve of an ECDSA certificate, which TLS 1.2 needs in the list too: OpenSSL picks a
    /// certificate only if the client named its curve. A hybrid, which TLS 1.2 does not have, stays alone: a curve
    /// behind it would get a key share.
    pub fn groups(&self) -> Result<Vec<Group>> {
        let mut groups = vec![self.group()?];
        if let Some(curve) = self.certificate.strip_prefix("p-").filter(|_| !groups[0].is_hybrid()) {
            let curve = format!("P-{curve}").parse()?;
            if !groups.contains(&curve) {
                groups.push(curve);
            }
        }
        Ok(groups)
    }

    /// Whether the server keeps or hands out sessions that can be resumed.
    pub fn is_resumable(&self) -> bool {
        self.tickets || self.session_cache != SessionCache::Off
    }
}

/// What a configuration changes of [`Tls`]. What is not given stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsChange {
    /// See [`Tls::version`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// See [`Tls::suite`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// See [`Tls::group`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// See [`Tls::certificate`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// See [`Tls::tickets`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tickets: Option<bool>,
    /// See [`Tls::ticket_keys`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket_keys: Option<TicketKeys>,
    /// See [`Tls::session_cache`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_cache: Option<SessionCache>,
    /// See [`Tls::early_data`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_data: Option<bool>,
}

impl TlsChange {
    /// `tls` with the changes. A suite belongs to one version, so that another version without a suite of its own has
    /// its usual ones.
    pub fn applied(&self, tls: &Tls) -> Tls {
        let change = self.clone();
        let same_version = change.version.as_ref().is_none_or(|version| *version == tls.version);
        Tls {
            version: change.version.unwrap_or_else(|| tls.version.clone()),
            suite: change.suite.or_else(|| tls.suite.clone().filter(|_| same_version)),
            group: change.group.unwrap_or_else(|| tls.group.clone()),
            certificate: change.certificate.unwrap_or_else(|| tls.certificate.clone()),
            tickets: change.tickets.unwrap_or(tls.tickets),
            ticket_keys: change.ticket_keys.unwrap_or(tls.ticket_keys),
            session_cache: change.session_cache.unwrap_or(tls.session_cache),
            early_data: change.early_data.unwrap_or(tls.early_data),
            encrypt_then_mac: tls.encrypt_then_mac,
        }
    }

    pub(super) fn is_none(&self) -> bool {
        *self == TlsChange::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificates_curve_is_offered_behind_another_curve_only() {
        let groups = |group: &str, certificate: &str| {
            let tls = Tls { group: group.to_owned(), certificate: certificate.to_owned(), ..Tls::default() };
            tls.groups().unwrap()
        };
        assert_eq!(groups("X25519", "rsa-2048"), [Group::X25519]);
        assert_eq!(groups("X25519", "p-384"), [Group::X25519, Group::P384]);
        assert_eq!(groups("P-256", "p-256"), [Group::P256]);
        assert_eq!(groups("X25519MLKEM768", "p-256"), [Group::X25519MlKem768]);
    }
}
