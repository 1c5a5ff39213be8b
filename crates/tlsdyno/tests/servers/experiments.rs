//! Every experiment in the repository can be read, and the smoke experiments run from end to end.

use std::path::{Path, PathBuf};

use tlsdyno::kinds::ablation::{Ablation, AblationExperiment};
use tlsdyno::kinds::files::find;
use tlsdyno::model::{ConfigurationModel, Experiment, PublishedNumber, Quantity, SessionCache};
use tlsdyno_lab::KINDS;
use tlsdyno_tls::{Stage, StageSet};

use crate::place::{self, Place, is_positive_or_null};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(name)
}

fn files(name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    assert!(!files.is_empty(), "experiments/{name} is empty");
    files
}

#[test]
fn every_experiment_of_the_repository_is_sound() {
    for path in ["bases", "papers", "modern", "smoke"].iter().flat_map(|name| files(name)) {
        let experiment = find(KINDS.0, &path);
        let experiment = experiment.unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
        assert!(experiment.question().ends_with('?'), "{}: the question is no question", path.display());
    }
}

#[test]
fn smoke_experiments_run_from_end_to_end() {
    place::at_once(files("smoke"), |path| {
        let place = Place::new();
        let output = place.run(&["run", path.to_str().unwrap(), "--json"]);
        check_result(&place::measured(&output), &path);
        let report = std::fs::read_to_string(place.path().join("report.html")).unwrap();
        assert!(report.contains("</html>"), "{}: no report", path.display());
    });
}

fn check_result(result: &serde_json::Value, path: &Path) {
    let place = path.display();
    let experiment = read(path);
    let configurations = result["configurations"].as_array().unwrap();
    // The reference of slices may be one more.
    let named: Vec<&str> = configurations.iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(experiment.configurations.iter().all(|model| named.contains(&model.name.as_str())), "{place}: {named:?}");
    for configuration in configurations {
        for number in ["/server_cpu_ns_per_hit/value", "/client_cpu_ns_per_hit", "/hits_per_second/value"] {
            let found = configuration.pointer(number).unwrap();
            assert!(is_positive_or_null(found), "{place}: {number} of {configuration}");
        }
    }
    let as_is = configurations.iter().find(|configuration| configuration["kind"] == "as_is").unwrap();
    let number = |key: &str| as_is[key].as_u64().unwrap();
    assert!(number("handshakes_full") + number("handshakes_resumed") > 0 || number("hits") == 0, "{place}: {as_is}");
    for metric in ["cpu", "throughput"] {
        let shares = result["shares"].as_array().unwrap().iter().filter(|share| share["metric"] == metric);
        let percents: Vec<f64> = shares.filter_map(|share| share["percent"].as_f64()).collect();
        let sum: f64 = percents.iter().sum();
        assert!(percents.is_empty() || (sum - 100.0).abs() < 0.01, "{place}: shares by {metric} sum to {sum} %");
    }
    for (table, asked) in [("comparisons", experiment.comparisons.len()), ("remedies", experiment.remedies.len())] {
        let answers = result[table].as_array().unwrap();
        assert_eq!(answers.len(), asked, "{place}: {table}");
        assert!(answers.iter().all(|answer| is_positive_or_null(&answer["ratio"]["times"])), "{place}: {answers:?}");
    }
    assert_eq!(result["paper"].is_null(), experiment.paper.is_none(), "{place}");
}

fn read(path: &Path) -> Experiment {
    tlsdyno::kinds::find::<AblationExperiment>(&[&Ablation], path, "one server").unwrap().0
}

/// The stages off in a configuration, as the paper's setting has them: with static RSA there is no key agreement.
fn stages_then(configuration: &ConfigurationModel) -> StageSet {
    configuration.noop.iter().filter(|stage| *stage != Stage::KeyAgreement).collect()
}

/// The paper's own configurations: not those beside them, nor what they are on machines.
fn of_paper(experiment: &Experiment) -> impl Iterator<Item = &ConfigurationModel> {
    experiment.configurations.iter().filter(|of| of.base.is_none() && of.label.is_some())
}

#[test]
fn figures_7_and_8_are_the_papers_fifteen_configurations_and_have_their_modern_twins() {
    for (then, now) in [("coarfa-2006-fig7", "coarfa-fig7"), ("coarfa-2006-fig8", "coarfa-fig8")] {
        let then = read(&folder("papers").join(format!("{then}.toml")));
        let now = read(&folder("modern").join(format!("{now}.toml")));
        assert_eq!(of_paper(&then).count(), 15);
        assert_eq!(then.configurations.len(), (15 + 2) * (1 + 3), "with RSA-2048, and on three machines");
        let labels = |experiment: &Experiment| -> Vec<String> {
            of_paper(experiment).map(|of| of.label.clone().expect("the paper's name")).collect()
        };
        assert_eq!(labels(&then), labels(&now));
        for (then, now) in of_paper(&then).zip(of_paper(&now)) {
            assert_eq!(then.noop, stages_then(now), "{}", then.name);
            let keys = [Stage::Authentication, Stage::KeyAgreement].map(|stage| now.noop.contains(stage));
            assert_eq!(keys[0], keys[1], "{}: public keys go together", now.name);
            assert_eq!(then.tls.session_cache, now.tls.session_cache, "{}", then.name);
            let both = [then, now].map(|of| (of.accelerator.is_some(), of.plain_http));
            assert_eq!(both[0], both[1], "{}", then.name);
        }
        let published = &then.paper.expect("the paper's numbers").numbers[&Quantity::HitsPerS];
        assert_eq!(published.len(), 15, "one row for each bar");
        assert!(
            published.values().flat_map(|numbers| &numbers[..2]).all(PublishedNumber::is_known),
            "the 2002 figures"
        );
    }
}

/// The labels say what is off in the paper's words (legend of Figure 7); the stages must say the same.
#[test]
fn the_papers_labels_and_our_stages_say_the_same() {
    for name in ["coarfa-2006-fig7", "coarfa-2006-fig8"] {
        let experiment = read(&folder("papers").join(format!("{name}.toml")));
        for configuration in of_paper(&experiment) {
            let label = configuration.label.as_deref().expect("the paper's name");
            let stages = configuration.noop;
            let says = |word: &str| label.split(", ").any(|part| part == word);
            let off = |stage| stages.contains(stage);
            if label.starts_with("Skeleton") {
                assert!(off(Stage::Handshake) && off(Stage::Marshalling), "{label}");
            } else {
                // "no randomness (also: NULL, noMAC)".
                let none = says("no randomness");
                assert_eq!(off(Stage::Authentication), says("PKX"), "{label}");
                assert_eq!(off(Stage::Cipher), says("NULL") || none, "{label}");
                for stage in [Stage::Mac, Stage::Digest, Stage::Kdf] {
                    assert_eq!(off(stage), says("noMAC") || none, "{label}");
                }
                assert_eq!(off(Stage::Randomness), none, "{label}");
                assert_eq!(off(Stage::SessionCache), says("perfect cache"), "{label}");
                assert_eq!(off(Stage::Marshalling), says("plain"), "{label}");
            }
            assert_eq!(off(Stage::RoundTrip), says("fast resume"), "{label}");
            assert_eq!(configuration.tls.session_cache == Some(SessionCache::Off), says("no cache"), "{label}");
        }
    }
}
