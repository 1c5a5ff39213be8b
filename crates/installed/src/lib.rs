//! The configuration of an installed server, made ready to run beside the server that runs with it: one file with all
//! that it includes, in a private directory, on ports of ours. The installed files are only read.
//!
//! What stays: servers, pages, proxies, compression, TLS settings, certificates. What changes: where it listens, its
//! process files and logs (docs/TUTORIAL.md has the list).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod apache;
#[cfg(test)]
mod asked_tests;
mod effects;
mod files;
pub mod found;
mod haproxy;
#[cfg(test)]
mod kept_inputs;
mod lighttpd;
mod nginx;
mod original;
mod owners;
mod patch;
mod recorded;
mod session_line;
mod site;

use std::fmt::Write as _;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf, absolute};

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::{input, namespace, permission, private};
use tlsdyno_record::model::{ServerName, TlsChange};
use tlsdyno_servers::{DRIVERS, InstancePlace, ServerTls, driver_of, programs};

use files::Files;
pub use nginx::{bytes_of, text_of};
pub use original::InstalledFile;
pub use patch::{Patch, patch};
pub use session_line::session_line;
pub use site::{AccessLog, Choice, Facts, Offer};
use site::{Copied, InstalledSite, Ports, socket_name};

#[derive(Debug)]
pub struct Installed {
    pub server: ServerName,
    pub site: Box<dyn InstalledSite>,
    /// What clients ask for, with the port where that is not the usual one; `None`: the default server.
    pub host: Option<String>,
    /// The answers of the applications behind it are asked for once, where it asks by plain HTTP, and replayed from
    /// then on; others are not asked. Otherwise all are asked for real.
    pub replays: bool,
    /// Hosts of applications, other than this machine, that the user answers for.
    pub may_load: Vec<String>,
}

/// A text of one file of this server, without what it includes, as it is understood: written again. Fuzzers call it.
pub fn rewritten(server: ServerName, text: &str) -> Result<String> {
    match server {
        ServerName::Haproxy => haproxy::rewritten(text),
        ServerName::ApacheEvent | ServerName::ApachePrefork => apache::rewritten(text),
        ServerName::Lighttpd => lighttpd::rewritten(text),
        other => bail!("{other} is read with all that it includes"),
    }
}

impl Installed {
    /// Reads a configuration. `program`: the server's, where it is not told from the file.
    pub fn read(path: &Path, program: Option<&str>) -> Result<Installed> {
        let files = &mut Files::default();
        let server = match program.and_then(server_of) {
            Some(server) => server,
            None => told_from(path)?,
        };
        let site: Box<dyn InstalledSite> = match server {
            ServerName::Nginx => Box::new(nginx::Nginx::read(path, files)?),
            ServerName::Haproxy => Box::new(haproxy::Haproxy::read(path, files)?),
            ServerName::ApacheEvent | ServerName::ApachePrefork => Box::new(apache::Apache::read(path, files)?),
            ServerName::Lighttpd => Box::new(lighttpd::Lighttpd::read(path)?),
            _ => bail!("{server} has no configuration file"),
        };
        let notes = || site.notes().into_iter().map(|(what, why)| format!(". {what}. {why}")).collect::<String>();
        let is_of_tls = site.tls_servers() > 0;
        ensure!(is_of_tls, "no server in {} speaks TLS, so that nothing can be measured{}", path.display(), notes());
        Ok(Installed { server, site, host: None, replays: true, may_load: Vec::new() })
    }

    pub fn program(&self) -> Result<PathBuf> {
        driver_of(self.server).package.context("a server has a package")?.require("")
    }

    /// What its program says of itself, and which OpenSSL it runs with; or why it cannot be asked.
    pub fn version(&self) -> String {
        self.program().map_or_else(|error| error.to_string(), |program| version_of(&program))
    }

