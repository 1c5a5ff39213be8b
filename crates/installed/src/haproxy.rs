//! An installed HAProxy: its sections, what of them reaches beyond it, and its copy.

mod conditions;
mod reader;
mod tls;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use rustix::process::geteuid;
use tlsdyno_record::model::TlsChange;

use super::effects::{self, BLOTTED, Handling, Table};
use super::files::{At, Files};
use super::patch::{Part, name_of};
use super::site::{
    ASKED, AccessLog, Copied, Done, Facts, Host, LEFT_OUT, MAY_DO_ANYTHING, NOT_KNOWN, OWN_PLACE, seconds,
};
use super::site::{InstalledSite, PORT_OF_TLS, Ports, is_listed, place_of_measured};
use reader::{Line, Section};
pub(super) use tls::with_parameters;
use tlsdyno_servers::{InstancePlace, ServerTls};

#[derive(Clone, Debug)]
pub(super) struct Haproxy {
    sections: Vec<Section>,
    home: PathBuf,
}

/// What kinds of sections the copy lacks: they serve, report or run something of their own.
const SECTIONS_OUT: &str = "peers mailers program log-forward ring traces";
static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("haproxy/directives.txt")));
/// Who the process is, which only root can say.
const OWNER: &str = "user group uid gid";
/// Words of `bind` that do not fit loopback or one thread, behind a colon how many follow each.
const BIND_OUT: &str = "accept-proxy accept-netscaler-cip:1 expose-fd:1 process:1 thread:1 shards:1 interface:1 \
    namespace:1 transparent v4v6 v6only mode:1 user:1 group:1 uid:1 gid:1 level:1";
/// Words of `server` that ask others without a request, likewise.
const CHECKS: &str = "check agent-check agent-addr:1 agent-port:1 agent-inter:1 agent-send:1 check-send-proxy track:1 \
    observe:1 on-error:1";
/// Counters of one address: the one client of a load has all requests.
const OF_ONE_ADDRESS: &str = "sc_ sc0_ sc1_ src_";

impl Haproxy {
    pub(super) fn read(path: &Path, texts: &mut Files) -> Result<Haproxy> {
        let mut sections = vec![Section::default()];
        for file in files(path)? {
            let (number, text) = texts.text(&file)?;
            let read = reader::read(&text, number, &mut sections, &conditions::is_met);
            read.with_context(|| format!("{}", file.display()))?;
        }
        if !sections.iter().any(|section| section.kind() == "global") {
            sections.insert(1, Section { head: vec!["global".to_owned()], ..Section::default() });
        }
        let home = if path.is_dir() { Some(path) } else { path.parent() };
        let home = home.filter(|home| !home.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let home = home.canonicalize().with_context(|| format!("find {}", home.display()))?;
        Ok(Haproxy { sections, home })
    }

    fn fronts(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|section| section.is_front())
    }

    fn global(&self) -> impl DoubleEndedIterator<Item = &Line> {
        self.sections.iter().filter(|section| section.kind() == "global").flat_map(|section| &section.lines)
    }

    /// Lines that hold in a section: those of its defaults first.
    fn in_force<'a>(&'a self, front: &'a Section) -> Vec<&'a Line> {
        let at = self.sections.iter().position(|section| std::ptr::eq(section, front)).unwrap_or(0);
        let named = front.head.iter().position(|word| word == "from").and_then(|from| front.head.get(from + 1));
        let is_it = |section: &&Section| match named {
            Some(name) => section.kind() == "defaults" && section.name() == Some(name),
            None => section.kind() == "defaults",
        };
        let defaults = self.sections[..at].iter().rev().find(is_it).map_or(&[][..], |section| &section.lines);
        defaults.iter().chain(&front.lines).collect()
    }

