//! Slices on every server: all stage sets in one process, the same work in each, and nothing lost.

use crate::place;

use std::collections::{BTreeMap, BTreeSet};

use place::Place;
use tlsdyno::kinds::ablation::summary::{Share, Shares};
use tlsdyno::model::{Experiment, Method};
use tlsdyno::report::Style;
use tlsdyno::stats::Metric;
use tlsdyno::stats::rounds::Rounds;
use tlsdyno::store::warning::code;
use tlsdyno::store::{Record, Store};
use tlsdyno_lab::KINDS;

/// Runs a short ablation with slices and gives its record.
fn measured(server: &str, time: &str, more: &[&str]) -> Record {
    let place = Place::new();
    let mut arguments =
        vec!["ablate", "--server", server, "--time", time, "--until", "0", "--seed", "7", "--no-report"];
    arguments.extend(more);
    arguments.push("--json");
    place::measured(&place.run(&arguments));
    Store::open_for_reading_at(&place.path().join("store.sqlite")).unwrap().load("last").unwrap()
}

/// In every sweep all configurations did the same, and the counters were as they had to be.
fn check(record: &Record, what: &str, reference: &str) {
    let host = record.configurations.iter().position(|one| one.name == reference);
    let host = host.unwrap_or_else(|| panic!("{what}: no reference"));
    for configuration in &record.configurations {
        let alone = ["as is", "plain HTTP", reference, "perfect session cache"].contains(&configuration.name.as_str());
        assert_eq!(configuration.host_number.is_none(), alone, "{what}: {}", configuration.name);
        assert!(configuration.valid && configuration.host_number.is_none_or(|number| number == host), "{what}");
    }
    let mut work: BTreeMap<u32, BTreeMap<usize, BTreeSet<(u32, u32)>>> = BTreeMap::new();
    for block in record.blocks.iter().filter(|block| block.valid) {
        assert!(block.errors.is_empty(), "{what}: {:?}", block.errors);
        let told: Vec<String> = block.warnings.iter().map(ToString::to_string).collect();
        assert!(block.slices.is_empty() || told.is_empty(), "{what}: {told:?}");
        for slice in &block.slices {
            let full = if record.configurations[block.configuration].tls { slice.handshakes_full } else { 0 };
            let of_sweep = work.entry(slice.sweep_number).or_default();
            of_sweep.entry(block.configuration).or_default().insert((slice.hits, full));
            assert!(slice.server_cpu_ns > 0 && slice.hits > 0, "{what}: {slice:?}");
            assert!(serde_json::to_string(slice).unwrap().len() <= 64);
        }
    }
    let is_told = record.warnings.iter().any(|warning| warning.code == code::MISSED);
    assert!(!work.is_empty() || is_told, "{what}: no sweep");
    for (sweep, of_sweep) in &work {
        assert_eq!(of_sweep.len(), record.configurations.len(), "{what}: sweep {sweep}");
        let tls = of_sweep.iter().filter(|(index, _)| record.configurations[**index].tls);
        // A minimal set-up has no handshakes.
        let tls = tls.filter(|(index, _)| record.configurations[**index].name != "no connection setup");
        let different: BTreeSet<(u32, u32)> = tls.flat_map(|(_, done)| done).copied().collect();
        assert_eq!(different.len(), 1, "{what}: sweep {sweep}: hits and full handshakes {different:?}");
    }
}

fn stage_sets_take_turns_in_one_process(servers: &[&str], time_s: &str) {
    let stages = ["--stages", "authentication,cipher,kdf,marshalling,setup", "--reuse", "50%", "--cert", "p-256"];
    place::at_once(servers, |server| check(&measured(server, time_s, &stages), server, "nothing off"));
}

#[test]
fn stage_sets_take_turns_in_one_process_of_a_server() {
    stage_sets_take_turns_in_one_process(&["nginx", "builtin"], "4");
}

#[test]
fn the_papers_suite_and_users_with_sessions_are_sliced_too() {
    check(&measured("nginx", "4", &["--tls", "1.2", "--suite", "AES128-SHA"]), "classic", "nothing off");
}

/// Shares of the stages that a server computes twice, per cent.
fn doubled(server: &str, time_s: &str) -> Vec<f64> {
    let stages = ["--method", "doubling", "--stages", "authentication,cipher,mac,kdf", "--reuse", "50%"];
    let record = measured(server, time_s, &stages);
    check(&record, server, "nothing doubled");
    let experiment = record.kind_part.of::<Experiment>().unwrap();
    assert_eq!(experiment.methods, [Method::Doubling]);
    assert!(record.configurations.iter().all(|one| one.noop.is_empty()), "{server}: nothing is replaced");
    let shares = Shares::of(&Rounds::of(&record));
    let steps: Vec<&Share> = shares.by(Metric::Cpu).filter(|share| share.is_step()).collect();
    let names: Vec<&str> = steps.iter().map(|share| share.stage.as_str()).collect();
    assert!(names.is_empty() || names == ["authentication", "record_protection", "kdf"], "{server}: {names:?}");
    let text = KINDS.terminal_text(&record, Style { rich: false, width: 1_000 }).unwrap();
    assert!(text.contains("Doubling measures CPU time, not latency"), "{server}: {text}");
    steps.iter().map(|share| share.percent).collect()
}

#[test]
fn stages_are_computed_twice_in_one_process() {
    assert!(doubled("nginx", "4").iter().all(|percent| percent.is_finite()));
}

#[test]
fn what_cannot_be_doubled_is_refused_with_what_can() {
    let place = Place::new();
    for stages in ["marshalling", "cipher"] {
        let output = place.tlsdyno(&["ablate", "--method", "doubling", "--stages", stages]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("cipher,mac together"), "{said}");
    }
}

#[test]
fn whoever_wants_blocks_only_gets_them() {
    let record = measured("nginx", "2", &["--slice", "0", "--stages", "kdf"]);
    assert!(record.blocks.iter().all(|block| block.slices.is_empty()));
    assert!(record.configurations.iter().all(|one| one.host_number.is_none() && one.name != "nothing off"));
}

mod long {
    use super::*;

    #[test]
    #[ignore = "minutes, with every server: make test-long"]
    fn stage_sets_take_turns_in_one_process_of_every_server() {
        stage_sets_take_turns_in_one_process(&["apache", "apache-prefork", "haproxy", "lighttpd"], "8");
    }

    /// An RSA-2048 signature in every second hit is most of what a hit costs.
    #[test]
    #[ignore = "verdicts on a quiet machine, with every server: make test-long"]
    fn one_counts_what_computing_twice_adds() {
        for server in ["nginx", "haproxy", "builtin"] {
            let [authentication, records, kdf] = doubled(server, "12")[..] else { panic!("{server}") };
            assert!((15.0..85.0).contains(&authentication), "{server}: {authentication} %");
            assert!(records < authentication && kdf < authentication, "{server}: {records} % and {kdf} %");
        }
    }
}
