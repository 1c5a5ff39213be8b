//! Programs of their own that `tlsdyno NAME` becomes. Scripts stand for them where it matters who is found.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use tlsdyno::satellites::SATELLITES;

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

fn script(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn one_that_is_missing_is_named_with_where_it_is_had() {
    let installed = Installed::new();
    for satellite in SATELLITES {
        for (name, _) in satellite.commands {
            let output = installed.run(&[name, "--json"]);
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
    let (list, manual) = (text(&list.stdout), text(&manual.stdout).replace("\\-", "-"));
    for (name, about) in SATELLITES.iter().flat_map(|satellite| satellite.commands) {
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
        let told: Vec<_> = told.iter().map(|one| (one.get_name(), one.get_about().unwrap().to_string())).collect();
        let known: Vec<_> = satellite.commands.iter().map(|(name, about)| (*name, (*about).to_owned())).collect();
        assert_eq!(told, known);
    }
}

#[test]
fn flags_of_satellites_are_in_completions_and_manual_pages() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_tlsdyno")).args(arguments).output().unwrap();
    assert!(run(&["man", "--directory", directory.path().to_str().unwrap()]).status.success());
    for (page, flag) in [("probe", "nagios"), ("dispatch", "session-timeout"), ("cryptoserver-agent", "server-ca")] {
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
    assert_eq!(text(&linked.stdout), "beside: \n", "beside the program, not beside a link to it");
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
