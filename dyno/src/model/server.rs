//! The server under test.

use clap::ValueEnum;
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

/// A server by name. What it can do and how it is started stands in its driver (`servers/`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ServerName {
    /// tlsdyno's own server on the system's OpenSSL
    #[default]
    Builtin,
    /// the installed nginx with a generated minimal configuration
    Nginx,
    /// the installed Apache with mod_ssl and the event MPM, likewise
    #[serde(rename = "apache")]
    #[value(name = "apache")]
    ApacheEvent,
    /// the same with the prefork MPM
    ApachePrefork,
    /// the installed HAProxy, ending TLS in front of a plain server of ours
    Haproxy,
    /// the installed lighttpd with mod_openssl, with a generated minimal configuration
    Lighttpd,
    /// The user's own command line. `--server-command` chooses it on the command line.
    #[value(skip)]
    Command,
}

impl ServerName {
    /// The name in experiments, reports and on the command line.
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

    /// All that tlsdyno configures: every server but a user's own command.
    pub fn configured() -> &'static [ServerName] {
        Self::value_variants()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_everywhere() {
        for server in ServerName::configured().iter().chain([&ServerName::Command]) {
            assert_eq!(serde_json::to_value(server).unwrap(), server.name());
            let flag = server.to_possible_value();
            assert_eq!(flag.as_ref().map_or("command", |flag| flag.get_name()), server.name());
        }
    }
}
