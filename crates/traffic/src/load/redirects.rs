//! Which redirects lead back to the server that is loaded.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use tlsdyno_engine::load::Redirects;

use crate::load::options::Options;
use crate::load::url::Url;

/// At most `most` redirects one after another, to any name and port that the server goes by: those of the URL, of the
/// Host header `host`, and of --connect-to, since whatever the URL names is looked for there.
pub fn here(most: u32, options: &Options, url: &Url, address: SocketAddr, host: &str) -> Redirects {
    let scheme = if url.tls { "https" } else { "http" };
    let authorities = [Some(host), options.connect_to.as_deref()].into_iter().flatten();
    // A --header Host that is no authority cannot be what a redirect names.
    let others = authorities.filter_map(|authority| Url::parse(&format!("{scheme}://{authority}/")).ok());
    let others = others.map(|other| (other.host, other.port));
    let (hosts, ports): (BTreeSet<String>, BTreeSet<u16>) =
        others.chain([url.port, address.port()].map(|port| (url.host.clone(), port))).unzip();
    let (hosts, ports) = (hosts.into_iter().collect(), ports.into_iter().collect());
    Redirects { most_count: most, tls: url.tls, hosts, ports }
}
