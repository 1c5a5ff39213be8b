//! `tlsdyno profile` from the command line to the record, the reports and the JSON.

use std::net::TcpListener;

use serde_json::Value;
use tlsdyno::kinds::profile::ProfileRecord;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::servers::{ServerSpec, ServerTls, certificates};
use tlsdyno::store::Store;
use tlsdyno_lab::KINDS;

use crate::place::{self, Place};

/// Runs a short profile and gives what it prints as JSON.
fn profiled(place: &Place, more: &[&str]) -> Value {
    profiled_for(place, 6, more)
}

fn profiled_for(place: &Place, seconds: u32, more: &[&str]) -> Value {
    let profiled = |seconds: &str| {
        let arguments = ["profile", "--time", seconds, "--seed", "7", "--no-report", "--json"];
        // On a busy machine other work is in the times of calls, and they may contradict what a hit takes
        // (`crates/kinds/profile/src/profile/summary/contradictions.rs` holds what follows).
        place::measured(&place.tlsdyno(&[&arguments, more].concat()).output().unwrap())
    };
    let is_told = |printed: &Value| printed["profile"]["handshakes"].as_array().is_some_and(|kinds| !kinds.is_empty());
    place::given_time(seconds, profiled, is_told)
}

fn stage<'a>(kind: &'a Value, name: &str) -> &'a Value {
    let stages = kind["stages"].as_array().unwrap();
    stages.iter().find(|stage| stage["stages"][0] == name).unwrap_or_else(|| panic!("{name}: {kind}"))
}

fn value(of: &Value) -> f64 {
    of["value"].as_f64().unwrap_or_else(|| panic!("{of}"))
}

/// Full handshakes sign, resumed ones do not; both agree on keys; the parts are the whole.
fn check_tls13(printed: &Value) {
    let kinds = printed["profile"]["handshakes"].as_array().unwrap();
    assert_eq!(kinds.iter().map(|kind| kind["kind"].as_str().unwrap()).collect::<Vec<_>>(), ["full", "resumed"]);
    for kind in kinds {
        let whole = value(&kind["cpu_ns"]);
        let sum: f64 = kind["stages"].as_array().unwrap().iter().map(|stage| value(&stage["timed_ns"])).sum();
        assert!(whole > 50_000.0 && sum > 0.0, "{sum} of {whole}: {kind}");
        assert!((sum + value(&kind["other_ns"]) - whole).abs() < 1.0, "the parts are the whole: {kind}");
        assert!(value(&stage(kind, "key_agreement")["timed_ns"]) > 20_000.0, "{kind}");
        assert!(kind["timed_per_hit"].as_f64() < kind["calls_per_hit"].as_f64(), "short calls are not timed: {kind}");
    }
    let signed = |kind: &Value| value(&stage(kind, "authentication")["timed_ns"]);
    assert!(signed(&kinds[0]) > 10_000.0 && signed(&kinds[1]) == 0.0, "{kinds:?}");
    let calls = kinds[0]["classes"].as_array().unwrap().iter().find(|class| class["name"] == "key_derive").unwrap();
    assert!((calls["calls_per_hit"].as_f64().unwrap() - 1.0).abs() < 0.01, "not the question for the size: {calls}");
}

