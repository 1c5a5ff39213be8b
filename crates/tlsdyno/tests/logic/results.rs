//! What people and programs read: the terminal text, the JSON object, the CSV.

use crate::{questions, synthetic};

use std::collections::BTreeSet;

use serde_json::Value;
use synthetic::Synthetic;
use tlsdyno::report::{Style, csv};
use tlsdyno::store::Record;
use tlsdyno_lab::KINDS;

fn record() -> Record {
    Record { id: "3fd1c07a92e4".to_owned(), ..Synthetic::default().record() }
}

#[test]
fn the_terminal_answers_first() {
    let record = record();
    let plain = KINDS.terminal_text(&record, Style::PLAIN).unwrap();
    let answer = plain.lines().find(|line| line.starts_with("  Authentication costs most: ")).expect("the answer");
    assert!(answer.contains(" % [") && answer.contains("of this server's CPU per hit."), "{answer}");
    assert!(plain.find("Authentication costs most") < plain.find("cost of"));
    assert!(
        plain.contains("plain HTTP")
            && plain.contains("undecided")
            && plain.contains("warning: something else than the server")
    );
    assert!(!plain.contains('\x1b'), "no escape sequences outside a terminal");
    assert!(plain.lines().all(|line| line.chars().count() <= Style::PLAIN.width), "{plain}");
    assert!(plain.contains("`tlsdyno report 3fd1c07a92e4`"));
    let rich = KINDS.terminal_text(&record, Style { rich: true, width: 100 }).unwrap();
    assert!(rich.contains('\x1b') && rich.contains('█'));
}

#[test]
fn close_calls_are_not_called() {
    let mut record = Synthetic { noise: 0.25, ..Synthetic::default() }.record();
    record.blocks.retain(|block| block.round < 5);
    let text = KINDS.terminal_text(&record, Style::PLAIN).unwrap();
    assert!(text.contains("undecided"), "{text}");
}

/// The keys of an object, and of the objects in it, as `a.b[].c`.
fn keys(value: &Value, at: &str, all: &mut BTreeSet<String>) {
    match value {
        // Maps whose keys are data, not fields, count as one.
        Value::Object(_)
            if ["errors", "latency_ns", "server_config", "seeds", "kind"].iter().any(|map| at.ends_with(map)) => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{at}.{name}");
                keys(value, &path, all);
                all.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, &format!("{at}[]"), all)),
        _ => {}
    }
}

fn keys_of(value: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    keys(value, "", &mut all);
    all
}

#[test]
fn json_is_as_documented() {
    let document = include_str!("../../../../docs/FORMAT.md");
    let example = document.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let documented: Value = serde_json::from_str(example).expect("the documented example is JSON");
    let mut record = record();
    record.configurations[2].role = tlsdyno::store::Role::Loaded;
    record.blocks.iter_mut().for_each(|block| block.pace_ps = 60_000);
    let printed: Value = serde_json::from_str(&KINDS.json_text(&record).unwrap()).expect("JSON");
    let mut all = keys_of(&printed);
    for record in [questions::record(6, 0.01), questions::accelerators(6, 0.01), questions::setup_and_data(6, 0.01)] {
        let printed: Value = serde_json::from_str(&KINDS.json_text(&record).unwrap()).expect("JSON");
        all.extend(keys_of(&printed));
    }
    let documented = keys_of(&documented);
    let differences: Vec<&String> = documented.symmetric_difference(&all).collect();
    assert!(differences.is_empty(), "in the page or in the output, but not in both: {differences:?}");
}

#[test]
fn json_holds_what_it_promises() {
    let record = record();
    let printed: Value = serde_json::from_str(&KINDS.json_text(&record).unwrap()).expect("JSON");
    let shares = printed["shares"].as_array().expect("shares");
    assert_eq!(shares.len(), 2 * 9);
    for metric in ["cpu", "throughput"] {
        let of_metric: Vec<&Value> = shares.iter().filter(|share| share["metric"] == metric).collect();
        let stages: Vec<&str> = of_metric.iter().map(|share| share["stage"].as_str().expect("stage")).collect();
        let expected: Vec<&str> =
            synthetic::STAGES.iter().map(|(stage, _)| *stage).chain(["other_tls", "plain_http"]).collect();
        assert_eq!(stages, expected);
        let sum: f64 = of_metric.iter().map(|share| share["percent"].as_f64().expect("number")).sum();
        assert!((sum - 100.0).abs() < 1e-9);
        assert!(
            of_metric
                .iter()
                .all(|share| { ["resolved", "undecided"].contains(&share["verdict"].as_str().expect("verdict")) })
        );
    }
    assert_eq!(printed["configurations"][1]["noop"][0], "authentication");
    assert_eq!(printed["blocks"].as_array().expect("blocks").len(), record.blocks.len());
}

#[test]
fn an_interval_that_cannot_be_given_is_null() {
    let record = Synthetic { rounds: 1, ..Synthetic::default() }.record();
    let printed: Value = serde_json::from_str(&KINDS.json_text(&record).unwrap()).expect("JSON");
    assert!(printed["shares"][0]["low"].is_null() && printed["shares"][0]["percent"].is_f64());
}

#[test]
fn csv_has_one_line_per_block() {
    let record = record();
    let text = csv::blocks(&record);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), record.blocks.len() + 1);
    let columns = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == columns));
    let hits = lines[0].split(',').position(|name| name == "hits").expect("hits");
    assert_eq!(lines[1].split(',').nth(hits), Some("2400"));
    assert!(lines[2].starts_with("3fd1c07a92e4,0,no authentication,authentication,"));
}
