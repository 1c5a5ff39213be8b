//! What the configuration of an installed server is to everything else, and what is the same for all servers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use serde::Serialize;
use tlsdyno_base::fault::Fault;
use tlsdyno_record::model::TlsChange;

use tlsdyno_servers::{InstancePlace, ServerTls, programs};

use crate::effects::Handling;

pub(super) const PORT_OF_TLS: u16 = 443;

/// A configuration that was read. What has a body is the same for servers whose [`Host`]s say all.
pub trait InstalledSite: Debug {
    /// Those who speak TLS, the default one of each port first.
    fn hosts(&self) -> Vec<Host>;

    /// The copy of which the server of `host` is measured. Errors: it has what no copy can have.
    fn copy(&self, host: Option<&str>, ports: Ports) -> Result<Copied>;

    /// See [`super::Installed::change_tls`].
    fn change_tls(&mut self, asked: &TlsChange, tls: &ServerTls, place: InstancePlace) -> Result<()>;

    /// Makes what the copy, this file, needs beside it in its directory. Answers what starts its program in the
    /// foreground, the file last. Errors: something cannot be made.
    fn prepare(&self, program: &Path, file: &Path, directory: &Path) -> Result<Vec<String>>;

    /// Directories of its documents, as far as they are named without variables.
    fn documents(&self) -> Vec<PathBuf>;

    /// The copy for this build of the program.
    fn fitting(&self, text: String, _program: &Path) -> String {
        text
    }

    /// Its own list of suites up to TLS 1.2, where that is known: OpenSSL's.
    fn own_suites(&self) -> Option<&'static str> {
        Some("DEFAULT")
    }

    fn tls_servers(&self) -> usize {
        self.hosts().len()
    }

    /// What the copy does otherwise than the installed server beside where it listens and writes, and why, in
    /// sentences.
    fn notes(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn is_tls_client(&self) -> bool {
        false
    }

    fn choice(&self, asked: Option<&str>) -> Choice {
        Choice::among(&self.hosts(), asked)
    }

    /// The same. Errors: none has the name that is asked for, and none takes any.
    fn chosen(&self, asked: Option<&str>) -> Result<Choice> {
        let choice = self.choice(asked);
        match asked.filter(|_| !choice.is_known && !choice.takes_any) {
            None => Ok(choice),
            Some(asked) => {
                let known = choice.others.join(", ");
                Err(Fault::Usage
                    .wrap(anyhow!("no server with TLS there is called {asked}; --host takes one of {known}")))
            }
        }
    }

    fn facts(&self, host: Option<&str>) -> Facts {
        let hosts = self.hosts();
        measured(&hosts, host).map(|host| host.facts.clone()).unwrap_or_default().with_suites(self.own_suites())
    }

    fn offer(&self, host: Option<&str>) -> Offer {
        let hosts = self.hosts();
        let port = measured(&hosts, host).map(|host| host.port);
        // The default one decides, before the client's name is known.
        let first = hosts.into_iter().find(|host| Some(host.port) == port).map(|host| host.facts).unwrap_or_default();
        Offer { protocols: first.protocols, groups: first.groups }
    }
}

