//! `results`: tables of pages, made of the records in `results/`. A page says which by
//! `<!-- results: COLUMN=FILE … -->`, where a row is a configuration, and ends the table with `<!-- results: end -->`.
//! A FILE without an end names the runs of a campaign: `today/servers-full` is the mean of
//! `records/today/servers-full.*.json`, with the interval between them. In `<!-- results: cost FILE… -->` a row is a
//! server of `tlsdyno cost`, of its time, memory or locks; in `<!-- results: shares FILE -->` a stage. A test holds
//! all pages against their records.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tlsdyno_base::distribution::{CONFIDENCE, student_t_two_sided};

use crate::statistics::mean_and_error;
use crate::tlsdyno::workspace;

const BEGIN: &str = "<!-- results: ";
const END: &str = "<!-- results: end -->";

/// What was asked for.
#[derive(clap::Args)]
pub struct Arguments {
    /// Say which pages differ from their records, and write nothing
    #[arg(long)]
    check: bool,
}

/// Writes the tables into all pages that name records.
///
/// # Errors
/// A page has a mark without an end, or names a record that cannot be read; with `--check`: a page differs.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut different = Vec::new();
    for page in pages()? {
        let old = fs::read_to_string(&page).with_context(|| format!("read {}", page.display()))?;
        let new = spliced(&old, &workspace().join("results")).with_context(|| page.display().to_string())?;
        if old != new {
            different.push(page.display().to_string());
            if !arguments.check {
                fs::write(&page, new).with_context(|| format!("write {}", page.display()))?;
            }
        }
    }
    ensure!(
        different.is_empty() || !arguments.check,
        "tables differ from the records in results/ in {}: run `cargo run -p xtask -- results`",
        different.join(", ")
    );
    Ok(())
}

fn pages() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(workspace().join("docs")).context("list docs/")?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect())
}

/// The page with each table made anew.
fn spliced(page: &str, folder: &Path) -> Result<String> {
    let mut new = String::new();
    let mut rest = page;
    while let Some((before, from)) = rest.split_once(BEGIN) {
        let (asked, after) = from.split_once(" -->\n").context("a mark of results does not end on its line")?;
        let (_, after) = after.split_once(END).with_context(|| format!("`{asked}` has no `{END}`"))?;
        let made = match asked.split_once(' ') {
            Some(("cost", files)) => sheets(files, folder),
            Some(("shares", file)) => shares(file, folder),
            _ => table(asked, folder),
        };
        write!(new, "{before}{BEGIN}{asked} -->\n{}{END}", made?)?;
        rest = after;
    }
    Ok(new + rest)
}

/// The part by which servers are ranked.
const FULL: &str = "full handshake";
/// What a table of sheets shows of CPU time: the head of each column, and the part.
const PARTS: [(&str, &str); 7] = [
    ("full", FULL),
    ("resumed", "resumed handshake"),
    ("keys", "key agreement and key schedule, together"),
    ("certificate, signature", "certificate and signature"),
    ("Finished, tickets", "client's Finished, tickets"),
    ("TCP", "accepting and closing"),
    ("next request", "next request on the connection"),
];
/// The same of memory: where connections stay.
const STATES: [(&str, &str); 2] = [("KiB, idle", "finished"), ("KiB, half open", "flight")];
/// The same of locks: what is counted for a full handshake with a request.
const LOCKS: [(&str, &str); 4] = [
    ("locked instructions", "locked_instructions_count"),
    ("read locks", "read_locks_count"),
    ("write locks", "write_locks_count"),
    ("mutexes", "mutexes_count"),
];

