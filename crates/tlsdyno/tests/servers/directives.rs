//! The configuration lines under remedies, each checked by the real server (`nginx -t`, `apache2 -t`, `haproxy -c`,
//! `lighttpd -tt`); servers are started with those for ticket keys.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tlsdyno::kinds::ablation::page::remedies::configuration_lines;
use tlsdyno::kinds::ablation::summary::findings::RemedyFinding;
use tlsdyno::kinds::ablation::{Ablation, AblationExperiment};
use tlsdyno::kinds::find;
use tlsdyno::model::{CertificateKind, ServerName, SessionCache, TicketKeys};
use tlsdyno::servers::directives::{self, CertificateFile, Setting};
use tlsdyno::servers::{certificates, programs};
use tlsdyno::store::Record;
use tlsdyno_tls::{Group, Suite, Version};

use crate::ticket_macs::is_by_a_lost_key;

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
        write("site-second.pem", format!("{chain}{key}").as_bytes());
        write("site-second.key", key.as_bytes());
        write("48.key", &[7; 48]);
        // Version 0, in use from a day before to a day after, and a key (lighttpd's mod_openssl).
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as u32;
        let stek = [0, now - 86_400, now + 86_400].map(u32::to_ne_bytes).concat();
        write("stek", &[stek, vec![7; 80]].concat());
        // Three keys of 48 zero bytes in base64.
        write("lines.key", format!("{0}\n{0}\n{0}\n", "A".repeat(64)).as_bytes());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Files { directory, port }
    }

    /// The lines with files and an address that this machine has, in place of the examples.
    fn real(&self, server: ServerName, lines: &[String]) -> Vec<String> {
        let keys = match server {
            ServerName::Haproxy => "lines.key",
            ServerName::Lighttpd => "stek",
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

    /// The server's program with a configuration that has these lines, and that configuration.
    fn command(&self, server: ServerName, lines: &[String], check: bool) -> (Command, String) {
        let usual = directives::lines(server, Setting::Certificate(CertificateKind::P256));
        // Those of a remedy take the place of the ones that are there.
        let has_certificate = usual.iter().skip(1).any(|line| lines.contains(line));
        let certificate = self.real(server, if has_certificate { &[] } else { &usual });
        let lines = self.real(server, lines);
        // Some are for libcrypto, not for the server.
        let of_openssl = lines.first().is_some_and(|line| line.contains("openssl.cnf"));
        let own = if of_openssl { &[] } else { &lines[..] };
        let (program, tried, started, config): (_, &[&str], &[&str], _) = match server {
            ServerName::Nginx => {
                let started = ["-g", "daemon off;", "-e", "stderr", "-c"].as_slice();
                ("nginx", &["-t", "-e", "stderr", "-c"], started, self.nginx(&certificate, own))
            }
            ServerName::ApacheEvent => {
                ("apache2", &["-t", "-f"], &["-DFOREGROUND", "-f"], self.apache("mpm_event", &certificate, own))
            }
            ServerName::ApachePrefork => {
                ("apache2", &["-t", "-f"], &["-DFOREGROUND", "-f"], self.apache("mpm_prefork", &certificate, own))
            }
            ServerName::Haproxy => ("haproxy", &["-c", "-f"], &["-db", "-f"], haproxy(&certificate, own)),
            ServerName::Lighttpd => ("lighttpd", &["-tt", "-f"], &["-D", "-f"], self.lighttpd(&certificate, own)),
            _ => panic!("{server:?} has no check"),
        };
        let path = self.directory.path().join("config");
        fs::write(&path, &config).unwrap();
        let mut command = Command::new(programs::find(program).expect("the server is installed"));
        command.args(if check { tried } else { started }).arg(&path);
        if of_openssl {
            let own = self.directory.path().join("openssl.cnf");
            // As distributions have it around these sections.
            let around = "openssl_conf = openssl_init\n[openssl_init]\nproviders = provider_sect\n";
            fs::write(&own, around.to_owned() + &lines.join("\n") + "\n").unwrap();
            command.env("OPENSSL_CONF", own);
        }
        (command, config)
    }

    /// What the server's own check says of a configuration with these lines; `None`: it accepts them.
    fn fault(&self, server: ServerName, lines: &[String]) -> Option<String> {
        let (mut command, config) = self.command(server, lines, true);
        let output = command.output().unwrap();
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
            "{main}\npid {pid};\nevents {{}}\nhttp {{ access_log off;\nserver {{ listen 127.0.0.1:{port} \
             ssl;\n{certificate}\n{rest}\n}} }}\n",
            main = main.into_iter().map(String::as_str).collect::<Vec<_>>().join("\n"),
            pid = self.directory.path().join("pid").display(),
            port = self.port,
            rest = rest.join("\n"),
        )
    }

    fn apache(&self, mpm: &str, certificate: &[String], lines: &[String]) -> String {
        let modules = [mpm, "authz_core", "ssl", "socache_shmcb", "socache_dbm", "socache_memcache", "socache_redis"];
        let load = |name: &str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
        format!(
            "ServerName localhost\nServerRoot {0}\nDefaultRuntimeDir {0}\nPidFile {0}/pid\nErrorLog \
             /dev/stderr\nListen 127.0.0.1:{1}\n{2}SSLEngine on\n{3}\n{4}\n",
            self.directory.path().display(),
            self.port,
            modules.map(load).concat(),
            certificate.join("\n"),
            lines.join("\n"),
        )
    }

    fn lighttpd(&self, certificate: &[String], lines: &[String]) -> String {
        // Version 1.4.79 refuses TLS 1.2 when left alone. Lines of a remedy may set the same key: an error then.
        let own = lines.iter().any(|line| line.contains("ssl-conf-cmd"));
        let versions = if own { "" } else { "ssl.openssl.ssl-conf-cmd = (\"MinProtocol\" => \"TLSv1.2\")" };
        format!(
            "server.document-root = \"{}\"\nserver.bind = \"127.0.0.1\"\nserver.port = {}\n\
             server.modules = (\"mod_openssl\")\nssl.engine = \"enable\"\n{versions}\n{}\n{}\n",
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
        "global\n{}\ndefaults\n mode http\n timeout client 1s\n timeout server 1s\n timeout connect 1s\nfrontend \
         site\n{}\n",
        global.join("\n"),
        front.join("\n")
    )
}

const SERVERS: [ServerName; 4] =
    [ServerName::Nginx, ServerName::ApacheEvent, ServerName::Haproxy, ServerName::Lighttpd];

/// A server that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // In order, so that its workers end too.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

impl Files {
    /// Starts the server with these lines; it accepts connections.
    fn start(&self, server: ServerName, lines: &[String]) -> Running {
        let (mut command, config) = self.command(server, lines, false);
        let mut running = Running(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let limit = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = running.0.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < limit, "{server:?} does not start ({ended:?}):\n{config}");
            std::thread::yield_now();
        }
        running
    }

    /// Whether the server takes the session in `file`; it is written there where there is none.
    fn resumes(&self, file: &Path) -> bool {
        let file = file.to_str().unwrap();
        let session = if Path::new(file).exists() { "-sess_in" } else { "-sess_out" };
        let address = format!("127.0.0.1:{}", self.port);
        let output = Command::new("openssl")
            .args(["s_client", "-tls1_2", "-connect", &address, session, file])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).contains("Reused, TLSv1.2")
    }
}

