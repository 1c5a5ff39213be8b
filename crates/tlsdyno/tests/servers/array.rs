//! `tlsdyno array` from end to end on real proxies.

use crate::place;

use std::io::{BufRead, BufReader, Read};
use std::process::{Output, Stdio};

use place::{Place, is_positive_or_null};
use serde_json::Value;
use tlsdyno::process_tree;
use tlsdyno::servers::quota;

/// Machines of an array have quotas; where there can be none, that is what it says.
fn has_quotas(place: &Place) -> bool {
    if quota::require().is_ok() {
        return true;
    }
    let output = place.run(&["array", "--no-report"]);
    assert_eq!(output.status.code(), Some(6), "{}", String::from_utf8_lossy(&output.stderr));
    false
}

fn run(place: &Place, flags: &str) -> Output {
    place.run(&flags.split_whitespace().collect::<Vec<_>>())
}

fn json(place: &Place, flags: &str) -> Value {
    place::measured(&run(place, flags))
}

fn line<'a>(result: &'a Value, name: &str) -> &'a Value {
    let lines = result["lines"].as_array().unwrap();
    lines.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("no line {name}: {result}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The server alone and one HAProxy before it.
fn scaled(place: &Place, seconds: u32) -> Value {
    json(
        place,
        &format!("array --json --proxies 0,1 --reuse 0,90 --cert rsa-2048 --clients 4 --time {seconds} --seed 1"),
    )
}

/// Pages are scaled, and the parts of each block are its whole. What more reuse gains is judged on made-up records
/// (`crates/kinds/cluster/src/array/summary.rs`).
#[test]
fn pages_are_scaled_and_every_machine_is_accounted_for() {
    let place = Place::new();
    if !has_quotas(&place) {
        return;
    }
    let result = scaled(&place, 9);
    assert!(number(&result["scale"]["full_handshake_cpu_ns"]) > 1e5, "{}", result["scale"]);
    assert!(number(&result["pages_per_second"]) > 0.0, "{result}");
    for name in ["no proxy", "1 proxy"] {
        for level in line(&result, name)["levels"].as_array().unwrap() {
            assert!((0.0..=100.0).contains(&number(&level["achieved_percent"])), "{level}");
            assert!(is_positive_or_null(&level["hits_per_second"]["value"]), "{level}");
        }
    }
    for block in result["blocks"].as_array().unwrap() {
        let machines = block["cluster"]["backends"].as_array().unwrap();
        let used: u64 = machines.iter().map(|machine| machine["cpu_ns"].as_u64().unwrap()).sum();
        assert_eq!(block["server_cpu_ns"], used);
    }
    let report = std::fs::read_to_string(place.path().join("report.html")).unwrap();
    for part in ["array-throughput", "Half serving points", "Scale: a connection with a full handshake", "</html>"] {
        assert!(report.contains(part), "{part}");
    }
    let csv = String::from_utf8(run(&place, "report last --csv").stdout).unwrap();
    let columns: Vec<usize> = csv.lines().map(|line| line.replace(", ", ";").split(',').count()).collect();
    assert!(columns.len() > 5 && columns.iter().all(|count| *count == columns[0]), "{csv}");
    let list = String::from_utf8(run(&place, "list").stdout).unwrap();
    assert!(list.contains("haproxy"), "{list}");
}

/// Sessions that another proxy issued: own ticket keys lose them, shared keys and our dispatcher keep them.
#[test]
fn shared_keys_and_the_dispatcher_keep_sessions_that_own_keys_lose() {
    let place = Place::new();
    if !has_quotas(&place) {
        return;
    }
    let result = json(
        &place,
        "array --json --no-report --proxy nginx --proxies 3 --by connections --reuse 80 --cert rsa-2048 --clients 9 \
         --spread round-robin,shared-keys,dispatcher --pages-per-handshake 0 --transaction 300us --time 8 --seed 1",
    );
    let accepted = |spread: &str| {
        number(&line(&result, &format!("3 proxies, {spread}"))["levels"][0]["accepted_percent_of_offered"]["value"])
    };
    assert!(accepted("shared-keys") > 99.0, "{}", accepted("shared-keys"));
    assert!(accepted("dispatcher") > 97.0, "{}", accepted("dispatcher"));
    assert!(accepted("round-robin") < 70.0, "{}", accepted("round-robin"));
    let levels = ["round-robin", "shared-keys", "dispatcher"]
        .map(|spread| &line(&result, &format!("3 proxies, {spread}"))["levels"][0]);
    assert!(
        levels[0]["cpu_times"].is_null() && number(&levels[2]["dispatcher_cpu_ns_per_hit"]["value"]) > 1000.0,
        "{levels:?}"
    );
    assert!(levels.iter().all(|level| is_positive_or_null(&level["cpu_ns_per_hit"]["value"])), "{levels:?}");
    assert!(is_positive_or_null(&levels[1]["cpu_times"]["times"]), "{levels:?}");
    let answer = result["answer"].as_str().unwrap();
    assert!(
        ["round-robin", "shared-keys", "dispatcher"].iter().all(|spread| answer.contains(&format!("with {spread}"))),
        "{answer}"
    );
}

/// Private-key operations of proxies take place in an accelerator of each: the check of every proxy counts them.
#[test]
fn proxies_have_accelerators_and_go_on_meanwhile() {
    let place = Place::new();
    if !has_quotas(&place) {
        return;
    }
    let flags = "array --no-report --json --proxies 0,1,2 --reuse 50 --cert rsa-2048 --clients 4 --time 6 \
                 --pages-per-handshake 0 --transaction 1ms --accelerator";
    let result = json(&place, &format!("{flags} 2x300us,async"));
    for name in ["no proxy", "1 proxy", "2 proxies"] {
        assert!(is_positive_or_null(&line(&result, name)["levels"][0]["hits_per_second"]["value"]), "{result}");
    }
    let hardware = result["manifest"]["hardware"]["array"].as_str().unwrap();
    assert!(hardware.contains("in each proxy an emulated accelerator: 2 x 300.0 us"), "{hardware}");
    for (more, word) in [
        ("300us --proxy own", "haproxy or nginx"),
        ("300us,async --proxy nginx", "leave `async` out"),
        ("0x300us", "1 to"),
        ("fast", "--accelerator"),
    ] {
        let refused = run(&place, &format!("{flags} {more}"));
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(word), "{more}: {said}");
    }
}

