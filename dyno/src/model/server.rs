//! The server under test.

use serde::{Deserialize, Serialize};

/// The server under test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Which server.
    #[serde(default)]
    pub kind: ServerName,
    /// `command` only: the command line, with `{port}`, `{docroot}`, `{dir}`, `{certificate}` and `{key}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// `command` only: where it listens, for example `127.0.0.1:{port}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// `command` only: where it serves the same objects without TLS. Without it no plain-HTTP share is claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_address: Option<String>,
    /// Let a server with no-op stages listen beyond loopback: a total break of its TLS for everybody who can reach it.
    #[serde(default)]
    pub allow_insecure_listen: bool,
}

/// A server driver by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerName {
    /// `tlsdyno serve`.
    #[default]
    Builtin,
    /// The distribution's nginx with a generated configuration.
    Nginx,
    /// The distribution's Apache with mod_ssl and the event MPM.
    #[serde(rename = "apache")]
    ApacheEvent,
    /// The same with the prefork MPM.
    #[serde(rename = "apache-prefork")]
    ApachePrefork,
    /// HAProxy, ending TLS in front of a plain server of ours.
    Haproxy,
    /// The distribution's lighttpd with mod_openssl.
    Lighttpd,
    /// The user's own command line.
    Command,
}

impl ServerName {
    /// The name in experiments and reports.
    pub const fn name(self) -> &'static str {
        match self {
            ServerName::Builtin => "builtin",
            ServerName::Nginx => "nginx",
            ServerName::ApacheEvent => "apache",
            ServerName::ApachePrefork => "apache-prefork",
            ServerName::Haproxy => "haproxy",
            ServerName::Lighttpd => "lighttpd",
            ServerName::Command => "command",
        }
    }
}