/// The versions from the lowest to the highest, where either is said: TLS 1.2 is the lowest of what is maintained.
pub(super) fn versions(lowest: Option<String>, highest: Option<String>) -> Vec<String> {
    const ALL: [&str; 4] = ["TLSv1.0", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
    if lowest.is_none() && highest.is_none() {
        return Vec::new();
    }
    let place = |name: Option<String>, otherwise| {
        name.and_then(|name| {
            ALL.iter().position(|version| *version == name || name == "TLSv1" && *version == "TLSv1.0")
        })
        .unwrap_or(otherwise)
    };
    let (from, to) = (place(lowest, 2), place(highest, 3));
    ALL.iter().take(to + 1).skip(from).map(|name| (*name).to_owned()).collect()
}

/// Whole seconds of a time as servers write it (`75s`, `500ms`, `1m`, `1h`), rounded up; a number alone counts `unit`
/// seconds.
pub(super) fn seconds(text: &str, unit: f64) -> Option<u32> {
    let (number, suffix) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match suffix {
        "" => unit,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "mi" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Some((number.parse::<f64>().ok()? * unit).ceil() as u32)
}

/// Whether a list with blanks between its words has this one.
pub(super) fn is_listed(list: &str, word: &str) -> bool {
    list.split(' ').any(|other| other == word)
}

#[derive(Clone, Copy, Debug)]
pub struct Ports<'a> {
    pub(super) port: u16,
    pub(super) plain_port: u16,
    pub(super) directory: &'a Path,
    /// The answers of applications are asked for once and replayed, where that is possible; others are not asked.
    pub(super) replays: bool,
}

impl Ports<'_> {
    pub(super) fn own(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// The socket in the place of an application (`HOST:PORT`, `unix:PATH`, or as it is written), unless it is asked
    /// for real. `is_plain`: by plain HTTP, so that its answers can be replayed; of others the socket is not there.
    /// `name`: what names it in the configuration.
    pub(super) fn in_place_of(&self, application: &str, is_plain: bool, name: &str, done: &mut Done) -> Option<String> {
        let shown = format!("{application} ({name})");
        if !self.replays {
            done.asks(application, name);
            return None;
        }
        if !is_plain {
            done.add(NOT_ASKED, &shown);
            return Some(self.own("not-asked.sock"));
        }
        done.add(REPLAYED, &shown);
        let known = done.replayed.iter().position(|other| other == application);
        let number = known.unwrap_or(done.replayed.len());
        if known.is_none() {
            done.replayed.push(application.to_owned());
        }
        Some(self.own(&socket_name(number)))
    }
}

pub(super) fn socket_name(number: usize) -> String {
    format!("application-{number}.sock")
}

#[derive(Debug, Default)]
pub struct Copied {
    pub(super) text: String,
    /// The same as pages and records show it: what may be a secret is blotted out.
    pub(super) shown: String,
    /// What became of all that it does besides answering, in sentences.
    pub(super) notes: Vec<String>,
    /// Applications whose answers are replayed, in the order of their sockets: `HOST:PORT`, `unix:PATH`.
    pub(super) replayed: Vec<String>,
    /// What is asked for real, as it is written.
    pub(super) asked: Vec<String>,
    /// It has code, or what is not known, so that nobody knows what it writes.
    pub(super) runs_code: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Host {
    /// What clients call it; with `*.` before it all below a domain.
    pub(super) names: Vec<String>,
    pub(super) port: u16,
    /// It does nothing but send everybody elsewhere.
    pub(super) only_redirects: bool,
    pub(super) facts: Facts,
}

impl Host {
    /// What clients ask for, with the port where it is not the usual one.
    fn asked_for(&self) -> Option<String> {
        let name = self.names.iter().find(|name| name.contains(|c: char| c.is_ascii_alphanumeric()))?;
        let name = name.strip_prefix("*.").map_or_else(|| name.clone(), |domain| format!("www.{domain}"));
        Some(if self.port == PORT_OF_TLS { name } else { format!("{name}:{}", self.port) })
    }

    /// Whether it answers to every name, or by a pattern.
    fn takes_any(&self) -> bool {
        let is_name = |name: &String| !name.starts_with('~') && name.contains(|c: char| c.is_ascii_alphanumeric());
        !self.names.iter().all(is_name) || self.names.is_empty()
    }

    fn is_called(&self, name: &str) -> bool {
        let is = |own: &String| match own.strip_prefix('*') {
            Some(domain) => name.len() > domain.len() && name.ends_with(&domain.to_ascii_lowercase()),
            None => own.eq_ignore_ascii_case(name),
        };
        self.names.iter().any(is)
    }
}

/// The place of the one that is asked for; otherwise of the first.
pub(super) fn place_of_measured(hosts: &[Host], asked: Option<&str>) -> Option<usize> {
    let (name, port) = split(asked.unwrap_or_default());
    let name = name.to_ascii_lowercase();
    let at = |host: &Host| port.is_none_or(|port| host.port == port);
    let named = hosts.iter().position(|host| at(host) && host.is_called(&name));
    named.or_else(|| hosts.iter().position(at)).or((!hosts.is_empty()).then_some(0))
}

pub(super) fn measured<'a>(hosts: &'a [Host], asked: Option<&str>) -> Option<&'a Host> {
    hosts.get(place_of_measured(hosts, asked)?)
}

/// A name, and the port where one is given.
pub(super) fn split(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
        _ => (host, None),
    }
}

/// Whether this is the chosen host, which may be named without its port.
pub(super) fn is_chosen(host: &str, chosen: Option<&str>) -> bool {
    chosen.is_some_and(|chosen| [host, split(host).0].contains(&chosen))
}

#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    /// What clients ask for: a name, with the port where it is not the usual one; `None`: any.
    pub host: Option<String>,
    pub others: Vec<String>,
    /// A server has this name, patterns apart; otherwise the default server answers.
    pub is_known: bool,
    /// A server answers to every name, or by a pattern.
    pub takes_any: bool,
}

