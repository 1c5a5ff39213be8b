//! Connection profiles of Mraz et al. 2002, Figure 2, by files that start their server themselves.

use crate::place::{self, Place};

use serde_json::Value;

fn json(place: &Place, arguments: &[&str]) -> Value {
    place::measured(&place.run(arguments))
}

/// Sessions that begin together, and staggered ones.
fn aligned_and_staggered(place: &Place) -> Value {
    let mine =
        "extends = \"mraz-2002-fig2-continuous\"\n[load]\nsession-lifetime = \"1500ms\"\n[measure]\ntime_s = 14.0\n";
    std::fs::write(place.path().join("mine.toml"), mine).unwrap();
    json(place, &["run", "mine.toml", "--json"])
}

#[test]
fn aligned_and_staggered_renewals_are_told_side_by_side() {
    let place = Place::new();
    let result = aligned_and_staggered(&place);
    let runs = result["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run["url"].as_str().unwrap()).collect();
    assert_eq!(names, ["not staggered", "staggered"]);
    assert!(result["surges_full_per_second"][0].as_f64() > Some(0.0), "{result}");
    for run in runs {
        let lives = run["lives"].as_array().unwrap();
        assert!(lives.len() >= 8 && lives.iter().all(|life| life["resumed"] != true), "{lives:?}");
    }
    let page = std::fs::read_to_string(place.path().join("report.html")).unwrap();
    for part in ["surges", "connections-1", "connections-2", "Full handshakes per second, over time"] {
        assert!(page.contains(part), "{part}");
    }
}

/// The server's lifetime ends sessions too, and what it cannot do is refused.
#[test]
fn sessions_end_when_the_server_forgets_them() {
    let place = Place::new();
    let mine = "extends = \"mraz-2002-fig2-server-lifetime\"\n[server]\ntls = { session_timeout_s = 1 }\n\
                [load]\nconnections = 3\n[sweep]\npause = [\"const:100ms\", \"const:2500ms\"]\n\
                [measure]\ntime_s = 8.0\n";
    let path = place.path().join("mine.toml");
    std::fs::write(&path, mine).unwrap();
    let result = json(&place, &["run", "mine.toml", "--json", "--no-report"]);
    let runs = result["runs"].as_array().unwrap();
    let of = |run: &Value, name: &str| run["handshakes"][name].as_u64().unwrap();
    assert!(of(&runs[0], "resumed_accepted") > 0, "{}", runs[0]["handshakes"]);
    assert_eq!(of(&runs[1], "resumed_accepted"), 0, "{}", runs[1]["handshakes"]);
    let refused = |line: &str, words: &str| {
        std::fs::write(&path, format!("{mine}{line}")).unwrap();
        let output = place.run(&["run", "mine.toml", "--no-report"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{said}");
    };
    refused("[curve]\n", "leave out `[curve]`");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "paces on a quiet machine: make test-long"]
    fn aligned_renewals_come_in_surges_and_staggered_ones_do_not() {
        let place = Place::new();
        let result = aligned_and_staggered(&place);
        let runs = result["runs"].as_array().unwrap();
        assert!(result["surges_full_per_second"][0].as_f64().unwrap() > 7.0, "{result}");
        // Full handshakes in the fullest second after the first, in which all clients come; slices are half as long.
        let fullest = |run: &Value| {
            let slices = run["slices"].as_array().unwrap().iter().skip(2);
            let full: Vec<u64> = slices.map(|slice| slice["handshakes_full"].as_u64().unwrap()).collect();
            full.windows(2).map(|pair| pair.iter().sum::<u64>()).max().unwrap()
        };
        assert_eq!(fullest(&runs[0]), 8, "eight clients renew together: {}", runs[0]["slices"]);
        assert!(fullest(&runs[1]) <= 7, "{}", runs[1]["slices"]);
    }
}
