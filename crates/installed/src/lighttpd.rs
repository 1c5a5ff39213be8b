//! An installed lighttpd: what it prints of its own configuration, and its copy.

mod conditions;
mod reader;
mod source;

use std::path::{Path, PathBuf, absolute};
use std::sync::{LazyLock, Once};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use regex_lite::{Captures, Regex};
use rustix::process::geteuid;
use tlsdyno_base::tell;
use tlsdyno_record::model::{SessionCache, TlsChange};

use super::effects::{self, BLOTTED, Handling, Table};
use super::files::Files;
use super::site::{
    ASKED, AccessLog, Copied, Done, Facts, Host, LEFT_OUT, MAY_DO_ANYTHING, NOT_KNOWN, OWN_PLACE, seconds,
};
use super::site::{InstalledSite, PORT_OF_TLS, Ports, is_listed, measured, versions};
use reader::{Item, value_of};
pub(super) use source::{instead, names_of, parts};
use tlsdyno_servers::worker_user::{WorkerUser, create_for_workers};
use tlsdyno_servers::{InstancePlace, ServerTls, lighttpd, programs};

/// An installed configuration as lighttpd prints it (`-p`), includes and sums done.
#[derive(Clone, Debug)]
pub(super) struct Lighttpd {
    items: Vec<Item>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("lighttpd/directives.txt")));
const DIRECTORIES: &str = "server.upload-dirs deflate.cache-dir compress.cache-dir";
/// What a certificate of another kind takes with it.
const CERTIFICATES: &str = "ssl.pemfile ssl.privkey ssl.ca-file ssl.stapling-file";
/// How long lighttpd may take to say what its files mean: they may have it run commands.
const PATIENCE: Duration = Duration::from_secs(60);

impl Lighttpd {
    pub(super) fn read(path: &Path) -> Result<Lighttpd> {
        // By one name, for it is read once.
        let path = &absolute(path).with_context(|| format!("read {}", path.display()))?;
        let commands = commands_in(path)?;
        let program = lighttpd::PACKAGE.require("")?;
        let arguments = vec!["-p".into(), "-f".into(), path.into()];
        let output = programs::ask(&program, arguments, PATIENCE).map_err(|what| anyhow!(what))?;
        let error = String::from_utf8_lossy(&output.error);
        ensure!(output.status.success(), "lighttpd does not read {}: {}", path.display(), error.trim());
        static TOLD: Once = Once::new();
        let ran =
            if commands.is_empty() { String::new() } else { format!(", and of include_shell {}", commands.join(", ")) };
        TOLD.call_once(|| tell!("lighttpd -p -f {} ran once{ran}, {}", path.display(), output.held));
        Lighttpd::parse(&super::text_of(&output.out))
    }

    fn parse(printed: &str) -> Result<Lighttpd> {
        let mut items = reader::read(printed).context("lighttpd printed what is not understood")?;
        let is_tls = |item: &Item| item.is_of_tls() && !item.is("ssl.engine");
        let global: Vec<Item> = items.iter().filter(|item| is_tls(item)).cloned().collect();
        // A socket that switches TLS on and says no more of it has what the main server says, all or nothing: what a
        // copy adds to it would be alone there.
        reader::change_all(&mut items, &mut |items| {
            for item in items {
                if let Item::Block { head, inner } = item
                    && socket_port(head).is_some()
                    && is_on(inner) == Some(true)
                    && !inner.iter().any(is_tls)
                {
                    inner.extend(global.iter().cloned());
                }
            }
        });
        Ok(Lighttpd { items })
    }

    fn global(&self, name: &str) -> Option<String> {
        value_of(&self.items, name)
    }

    fn has_tls_everywhere(&self) -> bool {
        is_on(&self.items) == Some(true)
    }

    /// Sockets with TLS, each with its port and what holds there; that of the main server has nothing of its own.
    fn sockets(&self) -> Vec<(u16, &[Item])> {
        let everywhere = self.has_tls_everywhere();
        // They may stand below a condition on the host, which cannot be known when a connection comes in.
        let blocks = reader::all(&self.items).into_iter().filter_map(|item| match item {
            Item::Block { head, inner } if is_on(inner).unwrap_or(everywhere) => {
                Some((socket_port(head)?, inner.as_slice()))
            }
            _ => None,
        });
        let own = self.global("server.port").and_then(|port| port.parse().ok()).unwrap_or(PORT_OF_TLS);
        let main = everywhere.then_some((own, &[][..]));
        main.into_iter().chain(blocks).collect()
    }

