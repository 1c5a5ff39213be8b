//! Records that revision 9f1388a wrote: today's program lists, shows and exports them with the same figures.
//!
//! Not compared: words of the terminal's prose and of `answer`, `warnings` and `what_changed` in JSON, for they are
//! written anew at each evaluation and may say the same better. Their figures are compared. JSON may have more fields
//! than it had, the list a column more. The expected JSON was written again, with the same figures, when a value and
//! the ends of its interval became one object. HTML is left out: it shows what JSON holds (`report_html.rs`).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::GzDecoder;
use serde_json::{Number, Value};
use tempfile::TempDir;

/// Names of the files that hold what the old program printed, and the records.
const RECORDS: [(&str, &str); 3] = [("ablate", "f434ca27a97c"), ("fig7", "f207e6b89872"), ("cluster", "686577c6dc94")];
/// Records of real runs of a few seconds, one of each kind that has a page of its own, as revision de728f7 wrote them.
const RECORDS_OF_EACH_KIND: [(&str, &str); 5] = [
    ("against", "165069a4777b"),
    ("array", "3713117d058a"),
    ("profile", "fb114392ed38"),
    ("reuse", "be275f9d5c87"),
    ("sweep", "af775e836ee4"),
];
/// Fields of JSON with texts that each evaluation writes.
const TEXTS: [&str; 4] = ["answer", "warnings", "what_changed", "paper"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logic/fixtures/records-9f1388a").join(name)
}

fn text_of(name: &str) -> String {
    std::fs::read_to_string(fixture(name)).expect(name)
}

fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(fixture(name)).expect(name)).read_to_end(&mut bytes).expect(name);
    bytes
}

/// A directory with a copy of the old store.
fn store() -> TempDir {
    let directory = tempfile::tempdir().expect("directory");
    std::fs::write(directory.path().join("records.sqlite"), unpacked("records.sqlite.gz")).expect("store");
    directory
}

fn printed(directory: &TempDir, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tlsdyno"));
    command.args(arguments).current_dir(directory.path());
    let output = command.env("TLSDYNO_STORE", directory.path().join("records.sqlite")).output().expect("it runs");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The page of the old cluster, whose table has more columns than any other.
pub fn page_of_cluster() -> String {
    let directory = store();
    printed(&directory, &["report", RECORDS[2].1, "--output", "cluster.html"]);
    std::fs::read_to_string(directory.path().join("cluster.html")).expect("page")
}

/// The pages of [`RECORDS_OF_EACH_KIND`].
pub fn pages() -> Vec<(&'static str, String)> {
    let directory = tempfile::tempdir().expect("directory");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logic/fixtures/records-of-each-kind.sqlite.gz");
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path).expect("fixture")).read_to_end(&mut bytes).expect("records");
    std::fs::write(directory.path().join("records.sqlite"), bytes).expect("store");
    let page = |(name, id)| {
        printed(&directory, &["report", id, "--output", "page.html"]);
        (name, std::fs::read_to_string(directory.path().join("page.html")).expect("page"))
    };
    RECORDS_OF_EACH_KIND.map(page).into()
}

/// The numbers in a text.
fn figures(text: &str) -> Vec<String> {
    let is_figure = |one: char| one.is_ascii_digit() || one == '.' || one == ',' || one == '-';
    let words = text.split(|one: char| !is_figure(one)).map(|word| word.trim_end_matches(['.', ',', '-']));
    words.filter(|word| word.contains(|one: char| one.is_ascii_digit())).map(str::to_owned).collect()
}

/// The text without the places of a ranking, which has other rules today, and without the lines for a session cache,
/// which were advised to a server that had one.
fn without_ranking(text: &str) -> String {
    let place = |line: &str| line.trim_start().split_once(". ").is_some_and(|(place, _)| place.parse::<u8>().is_ok());
    let of = |line: &str| match line.split_once(". ") {
        Some((_, rest)) if place(line) => rest.to_owned(),
        _ => line.to_owned(),
    };
    let is_kept = |line: &&str| !line.trim_start().starts_with("ssl_session_");
    text.lines().filter(is_kept).map(of).collect::<Vec<_>>().join("\n")
}

/// The lines of tables that hold figures.
fn lines_of_tables(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.trim().contains("  ") && !figures(line).is_empty()).collect()
}

/// A line as words. Bars are longer than they were, as the line has room.
fn words(line: &str) -> Vec<&str> {
    let is_bar = |word: &&str| word.chars().all(|one| one == '#');
    line.split_whitespace().filter(|word| !is_bar(word)).collect()
}

/// The lines of tables that hold figures, as words.
fn rows(text: &str) -> Vec<Vec<&str>> {
    lines_of_tables(text).into_iter().map(words).collect()
}

/// A number that no share can be is told otherwise today: what is known is told in its place.
fn is_told_otherwise(line: &str) -> bool {
    line.contains("not known") || line.contains("≤")
}

/// Fails for a figure of the old text that the new one has less often.
fn assert_figures_kept(new: &str, old: &str, of: &str) {
    let mut there = figures(new);
    for figure in figures(old) {
        let at = there.iter().position(|one| *one == figure);
        there.swap_remove(at.unwrap_or_else(|| panic!("{of}: {figure} is gone from\n{new}\nwhich was\n{old}")));
    }
}

