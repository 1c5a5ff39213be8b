//! Patches of remedies on configurations after the pattern of public ones: `patch` takes each, the server accepts what
//! comes of it, and nothing but the remedy differs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tlsdyno::installed::{Installed, patch};
use tlsdyno::model::{CertificateKind, ServerName, SessionCache};
use tlsdyno::servers::certificates;
use tlsdyno::servers::directives::{CertificateFile, Setting};
use tlsdyno_tls::Group;

use crate::place::Place;

/// Where the configurations are, in a directory for each server. `$S` in them stands for a directory of the test.
const CONFIGURATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/servers/configurations");

/// What begins a statement that the settings below may change.
const CHANGED: [&str; 21] = [
    "#",
    "ssl_certificate",
    "ssl_protocols",
    "ssl_session_",
    "ssl_ecdh_curve",
    "ssl_ciphers",
    "ssl_prefer_server_ciphers",
    "keepalive_timeout",
    "ssl-default-bind-options",
    "tune.ssl.",
    "timeout http-keep-alive",
    "option httpclose",
    "bind ",
    "ssl.",
    "\"MinProtocol\"",
    "\"Options\"",
    "\"CipherString\"",
    "server.feature-flags",
    "server.max-keep-alive",
    "SSL",
    "KeepAlive",
];

fn settings() -> Vec<Vec<Setting>> {
    let some = || vec![Setting::AlsoTls13, Setting::Tickets(true), Setting::SessionCache(SessionCache::Shared)];
    let certificate = || vec![Setting::Certificate(CertificateKind::P256), Setting::Group(Group::X25519)];
    let second = Setting::AlsoCertificate(CertificateFile::example(CertificateKind::P256));
    let suites = Setting::Ciphers("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256");
    let kept = vec![second, Setting::KeepAlive(75), suites, Setting::SessionTimeout(86_400)];
    vec![[some(), certificate()].concat(), some(), certificate(), vec![Setting::Tickets(false)], kept]
}

/// What the names in the configurations mean. Answers the directory.
fn tls_files(place: &Place) -> PathBuf {
    let at = place.path().join("files");
    let tls = at.join("tls");
    for directory in [at.join("www"), at.join("scgicache"), tls.clone()] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(at.join("htpasswd"), "x:{PLAIN}x\n").unwrap();
    for (kind, name) in [(CertificateKind::Rsa2048, "rsa"), (CertificateKind::P256, "ec")] {
        let files = certificates::create(kind, &at).unwrap();
        let [chain, key] = [&files.chain, &files.key].map(|path| fs::read(path).unwrap());
        fs::write(tls.join(format!("{name}.pem")), &chain).unwrap();
        fs::write(tls.join(format!("{name}.key")), &key).unwrap();
        fs::copy(&files.ca, tls.join("ca.pem")).unwrap();
        fs::write(tls.join("both.pem"), [chain, key].concat()).unwrap();
    }
    fs::copy(tls.join("rsa.pem"), tls.join("chain.pem")).unwrap();
    fs::copy(tls.join("rsa.key"), tls.join("leaf.key")).unwrap();
    at
}

/// The statements of a text that no setting changes, without blanks.
fn unchanged(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes).replace("\\\n", " ");
    // The comments of remedies.
    let text: String = text.lines().map(|line| format!("{}\n", line.split("# openssl").next().unwrap())).collect();
    let statements = text.split_inclusive(['\n', ';', '{', '}']).map(str::trim);
    let kept = statements.filter(|of| !of.is_empty() && !CHANGED.iter().any(|start| of.starts_with(start)));
    kept.map(str::to_owned).collect()
}

/// A configuration as it stands in the repository, with the names of the test's directory.
fn filled(from: &Path, site: &Path) -> Vec<u8> {
    let bytes = fs::read(from).unwrap();
    let mut filled = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some(at) = rest.windows(3).position(|three| three == b"$S/") {
        filled.extend([&rest[..at], site.to_str().unwrap().as_bytes()].concat());
        rest = &rest[at + 2..];
    }
    [filled, rest.to_owned()].concat()
}

