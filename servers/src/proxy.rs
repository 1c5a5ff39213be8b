//! Proxies that end TLS in front of a server without it, as an array has them: each with CPU time of its own, and with
//! nothing else behind it.

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

impl Proxy {
    /// What it is installed by; `None`: it is part of tlsdyno.
    fn package(self) -> Option<&'static Package> {
        match self {
            Proxy::Own => None,
            Proxy::Haproxy => Some(&haproxy::PACKAGE),
            Proxy::Nginx => Some(&nginx::PACKAGE),
            Proxy::Stunnel => Some(&stunnel::PACKAGE),
        }
    }

    /// Refuses a proxy that is not installed.
    ///
    /// # Errors
    /// What is missing and how to install it; [`tlsdyno_base::fault::Fault::Environment`].
    pub fn refuse_missing(self) -> Result<()> {
        let otherwise = format!(", or take another --proxy than {self}; {} is always there", Proxy::Own);
        self.package().map_or(Ok(()), |package| package.require(&otherwise).map(drop))
    }
}

/// Starts a proxy in front of the origin of `spec`, whose `kind` does not count, in a directory of its own inside
/// `run`.
///
/// # Errors
/// Its program is missing (with the remedy), or it does not start (with what it said).
pub fn start_proxy(proxy: Proxy, spec: &ServerSpec, run: &Path) -> Result<Instance> {
    let of = |kind| start(&ServerSpec { kind, ..spec.clone() }, run);
    let started = match proxy {
        Proxy::Own => of(ServerName::Builtin),
        Proxy::Haproxy => of(ServerName::Haproxy),
        Proxy::Nginx => of(ServerName::Nginx),
        Proxy::Stunnel => stunnel::start(spec, run),
    };
    started.with_context(|| format!("failed to start the proxy {proxy}"))
}
