//! An nginx configuration as it is installed, made ready to run beside the nginx that runs with it: one file with all
//! that it includes, in a private directory, on ports of ours. The installed files are only read.
//!
//! What stays: servers, locations, proxies, compression, TLS settings, certificates. What changes: where it listens,
//! its process files and logs (docs/TUTORIAL.md has the list).

mod effects;
mod elsewhere;
mod hosts;
mod listeners;
mod lua;
mod names;
mod one_client;
mod reader;
mod scheme;
mod targets;
mod text;
mod tls_settings;
mod variable_targets;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use effects::Contained;
pub use effects::fitting;
pub use hosts::{Choice, Offer};
use listeners::{Listeners, has_tls};
pub(super) use reader::FILES;
use reader::{Block, Directive};
use targets::is_to_target;
pub use text::bytes_of;
pub use tls_settings::TlsSettings;

/// An installed configuration, read with all that it includes.
#[derive(Clone, Debug)]
pub struct Installed {
    directives: Vec<Directive>,
    /// What clients ask for; `None`: the default server.
    host: Option<String>,
}

impl Installed {
    /// Reads a configuration.
    ///
    /// # Errors
    /// A file cannot be read or understood, or no server of it speaks TLS.
    pub fn read(path: &Path) -> Result<Installed> {
        let installed = Installed { directives: reader::read(path)?, host: None };
        ensure!(
            installed.http().iter().any(|of| of.name == "server" && has_tls(of.inner()) || of.name == "ssl"),
            "no server of `http` in {} listens with TLS (`listen … ssl`), so that there is nothing to measure",
            path.display()
        );
        Ok(installed)
    }

    /// The same with the server of this host measured: a name, with its port where that is not the usual one.
    #[must_use]
    pub fn serving(self, host: Option<&str>) -> Installed {
        Installed { host: host.map(str::to_owned), ..self }
    }

    /// Which host is measured if this is asked for, or nothing.
    pub fn choice(&self, asked: Option<&str>) -> Choice {
        Choice::of(self.http(), asked)
    }

    /// What the server of this host negotiates.
    pub fn offer(&self, host: Option<&str>) -> Offer {
        Offer::of(self.http(), host)
    }

    /// What the copy does otherwise than the installed server beside where it listens and writes, and why, in
    /// sentences.
    pub fn told(&self) -> Vec<(String, String)> {
        one_client::told(self.http())
    }

    /// Whether its servers ask others over TLS.
    pub fn is_tls_client(&self) -> bool {
        targets::any_target(self.http(), &|target| target.starts_with("https://") || target.starts_with("grpcs://"))
    }

    /// What stands in `http`.
    fn http(&self) -> &[Directive] {
        self.directives.iter().find(|of| of.name == "http").map_or(&[], Directive::inner)
    }

    /// How many of its servers speak TLS.
    pub fn tls_servers(&self) -> usize {
        self.http().iter().filter(|of| of.name == "server" && has_tls(of.inner())).count()
    }

    /// The configuration that listens on `port` with TLS and on `plain_port` without, for the same servers, and keeps
    /// what it writes in `directory`. [`bytes_of`] makes the file of it.
    ///
    /// # Errors
    /// It has a directive that no copy can have.
    pub fn text(&self, port: u16, plain_port: u16, directory: &Path) -> Result<String> {
        let copy = self.copy(port, plain_port, directory)?;
        let mut text = String::new();
        for line in copy.told(directory) {
            let _ = writeln!(text, "# {}", line.replace(['\n', '\r'], " "));
        }
        copy.directives.iter().for_each(|directive| directive.write(&mut text, 0));
        Ok(text)
    }

    /// What becomes in the copy of all that the installed server does besides answering, in sentences.
    ///
    /// # Errors
    /// It has a directive that no copy can have.
    pub fn effects(&self) -> Result<Vec<String>> {
        let directory = Path::new("/the/private/directory");
        Ok(self.copy(0, 0, directory)?.told(directory))
    }

    /// Whether the copy runs code, so that nobody knows what it writes.
    pub fn runs_code(&self) -> bool {
        self.copy(0, 0, Path::new("/")).is_ok_and(|copy| copy.effects.runs_code())
    }

    /// Directories of its documents.
    pub fn documents(&self) -> Vec<PathBuf> {
        effects::documents(&self.directives).into_iter().map(PathBuf::from).collect()
    }

