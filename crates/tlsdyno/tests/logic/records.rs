//! `tlsdyno list` and `tlsdyno report` as people run them.

use crate::synthetic;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use synthetic::Synthetic;
use tlsdyno::store::{Machine, Store, Warning, write_json};

/// Runs the program in `directory`, with its store there.
fn tlsdyno(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tlsdyno"))
        .args(arguments)
        .current_dir(directory)
        .env("TLSDYNO_STORE", directory.join("records.sqlite"))
        .output()
        .expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn assert_refused(output: &Output, exit: i32, says: &str) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{message}");
    assert!(message.contains(says) && message.lines().count() == 1 && output.stdout.is_empty(), "{message}");
}

#[test]
fn a_record_is_listed_and_shown_in_every_form() {
    let directory = tempfile::tempdir().expect("directory");
    let at = directory.path();
    let record = Synthetic { rounds: 5, ..Synthetic::default() }.record();
    let id = Store::open_at(&at.join("records.sqlite")).expect("store").begin(&record).expect("record");

    let list = text(&tlsdyno(at, &["list"]).stdout);
    assert!(list.lines().nth(1).is_some_and(|line| line.contains(&id) && line.contains("complete")), "{list}");
    let listed: Value = serde_json::from_str(&text(&tlsdyno(at, &["list", "--json"]).stdout)).expect("JSON");
    assert_eq!(listed[0]["blocks"], record.blocks.len());

    let shown = tlsdyno(at, &["report", &id[..6]]);
    assert!(shown.status.success() && text(&shown.stdout).contains("Authentication costs most"), "{shown:?}");
    let page = std::fs::read_to_string(at.join("report.html")).expect("report.html is the default");
    assert!(page.contains(&id) && page.contains("vega"));
    std::fs::remove_file(at.join("report.html")).expect("remove");

    let results: Value = serde_json::from_str(&text(&tlsdyno(at, &["report", "last", "--json"]).stdout)).expect("JSON");
    assert_eq!(results["id"], id);
    let lines = text(&tlsdyno(at, &["report", "--csv", "-o", "other.html"]).stdout).lines().count();
    assert_eq!(lines, record.blocks.len() + 1);
    assert!(at.join("other.html").exists() && !at.join("report.html").exists());
}

#[test]
fn two_ablations_are_compared_share_by_share() {
    let directory = tempfile::tempdir().expect("directory");
    let at = directory.path();
    let mut store = Store::open_at(&at.join("records.sqlite")).expect("store");
    let made = |seed| {
        let mut record = Synthetic { seed, rounds: 8, noise: 0.004, ..Synthetic::default() }.record();
        record.manifest.machine = Some(Machine::of_cpuinfo("flags: avx512ifma"));
        record
    };
    let [first, again, mut other] = [1, 2, 3].map(made);
    let mut unlike = again.clone();
    unlike.manifest.machine = Some(Machine::of_cpuinfo("flags: adx"));
    let no_kdf = other.configurations.iter().position(|of| of.name == "no kdf").expect("a stage");
    // The KDF costs about a third of a hit more there.
    let blocks = other.blocks.iter_mut().filter(|block| block.configuration == no_kdf);
    blocks.for_each(|block| block.server_cpu_ns = block.server_cpu_ns * 2 / 3);
    other.manifest.server_version = "nginx/1.99.0".to_owned();
    let all = [first, again, other, unlike].map(|record| store.begin(&record).expect("record"));
    let [first, again, other, unlike] = all;
    drop(store);
    let same = tlsdyno(at, &["compare", &first, &again, "--strict"]);
    let shown = text(&same.stdout);
    assert_eq!(same.status.code(), Some(11), "{shown}");
    assert!(shown.contains("No difference between the two is decided") && !shown.contains("differs"), "{shown}");
    let changed = tlsdyno(at, &["compare", &first, &other, "--json"]);
    assert_eq!(changed.status.code(), Some(0), "{changed:?}");
    let changed: Value = serde_json::from_slice(&changed.stdout).expect("JSON");
    let shares = changed["shares"].as_array().expect("shares");
    let told: Vec<&Value> = shares.iter().filter(|share| share["direction"] != "undecided").collect();
    let kdf = told.iter().find(|share| share["stage"] == "kdf");
    assert!(shares.len() > 8 && kdf.is_some_and(|share| share["direction"] == "bigger"), "{changed}");
    let cost = shares.iter().find(|share| share["stage"] == "cpu_per_hit_ns").expect("the cost of a hit");
    assert_eq!(cost["direction"], "undecided", "{changed}");
    assert!(changed["warnings"][0].as_str().is_some_and(|text| text.contains("the server differs")), "{changed}");
    let of_machines = text(&tlsdyno(at, &["compare", &first, &unlike, "--json"]).stdout);
    assert!(of_machines.contains("the machines differ (only the first has avx512ifma; only the second has adx)"));
    assert!(of_machines.contains("kdf") && !of_machines.contains("cpu_per_hit_ns"), "{of_machines}");
    assert_refused(&tlsdyno(at, &["compare", &first, &other, "--fail-if", "p99 > +5%"]), 2, "changes of loads");
}

