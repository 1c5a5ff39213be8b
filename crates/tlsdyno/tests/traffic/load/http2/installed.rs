//! nginx, Apache, HAProxy and lighttpd as Debian has them.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json as value};
use tlsdyno::servers::programs;

use super::super::certificates::Nginx;
use super::super::s_server::{P256, self_signed};
use super::super::{Running, json, load, stderr};
use crate::place::eventually;

/// A running server of this program, with the configuration that `text` makes of its port.
fn start(place: &Path, program: &str, arguments: &[&str], text: impl Fn(u16) -> String) -> (Running, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let path = place.join(format!("{program}.conf"));
    fs::write(&path, text(port)).unwrap();
    let mut command = Command::new(programs::find(program).unwrap_or_else(|| panic!("{program} is installed")));
    command.args(arguments).arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = Running(command.spawn().unwrap());
    eventually("the server starts", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    (process, port)
}

fn apache(place: &Path) -> (Running, u16) {
    let dir = place.display();
    start(place, "apache2", &["-X", "-f"], |port| {
        let modules = ["mpm_event", "authz_core", "ssl", "http2", "dir"];
        let load = |name: &&str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
        let modules: String = modules.iter().map(load).collect();
        format!(
            "{modules}ServerName localhost\nListen 127.0.0.1:{port}\nPidFile {dir}/apache.pid\n\
             ErrorLog {dir}/apache.log\nDocumentRoot {dir}/www\n\
             User nobody\nGroup nogroup\nProtocols h2 http/1.1\nSSLEngine on\n\
             SSLCertificateFile {dir}/server.pem\nSSLCertificateKeyFile {dir}/server.key\n\
             <Directory {dir}/www>\nRequire all granted\n</Directory>\nMaxKeepAliveRequests 50\n"
        )
    })
}

fn haproxy(place: &Path) -> (Running, u16) {
    let dir = place.display();
    let chain = [fs::read(place.join("server.pem")).unwrap(), fs::read(place.join("server.key")).unwrap()].concat();
    fs::write(place.join("both.pem"), chain).unwrap();
    start(place, "haproxy", &["-db", "-f"], |port| {
        format!(
            "defaults\n mode http\n timeout client 9s\n timeout server 9s\n timeout connect 9s\nfrontend f\n \
             bind 127.0.0.1:{port} ssl crt {dir}/both.pem alpn h2,http/1.1\n \
             http-request return status 200 content-type text/plain file {dir}/www/object\n"
        )
    })
}

fn lighttpd(place: &Path) -> (Running, u16) {
    let dir = place.display();
    start(place, "lighttpd", &["-D", "-f"], |port| {
        format!(
            "server.modules = ( \"mod_openssl\" )\nserver.document-root = \"{dir}/www\"\nserver.port = {port}\n\
             server.bind = \"127.0.0.1\"\nssl.engine = \"enable\"\nssl.pemfile = \"{dir}/server.pem\"\n\
             ssl.privkey = \"{dir}/server.key\"\nserver.max-keep-alive-requests = 50\n"
        )
    })
}

/// Bytes of the object as curl receives it over HTTP/2.
fn bytes_by_curl(url: &str) -> u64 {
    let output = Command::new("curl")
        .args(["-sk", "--http2", "-o", "/dev/null", "-w", "%{http_version} %{size_download}", url])
        .output()
        .expect("this test needs curl");
    let told = String::from_utf8(output.stdout).unwrap();
    let (version, bytes) = told.split_once(' ').unwrap_or_else(|| panic!("{told}"));
    assert_eq!(version, "2", "{url}");
    bytes.parse().unwrap()
}

fn run(url: &str, flags: &[&str]) -> Value {
    let output = load(&[&[url, "-k", "--http2", "--json"], flags].concat());
    let measured = json(&output);
    assert_eq!(output.status.code(), Some(0), "{url} {flags:?}: {} {measured}", stderr(&output));
    assert_eq!((&measured["errors"], &measured["http2"]["downgraded_count"]), (&value!({}), &value!(0)), "{url}");
    assert_eq!(measured["http2"]["chosen_count"], measured["connections"], "{url}");
    measured
}

#[test]
fn every_server_answers_as_it_answers_curl() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    self_signed(place, "server", &P256);
    fs::create_dir(place.join("www")).unwrap();
    for bytes in [0, 1000, 200_000] {
        // HAProxy reads its object when it starts, and takes none larger than its buffer.
        fs::write(place.join("www/object"), vec![b'x'; bytes]).unwrap();
        let servers = [apache, haproxy, lighttpd];
        for start in &servers[..if bytes == 200_000 { 1 } else { 3 }] {
            let (_server, port) = start(place);
            let url = format!("https://127.0.0.1:{port}/object");
            assert_eq!(bytes_by_curl(&url), bytes as u64);
            for streams in ["1", "10"] {
                let measured = run(&url, &["-n", "200", "-c", "2", "--streams", streams, "--browser-headers", "200"]);
                assert_eq!(measured["hits"], 200, "{url}");
                assert_eq!(measured["body_bytes"], 200 * bytes, "{url}");
            }
        }
    }
}

