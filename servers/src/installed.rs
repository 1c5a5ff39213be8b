//! An nginx configuration as it is installed, made ready to run beside the nginx that runs with it: one file with all
//! that it includes, in a private directory, on ports of ours. The installed files are only read.
//!
//! What stays: servers, locations, proxies, compression, TLS settings, certificates. What changes: where it listens,
//! its process files and logs (docs/TUTORIAL.md has the list).

mod copy;
mod effects;
mod elsewhere;
mod facts;
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

use copy::Copy;
pub use effects::fitting;
pub use facts::{AccessLog, Facts};
pub use hosts::{Choice, Offer};
use listeners::{Ports, has_tls};
pub(super) use reader::names_file;
use reader::{Directive, all};
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

    /// What it says of the server of this host.
    pub fn facts(&self, host: Option<&str>) -> Facts {
        Facts::of(self.http(), host)
    }

    /// What the copy does otherwise than the installed server beside where it listens and writes, and why, in
    /// sentences.
    pub fn told(&self) -> Vec<(String, String)> {
        one_client::told(self.http())
    }

    /// Whether its servers ask others over TLS.
    pub fn is_tls_client(&self) -> bool {
        targets::all_targets(self.http()).any(|target| target.starts_with("https://") || target.starts_with("grpcs://"))
    }

    fn http(&self) -> &[Directive] {
        http_of(&self.directives)
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
        let copy = self.copy(Ports { port, plain_port, directory })?;
        let mut text = String::new();
        for line in copy.told() {
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
        Ok(self.copy(example())?.told())
    }

    /// Whether the copy runs code, so that nobody knows what it writes.
    pub fn runs_code(&self) -> bool {
        self.copy(example()).is_ok_and(|copy| copy.runs_code())
    }

    /// Directories of its documents, as far as they are named without variables.
    pub fn documents(&self) -> Vec<PathBuf> {
        let roots = all(&self.directives).filter(|of| of.name == "root" || of.name == "alias");
        let paths = roots.filter_map(Directive::first);
        let fixed = paths.filter(|path| path.starts_with('/') && path.len() > 1 && !path.contains('$'));
        fixed.map(PathBuf::from).collect()
    }

    fn copy<'a>(&'a self, ports: Ports<'a>) -> Result<Copy<'a>> {
        Copy::of(&self.directives, self.host.as_deref(), ports)
    }
}

/// What stands in `http`.
fn http_of(directives: &[Directive]) -> &[Directive] {
    directives.iter().find(|of| of.name == "http").map_or(&[], Directive::inner)
}

/// Where a copy would be that is only asked about.
fn example() -> Ports<'static> {
    Ports { port: 0, plain_port: 0, directory: Path::new("/the/private/directory") }
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
