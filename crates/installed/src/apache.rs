//! An installed Apache: its virtual hosts, what of them reaches beyond it, and its copy.

mod conditions;
mod copy;
mod reader;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use itertools::Itertools;
use tlsdyno_record::model::TlsChange;
use tlsdyno_tls::Version;

use super::effects::{self, BLOTTED, Handling, Table};
use super::files::Files;
use super::patch::{Part, name_of};
use super::site::{AccessLog, Copied, Facts, Host, InstalledSite, PORT_OF_TLS, Ports, measured, seconds};
use copy::Copy;
pub(super) use reader::variables_beside;
use reader::{Directive, all};
use tlsdyno_servers::{InstancePlace, ServerTls, apache};

#[derive(Clone, Debug)]
pub(super) struct Apache {
    directives: Vec<Directive>,
    /// The directory that relative names start from.
    root: PathBuf,
    left_out: Vec<String>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("apache/directives.txt")));
/// What writes and names a type before the place.
const SESSIONS: &str = "SSLSessionCache SSLStaplingCache";
/// What values of directives begin with that name a program.
const PROGRAMS: [&str; 2] = ["exec:", "prg:"];

fn is_of(directive: &Directive, patterns: &str) -> bool {
    let name = directive.name.to_ascii_lowercase();
    patterns.split(' ').any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(&start.to_ascii_lowercase()),
        None => directive.is(pattern),
    })
}

/// A virtual host with TLS, or the main server, whose `inner` is empty.
struct Server<'a> {
    inner: &'a [Directive],
    port: u16,
}

impl Apache {
    pub(super) fn read(path: &Path, files: &mut Files) -> Result<Apache> {
        let reader::Read { directives, root, left_out } = reader::read(path, files)?;
        let apache = Apache { directives, root, left_out };
        let is_part =
            !all(&apache.directives).iter().any(|directive| directive.is_any(&["Listen", "LoadModule", "ServerRoot"]));
        ensure!(
            !is_part,
            "{} is a part of a configuration: it neither listens nor loads modules. Name the file that includes it, \
             usually /etc/apache2/apache2.conf or /etc/httpd/conf/httpd.conf; --host chooses the site",
            path.display()
        );
        Ok(apache)
    }

    fn servers(&self) -> Vec<Server<'_>> {
        let main = self.directives.as_slice();
        let hosts = main.iter().filter(|directive| is_host(directive));
        let mut servers: Vec<Server> = hosts.filter(|host| has_tls(host, main)).map(server_of).collect();
        if servers.is_empty() && switched_on(main) == Some(true) {
            let listens = main
                .iter()
                .filter(|directive| directive.is("Listen"))
                .filter_map(|directive| port_of(&directive.first()?));
            let ports: Vec<u16> = listens.collect();
            let port = ports.iter().find(|port| **port % 1000 == PORT_OF_TLS).or(ports.first());
            servers.push(Server { inner: &[], port: port.copied().unwrap_or(PORT_OF_TLS) });
        }
        servers
    }

    fn facts(&self, server: &Server) -> Facts {
        let main = self.directives.as_slice();
        // What the server says itself takes the place of what stands around it.
        let each = |name: &str| -> Vec<&Directive> {
            let own: Vec<&Directive> = server.inner.iter().filter(|directive| directive.is(name)).collect();
            if own.is_empty() { main.iter().filter(|directive| directive.is(name)).collect() } else { own }
        };
        let value = |name: &str, otherwise: &str| {
            each(name).last().and_then(|directive| directive.first()).unwrap_or_else(|| otherwise.to_owned())
        };
        let has = |name: &str, word: &str| {
            each(name).iter().any(|directive| directive.values().iter().any(|other| other == word))
        };
        let is_on = |name: &str, otherwise: &str| value(name, otherwise).eq_ignore_ascii_case("on");
        let cache = value("SSLSessionCache", "none");
        let commands = |name: &str| {
            let mut words = each("SSLOpenSSLConfCmd").into_iter().map(Directive::values);
            let is_named = |words: &Vec<String>| words.first().is_some_and(|first| first.eq_ignore_ascii_case(name));
            words.rfind(is_named)?.get(1).cloned()
        };
        let groups = ["Groups", "Curves", "ECDHParameters"].into_iter().find_map(commands).unwrap_or_default();
        let ciphers = each("SSLCipherSuite").into_iter().map(Directive::values).rfind(|words| words.len() == 1);
        let inner = all(server.inner);
        let passes = inner
            .into_iter()
            .chain(main)
            .filter(|directive| directive.is("ProxyPass") || directive.is("ProxyPassMatch"));
        let keeps = |directive: &Directive| !directive.arguments.to_ascii_lowercase().contains("disablereuse=on");
        let keep = if is_on("KeepAlive", "on") { value("KeepAliveTimeout", "5") } else { "0".to_owned() };
        let keep_alive_s = seconds(&keep, 1.0);
        let files = each("SSLCertificateFile").into_iter().filter_map(Directive::first);
        Facts {
            certificates: files.map(|file| self.root.join(file).display().to_string()).collect(),
            protocols: each("SSLProtocol").last().map(|directive| protocols(&directive.values())).unwrap_or_default(),
            groups: groups.split(':').filter(|group| !group.is_empty()).map(str::to_owned).collect(),
            ciphers: ciphers.map(|words| words.concat()).unwrap_or_default(),
            weak_suites: Vec::new(),
            // Others than these keep sessions for all processes.
            session_cache: match cache.as_str() {
                "none" | "nonenotnull" => "none".to_owned(),
                shared => format!("shared: {}", shared.split(':').next().unwrap_or(shared)),
            },
            session_timeout: value("SSLSessionCacheTimeout", "300") + "s",
            session_timeout_s: value("SSLSessionCacheTimeout", "300").parse().ok(),
            tickets: is_on("SSLSessionTickets", "on"),
            ticket_key_files: each("SSLSessionTicketKeyFile").len(),
            early_data: false,
            stapling: is_on("SSLUseStapling", "off"),
            http2: has("Protocols", "h2") && !has("LoadModule", "mpm_prefork_module"),
            keep_alive: [
                keep_alive_s.map_or(keep, |seconds| format!("{seconds}s")),
                value("MaxKeepAliveRequests", "100"),
            ],
            keep_alive_s,
            record_bytes: None,
            workers: None,
            connections_count: value("MaxRequestWorkers", "").parse().ok(),
            passes_on: passes.clone().next().map(|_| passes.clone().all(keeps)),
            access_logs: access_logs(&each("CustomLog"), main, &self.root),
        }
    }
}

