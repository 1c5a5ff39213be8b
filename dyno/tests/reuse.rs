//! The share of resumed connections that is asked for is the share that nginx sees (`$ssl_session_reused`), for each kind of session.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tlsdyno::servers::{self, CertificateKind, Instance, ServerKind, ServerSpec, ServerTls, SessionCache};
use tlsdyno_tls::Version;

const CONNECTIONS: u64 = 10_000;
/// Percentage points.
const TOLERANCE: f64 = 0.5;

struct Site {
    directory: TempDir,
    server: Instance,
}

fn nginx(version: Version, tickets: bool, session_cache: bool) -> Site {
    servers::launch::set_own_executable(Path::new(env!("CARGO_BIN_EXE_tlsdyno")));
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let docroot = directory.path().join("docroot");
    fs::create_dir(&docroot).unwrap();
    fs::set_permissions(&docroot, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(docroot.join("1k.bin"), [b'x'; 1024]).unwrap();
    let certificate = servers::certificates::create(CertificateKind::P256, directory.path()).unwrap();
    let mut spec = ServerSpec::new(ServerKind::Nginx, docroot);
    let session_cache = if session_cache { SessionCache::Shared } else { SessionCache::Off };
    spec.tls = Some(ServerTls { versions: vec![version], tickets, session_cache, ..ServerTls::new(certificate) });
    spec.log_sessions = true;
    let server = servers::start(&spec, directory.path()).unwrap();
    Site { directory, server }
}

/// Runs `tlsdyno load` against the site; answers its exit code and its JSON.
fn load(site: &Site, arguments: &[&str]) -> (i32, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_tlsdyno"))
        .args(["load", &format!("https://{}/1k.bin", site.server.address()), "--effort", "floor", "--json"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let json = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), json)
}

fn assert_share_is_met(version: Version, tickets: bool, session_cache: bool, percent: f64) {
    let site = nginx(version, tickets, session_cache);
    let (connections, reuse) = (CONNECTIONS.to_string(), format!("{percent}%"));
    let mut arguments = vec!["--total-connections", &connections, "--reuse", &reuse];
    if !tickets {
        arguments.push("--no-tickets");
    }
    let (code, json) = load(&site, &arguments);
    assert_eq!(code, 0, "{json:#}");
    assert_eq!(json["hits"], CONNECTIONS);
    assert_eq!(json["connections"], CONNECTIONS);
    assert_eq!(json["handshakes"]["resumed_intended"], json["handshakes"]["resumed_accepted"]);

    let seen = site.server.session_counts().unwrap();
    assert_eq!((seen.connections, seen.requests), (CONNECTIONS, CONNECTIONS));
    assert_eq!(json["handshakes"]["resumed_accepted"], seen.resumed, "client and server disagree");
    let achieved = 100.0 * seen.resumed as f64 / seen.connections as f64;
    assert!((achieved - percent).abs() <= TOLERANCE, "asked for {percent} %, achieved {achieved} %");
    site.server.stop().unwrap();
    drop(site.directory);
}

#[test]
fn tls13_tickets() {
    assert_share_is_met(Version::Tls13, true, false, 37.5);
}

#[test]
fn tls12_tickets() {
    assert_share_is_met(Version::Tls12, true, false, 50.0);
}

#[test]
fn tls12_session_ids() {
    assert_share_is_met(Version::Tls12, false, true, 90.0);
}

#[test]
fn all_but_the_first_can_resume() {
    for version in [Version::Tls12, Version::Tls13] {
        let site = nginx(version, true, false);
        let (code, json) = load(&site, &["--total-connections", "1000", "--reuse", "100%"]);
        assert_eq!(code, 0, "{json:#}");
        assert_eq!((&json["handshakes"]["full"], &json["handshakes"]["resumed_accepted"]), (&1.into(), &999.into()));
    }
}

#[test]
fn a_server_without_sessions_is_named_as_the_cause() {
    let site = nginx(Version::Tls12, false, false);
    let (code, json) = load(&site, &["--total-connections", "500", "--reuse", "50%"]);
    assert_eq!(code, 8, "{json:#}");
    assert_eq!((&json["hits"], &json["handshakes"]["resumed_accepted"]), (&500.into(), &0.into()));
    let warning = json["warnings"][0].as_str().unwrap();
    assert!(warning.contains("50.0 %") && warning.contains("ssl_session_cache"), "{warning}");
}
