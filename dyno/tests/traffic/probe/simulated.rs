//! Weeks in virtual time: the paper's numbers come out of real servers behind played networks.

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

/// The robot's floor and a page of four images: the two ends of the paper's "15 to 50 %"; and what a round trip less is
/// worth today.
#[test]
fn the_papers_tables_come_out_of_real_servers() {
    let place = Place::new();
    let (sites, page) = run(&place, "goldberg-1998-tables");
    let saved = |site: usize| number(&sites[site], "sum_of_medians_saved_percent");
    let ms = |site: usize, name: &str| number(&sites[site], name) / 1e6;
    // Handshakes with the servers of today take a millisecond beside the network, and some more on a busy machine.
    assert!((42.0..52.0).contains(&saved(0)) && (13.0..23.0).contains(&saved(1)), "{} {}", saved(0), saved(1));
    for (name, expected) in [("tcp_ns", 10.0), ("full_ns", 40.0), ("resumed_ns", 10.0), ("whole_ns", 20.0)] {
        assert!((0.99..1.5).contains(&(ms(0, name) / expected)), "{name}: {} ms", ms(0, name));
    }
    // A full handshake takes two round trips in TLS 1.2 and one in 1.3, and a resumed one takes one.
    let trips = |site: usize| (ms(site, "full_ns") - ms(site, "resumed_ns")) / ms(site, "tcp_ns");
    assert!((trips(2) - 1.0).abs() < 0.3 && trips(3).abs() < 0.3, "{} {}", trips(2), trips(3));
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
        assert!(page.contains("histogram-0") && page.contains("beyond") && page.contains("series-0"), "{experiment}");
    }
}