/// The configuration for a patch, as far as its conditions are met.
pub(super) fn parts(path: &Path, files: &mut Files) -> Result<Vec<Part>> {
    Ok(parts_of(&reader::read(path, files)?.directives))
}

fn parts_of(directives: &[Directive]) -> Vec<Part> {
    let part = |directive: &Directive| Part {
        name: name_of(&directive.name, &directive.first().unwrap_or_default()),
        says: format!("{} {}", directive.name, directive.arguments),
        at: directive.at.clone(),
        place: if switched_on(std::slice::from_ref(directive)) == Some(true) { "tls" } else { "" },
        inner: parts_of(inner_of(directive)),
    };
    directives.iter().map(part).collect()
}

fn written(directives: &[Directive]) -> String {
    let mut text = String::new();
    directives.iter().for_each(|directive| directive.write(&mut text, 0));
    text
}

/// Whether a directive runs a program by one of its values: a map, a source of random numbers, CGI, PHP, or what
/// server-side includes may run.
fn runs_program(directive: &Directive) -> bool {
    let has = |kinds: &[&str]| kinds.iter().any(|kind| directive.arguments.contains(kind));
    let words = directive.values();
    words.iter().any(|word| PROGRAMS.iter().any(|start| word.starts_with(start)))
        || is_of(directive, "SSLPassPhraseDialog") && directive.arguments.contains('|')
        || is_of(directive, "AddHandler SetHandler") && has(&["cgi", "php", "server-parsed"])
        || is_of(directive, "AddOutputFilter SetOutputFilter") && has(&["INCLUDES"])
        || is_of(directive, "XBitHack") && !has(&["off", "Off"])
}

/// The same with those values alone that pages and records show.
fn shown(directives: &[Directive]) -> Vec<Directive> {
    let one = |directive: &Directive| {
        let handling = TABLE.handling(&directive.name);
        let (name, is_shown) = effects::shown(&directive.name, handling);
        let arguments = if is_shown || directive.arguments.is_empty() { &directive.arguments } else { BLOTTED };
        let inner = directive.inner.as_deref().filter(|_| handling != Some(Handling::Code)).map(shown);
        Directive { inner, ..Directive::new(name, arguments) }
    };
    directives.iter().map(one).collect()
}

/// A text of one file as it is understood, written again.
pub(super) fn rewritten(text: &str) -> Result<String> {
    Ok(written(&reader::parsed(text)?))
}