    fn facts(&self, front: &Section, bind: &Line) -> Facts {
        let lines = self.in_force(front);
        let global = |name: &[&str]| self.global().rev().find_map(|line| line.behind(name)).map(<[String]>::to_vec);
        let value = |name: &[&str]| lines.iter().rev().find_map(|line| line.behind(name)).and_then(|rest| rest.first());
        let base = global(&["crt-base"]).and_then(|words| words.first().cloned()).unwrap_or_default();
        let cache = global(&["tune.ssl.cachesize"]).map_or("20000".to_owned(), |words| words.concat());
        let options = global(&["ssl-default-bind-options"]).unwrap_or_default();
        let option = |name: &str| bind.has(name) || options.iter().any(|word| word == name);
        let cipher = bind.value("ciphers").or_else(|| global(&["ssl-default-bind-ciphers"])?.first().cloned());
        let group = bind.value("curves").or_else(|| global(&["ssl-default-bind-curves"])?.first().cloned());
        let group = group.or_else(|| bind.value("ecdhe"));
        let is_closed =
            ["httpclose", "forceclose"].iter().any(|name| lines.iter().any(|line| line.starts(&["option", name])));
        let closes_behind = value(&["http-reuse"]).is_some_and(|how| how == "never")
            || lines.iter().any(|line| line.starts(&["option", "http-server-close"]));
        // The last of them holds for whatever has none of its own.
        let timeouts = ["http-keep-alive", "http-request", "client"];
        let keep = timeouts.iter().find_map(|name| value(&["timeout", name])).filter(|_| !is_closed);
        let keep_alive_s = if is_closed { Some(0) } else { keep.and_then(|time| seconds(time, 1e-3)) };
        let number = |name: &str| global(&[name])?.first()?.parse().ok();
        let lifetime = global(&["tune.ssl.lifetime"])
            .map_or(Some(300), |words| seconds(words.first().map_or("", String::as_str), 1.0));
        let alpn = bind.value("alpn").unwrap_or_default();
        Facts {
            certificates: tls::certificates(bind, &base, &self.home),
            protocols: tls::protocols(bind, &options),
            groups: group.map(|list| list.split(':').map(str::to_owned).collect()).unwrap_or_default(),
            ciphers: cipher.unwrap_or_default(),
            weak_suites: Vec::new(),
            session_cache: if cache == "0" { "off".to_owned() } else { format!("shared: {cache} blocks") },
            session_timeout: lifetime.map_or_else(|| "no known time".to_owned(), |seconds| format!("{seconds}s")),
            session_timeout_s: lifetime,
            tickets: !option("no-tls-tickets"),
            ticket_key_files: usize::from(bind.has("tls-ticket-keys")),
            early_data: option("allow-0rtt"),
            stapling: false,
            http2: alpn.split(',').any(|name| name == "h2"),
            keep_alive: [
                keep_alive_s.map_or("no limit of time".to_owned(), |seconds| format!("{seconds}s")),
                "any number of".into(),
            ],
            keep_alive_s,
            record_bytes: number("tune.ssl.maxrecord").filter(|bytes| *bytes > 0),
            workers: number("nbthread"),
            connections_count: number("maxconn"),
            passes_on: Some(!closes_behind),
            access_logs: access_logs(&lines),
        }
    }

    /// The names that its conditions ask for; HAProxy itself takes any.
    fn names(front: &Section) -> Vec<String> {
        let is_name = |word: &&String| word.contains('.') && !word.contains(['(', '/', '%', '{', '_']);
        let about_host =
            |line: &&Line| line.words.iter().any(|word| word.contains("hdr(host)") || word.contains("ssl_fc_sni"));
        let words = front.lines.iter().filter(about_host).flat_map(|line| &line.words);
        words.filter(is_name).map(|word| word.trim_matches('"').to_owned()).collect()
    }
}

/// A text of one file as it is understood, written again.
pub(super) fn rewritten(text: &str) -> Result<String> {
    let mut sections = vec![Section::default()];
    reader::read(text, 0, &mut sections, &|_, _| Ok(true))?;
    let mut again = String::new();
    sections.iter().for_each(|section| section.write(&mut again));
    Ok(again)
}

/// The files of a path: one, or those of a directory as HAProxy takes them.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).with_context(|| format!("read {}", path.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "cfg") && file.is_file());
    files.sort_unstable();
    Ok(files)
}

/// The configuration for a patch, as far as its conditions are met. What begins a section stands first in it.
pub(super) fn parts(path: &Path, texts: &mut Files) -> Result<Vec<Part>> {
    let section = |section: &Section| {
        let part = |name: String, words: &[String], at: &At| Part {
            name,
            says: words.join(" "),
            at: at.clone(),
            ..Part::default()
        };
        let mut head = part(String::new(), &section.head, &section.at);
        head.place = match section.kind() {
            "global" => "global",
            _ if section.binds().any(|bind| bind.has("ssl")) => "front",
            _ => "",
        };
        let name = |line: &Line| name_of(&line.words[0], line.words.get(1).map_or("", |word| word));
        let lines = section.lines.iter().map(|line| part(name(line), &line.words, &line.at));
        Part { inner: [head].into_iter().chain(lines).collect(), ..Part::default() }
    };
    Ok(Haproxy::read(path, texts)?.sections.iter().map(section).collect())
}