/// CPU time of the parts of a connection, memory and locks: a row for each server of a sheet, the cheapest full
/// handshake first, and a column for what any of them has.
fn sheets(files: &str, folder: &Path) -> Result<String> {
    let mut names: Vec<String> = Vec::new();
    let mut columns: Vec<(&str, BTreeMap<String, String>)> = Vec::new();
    for file in files.split_whitespace() {
        let record = record_in(file, folder)?;
        let [cost, memory, locks] = ["cost", "memory", "locks"].map(|of| record[of]["servers"].as_array());
        let servers = cost.or(memory).or(locks).with_context(|| format!("{file} holds no sheets of servers"))?;
        let name = |server: &Value| {
            let name = ["name", "address"].into_iter().find_map(|of| server[of].as_str());
            name.unwrap_or_default().to_owned()
        };
        let of = |list: &Value, key: &str, is: &str| {
            list.as_array().into_iter().flatten().find(|one| one[key] == is).cloned()
        };
        let full_ns = |server: &Value| of(&server["parts"], "part", FULL)?["cost_ns"]["value"].as_f64();
        let mut ranked: Vec<&Value> = servers.iter().collect();
        let place = |server: &Value| full_ns(server).unwrap_or(f64::INFINITY);
        ranked.sort_by(|one, other| place(one).total_cmp(&place(other)));
        for server in ranked.into_iter().map(name) {
            if !names.contains(&server) {
                names.push(server);
            }
        }
        let cells = |cell: &dyn Fn(&Value) -> Option<String>| -> BTreeMap<String, String> {
            servers.iter().filter_map(|server| Some((name(server), cell(server)?))).collect()
        };
        if cost.is_some() {
            let part = |is| cells(&|server| Some(in_units(&of(&server["parts"], "part", is)?["cost_ns"], 1000.0)));
            columns.extend(PARTS.map(|(head, is)| (head, part(is))));
        } else if memory.is_some() {
            let state = |is| cells(&|server| Some(in_units(&of(&server["states"], "state", is)?["bytes"], 1024.0)));
            columns.extend(STATES.map(|(head, is)| (head, state(is))));
        } else {
            let count = |key| cells(&|server| server["steps"][0][key]["value"].as_f64().map(|of| format!("{of:.0}")));
            columns.extend(LOCKS.map(|(head, key)| (head, count(key))));
        }
    }
    columns.retain(|(_, cells)| !cells.is_empty());
    let mut text = String::from("| stack |");
    columns.iter().try_for_each(|(head, _)| write!(text, " {head} |"))?;
    writeln!(text, "\n|---|{}", "---:|".repeat(columns.len()))?;
    for name in names {
        write!(text, "| {name} |")?;
        for (_, cells) in &columns {
            write!(text, " {} |", cells.get(&name).map_or("–", String::as_str))?;
        }
        writeln!(text)?;
    }
    Ok(text)
}

/// One record: what stands at the head of its column, and its numbers.
struct Column<'a> {
    title: &'a str,
    record: Value,
}

/// Server CPU time of a hit by configuration, a column for each record.
fn table(asked: &str, folder: &Path) -> Result<String> {
    let columns = asked.split_whitespace().map(|word| column(word, folder)).collect::<Result<Vec<_>>>()?;
    let mut names: Vec<String> = Vec::new();
    for configuration in columns.iter().flat_map(|column| configurations(&column.record)) {
        let name = name(configuration, &columns[0].record);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut text = String::from("| server CPU, µs a hit |");
    columns.iter().try_for_each(|column| write!(text, " {} |", column.title.replace('_', " ")))?;
    writeln!(text, "\n|---|{}", "---:|".repeat(columns.len()))?;
    for row in names {
        write!(text, "| {row} |")?;
        for column in &columns {
            let of_row = configurations(&column.record).find(|one| name(one, &column.record) == row);
            write!(text, " {} |", of_row.map_or_else(|| "–".to_owned(), cost))?;
        }
        writeln!(text)?;
    }
    Ok(text)
}

fn column<'a>(word: &'a str, folder: &Path) -> Result<Column<'a>> {
    let (title, file) = word.split_once('=').with_context(|| format!("`{word}` is no COLUMN=FILE"))?;
    let record = record_in(file, folder)?;
    ensure!(configurations(&record).next().is_some(), "{file} has no configurations");
    Ok(Column { title, record })
}

fn record_in(file: &str, folder: &Path) -> Result<Value> {
    if Path::new(file).extension().is_some() {
        return json_of(&folder.join(file));
    }
    let runs = runs_of(file, folder)?;
    let mut record = runs[0].clone();
    let rows = configurations(&runs[0]).map(|row| mean_of(row, &runs)).collect::<Option<Vec<_>>>();
    record["configurations"] = rows.with_context(|| format!("the runs of {file} have unlike rows"))?.into();
    Ok(record)
}

/// Two or more runs of a command of a campaign.
fn runs_of(file: &str, folder: &Path) -> Result<Vec<Value>> {
    let stem = folder.join("records").join(file);
    let runs =
        (1..).map(|run| PathBuf::from(format!("{}.{run}.json", stem.display()))).take_while(|path| path.exists());
    let runs = runs.map(|path| json_of(&path)).collect::<Result<Vec<_>>>()?;
    ensure!(runs.len() > 1, "{file} has fewer than two runs in results/records");
    Ok(runs)
}

