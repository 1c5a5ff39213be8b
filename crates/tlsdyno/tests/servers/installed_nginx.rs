//! Configurations of nginx after the pattern of public ones: the copy of each starts beside the original and answers as
//! that does, with TLS and without.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use tlsdyno::exchange::{Answer, exchange, get};
use tlsdyno::installed::{Installed, InstalledFile};
use tlsdyno::load::client;
use tlsdyno::model::{CertificateKind, ClientModel};
use tlsdyno::run::preflight::compile;
use tlsdyno::servers::{CommandSpec, Instance, ServerSpec, certificates, programs};
use tlsdyno_tls::{Effort, Group, Settings};

use crate::place::Place;

/// A site and what it answers.
struct Site<'a> {
    name: &'a str,
    /// What stands in `http`. `KEYS` names a certificate with its key, relative to the configuration.
    http: &'a [u8],
    /// `--host`.
    host: Option<&'a str>,
    path: &'a str,
    headers: &'a str,
    /// With TLS and without.
    status: u16,
    body: &'a [u8],
}

const KEYS: &str = "ssl_certificate tls/chain.pem; ssl_certificate_key \"tls/key.pem\";";

impl<'a> Site<'a> {
    const fn new(name: &'a str, http: &'a [u8], body: &'a [u8]) -> Site<'a> {
        Site { name, http, host: None, path: "/", headers: "", status: 200, body }
    }
}

const SITES: [Site; 17] = [
    Site::new("a leading dot", b"server { listen 443 ssl; server_name .shop.example; KEYS return 200 shop; }", b"shop"),
    Site::new("a quoted name", b"server { listen 443 ssl; server_name \"a.example\"; KEYS return 200 a; }", b"a"),
    Site::new("Latin-1", b"# f\xfcr\nserver { listen 443 ssl; KEYS return 200 \"gr\xfcn } # x\"; }", b"gr\xfcn } # x"),
    Site::new("two default servers", TWO_DEFAULTS, b"shop"),
    Site { host: Some("admin.example:8443"), ..Site::new("the other of them", TWO_DEFAULTS, b"admin") },
    Site::new(
        "rejected handshakes",
        b"server { listen 443 ssl default_server; listen [::]:443 ssl default_server; ssl_reject_handshake on; }\n\
          server { listen 80 default_server; return 444; }\n\
          server { listen 443 ssl; listen [::]:443 ssl; server_name www.x.example; KEYS\n\
          return 301 https://x.example/; }\n\
          server { listen 443 ssl; listen [::]:443 ssl; server_name x.example; KEYS return 200 x; }",
        b"x",
    ),
    Site::new(
        "checks of the scheme",
        b"map $scheme $hsts { https max-age=1; }\n\
          server { listen 80; listen 443 ssl; KEYS if ($scheme = http) { return 301 https://$host/; }\n\
          if ($server_port != 443) { return 301 https://$host/; } return 200 \"$hsts ${https} $server_port\"; }",
        b"max-age=1 on 443",
    ),
    Site { path: "/x", ..Site::new("for the local network", LAN_ONLY, b"front") },
    Site { path: "/closed", status: 403, ..Site::new("closed to all", LAN_ONLY, b"") },
    Site { status: 401, ..Site::new("a password", PASSWORD, b"") },
    Site { headers: "Authorization: Basic dXNlcjpzZWNyZXQ=\r\n", ..Site::new("a password given", PASSWORD, b"front") },
    Site::new(
        "kernel TLS",
        b"server { listen 443 ssl; KEYS ssl_conf_command Options KTLS,PrioritizeChaCha; ssl_ecdh_curve secp384r1;\n\
          ssl_early_data on; return 200 plain; }",
        b"plain",
    ),
    Site::new(
        "one request an hour",
        b"limit_req_zone $binary_remote_addr zone=a:1m rate=1r/m; limit_conn_zone $server_name zone=b:1m;\n\
          server { listen 443 ssl; KEYS limit_req zone=a; limit_conn b 1; location / { try_files /index.html =404; } }",
        b"front",
    ),
    Site::new(
        "two certificates",
        b"server { listen 443 ssl; KEYS ssl_certificate tls/ec.pem; ssl_certificate_key tls/ec.key; return 200 two; }",
        b"two",
    ),
    Site::new(
        "includes",
        b"include parts/[a-z]*.conf; geo $near { default 0; include parts/near.geo; }\n\
          types { include parts/mime; text/css css; }\n\
          server { listen 443 ssl; KEYS return 200 \"$kind $near\"; }",
        b"odd 1",
    ),
    Site::new(
        "ranges, sockets and servers that say nothing",
        b"server { return 200 none; } server { listen 9000-9002; listen unix:/run/none.sock; return 200 inner; }\n\
          server { listen 443 ssl; KEYS location / { proxy_pass http://127.0.0.1:9001; }\n\
          location /u { proxy_pass http://unix:/run/none.sock:/; } }",
        b"inner",
    ),
    Site::new(
        "an old redirect",
        b"server { listen 443 ssl; server_name x.example; KEYS rewrite ^(.*)$ https://www.x.example$1 permanent; }\n\
          server { listen 443 ssl; server_name *.x.example; KEYS return 200 www; }",
        b"www",
    ),
];

const TWO_DEFAULTS: &[u8] =
    b"server { listen 443 ssl default_server; server_name shop.example; KEYS return 200 shop; }\n\
    server { listen 8443 ssl default_server; server_name admin.example; KEYS return 200 admin; }";
const LAN_ONLY: &[u8] = b"server { listen 443 ssl; KEYS allow 10.0.0.0/8; deny all; location = /closed { deny all; }\n\
    location /x { try_files /index.html =404; } }";
const PASSWORD: &[u8] = b"server { listen 443 ssl; KEYS location / { auth_basic x; auth_basic_user_file htpasswd;\n\
    try_files /index.html =404; } }";

/// The files that the configurations name, and a live server's port that they listen on too.
struct Installation<'a> {
    at: &'a Path,
    live: TcpListener,
}

