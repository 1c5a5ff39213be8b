//! Client certificates, before servers that insist on them, and several tickets of TLS 1.3.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tlsdyno::servers::programs;

use super::s_server::{P256, P384, RSA, SMALL_RSA, SServer, self_signed};
use super::{Running, json, load, refuse, stderr};
use crate::place::eventually;

fn with_certificate(url: &str, version: &str, certificate: &Path, key: &Path) -> Output {
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let flags = ["-k", "--json", "--tls", version, "--reuse", "50%", "--total-connections", "8", "--connections", "1"];
    load(&[&[url], &flags[..], &["--client-cert", certificate, "--client-key", key]].concat())
}

#[test]
fn openssl_gets_the_certificate_that_it_insists_on() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    self_signed(directory, "server", &P256);
    for (name, kind) in [("p256", &P256[..]), ("p384", &P384), ("rsa", &RSA)] {
        let (certificate, key) = self_signed(directory, name, kind);
        let ca = certificate.to_str().unwrap();
        let server = SServer::start(directory, "server", &["-Verify", "1", "-verify_return_error", "-CAfile", ca]);
        let url = format!("https://{}/", server.address);
        for version in ["1.2", "1.3"] {
            let output = with_certificate(&url, version, &certificate, &key);
            assert_eq!(output.status.code(), Some(0), "{name} {version}: {}", stderr(&output));
            let measured = json(&output);
            assert_eq!((&measured["hits"], &measured["handshakes"]["full"]), (&8.into(), &4.into()), "{measured}");
            let without = load(&[&url, "-k", "--tls", version, "--close", "--total-connections", "2"]);
            assert_ne!(without.status.code(), Some(0), "{name} {version}");
        }
    }
}

#[test]
fn nginx_takes_the_certificate_and_names_its_subject() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    self_signed(place, "server", &P256);
    let (certificate, key) = self_signed(place, "client", &RSA);
    let (_, other_key) = self_signed(place, "other", &RSA);
    let ca = format!("ssl_verify_client on; ssl_client_certificate {};", certificate.display());
    let nginx = Nginx::start(place, &ca);
    let url = format!("https://127.0.0.1:{}/", nginx.port);
    for version in ["1.2", "1.3"] {
        let output = with_certificate(&url, version, &certificate, &key);
        assert_eq!(output.status.code(), Some(0), "{version}: {}", stderr(&output));
        let without = load(&[&url, "-k", "--tls", version, "--close", "--total-connections", "2", "--json"]);
        assert_eq!(json(&without)["statuses"]["400"], 2, "without a certificate nginx answers 400");
    }
    let log = fs::read_to_string(place.join("log")).unwrap();
    let verified: Vec<&str> = log.lines().filter(|line| line.starts_with("SUCCESS")).collect();
    assert_eq!(verified.len(), 16, "{log}");
    assert!(verified.iter().all(|line| line.ends_with("CN=client")), "{log}");

    let (certificate, other_key) = (certificate.to_str().unwrap(), other_key.to_str().unwrap());
    refuse(&[&url, "--client-cert", certificate], 2, &["--client-key"]);
    refuse(&[&url, "-k", "--client-cert", certificate, "--client-key", other_key], 2, &["does not belong"]);
    refuse(&["http://127.0.0.1/", "--client-cert", certificate, "--client-key", other_key], 2, &["plain http"]);
}

/// Makes `NAME.pem` and `NAME.key` in `directory`, self-signed for `server.example`, up to this year.
fn own_certificate(directory: &Path, name: &str, until_year: i32) -> String {
    let mut params = rcgen::CertificateParams::new(vec!["server.example".to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(until_year, 1, 1);
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate = directory.join(format!("{name}.pem"));
    fs::write(&certificate, params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    certificate.display().to_string()
}

/// The commonest certificates of staging servers, each with what to do about it.
#[test]
fn what_is_wrong_with_a_certificate_is_told_with_its_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let stranger = own_certificate(place, "stranger", 2090);
    let refused = |port: u16, ca: &str, words: &[&str]| {
        let connect_to = format!("127.0.0.1:{port}");
        let url = ["https://server.example/", "--connect-to", &connect_to, "--i-may-load-this", "server.example"];
        refuse(&[&url[..], &["--ca-file", ca, "-c", "1", "-n", "1"]].concat(), 4, words);
    };
    let with = |name: &str, flags: &[&str]| SServer::start(place, name, flags);
    let own = own_certificate(place, "own", 2090);
    let server = with("own", &[]);
    refused(server.address.port(), &stranger, &["is self-signed", "give it as --ca-file", "--insecure"]);
    let by_address = format!("https://{}/", server.address);
    let named = ["not valid for the name `127.0.0.1`", "but for server.example", "--sni NAME"];
    refuse(&[&by_address, "--ca-file", &own, "-c", "1", "-n", "1"], 4, &named);
    let expired = own_certificate(place, "expired", 2021);
    let server = with("expired", &[]);
    refused(server.address.port(), &expired, &["it expired", "days ago", "renew it"]);
    let server = with("own", &["-Verify", "1", "-verify_return_error", "-CAfile", &stranger]);
    for version in ["1.2", "1.3"] {
        let url = format!("https://{}/", server.address);
        let flags = ["-k", "-c", "1", "-n", "1", "--tls", version];
        refuse(&[&[url.as_str()], &flags[..]].concat(), 4, &["asked for a client certificate", "--client-cert FILE"]);
    }

    self_signed(place, "server", &P256);
    let url = |nginx: &Nginx| format!("https://127.0.0.1:{}/", nginx.port);
    let nginx = Nginx::start(place, "ssl_reject_handshake on;");
    let nameless = ["unrecognized_name", "No server name was sent", "--sni NAME"];
    refuse(&[&url(&nginx), "-k", "-c", "1", "-n", "1"], 4, &nameless);
    drop(nginx);
    let nginx = Nginx::start(place, &format!("ssl_verify_client on; ssl_client_certificate {stranger};"));
    refuse(&[&url(&nginx), "-k", "-c", "1", "-n", "1"], 4, &["status 400", "--client-cert"]);
}

/// A client that verifies the server refuses a key that proves nothing, in either version, unless told to take it.
#[test]
fn small_rsa_keys_are_refused_by_who_verifies() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, _) = self_signed(directory.path(), "localhost", &SMALL_RSA);
    let ca = certificate.to_str().unwrap();
    let server = SServer::start(directory.path(), "localhost", &["-cipher", "DEFAULT@SECLEVEL=0"]);
    let url = format!("https://localhost:{}/", server.address.port());
    for version in ["1.2", "1.3"] {
        let all = [&url, "--tls", version, "--close", "--total-connections", "2", "--connections", "1"];
        refuse(&[&all[..], &["--ca-file", ca]].concat(), 4, &["RSA key has 1024 bits", "--small-rsa-keys"]);
        for allowed in [&["--ca-file", ca, "--small-rsa-keys"][..], &["-k"]] {
            let output = load(&[&all[..], allowed].concat());
            assert_eq!(output.status.code(), Some(0), "{version} {allowed:?}: {}", stderr(&output));
        }
    }
    refuse(&["https://192.0.2.1/", "--i-may-load-this", "192.0.2.1", "--small-rsa-keys"], 2, &["2048 bits or more"]);
}