/// Parts of the server's CPU time that several runs of an ablation tell apart from nothing.
fn shares(file: &str, folder: &Path) -> Result<String> {
    let runs = runs_of(file, folder)?;
    let of_cpu = |run: &Value| -> Vec<(String, f64)> {
        let all = run["shares"].as_array().into_iter().flatten().filter(|share| share["metric"] == "cpu");
        all.filter_map(|share| Some((share["stage"].as_str()?.to_owned(), share["percent"].as_f64()?))).collect()
    };
    let all: Vec<(String, f64)> = runs.iter().flat_map(of_cpu).collect();
    let mut text = String::from("| part | per cent of the server's CPU time |\n|---|---:|\n");
    for (stage, _) in of_cpu(&runs[0]) {
        let values: Vec<f64> = all.iter().filter(|(name, _)| *name == stage).map(|(_, percent)| *percent).collect();
        ensure!(values.len() == runs.len(), "not all runs of {file} have the share {stage}");
        let share = between(&values);
        if share["low"].as_f64().is_some_and(|low| low > 0.0) {
            writeln!(text, "| {} | {} |", stage.replace('_', " "), in_units(&share, 1.0))?;
        }
    }
    Ok(text)
}

fn json_of(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// A row with the mean of several runs, and the interval between them. `None`: a run lacks it.
fn mean_of(row: &Value, runs: &[Value]) -> Option<Value> {
    let same = |run| configurations(run).find(|other| other["name"] == row["name"]);
    let rows = runs.iter().map(same).collect::<Option<Vec<_>>>()?;
    let costs = rows.iter().map(|row| row["server_cpu_ns_per_hit"]["value"].as_f64()).collect::<Option<Vec<_>>>()?;
    let mut row = row.clone();
    row["valid"] = rows.iter().all(|row| row["valid"] == true).into();
    row["server_cpu_ns_per_hit"] = between(&costs);
    Some(row)
}

/// The mean of runs, with the interval between them.
fn between(values: &[f64]) -> Value {
    let (mean, error) = mean_and_error(values);
    let half = error * student_t_two_sided(CONFIDENCE, (values.len() - 1) as f64);
    json!({ "value": mean, "low": mean - half, "high": mean + half })
}

fn configurations(record: &Value) -> impl Iterator<Item = &Value> {
    record["configurations"].as_array().into_iter().flatten()
}

/// As the table calls it: the server as is by server and certificate.
fn name(configuration: &Value, record: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match configuration["name"].as_str() {
        Some("as is") => {
            let (server, key) = (text(&record["manifest"]["server_name"]), text(&record["manifest"]["certificate"]));
            format!("{server}, {}", key.to_uppercase())
        }
        _ => text(&configuration["name"]),
    }
}

/// What a hit costs, where it may be used.
fn cost(configuration: &Value) -> String {
    match configuration["valid"].as_bool() {
        Some(true) => us(&configuration["server_cpu_ns_per_hit"]),
        _ => "not valid".to_owned(),
    }
}

/// Microseconds with the interval, where there is one.
fn us(estimate: &Value) -> String {
    in_units(estimate, 1000.0)
}

/// In units of so many, with the interval, where there is one.
fn in_units(estimate: &Value, unit: f64) -> String {
    let number = |key: &str| estimate[key].as_f64().map(|value| format!("{:.1}", value / unit));
    match (number("value"), number("low"), number("high")) {
        (Some(value), Some(low), Some(high)) => format!("{value} [{low}, {high}]"),
        (Some(value), ..) => format!("{value} [–]"),
        _ => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_show_what_the_records_hold() {
        run(&Arguments { check: true }).unwrap();
    }

    #[test]
    fn a_table_has_a_row_for_each_configuration_and_a_column_for_each_record() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let manifest = r#""manifest": {"server_name": "nginx", "certificate": "rsa-2048"}"#;
        let row = |name: &str, valid: bool, cost: &str| {
            format!(r#"{{"name": "{name}", "valid": {valid}, "server_cpu_ns_per_hit": {{"value": {cost}}}}}"#)
        };
        let one = row("as is", true, r#"1500.0, "low": 1000.0, "high": 2000.0"#);
        let other = row("P-256", true, r#"700.0, "low": null, "high": null"#);
        let broken = row("P-256", false, "700.0");
        write("a.json", &format!(r#"{{{manifest}, "configurations": [{one}, {other}]}}"#));
        write("b.json", &format!(r#"{{{manifest}, "configurations": [{broken}]}}"#));
        let page = format!("above\n{BEGIN}full=a.json once_more=b.json -->\nold\n{END}\nbelow\n");
        let new = spliced(&page, folder.path()).unwrap();
        assert!(new.starts_with(&page[..page.find("old").unwrap()]) && new.ends_with(&format!("{END}\nbelow\n")));
        let rows: Vec<&str> = new.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(rows[0], "| server CPU, µs a hit | full | once more |");
        assert_eq!(rows[2], "| nginx, RSA-2048 | 1.5 [1.0, 2.0] | – |");
        assert_eq!(rows[3], "| P-256 | 0.7 [–] | not valid |");
        assert_eq!(spliced(&new, folder.path()).unwrap(), new);
        assert!(spliced(&page.replace("b.json", "gone.json"), folder.path()).is_err());
        assert!(spliced(&page.replace(END, ""), folder.path()).is_err());
    }

    #[test]
    fn several_runs_are_one_value_with_the_interval_between_them() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("records/today")).unwrap();
        let write = |run: u32, rows: &str| {
            let text = format!(
                r#"{{"manifest": {{"server_name": "nginx", "certificate": "p-256"}}, "configurations": [{rows}]}}"#
            );
            fs::write(folder.path().join(format!("records/today/full.{run}.json")), text).unwrap();
        };
        let row = |name: &str, ns: f64| {
            format!(r#"{{"name": "{name}", "valid": true, "server_cpu_ns_per_hit": {{"value": {ns}, "low": 0}}}}"#)
        };
        let page = format!("{BEGIN}full=today/full -->\n{END}\n");
        write(1, &[row("as is", 1e6), row("plain", 5e4)].join(","));
        assert!(spliced(&page, folder.path()).is_err(), "one run has no interval");
        // The rows may stand in another order. Of 1000, 1100 and 1200 the error is 57.7, and Student's t 4.303.
        write(2, &[row("plain", 5e4), row("as is", 1.1e6)].join(","));
        write(3, &[row("as is", 1.2e6), row("plain", 5e4)].join(","));
        let new = spliced(&page, folder.path()).unwrap();
        assert!(new.contains("| nginx, P-256 | 1100.0 [851.6, 1348.4] |\n| plain | 50.0 [50.0, 50.0] |"), "{new}");
        write(4, &row("as is", 1e6));
        assert!(spliced(&page, folder.path()).is_err(), "a run lacks a row");
        for (run, percent) in [(1, 10.0), (2, 12.0)] {
            let share =
                |stage: &str, percent: f64| format!(r#"{{"metric": "cpu", "stage": "{stage}", "percent": {percent}}}"#);
            let text = format!(
                r#"{{"shares": [{}, {}]}}"#,
                share("key_agreement", 50.0 + percent / 10.0),
                share("mac", percent - 11.0)
            );
            fs::write(folder.path().join(format!("records/today/shares.{run}.json")), text).unwrap();
        }
        // Of 51 and 51.2 the error is 0.1, and Student's t 12.706. The other one may be nothing.
        let new = spliced(&format!("{BEGIN}shares today/shares -->\n{END}\n"), folder.path()).unwrap();
        assert!(new.contains("|---|---:|\n| key agreement | 51.1 [49.8, 52.4] |\n<!--"), "{new}");
    }

    #[test]
    fn a_server_of_a_sheet_is_a_row() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let part = r#"{"part": "full handshake", "cost_ns": {"value": 1500.0, "low": 1000.0, "high": 2000.0}}"#;
        write(
            "cost.json",
            &format!(r#"{{"cost": {{"servers": [{{"name": "Go", "parts": [{part}]}}, {{"name": "C"}}]}}}}"#),
        );
        let state = r#"{"state": "finished", "bytes": {"value": 2048, "low": 1024, "high": 4096}}"#;
        write("memory.json", &format!(r#"{{"memory": {{"servers": [{{"name": "Go", "states": [{state}]}}]}}}}"#));
        write(
            "locks.json",
            r#"{"locks": {"servers": [{"name": "C", "steps": [{"read_locks_count": {"value": 7.0}}]}]}}"#,
        );
        let page = format!("{BEGIN}cost cost.json memory.json locks.json -->\n{END}\n");
        let new = spliced(&page, folder.path()).unwrap();
        assert!(new.contains("| stack | full | KiB, idle | read locks |\n"), "{new}");
        assert!(new.contains("| Go | 1.5 [1.0, 2.0] | 2.0 [1.0, 4.0] | – |\n| C | – | – | 7 |\n"), "{new}");
        assert!(spliced(&format!("{BEGIN}cost gone.json -->\n{END}\n"), folder.path()).is_err());
    }
}
