//! Tables of claims: made from what lies beside a page, and each of a paper's statements answered.

use std::path::{Path, PathBuf};

use tlsdyno::kinds::files::EMBEDDED;
use tlsdyno::model::PublishedNumber;
use tlsdyno::report::scoreboard::{Entry, splice};
use tlsdyno::stats::scoreboard::{Claim, Ours, Unit};
use tlsdyno::stats::{Estimate, Metric};

/// All pages below `folder`.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let all = entries.flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] });
    all.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

#[test]
fn tables_of_results_are_what_the_records_say() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut spliced = 0;
    for path in pages(&repository.join("results")) {
        let page = std::fs::read_to_string(&path).unwrap();
        if page.contains("<!-- scoreboard:") || page.contains("<!-- statements:") {
            let made = splice(&page, path.parent().unwrap()).unwrap();
            assert!(made == page, "run `tlsdyno scoreboard --splice {}`", path.display());
            spliced += 1;
        }
    }
    assert!(spliced > 0, "no page has such a table");
}

#[test]
fn what_stands_between_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let entry = r#"[{"record":"0123456789","experiment":"x","title":"Q?","paper":"P.","server":"nginx","from":"F.",
        "claims":[{"about":"a","paper":"2 times","range_of_unit":[1.5,2.5],"unit":"times",
        "ours":{"value":2.0,"low":1.9,"high":2.1,"metric":"cpu"},"fate":"stands"}]}]"#;
    let write = |text: &str| std::fs::write(folder.path().join("r.json"), text).unwrap();
    write(entry);
    let page = "before\n<!-- scoreboard: r.json -->\nold\n<!-- end -->\nafter\n";
    let made = splice(page, folder.path()).unwrap();
    assert!(made.contains("| A | 2 times | 2.00 times (CPU) [1.90, 2.10]: stands |"), "{made}");
    assert!(made.starts_with("before\n") && made.ends_with("<!-- end -->\nafter\n") && !made.contains("old"));
    assert_eq!(splice(&made, folder.path()).unwrap(), made, "twice is once");
    for wrong in ["nothing", "<!-- scoreboard: r.json -->", "<!-- scoreboard: r.json y --><!-- end -->"] {
        assert!(splice(wrong, folder.path()).is_err(), "{wrong}");
    }
    // A verdict that the interval does not give, and one of an interval without an end, are refused.
    for (from, to) in [("stands", "bigger"), ("\"high\":2.1", "\"high\":null")] {
        write(&entry.replace(from, to));
        assert!(splice(page, folder.path()).unwrap_err().to_string().contains("does not say"), "{from}");
    }
}

/// The table of section 3.13 from these, by row.
fn statements(entries: &[Entry]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("r.json"), serde_json::to_string(entries).unwrap()).unwrap();
    let made = splice("<!-- statements: r.json --><!-- end -->", folder.path()).unwrap();
    made.lines().filter(|line| line.starts_with('|')).skip(2).map(str::to_owned).collect()
}

#[test]
fn each_of_twelve_statements_is_answered_or_it_is_said_why_not() {
    let rows = statements(&[]);
    let of = |number: usize| rows.iter().filter(move |row| row.starts_with(&format!("| {number} |")));
    assert!((1..=12).all(|number| of(number).count() == 1) && of(13).count() == 0, "{rows:?}");
    assert!(rows.iter().all(|row| row.ends_with("| not judged |")), "{rows:?}");
    for row in rows.iter().filter(|row| row.contains("| no record of `coarfa-2006-")) {
        let about = row.split(" | ").nth(2).unwrap();
        let about = about.rsplit_once("? (").map_or(about.split(" (").next().unwrap(), |(question, _)| question);
        assert!(EMBEDDED.iter().any(|(_, text)| text.contains(about)), "no file asks `{about}`");
    }
}

#[test]
fn a_statement_about_all_cells_falls_with_one() {
    let entry = |experiment: &str, [value, half]: [f64; 2]| {
        let ours = Ours { estimate: Estimate { value, low: value - half, high: value + half }, metric: Metric::Cpu };
        let number = PublishedNumber::number(5.0);
        let claim = Claim::published("What does TLS take? (3.1)", number, Unit::Times, Some(ours));
        Entry {
            record: "0123456789".to_owned(),
            experiment: experiment.to_owned(),
            title: String::new(),
            paper: String::new(),
            server: "nginx".to_owned(),
            from: String::new(),
            claims: vec![claim],
        }
    };
    let first = |other: [f64; 2]| {
        statements(&[entry("coarfa-2006-fig7", [5.0, 0.1]), entry("coarfa-2006-fig8", other)]).remove(0)
    };
    assert!(first([5.0, 0.1]).ends_with("| stands |"), "{}", first([5.0, 0.1]));
    assert!(first([12.0, 1.0]).ends_with("| does not hold in 1 of 2 |"));
    assert!(first([9.0, 3.0]).ends_with("| undecided in 1 of 2 |"));
    assert!(first([5.0, f64::INFINITY]).ends_with("| undecided in 1 of 2 |"), "no verdict without an interval");
    // It is about both traces: one of them that stands is no verdict, one that falls is.
    let of_one = |ours: [f64; 2]| statements(&[entry("coarfa-2006-fig7", ours)]).remove(0);
    assert!(of_one([5.0, 0.1]).ends_with("stands<br>no record of `coarfa-2006-fig8` | not judged |"));
    assert!(of_one([12.0, 1.0]).ends_with("| does not hold in 1 of 1 |"));
    let other = statements(&[entry("mraz-2002-fig8", [5.0, 0.1])]).remove(0);
    assert!(other.ends_with("| not judged |") && !other.contains("mraz"), "{other}");
}