    /// Of a socket, as a client sees it that asks for this host.
    fn facts(&self, port: u16, socket: &[Item], host: Option<&str>) -> Facts {
        let around = conditions::in_force(&self.items, port, host);
        let in_force = [around, conditions::in_force(socket, port, host)].concat();
        let value = |name: &str| in_force.iter().rev().find(|item| item.is(name)).and_then(|item| item.value());
        // Where only other hosts have a certificate, one of theirs stands for all.
        let any = |name: &str| reader::all(socket).into_iter().find(|item| item.is(name)).and_then(Item::value);
        let bare = |value: String| value.trim_matches('"').to_owned();
        let text = |name: &str| value(name).map(bare);
        let commands = reader::pairs(&value("ssl.openssl.ssl-conf-cmd").unwrap_or_default());
        let command = |name: &str| {
            commands.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        };
        let features = reader::pairs(&value("server.feature-flags").unwrap_or_default());
        let feature = |name: &str| features.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let groups =
            command("Groups").or_else(|| command("Curves")).or_else(|| text("ssl.ec-curve")).unwrap_or_default();
        let keep = [
            text("server.max-keep-alive-idle").unwrap_or("5".to_owned()) + "s",
            text("server.max-keep-alive-requests").unwrap_or("1000".to_owned()),
        ];
        let logged = value("accesslog.filename").map(|path| path.trim_matches('"').to_owned());
        let passes = reader::all(&self.items)
            .into_iter()
            .any(|item| matches!(item, Item::Setting { name, .. } if passes_on(name)));
        Facts {
            certificates: text("ssl.pemfile").or_else(|| any("ssl.pemfile").map(bare)).into_iter().collect(),
            protocols: versions(command("MinProtocol"), command("MaxProtocol")),
            groups: groups.split(':').filter(|group| !group.is_empty()).map(str::to_owned).collect(),
            ciphers: text("ssl.cipher-list").or_else(|| command("CipherString")).unwrap_or_default(),
            weak_suites: Vec::new(),
            session_cache: match feature("ssl.session-cache") {
                Some("enable") => "in its one process: shared".to_owned(),
                _ => "off".to_owned(),
            },
            // OpenSSL's own; there is no setting (docs/SERVERS.md).
            session_timeout: "two hours".to_owned(),
            session_timeout_s: Some(7_200),
            tickets: !command("Options").unwrap_or_default().contains("-SessionTicket"),
            ticket_key_files: usize::from(text("ssl.stek-file").is_some()),
            early_data: false,
            stapling: text("ssl.stapling-file").is_some(),
            http2: feature("server.h2proto") != Some("disable"),
            keep_alive_s: if keep[1] == "0" { Some(0) } else { seconds(&keep[0], 1.0) },
            keep_alive: keep,
            record_bytes: None,
            // Without workers one process does all.
            workers: Some(value("server.max-worker").and_then(|count| count.parse().ok()).unwrap_or(1).max(1)),
            connections_count: value("server.max-connections").and_then(|count| count.parse().ok()),
            passes_on: passes.then_some(true),
            access_logs: logged
                .map(|path| AccessLog { path, format: text("accesslog.format").unwrap_or_default() })
                .into_iter()
                .collect(),
        }
    }
}

fn written(items: &[Item]) -> String {
    let mut text = String::new();
    items.iter().for_each(|item| item.write(&mut text, 0));
    text
}

/// The programs of `include_shell` in a file and those that it includes, each of which nobody but root may write.
fn commands_in(path: &Path) -> Result<Vec<String>> {
    let mut files = Files::default();
    parts(path, &mut files)?;
    let lines = files.read.iter().flat_map(|(_, text)| text.lines().map(str::trim));
    let shells = lines.filter_map(|line| line.strip_prefix("include_shell")?.split('"').nth(1));
    Ok(shells.filter_map(|command| command.split_ascii_whitespace().next().map(str::to_owned)).collect())
}

fn passes_on(name: &str) -> bool {
    name.ends_with(".server") && TABLE.handling(name) == Some(Handling::Asks)
}

/// The same with those values alone that pages and records show.
fn shown(items: &[Item]) -> Vec<Item> {
    let one = |item: &Item| match item {
        Item::Setting { name, value } => {
            let (name, is_shown) = effects::shown(name, TABLE.handling(name));
            Item::setting(name, if is_shown { value } else { BLOTTED })
        }
        Item::Block { head, inner } => {
            let is_shown = !head.contains("$HTTP[")
                || ["host", "scheme"].iter().any(|field| head.contains(&format!("[\"{field}\"]")));
            let condition = head.split(']').next().unwrap_or_default();
            let head = if is_shown { head.clone() } else { format!("{condition}] {BLOTTED}") };
            Item::Block { head, inner: shown(inner) }
        }
    };
    items.iter().map(one).collect()
}

