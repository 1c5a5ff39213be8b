//! Which redirects lead back to the server that is loaded.

use std::net::SocketAddr;

use tlsdyno_engine::load::Redirects;

use crate::load::options::Options;
use crate::load::url::Url;

/// At most `most` redirects one after another, to any name and port that the server goes by: those of the URL, of the
/// Host header `host`, and of --connect-to, since whatever the URL names is looked for there.
pub fn here(most: u32, options: &Options, url: &Url, address: SocketAddr, host: &str) -> Redirects {
    let scheme = if url.tls { "https" } else { "http" };
    let mut hosts = vec![url.host.clone()];
    let mut ports = vec![url.port, address.port()];
    // A --header Host that is no authority cannot be what a redirect names.
    for authority in [Some(host), options.connect_to.as_deref()].into_iter().flatten() {
        if let Ok(other) = Url::parse(&format!("{scheme}://{authority}/")) {
            hosts.push(other.host);
            ports.push(other.port);
        }
    }
    hosts.sort_unstable();
    hosts.dedup();
    ports.sort_unstable();
    ports.dedup();
    Redirects { most_count: most, tls: url.tls, hosts, ports }
}