#[test]
fn stages_are_timed_and_removed_side_by_side() {
    let place = Place::new();
    let printed = profiled(&place, &["--server", "nginx", "--cert", "p-256", "--doubled"]);
    check_tls13(&printed);
    for kind in printed["profile"]["handshakes"].as_array().unwrap() {
        assert!(kind["is_untouched"] == true && kind["library_ns"].is_object(), "{kind}");
        // Of samples, which may be few on a busy machine, each is in an area.
        let areas = kind["sampled"]["areas"].as_array().into_iter().flatten();
        let sum: f64 = areas.map(|area| value(&area["ns"]) / kind["sampled"]["whole_ns"].as_f64().unwrap()).sum();
        assert!(kind["sampled"].is_null() || (sum - 1.0).abs() < 1e-6, "{sum}: {}", kind["sampled"]);
        for name in ["key_agreement", "cipher"] {
            assert!(
                stage(kind, name)["removed_ns"].is_object() && stage(kind, name)["doubled_ns"].is_object(),
                "{kind}"
            );
        }
    }
    let record = Store::open_for_reading_at(&place.path().join("store.sqlite")).unwrap().load("last").unwrap();
    assert_eq!(record.kind_part.of::<ProfileRecord>().unwrap().cells.len(), record.configurations.len());
    assert!(record.blocks.iter().any(|block| block.profile.is_some()));
    let again: Value = serde_json::from_str(&KINDS.json_text(&record).unwrap()).unwrap();
    assert_eq!(again["profile"], printed["profile"], "the record holds what was printed");
    assert!(KINDS.html(&record).unwrap().contains("profile-stages"));
    let listed = place.tlsdyno(&["list"]).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("Where does the time of a handshake go?"));
}

/// What the samples of a kind of handshake say of an area, or a part of it, in parts of the whole.
fn sampled(kind: &Value, area: &str) -> f64 {
    let sampled = &kind["sampled"];
    let areas = sampled["areas"].as_array().unwrap_or_else(|| panic!("{kind}"));
    let found = areas.iter().find(|one| one["name"] == area);
    found.map_or(0.0, |found| value(&found["ns"]) / sampled["whole_ns"].as_f64().unwrap())
}

/// Python loads libssl privately, and gives each connection a thread of its own.
const PYTHON: &str = r#"
import http.server, os, socketserver, ssl, sys
port, certificate, key, docroot = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
os.chdir(docroot)

class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *unused):
        pass

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def finish_request(self, request, address):
        try:
            Handler(context.wrap_socket(request, server_side=True), address, self)
        except OSError:
            pass

Server(("127.0.0.1", int(port)), Handler).serve_forever()
"#;

/// The command that starts it.
fn python(place: &Place) -> String {
    std::fs::write(place.path().join("server.py"), PYTHON).unwrap();
    let script = place.path().join("server.py");
    format!("python3 {} {{port}} {{certificate}} {{key}} {{docroot}}", script.display())
}

#[test]
fn a_server_with_a_thread_for_each_connection_and_a_private_libssl_is_profiled() {
    let place = Place::new();
    let arguments = ["--address", "127.0.0.1:{port}", "--cert", "p-256", "--no-removed", "--server-command"];
    let printed = profiled(&place, &[&arguments[..], &[python(&place).as_str()]].concat());
    for kind in printed["profile"]["handshakes"].as_array().unwrap() {
        // Of each of hundreds of threads: its key agreement is in the times.
        assert!(value(&stage(kind, "key_agreement")["timed_ns"]) > 20_000.0, "{kind}");
        let calls = kind["classes"].as_array().unwrap().iter().find(|class| class["name"] == "key_derive").unwrap();
        assert!((calls["calls_per_hit"].as_f64().unwrap() - 1.0).abs() < 0.01, "in every connection: {calls}");
    }
}

#[test]
fn a_server_with_a_private_libssl_computes_stages_twice() {
    let place = Place::new();
    let experiment = format!(
        r#"
question = "What does the key schedule cost?"
method = "doubling"
[server]
kind = "command"
command = "{}"
address = "127.0.0.1:{{port}}"
[tls]
certificate = "p-256"
[workload]
kind = "url"
path = "/1k.bin"
bytes = 1024
users = 200
requests_per_user = 1
[load]
reuse_percent = 0.0
requests_per_connection = 1
[measure]
time_s = 2.0
[[configuration]]
name = "as is"
[[configuration]]
name = "nothing doubled"
doubled = []
[[configuration]]
name = "kdf twice"
doubled = ["kdf"]
"#,
        python(&place)
    );
    std::fs::write(place.path().join("doubled.toml"), experiment).unwrap();
    let result = place::measured(&place.run(&["run", "doubled.toml", "--no-report", "--json"]));
    assert_eq!(result["configurations"].as_array().unwrap().len(), 3, "{result}");
}