fn line_of(text: &str) -> Option<Line> {
    Some(reader::split(text)?.0).filter(|words| !words.is_empty()).map(Line::from)
}

fn access_logs(lines: &[&Line]) -> Vec<AccessLog> {
    let is_logged = lines.iter().any(|line| line.starts(&["log"]) || line.starts(&["option", "httplog"]));
    let format = lines.iter().rev().find_map(|line| line.behind(&["log-format"])).map(|words| words.concat());
    let format = format.unwrap_or_else(|| "HAProxy's own".to_owned());
    if is_logged { vec![AccessLog { path: "syslog".to_owned(), format }] } else { Vec::new() }
}

impl InstalledSite for Haproxy {
    fn hosts(&self) -> Vec<Host> {
        self.places().into_iter().map(|(_, host)| host).collect()
    }

    fn tls_servers(&self) -> usize {
        self.fronts().filter(|front| front.binds().any(|bind| bind.has("ssl"))).count()
    }

    fn is_tls_client(&self) -> bool {
        self.sections.iter().flat_map(|section| &section.lines).any(|line| line.starts(&["server"]) && line.has("ssl"))
    }

    fn copy(&self, host: Option<&str>, ports: Ports) -> Result<Copied> {
        let (places, hosts): (Vec<usize>, Vec<Host>) = self.places().into_iter().unzip();
        let at = place_of_measured(&hosts, host).context("no section of it listens with TLS")?;
        let measured = Measured { section: places[at], port: hosts[at].port };
        let mut copy = Copy { ports, measured, done: Done::default(), sockets: self.sockets(measured, ports) };
        let (mut text, mut blotted) = (String::new(), String::new());
        for (number, section) in self.sections.iter().enumerate() {
            ensure!(
                TABLE.handling(section.kind()) != Some(Handling::Refused),
                "it has a section {}, which would order certificates; give a configuration without it",
                section.kind()
            );
            if is_listed(SECTIONS_OUT, section.kind()) {
                copy.done.add(LEFT_OUT, section.kind());
                continue;
            }
            let section = copy.section(number, section, &self.home);
            section.write(&mut text);
            shown(&section).write(&mut blotted);
        }
        Ok(copy.done.copied(text, blotted))
    }

    fn change_tls(&mut self, asked: &TlsChange, tls: &ServerTls, place: InstancePlace) -> Result<()> {
        tls::change(&mut self.sections, asked, tls, place)
    }

    fn prepare(&self, _program: &Path, file: &Path, _directory: &Path) -> Result<Vec<String>> {
        // In the foreground, with one process.
        Ok(vec!["-db".to_owned(), "-f".to_owned(), file.display().to_string()])
    }

