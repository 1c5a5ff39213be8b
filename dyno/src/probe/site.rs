//! A site, and how it may be probed.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tlsdyno_tls::crypto::verify::Trust;
use tlsdyno_tls::{Config, Effort, Group, StageSet, Version};

use super::fault::{Cause, FaultKind};
use crate::choice::choice;
use crate::load::url::Url;
use crate::load::{permission, tls};
use crate::model::job::TlsSpec;
use crate::servers::listening;
use crate::time::Time;

/// Flags that say how sites are probed.
#[derive(Clone, Debug, clap::Args)]
pub struct SiteOptions {
    /// Probe a host that is not this machine: name the one in the URL, and only one whose owner has agreed
    #[arg(long, value_name = "HOST")]
    pub i_may_probe: Vec<String>,

    /// How long each step may take: connecting, the handshake, the answer
    #[arg(long, default_value = "10s", value_name = "TIME")]
    pub timeout: Time,

    /// A certificate that cannot be trusted is a fault of the round; else it is only recorded
    #[arg(long)]
    pub verify: bool,

    /// Trusted roots in PEM form [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// TLS version [default: both]
    #[arg(long = "tls", value_name = "VERSION", value_parser = choice(Version::ALL))]
    pub version: Option<Version>,

    /// Groups, best first [default: the curves]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = choice(Group::ALL))]
    pub group: Vec<Group>,

    /// Offer no TLS 1.2 tickets: sessions are resumed by ID
    #[arg(long)]
    pub no_tickets: bool,

    /// Send no early data
    #[arg(long)]
    pub no_early_data: bool,

    /// IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    pub ipv4: bool,

    /// IPv6 only
    #[arg(short = '6', long)]
    pub ipv6: bool,

    /// Local address to connect from
    #[arg(long, value_name = "ADDRESS")]
    pub source: Option<IpAddr>,
}

/// A site, ready to be probed.
pub struct Site {
    /// The URL as it was typed.
    pub name: String,
    pub(super) url: Url,
    pub(super) request: Vec<u8>,
    /// Without and with early data.
    pub(super) configs: [Arc<Config>; 2],
    pub(super) trust: Arc<Trust>,
    pub(super) options: Arc<SiteOptions>,
}

impl Site {
    /// Sites that are probed alike.
    ///
    /// # Errors
    /// A text that is no https URL, one that is there twice, roots that cannot be read.
    pub fn all(urls: &[String], options: &SiteOptions) -> Result<Vec<Site>> {
        let options = Arc::new(options.clone());
        let trust = Arc::new(trust(options.ca_file.as_ref())?);
        let unique: std::collections::BTreeSet<&String> = urls.iter().collect();
        ensure!(unique.len() == urls.len(), "a URL is there twice; each site has rounds of its own");
        urls.iter().map(|url| Site::new(url, &options, &trust)).collect()
    }

    fn new(text: &str, options: &Arc<SiteOptions>, trust: &Arc<Trust>) -> Result<Site> {
        let url = Url::parse(text)?;
        ensure!(url.tls, "`{text}` has no TLS to probe; write https://…");
        let spec = |early_data| TlsSpec {
            versions: options.version.into_iter().collect(),
            suites: Vec::new(),
            groups: options.group.clone(),
            // The chain is verified when the clock has stopped, so that a bad one spoils no measurement.
            effort: Effort::Lean,
            noop: StageSet::NONE,
            encrypt_then_mac: true,
            tickets: !options.no_tickets,
            early_data,
            small_rsa_keys: false,
            universal: None,
            scripts: None,
            ca_file: None,
        };
        let config = |early_data| tls::config(&spec(early_data), &url.host, &[], None);
        let configs = [config(false)?, config(true)?];
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: tlsdyno-probe/{}\r\nAccept: */*\r\nConnection: close\r\n\r\n",
            url.path,
            url.host_header(),
            env!("CARGO_PKG_VERSION")
        )
        .into_bytes();
        let (options, trust) = (Arc::clone(options), Arc::clone(trust));
        Ok(Site { name: text.to_owned(), url, request, configs, trust, options })
    }

    /// The address of this round: the first that the resolver answers and the options allow.
    pub(super) fn look_up(&self) -> Result<SocketAddr, Cause> {
        let unknown = |why: String| Cause::new(FaultKind::Name, why);
        let wanted =
            |address: &SocketAddr| !(self.options.ipv4 && address.is_ipv6() || self.options.ipv6 && address.is_ipv4());
        let mut all = (self.url.host.as_str(), self.url.port)
            .to_socket_addrs()
            .map_err(|error| unknown(format!("no address for `{}`: {error}", self.url.host)))?;
        all.find(wanted).ok_or_else(|| unknown(format!("`{}` has no address of the wanted family", self.url.host)))
    }

    /// Whether the address that the name has now may be probed. Names change: it is asked in each round.
    pub(super) fn check_permission(&self, address: SocketAddr) -> Result<(), Cause> {
        check_permission(&self.url.host, address, &self.options.i_may_probe)
            .map_err(|error| Cause::new(FaultKind::Forbidden, error.to_string()))
    }

    /// Whether it is on another machine, or may be: nobody knows where a name leads that has no address now.
    pub fn is_foreign(&self) -> bool {
        !self.look_up().is_ok_and(|address| listening::is_loopback(address.ip()))
    }

    /// Refuses a site that may not be probed before the first packet goes out. A name without an address is no reason:
    /// that is for the rounds to tell.
    ///
    /// # Errors
    /// It is another machine, and nobody said that it may be probed.
    pub fn check(&self) -> Result<()> {
        match self.look_up() {
            Ok(address) => check_permission(&self.url.host, address, &self.options.i_may_probe),
            Err(_) => Ok(()),
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.options.timeout.0
    }
}

fn check_permission(host: &str, address: SocketAddr, allowed: &[String]) -> Result<()> {
    ensure!(
        permission::is_allowed(host, address, allowed),
        "{host} ({address}) is not this machine; if its owner has agreed to be probed, add --i-may-probe {host}"
    );
    Ok(())
}

fn trust(ca_file: Option<&PathBuf>) -> Result<Trust> {
    // A system without roots is no reason not to measure: then no certificate is trusted, and the rounds say so.
    let anchors = match ca_file {
        Some(path) => tls::trust_anchors(Some(path))?,
        None => tls::trust_anchors(None).unwrap_or_default(),
    };
    Trust::new(&anchors).context("failed to read the trusted roots")
}
