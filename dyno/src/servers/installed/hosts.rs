//! The names of a configuration's servers, and which of them is measured.

use super::listeners::{Listeners, Server, Socket};
use super::reader::Directive;

/// What a redirect of every path looks like.
const EVERY_PATH: [&str; 6] = ["^", ".*", "^.*", "^.*$", "^(.*)$", "^/(.*)$"];

/// A name, and the port where one is given.
pub(super) fn split(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
        _ => (host, None),
    }
}

/// The names of a server.
fn names(server: &[Directive]) -> impl Iterator<Item = String> {
    server.iter().filter(|of| of.name == "server_name").flat_map(Directive::values)
}

/// Whether a server has a name. Patterns (`~`) are not looked into.
pub(super) fn knows(server: &[Directive], name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    names(server).map(|of| of.to_ascii_lowercase()).any(|of| match (of.strip_prefix('.'), of.strip_prefix('*')) {
        (Some(domain), _) => name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
        (_, Some(domain)) => name.ends_with(domain) && name.len() > domain.len(),
        _ if of.ends_with(".*") => name.starts_with(&of[..of.len() - 1]) && name.len() > of.len() - 1,
        _ => of == name,
    })
}

/// A name by which clients can ask for a server; of those for many names one. `None`: a pattern, or none at all.
fn name_to_ask(server: &[Directive]) -> Option<String> {
    let is_name = |name: &String| {
        name.contains(|c: char| c.is_ascii_alphanumeric()) && !name.contains(['*', '~', '$', '"', '\\', '^', '('])
    };
    let of_many = |name: String| {
        let name = name.strip_prefix('.').map_or(name.clone(), str::to_owned);
        let name = name.strip_prefix("*.").map_or(name.clone(), |domain| format!("www.{domain}"));
        name.strip_suffix(".*").map_or(name.clone(), |host| format!("{host}.com"))
    };
    names(server)
        .find(|name| is_name(name) && !name.starts_with('.'))
        .or_else(|| names(server).map(of_many).find(is_name))
}

/// Whether a server does nothing but send everybody elsewhere, or away.
fn only_redirects(server: &[Directive]) -> bool {
    let rejects = |of: &Directive| of.name == "ssl_reject_handshake" && of.says("on");
    server.iter().any(|of| rejects(of) || sends_away(of))
        || server.iter().any(|of| is_front(of) && of.inner().iter().any(sends_away))
}

fn sends_away(directive: &Directive) -> bool {
    let mut values = directive.values();
    let first = values.next().unwrap_or_default();
    match directive.name.as_str() {
        "return" => first.parse::<u16>().map_or(true, |status| status >= 300),
        "rewrite" => {
            EVERY_PATH.contains(&first.as_str()) && values.any(|flag| flag == "permanent" || flag == "redirect")
        }
        _ => false,
    }
}

/// The location of the front page.
fn is_front(directive: &Directive) -> bool {
    directive.name == "location" && directive.values().last().is_some_and(|path| path == "/")
}

/// A server that can be measured.
#[derive(Debug, PartialEq)]
struct Candidate {
    /// What clients ask for; `None`: any name that no other server has.
    name: Option<String>,
    only_redirects: bool,
}

/// The servers with TLS on a socket that clients can ask for, the default server first.
fn candidates(servers: &[Server], socket: &Socket) -> Vec<Candidate> {
    let there = servers.iter().filter_map(|server| Some((server.listens_on(socket)?, server.directives)));
    let mut there: Vec<(bool, &[Directive])> = there.collect();
    // Where none says so the first is the default server.
    there.sort_by_key(|(is_default, _)| !is_default);
    let all = there.iter().enumerate().map(|(index, (_, server))| {
        let candidate = Candidate { name: name_to_ask(server), only_redirects: only_redirects(server) };
        (index == 0 || candidate.name.is_some()).then_some(candidate)
    });
    all.flatten().collect()
}

/// Which host is measured.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    /// What clients ask for: a name, with the port where it is not the usual one; `None`: any.
    pub host: Option<String>,
    /// The others that could be.
    pub others: Vec<String>,
}

impl Choice {
    /// The one that is asked for; otherwise the default server's, or where that only sends clients elsewhere the next.
    pub(super) fn of(http: &[Directive], asked: Option<&str>) -> Choice {
        let listeners = Listeners::of(http, asked);
        let servers = Server::all(http);
        let mut all: Vec<(Option<String>, bool)> = Vec::new();
        for socket in listeners.with_tls() {
            for Candidate { name, only_redirects } in candidates(&servers, socket) {
                let host = name.map(|name| match socket {
                    Socket::Tcp(_, port) if *port != 443 => format!("{name}:{port}"),
                    _ => name,
                });
                if all.iter().all(|(known, _)| *known != host) {
                    all.push((host, only_redirects));
                }
            }
        }
        let chosen = match asked {
            Some(asked) => Some(asked.to_owned()),
            None => all.iter().find(|(_, only)| !only).or(all.first()).and_then(|(host, _)| host.clone()),
        };
        let others = all.into_iter().filter_map(|(host, _)| host).filter(|host| Some(host) != chosen.as_ref());
        Choice { others: others.collect(), host: chosen }
    }
}
