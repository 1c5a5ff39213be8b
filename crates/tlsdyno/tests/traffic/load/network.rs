//! A load through a network of a given delay, loss and bandwidth. Needs root; without it, that this is said.

use std::fs;

use serde_json::Value;
use tlsdyno::network::Namespace;

use super::super::place::Place;
use super::*;

/// A round trip of the network, nanoseconds: far above what a busy machine adds.
const TRIP_NS: f64 = 200e6;

fn may_not() -> bool {
    let may_not = Namespace::create().is_err() || !Path::new("/dev/net/tun").exists();
    if may_not {
        println!("no network namespaces or TUN devices here: not tried");
    }
    may_not
}

fn serving(place: &Place, bytes: usize) -> Instance {
    servers::launch::set_own_executable(Path::new(env!("CARGO_BIN_EXE_tlsdyno")));
    fs::write(place.docroot().join("x"), vec![b'x'; bytes]).unwrap();
    let certificate = servers::certificates::create(CertificateKind::P256, place.path()).unwrap();
    let mut spec = ServerSpec::new(ServerName::Builtin, place.docroot());
    spec.tls = Some(ServerTls { versions: Version::ALL.to_vec(), ..ServerTls::new(certificate) });
    servers::start(&spec, place.path()).unwrap()
}

fn loaded(server: &Instance, network: &str, more: &[&str]) -> Value {
    let url = format!("https://{}/x", server.address());
    let output = load(&[&[url.as_str(), "-k", "--network", network, "--json"], more].concat());
    // 8: on a busy machine the relay may be late.
    assert!(matches!(output.status.code(), Some(0 | 8)), "{}", stderr(&output));
    json(&output)
}

/// Whole round trips in the median of a phase.
fn trips(found: &Value, phase: &str) -> f64 {
    (found["latency_ns"][phase]["p50"].as_f64().unwrap_or_else(|| panic!("{phase}: {found}")) / TRIP_NS).floor()
}

#[test]
fn phases_take_the_round_trips_of_their_protocols() {
    if may_not() {
        return;
    }
    let place = Place::new();
    let server = serving(&place, 100);
    for (version, full) in [("1.3", 1.0), ("1.2", 2.0)] {
        let few = ["--tls", version, "-c", "2", "--total-connections", "8", "--reuse", "50%"];
        let found = loaded(&server, "delay=200ms", &few);
        let phases = ["tcp_connect", "full_handshake", "resumed_handshake", "first_byte"];
        assert_eq!(phases.map(|phase| trips(&found, phase)), [1.0, full, 1.0, 1.0], "TLS {version}: {found}");
        assert_eq!((&found["hits"], &found["network"]["delay_ms"]), (&8.into(), &200.0.into()));
        let relayed = &found["relayed"];
        // Four packets at least open a connection, ask and answer, each way.
        assert!(relayed["packets"].as_u64().unwrap() >= 8 * 8 && relayed["lost_count"] == 0, "{relayed}");
        assert!(relayed["limit_per_second"].as_u64().unwrap() > 1_000 && relayed["cpu_ns"].as_u64().unwrap() > 0);
    }
}

#[test]
fn what_is_lost_is_sent_again_and_a_line_takes_its_time() {
    if may_not() {
        return;
    }
    let place = Place::new();
    let server = serving(&place, 50_000);
    let lossy = loaded(&server, "loss=5%", &["-c", "4", "-n", "60", "--close"]);
    assert_eq!(lossy["hits"], 60);
    assert!(lossy["relayed"]["lost_count"].as_u64().unwrap() > 0, "{}", lossy["relayed"]);
    // 50,000 bytes and their heads are above 400,000 bits.
    let slow = loaded(&server, "rate=1mbit", &["-c", "1", "-n", "2", "--close"]);
    let whole_ns = slow["latency_ns"]["whole_response"]["p50"].as_u64().unwrap();
    assert!((400_000_000..4_000_000_000).contains(&whole_ns), "{whole_ns}");
}

/// No client can ask and be answered in less than two round trips, where each request has a connection of its own.
#[test]
fn servers_that_are_started_are_loaded_through_a_network_too() {
    if may_not() {
        return;
    }
    let ablate = "ablate --server nginx --cert p-256 --stages cipher --reuse 0% -c 8 --per-user 1 --time 6 --json";
    let cluster = "cluster --server nginx --cert p-256 --backends 2 --policies round-robin,session --reuse 0 \
                   --clients 8 --time 12 --json";
    for command in [ablate, cluster] {
        let place = Place::new();
        let words = command.split_whitespace().chain(["--network", "delay=20ms"]);
        let output = place.run(&words.collect::<Vec<_>>());
        // 8: on a busy machine the relay may be late.
        assert!(matches!(output.status.code(), Some(0 | 8)), "{command}: {}", stderr(&output));
        let result = json(&output);
        let blocks = result["blocks"].as_array().unwrap();
        assert!(!blocks.is_empty(), "{command}: {}", stderr(&output));
        for block in blocks {
            let [hits, elapsed_ns] = ["hits", "elapsed_ns"].map(|name| block[name].as_f64().unwrap());
            assert!(hits > 0.0 && hits <= 8.0 * (elapsed_ns / 40e6 + 1.0), "{command}: {block}");
        }
        assert!(result["manifest"].to_string().contains("delay=20ms"), "{}", result["manifest"]);
    }
}

#[test]
fn a_network_that_cannot_be_is_refused_with_the_remedy() {
    let refused = |arguments: &[&str], code, word: &str| {
        let output = load(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(word), "{arguments:?}: {}", stderr(&output));
    };
    let url = "https://127.0.0.1:1/";
    refused(&[url, "--network", "rate=fast"], 2, "rate=56kbit");
    refused(&["https://[::1]:1/", "--network", "delay=1ms"], 2, "127.0.0.1");
    refused(&[url, "--network", "delay=1ms", "--source", "127.0.0.2"], 2, "--source");
    refused(&[url, "--network", "delay=1ms", "--workers", "2"], 2, "leave out one of them");
    let by_address = ["cluster", "--policies", "source-address", "--network", "delay=1ms"];
    let output = tlsdyno().args(by_address).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("or of a network, have one"), "{}", stderr(&output));
    if may_not() {
        return;
    }
    let mut command = Command::new("setpriv");
    command.args([
        "--bounding-set",
        "-sys_admin",
        env!("CARGO_BIN_EXE_tlsdyno"),
        "load",
        url,
        "--network",
        "delay=1ms",
    ]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert!(stderr(&output).contains("run this command as root"), "{}", stderr(&output));
}
