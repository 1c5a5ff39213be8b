//! An nginx configuration as it is installed, made ready to run beside the nginx that runs with it: one file with all
//! that it includes, in a private directory, on ports of ours. The installed files are only read.
//!
//! What stays: servers, locations, proxies, compression, TLS settings, certificates. What changes: where it listens,
//! its process files and logs (docs/TUTORIAL.md has the list).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use anyhow::{Context, Result, bail, ensure};

use super::glob;

/// Includes within includes; more is a circle.
const DEPTH_MAX: u32 = 16;
/// Directives of the whole program that the copy has of its own, or must not have.
const OF_PROGRAM: [&str; 8] =
    ["daemon", "master_process", "pid", "lock_file", "error_log", "worker_processes", "worker_cpu_affinity", "env"];
/// Blocks beside `http`: they have listeners of their own.
const OTHER_BLOCKS: [&str; 2] = ["stream", "mail"];
/// Directories that a running server must not share with another.
const TEMPORARY: [&str; 5] =
    ["client_body_temp_path", "proxy_temp_path", "fastcgi_temp_path", "uwsgi_temp_path", "scgi_temp_path"];
/// Directives whose first argument is a file that nginx looks for beside its configuration.
pub(super) const FILES: [&str; 8] = [
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_trusted_certificate",
    "ssl_client_certificate",
    "ssl_dhparam",
    "ssl_password_file",
    "ssl_session_ticket_key",
    "auth_basic_user_file",
];

/// A directive with its block, if it has one. Arguments are as they stand in the file, quotes included.
#[derive(Clone, Debug, PartialEq)]
struct Directive {
    name: String,
    arguments: Vec<String>,
    block: Option<Block>,
}

#[derive(Clone, Debug, PartialEq)]
enum Block {
    Directives(Vec<Directive>),
    /// A script, as it is.
    Raw(String),
}

/// An installed configuration, read with all that it includes.
#[derive(Clone, Debug)]
pub struct Installed {
    directives: Vec<Directive>,
}

impl Installed {
    /// Reads a configuration.
    ///
    /// # Errors
    /// A file cannot be read or understood, or no server of it speaks TLS.
    pub fn read(path: &Path) -> Result<Installed> {
        let path = path.canonicalize().with_context(|| format!("read {}", path.display()))?;
        let home = path.parent().unwrap_or(Path::new("/")).to_owned();
        let installed = Installed { directives: read_file(&path, &home, DEPTH_MAX)? };
        ensure!(
            installed.servers().any(has_tls),
            "no server in {} listens with TLS (`listen … ssl`), so that there is nothing to measure",
            path.display()
        );
        Ok(installed)
    }

    /// The server blocks.
    fn servers(&self) -> impl Iterator<Item = &[Directive]> {
        let http = self.directives.iter().filter(|of| of.name == "http").flat_map(Directive::inner);
        http.filter(|of| of.name == "server").map(Directive::inner)
    }

    /// The names of its servers with TLS, the default server's first. Patterns are left out.
    pub fn host_names(&self) -> Vec<String> {
        let mut servers: Vec<&[Directive]> = self.servers().filter(|server| has_tls(server)).collect();
        let is_default = |server: &&[Directive]| {
            let listens = server.iter().filter(|of| of.name == "listen");
            listens.flat_map(|of| &of.arguments).any(|word| word == "default_server")
        };
        servers.sort_by_key(|server| !is_default(server));
        let names = servers.into_iter().flatten().filter(|of| of.name == "server_name").flat_map(|of| &of.arguments);
        let is_name =
            |name: &&String| name.contains(|c: char| c.is_ascii_alphanumeric()) && !name.contains(['*', '~', '$']);
        names.filter(is_name).cloned().collect()
    }

