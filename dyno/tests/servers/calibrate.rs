//! `tlsdyno doctor --calibrate` from end to end, briefly: known costs are seen, the result is kept, and later reports
//! carry it.

use std::path::Path;
use std::process::Command;

fn tlsdyno(place: &Path, arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tlsdyno"));
    let output =
        command.args(arguments).current_dir(place).env("TLSDYNO_STORE", place.join("store.sqlite")).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// Calibrates; whether it sees 200 µs for each handshake, at a server and without one.
fn sees_200_us(place: &Path, seconds: &str) -> bool {
    let calibrate = ["doctor", "--calibrate", "--time", seconds, "--server", "builtin", "--slices", "2ms", "--json"];
    let (done, result, said) = tlsdyno(place, &calibrate);
    assert!(done, "{said}");
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    let recovered = result["calibration"]["recovered"].as_array().unwrap();
    let alone: Vec<f64> =
        result["alone"].as_array().unwrap().iter().map(|one| one["measured_us"].as_f64().unwrap()).collect();
    assert_eq!(alone.len(), 3, "burns without a server: {alone:?}");
    let number = |index: usize, key: &str| recovered[index][key].as_f64().unwrap();
    let injected: Vec<f64> = (0..recovered.len()).map(|index| number(index, "injected_us")).collect();
    assert_eq!(injected, [0.0, 20.0, 50.0, 200.0]);
    // Where the pace can be sampled, it is told what it did for the differences.
    if let pace @ serde_json::Value::Object(_) = &result["pace"] {
        let number = |key: &str| pace[key].as_f64().unwrap();
        assert!((0.0..=100.0).contains(&number("explained_percent")) && number("pace_spread_percent") > 0.0, "{pace}");
        assert!(number("spread_uncorrected_us") > 0.0, "{pace}");
    }
    let lengths: Vec<f64> = result["slice_trials"].as_array().unwrap().iter().map(slice_us).collect();
    assert_eq!(lengths.len(), 2, "the default, and what was asked for: {lengths:?}");
    println!("{recovered:?} {alone:?} {lengths:?} {}", result["pace"]);
    number(3, "measured_us") > 100.0 && alone.is_sorted() && alone[2] > 150.0 && lengths[1] < lengths[0]
}

fn slice_us(trial: &serde_json::Value) -> f64 {
    assert!(trial["half_width_us"].as_f64().unwrap() > 0.0 && trial["sweeps_number"].as_u64().unwrap() > 3, "{trial}");
    trial["slice_us"].as_f64().unwrap()
}

#[test]
fn a_calibration_is_kept_and_later_reports_carry_its_limit() {
    let place = tempfile::tempdir().unwrap();
    let ablate = ["ablate", "--time", "2", "--stages", "kdf", "--json", "--no-report"];
    let (_, result, said) = tlsdyno(place.path(), &ablate);
    let result: serde_json::Value = serde_json::from_str(&result).unwrap_or_else(|_| panic!("{said}"));
    assert!(result["detection_limit_percent"].is_null(), "never calibrated");

    // On a machine that is busy with other things a few seconds may resolve nothing: then it is given more time, as a
    // user would.
    let seen = ["4", "8", "16"].iter().any(|seconds| sees_200_us(place.path(), seconds));
    assert!(seen, "200 µs are not seen beside a handshake of some hundred, or shorter slices are not shorter");
    assert!(place.path().join("calibrations.json").exists());

    let (_, result, said) = tlsdyno(place.path(), &ablate);
    let result: serde_json::Value = serde_json::from_str(&result).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(result["manifest"]["calibration"]["server"], "builtin");
    assert!(result["detection_limit_percent"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_server_that_is_none_of_ours_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (done, _, said) = tlsdyno(place.path(), &["doctor", "--calibrate", "--server", "iis"]);
    assert!(!done && said.contains("builtin, nginx"), "{said}");
    let (done, _, said) = tlsdyno(place.path(), &["doctor", "--time", "3"]);
    assert!(!done && said.contains("--calibrate"), "{said}");
}