    /// The same with the server of this host measured: a name, with its port where that is not the usual one.
    #[must_use]
    pub fn serving(self, host: Option<&str>) -> Installed {
        Installed { host: host.map(str::to_owned), ..self }
    }

    /// Puts what is asked for into all servers with TLS, in the place of what they say of the same. `tls`: the same
    /// with all that goes with it, as our certificate of that kind.
    pub fn change_tls(&mut self, asked: &TlsChange, tls: &ServerTls, place: InstancePlace) -> Result<()> {
        if *asked == TlsChange::default() { Ok(()) } else { self.site.change_tls(asked, tls, place) }
    }

    /// The configuration that listens on `port` with TLS and on `plain_port` without, for the same servers, and keeps
    /// what it writes in `directory`. [`bytes_of`] makes the file of it.
    pub fn text(&self, port: u16, plain_port: u16, directory: &Path) -> Result<String> {
        let copy = self.copy(Ports { port, plain_port, directory, replays: self.replays })?;
        Ok(commented(&copy.notes, &copy.text))
    }

    /// Writes the copy into its private directory, where the applications' sockets are from then on. Answers the
    /// arguments that start it there in the foreground, and the copy as pages and records show it.
    pub fn write(&self, port: u16, plain_port: u16, directory: &Path, program: &Path) -> Result<(Vec<String>, String)> {
        let copy = self.copy(Ports { port, plain_port, directory, replays: self.replays })?;
        self.check_asked(&copy).or_fault(Fault::Usage)?;
        for (number, application) in copy.replayed.iter().enumerate() {
            let socket = directory.join(socket_name(number));
            recorded::replay(application, &socket).with_context(|| format!("make {}", socket.display()))?;
        }
        let [text, shown] =
            [&copy.text, &copy.shown].map(|text| self.site.fitting(commented(&copy.notes, text), program));
        let file = directory.join(self.file_name());
        private::write(&file, &bytes_of(&text)).with_context(|| format!("write {}", file.display()))?;
        Ok((self.site.prepare(program, &file, directory)?, shown))
    }

    fn file_name(&self) -> &'static str {
        match self.server {
            ServerName::Haproxy => "haproxy.cfg",
            ServerName::ApacheEvent | ServerName::ApachePrefork => "apache2.conf",
            ServerName::Lighttpd => "lighttpd.conf",
            _ => "nginx.conf",
        }
    }

    /// What becomes in the copy of all that the installed server does besides answering, in sentences.
    pub fn effects(&self) -> Result<Vec<String>> {
        let copy = self.copy(self.example())?;
        let pace = match (copy.asked.is_empty(), copy.replayed.is_empty()) {
            (false, _) => "They get as many requests a second as they answer, up to thousands, until the run ends",
            (true, false) => "An application gets each GET and HEAD of the load once, one at a time, and nothing else",
            (true, true) => return Ok(copy.notes),
        };
        Ok(copy.notes.into_iter().chain([format!("{pace}. Ctrl-C stops that")]).collect())
    }

    /// Whether the copy runs code, so that nobody knows what it writes.
    pub fn runs_code(&self) -> bool {
        self.copy(self.example()).is_ok_and(|copy| copy.runs_code)
    }

    fn copy(&self, ports: Ports) -> Result<Copied> {
        self.site.copy(self.host.as_deref(), ports)
    }

    /// Refuses applications that are asked for real without a word of the user's, and those of other machines.
    fn check_asked(&self, copy: &Copied) -> Result<()> {
        if let Some(asked) = copy.asked.first().filter(|_| self.replays) {
            bail!(
                "the copy would ask {asked} for real, as often as the load leads there: where it is stands in no file, \
                 or its answers cannot be replayed. If it may be asked, add --ask-backend"
            );
        }
        for application in copy.replayed.iter().chain(&copy.asked) {
            if let Some((host, port)) = host_of(application) {
                self.check_host(host, port).context("the copy asks an application")?;
            }
        }
        Ok(())
    }

    /// The same of whatever addresses a host has, as it is written: `[::1]` too.
    fn check_host(&self, host: &str, port: u16) -> Result<()> {
        if self.may_load.iter().any(|name| name.eq_ignore_ascii_case(host)) {
            return Ok(());
        }
        let may_load = &self.may_load;
        namespace::outside(|| {
            let found = (host.trim_matches(['[', ']']), port).to_socket_addrs().with_context(|| {
                format!(
                    "no address of {host} is found: add --i-may-load-this {host}, and the copy goes without it (what \
                     leads there is answered with 502), or asks it once it is found"
                )
            })?;
            found.into_iter().try_for_each(|address| permission::check(host, address, may_load))
        })?
    }

    /// Where a copy would be that is only asked about.
    fn example(&self) -> Ports<'static> {
        Ports { port: 0, plain_port: 0, directory: Path::new("/the/private/directory"), replays: self.replays }
    }
}