impl Installation<'_> {
    fn new(at: &Path) -> Installation<'_> {
        let write = |name: &str, text: &str| {
            let path = at.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
            fs::write(path, text).unwrap();
        };
        write("elsewhere/unused", "");
        write("www/index.html", "front");
        write("htpasswd", "user:{PLAIN}secret\n");
        write("parts/a.conf", "map $host $kind { default odd; }");
        write("parts/.hidden.conf", "no directive");
        write("parts/0.conf", "no directive");
        write("parts/near.geo", "127.0.0.0/8 1;");
        write("parts/mime", "text/html html;");
        write("tls/unused", "");
        let rsa = certificates::create(CertificateKind::Rsa2048, at).unwrap();
        let ec = certificates::create(CertificateKind::P256, at).unwrap();
        for (from, to) in [(&rsa.chain, "chain.pem"), (&rsa.key, "key.pem"), (&rsa.ca, "ca.pem")] {
            fs::copy(from, at.join("tls").join(to)).unwrap();
        }
        for (from, to) in [(&ec.chain, "ec.pem"), (&ec.key, "ec.key")] {
            fs::copy(from, at.join("tls").join(to)).unwrap();
        }
        let live = TcpListener::bind("127.0.0.1:0").unwrap();
        live.set_nonblocking(true).unwrap();
        Installation { at, live }
    }

    /// Starts the copy of a configuration, which is a link beside what it includes.
    fn start(&self, place: &Place, http: &[u8], host: Option<&str>) -> (Instance, String) {
        let mut text = format!(
            "worker_processes 4;\npid /run/nginx.pid;\nevents {{ }}\nhttp {{ access_log off; root {};\n\
             ssl_protocols TLSv1.2 TLSv1.3;\n",
            self.at.join("www").display()
        )
        .into_bytes();
        text.extend(replaced(&replaced(http, b"KEYS", KEYS.as_bytes()), b"LIVE", self.port().as_bytes()));
        text.extend(b"\n}\n");
        let (original, link) = (self.at.join("elsewhere/nginx.conf"), self.at.join("nginx.conf"));
        fs::write(&original, text).unwrap();
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&original, &link).unwrap();
        let host = Installed::read(&link, None).unwrap().site.choice(host).host;
        let program = programs::find("nginx").expect("nginx is installed").display().to_string();
        let command = CommandSpec {
            command: program.clone(),
            address: "127.0.0.1:{port}".to_owned(),
            plain_address: Some("127.0.0.1:{plain_port}".to_owned()),
            original: Some(Arc::new(InstalledFile {
                path: link,
                program,
                host: host.clone(),
                ..InstalledFile::default()
            })),
        };
        let instance = place.start(&ServerSpec::of_command(command, place.docroot())).unwrap();
        (instance, host.unwrap_or_else(|| "localhost".to_owned()))
    }

    fn port(&self) -> String {
        self.live.local_addr().unwrap().port().to_string()
    }
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut new = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        new.extend_from_slice(&rest[..at]);
        new.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    [&new, rest].concat()
}

