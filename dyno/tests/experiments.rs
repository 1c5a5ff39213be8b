//! Every experiment in the repository can be read, and the smoke experiments run from end to end.

use std::path::{Path, PathBuf};
use std::process::Command;

use tlsdyno::experiment::model::Experiment;

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
    for path in ["papers", "modern", "smoke"].iter().flat_map(|name| files(name)) {
        let text = std::fs::read_to_string(&path).unwrap();
        let experiment = Experiment::from_toml(&text, path.parent().unwrap());
        let experiment = experiment.unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
        assert!(experiment.question.ends_with('?'), "{}: the question is no question", path.display());
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
    let configurations = result["configurations"].as_array().unwrap();
    assert_eq!(configurations.len(), 3, "{}", path.display());
    for configuration in configurations {
        assert_eq!(configuration["valid"], true, "{}: {configuration}", path.display());
        for key in ["hits_per_second", "server_cpu_ns_per_hit", "client_cpu_ns_per_hit"] {
            assert!(configuration[key].as_f64().unwrap() > 0.0, "{}: {key} of {configuration}", path.display());
        }
    }
    assert!(configurations[0]["handshakes_full"].as_u64().unwrap() > 0, "{}", path.display());
    assert!(configurations[0]["handshakes_resumed"].as_u64().unwrap() > 0, "{}", path.display());
    for metric in ["cpu", "throughput"] {
        let shares = result["shares"].as_array().unwrap().iter().filter(|share| share["metric"] == metric);
        let sum: f64 = shares.map(|share| share["percent"].as_f64().unwrap()).sum();
        assert!((sum - 100.0).abs() < 0.01, "{}: shares by {metric} sum to {sum} %", path.display());
    }
}
