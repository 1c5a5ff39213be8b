//! Single rounds: what they show of each kind of session, what they say of each kind of fault, and who is refused.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::Value;
use tlsdyno::model::ServerName;
use tlsdyno_tls::Version;

use super::super::place::Place;
use super::super::stacks::{go_server::GoServer, rustls_server};
use super::{objects, probe, server, server_with, stderr, url};

#[test]
fn a_round_has_all_phases_of_full_and_resumed_handshakes() {
    for (version, session) in [(Version::Tls12, "ticket"), (Version::Tls13, "PSK")] {
        let place = Place::new();
        let (server, root) = server(&place, ServerName::Nginx, version);
        let output = probe(&place, &[&url(&server), "-4", "--once", "--json", "--verify", "--ca-file", &root]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let round = &objects(&output)[0];
        for kind in ["full", "resumed"] {
            let time = |name: &str| round[kind][name].as_u64().unwrap();
            assert!(time("hello_ns") > 0 && time("hello_ns") <= time("handshake_ns"), "{round}");
            assert!(time("first_byte_ns") > 0 && time("first_byte_ns") <= time("whole_ns"), "{round}");
            assert!(time("tcp_ns") > 0);
        }
        assert!(round["tcp_ns"].as_u64().unwrap() > 0 && round["lookup_ns"].as_u64().unwrap() > 0);
        assert_eq!((&round["resumption"], &round["early_data"]), (&"accepted".into(), &"not_given".into()));
        assert_eq!((&round["status"], &round["body_bytes"]), (&200.into(), &13.into()));
        let facts = &round["facts"];
        assert_eq!((facts["session"].as_str(), facts["key"].as_str()), (Some(session), Some("P-256")));
        assert_eq!((facts["certificate_fault"].as_str(), &round["fault"]), (Some(""), &Value::Null));
        assert!(facts["server"].as_str().unwrap().starts_with("nginx"), "{facts}");
        assert!(facts["certificate_until_unix_s"].as_u64().unwrap() > 2_000_000_000, "{facts}");
    }
}

#[test]
fn go_and_rustls_are_probed_too() {
    let place = Place::new();
    let go = GoServer::start(b"object", None);
    let tls13 = rustls_server::config(true, &[&rustls::version::TLS13]);
    let rustls = rustls_server::start(tls13, b"object", None);
    let urls = [go.address, rustls].map(|address| format!("https://localhost:{}/", address.port()));
    let output = probe(&place, &[&urls[0], &urls[1], "-4", "--once", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for (round, url) in objects(&output).iter().zip(&urls) {
        assert_eq!((&round["site"], &round["resumption"]), (&url.as_str().into(), &"accepted".into()));
        // Nobody vouches for these certificates; that is recorded and no fault.
        assert_ne!(round["facts"]["certificate_fault"], "");
    }
}

#[test]
fn early_data_are_probed_where_the_ticket_allows_them() {
    let place = Place::new();
    let (server, _) = server_with(&place, ServerName::Builtin, |tls| tls.early_data = true);
    let url = url(&server);
    let output = probe(&place, &[&url, "-4", "--once", "--json"]);
    let round = &objects(&output)[0];
    assert_eq!((&round["early_data"], &round["fault"]), (&"accepted".into(), &Value::Null), "{round}");
    // The answer comes with the server's first flight.
    assert!(round["early"]["first_byte_ns"].as_u64().unwrap() > 0);
    let without = objects(&probe(&place, &[&url, "-4", "--once", "--json", "--no-early-data"]));
    assert_eq!(without[0]["early_data"], "untried");
}

#[test]
fn a_site_that_never_resumes_says_so_and_has_no_resumed_times() {
    let place = Place::new();
    let mut config = rustls_server::config(false, &[&rustls::version::TLS13]);
    std::sync::Arc::get_mut(&mut config).unwrap().send_tls13_tickets = 0;
    let address = rustls_server::start(config, b"object", None);
    let output = probe(&place, &[&format!("https://127.0.0.1:{}/", address.port()), "--once"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(text.contains("no session") && text.contains("days left"), "{text}");
}

#[test]
fn each_fault_has_its_kind_and_step() {
    let place = Place::new();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = free().local_addr().unwrap();
    let silent = free();
    let resetting = free();
    let talking = free();
    let [silent_at, resetting_at, talking_at] =
        [&silent, &resetting, &talking].map(|listener| listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in resetting.incoming().flatten() {
            // Closed with unread bytes: a reset.
            let _ = stream.peek(&mut [0]);
        }
    });
    std::thread::spawn(move || {
        for mut stream in talking.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    for (url, step, kind) in [
        (format!("https://{refused}/"), ["tcp", "full"], "refused"),
        (format!("https://{silent_at}/"), ["full", "full"], "handshake_timeout"),
        (format!("https://{resetting_at}/"), ["full", "full"], "reset"),
        (format!("https://{talking_at}/"), ["full", "full"], "tls"),
        ("https://name.invalid/".to_owned(), ["lookup", "lookup"], "name"),
    ] {
        let timeout = if kind == "handshake_timeout" { "300ms" } else { "20s" };
        let output = probe(&place, &[&url, "--once", "--json", "--timeout", timeout]);
        assert_eq!(output.status.code(), Some(4), "{url}: {}", stderr(&output));
        let fault = &objects(&output)[0]["fault"];
        assert_eq!(fault["kind"], kind, "{fault}");
        assert!(step.contains(&fault["step"].as_str().unwrap()), "{fault}");
    }
}

/// A certificate for ::1 that was good until 2021, in `chain.pem` and `key.pem`, from the root in `ca.pem`.
const EXPIRED: &str = r"
printf '[ca]\ndefault_ca=c\n[c]\ndatabase=index\nnew_certs_dir=.\nrand_serial=yes\n' > ca.cnf
printf 'default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n' >> ca.cnf
: > index
printf 'subjectAltName=IP:::1' > names
key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
openssl req -x509 $key -keyout ca.key -out ca.pem -subj /CN=ca
openssl req -new $key -keyout key.pem -out request.pem -subj /CN=localhost
openssl ca -batch -notext -config ca.cnf -cert ca.pem -keyfile ca.key -in request.pem -out chain.pem -extfile names \
    -startdate 20200101000000Z -enddate 20210101000000Z
";

/// OpenSSL's server waits for the client's end of the connection before it ends its own, its answers have no length,
/// and this one gives no session.
#[test]
fn a_server_of_ipv6_with_an_expired_certificate_that_waits_is_probed_from_a_named_address() {
    let place = Place::new();
    let made = Command::new("sh").args(["-ec", EXPIRED]).current_dir(place.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut server = Command::new("openssl")
        .args(["s_server", "-accept", "[::1]:0", "-cert", "chain.pem", "-key", "key.pem", "-www"])
        .args(["-no_ticket", "-no_cache", "-num_tickets", "0"])
        .current_dir(place.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address = lines.find_map(|line| line.strip_prefix("ACCEPT ").map(str::to_owned)).unwrap();
    let url = format!("https://{address}/");
    let rounds = ["1.2", "1.3"].map(|version| {
        let more = ["--source", "::1", "--ca-file", "ca.pem", "--tls", version];
        let output = probe(&place, &[&[url.as_str(), "--once", "--json"], &more[..]].concat());
        (output.status.code(), objects(&output).remove(0))
    });
    let verified =
        objects(&probe(&place, &[&url, "-6", "--once", "--json", "--verify", "--ca-file", "ca.pem"])).remove(0);
    server.kill().unwrap();
    server.wait().unwrap();
    for (code, round) in rounds {
        assert_eq!((code, &round["fault"], &round["status"]), (Some(0), &Value::Null, &200.into()), "{round}");
        assert_eq!((&round["resumption"], &round["resumed"]), (&"not_given".into(), &Value::Null), "{round}");
        assert!(round["facts"]["certificate_fault"].as_str().unwrap().contains("expired"), "{round}");
        assert!(round["facts"]["address"].as_str().unwrap().starts_with("[::1]:"), "{round}");
    }
    assert_eq!(verified["fault"]["kind"], "certificate", "{verified}");
}

#[test]
fn an_untrusted_certificate_is_a_fault_only_where_that_is_asked_for() {
    let place = Place::new();
    let (server, _) = server(&place, ServerName::Nginx, Version::Tls13);
    let url = url(&server);
    let output = probe(&place, &[&url, "-4", "--once", "--verify", "--json"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert_eq!(objects(&output)[0]["fault"]["kind"], "certificate");
    let nagios = probe(&place, &[&url, "-4", "--once", "--nagios"]);
    let line = String::from_utf8_lossy(&nagios.stdout).into_owned();
    assert_eq!(nagios.status.code(), Some(1), "{line}");
    assert!(
        line.starts_with("TLS WARNING - ") && line.contains(" resumed'=0.0") && line.lines().count() == 1,
        "{line}"
    );
    drop(server);
    let nagios = probe(&place, &[&url, "-4", "--once", "--nagios"]);
    assert_eq!(nagios.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nagios.stdout).contains("TLS CRITICAL - "));
}

#[test]
fn other_machines_are_probed_by_name_only() {
    let place = Place::new();
    let output = probe(&place, &["https://192.0.2.1/", "--once"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("add --i-may-probe 192.0.2.1"), "{}", stderr(&output));
    let nagios = probe(&place, &["https://192.0.2.1/", "--once", "--nagios"]);
    assert_eq!(nagios.status.code(), Some(3));
    for (url, word) in [("http://localhost/", "no TLS"), ("localhost", "https://HOST")] {
        let output = probe(&place, &[url, "--once"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    }
    let secret = ["https://localhost:9/", "--once", "--store", "postgres://me:secret@localhost/x"];
    let output = probe(&place, &secret);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(".pgpass") && !stderr(&output).contains("secret"), "{}", stderr(&output));
    let allowed = ["https://192.0.2.1/", "--once", "--json", "--i-may-probe", "192.0.2.1", "--timeout", "100ms"];
    let output = probe(&place, &allowed);
    let kind = objects(&output)[0]["fault"]["kind"].as_str().unwrap().to_owned();
    assert!(["connect_timeout", "unreachable", "refused", "reset"].contains(&kind.as_str()), "{kind}");
}