impl Choice {
    /// The one that is asked for; otherwise the first that has pages.
    fn among(hosts: &[Host], asked: Option<&str>) -> Choice {
        let first = hosts.iter().find(|host| !host.only_redirects).or(hosts.first());
        let chosen = asked.map(str::to_owned).or_else(|| first.and_then(Host::asked_for));
        let names: BTreeSet<String> = hosts.iter().filter_map(Host::asked_for).collect();
        let others = names.into_iter().filter(|host| !is_chosen(host, chosen.as_deref())).collect();
        let name = split(chosen.as_deref().unwrap_or_default()).0.to_ascii_lowercase();
        let is_known = hosts.iter().any(|host| host.is_called(&name));
        Choice { host: chosen, others, is_known, takes_any: hosts.iter().any(Host::takes_any) }
    }
}

/// What the measured socket's servers negotiate, as the configuration says it; empty: the server's own choice.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Versions: `TLSv1.3`.
    pub protocols: Vec<String>,
    /// Groups by OpenSSL's names, the preferred one first.
    pub groups: Vec<String>,
}

/// What is written of TLS, connections and logs of one server; where nothing is, what the program does by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    pub certificates: Vec<String>,
    /// Versions: `TLSv1.3`; empty: the server's own choice.
    pub protocols: Vec<String>,
    /// Groups by OpenSSL's names, the preferred one first; empty: OpenSSL's own choice.
    pub groups: Vec<String>,
    /// Suites up to TLS 1.2 as OpenSSL writes them; empty: OpenSSL's own choice.
    pub ciphers: String,
    /// Those of them without forward secrecy or AEAD, by name, as this system's OpenSSL understands the list; empty:
    /// none, or nobody knows.
    pub weak_suites: Vec<String>,
    /// `none`, `off`, or where sessions are kept: `shared:SSL:10m`.
    pub session_cache: String,
    pub session_timeout: String,
    pub session_timeout_s: Option<u32>,
    pub tickets: bool,
    /// Keys of tickets are in files, which several machines can share.
    pub ticket_key_files: usize,
    pub early_data: bool,
    /// The state of the certificate is stapled to it.
    pub stapling: bool,
    pub http2: bool,
    /// How long a connection without a request is kept, and how many requests it carries at most.
    pub keep_alive: [String; 2],
    /// The same, seconds, as far as it has a bound; 0: each request has a connection of its own.
    pub keep_alive_s: Option<u32>,
    /// Bytes of one TLS record at most, where they are said.
    pub record_bytes: Option<u32>,
    /// Processes or threads that answer, where their number is said, or is one because nobody says it.
    pub workers: Option<u32>,
    /// Connections open at once, of each worker, where they are said.
    pub connections_count: Option<u32>,
    /// Requests are passed on to another server, and whether on connections that are kept.
    pub passes_on: Option<bool>,
    pub access_logs: Vec<AccessLog>,
}

