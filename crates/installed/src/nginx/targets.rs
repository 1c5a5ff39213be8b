//! Where proxies of a configuration send requests on.

use std::net::{IpAddr, ToSocketAddrs};

use tlsdyno_base::permission;

use super::reader::{Directive, all};

/// Whether a value can be nothing but an address: a scheme or a port stands in it.
pub(super) fn is_address(value: &str) -> bool {
    let port = value.rsplit(':').next().unwrap_or_default();
    value.contains("://") || value.starts_with("unix:") || (port.parse::<u16>().is_ok() && port.len() < value.len())
}

pub(super) fn all_targets(directives: &[Directive]) -> impl Iterator<Item = String> {
    all(directives).filter(|directive| is_to_target(directive)).filter_map(Directive::first)
}

/// Whether the first argument says where requests go on.
pub(super) fn is_to_target(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "proxy_pass" | "grpc_pass" | "fastcgi_pass" | "scgi_pass" | "uwsgi_pass" | "memcached_pass" => true,
        // Of `upstream`.
        "server" => directive.block.is_none(),
        _ => false,
    }
}

/// Where a proxy sends requests on: `http://127.0.0.1:8080/app/`, `https://unix:/run/s:/`, `localhost:9000`.
pub(super) struct ProxyTarget<'a> {
    pub(super) scheme: &'a str,
    pub(super) place: ProxyAddress<'a>,
    pub(super) path: &'a str,
}

pub(super) enum ProxyAddress<'a> {
    Tcp(&'a str, u16),
    Unix(&'a str),
}

impl ProxyTarget<'_> {
    /// `None`: it holds a variable.
    pub(super) fn parse(target: &str) -> Option<ProxyTarget<'_>> {
        let (scheme, rest) = target.split_at(target.find("://").map_or(0, |at| at + 3));
        if let Some(unix) = rest.strip_prefix("unix:") {
            let (path, behind) = unix.split_once(':').unwrap_or((unix, ""));
            return Some(ProxyTarget { scheme, place: ProxyAddress::Unix(path), path: behind });
        }
        let end = rest.find('/').unwrap_or(rest.len());
        // Behind a port a variable is the path: `http://127.0.0.1:8080$request_uri`.
        let has_port = |at: &usize| rest[..*at].rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let end = rest[..end].find('$').filter(has_port).unwrap_or(end);
        let (place, path) = rest.split_at(end);
        let is_secure = scheme == "https://" || scheme == "grpcs://";
        let by_default = if is_secure { 443 } else { 80 };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (place, by_default),
        };
        (!host.contains('$')).then_some(ProxyTarget { scheme, place: ProxyAddress::Tcp(host, port), path })
    }
}

pub(super) fn at_socket(scheme: &str, socket: &str, path: &str) -> String {
    // Behind a socket's path a colon ends it.
    let colon = if path.is_empty() { "" } else { ":" };
    format!("{scheme}unix:{socket}{colon}{path}")
}

/// Whether what is sent to this host stays on this machine.
pub(super) fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_here = |ip: IpAddr| ip.is_unspecified() || permission::is_this_machine(ip);
    match bare.parse::<IpAddr>() {
        Ok(ip) => is_here(ip),
        Err(_) if host == "localhost" => true,
        Err(_) => (bare, 0).to_socket_addrs().is_ok_and(|mut all| all.any(|address| is_here(address.ip()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_taken_apart() {
        let parts = |target: &str| {
            let ProxyTarget { scheme, place, path } = ProxyTarget::parse(target)?;
            Some(match place {
                ProxyAddress::Tcp(host, port) => format!("{scheme} {host} {port} {path}"),
                ProxyAddress::Unix(socket) => format!("{scheme} {socket} {path}"),
            })
        };
        for (target, wanted) in [
            ("http://127.0.0.1:8080/app/", Some("http:// 127.0.0.1 8080 /app/")),
            ("https://[::1]/", Some("https:// [::1] 443 /")),
            ("grpcs://a:1", Some("grpcs:// a 1 ")),
            ("localhost:9000", Some(" localhost 9000 ")),
            ("app", Some(" app 80 ")),
            ("http://unix:/run/a:/b", Some("http:// /run/a /b")),
            ("unix:/run/a", Some(" /run/a ")),
            ("http://$backend/", None),
            ("http://a:$port", None),
            ("http://a:80$request_uri", Some("http:// a 80 $request_uri")),
        ] {
            assert_eq!(parts(target).as_deref(), wanted, "{target}");
        }
    }
}
