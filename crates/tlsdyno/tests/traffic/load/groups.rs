//! Post-quantum groups against Go, and against servers without them.

use std::process::Command;

use super::s_server::{P256, SServer, self_signed};
use super::{json, load, refuse, stderr};
use crate::stacks::go_server::GoServer;

/// 200 connections, every second one resumed.
const HALF: [&str; 5] = ["--total-connections", "200", "--reuse", "50%", "--json"];

/// Whether Go has the hybrid group of this name: Debian 13's 1.24 has one, 1.26 all three.
fn go_has(name: &str) -> bool {
    let output = Command::new("go").args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local").output().unwrap();
    let version = String::from_utf8(output.stdout).unwrap();
    let minor: u32 = version.trim().split('.').nth(1).and_then(|minor| minor.parse().ok()).expect(&version);
    minor >= if name == "X25519MLKEM768" { 24 } else { 26 }
}

#[test]
fn go_agrees_on_every_hybrid_that_it_has_at_every_effort() {
    let server = GoServer::start(b"x", None);
    let url = format!("https://{}/", server.address);
    for group in ["X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024"] {
        if !go_has(group) {
            refuse(&[&url, "--group", group], 4, &["none of the groups"]);
            continue;
        }
        for effort in ["lean", "floor"] {
            let output = load(&[&[&url, "--effort", effort, "--group", group], &HALF[..]].concat());
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            let summary = json(&output);
            assert_eq!(summary["negotiated"], json!({ format!("1.3 TLS_AES_128_GCM_SHA256 {group}"): 200 }));
            assert_eq!(summary["handshakes"]["resumed_accepted"], 100);
        }
    }
}

#[test]
fn servers_without_the_group_take_the_curve_beside_it_or_are_diagnosed() {
    let directory = tempfile::tempdir().unwrap();
    self_signed(directory.path(), "server", &P256);
    let server = SServer::start(directory.path(), "server", &["-groups", "X25519:P-384"]);
    let url = format!("https://{}/", server.address);
    for (groups, chosen, retried) in [
        ("X25519MLKEM768,X25519,P-256,P-384", "X25519", 0),
        ("X25519MLKEM768,P-384", "P-384", 0),
        ("X25519MLKEM768,P-256,P-384", "P-384", 3),
    ] {
        let once = ["--group", groups, "--connections", "1", "--total-connections", "3", "--json"];
        let output = load(&[&[&url, "-k"], &once[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let summary = json(&output);
        assert_eq!(summary["negotiated"], json!({ format!("1.3 TLS_AES_128_GCM_SHA256 {chosen}"): 3 }));
        assert_eq!(summary["handshakes"]["retried_count"], retried);
    }
    let alone = [&url, "-k", "--group", "X25519MLKEM768", "--connections", "1", "--total-connections", "3"];
    refuse(&alone, 4, &["handshake_failure", "none of the groups", "--group X25519MLKEM768,X25519"]);
}

/// With TLS 1.2 a server looks for the curve of its certificate among the client's groups.
#[test]
fn p_521_is_taken_where_it_is_asked_for_and_of_certificates_of_tls_1_2() {
    let directory = tempfile::tempdir().unwrap();
    self_signed(directory.path(), "server", &["ec", "-pkeyopt", "ec_paramgen_curve:P-521"]);
    let server = SServer::start(directory.path(), "server", &["-groups", "P-521:X25519"]);
    let url = format!("https://{}/", server.address);
    // With TLS 1.2 no group is told.
    let cases = [
        ("1.2", &[][..], "1.2 ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("1.2", &["--group", "P-521"], "1.2 ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("1.3", &["--group", "P-521"], "1.3 TLS_AES_128_GCM_SHA256 P-521"),
    ];
    for (version, flags, negotiated) in cases {
        let count = ["-k", "--connections", "1", "--total-connections", "4", "--reuse", "50%", "--json"];
        let output = load(&[&[&url[..]], &count[..], &["--tls", version], flags].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let summary = json(&output);
        assert_eq!(summary["negotiated"].as_object().unwrap().keys().next().unwrap(), negotiated);
        assert_eq!(summary["handshakes"]["full"], 2, "{summary}");
    }
}

#[test]
fn groups_that_cannot_be_offered_are_refused_with_the_remedy() {
    let url = "https://127.0.0.1:1/";
    let all = "X25519MLKEM768, SecP256r1MLKEM768, SecP384r1MLKEM1024, X25519, P-256, P-384, P-521";
    refuse(&[url, "-k", "--group", "X25519KYBER768"], 2, &["unknown group `X25519KYBER768`", all]);
    refuse(
        &[url, "-k", "--group", "x25519mlkem768", "--tls", "1.2"],
        2,
        &["belongs to TLS 1.3", "leave the group out"],
    );
}
