//! `tlsdyno run stacks` on the stacks that every machine for tests has.

use serde_json::{Deserializer, Value};

use super::{FULL, RESUMED, interval_us};
use crate::place::{self, Place};

const NAMES: [&str; 3] = ["nginx/installed", "haproxy/installed", "lighttpd/openssl"];

#[test]
fn stacks_stand_beside_each_other_with_each_certificate() {
    let place = Place::new();
    let few = format!("extends = \"stacks\"\n[stacks]\nonly = {NAMES:?}\n");
    std::fs::write(place.path().join("few.toml"), few).unwrap();
    let run = |time_s: &str| -> Value {
        let output = place.run(&["run", "few.toml", "--time", time_s, "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Deserializer::from_slice(&output.stdout).into_iter::<Value>().map(Result::unwrap).collect()
    };
    let servers = |sheet: &Value| sheet["cost"]["servers"].as_array().unwrap().clone();
    let is_complete = |sheets: &Value| {
        let sheets = sheets.as_array().unwrap();
        sheets.iter().flat_map(servers).all(|server| server["unmeasured"].is_null())
    };
    let sheets = place::given_time(60, run, is_complete);
    assert_eq!(sheets.as_array().unwrap().len(), 2);
    for (sheet, key) in sheets.as_array().unwrap().iter().zip(["p-256", "rsa-2048"]) {
        let servers = servers(sheet);
        let named: Vec<&str> = servers.iter().map(|server| server["name"].as_str().unwrap()).collect();
        assert_eq!(named, NAMES);
        for (server, program) in servers.iter().zip(["nginx/", "HAProxy", "lighttpd/"]) {
            assert!(server["about"].as_str().unwrap().starts_with(program), "{server:#}");
            let negotiated = server["negotiated"].as_str().unwrap();
            assert_eq!(negotiated, "1.3 TLS_AES_128_GCM_SHA256 X25519", "{server:#}");
            let [full, resumed] = [FULL, RESUMED].map(|part| interval_us(&server["parts"], part));
            assert!(full[1] > resumed[0] / 2.0, "{server:#}");
            let steps = server["steps"].as_array().unwrap();
            assert!(!steps.iter().any(|step| step["step"].as_str().unwrap().contains("TLS 1.2")), "{server:#}");
        }
        assert!(sheet["question"].as_str().unwrap().ends_with(key), "{}", sheet["question"]);
        assert!(sheet["answer"].as_str().unwrap().contains("A, nginx/installed"), "{}", sheet["answer"]);
        let report = std::fs::read_to_string(place.path().join(format!("report-{key}.html"))).unwrap();
        assert!(NAMES.iter().all(|name| report.contains(name)));
    }
    // One that is not there is no shorter table, but told.
    std::fs::write(place.path().join("few.toml"), "extends = \"stacks\"\n[stacks]\nonly = [\"nginx/aws-lc\"]\n")
        .unwrap();
    let output = place.tlsdyno(&["run", "few.toml"]).env("XDG_CACHE_HOME", place.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("not built or installed: nginx/aws-lc; `tlsdyno stacks`"), "{said}");
}

/// One that cannot be measured takes nothing from the others.
#[test]
fn a_stack_that_does_not_start_is_left_out_and_told() {
    let place = Place::new();
    let broken = "title = \"broken\"\nprograms = { sh = \"dash\" }\n[server]\nversion = \"echo 1\"\n\
                  command = \"sh -c 'exit 3' {port} {key}\"\n";
    std::fs::write(place.path().join("broken.toml"), broken).unwrap();
    let with = |names: &str| format!("extends = \"stacks\"\n[stacks]\ncertificates = [\"p-256\"]\nonly = {names}\n");
    std::fs::write(place.path().join("two.toml"), with("[\"broken.toml\", \"nginx/installed\"]")).unwrap();
    std::fs::write(place.path().join("one.toml"), with("[\"broken.toml\"]")).unwrap();
    let output = place.run(&["run", "two.toml", "--time", "10", "--json", "--no-report"]);
    let sheet: Value = serde_json::from_slice(&output.stdout).unwrap();
    let servers = sheet["cost"]["servers"].as_array().unwrap();
    assert!(servers.len() == 1 && servers[0]["name"] == "nginx/installed", "{servers:?}");
    assert!(sheet["warnings"].to_string().contains("broken was left out"), "{}", sheet["warnings"]);
    let output = place.run(&["run", "one.toml", "--time", "10", "--no-report"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("none of these servers can be measured"), "{said}");
}
