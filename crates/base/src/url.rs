//! The URL that a load goes to.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail, ensure};

use crate::protocol::{self, Protocol};

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The scheme is `https`, or one of a [`Protocol`].
    pub tls: bool,
    /// What is spoken there; `None`: HTTP.
    pub protocol: Option<&'static Protocol>,
    /// Host name or address, without the brackets of an IPv6 literal.
    pub host: String,
    /// Port, the scheme's if the URL has none.
    pub port: u16,
    /// Path and query, as on the request line.
    pub path: String,
}

impl Url {
    /// Parses what people type after `wrk` or `curl`.
    pub fn parse(text: &str) -> Result<Url> {
        Url::of(text, |scheme| bail!("the scheme `{scheme}` is not supported; use https or http"))
    }

    /// The same where any [`Protocol`] may be spoken.
    pub fn parse_any(text: &str) -> Result<Url> {
        Url::of(text, protocol::of_scheme)
    }

    fn of(text: &str, of_scheme: impl Fn(&str) -> Result<&'static Protocol>) -> Result<Url> {
        let (scheme, rest) = text
            .split_once("://")
            .with_context(|| format!("`{text}` is no URL; write https://HOST[:PORT]/PATH or http://…"))?;
        let (tls, protocol, usual) = match scheme.to_ascii_lowercase().as_str() {
            "https" => (true, None, Some(443)),
            "http" => (false, None, Some(80)),
            other => {
                let protocol = of_scheme(other)?;
                (true, Some(protocol), protocol.port)
            }
        };
        // A fragment is for the browser, never sent.
        let rest = rest.split('#').next().unwrap_or(rest);
        let path_at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_at);
        ensure!(!authority.contains('@'), "the URL names a user; send credentials with --header 'Authorization: …'");
        let (host, port) =
            split_authority(authority).with_context(|| format!("`{text}` has no valid host and port"))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        ensure!(
            path.bytes().all(|byte| byte.is_ascii_graphic()),
            "the path `{path}` holds characters that cannot stand on a request line; percent-encode them (a space is \
             %20)"
        );
        let port = port.or(usual).with_context(|| format!("`{text}` has no port"))?;
        Ok(Url { tls, protocol, host: host.to_owned(), port, path })
    }

    /// The value of the Host header: with brackets around an IPv6 literal, and the port where it is not the scheme's.
    pub fn host_header(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// The address to connect to: the first that the system's resolver answers.
    pub fn resolve(&self) -> Result<SocketAddr> {
        (self.host.as_str(), self.port)
            .to_socket_addrs()
            .with_context(|| format!("failed to find the address of `{}`", self.host))?
            .next()
            .with_context(|| format!("`{}` has no address", self.host))
    }
}

fn split_authority(authority: &str) -> Result<(&str, Option<u16>)> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(literal) => {
            let (host, rest) = literal.split_once(']').context("the bracket of the IPv6 address is not closed")?;
            ensure!(host.parse::<std::net::Ipv6Addr>().is_ok(), "`{host}` is no IPv6 address");
            (host, rest)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    ensure!(!host.is_empty(), "the host is empty");
    ensure!(
        host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte)),
        "`{host}` is no host name (write international names in their xn-- form)"
    );
    let port = match rest.strip_prefix(':') {
        Some(port) => {
            Some(port.parse().ok().filter(|port| *port != 0).with_context(|| format!("`{port}` is no port"))?)
        }
        None if rest.is_empty() => None,
        None => bail!("`{rest}` cannot follow the host"),
    };
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_and_put_together() {
        let cases = [
            ("https://example.org", true, "example.org", 443, "/", "example.org"),
            ("HTTP://example.org:8080/a/b?c=d#e", false, "example.org", 8080, "/a/b?c=d", "example.org:8080"),
            ("https://[::1]:8443?q", true, "::1", 8443, "/?q", "[::1]:8443"),
            ("http://[2001:db8::1]/x", false, "2001:db8::1", 80, "/x", "[2001:db8::1]"),
            ("https://127.0.0.1:443/", true, "127.0.0.1", 443, "/", "127.0.0.1"),
        ];
        for (text, tls, host, port, path, header) in cases {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.tls, url.host.as_str(), url.port, url.path.as_str()), (tls, host, port, path));
            assert_eq!(url.host_header(), header);
        }
        assert_eq!(Url::parse("https://[::1]:8443/").unwrap().resolve().unwrap().to_string(), "[::1]:8443");
    }

    #[test]
    fn what_is_no_url_is_refused_with_the_remedy() {
        let refuse = |text: &str, word: &str| {
            let error = format!("{:#}", Url::parse(text).unwrap_err());
            assert!(error.contains(word), "{text}: {error}");
        };
        refuse("localhost:8080", "https://HOST");
        refuse("ftp://x/", "use https or http");
        refuse("https://", "empty");
        refuse("https://a:b/", "no port");
        refuse("https://a:0/", "no port");
        refuse("https://a:70000/", "no port");
        refuse("https://[::1/", "bracket");
        refuse("https://[1.2.3.4]/", "IPv6");
        refuse("https://[::1]x/", "follow");
        refuse("https://me:secret@a/", "--header");
        assert!(!format!("{:#}", Url::parse("https://me:secret@a/").unwrap_err()).contains("secret"));
        refuse("https://a/b c", "%20");
        refuse("https://ä.de/", "xn--");
    }
}