/// `-all +TLSv1.2`, `all -SSLv3`: words one after the other.
fn protocols(words: &[String]) -> Vec<String> {
    const ALL: [&str; 4] = ["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
    let mut taken: Vec<&str> = Vec::new();
    for word in words {
        let (sign, name) = match word.split_at_checked(1) {
            Some((sign @ ("+" | "-"), name)) => (sign, name),
            _ => ("", word.as_str()),
        };
        let meant =
            ALL.into_iter().filter(|version| name.eq_ignore_ascii_case(version) || name.eq_ignore_ascii_case("all"));
        match sign {
            "-" => taken.retain(|version| !meant.clone().any(|other| other == *version)),
            "+" => taken.extend(meant),
            _ => taken = meant.collect(),
        }
    }
    ALL.into_iter().filter(|version| taken.contains(version)).map(str::to_owned).collect()
}

fn access_logs(logs: &[&Directive], main: &[Directive], root: &Path) -> Vec<AccessLog> {
    let named = |name: &str| {
        let mut formats = main.iter().filter(|directive| directive.is("LogFormat")).map(|directive| directive.values());
        formats.rfind(|words| words.get(1).is_some_and(|other| other == name)).map(|words| words[0].clone())
    };
    let log = |directive: &&Directive| {
        let words = directive.values();
        let path = words.first().filter(|path| !path.starts_with('|'))?;
        let format = words.get(1).cloned().unwrap_or_default();
        Some(AccessLog { path: root.join(path).display().to_string(), format: named(&format).unwrap_or(format) })
    };
    logs.iter().filter_map(log).collect()
}

fn is_host(directive: &Directive) -> bool {
    directive.inner.is_some() && directive.is("VirtualHost")
}

fn inner_of(directive: &Directive) -> &[Directive] {
    directive.inner.as_deref().unwrap_or_default()
}

fn switched_on(directives: &[Directive]) -> Option<bool> {
    let last = directives.iter().rev().find(|directive| directive.is("SSLEngine"))?;
    Some(last.first().is_some_and(|word| word.eq_ignore_ascii_case("on")))
}

/// Whether a virtual host speaks TLS: by its own word, or by that around it.
fn has_tls(host: &Directive, main: &[Directive]) -> bool {
    switched_on(inner_of(host)).or_else(|| switched_on(main)).unwrap_or(false)
}

fn port_of(address: &str) -> Option<u16> {
    address.rsplit(':').next()?.parse().ok()
}

fn server_of(host: &Directive) -> Server<'_> {
    let port = host.values().iter().find_map(|address| port_of(address));
    Server { inner: inner_of(host), port: port.unwrap_or(PORT_OF_TLS) }
}

impl InstalledSite for Apache {
    fn hosts(&self) -> Vec<Host> {
        let host = |server: Server| {
            let named = server.inner.iter().filter(|directive| directive.is_any(&["ServerName", "ServerAlias"]));
            let bare = |name: String| {
                name.rsplit("://").next().unwrap_or_default().split(':').next().unwrap_or_default().to_owned()
            };
            let names = named.flat_map(|directive| directive.values()).map(bare).collect();
            let sends_away = |directive: &Directive| {
                let words = directive.values();
                let path = words.iter().rev().nth(1).map(String::as_str);
                directive.is_any(&["Redirect", "RedirectPermanent"]) && path == Some("/")
            };
            let only_redirects = server.inner.iter().any(sends_away);
            Host { names, port: server.port, only_redirects, facts: self.facts(&server) }
        };
        self.servers().into_iter().map(host).collect()
    }

    fn notes(&self) -> Vec<(String, String)> {
        let unmet = self.left_out.iter().unique().join(", ");
        let notes = (format!("Conditions that are not met: {unmet}"), "What stands below them is left out".to_owned());
        if unmet.is_empty() { Vec::new() } else { vec![notes] }
    }

    fn is_tls_client(&self) -> bool {
        all(&self.directives).iter().any(|directive| directive.is("SSLProxyEngine"))
    }

