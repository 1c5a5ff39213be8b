//! Every experiment in the repository can be read, and the smoke experiments run from end to end.

use std::path::{Path, PathBuf};
use std::process::Command;

use tlsdyno::kinds;
use tlsdyno::kinds::files::find;
use tlsdyno::model::{ConfigurationModel, Experiment, SessionCache};
use tlsdyno_tls::{Stage, StageSet};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments").join(name)
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
        let experiment = find(&path);
        let experiment = experiment.unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
        assert!(experiment.question().ends_with('?'), "{}: the question is no question", path.display());
    }
}

#[test]
fn smoke_experiments_run_from_end_to_end() {
    for path in files("smoke") {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tlsdyno"));
        command.arg("run").arg(&path).arg("--json").current_dir(place.path());
        let output = command.env("TLSDYNO_STORE", place.path().join("store.sqlite")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", path.display());
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        check_result(&result, &path);
        let report = std::fs::read_to_string(place.path().join("report.html")).unwrap();
        assert!(report.contains("</html>"), "{}: no report", path.display());
    }
}

fn check_result(result: &serde_json::Value, path: &Path) {
    let place = path.display();
    let experiment = read(path);
    let configurations = result["configurations"].as_array().unwrap();
    // The reference of slices may be one more.
    let named: Vec<&str> = configurations.iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(experiment.configurations.iter().all(|model| named.contains(&model.name.as_str())), "{place}: {named:?}");
    for configuration in configurations {
        assert_eq!(configuration["valid"], true, "{place}: {configuration}");
        for key in ["server_cpu_ns_per_hit", "client_cpu_ns_per_hit"] {
            assert!(configuration[key].as_f64().is_some_and(|ns| ns > 0.0), "{place}: {key} of {configuration}");
        }
        // A busy machine may have no time for the last block of all.
        let hits_per_second = &configuration["hits_per_second"];
        assert!(hits_per_second.is_null() || hits_per_second.as_f64() > Some(0.0), "{place}: {configuration}");
    }
    let as_is = configurations.iter().find(|configuration| configuration["kind"] == "as_is").unwrap();
    assert!(as_is["handshakes_full"].as_u64().unwrap() > 0, "{place}");
    assert!(as_is["handshakes_resumed"].as_u64().unwrap() > 0, "{place}");
    for metric in ["cpu", "throughput"] {
        let shares = result["shares"].as_array().unwrap().iter().filter(|share| share["metric"] == metric);
        let percents: Vec<f64> = shares.map(|share| share["percent"].as_f64().unwrap()).collect();
        let sum: f64 = percents.iter().sum();
        assert!(percents.is_empty() || (sum - 100.0).abs() < 0.01, "{place}: shares by {metric} sum to {sum} %");
    }
    let answered =
        |table: &str| result[table].as_array().unwrap().iter().filter(|answer| !answer["ratio"].is_null()).count();
    assert_eq!(answered("comparisons"), experiment.comparisons.len(), "{place}");
    assert_eq!(answered("remedies"), experiment.remedies.len(), "{place}");
    assert_eq!(result["paper"].is_null(), experiment.paper.is_none(), "{place}");
}

fn read(path: &Path) -> Experiment {
    kinds::find(path, "one server").unwrap()
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
        let published = then.paper.expect("the paper's numbers").hits_per_s;
        assert_eq!(published.len(), 15, "one row for each bar");
        assert!(published.values().all(|numbers| !numbers[0].is_nan() && !numbers[1].is_nan()), "the 2002 figures");
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
