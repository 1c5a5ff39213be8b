//! `tlsdyno profile primitives` from the command line to the record and the reports, on a real server's OpenSSL.

use serde_json::Value;
use tlsdyno::store::Store;
use tlsdyno_lab::KINDS;

use crate::place::Place;

fn value(of: &Value) -> f64 {
    of["value"].as_f64().unwrap_or_else(|| panic!("{of}"))
}

/// Sizes, records and `openssl speed` of one cipher, two hashes and a primitive of the legacy provider.
#[test]
fn primitives_of_a_servers_own_openssl_are_measured_by_size() {
    let place = Place::new();
    let flags = ["--algorithms", "aes-128-gcm,hmac-sha256,sha1,rc4", "--sizes", "8,4096", "--server", "nginx"];
    let arguments = ["profile", "primitives", "--time", "8", "--seed", "3", "--no-report", "--json"];
    let output = place.tlsdyno(&[&arguments[..], &flags].concat()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = &printed["primitives"];
    assert!(of["libcrypto"].as_str().unwrap().contains("libcrypto.so"), "{of}");
    let algorithms = of["algorithms"].as_array().unwrap();
    assert_eq!(algorithms.len(), 4, "{of}");
    for algorithm in algorithms {
        let rates: Vec<f64> =
            algorithm["bare"].as_array().unwrap().iter().map(|size| value(&size["mbit_per_s"])).collect();
        assert!(rates.len() == 2 && rates.iter().all(|rate| *rate > 1.0), "{algorithm}");
        // Whether larger blocks are faster is a fact of the processor.
        let call = &algorithm["call_ns"];
        assert!(call.is_null() || value(call) > 0.0, "{algorithm}");
    }
    let record = &of["records"][0];
    let around_ns = value(&record["record_ns"]) - value(&record["bare_ns"]);
    assert!(value(&record["bare_ns"]) > 0.0 && around_ns.is_finite(), "{record}");
    let checks = of["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 4, "{of}");
    for check in checks {
        // How far the two are apart is for a quiet machine: other tests run beside them.
        assert!(value(&check["theirs_mbit_per_s"]) > 1.0 && check["difference_percent"]["value"].is_f64(), "{check}");
    }
    let record = Store::open_for_reading_at(&place.path().join("store.sqlite")).unwrap().load("last").unwrap();
    let again: Value = serde_json::from_str(&KINDS.json_text(&record).unwrap()).unwrap();
    assert_eq!(again["primitives"], printed["primitives"], "the record holds what was printed");
    assert!(KINDS.html(&record).unwrap().contains("primitives-throughput"));
}

#[test]
fn what_cannot_be_measured_is_refused_by_name() {
    let place = Place::new();
    for (flags, word) in [
        (&["--sizes", "0,8"][..], "--sizes"),
        (&["--sizes", "64,8"], "ascend"),
        (&["--algorithms", "rot13"], "known are"),
    ] {
        let output = place.tlsdyno(&[&["profile", "primitives"], flags].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(word), "{flags:?}: {said}");
    }
}
