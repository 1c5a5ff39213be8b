//! `tlsdyno cost` on real servers that are no web servers.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tlsdyno::process_tree;
use tlsdyno::servers::cgroup::Cgroup;

use super::{FULL, SIGNATURE, complete, cost, interval_us, refused, sheet};
use crate::place::Place;
use crate::place::postgres::Postgres;

/// An experiment with a server each; those of a user are the first ones.
const SERVERS: &str = include_str!("speaking.toml");
const OF_A_USER: usize = 4;
const OPENING: &str = "opening, as its protocol has it before TLS";

fn run(place: &Place, experiment: &str, time_s: &str) -> std::process::Output {
    let file = place.path().join("speaking.toml");
    fs::write(&file, experiment).unwrap();
    place.tlsdyno(&["run", file.to_str().unwrap(), "--no-report", "--json", "--time", time_s]).output().unwrap()
}

fn has_part(server: &Value, name: &str) -> bool {
    let is_told = server["parts"].as_array().unwrap().iter().any(|part| part["part"] == name);
    // On a busy machine some steps have no turn in the same round, or a part comes out below nothing.
    let is_joined = server["parts"].to_string().contains(name);
    is_told || is_joined || server["unmeasured"].to_string().contains(name)
}

/// The whole experiment without its servers, and each of these.
fn parts() -> (String, Vec<String>) {
    let (head, rest) = SERVERS.split_once("[[cost.server]]").unwrap();
    let (rest, measure) = rest.split_once("[measure]").unwrap();
    let servers = rest.split("[[cost.server]]").map(|server| format!("[[cost.server]]{server}")).collect();
    (format!("{head}[measure]{measure}\n"), servers)
}

#[test]
fn databases_brokers_and_mail_have_a_sheet() {
    let place = Place::new();
    let is_root = rustix::process::geteuid().is_root();
    let (experiment, mut servers) = parts();
    if !is_root {
        servers.truncate(OF_A_USER);
    }
    let output = run(&place, &(experiment + &servers.concat()), "30");
    let sheet = sheet(&output);
    let told = sheet["cost"]["servers"].as_array().unwrap();
    assert_eq!(told.len(), servers.len(), "{}", String::from_utf8_lossy(&output.stderr));
    for server in told {
        let name = server["name"].as_str().unwrap();
        assert!(server["negotiated"].as_str().unwrap().starts_with("1.3 "), "{server:#}");
        assert!(has_part(server, FULL), "{server:#}");
        let opens = ["OpenLDAP", "MariaDB", "Dovecot, IMAP", "Postfix", "PostgreSQL"].contains(&name);
        assert_eq!(has_part(server, OPENING), opens, "{server:#}");
        // Nobody can ask the others anything without a login.
        let asks = !["OpenLDAP", "MariaDB", "PostgreSQL"].contains(&name);
        assert_eq!(server["steps"].to_string().contains("TLS 1.3, request"), asks, "{server:#}");
    }
}

#[test]
fn a_database_without_tls_is_told_so_and_processes_of_connections_are_in_the_account() {
    let place = Place::new();
    let mut server = Postgres::start();
    let url = format!("postgres://127.0.0.1:{}/", server.port);
    let sheet = cost(&place, &[&url]);
    assert_eq!(sheet["manifest"]["cpu_accounting"], "waited");
    let of_waited = &sheet["cost"]["servers"][0]["parts"];
    // Beginning a process is most of what a connection costs.
    assert!(interval_us(of_waited, "accepting and closing")[1] > 200.0, "{of_waited:#}");
    if let Ok(group) = Cgroup::create() {
        let first = server.child.as_ref().unwrap().id();
        let others = process_tree::descendants(first).into_iter().map(|process| process.pid);
        for pid in [first].into_iter().chain(others) {
            fs::write(group.0.path.join("cgroup.procs"), pid.to_string()).unwrap();
        }
        let sheet = cost(&place, &[&url]);
        assert_eq!(sheet["manifest"]["cpu_accounting"], "cgroup");
        assert!(interval_us(&sheet["cost"]["servers"][0]["parts"], FULL)[1] > 50.0, "{sheet:#}");
        server.kill();
    }
    server.kill();
    server.speaks_tls = false;
    server.go();
    refused(&place, &[&url], 4, "the server takes no TLS: it answered `N`; switch TLS on: `ssl = on`");
    // What a person asks is bytes, and not kept: they may be a login.
    refused(&place, &[&url, "--request", "x"], 2, "--answer-until");
    refused(&place, &["tls://127.0.0.1/"], 2, "no port");
    refused(&place, &["smtp://127.0.0.1:1/", "--page", "/x"], 2, "--page is of HTTP");
}

/// What a person asks a server in bytes, and what it is told of an answer that is another one.
#[test]
fn a_request_given_as_bytes_is_answered_or_told() {
    let place = Place::new();
    let (experiment, servers) = parts();
    let asked =
        experiment.replace("[cost]", "[cost]\nrequest = 'AUTH hunter2\\r\\n'\nanswer_until = ' is correct?\\r\\n'");
    let output = run(&place, &(asked + &servers[0]), "5");
    let told = sheet(&output);
    assert!(has_part(&told["cost"]["servers"][0], "next request on the connection"), "{told:#}");
    for kept in ["store.sqlite", "store.sqlite-wal"].map(|file| fs::read(place.path().join(file))) {
        assert!(!kept.unwrap_or_default().windows(7).any(|bytes| bytes == b"hunter2"));
    }
    let other = experiment.replace("[cost]", "[cost]\nrequest = 'PONG\\r\\n'\nanswer_bytes = 3");
    let output = run(&place, &(other + &servers[0].replace("name =", "about =")), "5");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("behind its answer came") && said.contains("--no-request"), "{said}");
}

mod long {
    use super::*;

    /// In the part of a connection that holds the signature. What follows a burn is dearer, too.
    #[test]
    #[ignore = "four minutes, wants a quiet machine"]
    fn half_a_millisecond_in_a_signature_is_found() {
        let place = Place::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traffic/cost/slow_signature.c");
        let library = place.path().join("slow.so");
        let how = ["-O1", "-shared", "-fPIC", "-o"];
        let compiled = std::process::Command::new("cc").args(how).args([&library, &source]).status().unwrap();
        assert!(compiled.success());
        let (experiment, servers) = parts();
        // PostgreSQL resumes nothing, which would tell the signature from the rest.
        let together = "key agreement, certificate and signature, together";
        for (name, part) in [("Redis", SIGNATURE), ("PostgreSQL", together)] {
            let usual = servers.iter().find(|server| server.contains(&format!("name = \"{name}\""))).unwrap();
            let preload = format!("command = \"env LD_PRELOAD={} ", library.display());
            let slow = usual.replace("command = \"", &preload).replace(name, "slow");
            let sheet = complete(120, |time_s| run(&place, &format!("{experiment}{usual}{slow}"), time_s));
            let [low, high] = interval_us(&sheet["cost"]["differences"], part);
            println!("{name}: [{low:.1}, {high:.1}] found");
            assert!(low < 550.0 && high > 450.0 && low > 0.0, "{name}: {sheet:#}");
        }
    }
}