    /// The configuration that listens on `port` with TLS and on `plain_port` without, for the same servers, and keeps
    /// what it writes in `directory`.
    pub fn text(&self, port: u16, plain_port: u16, directory: &Path) -> String {
        let place = Ports { port, plain_port, directory, inner: self.inner_ports() };
        let mut text = format!(
            "daemon off;\npid {0}/nginx.pid;\nerror_log {0}/error.log;\nworker_processes 1;\n",
            directory.display()
        );
        for directive in &self.directives {
            let name = directive.name.as_str();
            if OF_PROGRAM.contains(&name) || OTHER_BLOCKS.contains(&name) {
                continue;
            }
            let mut copy = directive.clone();
            if name == "http" {
                place.adapt_http(&mut copy);
            }
            copy.write(&mut text, 0);
        }
        text
    }

    /// The ports on which servers without TLS listen: somebody within may proxy to them.
    fn inner_ports(&self) -> BTreeSet<u16> {
        let listens = self.servers().flatten().filter(|of| of.name == "listen" && !is_tls(of));
        listens.filter_map(|of| port_of(of.arguments.first()?)).collect()
    }
}

/// Where the copy listens and writes.
struct Ports<'a> {
    port: u16,
    plain_port: u16,
    directory: &'a Path,
    /// Ports of servers without TLS, which the copy has as sockets of its own.
    inner: BTreeSet<u16>,
}

impl Ports<'_> {
    fn adapt_http(&self, http: &mut Directive) {
        let Some(Block::Directives(inner)) = &mut http.block else { return };
        self.adapt(inner, &mut 0);
        let temporary = ["client_body_temp_path", "proxy_temp_path"]
            .map(|name| Directive::of(name, vec![format!("{}/{name}", self.directory.display())]));
        inner.splice(..0, temporary);
    }

    /// Adapts directives of `http`, `server`, `location` and the like.
    fn adapt(&self, directives: &mut Vec<Directive>, count: &mut u32) {
        directives.retain(|of| !TEMPORARY.contains(&of.name.as_str()) && of.name != "error_log");
        for directive in directives.iter_mut() {
            let path = |name: &str| format!("{}/{name}", self.directory.display());
            match (directive.name.as_str(), directive.arguments.first_mut()) {
                ("access_log", Some(file)) if file != "off" && !file.starts_with("syslog:") => {
                    *file = path("access.log");
                }
                ("proxy_cache_path" | "fastcgi_cache_path" | "uwsgi_cache_path", Some(file)) => {
                    *count += 1;
                    *file = path(&format!("cache-{count}"));
                }
                ("proxy_pass", Some(target)) => *target = self.to_socket(target, "http://", true),
                ("server", Some(target)) => *target = self.to_socket(target, "", false),
                _ => {}
            }
            let is_server = directive.name == "server";
            if let Some(Block::Directives(inner)) = &mut directive.block {
                self.adapt(inner, count);
                if is_server {
                    *count += 1;
                    self.adapt_listens(inner, *count);
                }
            }
        }
    }

    /// A server with TLS listens on both of our ports; one without, where somebody within may proxy to it.
    fn adapt_listens(&self, server: &mut Vec<Directive>, number: u32) {
        let listens: Vec<Directive> = server.iter().filter(|of| of.name == "listen").cloned().collect();
        let words = || listens.iter().flat_map(|of| &of.arguments);
        let keeps: Vec<String> = ["default_server", "http2"]
            .into_iter()
            .filter(|kept| words().any(|word| word == kept))
            .map(str::to_owned)
            .collect();
        let tls = has_tls(server);
        server.retain(|of| of.name != "listen" && of.name != "ssl");
        let listen = |address: String, more: &[&str]| {
            let of_all = keeps.iter().filter(|kept| *kept != "http2" || more.contains(&"ssl")).cloned();
            let more = more.iter().map(|word| (*word).to_owned());
            Directive::of("listen", iter::once(address).chain(more).chain(of_all).collect())
        };
        let mut new = Vec::new();
        if tls {
            new.push(listen(format!("127.0.0.1:{}", self.port), &["ssl"]));
            new.push(listen(format!("127.0.0.1:{}", self.plain_port), &[]));
        } else {
            let ports: BTreeSet<u16> = listens.iter().filter_map(|of| port_of(of.arguments.first()?)).collect();
            new.extend(ports.into_iter().map(|port| listen(self.socket(port), &[])));
        }
        if new.is_empty() {
            new.push(listen(format!("unix:{}/server-{number}.sock", self.directory.display()), &[]));
        }
        server.splice(..0, new);
    }

    fn socket(&self, port: u16) -> String {
        format!("unix:{}/port-{port}.sock", self.directory.display())
    }

    /// A target on this machine that is a server of the same configuration goes to that of the copy.
    fn to_socket(&self, target: &str, scheme: &str, has_path: bool) -> String {
        let Some(rest) = target.strip_prefix(scheme) else { return target.to_owned() };
        let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = place.rsplit_once(':').unwrap_or((place, "80"));
        let is_here = ["127.0.0.1", "localhost", "[::1]"].contains(&host);
        match port.parse::<u16>().ok().filter(|port| is_here && self.inner.contains(port)) {
            Some(port) if has_path && !path.is_empty() => format!("{scheme}{}:{path}", self.socket(port)),
            Some(port) => format!("{scheme}{}", self.socket(port)),
            None => target.to_owned(),
        }
    }
}

