//! The server under test.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tlsdyno_tls::named;

use super::{without_secrets, without_value};

/// The server under test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Kind of the server.
    pub kind: ServerName,
    /// `command` only: the command line, with `{port}`, `{docroot}`, `{dir}`, `{certificate}` and `{key}`.
    pub command: Option<String>,
    /// Where it listens: a command for example on `127.0.0.1:{port}`, another on an address of this machine that
    /// workers elsewhere reach. `None`: loopback.
    pub address: Option<String>,
    /// `command` only: where it serves the same objects without TLS. Without it no plain-HTTP share is claimed.
    pub plain_address: Option<String>,
    /// `command` only: an installed nginx configuration, of which a copy is started on ports of ours. The command is
    /// then its program.
    pub config: Option<PathBuf>,
    /// `command` only: the name that clients ask for, as server name and in the header Host; `None`: localhost.
    pub host: Option<String>,
    /// With `config` only: applications behind it are asked for real, as often as the load leads there. Otherwise each
    /// is asked once for each request, by plain HTTP, and its answers are replayed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ask_backend: bool,
    /// What is always so without `ask_backend`; files have it from before.
    #[serde(skip_serializing)]
    pub replay_backend: bool,
    /// With `config` only: hosts of applications, other than this machine, that the user answers for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub may_load: Vec<String>,
    /// `command` only: what clients bring that it asks for.
    #[serde(skip_serializing_if = "crate::model::is_default")]
    pub client: ClientModel,
    /// Installations of OpenSSL (prefixes): the server uses the first instead of the system's. With a second each
    /// configuration is there once more on that, and the two are compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<PathBuf>,
    /// `command` only: directories that it writes for real. What it writes elsewhere is thrown away where the system
    /// allows that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<PathBuf>,
    /// Let a server with no-op stages listen beyond loopback: a total break of its TLS for everybody who can reach it.
    pub allow_insecure_listen: bool,
}

/// What clients bring that a server of the user's own asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientModel {
    /// Further headers of each request: `Name: value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Certificate of the clients with its chain, a PEM file.
    pub certificate: Option<PathBuf>,
    /// Key of that certificate, a PEM file.
    pub key: Option<PathBuf>,
}

impl ClientModel {
    /// These settings without the values of headers: they may be passwords, and a record may be given to others.
    #[must_use]
    pub fn without_secrets(&self) -> ClientModel {
        ClientModel { headers: self.headers.iter().map(|header| without_value(header)).collect(), ..self.clone() }
    }
}

impl Server {
    /// The server as a record keeps it, which may be given to others.
    #[must_use]
    pub fn without_secrets(&self) -> Server {
        let command = self.command.as_deref().map(without_secrets);
        Server { client: self.client.without_secrets(), command, ..self.clone() }
    }

    /// The address of this machine that it listens on.
    ///
    /// # Errors
    /// What is given is none.
    pub fn ip(&self) -> Result<IpAddr> {
        let Some(text) = &self.address else { return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)) };
        if !self.kind.is_users_own() {
            return text.parse().with_context(|| {
                format!("`{text}` is no address of this machine that workers reach; write for example 192.0.2.1")
            });
        }
        ip_of_command(text)
    }

    /// The address of this machine at which a server command serves without TLS.
    ///
    /// # Errors
    /// What is given is none.
    pub fn plain_ip(&self) -> Result<Option<IpAddr>> {
        let plain = self.plain_address.as_ref().filter(|_| self.kind.is_users_own());
        plain.map(|text| ip_of_command(text)).transpose()
    }
}

fn ip_of_command(text: &str) -> Result<IpAddr> {
    let example = text.replace("{port}", "1").replace("{plain_port}", "2");
    let example: SocketAddr = example.parse().with_context(|| {
        format!("`{text}` is not an address; expected IP:PORT, for example 127.0.0.1:8443 or 127.0.0.1:{{port}}")
    })?;
    Ok(example.ip())
}

named! {
    /// A server by name. What it can do and how it is started stands in its driver (`servers/`).
    #[derive(Default)]
    pub enum ServerName: "server" {
        /// tlsdyno's own server on the system's OpenSSL
        #[default]
        Builtin = "builtin",
        /// the installed nginx with a generated minimal configuration
        Nginx = "nginx",
        /// the installed Apache with mod_ssl and the event MPM, likewise
        ApacheEvent = "apache",
        /// the same with the prefork MPM
        ApachePrefork = "apache-prefork",
        /// the installed HAProxy, ending TLS in front of a plain server of ours
        Haproxy = "haproxy",
        /// the installed lighttpd with mod_openssl, with a generated minimal configuration
        Lighttpd = "lighttpd",
        /// The user's own command line. `--server-command` chooses it on the command line.
        Command = "command",
    }
}

impl ServerName {
    /// All that tlsdyno configures: every server but a user's own command.
    pub fn configured() -> impl Iterator<Item = ServerName> {
        ServerName::ALL.into_iter().filter(|server| !server.is_users_own())
    }

    /// Whether the command line is the user's, and so what stands in its configuration: its TLS library, its ports,
    /// and whether a second one can be started beside it.
    pub fn is_users_own(self) -> bool {
        self == ServerName::Command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_no_secret_of_a_server() {
        let client = ClientModel { headers: vec!["Authorization: hunter2".to_owned()], ..ClientModel::default() };
        let command = Some("env API_TOKEN=hunter2 srv --port 1".to_owned());
        let kept = Server { client, command, ..Server::default() }.without_secrets();
        assert_eq!(kept.command.as_deref(), Some("env API_TOKEN=… srv --port 1"));
        assert_eq!(kept.client.headers, ["Authorization: …"]);
    }
}