/// A command of one's own on a port that it says itself: nothing can stand beside it.
#[test]
fn a_server_on_a_fixed_port_is_profiled_alone() {
    let place = Place::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let tlsdyno = env!("CARGO_BIN_EXE_tlsdyno");
    let command =
        format!("{tlsdyno} serve --docroot {{docroot}} --certificate {{certificate}} --key {{key}} --listen {address}");
    let printed = profiled(&place, &["--server-command", &command, "--address", &address, "--cert", "p-256"]);
    check_tls13(&printed);
    for kind in printed["profile"]["handshakes"].as_array().unwrap() {
        assert!(kind["is_untouched"] == false && kind["library_ns"].is_null(), "{kind}");
        assert!(stage(kind, "kdf")["removed_ns"].is_null(), "{kind}");
    }
}

/// What cannot be seen is refused with the reason, not told as nothing.
#[test]
fn a_server_that_does_not_load_the_profiler_is_refused() {
    let place = Place::new();
    let tlsdyno = env!("CARGO_BIN_EXE_tlsdyno");
    let serve = "serve --docroot {docroot} --certificate {certificate} --key {key} --listen 127.0.0.1:{port}";
    let command = format!("env -u OPENSSL_CONF {tlsdyno} {serve}");
    let arguments = ["profile", "--no-report", "--quick", "--server-command", &command, "--address"];
    let output = place.run(&[&arguments[..], &["127.0.0.1:{port}"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("tlsdyno-profiler.so is not loaded in the server process"), "{said}");
}

/// Has OpenSSL mapped, and hands all bytes on to a TLS server that is no process of its own.
const RELAY: &str = r#"
import asyncio, ssl, sys
port, to = map(int, sys.argv[1:])

async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()

async def relay(reader, writer):
    there_reader, there_writer = await asyncio.open_connection("127.0.0.1", to)
    await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

async def main():
    ssl.create_default_context()
    server = await asyncio.start_server(relay, "127.0.0.1", port)
    await server.serve_forever()

asyncio.run(main())
"#;

#[test]
fn a_server_whose_mapped_openssl_does_no_tls_is_refused() {
    let place = Place::new();
    let certificate = certificates::create(CertificateKind::Rsa2048, place.path()).unwrap();
    let spec = ServerSpec { tls: Some(ServerTls::new(certificate)), ..place.spec(ServerName::Nginx) };
    let server = place.start(&spec).unwrap();
    std::fs::write(place.path().join("relay.py"), RELAY).unwrap();
    std::fs::write(place.path().join("paths.txt"), "/hello.txt\n").unwrap();
    let command = format!("python3 {}/relay.py {{port}} {}", place.path().display(), server.address().port());
    let arguments = ["ablate", "--quick", "--no-report", "--stages", "kdf", "--paths", "paths.txt"];
    let output =
        place.run(&[&arguments[..], &["--address", "127.0.0.1:{port}", "--server-command", &command]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("no handshake of this server went through the OpenSSL that it has mapped (/"), "{said}");
}

mod long {
    use super::*;

    /// What is timed fits into the whole, what is removed or computed twice changes it, and samples see the same.
    #[test]
    #[ignore = "verdicts of a minute on a quiet machine: make test-long"]
    fn all_methods_see_the_same_stages() {
        let place = Place::new();
        let printed = profiled_for(&place, 60, &["--server", "nginx", "--cert", "p-256", "--doubled"]);
        check_tls13(&printed);
        for kind in printed["profile"]["handshakes"].as_array().unwrap() {
            let whole = value(&kind["cpu_ns"]);
            let timed: f64 = kind["stages"].as_array().unwrap().iter().map(|stage| value(&stage["timed_ns"])).sum();
            assert!(timed > 0.1 * whole && timed < whole, "{timed} of {whole}: {kind}");
            assert_eq!(kind["contradictions"].as_array().unwrap().len(), 0, "{kind}");
            let agreed = stage(kind, "key_agreement");
            assert!(value(&agreed["removed_ns"]) > 0.0 && value(&agreed["doubled_ns"]) > 0.0, "{kind}");
            for area in ["stages", "kernel", "libcrypto", "libssl", "C library", "server"] {
                assert!(sampled(kind, area) > 0.002, "{area}: {}", kind["sampled"]["areas"]);
            }
            assert!(sampled(kind, "unknown") < 0.05 && sampled(kind, "instrument") < 0.1, "{}", kind["sampled"]);
            let ratio = sampled(kind, "stages") * kind["sampled"]["whole_ns"].as_f64().unwrap() / timed;
            assert!((0.6..1.6).contains(&ratio), "{ratio}: {kind}");
        }
    }

    #[test]
    #[ignore = "verdicts of a minute on a quiet machine: make test-long"]
    fn most_of_what_is_outside_of_the_stages_has_a_name() {
        let place = Place::new();
        let printed = profiled_for(&place, 60, &["--server", "nginx", "--cert", "p-256", "--no-removed"]);
        for kind in printed["profile"]["handshakes"].as_array().unwrap() {
            let named = kind["sampled"]["named_percent"].as_f64().unwrap();
            assert!((25.0..=200.0).contains(&named), "{named}: {}", kind["sampled"]["areas"]);
        }
    }

    #[test]
    #[ignore = "more of the same, with valgrind: make test-long"]
    fn what_is_outside_of_the_stages_has_names() {
        let place = Place::new();
        let printed = profiled(&place, &["--server", "nginx", "--cert", "p-256", "--no-removed", "--counted"]);
        check_tls13(&printed);
        for kind in printed["profile"]["handshakes"].as_array().unwrap() {
            let parts = ["stages", "kernel", "libcrypto", "libssl", "C library", "server", "instrument", "unknown"];
            let sum: f64 = parts.iter().map(|area| sampled(kind, area)).sum();
            assert!((sum - 1.0).abs() < 1e-6, "{sum}: {}", kind["sampled"]);
            for area in ["stages", "kernel", "libcrypto"] {
                assert!(sampled(kind, area) > 0.0, "{area}: {}", kind["sampled"]["areas"]);
            }
            // The rest of TLS is what is left without stages and plain HTTP.
            let (rest, plain) = (value(&kind["rest_ns"]), value(&kind["plain_ns"]));
            assert!((rest + plain - value(&kind["other_ns"])).abs() < 1.0 && plain > 0.0, "{rest} {plain}: {kind}");
            assert!(kind["sampled"]["named_percent"].is_f64(), "{}", kind["sampled"]);
            let counted = |area: &str| {
                let areas = kind["sampled"]["areas"].as_array().unwrap();
                areas.iter().find(|of| of["name"] == area).unwrap()["instructions_count"].as_f64().unwrap()
            };
            // A handshake without RSA executes some millions.
            assert!((100e3..20e6).contains(&counted("stages")), "{}", kind["sampled"]["areas"]);
            assert!(
                (50e3..5e6).contains(&counted("libcrypto")) && counted("libssl") > 10e3,
                "{}",
                kind["sampled"]["areas"]
            );
            let functions = kind["sampled"]["functions"].as_array().unwrap();
            assert!((1..=10).contains(&functions.len()), "{functions:?}");
        }
        let record = Store::open_for_reading_at(&place.path().join("store.sqlite")).unwrap().load("last").unwrap();
        assert!(KINDS.html(&record).unwrap().contains("profile-stacks-full"));
    }
}

#[test]
fn a_profile_is_an_experiment_in_a_file_too() {
    let place = Place::new();
    let flags = ["profile", "--server", "haproxy", "--no-removed", "--doubled", "-c", "3", "--print-experiment"];
    let printed = |arguments: &[&str]| {
        let output = place.tlsdyno(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = printed(&flags);
    std::fs::write(place.path().join("mine.toml"), &text).unwrap();
    assert_eq!(printed(&["run", "mine.toml", "--print-experiment"]), text);
    let changed = printed(&["run", "mine.toml", "--server", "nginx", "--time", "9", "--print-experiment"]);
    assert!(changed.contains("kind = \"nginx\"") && changed.contains("time_s = 9.0"), "{changed}");
    let refused = place.tlsdyno(&["run", "mine.toml", "--workers", "2"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
}
