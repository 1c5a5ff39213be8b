//! `--time` is a bound, whatever else the machine does.

use std::process::{Child, Command, Stdio};

use crate::place::Place;
use serde_json::Value;

/// A program that does nothing, and never rests; ended with the test.
struct Busy(Child);

impl Busy {
    fn start() -> Busy {
        Busy(Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "keeps both CPUs busy: make test-bounds"]
fn measuring_keeps_its_time_beside_two_busy_programs() {
    let place = Place::new();
    let _busy = [Busy::start(), Busy::start()];
    let arguments = ["ablate", "--stages", "authentication", "--time", "4", "--until", "0", "--json", "--no-report"];
    let output = place.tlsdyno(&arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let manifest = &result["manifest"];
    let [preparing_s, measuring_s] =
        ["preparing_ns", "measuring_ns"].map(|name| manifest[name].as_u64().unwrap() as f64 / 1e9);
    // Before the first result it may be 10 s; servers that get warm, and what else is under way, comes to its end.
    let most_s = if result["rounds"].as_u64() > Some(1) { 4.0 } else { 10.0 };
    assert!(measuring_s <= most_s + 4.0 && preparing_s > 0.0, "{measuring_s} s, {result:#}");
    let is_complete = output.status.success() || result["rounds"] == 0;
    assert!(is_complete && said.contains("for at most"), "{said}");
    let as_is = &result["configurations"][0];
    assert!(result["rounds"] == 0 || as_is["hits_per_full_handshake"].as_f64() > Some(1.0), "{as_is:#}");
}