/// stunnel connects to the server anew for each connection of a client; where it is missing, the remedy is told.
#[test]
fn a_proxy_that_is_missing_is_named_and_stunnel_serves() {
    let place = Place::new();
    if !has_quotas(&place) {
        return;
    }
    let flags = "array --no-report --json --proxy stunnel --proxies 1 --reuse 90 --clients 2 --time 2 --cert p-256 \
                 --pages-per-handshake 0 --transaction 1ms";
    let output = run(&place, flags);
    if output.status.code() == Some(6) {
        let said = String::from_utf8_lossy(&output.stderr);
        return assert!(said.contains("apt-get install stunnel4") && said.contains("--proxy"), "{said}");
    }
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(number(&line(&result, "1 proxy")["levels"][0]["hits_per_second"]["value"]) > 0.0, "{result}");
}

/// tlsdyno's own proxy, which is always there.
#[test]
fn the_own_proxy_serves_and_keeps_its_connections() {
    let place = Place::new();
    if !has_quotas(&place) {
        return;
    }
    let flags = "array --no-report --json --proxy own --proxies 1 --reuse 0,90 --clients 3 --time 6 --cert p-256 \
                 --pages-per-handshake 0 --transaction 1ms";
    let result = json(&place, flags);
    let levels = &line(&result, "1 proxy")["levels"];
    assert!(number(&levels[1]["hits_per_second"]["value"]) > 0.0, "{result}");
    // A block ends within the turns of its clients.
    assert!((number(&levels[1]["achieved_percent"]) - 90.0).abs() < 10.0, "{levels}");
    let refused = run(&place, "array --no-report --proxy own --proxies 2 --spread shared-keys --by connections");
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
}

/// The second proxy dies while its place is measured or is about to be: that place is marked, the others go on.
#[test]
fn a_proxy_that_dies_marks_its_place_and_the_rest_goes_on() {
    let place = Place::new();
    if !has_quotas(&place) {
        return;
    }
    let flags = "array --json --no-report --proxies 1,2 --reuse 50 --cert p-256 --clients 4 --time 12 \
                 --pages-per-handshake 0 --transaction 1ms";
    let mut command = place.tlsdyno(&flags.split_whitespace().collect::<Vec<_>>());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.lines().any(|line| line.starts_with("measuring ") && line.contains("in random order")) {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let masters: Vec<u32> = proxies_of(&place);
    assert_eq!(masters.len(), 2, "{masters:?}: {said}");
    // The last one started is the second proxy.
    place::kill(*masters.last().unwrap());
    stderr.read_to_string(&mut said).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.contains("\"2 proxies, 50 %\" was left out") && said.contains("proxy 2"), "{said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line(&result, "2 proxies")["levels"].as_array().unwrap().len(), 0, "{result}");
    assert_eq!(line(&result, "1 proxy")["levels"].as_array().unwrap().len(), 1, "{result}");
    assert_eq!(place.processes(), Vec::<String>::new());
}

/// HAProxy's masters in the order of their directories.
fn proxies_of(place: &Place) -> Vec<u32> {
    let path = place.path().to_str().unwrap();
    let mut found: Vec<(String, u32)> = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let line = process_tree::command_line(pid);
        let is_program = line.split_whitespace().next().is_some_and(|program| program.ends_with("haproxy"));
        let is_master = || {
            let parent = process_tree::stat(pid).map(|process| process.parent);
            parent.is_some_and(|parent| !process_tree::command_line(parent).contains("haproxy -"))
        };
        if is_program && line.contains(path) && is_master() {
            found.push((line, pid));
        }
    }
    found.sort();
    found.into_iter().map(|(_, pid)| pid).collect()
}

