//! `tlsdyno doctor --calibrate` from end to end, briefly: the result is kept, and later records carry it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn tlsdyno(place: &Path, arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tlsdyno"));
    let output =
        command.args(arguments).current_dir(place).env("TLSDYNO_STORE", place.join("store.sqlite")).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// Calibrates for so many seconds. `None`: a busy machine had too few rounds to evaluate.
fn calibrated(place: &Path, seconds: &str) -> Option<Value> {
    let calibrate = ["doctor", "--calibrate", "--time", seconds, "--server", "builtin", "--slices", "2ms", "--json"];
    let (done, result, said) = tlsdyno(place, &calibrate);
    if !done && said.contains("too few rounds were measured") {
        return None;
    }
    assert!(done, "{said}");
    let result: Value = serde_json::from_str(&result).unwrap();
    let injected: Vec<f64> = recovered(&result).iter().map(|one| one["injected_us"].as_f64().unwrap()).collect();
    assert_eq!(injected, [0.0, 20.0, 50.0, 200.0]);
    assert!(recovered(&result).iter().all(|one| one["measured_us"].is_f64()), "{result}");
    let alone = alone_us(&result);
    assert!(alone.len() == 3 && alone.iter().all(|us| us.is_finite()), "burns without a server: {alone:?}");
    // Where the pace can be sampled, it is told what it did for the differences.
    if let pace @ Value::Object(_) = &result["pace"] {
        let number = |key: &str| pace[key].as_f64().unwrap();
        assert!((0.0..=100.0).contains(&number("explained_percent")) && number("pace_spread_percent") > 0.0, "{pace}");
        assert!(number("spread_uncorrected_us") > 0.0, "{pace}");
    }
    for trial in result["slice_trials"].as_array().unwrap() {
        assert!(trial["half_width_us"].as_f64().unwrap() > 0.0 && trial["slice_us"].as_f64().unwrap() > 0.0, "{trial}");
    }
    Some(result)
}

fn recovered(result: &Value) -> &Vec<Value> {
    result["calibration"]["recovered"].as_array().unwrap()
}

/// What the burns come to without a server, microseconds.
fn alone_us(result: &Value) -> Vec<f64> {
    result["alone"].as_array().unwrap().iter().map(|one| one["measured_us"].as_f64().unwrap()).collect()
}

/// What a calibration finds, and the limit that reports tell of it, are judged on made-up records
/// (`logic/calibration.rs`).
#[test]
fn a_calibration_is_kept_and_later_records_carry_it() {
    let place = tempfile::tempdir().unwrap();
    let carried = || {
        let ablate = ["ablate", "--time", "2", "--stages", "kdf", "--json", "--no-report"];
        let (_, result, said) = tlsdyno(place.path(), &ablate);
        let result: Value = serde_json::from_str(&result).unwrap_or_else(|_| panic!("{said}"));
        result["manifest"]["calibration"].clone()
    };
    assert!(carried().is_null(), "never calibrated");
    let file = place.path().join("calibrations.json");
    match calibrated(place.path(), "4") {
        Some(result) => assert_eq!(carried(), result["calibration"]),
        None => assert!(!file.exists(), "there is nothing to keep"),
    }
}

#[test]
fn a_server_that_is_none_of_ours_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (done, _, said) = tlsdyno(place.path(), &["doctor", "--calibrate", "--server", "iis"]);
    assert!(!done && said.contains("builtin, nginx"), "{said}");
    let (done, _, said) = tlsdyno(place.path(), &["doctor", "--time", "3"]);
    assert!(!done && said.contains("--calibrate"), "{said}");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "a verdict of a minute on a quiet machine: make test-long"]
    fn burns_of_200_us_are_seen_and_shorter_slices_are_shorter() {
        let place = tempfile::tempdir().unwrap();
        let result = calibrated(place.path(), "30").expect("rounds enough");
        let alone = alone_us(&result);
        let slice_us = |at: usize| result["slice_trials"][at]["slice_us"].as_f64().unwrap();
        assert!(recovered(&result)[3]["measured_us"].as_f64() > Some(100.0), "{result}");
        assert!(alone.is_sorted() && alone[2] > 150.0, "{alone:?}");
        // The 2 ms that are tried are too short for the fewest users of a slice where these take longer.
        let hit_us = result["calibration"]["hit_us"].as_f64().unwrap();
        assert!(slice_us(1) < slice_us(0).max(12.0 * hit_us), "the default, and what was asked for: {result}");
    }
}
