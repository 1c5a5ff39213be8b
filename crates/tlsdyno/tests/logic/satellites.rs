//! Programs of their own that `tlsdyno NAME` becomes. Scripts stand for them where it matters who is found.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use tlsdyno::satellites::SATELLITES;
use tlsdyno::store::Record;
use tlsdyno_lab::KINDS;

/// A directory with the core alone, and one that is the whole path.
struct Installed {
    core: TempDir,
    path: TempDir,
}

impl Installed {
    fn new() -> Installed {
        let installed = Installed { core: tempfile::tempdir().unwrap(), path: tempfile::tempdir().unwrap() };
        let (built, here) = (env!("CARGO_BIN_EXE_tlsdyno"), installed.core.path().join("tlsdyno"));
        fs::hard_link(built, &here).or_else(|_| fs::copy(built, &here).map(drop)).unwrap();
        installed
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.core.path().join("tlsdyno"));
        command.args(arguments).env("PATH", self.path.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

/// Written by another process: no program that a test beside this one starts holds it open, which would keep it from
/// being run.
fn script(directory: &Path, name: &str, text: &str) {
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\"";
    let path = directory.join(name);
    let status = Command::new("sh").args(["-c", write]).arg(path).arg(text).status().unwrap();
    assert!(status.success());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn one_that_is_missing_is_named_with_where_it_is_had() {
    let installed = Installed::new();
    for satellite in SATELLITES {
        for (name, _) in satellite.commands {
            let output = installed.run(&name.split(' ').chain(["--json"]).collect::<Vec<_>>());
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.starts_with(&format!("tlsdyno: {} is neither", satellite.file)), "{said}");
            assert!(said.contains("packages") && said.contains("cargo build --workspace --bins"), "{said}");
        }
    }
}

#[test]
fn the_list_and_the_manual_have_all_commands_whatever_is_installed() {
    let installed = Installed::new();
    let (list, manual) = (installed.run(&["--help"]), installed.run(&["man"]));
    let (list, manual) = (text(&list.stdout), text(&manual.stdout).replace("\\-", "-").replace("\\*(Aq", "'"));
    let own = SATELLITES.iter().flat_map(|satellite| satellite.commands).filter(|(name, _)| !name.contains(' '));
    for (name, about) in own {
        assert!(list.contains(&format!("\n  {name:<12} ")), "{list}");
        assert!(manual.contains(&format!("tlsdyno-{name}(1)")) && manual.contains(about), "{manual}");
    }
    assert!(text(&installed.run(&["completions", "bash"]).stdout).contains("tlsdyno__subcmd__probe"));
}

#[test]
fn what_the_list_says_is_what_the_satellites_say() {
    for satellite in SATELLITES {
        let path = Path::new(env!("CARGO_BIN_EXE_tlsdyno")).with_file_name(satellite.file);
        assert!(path.exists(), "{} is missing: run `cargo build --workspace --bins`", path.display());
        let told = tlsdyno_base::program::described_by(&path).unwrap();
        for (name, about) in satellite.commands {
            let mut named = clap::Command::new("tlsdyno").subcommands(told.clone());
            for part in name.split(' ') {
                named = named.find_subcommand(part).unwrap().clone();
            }
            assert_eq!(named.get_about().unwrap().to_string(), *about);
        }
    }
}

#[test]
fn flags_of_satellites_are_in_completions_and_manual_pages() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_tlsdyno")).args(arguments).output().unwrap();
    assert!(run(&["man", "--directory", directory.path().to_str().unwrap()]).status.success());
    let flags = [
        ("probe", "nagios"),
        ("dispatch", "session-timeout"),
        ("cryptoserver-agent", "server-ca"),
        ("cluster", "front-ends"),
        ("scoreboard", "splice"),
        ("profile-primitives", "legacy"),
    ];
    for (page, flag) in flags {
        let page = fs::read_to_string(directory.path().join(format!("tlsdyno-{page}.1"))).unwrap();
        assert!(page.contains(&format!("--{flag}").replace('-', "\\-")), "{page}");
        for shell in ["bash", "fish", "zsh"] {
            assert!(text(&run(&["completions", shell]).stdout).contains(flag), "{shell}");
        }
    }
}

#[test]
fn one_beside_the_program_goes_before_one_on_the_path() {
    let installed = Installed::new();
    script(installed.path.path(), "tlsdyno-probe", "echo on the path: \"$@\"");
    assert_eq!(text(&installed.run(&["probe", "a b", "--once"]).stdout), "on the path: a b --once\n");
    script(installed.core.path(), "tlsdyno-probe", "echo beside: \"$@\"");
    assert_eq!(text(&installed.run(&["probe", "--once"]).stdout), "beside: --once\n");
    assert_eq!(text(&installed.run(&["help", "probe", "report"]).stdout), "beside: report --help-all\n");
    let link = installed.path.path().join("another-name");
    symlink(installed.core.path().join("tlsdyno"), &link).unwrap();
    let linked = Command::new(link).arg("probe").env("PATH", "").output().unwrap();
    assert_eq!(text(&linked.stdout), "beside:\n", "beside the program, not beside a link to it");
}

#[test]
fn one_in_the_working_directory_is_not_run() {
    let installed = Installed::new();
    script(installed.path.path(), "tlsdyno-probe", "echo here");
    let mut command = installed.command(&["probe"]);
    let output = command.env("PATH", ":.").current_dir(installed.path.path()).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
}

#[test]
fn exit_codes_signals_and_standard_streams_are_the_callers() {
    let installed = Installed::new();
    script(installed.core.path(), "tlsdyno-probe", "read -r line; echo \"$line\"; echo error >&2; exit 42");
    let mut command = installed.command(&["probe"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"asked\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout, &*output.stderr), (Some(42), &b"asked\n"[..], &b"error\n"[..]));

    script(installed.core.path(), "tlsdyno-dispatch", "echo $$; kill -TERM $$");
    let child = installed.command(&["dispatch"]).stdout(Stdio::piped()).spawn().unwrap();
    let started = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout).trim(), started.to_string(), "it is the same process");
    assert_eq!(output.status.signal(), Some(15));
}

#[test]
fn files_and_records_go_to_the_satellite_of_their_kind() {
    let installed = Installed::new();
    script(installed.core.path(), "tlsdyno-sizes", "echo \"$0:\" \"$@\"");
    let run = installed.run(&["run", "apostolopoulos-2000-fig9", "--print-experiment"]);
    assert!(text(&run.stdout).ends_with(": run apostolopoulos-2000-fig9 --print-experiment\n"), "{run:?}");
    let own = installed.run(&["run", "coarfa-2006-fig7", "--print-experiment"]);
    assert!(text(&own.stdout).contains("coarfa"), "{own:?}");

    let mut record = serde_json::to_value(Record::begun_now("How many?", 1)).unwrap();
    record["cluster"] = serde_json::json!({});
    let file = installed.path.path().join("record.json");
    fs::write(&file, serde_json::to_vec(&record).unwrap()).unwrap();
    let report = installed.run(&["report", file.to_str().unwrap(), "--json"]);
    assert!(text(&report.stdout).ends_with(&format!(": report {} --json\n", file.display())), "{report:?}");
    fs::remove_file(installed.core.path().join("tlsdyno-sizes")).unwrap();
    let missing = installed.run(&["report", file.to_str().unwrap()]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    assert!(text(&missing.stderr).starts_with("tlsdyno: tlsdyno-sizes is neither"), "{missing:?}");
}

#[test]
fn each_kind_is_of_one_program() {
    let own = tlsdyno::kinds::KINDS.0.iter().map(|kind| kind.key());
    let others = SATELLITES.iter().flat_map(|satellite| satellite.kinds.iter().copied());
    let (mut known, mut all): (Vec<&str>, Vec<&str>) =
        (own.chain(others).collect(), KINDS.0.iter().map(|kind| kind.key()).collect());
    known.sort_unstable();
    all.sort_unstable();
    assert_eq!(known, all);
}
