//! Labels are for people: nothing is found by them.

use std::cell::Cell;

use serde_json::Value;
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::random::SplitMix64;
use tlsdyno_base::verdict::Direction;
use tlsdyno_record::store::{Block, Configuration, KindPart};

use super::part_id::{PartId, Stretch};
use super::*;

thread_local! {
    /// Replaces every label on this thread.
    pub static IS_REWORDED: Cell<bool> = const { Cell::new(false) };
}

/// Two servers, the second dearer, with the rounds of all their steps.
fn record() -> Record {
    record_of(&["127.0.0.1:1", "127.0.0.1:2"])
}

/// Servers, each dearer than the one before.
fn record_of(addresses: &[&str]) -> Record {
    let mut record = Record::begun_now("What does it cost?", 1);
    let mut random = SplitMix64::new(7);
    let server = |address: &str| Measured {
        address: address.to_owned(),
        accounting: "processes".to_owned(),
        steps: Step::all(Version::Tls13, &["/large".to_owned()], true),
        whole: StepId::whole(Version::Tls13, false).to_string(),
        ..Measured::default()
    };
    let servers: Vec<Measured> = addresses.iter().copied().map(server).collect();
    let steps: Vec<&Step> = servers.iter().flat_map(|of| &of.steps).collect();
    for step in &steps {
        record.configurations.push(Configuration::setting(&step.name, true, Vec::new()));
    }
    // No two steps cost the same.
    for (round, configuration) in (0..8).flat_map(|round| (0..steps.len()).map(move |step| (round, step))) {
        let cost_ns = (50_000.0 + 10_000.0 * configuration as f64) * (1.0 + 0.01 * random.normal());
        let server_cpu_ns = (40.0 * cost_ns) as u64;
        let of_round = Block { round, configuration, server_cpu_ns, valid: true, ..Block::default() };
        record.blocks.push(Block { hits: 40, connections: 40, elapsed_ns: 1_000_000, ..of_round });
    }
    let experiment = CostExperiment::default();
    Record { finished: true, kind_part: KindPart::from(CostRecord { experiment, servers }), ..record }
}

/// Of parts, differences and steps, each with its part.
fn numbers(record: &Record) -> [Vec<(Option<PartId>, Estimate)>; 3] {
    let summary = CostSummary::of(record).unwrap();
    let parts = summary.servers.iter().flat_map(|of| &of.parts).map(|part| (Some(part.id.clone()), part.cost_ns));
    let differences = summary.differences.iter().map(|of| (Some(of.id.clone()), of.cost_ns));
    let steps = summary.servers.iter().flat_map(|of| &of.steps).map(|step| (None, step.cost_ns));
    [parts.collect(), differences.collect(), steps.collect()]
}

/// With another label for every step.
fn reworded(record: &Record) -> Record {
    fn reword(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let is_label = ["name", "whole", "question"].contains(&name.as_str());
                    match value {
                        Value::String(text) if is_label => *text = format!("reworded {}", text.len()),
                        value => reword(value),
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(reword),
            _ => {}
        }
    }
    let mut written = serde_json::to_value(record).unwrap();
    reword(&mut written);
    serde_json::from_value(written).unwrap()
}

#[test]
fn another_label_for_everything_changes_no_number() {
    let record = record();
    let told = numbers(&record);
    assert!(told[0].len() > 50 && told[1].len() > 25 && told[2].len() > 70, "{told:?}");
    let sheet = page::document(&record, &CostSummary::of(&record).unwrap());
    let other = reworded(&record);
    assert_eq!(numbers(&other), told, "labels in the record");
    IS_REWORDED.set(true);
    let with_other_labels = [numbers(&record), numbers(&other)];
    let summary = CostSummary::of(&record).unwrap();
    let (sheet_then, answer) = (page::document(&record, &summary), page::answer(&summary));
    IS_REWORDED.set(false);
    assert_eq!(with_other_labels, [told.clone(), told], "labels of the program");
    assert!(answer.contains("REWORDED: FULL HANDSHAKE"), "{answer}");
    let rows = |document: &Document| document.sections.iter().map(|section| section.parts.len()).collect::<Vec<_>>();
    assert_eq!(rows(&sheet), rows(&sheet_then));
}

#[test]
fn a_step_keeps_its_fields_on_disk_and_refuses_others() {
    let step = &Step::all(Version::Tls13, &[], false)[5];
    let written = serde_json::to_value(step).unwrap();
    let wanted = json!({
        "name": "TLS 1.3, hello without a usable signature, P-384", "version": "1.3", "lack": "signatures",
        "group": "P-384", "suite": null, "signer": null, "compressed": false, "resumes": null, "reach": "refused",
        "page": "", "more_requests": 0, "is_choice": true,
    });
    assert_eq!(written, wanted);
    let read = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let mut fields = wanted.as_object().unwrap().clone();
        change(&mut fields);
        serde_json::from_value::<Step>(Value::Object(fields)).map_err(|error| error.to_string())
    };
    // Records of old have no such field.
    assert_eq!(read(&|fields| drop(fields.remove("compressed"))), Ok(step.clone()));
    let unknown = read(&|fields| drop(fields.insert("graoup".to_owned(), Value::Null))).unwrap_err();
    assert!(unknown.contains("graoup"), "{unknown}");
}

#[test]
fn each_server_stands_beside_the_first() {
    let record = record_of(&["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]);
    let summary = CostSummary::of(&record).unwrap();
    let tcp = PartId::stretch(Stretch::Accepting);
    // Each step of a server is this much dearer than the same one of the server before.
    let between_us = 10.0 * (record.configurations.len() / 3) as f64;
    for (label, times) in [("B", 1.0), ("C", 2.0)] {
        let line = summary.differences.iter().find(|of| of.server == label && of.id == tcp).unwrap();
        let us = line.cost_ns.value / 1e3;
        assert!(line.direction == Direction::Bigger && (us / (times * between_us) - 1.0).abs() < 0.1, "{line:?}");
    }
    // All parts but that are alike.
    let answer = page::answer(&summary);
    assert!(answer.contains("beside that not told apart: B ") && answer.contains(", C "), "{answer}");
    let titles = |wanted: &str| {
        let sections = page::document(&record, &summary).sections;
        sections.iter().filter(|section| section.title.starts_with(wanted)).count()
    };
    assert_eq!([titles("B beside A"), titles("C beside A"), titles("What handshakes cost each server")], [1, 1, 1]);
}

#[test]
fn files_and_records_of_old_name_one_other_server_without_a_list() {
    let read = |text: &str| toml::from_str::<CostExperiment>(&format!("question = \"?\"\n[cost]\n{text}"));
    let one = read("url = \"https://127.0.0.1:1/\"\nagainst = \"https://127.0.0.1:2/\"\nagainst_pid = 7").unwrap();
    assert_eq!((one.cost.against.len(), &*one.cost.against_pid), (1, &[7][..]));
    let two = read(
        "url = \"https://127.0.0.1:1/\"\nagainst = [\"https://127.0.0.1:2/\", \"https://127.0.0.1:3/\"]\n\
         against_pid = [7]",
    );
    let refused = two.unwrap().check().unwrap_err().to_string();
    assert!(refused.contains("for each --against"), "{refused}");
}