/// Two servers with the same key file take each other's tickets, with exactly the printed lines; with keys of their own
/// they do not.
#[test]
fn servers_with_the_printed_ticket_keys_share_them() {
    for server in SERVERS {
        for (lines, shared) in
            [(directives::lines(server, Setting::TicketKeys(TicketKeys::Shared)), true), (Vec::new(), false)]
        {
            let files = Files::new();
            let session = files.directory.path().join("session");
            let first = files.start(server, &lines);
            assert!(!files.resumes(&session) && session.exists(), "{server:?}: a full handshake with a ticket");
            drop(first);
            let _second = files.start(server, &lines);
            let lost_key = || server == ServerName::ApacheEvent && is_by_a_lost_key(&session, &[7; 48]);
            let expected = files.resumes(&session) == shared || shared && lost_key();
            assert!(expected, "{server:?} with {lines:?}");
        }
    }
}

#[test]
fn each_server_accepts_the_lines_of_every_remedy() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/modern");
    let files = Files::new();
    let mut seen = 0;
    let servers = || SERVERS.into_iter().chain([ServerName::ApachePrefork]);
    let asked = ["remedies.toml", "second-cpu.toml"].into_iter().flat_map(|file| servers().map(move |of| (file, of)));
    for (file, server) in asked {
        let path = experiments.join(file);
        let AblationExperiment(mut experiment) = find(&[&Ablation], &path, "one server").unwrap();
        experiment.server.kind = server;
        let record = Record { kind_part: experiment.clone().into(), ..Record::begun_now("", 1) };
        for remedy in experiment.remedies {
            let answer = RemedyFinding {
                name: remedy.name,
                configuration: remedy.configuration,
                over: remedy.over.unwrap_or_else(|| "as is".to_owned()),
                bound: remedy.bound,
                ratio: None,
                by_cpu: None,
                told_by: None,
                by_construction: false,
                over_as_is: true,
                in_place: false,
                processors_times: None,
                contention: None,
            };
            let lines = configuration_lines(&answer, &record);
            assert_eq!(files.fault(server, &lines), None, "{server:?}, {}: {lines:?}", answer.name);
            seen += usize::from(!lines.is_empty());
        }
    }
    assert!(seen >= 20, "only {seen} remedies have lines");
}

#[test]
fn each_server_accepts_its_lines() {
    let files = Files::new();
    for server in SERVERS {
        let mut settings = vec![
            Setting::Tickets(true),
            Setting::Tickets(false),
            Setting::Version(Version::Tls12),
            Setting::Version(Version::Tls13),
            Setting::Suite(Suite::EcdheEcdsaAes128Gcm),
            Setting::Suite(Suite::Tls13Aes128Gcm),
            Setting::AlsoTls13,
            Setting::Group(Group::P384),
            Setting::Groups("X25519:prime256v1:secp384r1".to_owned()),
            Setting::Ciphers("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256"),
            Setting::AlsoCertificate(CertificateFile::example(CertificateKind::P256)),
            Setting::SessionTimeout(86_400),
            Setting::KeepAlive(75),
            Setting::RecordBytes(16_384),
            Setting::EarlyData,
            Setting::Processors(2),
            Setting::KernelTls,
        ];
        settings.extend([TicketKeys::Shared, TicketKeys::Rotating].map(Setting::TicketKeys));
        use SessionCache::{Builtin, BuiltinShared, Dbm, Memcached, Off, Redis, Shared};
        settings.extend([Off, Shared, Builtin, BuiltinShared, Dbm, Memcached, Redis].map(Setting::SessionCache));
        settings.extend([true, false].map(|asynchronous| Setting::Accelerator { asynchronous }));
        for setting in settings {
            let lines = directives::lines(server, setting.clone());
            assert_eq!(files.fault(server, &lines), None, "{server:?}, {setting:?}: {lines:?}");
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
