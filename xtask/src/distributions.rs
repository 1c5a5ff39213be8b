//! `distributions`: the binary that was built here on other Debian releases, each in a private directory: every stage
//! on every server, short measurements with old and new suites, and the papers' experiments.

mod root;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tlsdyno::model::ServerName;
use tlsdyno_lab::stacks::mirror::Mirror;

use crate::tlsdyno::{build, build_tests, workspace};
use root::Root;

const NAMES: [&str; 2] = ["bookworm", "trixie"];
/// The papers' experiments on one server; Apostolopoulos's needs several.
const CLASSICS: &str = "coarfa-2006-";
/// Measuring time of each experiment: what is asked is whether it runs, not what it finds.
const SECONDS: &str = "3";

/// Which of them.
#[derive(clap::Args)]
pub struct Arguments {
    /// All, if none is named
    #[arg(value_name = "DISTRIBUTION", value_parser = NAMES)]
    distributions: Vec<String>,
    /// Only checks whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Instead of the checks: `make test` of this checkout, built there
    #[arg(long, conflicts_with = "only")]
    make_test: bool,
}

/// Makes the directories that are missing under `target/distributions`, checks in each, and prints what passed, or runs
/// `make test` there.
///
/// # Errors
/// Not run as root; a distribution cannot be made; a check failed.
pub fn run(arguments: &Arguments) -> Result<()> {
    let is_root = fs::metadata("/proc/self").context("cannot ask for the own user")?.uid() == 0;
    ensure!(
        is_root,
        "only root may mount and change the root directory; run this as root (sudo make test-distributions)"
    );
    let work = workspace().join("target/distributions");
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let wanted =
        |name: &&str| arguments.distributions.is_empty() || arguments.distributions.iter().any(|one| one == name);
    if arguments.make_test {
        return NAMES.into_iter().filter(wanted).try_for_each(|name| make_test(name, &work));
    }
    let xtask = std::env::current_exe().context("find this program itself")?;
    let tlsdyno = build()?;
    let checks = checks(&tlsdyno, &xtask, &build_tests("servers")?)?;
    let checks: Vec<Check> = checks.into_iter().filter(|check| check.name.contains(&arguments.only)).collect();
    ensure!(!checks.is_empty(), "no check has `{}` in its name", arguments.only);
    let mut columns = Vec::new();
    for name in NAMES.into_iter().filter(wanted) {
        let root = Root::made(name, "", root::packages_of_servers(), &work, Mirror::of_this_machine)?;
        root.require_running(&tlsdyno)?;
        columns.push(Column { name, outcomes: outcomes(&root, &checks, &tlsdyno, &work)? });
    }
    print!("{}", table(&checks, &columns));
    let failed = columns.iter().flat_map(|column| &column.outcomes).filter(|outcome| outcome.failure.is_some()).count();
    ensure!(failed == 0, "{failed} checks failed; what they said is in {}", work.join("logs").display());
    Ok(())
}

fn make_test(name: &'static str, work: &Path) -> Result<()> {
    let root = Root::made(name, "-to-build", root::PACKAGES_TO_BUILD.to_vec(), work, Mirror::of_this_machine)?;
    eprintln!("{name}: make test");
    let status = root.make_test().status().context("cannot run setpriv (util-linux)")?;
    ensure!(status.success(), "make test on {name}: {status}");
    Ok(())
}

struct Check {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
}

struct Outcome {
    failure: Option<String>,
    took: Duration,
    tries: u32,
}

impl Outcome {
    fn words(&self) -> String {
        let how = match (&self.failure, self.tries) {
            (Some(failure), _) => failure,
            (None, 1) => "passed",
            (None, _) => "passed, second try",
        };
        format!("{how} ({} s)", self.took.as_secs())
    }
}

struct Column {
    name: &'static str,
    outcomes: Vec<Outcome>,
}

/// The checks by the program tlsdyno, by this one, which makes the page docs/STAGES.md, and by the tests on servers.
fn checks(tlsdyno: &Path, xtask: &Path, tests: &Path) -> Result<Vec<Check>> {
    let check = |name: String, program: &Path, words: &str| {
        let arguments = words.split(' ').map(str::to_owned).collect();
        Check { name, program: program.to_owned(), arguments }
    };
    let short = format!("--time {SECONDS} --no-report");
    let mut checks = Vec::new();
    for server in ServerName::configured() {
        checks.push(check(format!("stages, {server}"), xtask, &format!("stage-matrix --print {server}")));
    }
    for (version, suite) in [("1.2", "AES128-SHA"), ("1.3", "TLS_AES_128_GCM_SHA256")] {
        for server in ServerName::configured() {
            let words = format!("ablate --server {server} --tls {version} --suite {suite} {short}");
            checks.push(check(format!("ablate, TLS {version}, {server}"), tlsdyno, &words));
        }
    }
    checks.push(check("tests, unmatched clients and exact counters".to_owned(), tests, "matrix::"));
    for file in classics()? {
        checks.push(check(file.clone(), tlsdyno, &format!("run {file} {short}")));
    }
    Ok(checks)
}

