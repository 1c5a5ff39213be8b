//! Machines of a paper, a card, servers side by side and pages of a stated cost, from end to end on real servers.

use crate::place;

use std::process::Output;

use place::{Place, is_positive_or_null};
use serde_json::Value;
use tlsdyno::servers::quota;

const MACHINES: &str = r#"
question = "What do machines change?"
machines = ["500", "2x1000"]
[server]
kind = "nginx"
[tls]
version = "1.2"
suite = "AES128-SHA"
certificate = "rsa-1024"
tickets = false
[load]
requests_per_connection = 1
[measure]
time_s = 18
seed = 1
[[configuration]]
name = "as is"
[[configuration]]
name = "no RSA"
noop = ["authentication"]
[[configuration]]
name = "perfect cache"
noop = ["session_cache"]
[[configuration]]
name = "accelerator"
accelerator = { card = "axl300" }
[[share]]
name = "RSA"
on = "as is"
off = "no RSA"
[[comparison]]
question = "What does the other machine bring?"
a = "as is, 500 MHz"
b = "as is, 2 x 1000 MHz"
published_times = [1.0, 10.0]
[paper]
source = "Nobody"
machines = ["500 MHz", "2 x 1000 MHz"]
[paper.hits_per_s]
"as is" = [10, 30]
"#;

fn run(place: &Place, experiment: &str, more: &[&str]) -> Output {
    std::fs::write(place.path().join("experiment.toml"), experiment).unwrap();
    place.run(&[&["run", "experiment.toml", "--json"], more].concat())
}

fn named<'a>(result: &'a Value, name: &str) -> &'a Value {
    let all = result["configurations"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}: {result}"))
}

#[test]
fn machines_share_a_server_and_have_their_quota_for_their_blocks_only() {
    let place = Place::new();
    let output = run(&place, MACHINES, &[]);
    if quota::require().is_err() {
        assert_eq!(output.status.code(), Some(8));
        let result = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(named(&result, "as is, 500 MHz")["valid"], false);
        return;
    }
    let result = place::measured(&output);
    let configurations = result["configurations"].as_array().unwrap();
    // The part of a processor that a configuration had over its blocks. A single block may have more than its quota:
    // what the machine's host takes away from a CPU counts as used, and is paid back in later periods.
    let cpus = |name: &str| {
        let is = |block: &&Value| configurations[block["configuration"].as_u64().unwrap() as usize]["name"] == name;
        let blocks = || result["blocks"].as_array().unwrap().iter().filter(is);
        let sum = |key: &str| blocks().map(|block| block[key].as_f64().unwrap()).sum::<f64>();
        sum("server_cpu_ns") / sum("elapsed_ns")
    };
    for base in ["as is", "no RSA", "perfect cache", "accelerator"] {
        for (machine, quota) in [("500 MHz", 0.2), ("2 x 1000 MHz", 0.8)] {
            let had = cpus(&format!("{base}, {machine}"));
            // A busy machine gives less, or has no block at all.
            assert!(had.is_nan() || had < 1.5 * quota, "{base}: {had} of a processor with a quota of {quota}");
        }
        assert!(is_positive_or_null(&named(&result, base)["server_cpu_ns_per_hit"]["value"]), "{result}");
        assert_eq!(named(&result, &format!("{base}, 500 MHz"))["base"], *base);
    }
    let cell = &result["machines"]["rows"][0]["machines"][1];
    assert_eq!(
        (cell["paper_hits_per_second"].as_f64(), result["machines"]["machines"][1].as_str()),
        (Some(30.0), Some("2 x 1000 MHz"))
    );
    assert_eq!(result["machines"]["shares"][0]["ours"][0]["stage"], "RSA", "{}", result["machines"]);
    assert!(is_positive_or_null(&result["claims"][0]["ours"]["value"]), "{}", result["claims"]);
    let hardware = &result["manifest"]["hardware"];
    assert!(hardware["as is, 500 MHz"].as_str().unwrap().contains("a quota of 0.200 CPUs"), "{hardware}");
    let page = std::fs::read_to_string(place.path().join("report.html")).unwrap();
    assert!(page.contains("On the paper") && page.contains("the paper"), "the report has a section of machines");
    assert!(is_positive_or_null(&result["machines"]["cpu_times"][0]["times"]), "{}", result["machines"]);
    assert!(is_positive_or_null(&result["moment"]["spread"]), "{}", result["moment"]);
    let output = place.tlsdyno(&["scoreboard", "last", "last", "--markdown"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("| What does the other machine bring? |"), "{said}");
    let heads = said.lines().find(|line| line.starts_with("| claim | the paper |")).unwrap();
    assert_eq!(heads.matches("nginx (").count(), 2, "side by side: {heads}");
}

#[test]
fn servers_stand_side_by_side_and_pages_cost_what_they_are_to() {
    let place = Place::new();
    let experiment = r#"
question = "Which server, and what do pages cost?"
[server]
kind = "builtin"
[measure]
time_s = 3
seed = 1
[load]
requests_per_connection = 1
[[configuration]]
name = "as is"
[[configuration]]
name = "dynamic pages"
page_cost_us = 2000.0
[[configuration]]
name = "nginx"
server = "nginx"
[[configuration]]
name = "lighttpd without TLS"
server = "lighttpd"
plain_http = true
"#;
    let result = place::measured(&run(&place, experiment, &["--no-report"]));
    let cpu_ns = |name: &str| &named(&result, name)["server_cpu_ns_per_hit"]["value"];
    // Pages burn 2 ms, whatever else the machine does.
    assert!(cpu_ns("dynamic pages").as_f64().is_none_or(|ns| ns > 1.5e6), "{result}");
    assert!(
        ["as is", "nginx", "lighttpd without TLS"].iter().all(|name| is_positive_or_null(cpu_ns(name))),
        "{result}"
    );
    let refused = |from: &str, to: &str, expected: &str| {
        let output = run(&place, &experiment.replace(from, to), &["--no-report"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{to}: {said}");
    };
    refused("kind = \"builtin\"", "kind = \"nginx\"", "`page_cost_us`");
    refused("server = \"lighttpd\"", "server = \"builtin\"", "names another server");
}
