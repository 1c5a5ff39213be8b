//! The configuration lines under remedies, each checked by the real server (`nginx -t`, `apache2 -t`, `haproxy -c`, `lighttpd -tt`).

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tlsdyno::experiment::model::{Accelerator, ServerName, Tls};
use tlsdyno::servers::{CertificateKind, SessionCache, TicketKeys, certificates, directives, programs};

/// What the examples name, as files of this machine.
struct Files {
    directory: TempDir,
    port: u16,
}

impl Files {
    fn new() -> Files {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let files = certificates::create(CertificateKind::P256, directory.path()).unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let (chain, key) = (read(&files.chain), read(&files.key));
        let write = |name: &str, content: &[u8]| fs::write(directory.path().join(name), content).unwrap();
        write("site.pem", format!("{chain}{key}").as_bytes());
        write("site.key", key.as_bytes());
        write("48.key", &[7; 48]);
        write("80.key", &[7; 80]);
        // Three keys of 48 zero bytes in base64.
        write("lines.key", format!("{0}\n{0}\n{0}\n", "A".repeat(64)).as_bytes());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Files { directory, port }
    }

    /// The lines with files and an address that this machine has, in place of the examples.
    fn real(&self, server: ServerName, lines: &[String]) -> Vec<String> {
        let keys = match server {
            ServerName::Haproxy => "lines.key",
            ServerName::Lighttpd => "80.key",
            _ => "48.key",
        };
        let path = |name: &str| self.directory.path().join(name).display().to_string();
        let real = |line: &String| {
            line.replace("/etc/ssl/site", &path("site"))
                .replace("/run/tls/ticket.key", &path(keys))
                .replace("/run/tls/previous.key", &path(keys))
                .replace("/run/apache2", &path(""))
                .replace("bind :443", &format!("bind 127.0.0.1:{}", self.port))
                // A provider that every OpenSSL 3 brings.
                .replace("CARD", "legacy")
        };
        lines.iter().map(real).collect()
    }

    /// What the server's own check says of a configuration with these lines; `None`: it accepts them.
    fn fault(&self, server: ServerName, lines: &[String]) -> Option<String> {
        let certificate = self.real(server, &directives::certificate(server, "p-256"));
        let lines = self.real(server, lines);
        let (program, arguments, config): (_, &[&str], _) = match server {
            ServerName::Nginx => ("nginx", &["-t", "-e", "stderr", "-c"], self.nginx(&certificate, &lines)),
            ServerName::ApacheEvent => ("apache2", &["-t", "-f"], self.apache(&certificate, &lines)),
            ServerName::Haproxy => ("haproxy", &["-c", "-f"], haproxy(&certificate, &lines)),
            ServerName::Lighttpd => ("lighttpd", &["-tt", "-f"], self.lighttpd(&certificate, &lines)),
            ServerName::ApachePrefork | ServerName::Builtin | ServerName::Command => panic!("{server:?} has no check"),
        };
        let path = self.directory.path().join("config");
        fs::write(&path, &config).unwrap();
        let program = programs::find(program).expect("the server is installed");
        let output = Command::new(program).args(arguments).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        // lighttpd only warns of what it does not know.
        let accepted = output.status.success() && !said.contains("unknown config-key");
        (!accepted).then(|| format!("{said}\n{config}"))
    }