    fn documents(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

impl Haproxy {
    fn places(&self) -> Vec<(usize, Host)> {
        let mut hosts = Vec::new();
        for (number, front) in self.sections.iter().enumerate().filter(|(_, section)| section.is_front()) {
            let is_default =
                |line: &Line| line.starts(&["default_backend"]) || line.starts(&["http-request", "return"]);
            let has_pages = front.kind() == "listen" || front.lines.iter().any(is_default);
            for bind in front.binds().filter(|bind| bind.has("ssl")) {
                let port = bind.port().unwrap_or(PORT_OF_TLS);
                let facts = self.facts(front, bind);
                let names = Haproxy::names(front);
                // Where something answers any name, none need be asked for.
                let any = (has_pages || names.is_empty()).then(Vec::new);
                let names = any.into_iter().chain(names.into_iter().map(|name| vec![name]));
                hosts
                    .extend(names.map(|names| (number, Host { names, port, facts: facts.clone(), ..Host::default() })));
            }
        }
        hosts
    }

    /// Where the copy listens in the place of each address that the sections listen on.
    fn sockets(&self, measured: Measured, ports: Ports) -> BTreeMap<String, String> {
        let mut sockets = BTreeMap::new();
        for (section, front) in self.sections.iter().enumerate().filter(|(_, section)| section.is_front()) {
            for bind in front.binds() {
                for address in bind.addresses() {
                    let number = sockets.len();
                    let own = match measured.is(section, bind) {
                        true => format!("127.0.0.1:{}", ports.port),
                        false => format!("unix@{}", ports.own(&format!("listen-{number}.sock"))),
                    };
                    sockets.entry(address).or_insert(own);
                }
            }
        }
        sockets
    }
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    section: usize,
    port: u16,
}

impl Measured {
    fn is(self, section: usize, bind: &Line) -> bool {
        self.section == section && bind.has("ssl") && bind.port().unwrap_or(PORT_OF_TLS) == self.port
    }
}

struct Copy<'a> {
    ports: Ports<'a>,
    measured: Measured,
    done: Done,
    /// Where the copy listens, by the addresses of the installed server.
    sockets: BTreeMap<String, String>,
}

impl Copy<'_> {
    fn section(&mut self, number: usize, section: &Section, home: &Path) -> Section {
        let mut lines = Vec::new();
        let is_measured = number == self.measured.section;
        let in_global = section.kind() == "global";
        if in_global {
            lines.push(Line::parse("nbthread 1"));
            // Relative names mean files beside the configuration.
            if !section.lines.iter().any(|line| line.starts(&["default-path", "origin"])) {
                lines.push(Line::parse(&format!("default-path origin {}", quoted(&home.display().to_string()))));
            }
        }
        for line in &section.lines {
            if line.starts(&["bind"]) {
                // One of IPv4 and one of IPv6 for the same port are one.
                let own = self
                    .bind(line)
                    .filter(|own| !lines.iter().any(|other: &Line| other.words.get(1) == own.words.get(1)));
                lines.extend(own);
            } else if let Some(line) = self.line(line, in_global, is_measured) {
                lines.push(line);
            }
        }
        if is_measured {
            lines.insert(0, Line::parse(&format!("bind 127.0.0.1:{}", self.ports.plain_port)));
        }
        Section { lines, ..section.clone() }
    }

    /// The listener of the copy in the place of one: several addresses are one. HTTP/3 is left out, as it is not
    /// measured.
    fn bind(&mut self, bind: &Line) -> Option<Line> {
        let address = bind.addresses().find(|address| !address.starts_with("quic"))?;
        let own = self.sockets.get(&address)?.clone();
        let mut rest = Line::from(bind.words[2..].to_vec());
        rest.remove_listed(BIND_OUT);
        Some([vec!["bind".to_owned(), own], rest.words].concat().into())
    }

    fn line(&mut self, line: &Line, in_global: bool, is_measured: bool) -> Option<Line> {
        let first = line.words[0].as_str();
        let handling = handling_of(line, in_global);
        let limits = |word: &String| {
            OF_ONE_ADDRESS.split(' ').any(|start| word.trim_start_matches(['{', '!', ' ']).starts_with(start))
        };
        let holds_back = ["deny", "tarpit", "reject", "silent-drop"].iter().any(|verb| line.has(verb))
            && line.words.iter().any(limits);
        let redirects = line.has("redirect") && line.has("scheme") && line.has("https");
        let named = named(line);
        match handling {
            _ if holds_back => {
                self.done.add(LEFT_OUT, "limits for one address");
                return None;
            }
            Some(Handling::LeftOut | Handling::Ours) => {
                self.done.add(LEFT_OUT, &named);
                return None;
            }
            Some(Handling::Code) => self.done.add(MAY_DO_ANYTHING, &named),
            Some(Handling::Asks) if first != "nameserver" => self.done.add(ASKED, &named),
            None => self.done.add(NOT_KNOWN, &named),
            Some(_) => {}
        }
        if redirects && is_measured {
            self.done.add(LEFT_OUT, "redirects to https, which the copy's plain side would send");
            return None;
        }
        match first {
            "default-path" if !line.has("origin") => None,
            _ if in_global && is_listed(OWNER, first) && !geteuid().is_root() => None,
            "log" if line.words.get(1).is_some_and(|to| to != "global" && to != "stdout") => {
                self.done.add(OWN_PLACE, "log");
                Some(own_log(line))
            }
            "server" | "server-template" | "default-server" => Some(self.server(line)),
            "stick-table" => {
                let mut line = line.clone();
                line.remove("peers", 1);
                Some(line)
            }
            "nameserver" => {
                self.done.add(ASKED, &format!("{} (nameserver)", line.words.last().map_or("", String::as_str)));
                Some(line.clone())
            }
            _ => Some(line.clone()),
        }
    }