fn commented(notes: &[String], text: &str) -> String {
    let mut lines = String::new();
    for line in notes {
        let _ = writeln!(lines, "# {}", line.replace(['\n', '\r'], " "));
    }
    lines + text
}

/// The host and port of an application as it is named: `http://10.0.0.7:8080/app`, `10.0.0.7:8080`; `None`: it is a
/// socket of this machine.
fn host_of(application: &str) -> Option<(&str, u16)> {
    // An arbitrary one: only the host decides.
    const PORT: u16 = 80;
    let place = application.rsplit_once("://").map_or(application, |(_, rest)| rest);
    let is_socket = ["unix:", "/"].iter().any(|start| place.starts_with(start)) || application.contains("unix:");
    let place = place.split(['/', '?']).next().unwrap_or_default();
    let (host, port) = site::split(place);
    (!is_socket).then_some((host, port.unwrap_or(PORT)))
}

/// `nginx/1.22.1, OpenSSL 3.0.11`: the last is the library that it says it runs with, or else that of the system.
fn version_of(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let flag = match &*name {
        "nginx" => "-V",
        "haproxy" => "-vv",
        _ => "-v",
    };
    let output = programs::output_of(program, &[flag]);
    let first = output.lines().next().unwrap_or(&name);
    let version = first.trim_start_matches("nginx version: ").trim_start_matches("Server version: ");
    let version = version.split(" - ").next().unwrap_or(version);
    let number = |line: &str| {
        let (_, rest) = line.rsplit_once("OpenSSL ")?;
        rest.split_whitespace().next().filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
    };
    let of_system = || number(&programs::output_of(&programs::find("openssl")?, &["version"]));
    let number = output.lines().filter_map(number).next_back().or_else(of_system);
    number.map_or_else(|| version.to_owned(), |number| format!("{version}, OpenSSL {number}"))
}

pub fn server_of(program: &str) -> Option<ServerName> {
    let name = Path::new(program).file_name()?.to_str()?;
    let is_it = |package: &programs::Package| package.programs.contains(&name);
    DRIVERS.iter().find(|driver| driver.package.is_some_and(is_it)).map(|driver| driver.server)
}

/// What lines of a server's configuration begin with, and none of the others'.
const LINES: [(ServerName, &[&str]); 3] = [
    (
        ServerName::ApacheEvent,
        &["<VirtualHost", "<Directory", "<IfModule", "<Macro", "ServerRoot", "LoadModule", "SSLEngine", "Listen "],
    ),
    (ServerName::Haproxy, &["frontend ", "backend ", "listen ", "defaults", "global"]),
    (ServerName::Lighttpd, &["server.", "$SERVER[", "$HTTP[", "ssl.", "include_shell", "include \"", "var."]),
];