impl Directive {
    fn of(name: &str, arguments: Vec<String>) -> Directive {
        Directive { name: name.to_owned(), arguments, block: None }
    }

    /// What stands in its block.
    fn inner(&self) -> &[Directive] {
        match &self.block {
            Some(Block::Directives(inner)) => inner,
            _ => &[],
        }
    }

    fn write(&self, text: &mut String, depth: usize) {
        let indent = "    ".repeat(depth);
        let words: Vec<&str> = iter::once(&self.name).chain(&self.arguments).map(String::as_str).collect();
        let _ = write!(text, "{indent}{}", words.join(" "));
        match &self.block {
            None => text.push_str(";\n"),
            Some(Block::Raw(raw)) => {
                let _ = writeln!(text, " {{{raw}}}");
            }
            Some(Block::Directives(inner)) => {
                text.push_str(" {\n");
                inner.iter().for_each(|directive| directive.write(text, depth + 1));
                let _ = writeln!(text, "{indent}}}");
            }
        }
    }
}

fn is_tls(listen: &Directive) -> bool {
    listen.arguments.iter().any(|word| word == "ssl" || word == "quic")
}

/// Whether a server speaks TLS on any of its listeners.
fn has_tls(server: &[Directive]) -> bool {
    let switched_on = |of: &Directive| of.name == "ssl" && of.arguments.iter().any(|word| word == "on");
    server.iter().any(|of| of.name == "listen" && is_tls(of) || switched_on(of))
}

/// The port of a listener or target: `443`, `*:443`, `[::]:443`, `localhost:443`; 80 where none is named.
fn port_of(listen: &str) -> Option<u16> {
    if listen.starts_with("unix:") {
        return None;
    }
    let last = listen.rsplit(':').next().unwrap_or(listen);
    Some(last.parse().unwrap_or(80))
}

/// Reads a file with all that it includes. `home`: where nginx looks for relative names.
fn read_file(path: &Path, home: &Path, depth: u32) -> Result<Vec<Directive>> {
    ensure!(depth > 0, "{} is included within itself", path.display());
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let mut rest = Words { text: &text, at: 0 };
    let parsed = rest.directives(0).with_context(|| format!("{} is no nginx configuration", path.display()))?;
    with_includes(parsed, home, depth)
}

