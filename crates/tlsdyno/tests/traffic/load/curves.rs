//! `tlsdyno reuse`: curves over percent reuse, and a log laid over them.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use flate2::read::GzDecoder;
use rustls::ServerConfig;
use rustls::server::StoresServerSessions;
use rustls::version::TLS13;
use serde_json::Value;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::servers::{self, Instance, ServerSpec, ServerTls};

use super::super::stacks::rustls_server;
use super::{json, load, stderr, tlsdyno};
use crate::place::{Place, is_positive_or_null};

fn run(arguments: &[&str]) -> Output {
    tlsdyno().args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// A server with TLS and plain HTTP that logs its sessions.
fn start(place: &Place, kind: ServerName) -> Instance {
    servers::launch::set_own_executable(Path::new(env!("CARGO_BIN_EXE_tlsdyno")));
    fs::write(place.docroot().join("x"), [b'x'; 1024]).unwrap();
    let certificate = servers::certificates::create(CertificateKind::Rsa2048, place.path()).unwrap();
    let mut spec = ServerSpec::new(kind, place.docroot());
    spec.tls = Some(ServerTls::new(certificate));
    spec.log_sessions = true;
    servers::start(&spec, place.path()).unwrap()
}

/// A server of the same files in plain HTTP.
fn start_plain(place: &Place) -> Instance {
    let directory = place.path().join("plain");
    fs::create_dir(&directory).unwrap();
    servers::start(&ServerSpec::new(ServerName::Builtin, place.docroot()), &directory).unwrap()
}

#[test]
fn a_curve_by_both_axes_has_half_serving_points_and_a_log_on_it() {
    let place = Place::new();
    let (server, plain) = (start(&place, ServerName::Builtin), start_plain(&place));
    let (url, plain_url) = (format!("https://{}/x", server.address()), format!("http://{}/x", plain.address()));
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/semicomplete-access.log.gz");
    let report = place.path().join("report.html").display().to_string();
    let few = ["--levels", "0,90", "--duration", "3s", "--connections", "2", "--connections-max", "4"];
    let what = ["reuse", &url, "-k", "--by", "hits,connections", "--plain", &plain_url, "--report", &report];
    let output = run(&[&what[..], &few, &["--trace", log.to_str().unwrap(), "--json"]].concat());
    // 8: a level of a busy machine may have too few connections for its share.
    assert!(matches!(output.status.code(), Some(0 | 8)), "{}", stderr(&output));
    let found = json(&output);
    assert!(found["rounds"].as_u64().unwrap() >= 1 && found["connections"].as_array().unwrap().len() == 6);
    let curves = found["curves"].as_array().unwrap();
    for (curve, by) in curves.iter().zip(["hits", "connections"]) {
        assert_eq!(curve["by"], by);
        let levels = curve["levels"].as_array().unwrap();
        for (level, asked) in levels.iter().zip([0.0, 90.0]) {
            let achieved = level["achieved_percent"].as_f64().unwrap();
            // Of few connections a single one is some per cent.
            assert!((achieved - asked).abs() < 10.0, "{by}: {achieved} instead of {asked}");
            assert!(is_positive_or_null(&level["hits_per_second"]["value"]), "{level}");
        }
        // What reuse gains is judged on made-up records (`kinds/load/curve/summary.rs`).
        assert!(by != "hits" || curve["costs"]["full_handshake_ns"]["value"].is_f64(), "{curve}");
        let half = &curve["half_serving_point"];
        assert!(["between", "never", "at_first"].contains(&half["crossing"].as_str().unwrap()), "{half}");
        assert_eq!(half["percent_by_lines"]["value"].is_f64(), half["crossing"] == "between", "{half}");
    }
    assert!(curves[0]["theory"]["requests_per_handshake"]["value"].is_f64());
    assert_eq!(curves[1]["theory"], Value::Null, "that form is about hits");
    let of_log = &found["log_on_curve"];
    assert_eq!((&of_log["hits"], &of_log["is_renewed"]), (&10_000.into(), &true.into()), "{of_log}");
    assert!(found["answer"].as_str().unwrap().contains("with sessions of 300 s, reuses "), "{}", found["answer"]);
    let page = fs::read_to_string(&report).unwrap();
    assert!(page.contains("curve-hits") && page.contains("curve-connections") && page.contains("your log"));
    server.stop().unwrap();
    plain.stop().unwrap();
}

#[test]
fn a_curve_that_cannot_be_is_refused_before_anything_is_loaded() {
    let refuse = |arguments: &[&str], code: i32, word: &str| {
        let output = run(&[&["reuse", "https://127.0.0.1:1/", "--no-report"], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    };
    refuse(&["--levels", "50,0"], 2, "ascend");
    refuse(&["--levels", "150"], 2, "0 to 100");
    refuse(&["--by", "hits", "--levels", "33"], 2, "1.49 requests");
    refuse(&["--rate", "5", "--session-limit", "4"], 2, "--session-limit, --rate");
    refuse(&["--plain", "https://127.0.0.1:1/"], 2, "an http URL");
    refuse(&["--trace", "x"], 2, "--by hits");
    refuse(&["--by", "hits", "--trace", "/no/such.log"], 3, "/no/such.log");
    refuse(&[], 4, "not one request of \"0 % by connections\" succeeded");
    let output = run(&["reuse", "http://127.0.0.1/", "--no-report"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("plain http"), "{}", stderr(&output));
}

/// A server with TLS 1.3 and so many tickets in all, each of which can be used once.
fn config_of_few(tickets: usize) -> Arc<ServerConfig> {
    let mut config = rustls_server::config(false, &[&TLS13]);
    let few = FewSessions { sessions: Mutex::default(), left: AtomicUsize::new(tickets) };
    Arc::get_mut(&mut config).unwrap().session_storage = Arc::new(few);
    config
}

#[derive(Debug)]
struct FewSessions {
    sessions: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    left: AtomicUsize,
}

impl StoresServerSessions for FewSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let stored = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        if stored {
            self.sessions.lock().unwrap().insert(key, value);
        }
        stored
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions.lock().unwrap().get(key).cloned()
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions.lock().unwrap().remove(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// Each ticket is good once, and the server gives few: what was asked for and what came out differ, in either command.
#[test]
fn tickets_that_run_out_are_told_and_end_with_the_code_for_what_does_not_hold() {
    let few = || format!("https://{}/x", rustls_server::start(config_of_few(20), b"object", None));
    let output = load(&[&few(), "-k", "-c", "1", "--total-connections", "100", "--reuse", "50%", "--json"]);
    assert_eq!(output.status.code(), Some(8), "{}", stderr(&output));
    let measured = json(&output);
    assert_eq!(measured["handshakes"]["resumed_accepted"], 20, "{measured:#}");
    let warning = measured["warnings"][0].as_str().unwrap();
    assert!(warning.contains("20.0 % of the connections were resumed, not 50.0 %"), "{warning}");
    assert!(warning.contains("issued sessions for 21 only") && warning.contains("once"), "{warning}");
    let flags = "--by connections --levels 0,90 -d 2s -c 1 --connections-max 2 --no-report".split(' ');
    let output = run(&["reuse", &few(), "-k", "--json"].into_iter().chain(flags).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(8), "{}", stderr(&output));
    let warnings = json(&output)["warnings"].to_string();
    assert!(warnings.contains("90 % by connections") && warnings.contains("not 90.0 %"), "{warnings}");
}

/// Equation 1 of Mraz et al. by the server's log.
#[test]
fn percent_reuse_by_hits_is_that_of_the_servers_log() {
    let place = Place::new();
    let server = start(&place, ServerName::Nginx);
    let url = format!("https://{}/x", server.address());
    let mut before = server.session_counts().unwrap();
    for (hits, percent) in [("2", 50.0), ("10", 90.0), ("50", 98.0)] {
        let output = load(&[&url, "-k", "-c", "4", "-n", "2000", "--hits-per-handshake", hits, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let measured = json(&output);
        let client =
            100.0 * (1.0 - measured["handshakes"]["full"].as_f64().unwrap() / measured["hits"].as_f64().unwrap());
        let now = server.session_counts().unwrap();
        let full = (now.connections - now.resumed) - (before.connections - before.resumed);
        let by_log = 100.0 * (1.0 - full as f64 / (now.requests - before.requests) as f64);
        assert!((client - by_log).abs() < 0.2 && (by_log - percent).abs() < 0.5, "{by_log}, by the client {client}");
        before = now;
    }
    server.stop().unwrap();
}

/// What is laid over the curve is what a replay of the log does.
#[test]
fn a_log_that_is_replayed_reuses_as_much_as_is_told_of_it() {
    let place = Place::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/semicomplete-access.log.gz");
    let mut log = String::new();
    GzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut log).unwrap();
    // Sizes and statuses have nothing to do with sessions: each line asks for one small file.
    let small = |line: &str| {
        let parts: Vec<&str> = line.splitn(3, '"').collect();
        format!("{}\"GET /x HTTP/1.1\" 200 1024\n", parts[0])
    };
    let small: String = log.lines().map(small).collect();
    let path = place.path().join("access.log").display().to_string();
    fs::write(&path, small).unwrap();
    let server = start(&place, ServerName::Builtin);
    let url = format!("https://{}/", server.address());
    let scan = json(&run(&["trace", "show", &path, "--json"]));
    let row = scan["reuse"]["rows"].as_array().unwrap().iter().find(|row| row["lifetime_s"] == 300).unwrap();
    let told = row["percent_renewed"].as_f64().unwrap();
    let output = load(&[&url, "-k", "--trace", &path, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let measured = json(&output);
    assert_eq!(measured["hits"], 10_000, "{}", measured["errors"]);
    let replayed = 100.0 * (1.0 - measured["handshakes"]["full"].as_f64().unwrap() / 10_000.0);
    assert!((replayed - told).abs() < 0.2, "{replayed} % replayed, {told} % told");
    server.stop().unwrap();
}