#[test]
fn a_saved_file_is_shown_too() {
    let directory = tempfile::tempdir().expect("directory");
    let record = Synthetic { rounds: 5, ..Synthetic::default() }.record();
    write_json(&record, &directory.path().join("tlsdyno-1.json")).expect("file");
    let shown = tlsdyno(directory.path(), &["report", "tlsdyno-1.json", "--json"]);
    let results: Value = serde_json::from_str(&text(&shown.stdout)).expect("JSON");
    assert_eq!(results["question"], record.question);
}

/// Records of before control characters were refused, or made by hand, must not command the terminal that shows them.
#[test]
fn control_characters_of_an_old_record_are_shown_not_sent() {
    let directory = tempfile::tempdir().expect("directory");
    let at = directory.path();
    let mut record = Synthetic { rounds: 5, ..Synthetic::default() }.record();
    record.question = "What\u{1b}]0;title\u{7}?".to_owned();
    record.manifest.server_name = "'\u{1b}[31m' -c".to_owned();
    record.configurations[1].name = "no \u{1b}[2Jauthentication\r".to_owned();
    record.configurations[2].warnings = vec![Warning::new("preflight_failed", "log: \u{9b}31m")];
    Store::open_at(&at.join("records.sqlite")).expect("store").begin(&record).expect("record");
    let obeyed = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    let shown = |arguments: &[&str]| {
        let shown = text(&tlsdyno(at, arguments).stdout);
        assert!(!shown.replace("\r\n", "\n").contains(obeyed), "{arguments:?}: {shown:?}");
        shown
    };
    let list = shown(&["list"]);
    assert!(list.contains("What\\u{1b}]0;title\\u{7}?") && list.contains("'\\u{1b}[31m'"), "{list}");
    let report = shown(&["report", "last"]);
    assert!(report.contains("What\\u{1b}]0;title") && report.contains("\\u{9b}31m"), "{report}");
    assert!(shown(&["report", "last", "--csv"]).contains("no \\u{1b}[2Jauthentication\\r"));
}

#[test]
fn what_is_not_there_is_said() {
    let directory = tempfile::tempdir().expect("directory");
    let at = directory.path();
    let nothing = tlsdyno(at, &["list"]);
    assert!(nothing.status.success() && text(&nothing.stdout).contains("No records yet"), "{nothing:?}");
    assert!(!at.join("records.sqlite").exists(), "listing makes no store");
    assert_refused(&tlsdyno(at, &["report"]), 3, "there are no records");
    assert_refused(&tlsdyno(at, &["report", "absent.json"]), 3, "absent.json cannot be read");

    let record = Synthetic { rounds: 1, ..Synthetic::default() }.record();
    Store::open_at(&at.join("records.sqlite")).expect("store").begin(&record).expect("record");
    assert_refused(&tlsdyno(at, &["report", "nonsense"]), 3, "no record `nonsense`");
    assert_refused(
        &tlsdyno(at, &["report", "--output", "no/such/directory.html"]),
        1,
        "name another file with --output",
    );
    let usage = tlsdyno(at, &["report", "--json", "--csv"]);
    assert_eq!(usage.status.code(), Some(2));
}