/// The files of a configuration below `from`, each with its place below `to`: a file, or a directory with `main.conf`.
fn files_of(from: &Path, to: &Path, site: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    if from.is_file() {
        return vec![(to.to_owned(), filled(from, site))];
    }
    let entries = fs::read_dir(from).unwrap().map(|entry| entry.unwrap().file_name());
    entries.flat_map(|name| files_of(&from.join(&name), &to.join(&name), site)).collect()
}

fn each_is_patched(server: ServerName, directory: &str) {
    let place = Place::new();
    let at = tls_files(&place);
    let mut count = 0;
    for entry in fs::read_dir(Path::new(CONFIGURATIONS).join(directory)).unwrap() {
        let from = entry.unwrap().path();
        let to = place.path().join(from.file_name().unwrap());
        let originals = files_of(&from, &to, &at);
        let file = if from.is_dir() { to.join("main.conf") } else { to };
        for (number, settings) in settings().into_iter().enumerate() {
            for (path, bytes) in &originals {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
            let what = format!("{directory} {} with {settings:?}", from.file_name().unwrap().display());
            let patch = match patch(&file, server, None, &settings) {
                Err(error) if format!("{error:#}").contains("no line that these") => continue,
                patch => patch.unwrap_or_else(|error| panic!("{what}: {error:#}")),
            };
            let is_tested = if rustix::process::geteuid().is_root() { "accepts them" } else { "was not run" };
            assert!(patch.tried.contains(is_tested), "{what}: {}", patch.tried);
            let patch_file = place.path().join("tls.patch");
            fs::write(&patch_file, &patch.bytes).unwrap();
            let mut command = Command::new("patch");
            command.args(["--batch", "--no-backup-if-mismatch", "-p1", "-d", "/", "-i"]).arg(&patch_file);
            assert!(command.stdout(Stdio::null()).status().unwrap().success(), "{what}");
            let mut lines = 0;
            for (path, original) in &originals {
                let patched = fs::read(path).unwrap();
                assert_eq!(unchanged(&patched), unchanged(original), "{what}: {}", String::from_utf8_lossy(&patched));
                lines += usize::from(patched != *original);
            }
            Installed::read(&file, None).unwrap();
            let is_accepted = patch.tried.contains("accepts them");
            let name = from.file_name().unwrap().display();
            println!("{directory}/{name}, settings {number}: files changed {lines}, accepted {is_accepted}");
            count += 1;
        }
    }
    assert!(count > 2, "{count}");
}

#[test]
fn configurations_of_nginx_are_patched() {
    each_is_patched(ServerName::Nginx, "nginx");
}

#[test]
fn configurations_of_haproxy_are_patched() {
    each_is_patched(ServerName::Haproxy, "haproxy");
}

#[test]
fn configurations_of_apache_are_patched() {
    each_is_patched(ServerName::ApacheEvent, "apache");
}

#[test]
fn configurations_of_lighttpd_are_patched() {
    each_is_patched(ServerName::Lighttpd, "lighttpd");
}

/// What Apache and HAProxy decide as they read it is read as they decide it.
#[test]
fn branches_are_those_that_the_servers_take() {
    let read = |directory: &str, name: &str| {
        let path = Path::new(CONFIGURATIONS).join(directory).join(name);
        Installed::read(&path, None).unwrap().site.facts(None)
    };
    let apache = read("apache", "conditions.conf");
    assert_eq!(apache.protocols, ["TLSv1", "TLSv1.1", "TLSv1.2"]);
    assert_eq!((apache.tickets, apache.stapling, apache.keep_alive[0].as_str()), (false, false, "5s"));
    let haproxy = read("haproxy", "conditions.cfg");
    assert_eq!((haproxy.protocols.len(), haproxy.tickets, haproxy.certificates.len()), (0, false, 1));
}