/// Fails where `new` has not all that `old` has, at the same place.
fn assert_kept(new: &Value, old: &Value, at: &str) {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            for (name, value) in old {
                let at = format!("{at}.{name}");
                let new = new.get(name).unwrap_or_else(|| panic!("{at} is gone"));
                if TEXTS.contains(&name.as_str()) {
                    assert_figures_kept(&new.to_string(), &value.to_string(), &at);
                } else {
                    assert_kept(new, value, &at);
                }
            }
        }
        // In another order today.
        (Value::Array(new), Value::Array(old)) if at.ends_with(".remedies") => {
            assert_eq!(new.len(), old.len(), "{at}");
            for old in old {
                let new = new.iter().find(|new| new["name"] == old["name"]);
                assert_kept(new.unwrap_or_else(|| panic!("{old} is gone")), old, at);
            }
        }
        // A set of stages, which is written in the order of reports today.
        (Value::Array(new), Value::Array(old)) if at.ends_with(".several") || at.ends_with(".noop") => {
            let set = |names: &[Value]| names.iter().map(Value::to_string).collect::<BTreeSet<_>>();
            assert_eq!(set(new), set(old), "{at}");
        }
        // A remedy leaves the time of sessions as it is today.
        (Value::Array(new), Value::Array(old)) if at.ends_with(".configuration_lines") => {
            let is_gone = |line: &&Value| line.as_str().is_some_and(|line| line.starts_with("ssl_session_timeout"));
            assert!(old.iter().filter(|line| !is_gone(line)).eq(new), "{at}: {new:?}");
        }
        (Value::Array(new), Value::Array(old)) => {
            assert_eq!(new.len(), old.len(), "{at}");
            new.iter().zip(old).enumerate().for_each(|(index, (new, old))| {
                assert_kept(new, old, &format!("{at}[{index}]"));
            });
        }
        (Value::Number(new), Value::Number(old)) if is_rounded_alike(new, old) => {}
        _ => assert_eq!(new, old, "{at}"),
    }
}

/// The last bits of a number depend on the order in which it is computed.
fn is_rounded_alike(new: &Number, old: &Number) -> bool {
    new.as_f64().zip(old.as_f64()).is_some_and(|(new, old)| (new - old).abs() <= 1e-12 * old.abs())
}

#[test]
fn old_records_are_listed_as_they_were() {
    let store = store();
    let (new, old) = (printed(&store, &["list"]), text_of("list.txt"));
    let (new, old) = (rows(&new), rows(&old));
    assert_eq!(new.len(), old.len());
    for (new, old) in new.iter().zip(&old) {
        // Today's list has a column more.
        let mut rest = new.iter();
        assert!(old.iter().all(|word| rest.any(|other| other == word)), "{old:?} is not in {new:?}");
    }
    let json = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_kept(&json(&printed(&store, &["list", "--json"])), &json(&text_of("list.json")), "list");
}

#[test]
fn reports_of_old_records_hold_the_same_figures() {
    let store = store();
    for (name, id) in RECORDS {
        let (new, old) = (printed(&store, &["report", id]), text_of(&format!("{name}.txt")));
        // What the stages leave of TLS had the papers' name, and so had what is done for each record.
        let renamed = match name {
            "ablate" => old.replace("other TLS ", "rest of TLS "),
            _ => old.replace(" marshalling ", " record processing "),
        };
        // Claims of the paper were not judged one by one.
        let is_claim = |row: &Vec<&str>| ["claim", "Share"].contains(&row[0]);
        let kept: Vec<_> = lines_of_tables(&new).into_iter().filter(|line| !is_claim(&words(line))).collect();
        let was = lines_of_tables(&renamed);
        assert_eq!(kept.len(), was.len(), "{name}");
        for (new, old) in kept.iter().zip(was).filter(|(new, _)| !is_told_otherwise(new)) {
            // What makes a share undecided was not told.
            assert_eq!(words(&new.replace("too few rounds", "undecided")), words(old), "{name}");
        }
        let as_told: Vec<&str> = lines_of_tables(&old);
        assert!(as_told.len() > 3, "{name}: the tables are found");
        let otherwise = kept.iter().zip(as_told).filter(|(new, _)| is_told_otherwise(new)).map(|(_, old)| old);
        let otherwise: Vec<&str> = otherwise.collect();
        let old: Vec<&str> = old.lines().filter(|line| !otherwise.contains(line)).collect();
        assert_figures_kept(&without_ranking(&new), &without_ranking(&old.join("\n")), name);
    }
}

#[test]
fn exports_of_old_records_are_the_same() {
    let store = store();
    for (name, id) in RECORDS {
        assert_eq!(printed(&store, &["report", id, "--csv"]), text_of(&format!("{name}.csv")), "{name}");
        let old = serde_json::from_slice(&unpacked(&format!("{name}.json.gz"))).expect("JSON");
        let new = serde_json::from_str(&printed(&store, &["report", id, "--json"])).expect("JSON");
        assert_kept(&new, &old, name);
    }
}

#[test]
#[should_panic(expected = "shares.cost")]
fn a_changed_figure_is_found() {
    assert_kept(&serde_json::json!({"shares": {"cost": 0.42}}), &serde_json::json!({"shares": {"cost": 0.43}}), "");
}

#[test]
#[should_panic(expected = "42.8 is gone")]
fn a_changed_figure_of_a_text_is_found() {
    let text = |low: &str| format!("RSA takes 45.4 % [{low}, 47.5], -1.0 % of 1,504.");
    assert_eq!(figures(&text("42.8")), ["45.4", "42.8", "47.5", "-1.0", "1,504"]);
    assert_figures_kept(&text("42.9"), &text("42.8"), "text");
}
