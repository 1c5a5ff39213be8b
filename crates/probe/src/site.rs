//! A site, and how it may be probed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tlsdyno_base::choice::choice;
use tlsdyno_base::url::Url;
use tlsdyno_base::{certificate_files, listening, permission};
use tlsdyno_engine::time::Time;
use tlsdyno_tls::crypto::verify::Trust;
use tlsdyno_tls::{Config, Effort, Group, Settings, Version};

use super::fault::{Cause, FaultKind};
use super::round::{now_unix_us, series};

/// Flags that say how sites are probed; the keys of a configuration file have the same names.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SiteOptions {
    /// Probe a host that is not this machine: name the one in the URL, and only one whose owner has agreed
    #[arg(long, value_name = "HOST")]
    pub i_may_probe: Vec<String>,

    /// How long each step may take: connecting, the handshake, the answer [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Time>,

    /// A certificate that cannot be trusted is a fault of the round; else it is only recorded
    #[arg(long)]
    pub verify: bool,

    /// Trusted roots in PEM form [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// TLS version [default: both]
    #[arg(long = "tls", value_name = "VERSION", value_parser = choice(Version::ALL))]
    #[serde(rename = "tls")]
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

/// How long a step may take by default.
const TIMEOUT: Time = Time::seconds(10);

/// The shortest time between two rounds at a site that is not this machine.
pub const FOREIGN_EVERY_MIN: Duration = Duration::from_secs(10);

/// A site, and how it is to be probed.
#[derive(Clone, Debug, Default)]
pub struct SiteSpec {
    pub url: String,
    /// The time between two rounds, if it is not that of all sites.
    pub every: Option<Time>,
    pub options: SiteOptions,
}

pub struct Site {
    /// The URL as it was typed.
    pub name: String,
    /// The place that it is seen from; empty: nobody named it.
    pub vantage: String,
    /// The time between two rounds, if it is not that of all sites.
    pub every: Option<Duration>,
    /// It is on another machine, or may be, as far as [`Site::prepare`] could see.
    pub is_foreign: bool,
    /// For a site that is not this machine: the file whose time of change is that of its last round.
    pace: Option<PathBuf>,
    pub(super) url: Url,
    pub(super) request: Vec<u8>,
    /// Without and with early data.
    pub(super) configs: [Arc<Config>; 2],
    pub(super) trust: Arc<Trust>,
    pub(super) options: SiteOptions,
}

impl Site {
    /// All sites, seen from a place.
    ///
    /// # Errors
    /// A text that is no https URL, one that is there twice, roots that cannot be read, contradicting options.
    pub fn all(specs: &[SiteSpec], vantage: &str) -> Result<Vec<Site>> {
        let mut trusts: BTreeMap<Option<PathBuf>, Arc<Trust>> = BTreeMap::new();
        let unique: BTreeSet<&String> = specs.iter().map(|spec| &spec.url).collect();
        ensure!(unique.len() == specs.len(), "a URL is there twice; each site has rounds of its own");
        let mut sites = Vec::with_capacity(specs.len());
        for spec in specs {
            let ca_file = &spec.options.ca_file;
            let trust = match trusts.get(ca_file) {
                Some(trust) => Arc::clone(trust),
                None => Arc::new(trust(ca_file.as_ref())?),
            };
            trusts.insert(ca_file.clone(), Arc::clone(&trust));
            sites.push(Site::new(spec, vantage, trust).with_context(|| spec.url.clone())?);
        }
        Ok(sites)
    }

    fn new(own: &SiteSpec, vantage: &str, trust: Arc<Trust>) -> Result<Site> {
        let (text, options) = (&own.url, &own.options);
        let url = Url::parse(text)?;
        ensure!(url.tls, "`{text}` has no TLS to probe; write https://…");
        ensure!(!(options.ipv4 && options.ipv6), "a site is probed by IPv4 only or by IPv6 only, not by both");
        if let Some(every) = own.every {
            every.nanoseconds()?;
        }
        let config = |early_data| -> Result<Arc<Config>> {
            let settings = Settings {
                versions: options.version.into_iter().collect(),
                groups: options.group.clone(),
                server_name: Some(url.host.clone()),
                // The chain is verified when the clock has stopped, so that a bad one spoils no measurement.
                effort: Effort::Lean,
                tickets: !options.no_tickets,
                early_data,
                now_unix_s: (now_unix_us() / 1_000_000) as u64,
                ..Settings::default()
            };
            Ok(Arc::new(Config::new(settings)?))
        };
        let configs = [config(false)?, config(true)?];
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: tlsdyno-probe/{}\r\nAccept: */*\r\nConnection: close\r\n\r\n",
            url.path,
            url.host_header(),
            env!("CARGO_PKG_VERSION")
        )
        .into_bytes();
        Ok(Site {
            name: text.clone(),
            vantage: vantage.to_owned(),
            every: own.every.map(|every| every.0),
            is_foreign: true,
            pace: None,
            url,
            request,
            configs,
            trust,
            options: options.clone(),
        })
    }

    pub fn series(&self) -> String {
        series(&self.name, &self.vantage)
    }

    pub(super) fn pace(&self) {
        let Some(path) = &self.pace else { return };
        let last = std::fs::metadata(path).and_then(|file| file.modified());
        // A clock that was set back makes the last round one of the future, which says nothing.
        let since = last.ok().and_then(|last| last.elapsed().ok());
        if let Some(wait) = since.and_then(|since| FOREIGN_EVERY_MIN.checked_sub(since)) {
            std::thread::sleep(wait);
        }
        // Without the file the next round is not held back; that is no reason not to make this one.
        let _ = std::fs::write(path, "");
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

    /// Refuses a site that may not be probed before the first packet goes out. A name without an address is no reason:
    /// that is for the rounds to tell. Each round of a site that is not this machine will wait until the last one of
    /// whatever program of this user is ten seconds over; `paces` keeps the times, where there is such a directory.
    ///
    /// # Errors
    /// It is another machine, and nobody said that it may be probed.
    pub fn prepare(&mut self, paces: Option<&Path>) -> Result<()> {
        let address = self.look_up().ok();
        if let Some(address) = address {
            check_permission(&self.url.host, address, &self.options.i_may_probe)?;
        }
        // Nobody knows where a name leads that has no address now.
        self.is_foreign = !address.is_some_and(|address| listening::is_loopback(address.ip()));
        let paces = paces.filter(|paces| self.is_foreign && std::fs::create_dir_all(paces).is_ok());
        self.pace = paces.map(|paces| file_of(paces, &self.name, "round"));
        Ok(())
    }

    pub(super) fn timeout(&self) -> Duration {
        self.options.timeout.unwrap_or(TIMEOUT).0
    }
}

/// A file's name for a site, whatever characters its URL has.
pub(super) fn file_of(directory: &Path, site: &str, what: &str) -> PathBuf {
    let digest = openssl::sha::sha256(site.as_bytes());
    let name: String = digest[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    directory.join(format!("site-{name}.{what}"))
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
        Some(path) => certificate_files::trust_anchors(Some(path))?,
        None => certificate_files::trust_anchors(None).unwrap_or_default(),
    };
    Trust::new(&anchors).context("failed to read the trusted roots")
}