/// What a client is answered with TLS.
fn ask(instance: &Instance, host: &str, request: &[u8], client: &ClientModel) -> Answer {
    let settings = Settings {
        server_name: Some(host.split(':').next().unwrap_or_default().to_owned()),
        effort: Effort::Lean,
        groups: vec![Group::X25519, Group::P384],
        client_certificate: client::certificate(client).unwrap().map(Into::into),
        ..Settings::default()
    };
    exchange(instance.address(), Some(&compile(&settings).unwrap()), None, request).unwrap()
}

#[test]
fn copies_answer_as_the_installed_server_does() {
    let place = Place::new();
    let site = tempfile::tempdir_in(place.path()).unwrap();
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let installation = Installation::new(site.path());
    for Site { name, http, host, path, headers, status, body } in SITES {
        let (instance, host) = installation.start(&place, http, host);
        let request = get(path, headers, &host);
        let answer = ask(&instance, &host, &request, &ClientModel::default());
        let plain = exchange(instance.plain_address().unwrap(), None, None, &request).unwrap();
        for (answer, how) in [(answer, "with TLS"), (plain, "without")] {
            let text = String::from_utf8_lossy(&answer.response);
            assert_eq!(answer.status, status, "{name}, {how}: {text}");
            assert!(status != 200 || answer.body() == body, "{name}, {how}: {text}");
        }
        instance.stop().unwrap();
    }
}

#[test]
fn what_proxies_to_itself_asks_the_copy_not_the_live_server() {
    let place = Place::new();
    let site = tempfile::tempdir_in(place.path()).unwrap();
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let installation = Installation::new(site.path());
    let http = b"upstream inner { server localhost:LIVE; keepalive 4; }\n\
        server { listen 443 ssl; KEYS location /a { proxy_pass https://127.0.0.1:LIVE/; }\n\
        location /b { proxy_pass https://inner; } location /c { proxy_pass https://[::1]:LIVE/; }\n\
        set $up https://127.0.0.1:LIVE; location /e { proxy_pass $up; }\n\
        location /d { proxy_pass https://localhost/front; } location /front { return 200 inner; } }\n\
        server { listen LIVE ssl; listen [::]:LIVE ssl; KEYS return 200 inner; }";
    let (instance, host) = installation.start(&place, http, None);
    for path in ["/a", "/b", "/c", "/d", "/e"] {
        let answer = ask(&instance, &host, &get(path, "", &host), &ClientModel::default());
        assert_eq!(answer.body(), b"inner", "{path}: {}", String::from_utf8_lossy(&answer.response));
    }
    assert!(installation.live.accept().is_err(), "the live server was asked");
    instance.stop().unwrap();
}

#[test]
fn a_server_that_wants_certificates_of_clients_gets_one() {
    let place = Place::new();
    let site = tempfile::tempdir_in(place.path()).unwrap();
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let installation = Installation::new(site.path());
    let at = |name: &str| site.path().join("tls").join(name);
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap().self_signed(&key).unwrap();
    fs::write(at("client.pem"), own.pem()).unwrap();
    fs::write(at("client.key"), key.serialize_pem()).unwrap();
    let http = b"server { listen 443 ssl; KEYS ssl_client_certificate tls/client.pem; ssl_verify_client on;\n\
        return 200 $ssl_client_verify; }";
    let (instance, host) = installation.start(&place, http, None);
    let request = get("/", "", &host);
    let refused = ask(&instance, &host, &request, &ClientModel::default());
    assert_eq!(refused.status, 400);
    let (certificate, key) = (Some(at("client.pem")), Some(at("client.key")));
    let client = ClientModel { certificate, key, ..ClientModel::default() };
    let answer = ask(&instance, &host, &request, &client);
    assert_eq!(answer.body(), b"SUCCESS", "{}", String::from_utf8_lossy(&answer.response));
    instance.stop().unwrap();
}
