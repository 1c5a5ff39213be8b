//! A small HTTPS server on Go's crypto/tls: its tickets begin with no key name, so that nobody can learn who holds a
//! session.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;
use tlsdyno::model::CertificateKind;
use tlsdyno::servers::certificates;

/// Built once; Go's own cache makes later runs short.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    // Cargo has no such directory for an example: that one takes its own.
    let beside_us = || std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let target = option_env!("CARGO_TARGET_TMPDIR").map_or_else(beside_us, PathBuf::from);
    let program = target.join("go_https_server");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traffic/stacks/go/main.go");
    let status = Command::new("go")
        .args(["build", "-o"])
        .args([&program, &source])
        .env("GOCACHE", target.join("go-cache"))
        .env("GOTOOLCHAIN", "local")
        .status()
        .expect("this test needs Go: install the package golang-go");
    assert!(status.success(), "go build failed");
    program
});

/// The program: `-certificate FILE -key FILE -object FILE`, and where it listens with `-listen ADDRESS`.
pub fn program() -> &'static Path {
    &PROGRAM
}

/// A running one; ended with the test.
pub struct GoServer {
    pub address: SocketAddr,
    child: Child,
    _directory: TempDir,
}

impl GoServer {
    /// Starts one that answers with `content`; `log`: where to write a line about each request.
    pub fn start(content: &[u8], log: Option<&Path>) -> GoServer {
        let directory = tempfile::tempdir().unwrap();
        let files = certificates::create(CertificateKind::P256, directory.path()).unwrap();
        let object = directory.path().join("object");
        std::fs::write(&object, content).unwrap();
        let mut child = Command::new(program())
            .args([Path::new("-certificate"), &files.chain, Path::new("-key"), &files.key])
            .args([Path::new("-object"), &object])
            .args(log.iter().flat_map(|log| [Path::new("-log"), log]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().parse().expect("the Go server prints its address");
        GoServer { address, child, _directory: directory }
    }
}

impl Drop for GoServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
