//! `openssl s_server` and `openssl s_client` as the two ends, each with or without an injection.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tlsdyno::native::Injection;

use crate::build;

/// Which OpenSSL a program is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Series {
    /// The system's.
    System,
    /// The one that `TLSDYNO_OPENSSL_PREFIX` names; the system's where it is not set.
    UnderTest,
}

/// The `openssl` tool of a series.
fn openssl(series: Series) -> PathBuf {
    match build::openssl_prefix() {
        Some(prefix) if series == Series::UnderTest => prefix.join("bin/openssl"),
        _ => PathBuf::from("openssl"),
    }
}

/// Major and minor version of the OpenSSL under test.
pub fn version_under_test() -> (u32, u32) {
    let said = build::run(Command::new(openssl(Series::UnderTest)).arg("version"));
    let mut numbers = said.strip_prefix("OpenSSL ").expect("OpenSSL").split('.').map(|number| number.parse());
    let mut next = || numbers.next().expect("a version").expect("a number");
    (next(), next())
}

/// A certificate and its key in PEM files, made once by the system's `openssl`.
pub fn certificate(kind: &str) -> (&'static Path, &'static Path) {
    static RSA: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    static EC: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    static ED25519: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    let (cell, parameters): (_, &[&str]) = match kind {
        "rsa" => (&RSA, &["-newkey", "rsa:2048"]),
        "ec" => (&EC, &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]),
        "ed25519" => (&ED25519, &["-newkey", "ed25519"]),
        other => panic!("no certificate of kind {other}"),
    };
    let (certificate, key) = cell.get_or_init(|| {
        let base = build::out().join(format!("{kind}-{}", std::process::id()));
        let (certificate, key) = (base.with_extension("crt"), base.with_extension("key"));
        build::run(
            Command::new("openssl")
                .args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
                .args(parameters)
                .arg("-out")
                .arg(&certificate)
                .arg("-keyout")
                .arg(&key)
                .env_remove("OPENSSL_CONF"),
        );
        (certificate, key)
    });
    (certificate, key)
}

/// A running `openssl s_server -www`; ends with this value.
pub struct Server {
    process: Child,
    /// `127.0.0.1:PORT`
    pub address: String,
}

impl Server {
    /// Starts a server of the series under test; `Err` holds what it printed if it ends instead of listening.
    pub fn start(injection: Option<&Injection>, certificate_kind: &str, arguments: &[&str]) -> Result<Server, String> {
        let (certificate, key) = certificate(certificate_kind);
        let mut process = Command::new(openssl(Series::UnderTest))
            .args(["s_server", "-accept", "127.0.0.1:0", "-www", "-cert"])
            .arg(certificate)
            .arg("-key")
            .arg(key)
            .args(arguments)
            .env_remove("OPENSSL_CONF")
            .envs(injection.map(|injection| injection.let_children_inherit().unwrap()).unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl runs");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let accepting =
            lines.by_ref().map_while(Result::ok).find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned));
        // Nobody reads on; the server must not wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        match accepting {
            Some(address) => Ok(Server { process, address }),
            None => {
                let output = process.wait_with_output().expect("it ended");
                Err(String::from_utf8_lossy(&output.stderr).into_owned())
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if it has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Everything `openssl s_client` printed for one request of `/`.
pub struct Answer(pub String);

impl Answer {
    /// The whole page arrived.
    pub fn is_complete(&self) -> bool {
        self.0.contains(" 200 ") && self.0.to_lowercase().contains("</html>")
    }

    /// `New, Cipher is SUITE` or `Reused, Cipher is SUITE`. The version that stands between the two is the one the
    /// suite dates from.
    pub fn negotiated(&self) -> String {
        let line = self.0.lines().find(|line| line.contains(", Cipher is ")).unwrap_or("nothing");
        let kind = line.split(',').next().unwrap_or_default();
        let suite = line.rsplit(' ').next().unwrap_or_default();
        format!("{kind}, Cipher is {suite}")
    }
}

/// One connection of `openssl s_client` and one request; a client that hangs ends by `timeout` and has no complete
/// answer.
pub fn request(series: Series, address: &str, injection: Option<&Injection>, arguments: &[&str]) -> Answer {
    let mut process = Command::new("timeout")
        .arg("20")
        .arg(openssl(series))
        .args(["s_client", "-ign_eof", "-connect", address])
        .args(arguments)
        .env_remove("OPENSSL_CONF")
        .envs(injection.map(|injection| injection.let_children_inherit().unwrap()).unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl runs");
    // Fails if the client has given up already; what it printed then says so.
    let _ = process.stdin.take().expect("piped").write_all(b"GET / HTTP/1.0\r\n\r\n");
    let output = process.wait_with_output().expect("it ends");
    Answer(format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}