/// One nginx process with the certificate `server` of its place.
pub struct Nginx {
    _process: Running,
    pub port: u16,
}

impl Nginx {
    /// With these further directives in its server.
    pub fn start(place: &Path, tls: &str) -> Nginx {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "daemon off; master_process off; pid {0}/pid;\nevents {{}}\nhttp {{\n\
             log_format verified '$ssl_client_verify $ssl_client_s_dn'; access_log {0}/log verified;\n\
             client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u;\n\
             scgi_temp_path {0}/s;\n\
             server {{ listen 127.0.0.1:{port} ssl http2;\n\
             ssl_certificate {0}/server.pem; ssl_certificate_key {0}/server.key;\n\
             ssl_protocols TLSv1.2 TLSv1.3; {tls} location / {{ return 200 x; }} }} }}\n",
            place.display()
        );
        let path = place.join("nginx.conf");
        fs::write(&path, config).unwrap();
        let mut command = Command::new(programs::find("nginx").expect("nginx is installed"));
        command.args(["-e", "stderr", "-c"]).arg(&path).stdin(Stdio::null()).stderr(Stdio::null());
        let process = Running(command.spawn().unwrap());
        eventually("nginx starts", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Nginx { _process: process, port }
    }
}

/// With its guard against replays on, OpenSSL takes each ticket once: what is accepted was not offered before.
#[test]
fn each_of_several_tickets_is_used_once() {
    let directory = tempfile::tempdir().unwrap();
    self_signed(directory.path(), "server", &P256);
    // The guard forgets a session in OpenSSL's own cache when it is resumed.
    let tls = "ssl_early_data on; ssl_session_cache builtin:1000; ssl_conf_command Options AntiReplay; \
               ssl_conf_command NumTickets 8;";
    let nginx = Nginx::start(directory.path(), tls);
    let url = format!("https://127.0.0.1:{}/", nginx.port);
    let flags = ["-k", "--json", "--users", "1", "--per-user", "8", "--connections", "8", "--close"];
    for _ in 0..10 {
        let output = load(&[&[url.as_str()], &flags[..], &["--reuse", "always", "--total-connections", "9"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let handshakes = &json(&output)["handshakes"];
        assert_eq!((&handshakes["full"], &handshakes["resumed_accepted"]), (&1.into(), &8.into()), "{handshakes}");
    }
}

/// nginx answers early data and closes before the rest of the handshake has come: what it sent counts all the same.
#[test]
fn requests_travel_with_the_hello_and_their_answers_count() {
    let directory = tempfile::tempdir().unwrap();
    self_signed(directory.path(), "server", &P256);
    let nginx = Nginx::start(directory.path(), "ssl_early_data on; ssl_conf_command Options -AntiReplay;");
    let url = format!("https://127.0.0.1:{}/", nginx.port);
    let flags = ["-k", "--json", "--connections", "16", "--total-connections", "300", "--close", "--early-data"];
    let output = load(&[&[url.as_str()], &flags[..], &["--reuse", "always"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result = json(&output);
    let handshakes = &result["handshakes"];
    assert_eq!((&result["hits"], &handshakes["resumed_accepted"]), (&300.into(), &284.into()), "{handshakes}");
    assert_eq!((&handshakes["early_offered"], &handshakes["early_accepted"]), (&284.into(), &284.into()));
    refuse(&[&url, "--early-data"], 2, &["--reuse always"]);
    refuse(&[&url, "--early-data", "--reuse", "always", "--tls", "1.2"], 2, &["leave out --tls 1.2"]);

    let without = tempfile::tempdir().unwrap();
    self_signed(without.path(), "server", &P256);
    let nginx = Nginx::start(without.path(), "");
    let url = format!("https://127.0.0.1:{}/", nginx.port);
    let output = load(&[&[url.as_str()], &flags[..], &["--reuse", "always"]].concat());
    assert_eq!(output.status.code(), Some(8), "{}", stderr(&output));
    let warning = json(&output)["warnings"][0].to_string();
    assert!(warning.contains("none of 284 sessions") && warning.contains("ssl_early_data on"), "{warning}");
}