/// The server that a file is for, by what stands in it; a directory is HAProxy's. What is no other's is nginx's.
fn told_from(path: &Path) -> Result<ServerName> {
    if path.is_dir() {
        let is_haproxy = haproxy::files(path).is_ok_and(|files| !files.is_empty());
        ensure!(is_haproxy, "{0} is a directory; name the file in it: {0}/nginx.conf", path.display());
        return Ok(ServerName::Haproxy);
    }
    let path = absolute(path).with_context(|| format!("read {}", path.display()))?;
    let named = || path.ends_with("lighttpd.conf").then_some(ServerName::Lighttpd);
    Ok(told_from_text(&text_of(&bytes_in(&path)?)).or_else(named).unwrap_or(ServerName::Nginx))
}

/// A file of a configuration: for root one that nobody else may write, because its server will be run as root.
fn bytes_in(path: &Path) -> Result<Vec<u8>> {
    let bytes = input::read(path, input::TEXT_BYTES_MAX).with_context(|| format!("read {}", path.display()))?;
    owners::require_own(path).map(|()| bytes)
}

/// `None`: no line tells.
fn told_from_text(text: &str) -> Option<ServerName> {
    let code = || text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    if code().any(|line| {
        ["http {", "http{", "events {", "events{"].iter().any(|start| line.starts_with(start)) || line == "http"
    }) {
        return Some(ServerName::Nginx);
    }
    // nginx ends these lines with a semicolon or a brace, and lighttpd those of a condition.
    let begins =
        |line: &str, start: &str| line.starts_with(start) && (start.starts_with('$') || !line.ends_with([';', '{']));
    let is_of = |starts: &[&str]| code().any(|line| starts.iter().any(|start| begins(line, start)));
    LINES.iter().find(|(_, starts)| is_of(starts)).map(|(server, _)| *server)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// A server's place whose files are in this directory.
    pub fn instance(directory: &Path) -> InstancePlace<'_> {
        InstancePlace { run: directory, own: directory, ip: Ipv4Addr::LOCALHOST.into(), port: 1, plain_port: 2 }
    }

    #[test]
    fn hosts_of_applications_are_found() {
        for (application, host) in [
            ("http://10.0.0.7:8080/app", Some(("10.0.0.7", 8080))),
            ("https://app.example", Some(("app.example", 80))),
            ("10.0.0.7:53", Some(("10.0.0.7", 53))),
            ("[2001:db8::1]:80", Some(("[2001:db8::1]", 80))),
            ("http://$backend/x", Some(("$backend", 80))),
            ("ldap://ldap.example/ou=x?uid", Some(("ldap.example", 80))),
            ("unix:/run/app.sock", None),
            ("http://unix:/run/app.sock:/x", None),
            ("unix:/run/php.sock|fcgi://localhost", None),
            ("/run/app.sock", None),
        ] {
            assert_eq!(host_of(application), host, "{application}");
        }
    }

    #[test]
    fn whose_a_file_is_is_told_from_what_stands_in_it() {
        for (text, server) in [
            ("# x\n  <VirtualHost *:443>\n", ServerName::ApacheEvent),
            ("ServerRoot /etc/httpd\n", ServerName::ApacheEvent),
            ("global\n  daemon\nfrontend web\n", ServerName::Haproxy),
            ("server.port = 443\n", ServerName::Lighttpd),
            ("$SERVER[\"socket\"] == \":443\" {\n", ServerName::Lighttpd),
            ("include \"/etc/lighttpd/lighttpd*annotated.conf\"\n", ServerName::Lighttpd),
            ("include \"x.conf\";\n", ServerName::Nginx),
            ("events {}\nhttp {\n server {\n listen 443 ssl;\n}\n}\n", ServerName::Nginx),
            ("http\n{\n}\n", ServerName::Nginx),
            ("load_module x;\n", ServerName::Nginx),
        ] {
            assert_eq!(told_from_text(text).unwrap_or(ServerName::Nginx), server, "{text}");
        }
        assert_eq!(server_of("/usr/sbin/httpd"), Some(ServerName::ApacheEvent));
        assert_eq!(server_of("/x/y"), None);
    }
}
