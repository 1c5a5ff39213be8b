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

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use tlsdyno_record::model::TlsChange;

use super::files::Files;
use super::patch::{Part, name_of};
use super::site::{Choice, Copied, Facts, Host, InstalledSite, Offer, Ports};
use copy::Copy;
use listeners::has_tls;
use reader::{Block, Directive, all};
pub use text::{bytes_of, text_of};
use tlsdyno_servers::{InstancePlace, ServerTls, nginx, programs};

#[derive(Clone, Debug)]
pub(super) struct Nginx {
    directives: Vec<Directive>,
}

impl Nginx {
    /// Reads a configuration.
    pub(super) fn read(path: &Path, files: &mut Files) -> Result<Nginx> {
        let nginx = Nginx { directives: reader::read(path, files)? };
        ensure!(
            nginx
                .http()
                .iter()
                .any(|directive| directive.name == "server" && has_tls(directive.inner()) || directive.name == "ssl"),
            "no server of `http` in {} listens with TLS (`listen … ssl`), so that there is nothing to measure",
            path.display()
        );
        Ok(nginx)
    }

    fn http(&self) -> &[Directive] {
        http_of(&self.directives)
    }
}

impl InstalledSite for Nginx {
    /// nginx's own rules stand in the methods below.
    fn hosts(&self) -> Vec<Host> {
        Vec::new()
    }

    fn choice(&self, asked: Option<&str>) -> Choice {
        Choice::new(self.http(), asked)
    }

    fn offer(&self, host: Option<&str>) -> Offer {
        Offer::new(self.http(), host)
    }

    fn facts(&self, host: Option<&str>) -> Facts {
        Facts::new(&self.directives, host).with_suites(Some("HIGH:!aNULL:!MD5"))
    }

    fn notes(&self) -> Vec<(String, String)> {
        one_client::notes(self.http())
    }

    fn is_tls_client(&self) -> bool {
        targets::all_targets(self.http()).any(|target| target.starts_with("https://") || target.starts_with("grpcs://"))
    }

    fn tls_servers(&self) -> usize {
        let servers =
            self.http().iter().filter(|directive| directive.name == "server" && has_tls(directive.inner())).count();
        // Configurations before nginx 1.15 say it in `http`.
        servers.max(usize::from(self.http().iter().any(|directive| directive.name == "ssl")))
    }

    fn copy(&self, host: Option<&str>, ports: Ports) -> Result<Copied> {
        let copy = Copy::new(&self.directives, host, ports)?;
        let written = |directives: &[Directive]| {
            let mut text = String::new();
            directives.iter().for_each(|directive| directive.write(&mut text, 0));
            text
        };
        let (text, shown) = (written(&copy.directives), written(&effects::blotted(&copy.directives)));
        Ok(copy.into_done().copied(text, shown))
    }

    fn change_tls(&mut self, asked: &TlsChange, tls: &ServerTls, place: InstancePlace) -> Result<()> {
        self.put(asked, tls, place)
    }

    fn fitting(&self, text: String, program: &Path) -> String {
        effects::fitting(&text, &programs::output_of(program, &["-V"]))
    }

    fn prepare(&self, program: &Path, file: &Path, directory: &Path) -> Result<Vec<String>> {
        let log = directory.join("error.log").display().to_string();
        let log = if nginx::takes_log(program) { vec!["-e".to_owned(), log] } else { Vec::new() };
        Ok([log, vec!["-c".to_owned(), file.display().to_string()]].concat())
    }

    fn documents(&self) -> Vec<PathBuf> {
        let roots = all(&self.directives).filter(|directive| directive.name == "root" || directive.name == "alias");
        let paths = roots.filter_map(Directive::first);
        let fixed = paths.filter(|path| path.starts_with('/') && path.len() > 1 && !path.contains('$'));
        fixed.map(PathBuf::from).collect()
    }
}

pub(super) fn parts(path: &Path, files: &mut Files) -> Result<Vec<Part>> {
    Ok(parts_of(&reader::read(path, files)?))
}

fn parts_of(directives: &[Directive]) -> Vec<Part> {
    let part = |directive: &Directive| {
        // What is not for HTTP is one part, which stays as it is.
        let is_open = !["stream", "mail"].contains(&directive.name.as_str());
        let block = directive.block.clone().filter(|block| !is_open || !matches!(block, Block::Directives(_)));
        let mut says = String::new();
        Directive { block, ..directive.clone() }.write(&mut says, 0);
        let listens =
            directive.name == "listen" && directive.says("ssl") || directive.name == "ssl" && directive.says("on");
        Part {
            name: name_of(&directive.name, &directive.first().unwrap_or_default()),
            says,
            at: directive.at.clone(),
            place: if listens { "tls" } else { "" },
            inner: if is_open { parts_of(directive.inner()) } else { Vec::new() },
        }
    };
    directives.iter().map(part).collect()
}

fn http_of(directives: &[Directive]) -> &[Directive] {
    directives.iter().find(|directive| directive.name == "http").map_or(&[], Directive::inner)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Installed;

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
        let installed = Installed::read(&place.path().join("nginx.conf"), None).unwrap();
        assert_eq!(installed.site.choice(None).host.as_deref(), Some("shop.example"));
        assert_eq!(installed.site.tls_servers(), 1, "of four");
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
            "proxy_pass http://unix:/run/here/application-0.sock;",
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
        assert!(Installed::read(&path, Some("nginx")).unwrap_err().to_string().contains("listens with TLS"));
        // As configurations before nginx 1.15 say it.
        fs::write(&path, "http { ssl on; server { listen 443; } }").unwrap();
        let text = Installed::read(&path, Some("nginx")).unwrap().text(1, 2, Path::new("/x")).unwrap();
        assert!(text.contains("listen 127.0.0.1:1 ssl;") && !text.contains("ssl on"), "{text}");
    }
}
