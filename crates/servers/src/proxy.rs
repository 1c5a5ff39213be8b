//! Proxies that end TLS in front of a server without it, as an array has them: each with CPU time of its own, and with
//! nothing else behind it.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use tlsdyno_record::model::ServerName;
use tlsdyno_tls::named;

use super::programs::Package;
use super::{Instance, ServerSpec, haproxy, nginx, start, stunnel};

named! {
    /// A proxy that ends TLS in front of the transaction server.
    #[derive(Default)]
    pub enum Proxy: "proxy" {
        /// tlsdyno's own (`tlsdyno serve --origin`), which keeps connections to the server
        Own = "own",
        /// the installed HAProxy, which keeps connections to the server (`http-reuse always`)
        #[default]
        Haproxy = "haproxy",
        /// the installed nginx, which keeps connections to the server (`keepalive`)
        Nginx = "nginx",
        /// the installed stunnel, which connects to the server anew for each client's connection
        Stunnel = "stunnel",
    }
}

/// What a server passes all requests on to, over plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A server, connections to which are kept.
    Server(SocketAddr),
    /// A dispatcher that chooses a server for each connection: so each request has one of its own (HAProxy, nginx).
    Dispatcher(SocketAddr),
    /// Servers by a consistent hash of the path, connections to which are kept (HAProxy, nginx).
    ByPath(Vec<SocketAddr>),
}

impl Origin {
    /// The one server; `None`: it is more than that.
    pub(super) fn server(&self) -> Option<SocketAddr> {
        if let Origin::Server(address) = self { Some(*address) } else { None }
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        match self {
            Origin::Server(one) | Origin::Dispatcher(one) => std::slice::from_ref(one),
            Origin::ByPath(several) => several,
        }
    }

    pub(super) fn is_kept(&self) -> bool {
        !matches!(self, Origin::Dispatcher(_))
    }

    pub(super) fn is_by_path(&self) -> bool {
        matches!(self, Origin::ByPath(_))
    }
}

impl Proxy {
    /// Proxies that can choose a server for each request.
    pub const FRONT_ENDS: [Proxy; 2] = [Proxy::Haproxy, Proxy::Nginx];

    /// The server that it is; `None`: stunnel, which serves nothing.
    pub fn server(self) -> Option<ServerName> {
        match self {
            Proxy::Own => Some(ServerName::Builtin),
            Proxy::Haproxy => Some(ServerName::Haproxy),
            Proxy::Nginx => Some(ServerName::Nginx),
            Proxy::Stunnel => None,
        }
    }

    /// What it is installed by; `None`: it is part of tlsdyno.
    fn package(self) -> Option<&'static Package> {
        match self {
            Proxy::Own => None,
            Proxy::Haproxy => Some(&haproxy::PACKAGE),
            Proxy::Nginx => Some(&nginx::PACKAGE),
            Proxy::Stunnel => Some(&stunnel::PACKAGE),
        }
    }

    /// Refuses a proxy that is not installed. `otherwise`: what else one can do.
    pub fn refuse_missing(self, otherwise: &str) -> Result<()> {
        self.package().map_or(Ok(()), |package| package.require(otherwise).map(drop))
    }
}

/// Starts a proxy in front of the origin of `spec`, whose `kind` does not count, in a directory of its own inside
/// `run`.
pub fn start_proxy(proxy: Proxy, spec: &ServerSpec, run: &Path) -> Result<Instance> {
    let started = match proxy.server() {
        Some(kind) => start(&ServerSpec { kind, ..spec.clone() }, run),
        None => stunnel::start(spec, run),
    };
    started.with_context(|| format!("failed to start the proxy {proxy}"))
}