/// What the program printed as it is understood, written again.
pub(super) fn rewritten(printed: &str) -> Result<String> {
    Ok(written(&reader::read(printed)?))
}

fn is_on(items: &[Item]) -> Option<bool> {
    value_of(items, "ssl.engine").map(|value| value.contains("enable"))
}

/// The port of `$SERVER["socket"] == "0.0.0.0:443"`; another condition has none.
fn socket_port(head: &str) -> Option<u16> {
    let address = head.strip_prefix("$SERVER[\"socket\"] == \"")?.strip_suffix('"')?;
    address.rsplit(':').next()?.parse().ok()
}

fn names(items: &[Item]) -> Vec<String> {
    let name = |item: &Item| match item {
        Item::Block { head, .. } => {
            let rest = head.trim_start_matches("else ").strip_prefix("$HTTP[\"host\"] ")?;
            let exact = rest.strip_prefix("== \"").and_then(|rest| rest.strip_suffix('"')).map(str::to_owned);
            let ending = rest.strip_prefix("=$ \"").and_then(|rest| rest.strip_suffix('"'));
            exact.or_else(|| ending.map(|name| format!("*.{}", name.trim_start_matches('.'))))
        }
        Item::Setting { .. } => None,
    };
    reader::all(items).into_iter().filter_map(name).collect()
}