    fn copy(&self, port: u16, plain_port: u16, directory: &Path) -> Result<Copy> {
        let mut directives = self.directives.clone();
        let effects = effects::contain(&mut directives, directory)?;
        let listeners = Listeners::of(self.http(), self.host.as_deref());
        let place = Ports { port, plain_port, directory, listeners };
        directives.iter_mut().filter(|of| of.name == "http").for_each(|http| place.adapt_http(http));
        Ok(Copy { directives, effects })
    }
}

/// A configuration that runs beside the installed one.
struct Copy {
    directives: Vec<Directive>,
    effects: Contained,
}

impl Copy {
    fn told(&self, directory: &Path) -> Vec<String> {
        self.effects.told(&effects::applications(&self.directives, directory))
    }
}

/// Where the copy listens and writes.
struct Ports<'a> {
    port: u16,
    plain_port: u16,
    directory: &'a Path,
    listeners: Listeners,
}

impl Ports<'_> {
    fn adapt_http(&self, http: &mut Directive) {
        let Some(Block::Directives(inner)) = &mut http.block else { return };
        // Listeners say which of them speak TLS.
        inner.retain(|of| of.name != "ssl");
        let unlimited = one_client::unlimited(inner);
        self.adapt(inner);
        variable_targets::adapt(inner, &|value| self.listeners.in_group(value, self));
        inner.splice(..0, unlimited);
        scheme::adapt(inner, [self.port, self.plain_port], self.listeners.measured_port());
    }

    /// Adapts directives of `http`, `server`, `location` and the like.
    fn adapt(&self, directives: &mut Vec<Directive>) {
        one_client::adapt(directives);
        for directive in directives.iter_mut() {
            if is_to_target(directive)
                && let Some(target) = directive.first().and_then(|target| self.listeners.in_copy(&target, self))
            {
                directive.arguments[0] = text::word_of(&target);
            }
            let (is_server, is_of_data) = (directive.name == "server", directive.is_of_data());
            if let Some(Block::Directives(inner)) = &mut directive.block
                && !is_of_data
            {
                if is_server {
                    self.adapt_listens(inner);
                }
                self.adapt(inner);
            }
        }
    }

    /// A server of the measured socket listens on both of our ports; another one, where somebody within may ask for it.
    fn adapt_listens(&self, server: &mut Vec<Directive>) {
        let new = self.listeners.of_copy(server, self);
        server.retain(|of| of.name != "listen" && of.name != "ssl");
        server.splice(..0, new);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        assert_eq!(installed.choice(None).host.as_deref(), Some("shop.example"));
        assert_eq!(installed.tls_servers(), 1, "of four");
        let text = installed.text(4443, 4080, Path::new("/run/here")).unwrap();
        for there in [
            "user www-data;",
            "daemon off;",
            "pid /run/here/nginx.pid;",
            "text/html html;",
            "gzip on;",
            "access_log /run/here/access.log;",
            "proxy_cache_path /run/here/cache-1 keys_zone=c:1m;",
            "listen 127.0.0.1:4443 ssl http2 default_server;",
            "listen 127.0.0.1:4080 default_server;",
            "listen unix:/run/here/listen-1.sock;",
            "listen unix:/run/here/listen-0.sock;",
            "server unix:/run/here/listen-0.sock;",
            "proxy_pass http://unix:/run/here/listen-0.sock:/x/;",
            "proxy_pass http://127.0.0.1:3000;",
            "location ~ \"^/a{2}$\" {",
            "return 200 \"a } b\";",
        ] {
            assert!(text.contains(there), "{there} is not in\n{text}");
        }
        let key = format!("ssl_certificate {}/certs/shop.pem;", place.path().canonicalize().unwrap().display());
        assert!(text.contains(&key), "{text}");
        for gone in ["/run/nginx.pid", "/var/log", "443 ssl;", "[::]", "stream {", "listen 80", "include"] {
            assert!(!text.contains(gone), "{gone} is in\n{text}");
        }
    }

    #[test]
    fn a_configuration_without_tls_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.conf");
        fs::write(&path, "http { server { listen 80; } }").unwrap();
        assert!(Installed::read(&path).unwrap_err().to_string().contains("listens with TLS"));
        // As configurations before nginx 1.15 say it.
        fs::write(&path, "http { ssl on; server { listen 443; } }").unwrap();
        let text = Installed::read(&path).unwrap().text(1, 2, Path::new("/x")).unwrap();
        assert!(text.contains("listen 127.0.0.1:1 ssl;") && !text.contains("ssl on"), "{text}");
    }
}
