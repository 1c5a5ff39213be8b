//! HTTP/2: each driver switches it on, the preflight and the load speak it, and who lacks it is refused in words.

use std::fs;
use std::sync::Arc;

use tlsdyno::exchange::{Answer, Exchange, TIME_LIMIT, get};
use tlsdyno::model::{CertificateKind, ServerName, Tls};
use tlsdyno::run::credentials::Credentials;
use tlsdyno::servers::{DRIVERS, Instance, ServerSpec};
use tlsdyno_tls::{Config, Effort, Settings};

use crate::place::{Place, at_once, measured};

const BODY_BYTES: usize = 100_000;

/// Two requests on one connection.
fn ask_twice(server: &Instance, config: Option<&Arc<Config>>, prior_knowledge: bool) -> Answer {
    let request = get("/object", "", "localhost").to_vec();
    // A server of HTTP/1.1 would close behind this.
    let request = String::from_utf8(request).unwrap().replace("Connection: close\r\n", "");
    let exchange = Exchange::connect(server.address(), TIME_LIMIT).unwrap().with_prior_knowledge(prior_knowledge);
    let mut exchange = exchange.asking(config, None, request.as_bytes(), b"").unwrap();
    exchange.answered().unwrap();
    exchange.again().unwrap();
    let answer = exchange.end().unwrap();
    assert_eq!((answer.status, answer.body_bytes), (200, BODY_BYTES as u64));
    answer
}

#[test]
fn each_speaks_it_over_tls_by_choice_and_without_tls_to_who_knows() {
    let able = DRIVERS.iter().filter(|driver| driver.capabilities.is_some_and(|able| able.http2));
    let able: Vec<ServerName> = able.map(|driver| driver.server).collect();
    assert_eq!(able, [ServerName::Nginx, ServerName::ApacheEvent, ServerName::Haproxy, ServerName::Lighttpd]);
    at_once(able, |kind| {
        let place = Place::new();
        fs::write(place.docroot().join("object"), vec![b'x'; BODY_BYTES]).unwrap();
        let credentials = Credentials::create(CertificateKind::P256, place.path()).unwrap();
        let tls = Tls { http2: true, certificate: Some(CertificateKind::P256), ..Tls::default() };
        let plain = ServerSpec { http2: true, connections: 8, ..place.spec(kind) };
        let spec = ServerSpec { tls: Some(credentials.server_tls(&tls)), ..plain.clone() };
        let server = place.start(&spec).unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
        let settings = credentials.client_settings(&tls, Effort::Honest);
        let compiled = |settings: &Settings| Arc::new(Config::new(settings.clone()).unwrap());
        let answer = ask_twice(&server, Some(&compiled(&settings)), false);
        assert_eq!(answer.handshake.unwrap().alpn, Some(0), "{kind:?}");
        assert!(answer.response.starts_with(b"HTTP/2 200"), "{kind:?}");
        let http1 = ask_twice(&server, Some(&compiled(&Settings { alpn: Vec::new(), ..settings })), false);
        assert!(http1.response.starts_with(b"HTTP/1.1 200"), "{kind:?}");
        server.stop().unwrap();
        let server = place.start(&plain).unwrap_or_else(|error| panic!("{kind:?}: {error:#}"));
        assert!(ask_twice(&server, None, true).response.starts_with(b"HTTP/2 200"), "{kind:?}");
        let url = format!("http://{}/object", server.address());
        let output = place.run(&["load", &url, "--http2", "--close", "-n", "200", "-c", "2", "--json"]);
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let counts = [&result["hits"], &result["connections"], &result["http2"]["chosen_count"]];
        assert_eq!(counts, [200, 200, 200], "{kind:?}: {result}");
        server.stop().unwrap();
    });
}

/// Stages of the provider and of the shim, each with the clients that must fail.
#[test]
fn stages_are_removed_under_it() {
    at_once(["nginx", "apache", "haproxy", "lighttpd"], |server| {
        let place = Place::new();
        let stages = "authentication,key_agreement,cipher,session_cache,marshalling";
        let flags = ["--server", server, "--http2", "--stages", stages, "--time", "4", "--json", "--no-report"];
        let result = measured(&place.run(&[&["ablate"], &flags[..]].concat()));
        let names: Vec<&str> =
            result["configurations"].as_array().unwrap().iter().filter_map(|of| of["name"].as_str()).collect();
        for name in ["as is", "no authentication", "perfect session cache", "unencrypted data", "plain HTTP"] {
            assert!(names.contains(&name), "{server}: {names:?}");
        }
        let negotiated = &result["manifest"]["negotiated"];
        assert!(negotiated.as_str().unwrap().ends_with("X25519 · HTTP/2"), "{server}: {negotiated}");
    });
}

#[test]
fn what_does_not_go_with_it_is_refused_in_words() {
    let place = Place::new();
    let refused = |flags: &[&str], code: i32, words: &[&str]| {
        let output = place.run(&[&["ablate", "--time", "2"], flags].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {said}");
        words.iter().for_each(|word| assert!(said.contains(word), "{flags:?}: {word} in {said}"));
    };
    let able = "nginx, apache, haproxy and lighttpd speak HTTP/2 too";
    refused(&["--http2", "--server", "builtin"], 2, &["builtin speaks HTTP/1.1 only", able]);
    refused(&["--http2", "--server", "apache-prefork"], 2, &["apache-prefork speaks HTTP/1.1 only", able]);
    refused(&["--http2", "--server", "nginx", "--stages", "setup"], 2, &["ALPN", "leave `handshake` and `setup` on"]);
    refused(&["--streams", "9"], 2, &["--streams", "add --http2"]);
    refused(&["--http2", "--server", "nginx", "--streams", "0"], 2, &["1 to 1000 requests at once"]);
    // One that does not take it: what was asked for and not applied is no measurement.
    let conf = "daemon off; pid {dir}/nginx.pid; error_log stderr; events {}\nhttp { access_log off; server {\n\
                listen 127.0.0.1:{port} ssl; root {docroot}; ssl_certificate {certificate};\n\
                ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3; } }\n";
    let path = place.path().join("nginx.conf");
    fs::write(&path, conf).unwrap();
    let command = format!("nginx -p {{dir}} -c {} -e stderr", path.display());
    let seen = "asked for protocol HTTP/2, negotiated HTTP/1.1 (in its configuration: nginx `listen … ssl";
    refused(&["--http2", "--stages", "cipher", "--server-command", &command], 5, &[seen]);
}