impl InstalledSite for Lighttpd {
    /// Since 1.4.68 it takes none without AEAD by itself, and before `HIGH`.
    fn own_suites(&self) -> Option<&'static str> {
        None
    }

    fn hosts(&self) -> Vec<Host> {
        let mut hosts = Vec::new();
        for (port, inner) in self.sockets() {
            let host = |names: Vec<String>| {
                let name = names.first().map(|name| name.replacen('*', "www", 1));
                let facts = self.facts(port, inner, name.as_deref());
                Host { names, port, only_redirects: false, facts }
            };
            hosts.push(host(Vec::new()));
            hosts.extend(names(&self.items).into_iter().map(|name| host(vec![name])));
        }
        hosts
    }

    fn tls_servers(&self) -> usize {
        self.sockets().len()
    }

    fn copy(&self, host: Option<&str>, ports: Ports) -> Result<Copied> {
        let hosts = self.hosts();
        let port = measured(&hosts, host).context("none of its sockets speaks TLS")?.port;
        let mut copy = Copy { ports, done: Done::default() };
        let mut items = vec![
            Item::setting("server.port", ports.plain_port.to_string()),
            Item::setting("server.bind", "\"127.0.0.1\""),
            Item::setting("server.pid-file", quoted(&ports.own("lighttpd.pid"))),
        ];
        let everywhere = self.has_tls_everywhere();
        let sockets: Vec<(u16, &[Item])> = self.sockets();
        let of_port: Vec<&[Item]> =
            sockets.iter().filter(|(other, _)| *other == port).map(|(_, inner)| *inner).collect();
        let inner = of_port.iter().max_by_key(|inner| inner.len()).copied().unwrap_or_default();
        let plain = copy.block(&self.items);
        // What is switched on for the main server is for its socket alone.
        items.extend(plain.into_iter().filter(|item| !everywhere || !item.is("ssl.engine")));
        let mut own = copy.block(inner);
        own.retain(|item| !item.is("ssl.engine"));
        let without_tls: Vec<Item> = own.iter().filter(|item| !item.is_of_tls()).cloned().collect();
        own.insert(0, Item::setting("ssl.engine", "\"enable\""));
        let socket =
            |port: u16, inner| Item::Block { head: format!("$SERVER[\"socket\"] == \"127.0.0.1:{port}\""), inner };
        items.push(socket(ports.port, own));
        if !without_tls.is_empty() {
            items.push(socket(ports.plain_port, without_tls));
        }
        Ok(copy.done.copied(written(&items), written(&shown(&items))))
    }

    fn change_tls(&mut self, asked: &TlsChange, tls: &ServerTls, place: InstancePlace) -> Result<()> {
        let change = lighttpd::asked_settings(asked, tls, place)?;
        let everywhere = self.has_tls_everywhere();
        // Each socket has commands of its own or those of the main server.
        let global = self.global("ssl.openssl.ssl-conf-cmd").unwrap_or_default();
        let put = |items: &mut Vec<Item>| {
            let commands = value_of(items, "ssl.openssl.ssl-conf-cmd").unwrap_or_else(|| global.clone());
            let mut commands = reader::pairs(&commands);
            for (name, value) in &change.commands {
                let merged = merged(name, value, &commands);
                commands.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
                commands.push(((*name).to_owned(), merged));
            }
            items.retain(|item| {
                let is_curve = asked.group.is_some() && item.is("ssl.ec-curve");
                !is_curve
                    && !item.is("ssl.openssl.ssl-conf-cmd")
                    && !change.settings.iter().any(|(name, _)| item.is(name))
            });
            items.extend(change.settings.iter().map(|(name, value)| Item::setting(name, value.clone())));
            if !commands.is_empty() {
                items.push(Item::setting("ssl.openssl.ssl-conf-cmd", list_of(&commands)));
            }
        };
        reader::change_all(&mut self.items, &mut |items| {
            let blocks = items.iter_mut().filter_map(|item| match item {
                Item::Block { head, inner } if socket_port(head).is_some() => Some(inner),
                _ => None,
            });
            blocks.filter(|inner| is_on(inner).unwrap_or(everywhere)).for_each(put);
        });
        if asked.certificate.is_some() {
            // Those of hosts, and what belongs to the installed one: its chain, and the answer of its OCSP responder.
            let gone = |item: &Item| CERTIFICATES.split(' ').any(|name| item.is(name));
            reader::change_all(&mut self.items, &mut |items| {
                items.retain(|item| !gone(item) || change.settings.iter().any(|(_, value)| item.says(value)));
            });
        }
        put(&mut self.items);
        if let Some(cache) = asked.session_cache {
            let state = if cache == SessionCache::Off { "disable" } else { "enable" };
            let mut features = reader::pairs(&self.global("server.feature-flags").unwrap_or_default());
            features.retain(|(name, _)| name != "ssl.session-cache");
            features.push(("ssl.session-cache".to_owned(), state.to_owned()));
            self.items.retain(|item| !item.is("server.feature-flags"));
            self.items.push(Item::setting("server.feature-flags", list_of(&features)));
        }
        Ok(())
    }

    fn prepare(&self, _program: &Path, file: &Path, directory: &Path) -> Result<Vec<String>> {
        if let Some(name) = self.global("server.username").filter(|_| geteuid().is_root()) {
            let user = WorkerUser::called(name.trim_matches('"'))?;
            // It becomes that user before it opens them.
            for log in ["error.log", "access.log"] {
                create_for_workers(&directory.join(log), Some(&user), b"")?;
            }
        }
        Ok(["-D", "-f", &file.display().to_string()].map(str::to_owned).into())
    }

    fn documents(&self) -> Vec<PathBuf> {
        let root = |item: &Item| match item {
            Item::Setting { name, value } if name == "server.document-root" => {
                Some(PathBuf::from(value.trim_matches('"')))
            }
            _ => None,
        };
        let roots = reader::all(&self.items).into_iter().filter_map(root);
        roots.filter(|path| path.is_absolute() && path.components().count() > 1).collect()
    }
}

/// Options are a list: what is asked is said behind what is there, unless it is the opposite of it.
fn merged(name: &str, value: &str, commands: &[(String, String)]) -> String {
    let there = commands.iter().find(|(other, _)| name == "Options" && other.eq_ignore_ascii_case(name));
    let Some((_, there)) = there else { return value.to_owned() };
    let bare = value.trim_start_matches(['-', '+']);
    let kept = there.split(',').map(str::trim).filter(|option| option.trim_start_matches(['-', '+']) != bare);
    kept.chain([value]).collect::<Vec<_>>().join(",")
}

struct Copy<'a> {
    ports: Ports<'a>,
    done: Done,
}