fn with_includes(directives: Vec<Directive>, home: &Path, depth: u32) -> Result<Vec<Directive>> {
    let mut all = Vec::new();
    for mut directive in directives {
        if let (true, Some(pattern)) = (directive.name == "include", directive.arguments.first()) {
            for file in glob::files(&home.join(unquoted(pattern))) {
                all.extend(read_file(&file, home, depth - 1)?);
            }
            continue;
        }
        if let Some(file) = directive.arguments.first_mut().filter(|_| FILES.contains(&directive.name.as_str())) {
            let beside: PathBuf = home.join(unquoted(file));
            if beside.is_file() {
                *file = format!("\"{}\"", beside.display());
            }
        }
        if let Some(Block::Directives(inner)) = &mut directive.block {
            *inner = with_includes(std::mem::take(inner), home, depth)?;
        }
        all.push(directive);
    }
    Ok(all)
}

fn unquoted(word: &str) -> &str {
    let quoted = |quote: char| word.strip_prefix(quote).and_then(|word| word.strip_suffix(quote));
    quoted('"').or_else(|| quoted('\'')).unwrap_or(word)
}

/// The words of a configuration: what nginx's own reader takes for one (`ngx_conf_file.c`).
struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl Words<'_> {
    fn directives(&mut self, depth: u32) -> Result<Vec<Directive>> {
        ensure!(depth < 64, "its blocks are nested too deep");
        let mut all = Vec::new();
        let mut words: Vec<String> = Vec::new();
        loop {
            match self.next_word()? {
                None if depth == 0 && words.is_empty() => return Ok(all),
                None => bail!("it ends within a block or a directive"),
                Some(word) if word == "}" && depth > 0 && words.is_empty() => return Ok(all),
                Some(word) if word == "}" => bail!("a }} stands where none belongs"),
                Some(word) if word == ";" || word == "{" => {
                    ensure!(!words.is_empty(), "a {word} stands where a directive should begin");
                    let name = words.remove(0);
                    let block = match word.as_str() {
                        ";" => None,
                        _ if name.ends_with("_by_lua_block") => Some(Block::Raw(self.raw_block()?)),
                        _ => Some(Block::Directives(self.directives(depth + 1)?)),
                    };
                    all.push(Directive { name, arguments: std::mem::take(&mut words), block });
                }
                Some(word) => words.push(word),
            }
        }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// The next word, or `;`, `{`, `}`; `None` at the end. Comments are passed over.
    fn next_word(&mut self) -> Result<Option<String>> {
        loop {
            let blank = self.rest().len() - self.rest().trim_start().len();
            self.at += blank;
            if !self.rest().starts_with('#') {
                break;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
        let mut characters = self.rest().char_indices().peekable();
        let Some((_, first)) = characters.next() else { return Ok(None) };
        let quote = (first == '"' || first == '\'').then_some(first);
        let mut end = first.len_utf8();
        if ";{}".contains(first) {
            self.at += end;
            return Ok(Some(first.to_string()));
        }
        let (mut escaped, mut before, mut closed) = (first == '\\', first, quote.is_none());
        for (at, character) in characters {
            let is_variable = before == '$' && character == '{';
            let ends = match quote {
                Some(quote) => character == quote && !escaped,
                None => !escaped && !is_variable && (character.is_whitespace() || ";{".contains(character)),
            };
            if ends && quote.is_none() {
                break;
            }
            end = at + character.len_utf8();
            if ends {
                closed = true;
                break;
            }
            escaped = character == '\\' && !escaped;
            before = character;
        }
        ensure!(closed, "a quote is not closed");
        let word = self.rest()[..end].to_owned();
        self.at += end;
        Ok(Some(word))
    }

    /// A script up to the brace that closes it.
    fn raw_block(&mut self) -> Result<String> {
        let mut depth = 1;
        for (at, character) in self.rest().char_indices() {
            depth += i32::from(character == '{') - i32::from(character == '}');
            if depth == 0 {
                let raw = self.rest()[..at].to_owned();
                self.at += at + 1;
                return Ok(raw);
            }
        }
        bail!("a script block is not closed")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn site() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let main = "user www-data; # who\npid /run/nginx.pid;\nerror_log /var/log/nginx/error.log;\n\
                    events { worker_connections 768; }\nhttp {\n  include mime.types;\n  gzip on;\n\
                    access_log /var/log/nginx/access.log;\n  proxy_cache_path /var/cache/nginx keys_zone=c:1m;\n\
                    include sites-enabled/*;\n}\nstream { server { listen 99; } }\n";
        write("nginx.conf", main);
        write("mime.types", "types { text/html html; }");
        write("certs/shop.pem", "certificate");
        let shop = "server { listen 80; return 301 https://$host$request_uri; }\n\
                    server { listen 443 ssl default_server http2; listen [::]:443 ssl;\n\
                    server_name shop.example www.shop.example;\n\
                    ssl_certificate certs/shop.pem; location /app/ { proxy_pass http://127.0.0.1:9000/x/; }\n\
                    location ~ \"^/a{2}$\" { return 200 \"a } b\"; }\n\
                    location /n { proxy_pass http://127.0.0.1:3000; } }";
        write("sites-enabled/shop", shop);
        write("sites-enabled/app", "upstream up { server localhost:9000; } server { listen 127.0.0.1:9000; }");
        place
    }

    #[test]
    fn a_site_runs_beside_the_installed_one() {
        let place = site();
        let installed = Installed::read(&place.path().join("nginx.conf")).unwrap();
        assert_eq!(installed.host_names(), ["shop.example", "www.shop.example"]);
        let text = installed.text(4443, 4080, Path::new("/run/here"));
        for there in [
            "user www-data;",
            "daemon off;",
            "pid /run/here/nginx.pid;",
            "text/html html;",
            "gzip on;",
            "access_log /run/here/access.log;",
            "proxy_cache_path /run/here/cache-1 keys_zone=c:1m;",
            "listen 127.0.0.1:4443 ssl default_server http2;",
            "listen 127.0.0.1:4080 default_server;",
            "listen unix:/run/here/port-80.sock;",
            "listen unix:/run/here/port-9000.sock;",
            "server unix:/run/here/port-9000.sock;",
            "proxy_pass http://unix:/run/here/port-9000.sock:/x/;",
            "proxy_pass http://127.0.0.1:3000;",
            "location ~ \"^/a{2}$\" {",
            "return 200 \"a } b\";",
        ] {
            assert!(text.contains(there), "{there} is not in\n{text}");
        }
        let key = format!("ssl_certificate \"{}/certs/shop.pem\";", place.path().canonicalize().unwrap().display());
        assert!(text.contains(&key), "{text}");
        for gone in ["/run/nginx.pid", "/var/log", "443 ssl;", "[::]", "stream {", "listen 80", "include"] {
            assert!(!text.contains(gone), "{gone} is in\n{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let place = tempfile::tempdir().unwrap();
        let said = |text: &str| {
            let path = place.path().join("x.conf");
            fs::write(&path, text).unwrap();
            format!("{:#}", Installed::read(&path).unwrap_err())
        };
        assert!(said("http { server { listen 80; } }").contains("listens with TLS"));
        assert!(said("http { server {").contains("ends within"));
        assert!(said("a \"b").contains("quote"));
        assert!(said("include x.conf;").contains("within itself"));
        assert!(said("}").contains("no nginx configuration"));
    }

    proptest! {
        /// Whatever stands in a file: it is read or refused, and what is read means the same when it is written.
        #[test]
        fn what_is_read_survives_being_written(text in "[ab \"'${};#\\\\\n]{0,60}") {
            let read = |text: &str| Words { text, at: 0 }.directives(0);
            if let Ok(directives) = read(&text) {
                let mut written = String::new();
                directives.iter().for_each(|directive| directive.write(&mut written, 0));
                prop_assert_eq!(read(&written).unwrap(), directives);
            }
        }
    }
}