/// Names of the papers' experiments, which come with tlsdyno.
fn classics() -> Result<Vec<String>> {
    let directory = workspace().join("experiments/papers");
    let entries = fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let stems = entries.flatten().filter_map(|entry| entry.path().file_stem()?.to_str().map(str::to_owned));
    let mut names: Vec<String> = stems.filter(|name| name.starts_with(CLASSICS)).collect();
    names.sort();
    Ok(names)
}

fn outcomes(root: &Root, checks: &[Check], tlsdyno: &Path, work: &Path) -> Result<Vec<Outcome>> {
    let logs = work.join("logs").join(root.name());
    fs::create_dir_all(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    let mut outcomes = Vec::new();
    for check in checks {
        let log = logs.join(format!("{}.log", check.name.replace(", ", "-").replace(' ', "-")));
        let mut outcome = tried(root, check, tlsdyno, &log)?;
        if outcome.failure.is_some() {
            // What other programs on this machine do to quotas and time limits seldom comes twice.
            eprintln!("{}: {}: {}; once more", root.name(), check.name, outcome.words());
            fs::rename(&log, log.with_extension("first.log")).context("cannot rename a log")?;
            outcome = Outcome { tries: 2, ..tried(root, check, tlsdyno, &log)? };
        }
        eprintln!("{}: {}: {}", root.name(), check.name, outcome.words());
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn tried(root: &Root, check: &Check, tlsdyno: &Path, log: &Path) -> Result<Outcome> {
    let mut command = root.command(&check.program);
    command.env("TLSDYNO", tlsdyno).args(&check.arguments);
    let began = Instant::now();
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let (said, printed) =
        [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).into();
    fs::write(log, format!("{command:?}\n{said}\n{printed}\n{}\n", output.status))
        .with_context(|| format!("cannot write {}", log.display()))?;
    // The page of the stages ends with what failed; the program ends well whatever it finds.
    let notes = printed.split_once("## Notes").map(|(_, notes)| notes.trim().lines().count());
    let failure = match notes {
        _ if !output.status.success() => Some(format!("FAILED, {}", output.status)),
        notes => notes.map(|notes| format!("FAILED, {notes} stages")),
    };
    Ok(Outcome { failure, took: began.elapsed(), tries: 1 })
}

/// A row for each check, a column for each distribution.
fn table(checks: &[Check], columns: &[Column]) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = format!("{:width$}", "");
    columns.iter().for_each(|column| write!(text, "  {:26}", column.name).expect("a string takes all"));
    for (row, check) in checks.iter().enumerate() {
        write!(text, "\n{:width$}", check.name).expect("a string takes all");
        for column in columns {
            write!(text, "  {:26}", column.outcomes[row].words()).expect("a string takes all");
        }
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_and_every_classic_is_checked() {
        let program = Path::new("program");
        let checks = checks(program, program, program).unwrap();
        for server in ServerName::configured() {
            assert_eq!(
                checks.iter().filter(|check| check.name.ends_with(&format!(", {server}"))).count(),
                3,
                "{server}"
            );
        }
        let classics = checks.iter().filter(|check| check.name.starts_with(CLASSICS)).count();
        assert!(classics >= 9, "{classics}");
    }

    #[test]
    fn the_table_says_what_failed() {
        let check = |name: &str| Check { name: name.to_owned(), program: PathBuf::new(), arguments: Vec::new() };
        let took = Duration::from_secs(9);
        let outcome = |failure: Option<&str>, tries| Outcome { failure: failure.map(str::to_owned), took, tries };
        let columns = [
            Column { name: "bookworm", outcomes: vec![outcome(None, 1), outcome(None, 2)] },
            Column { name: "trixie", outcomes: vec![outcome(None, 1), outcome(Some("FAILED, 2 stages"), 2)] },
        ];
        let expected = "         bookworm                  trixie\n\
                        a        passed (9 s)              passed (9 s)\n\
                        a longer passed, second try (9 s)  FAILED, 2 stages (9 s)\n";
        let table = table(&[check("a"), check("a longer")], &columns);
        let squeezed = |text: &str| {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(squeezed(&table), squeezed(expected));
    }
}