    fn nginx(&self, certificate: &[String], lines: &[String]) -> String {
        let (main, rest): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.starts_with("worker_processes"));
        let (main, certificate): (Vec<&String>, _) = (main, certificate.join("\n"));
        let rest: Vec<&str> = rest.iter().map(|line| line.as_str()).collect();
        format!(
            "{main}\npid {pid};\nevents {{}}\nhttp {{ access_log off;\nserver {{ listen 127.0.0.1:{port} ssl;\n{certificate}\n{rest}\n}} }}\n",
            main = main.into_iter().map(String::as_str).collect::<Vec<_>>().join("\n"),
            pid = self.directory.path().join("pid").display(),
            port = self.port,
            rest = rest.join("\n"),
        )
    }

    fn apache(&self, certificate: &[String], lines: &[String]) -> String {
        let modules =
            ["mpm_event", "authz_core", "ssl", "socache_shmcb", "socache_dbm", "socache_memcache", "socache_redis"];
        let load = |name: &str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
        format!(
            "ServerName localhost\nServerRoot {0}\nDefaultRuntimeDir {0}\nPidFile {0}/pid\nErrorLog /dev/stderr\nListen 127.0.0.1:{1}\n{2}\
             SSLEngine on\n{3}\n{4}\n",
            self.directory.path().display(),
            self.port,
            modules.map(load).concat(),
            certificate.join("\n"),
            lines.join("\n"),
        )
    }

    fn lighttpd(&self, certificate: &[String], lines: &[String]) -> String {
        format!(
            "server.document-root = \"{}\"\nserver.bind = \"127.0.0.1\"\nserver.port = {}\nserver.modules = (\"mod_openssl\")\n\
             ssl.engine = \"enable\"\n{}\n{}\n",
            self.directory.path().display(),
            self.port,
            certificate.join("\n"),
            lines.join("\n"),
        )
    }
}

/// Lines after `global` belong there when they are indented; those that bind take the place of the usual ones.
fn haproxy(certificate: &[String], lines: &[String]) -> String {
    let (global, front): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.starts_with(' '));
    let front: Vec<&String> = front.into_iter().filter(|line| *line != "global").collect();
    let binds = front.iter().any(|line| line.starts_with("bind"));
    let usual = certificate.iter().filter(|line| line.starts_with("bind") && !binds);
    let front: Vec<&str> = usual.chain(front).map(String::as_str).collect();
    let global: Vec<&str> = global.into_iter().map(String::as_str).collect();
    format!(
        "global\n{}\ndefaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\nfrontend site\n{}\n",
        global.join("\n"),
        front.join("\n")
    )
}

const SERVERS: [ServerName; 4] =
    [ServerName::Nginx, ServerName::ApacheEvent, ServerName::Haproxy, ServerName::Lighttpd];

#[test]
fn each_server_accepts_its_lines() {
    let files = Files::new();
    for server in SERVERS {
        let suite = |version: &str, name: &str| {
            directives::suite(
                server,
                &Tls { version: version.to_owned(), suite: Some(name.to_owned()), ..Tls::default() },
            )
        };
        let mut cases = vec![
            directives::tickets(server, true),
            directives::tickets(server, false),
            directives::version(server, "1.2"),
            directives::version(server, "1.3"),
            suite("1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
            suite("1.3", "TLS_AES_128_GCM_SHA256"),
            directives::early_data(server),
            directives::processors(server, 2),
            directives::kernel_tls(server),
        ];
        cases.extend([TicketKeys::Shared, TicketKeys::Rotating].map(|keys| directives::ticket_keys(server, keys)));
        use SessionCache::{Builtin, BuiltinShared, Dbm, Memcached, Off, Redis, Shared};
        let caches = [Off, Shared, Builtin, BuiltinShared, Dbm, Memcached, Redis];
        cases.extend(caches.map(|cache| directives::session_cache(server, cache)));
        if server == ServerName::Haproxy {
            let card = |asynchronous| Accelerator { engines: 1, operation_us: None, cpu_rates: None, asynchronous };
            cases.extend([true, false].map(|asynchronous| directives::accelerator(server, &card(asynchronous))));
        }
        for lines in cases {
            assert_eq!(files.fault(server, &lines), None, "{server:?}: {lines:?}");
        }
    }
}

/// The checks find what is wrong: a test with a server that accepts anything would show nothing.
#[test]
fn each_server_refuses_another_line() {
    let files = Files::new();
    for (server, line) in SERVERS.into_iter().zip([
        "ssl_session_cash off;",
        "SSLSessionTickets maybe",
        "bind :443 ssl crt /etc/ssl/site.pem tls-tickets-key /run/tls/ticket.key",
        "ssl.stek = \"/run/tls/ticket.key\"",
    ]) {
        assert!(files.fault(server, &[line.to_owned()]).is_some(), "{server:?} accepts {line}");
    }
}