/// nginx ends a connection after so many requests by GOAWAY, while others are on their way: each is served once.
#[test]
fn no_request_is_lost_or_counted_twice_when_nginx_goes_away() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    self_signed(place, "server", &P256);
    let nginx = Nginx::start(
        place,
        "http2_max_concurrent_streams 100; keepalive_requests 7; client_max_body_size 9m; ssl_session_cache shared:s:1m;
         location /refused { return 404; } location /moved { return 302 /; }",
    );
    let url = format!("https://127.0.0.1:{}/", nginx.port);
    let lines = || fs::read_to_string(place.join("log")).unwrap().lines().count();
    let mut seen = 0;
    for (streams, more) in [
        ("1", &["--reuse", "always", "--keep-alive"][..]),
        ("10", &["--reuse", "always", "--keep-alive"]),
        ("100", &["--reuse", "always", "--keep-alive"]),
        ("10", &["--hits-per-handshake", "5"]),
        ("10", &["--requests-per-connection", "3"]),
        ("10", &["-X", "POST", "--body", "100000"]),
    ] {
        let measured = run(&url, &[&["-n", "1400", "-c", "4", "--streams", streams], more].concat());
        assert_eq!(measured["hits"], 1400, "{measured}");
        seen += 1400;
        eventually("nginx logs what the client counts", || lines() == seen);
        let connections = measured["connections"].as_u64().unwrap();
        assert!((200..=480).contains(&connections), "{connections} connections of at most seven requests");
        let counts = &measured["handshakes"];
        let all = counts["full"].as_u64().unwrap() + counts["resumed_accepted"].as_u64().unwrap();
        assert_eq!(all, connections);
        if more.contains(&"always") {
            assert_eq!(counts["full"], 4, "one for each user: {measured}");
        }
    }
    let measured = run(&format!("{url}moved"), &["-n", "100", "-c", "2", "--streams", "10", "--follow-redirects"]);
    assert_eq!((&measured["hits"], &measured["redirects_followed"]), (&value!(100), &value!(100)));
}

/// One connection carries all requests of an open loop, each with a time of its own, while answers take their time.
#[test]
fn every_stream_of_an_open_loop_has_its_intended_time() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    self_signed(place, "server", &P256);
    let nginx = Nginx::start(place, "");
    let url = format!("https://127.0.0.1:{}/", nginx.port);
    let measured = run(&url, &["--rate", "500/s", "-d", "2s", "-c", "1", "--streams", "900", "--timeout", "20s"]);
    let scheduled = measured["latency_ns"]["scheduled_response"]["count"].as_u64().unwrap();
    let counted = (&measured["hits"], &measured["connections"], &measured["unserved"]);
    assert_eq!(counted, (&value!(scheduled), &value!(1), &value!(0)));
    assert!((999..=1001).contains(&scheduled), "{scheduled}");
}
