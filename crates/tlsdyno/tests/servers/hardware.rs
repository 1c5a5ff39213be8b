//! Emulated hardware on nginx from end to end: an accelerator, a slower processor under a quota, CPU time burnt.

use crate::place;

use std::process::Output;

use place::Place;

const EXPERIMENT: &str = r#"
question = "What does emulated hardware do?"
[server]
kind = "nginx"
[tls]
certificate = "p-256"
[workload]
kind = "url"
path = "/object"
bytes = 1000
users = 2000
requests_per_user = 1
[load]
reuse_percent = 0.0
[measure]
time_s = 3
seed = 1
[[configuration]]
name = "as is"
[[configuration]]
name = "half a processor"
processors = { speed = 0.5 }
[[configuration]]
name = "accelerator"
accelerator = { engines = 2, operation_us = 200.0 }
[[configuration]]
name = "burn"
burn_us = 300.0
"#;

fn run(experiment: &str) -> Output {
    let place = Place::new();
    std::fs::write(place.path().join("experiment.toml"), experiment).unwrap();
    place.run(&["run", "experiment.toml", "--json", "--no-report"])
}

/// What an experiment that is refused says.
fn refused(experiment: &str) -> String {
    let output = run(experiment);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    said
}

/// Whether this machine lets us limit CPU time; where it does not, the error must say so.
fn has_quotas() -> bool {
    tlsdyno::servers::quota::Quota::set(0.5, None).is_ok()
}

#[test]
fn accelerator_quota_and_burn_pass_their_checks_and_are_described() {
    if !has_quotas() {
        let said = refused(EXPERIMENT);
        return assert!(said.contains("controller `cpu`"), "{said}");
    }
    let result = place::measured(&run(EXPERIMENT));
    let configurations = result["configurations"].as_array().unwrap();
    assert_eq!(configurations.len(), 4);
    let cpu_ns = |index: usize| configurations[index]["server_cpu_ns_per_hit"]["value"].as_f64();
    // Of each hit 300 us are burnt, whatever else the machine does.
    assert!(cpu_ns(3).is_none_or(|ns| ns > 200_000.0), "{result}");
    let hardware = &result["manifest"]["hardware"];
    assert!(hardware["half a processor"].as_str().unwrap().contains("a quota of 0.500 CPUs"), "{hardware}");
    assert!(hardware["accelerator"].as_str().unwrap().contains("2 x 200.0 us"), "{hardware}");
    assert!(hardware["burn"].as_str().unwrap().contains("300.0 us of CPU time burnt"), "{hardware}");
}

/// Without control groups a slow processor cannot be had: that row is left out and the others are measured. Where there
/// are no others, nothing is.
#[test]
fn without_control_groups_only_rows_with_a_quota_are_left_out() {
    let place = Place::new();
    let run = |experiment: &str| {
        std::fs::write(place.path().join("experiment.toml"), experiment).unwrap();
        let arguments = ["run", "experiment.toml", "--json", "--no-report"];
        let output = place.tlsdyno_without_control_groups(&arguments).output().unwrap();
        (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let [before, after] = EXPERIMENT.split("[[configuration]]\nname = \"accelerator\"").collect::<Vec<_>>()[..] else {
        panic!("the experiment has changed");
    };
    let burn = after.split("[[configuration]]").nth(1).unwrap();
    let remedy = "[[remedy]]\nname = \"a faster processor\"\nconfiguration = \"as is\"\nover = \"half a processor\"\n";
    let (code, result, said) = run(&format!("{before}[[configuration]]{burn}{remedy}"));
    assert_eq!(code, Some(8), "{said}");
    assert!(said.contains("\"half a processor\" failed: its CPU time can be limited"), "{said}");
    let result: serde_json::Value = serde_json::from_slice(&result).unwrap();
    let rows = result["configurations"].as_array().unwrap();
    let valid: Vec<bool> = rows.iter().map(|row| row["valid"] == true).collect();
    assert_eq!(valid, [true, false, true], "{result}");
    assert!(rows[1].to_string().contains("run as root, or inside `systemd-run"), "{result}");
    assert!(result["remedies"][0]["ratio"].is_null(), "{result}");
    let (code, _, said) = run(before);
    assert_eq!(code, Some(6), "{said}");
    assert!(said.contains("run as root, or inside `systemd-run") && !said.contains("checking: as is"), "{said}");
}

/// The preflight holds the provider's counter against the declaration: HAProxy must have gone on while the accelerator
/// worked.
#[test]
fn haproxy_goes_on_while_the_accelerator_works() {
    let [before, after] = EXPERIMENT.split("[[configuration]]\nname = \"half a processor\"").collect::<Vec<_>>()[..]
    else {
        panic!("the experiment has changed");
    };
    let accelerator = after
        .split("[[configuration]]")
        .nth(1)
        .unwrap()
        .replace("= 200.0", "= 200.0, asynchronous = true, batch = { operations_count = 4 }");
    let experiment = format!("{before}[[configuration]]{accelerator}");
    let said = refused(&experiment);
    assert!(said.contains("choose --server haproxy"), "{said}");
    let result = place::measured(&run(&experiment.replace("\"nginx\"", "\"haproxy\"")));
    assert_eq!(result["configurations"].as_array().unwrap().len(), 2, "{result}");
    let told = &result["manifest"]["hardware"]["accelerator"];
    assert!(told.as_str().unwrap().contains("batch of up to 4 private-key operations"), "{told}");
}

#[test]
fn hardware_that_makes_no_sense_is_refused_with_the_remedy() {
    for (from, to, expected) in [
        ("speed = 0.5", "speed = 1.5", "a part of a real processor"),
        ("engines = 2, operation_us = 200.0", "engines = 2", "one of `operation_us`"),
        ("engines = 2", "engines = 65", "expected 1 to 64"),
        ("= 200.0 }", "= 200.0, batch = { operations_count = 16 } }", "expects 2 to 15"),
        ("operation_us = 200.0 }", "cpu_rates = 2.0, batch = { operations_count = 4 } }", "the time of a batch"),
        ("burn_us = 300.0", "burn_us = -1.0", "microseconds of CPU time"),
        ("speed = 0.5", "count = 4000, speed = 0.5", "give it fewer"),
        ("burn_us = 300.0", "repeat_of = \"accelerator\"", "it is another setting"),
    ] {
        assert!(EXPERIMENT.contains(from));
        let said = refused(&EXPERIMENT.replace(from, to));
        assert!(said.contains(expected), "{to}: {said}");
    }
}
