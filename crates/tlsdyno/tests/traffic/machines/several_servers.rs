//! Arrays of proxies and clusters whose load workers make: exact shares of clients, sessions and connections for all.

use std::fs::File;
use std::process::{Command, Stdio};

use serde_json::Value;
use tlsdyno::servers::quota;

use crate::place::{eventually, given_time};

use super::far::{Network, begin, end, inside, ports};
use super::{TLSDYNO, json, launch, text};

/// Runs an experiment with workers on this machine.
fn run(flags: &str) -> Value {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(TLSDYNO);
    command.args(flags.split_whitespace()).args(["--launch", &launch(""), "--json", "--no-report"]);
    command.env("TLSDYNO_STORE", place.path().join("store.sqlite")).current_dir(place.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    // On a busy machine CPU times are read late, and a block that shows more than a quota by that is marked.
    let is_measured = [Some(0), Some(8)].contains(&output.status.code());
    assert!(is_measured, "{}: {}\n{}", output.status, text(&output.stderr), text(&output.stdout));
    json(&output)
}

fn valid_blocks(result: &Value) -> Vec<&Value> {
    let all = result["blocks"].as_array().unwrap().iter();
    let valid: Vec<&Value> = all.filter(|block| block["valid"] == true).collect();
    assert!(!valid.is_empty(), "{}", result["blocks"]);
    valid
}

/// The levels of all lines that were measured.
fn levels(result: &Value) -> Vec<&Value> {
    let lines = result["lines"].as_array().unwrap().iter();
    let levels: Vec<&Value> = lines.flat_map(|line| line["levels"].as_array().unwrap()).collect();
    assert!(!levels.is_empty(), "{result}");
    levels
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Five clients of three loops before two proxies: the reuse is what was asked for, no machine uses more than its quota
/// in the time that counts, and both proxies work as much as their clients make them.
#[test]
fn an_array_has_its_reuse_and_its_quotas_however_it_is_divided() {
    if quota::require().is_err() {
        return println!("machines of an array have quotas, which cannot be had here: not tried");
    }
    let flags = "array --proxy own --proxies 0,2 --reuse 50,90 --cert p-256 --clients 5 --pages-per-handshake 0 \
                 --transaction 1ms --seed 1 --workers 3 --time";
    // Of a level with few connections none may have been a full handshake.
    let has_full = |result: &Value| levels(result).iter().all(|level| number(&level["full_per_second"]) > 0.0);
    let result = given_time(16, |time_s| run(&format!("{flags} {time_s}")), has_full);
    for level in levels(&result) {
        assert!((number(&level["achieved_percent"]) - number(&level["asked_percent"])).abs() < 3.0, "{level}");
    }
    for block in valid_blocks(&result) {
        let machines = block["cluster"]["backends"].as_array().unwrap();
        let used = |machine: &Value| machine["cpu_ns"].as_u64().unwrap();
        let most = 0.1 * 1.05 * number(&block["elapsed_ns"]) + 2e7;
        assert!(machines.iter().all(|machine| used(machine) > 0 && (used(machine) as f64) < most), "{block}");
    }
    // Sessions by connections: each client keeps its own.
    let flags = "array --proxy own --proxies 2 --by connections --reuse 75 --cert p-256 --clients 4 --time 4 --seed 1 \
                 --pages-per-handshake 0 --transaction 1ms --workers 2";
    let result = run(flags);
    for level in levels(&result) {
        assert!((number(&level["achieved_percent"]) - 75.0).abs() < 3.0, "{level}");
        assert!(
            number(&level["accepted_percent_of_offered"]["value"]) > 99.0,
            "each client stays with a proxy: {level}"
        );
    }
}

/// Of the servers in the near machine only dispatchers and the coordinator listen for the far one, which has all
/// connections that it was to make.
#[test]
fn a_cluster_is_loaded_by_another_machine_and_shows_it_its_dispatchers_only() {
    let Some(network) = Network::new() else { return };
    let place = tempfile::tempdir().unwrap();
    let flags = "cluster --workers 2 --server nginx --backends 2 --policies round-robin,session --reuse 80 --clients 6 \
                 --cert p-256 --time 5 --seed 1";
    let child = begin(&network, place.path(), &flags.split_whitespace().collect::<Vec<_>>());
    eventually("dispatchers and coordinator", || ports(&network).len() == 3);
    let sockets = inside(&network.near, "ss", &["-Htln"]).output().unwrap();
    let listening = text(&sockets.stdout);
    assert_eq!((listening.lines().count(), listening.matches("127.0.0.1:").count()), (5, 2), "{listening}");
    File::create(place.path().join("gate")).unwrap();
    let result = end(child);
    for block in valid_blocks(&result) {
        let backends = block["cluster"]["backends"].as_array().unwrap();
        let passed: u64 = backends.iter().map(|backend| backend["connections"].as_u64().unwrap()).sum();
        assert_eq!(block["connections"], passed);
    }
    let cell = |policy: &str| {
        let cells = result["cells"].as_array().unwrap().iter();
        cells.clone().find(|cell| cell["policy"] == policy).unwrap_or_else(|| panic!("no cell of {policy}"))
    };
    for policy in ["round-robin", "session"] {
        let offered = number(&cell(policy)["offered_percent"]["value"]);
        assert!((75.0..=80.5).contains(&offered), "{policy}: {offered} %");
    }
    assert!(number(&cell("session")["accepted_percent_of_offered"]["value"]) > 99.0, "{result}");
    let placed = result["manifest"]["hardware"]["cluster"].as_str().unwrap_or_default();
    assert!(placed.contains("load by 2 workers") && placed.contains("addresses of their workers"), "{placed}");

    for (more, words) in [
        ("--policies source-address", "policy source-address decides by clients' addresses"),
        ("--policies session --behind-one-address 50", "--behind-one-address"),
        ("--policies session --cert rsa-1024", "below 2048 bits"),
        ("--policies session --address 10.99.0.9", "no address of this machine"),
    ] {
        let flags = format!("cluster --workers 2 {more}");
        let child = begin(&network, place.path(), &flags.split_whitespace().collect::<Vec<_>>());
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{more}: {said}");
    }
}