#[test]
fn files_and_flags_are_one_experiment_and_mistakes_are_named() {
    let place = Place::new();
    let printed = |arguments: &str| String::from_utf8(run(&place, arguments).stdout).unwrap();
    let by_run = printed("run mraz-2002-fig8 --print-experiment");
    let by_array = printed("array --config mraz-2002-fig8 --print-experiment");
    assert!(by_run == by_array && by_run.contains("Pentium"), "{by_run}\n{by_array}");
    std::fs::write(place.path().join("own.toml"), printed("array --proxies 1,2 --print-experiment")).unwrap();
    assert_eq!(printed("run own.toml --print-experiment"), printed("array --proxies 1,2 --print-experiment"));
    assert!(printed("run mraz-2002-fig8 --server nginx --print-experiment").contains("proxy = \"nginx\""));
    let far = "--workers 2 --launch x --address 127.0.0.2 --print-experiment";
    let by_array = printed(&format!("array --config mraz-2002-fig8 {far}"));
    assert_eq!(printed(&format!("run mraz-2002-fig8 {far}")), by_array);
    assert!(by_array.contains("address = \"127.0.0.2\"") && by_array.contains("[workers]"), "{by_array}");
    std::fs::write(place.path().join("far.toml"), &by_array).unwrap();
    assert_eq!(printed("run far.toml --print-experiment"), by_array);
    let refused = |arguments: &str, code: i32, words: &str| {
        let output = run(&place, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && said.contains(words), "{arguments}: {said}");
    };
    refused("array --proxies 2,1", 2, "ascend");
    refused("array --reuse 33", 2, "1.49 requests");
    refused("array --machine-cpus 0.01", 2, "less than 0.05; give --machine-cpus");
    refused("array --transaction cpu:1ms+wait:1ms", 2, "not both");
    refused("array --workers 20 --launch x", 2, "16 clients cannot be divided among 20 workers");
    refused("array --on host", 2, "--address 192.0.2.1");
    refused("array --address 127.0.0.1", 2, "--workers");
    refused("array --config apostolopoulos-2000-fig9", 3, "tlsdyno run apostolopoulos-2000-fig9");
    refused("run mraz-2002-fig8 --server apache", 2, "an array has proxies");
    refused("cluster --config mraz-2002-fig8", 3, "tlsdyno run mraz-2002-fig8");
}

mod long {
    use super::*;

    /// The counts give the reuse that was asked for, no machine exceeds its quota, and more reuse means more pages.
    #[test]
    #[ignore = "verdicts on a quiet machine: make test-long"]
    fn reuse_costs_what_was_scaled_and_quotas_hold() {
        let place = Place::new();
        if !has_quotas(&place) {
            return;
        }
        let result = scaled(&place, 30);
        let own = number(&result["pages_per_second"]);
        let plain = number(&result["plain"]["hits_per_second"]["value"]);
        assert!((0.5..1.1).contains(&(plain / own)), "{plain} of {own}");
        for name in ["no proxy", "1 proxy"] {
            let line = line(&result, name);
            let level = |at: usize| &line["levels"][at];
            let achieved = |at: usize| number(&level(at)["achieved_percent"]);
            // Where each page has a handshake, all clients' come in turns, and a block ends within one.
            assert!(achieved(0) < 10.0 && (achieved(1) - 90.0).abs() < 3.0, "{line}");
            let hits = |at: usize| number(&level(at)["hits_per_second"]["value"]);
            assert!(hits(1) > 2.0 * hits(0), "{line}");
            // 35 pages for each handshake, so that full handshakes alone make less than half.
            assert!(hits(0) < plain / 4.0, "{line}");
        }
        for block in result["blocks"].as_array().unwrap() {
            let most = 0.1 * 1.05 * number(&block["elapsed_ns"]) + 2e7;
            assert!(block["valid"] == true && number(&block["server_cpu_ns"]) < most, "{block}");
        }
    }
}