impl Facts {
    /// With the weak suites told. `own`: the server's own list, where none is said.
    pub(super) fn with_suites(self, own: Option<&str>) -> Facts {
        let list = if self.ciphers.is_empty() { own } else { Some(self.ciphers.as_str()) };
        let list = list.filter(|_| !self.protocols.iter().eq(["TLSv1.3"]));
        let listed = list
            .zip(programs::find("openssl"))
            .map(|(list, openssl)| programs::output_of(&openssl, &["ciphers", "-s", "-tls1_2", list]));
        let is_weak = |name: &&str| {
            let is_forward = name.starts_with("ECDHE-") || name.starts_with("DHE-");
            let has_aead = name.contains("GCM") || name.ends_with("POLY1305") || name.ends_with("CCM");
            name.contains('-') && !name.contains(' ') && !(is_forward && has_aead)
        };
        let first = listed.unwrap_or_default();
        let names = first.lines().next().unwrap_or_default().split(':');
        Facts { weak_suites: names.filter(is_weak).map(str::to_owned).collect(), ..self }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccessLog {
    /// Its file; `syslog` where it has none.
    pub path: String,
    /// The format as it is written; empty: the combined one.
    pub format: String,
}

/// What was done to a copy, by what is said of it.
#[derive(Debug, Default)]
pub(super) struct Done {
    notes: BTreeMap<&'static str, BTreeMap<String, u32>>,
    replayed: Vec<String>,
    asked: Vec<String>,
}

pub(super) const OWN_PLACE: &str = "Into the copy's private directory";
pub(super) const SWITCHED_OFF: &str = "Switched off";
pub(super) const LEFT_OUT: &str = "Left out";
pub(super) const RAISED: &str = "Raised, as a load would fail on it";
pub(super) const MAY_DO_ANYTHING: &str = "Runs as it does in the installed server, and may do anything";
pub(super) const NOT_KNOWN: &str = "Stays, and what it does is not known";
pub(super) const REPLAYED: &str = "Asked once for each request, one after the other, then replayed from memory";
pub(super) const NOT_ASKED: &str = "Not asked, as it is not asked by plain HTTP (--ask-backend asks for real)";
pub(super) const ASKED: &str = "Asked for real where the load leads there";

impl Done {
    pub(super) fn add(&mut self, what: &'static str, name: &str) {
        *self.notes.entry(what).or_default().entry(without_password(name)).or_default() += 1;
    }

    /// Notes what becomes of a directive as its table has it. `false`: the copy lacks it.
    pub(super) fn keeps(&mut self, handling: Option<Handling>, name: &str) -> bool {
        match handling {
            Some(Handling::Ours) => return false,
            Some(Handling::LeftOut) => self.add(LEFT_OUT, name),
            Some(Handling::Code) => self.add(MAY_DO_ANYTHING, name),
            None => self.add(NOT_KNOWN, name),
            Some(_) => {}
        }
        handling != Some(Handling::LeftOut)
    }

    /// Somebody else is asked for real: an application, as it is written.
    pub(super) fn asks(&mut self, application: &str, name: &str) {
        self.add(ASKED, &format!("{application} ({name})"));
        self.asked.push(application.to_owned());
    }

    /// The copy of this text, of which this was done. `shown`: as pages and records show it.
    pub(super) fn copied(&self, text: String, shown: String) -> Copied {
        let times = |(name, times): (&String, &u32)| match times {
            1 => name.clone(),
            times => format!("{name} ({times} times)"),
        };
        let order = [OWN_PLACE, SWITCHED_OFF, LEFT_OUT, RAISED, MAY_DO_ANYTHING, NOT_KNOWN, REPLAYED, NOT_ASKED, ASKED];
        let notes = order.into_iter().filter_map(|what| {
            let names: Vec<String> = self.notes.get(what)?.iter().map(times).collect();
            Some(format!("{what}: {}", names.join(", ")))
        });
        Copied {
            text,
            shown,
            notes: notes.collect(),
            replayed: self.replayed.clone(),
            asked: self.asked.clone(),
            runs_code: [MAY_DO_ANYTHING, NOT_KNOWN].iter().any(|what| self.notes.contains_key(what)),
        }
    }
}

/// A target without what may be a secret in it: `http://user:password@host/path?token=…`.
fn without_password(target: &str) -> String {
    let Some((scheme, rest)) = target.split_once("://") else { return target.to_owned() };
    let end = rest.find(['/', ' ', '?']).unwrap_or(rest.len());
    let rest = rest[..end].rfind('@').map_or(rest, |at| &rest[at + 1..]);
    match rest.split_once('?') {
        Some((before, query)) => format!("{scheme}://{before}{}", query.find(' ').map_or("", |at| &query[at..])),
        None => format!("{scheme}://{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_of_targets_are_not_told() {
        for (target, notes) in [
            ("http://me:secret@host:80/x?token=secret (proxy_pass)", "http://host:80/x (proxy_pass)"),
            ("redis://:secret@host", "redis://host"),
            ("http://host/a@b (ProxyPass)", "http://host/a@b (ProxyPass)"),
            ("host:80 (server)", "host:80 (server)"),
        ] {
            assert_eq!(without_password(target), notes);
        }
    }

    #[test]
    fn the_first_host_with_pages_is_measured_unless_another_is_asked_for() {
        let host = |name: &str, port, only_redirects| Host {
            names: vec![name.to_owned()],
            port,
            only_redirects,
            ..Host::default()
        };
        let hosts = [host("x.example", 443, true), host("*.x.example", 443, false), host("b.example", 8443, false)];
        let chosen = Choice::among(&hosts, None);
        assert_eq!(chosen.host.as_deref(), Some("www.x.example"));
        assert_eq!(chosen.others, ["b.example:8443", "x.example"]);
        assert_eq!(Choice::among(&hosts, Some("b.example")).others, ["www.x.example", "x.example"]);
        assert!(chosen.is_known && !Choice::among(&hosts, Some("c.example")).is_known && !chosen.takes_any);
        assert!(Choice::among(&[hosts[0].clone(), host("_", 443, false)], None).takes_any);
        let port = |asked| measured(&hosts, asked).unwrap().port;
        assert_eq!([port(None), port(Some("B.example:8443")), port(Some("a.x.example"))], [443, 8443, 443]);
        assert_eq!(measured(&hosts, Some("c.example:8443")).unwrap().names, ["b.example"]);
    }
}