    fn copy(&self, host: Option<&str>, ports: Ports) -> Result<Copied> {
        let hosts = self.hosts();
        let port = measured(&hosts, host).context("none of its servers speaks TLS")?.port;
        let main = self.directives.as_slice();
        let is_main = self.servers().iter().all(|server| server.inner.is_empty());
        let mut copy = Copy::new(ports, port, main);
        let own = |name: &str| format!("\"{}\"", ports.own(name));
        let mut directives = vec![
            Directive::new("DefaultRuntimeDir", format!("\"{}\"", ports.directory.display())),
            Directive::new("PidFile", own("apache.pid")),
            Directive::new("Listen", format!("127.0.0.1:{} https", ports.port)),
            Directive::new("Listen", format!("127.0.0.1:{} http", ports.plain_port)),
        ];
        for (name, value) in [("ServerName", "localhost".to_owned()), ("ErrorLog", own("error.log"))] {
            if !main.iter().any(|directive| directive.is(name)) {
                directives.push(Directive::new(name, value));
            }
        }
        directives.extend(copy.block(&self.directives)?);
        if is_main {
            let inner = Some(vec![Directive::new("SSLEngine", "off")]);
            directives
                .push(Directive { inner, ..Directive::new("VirtualHost", format!("127.0.0.1:{}", ports.plain_port)) });
        }
        Ok(copy.done.copied(written(&directives), written(&shown(&directives))))
    }

    fn change_tls(&mut self, asked: &TlsChange, tls: &ServerTls, place: InstancePlace) -> Result<()> {
        let is_on = switched_on(&self.directives) == Some(true);
        // Of all that a server of ours would have, what is asked.
        let mut lines = reader::parsed(&apache::tls_directives(tls, place, None)?.join("\n"))?;
        lines.retain(|line| is_asked(asked, line));
        if let Some(seconds) = asked.keep_alive_s {
            let keep = [("KeepAlive", "On".to_owned()), ("KeepAliveTimeout", seconds.to_string())];
            lines.extend(keep.map(|(name, value)| Directive::new(name, value)));
        }
        let main =
            lines.extract_if(.., |line| is_of(line, "SSLSessionCache SSLSessionCacheTimeout")).collect::<Vec<_>>();
        replace(&mut self.directives, asked, &lines, is_on);
        let around = if is_on { lines } else { Vec::new() };
        self.directives.extend([main, around].concat());
        Ok(())
    }

    fn prepare(&self, _program: &Path, file: &Path, _directory: &Path) -> Result<Vec<String>> {
        let words = ["-DFOREGROUND", "-d", &self.root.display().to_string(), "-f", &file.display().to_string()];
        Ok(words.map(str::to_owned).into())
    }

    fn documents(&self) -> Vec<PathBuf> {
        let roots = all(&self.directives)
            .into_iter()
            .filter(|directive| directive.is("DocumentRoot"))
            .filter_map(Directive::first);
        roots.filter(|path| path.starts_with('/') && path.len() > 1).map(PathBuf::from).collect()
    }
}

/// Whether a directive says what is asked for otherwise, or is what is asked for.
fn is_asked(asked: &TlsChange, directive: &Directive) -> bool {
    let words = directive.values();
    let is_group =
        words.first().is_some_and(|word| ["groups", "curves", "ecdhparameters"].contains(&&*word.to_ascii_lowercase()));
    let is_tls13 = words.len() > 1;
    asked.certificate.is_some()
        && directive.is_any(&["SSLCertificateFile", "SSLCertificateKeyFile", "SSLCertificateChainFile"])
        || asked.version.is_some() && directive.is("SSLProtocol")
        || asked.suite.is_some_and(|suite| (suite.version() == Version::Tls13) == is_tls13)
            && directive.is("SSLCipherSuite")
        || asked.group.is_some() && is_group && directive.is("SSLOpenSSLConfCmd")
        || asked.tickets.is_some() && directive.is("SSLSessionTickets")
        || asked.ticket_keys.is_some() && directive.is("SSLSessionTicketKeyFile")
        || asked.session_cache.is_some() && directive.is("SSLSessionCache")
        || asked.session_timeout_s.is_some() && directive.is("SSLSessionCacheTimeout")
        || asked.keep_alive_s.is_some() && directive.is_any(&["KeepAlive", "KeepAliveTimeout"])
}

/// Takes out whose place is taken, and puts lines into all virtual hosts with TLS.
fn replace(directives: &mut Vec<Directive>, asked: &TlsChange, lines: &[Directive], is_on: bool) {
    directives.retain(|directive| directive.inner.is_some() || !is_asked(asked, directive));
    for directive in directives {
        let puts = is_host(directive) && switched_on(inner_of(directive)).unwrap_or(is_on);
        if let Some(inner) = &mut directive.inner {
            replace(inner, asked, lines, is_on);
            inner.extend(lines.iter().filter(|_| puts).cloned());
        }
    }
}

#[cfg(test)]
mod tests;
