//! Weeks in virtual time: the paper's numbers come out of real servers behind played networks.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::place::Place;
use super::stderr;

fn run(place: &Place, experiment: &str) -> (Value, String) {
    let all =
        ["run", experiment, "--server", "builtin", "--time", "2", "--seed", "3", "--report", "report.html", "--json"];
    let output = place.run(&all);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = std::fs::read_to_string(place.path().join("report.html")).unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), page)
}

fn number(site: &Value, name: &str) -> f64 {
    site["numbers"][name]["value"].as_f64().unwrap_or_else(|| panic!("{name} of {site}"))
}

/// The least times that Goldberg et al. name, and a page of four images, which is ours: near the ends
/// of the paper's "15 to 50 %"; and what a round trip less is worth today.
#[test]
fn the_papers_tables_come_out_of_real_servers() {
    let place = Place::new();
    let (sites, page) = run(&place, "goldberg-1998-tables");
    let saved = |site: usize| number(&sites[site], "sum_of_medians_saved_percent");
    let ms = |site: usize, name: &str| number(&sites[site], name) / 1e6;
    // On a quiet machine 43 and 14; what a busy one adds to the servers' times moves them.
    assert!((38.0..58.0).contains(&saved(0)) && (11.0..28.0).contains(&saved(1)), "{} {}", saved(0), saved(1));
    for (name, least) in [("tcp_ns", 10.0), ("full_ns", 40.0), ("resumed_ns", 10.0), ("whole_ns", 20.0)] {
        assert!(ms(0, name) > 0.98 * least, "{name}: {} ms", ms(0, name));
    }
    assert!(ms(0, "tcp_ns") < 12.0, "{} ms", ms(0, "tcp_ns"));
    // A full handshake takes a round trip more than a resumed one in TLS 1.2, and as many in 1.3.
    let trips = |site: usize| (ms(site, "full_ns") - ms(site, "resumed_ns")) / ms(site, "tcp_ns");
    assert!(trips(2) > 0.9 && trips(3) < trips(2) - 0.7, "{} {}", trips(2), trips(3));
    for site in sites.as_array().unwrap() {
        assert_eq!((&site["made_count"], &site["missed_count"]), (&(14 * 144).into(), &0.into()), "no drift");
        assert!(site["accepted_percent"]["value"].as_f64() == Some(100.0), "{site}");
    }
    assert!(sites[4]["faults"].as_object().is_some_and(|faults| !faults.is_empty()), "{}", sites[4]);
    assert!(page.contains("days of virtual time") && page.contains("cloud-0"), "the page shows it");
}

#[test]
fn the_figures_have_their_weeks() {
    let place = Place::new();
    for (experiment, rounds) in [("goldberg-1998-fig1", 21 * 144), ("goldberg-1998-fig2", 42 * 144)] {
        let (sites, page) = run(&place, experiment);
        assert!(sites.as_array().unwrap().iter().all(|site| site["made_count"] == rounds), "{experiment}");
        assert!(page.contains("histogram-0") && page.contains("beyond ") && page.contains("series-0"), "{experiment}");
    }
}

/// What a robot at ten sites leaves that makes a round a minute: a month with all single rounds, and a year with those
/// of the last week. The time of a report is that of a release build.
#[test]
#[ignore = "plays 5,688,000 rounds: minutes of a release build"]
fn months_of_ten_sites_are_small_and_quickly_told() {
    for (days, keep, bytes_max) in [(30, "800h", 120e6), (365, "168h", 200e6)] {
        let place = Place::new();
        let site = |number: u32| {
            format!(
                "[[probe.site]]\nname = \"https://site-{number}.example/\"\n\
                 network = {{ all = {{ delay = \"{}ms\", jitter_ratio = 0.3, loss_percent = 0.5 }} }}\n",
                5 + 5 * number
            )
        };
        let text = format!(
            "question = \"What does a session save?\"\n[probe]\nevery = \"1m\"\ndays = {days}\n\
             keep_rounds = \"{keep}\"\nstore = \"kept.sqlite\"\n{}[measure]\ntime_s = 5.0\n",
            (0..10).map(site).collect::<String>()
        );
        std::fs::write(place.path().join("sites.toml"), text).unwrap();
        let output = place.run(&["run", "sites.toml", "--no-report", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let sites: Value = serde_json::from_slice(&output.stdout).unwrap();
        for site in sites.as_array().unwrap() {
            assert_eq!((&site["made_count"], &site["missed_count"]), (&(days * 1440).into(), &0.into()), "no drift");
        }
        let bytes = std::fs::metadata(place.path().join("kept.sqlite")).unwrap().len();
        let began = Instant::now();
        let report = place.run(&["probe", "report", "--store", "kept.sqlite", "--html", "report.html"]);
        let took = began.elapsed();
        assert_eq!(report.status.code(), Some(0), "{}", stderr(&report));
        println!("{days} days: {} MB, a report takes {took:?}", bytes / 1_000_000);
        assert!((bytes as f64) < bytes_max, "{bytes} bytes");
        assert!(cfg!(debug_assertions) || took < Duration::from_secs(1), "{took:?}");
    }
}