    /// A server behind: without checks, which ask it without a request; one of this configuration is the copy's.
    fn server(&mut self, line: &Line) -> Line {
        let before = line.words.len();
        let mut line = line.clone();
        line.remove_listed(CHECKS);
        if line.words.len() < before {
            self.done.add(LEFT_OUT, "health checks (it also asks servers that are down)");
        }
        let at = match line.words[0].as_str() {
            "server" => 2,
            "server-template" => 3,
            _ => return line,
        };
        let Some(address) = line.words.get(at).cloned() else { return line };
        if let Some(own) = self.sockets.get(&reader::plain_address(&address)) {
            line.words[at].clone_from(own);
            // Those of the copy take no PROXY header.
            line.remove_listed("send-proxy send-proxy-v2");
            return line;
        }
        let bare = ["ipv4@", "ipv6@", "unix@"].iter().find_map(|start| address.strip_prefix(start)).unwrap_or(&address);
        let application = if bare.starts_with('/') { format!("unix:{bare}") } else { bare.to_owned() };
        let is_place =
            bare.starts_with('/') || bare.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let is_plain = is_place && !["ssl", "send-proxy", "send-proxy-v2", "proto"].iter().any(|word| line.has(word));
        let name = line.words[0].clone();
        if let Some(own) = self.ports.in_place_of(&application, is_plain, &name, &mut self.done) {
            // One of a template stands for all.
            line.words.splice(..=at, ["server".to_owned(), line.words[1].clone(), format!("unix@{own}")]);
            line.remove("resolvers", 1);
        }
        line
    }
}

/// What becomes of a line by its first two words, else by the first; in `global` some mean something else.
fn handling_of(line: &Line, in_global: bool) -> Option<Handling> {
    let (first, second) = meant(line);
    let names = [format!("{first}:{second}"), first.to_owned()];
    let in_global = names.iter().filter(|_| in_global).map(|name| format!("global/{name}"));
    in_global.chain(names.iter().cloned()).find_map(|name| TABLE.handling(&name))
}

/// What a line is called: with its second word where the first says little.
fn named(line: &Line) -> String {
    const WITH_SECOND: &str = "option filter http-request http-response tcp-request tcp-response http-after-response";
    let (first, second) = meant(line);
    if is_listed(WITH_SECOND, first) { format!("{first} {second}") } else { first.to_owned() }
}

/// The two words that say what a line does: `no option logasap`, `tcp-request content set-var(txn.x)`.
fn meant(line: &Line) -> (&str, &str) {
    let word = |at: usize| line.words.get(at).map_or("", |word| word.split('(').next().unwrap_or_default());
    let from = usize::from(["no", "default"].contains(&word(0)));
    let is_rule = ["tcp-request", "tcp-response"].contains(&word(from));
    let is_staged = is_rule && ["connection", "session", "content"].contains(&word(from + 1));
    (word(from), word(from + 1 + usize::from(is_staged)))
}

/// The same with those values alone that pages and records show.
fn shown(section: &Section) -> Section {
    let in_global = section.kind() == "global";
    let one = |line: &Line| {
        let handling = handling_of(line, in_global);
        let first = line.words[0].as_str();
        // Of a server where it is.
        let kept = match first {
            "server" | "server-template" => 3,
            _ if handling.is_some_and(Handling::is_shown) => line.words.len(),
            _ => 1,
        };
        let (name, _) = effects::shown(first, handling);
        let mut words: Vec<String> = line.words.iter().take(kept).cloned().collect();
        name.clone_into(&mut words[0]);
        if line.words.len() > kept {
            words.push(BLOTTED.to_owned());
        }
        Line::from(words)
    };
    Section { lines: section.lines.iter().map(one).collect(), ..section.clone() }
}

/// The same log on standard output, which is a file of the copy.
fn own_log(line: &Line) -> Line {
    let mut rest = Line::from(line.words[2..].to_vec());
    rest.remove_listed("format:1 len:1 sample:1 profile:1");
    [Line::parse("log stdout format raw").words, rest.words].concat().into()
}

fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests;