impl Copy<'_> {
    /// The items that hold beyond sockets, which the copy has of its own.
    fn block(&mut self, items: &[Item]) -> Vec<Item> {
        let mut kept: Vec<Item> = Vec::new();
        for item in items {
            match item {
                Item::Block { head, .. } if head.starts_with("$SERVER[\"socket\"]") => {}
                Item::Block { head, inner } if is_for_plain(head, inner) => {
                    self.done.add(LEFT_OUT, "redirects of http")
                }
                Item::Block { head, inner } => kept.push(Item::Block { head: head.clone(), inner: self.block(inner) }),
                // Of a log that is a file and goes to syslog, too, there is one.
                Item::Setting { name, value } => {
                    let own = self.setting(name, value);
                    kept.extend(own.filter(
                        |own| !matches!(own, Item::Setting { name, .. } if kept.iter().any(|other| other.is(name))),
                    ));
                }
            }
        }
        // A chain of conditions begins with one that is no `else`.
        let mut before = false;
        kept.retain_mut(|item| {
            if let Item::Block { head, .. } = item
                && let (false, Some(rest)) = (before, head.strip_prefix("else"))
            {
                let rest = rest.trim().to_owned();
                if rest.is_empty() {
                    return false;
                }
                *head = rest;
            }
            before = matches!(item, Item::Block { .. });
            true
        });
        kept
    }

    fn setting(&mut self, name: &str, value: &str) -> Option<Item> {
        if is_listed("server.username server.groupname", name) && !geteuid().is_root() {
            return None;
        }
        match TABLE.handling(name) {
            Some(Handling::OwnPlace) => return self.own_place(name, value),
            handling if !self.done.keeps(handling, name) => return None,
            Some(_) if value.contains("\"bin-path\"") => self.done.add(MAY_DO_ANYTHING, &format!("bin-path of {name}")),
            _ => {}
        }
        if name == "server.modules" {
            let modules = value.split('"').skip(1).step_by(2).filter(|module| TABLE.handling(module).is_none());
            modules.for_each(|module| self.done.add(NOT_KNOWN, module));
        }
        let asks = TABLE.handling(name) == Some(Handling::Asks);
        if asks && !name.ends_with(".server") && reader::pairs(value).is_empty() {
            self.done.add(ASKED, name);
        }
        let own = if asks { self.in_place_of(name, value) } else { value.to_owned() };
        Some(Item::setting(name, own))
    }

    /// The same with a file or directory of the copy's own; a syslog becomes a file.
    fn own_place(&mut self, name: &str, value: &str) -> Option<Item> {
        self.done.add(OWN_PLACE, name);
        if is_listed(DIRECTORIES, name) {
            let own = quoted(&self.ports.directory.display().to_string());
            return Some(Item::setting(name, if value.starts_with('(') { format!("({own})") } else { own }));
        }
        let is_access = name.starts_with("accesslog.");
        let (file, names) =
            if is_access { ("access.log", "accesslog.filename") } else { ("error.log", "server.errorlog") };
        let is_syslog = name.ends_with("-syslog");
        let is_used = !is_syslog || value.contains("enable");
        let name = if is_syslog { names } else { name };
        is_used.then(|| Item::setting(name, quoted(&self.ports.own(file))))
    }

    /// The value with sockets in the place of applications that are not asked for real. A program that the copy starts
    /// itself gets a socket of its own.
    fn in_place_of(&mut self, name: &str, value: &str) -> String {
        let Ok(lists) = Regex::new(r"\([^()]*\)") else { return value.to_owned() };
        let own = |found: &Captures| {
            let list = &found[0];
            let pairs = reader::pairs(list);
            let field = |wanted: &str| pairs.iter().find(|(key, _)| key == wanted).map(|(_, value)| value.as_str());
            let socket = field("socket").or(field("host").filter(|host| host.starts_with('/')));
            let application = match (socket, field("host")) {
                (Some(path), _) => format!("unix:{path}"),
                (None, Some(host)) => format!("{host}:{}", field("port").unwrap_or("80")),
                (None, None) => return list.to_owned(),
            };
            let own = if field("bin-path").is_some() {
                socket.map(|_| self.ports.own("program.sock"))
            } else {
                self.ports.in_place_of(&application, name == "proxy.server", name, &mut self.done)
            };
            let Some(own) = own else { return list.to_owned() };
            let place = [("socket".to_owned(), own)];
            let rest = pairs.iter().filter(|(key, _)| !is_listed("host port socket", key));
            list_of(rest.chain(&place))
        };
        lists.replace_all(value, own).into_owned()
    }
}

/// Whether a condition is there to send plain requests elsewhere: the copy's plain side would do that, too.
fn is_for_plain(head: &str, inner: &[Item]) -> bool {
    head.contains("$HTTP[\"scheme\"] == \"http\"") && reader::all(inner).iter().any(|item| item.is("url.redirect"))
}

fn list_of<'a>(pairs: impl IntoIterator<Item = &'a (String, String)>) -> String {
    let pairs = pairs.into_iter().map(|(name, value)| format!("{} => {}", quoted(name), quoted(value)));
    format!("({})", pairs.collect::<Vec<_>>().join(", "))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests;
