//! `openssl s_server` as a server under load: it can ask for certificates and hand out any number of tickets.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Running;

/// Ends when it is dropped. It serves one connection at a time.
pub struct SServer {
    _process: Running,
    pub address: SocketAddr,
}

impl SServer {
    /// Serves a page over TLS with the certificate `name` of `directory` (see [`self_signed`]).
    pub fn start(directory: &Path, name: &str, flags: &[&str]) -> SServer {
        let mut command = Command::new("openssl");
        command.args(["s_server", "-accept", "127.0.0.1:0", "-www"]).args(flags);
        command.arg("-cert").arg(directory.join(format!("{name}.pem")));
        command.arg("-key").arg(directory.join(format!("{name}.key")));
        // Its standard input stays open, or it would end.
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let accepts = lines.find_map(|line| line.unwrap().strip_prefix("ACCEPT ").map(str::to_owned));
        // Nobody reads its further output; it must not block on it.
        std::thread::spawn(move || lines.for_each(drop));
        SServer { _process: Running(process), address: accepts.unwrap().parse().unwrap() }
    }
}

/// Makes `NAME.pem` and `NAME.key` in `directory`; answers their paths. `key`: as `openssl req -newkey` takes it.
pub fn self_signed(directory: &Path, name: &str, key: &[&str]) -> (PathBuf, PathBuf) {
    let (certificate, private) = (directory.join(format!("{name}.pem")), directory.join(format!("{name}.key")));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "30", "-subj", &format!("/CN={name}"), "-newkey"])
        .args(key)
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&private)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(fs::metadata(&private).unwrap().len() > 0);
    (certificate, private)
}

pub const P256: [&str; 3] = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
pub const P384: [&str; 3] = ["ec", "-pkeyopt", "ec_paramgen_curve:P-384"];
pub const RSA: [&str; 1] = ["rsa:2048"];
pub const SMALL_RSA: [&str; 3] = ["rsa:1024", "-addext", "subjectAltName=DNS:localhost"];
