//! The program by itself. What it does with others is tested with the core, in `crates/tlsdyno/tests`.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Standard output, or standard error, of what ends with this code.
fn said(arguments: &[&str], code: i32) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tlsdyno-lab"));
    let output = program.args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = if code == 0 { &output.stdout } else { &output.stderr };
    let said = String::from_utf8_lossy(said).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}

#[test]
fn it_is_called_as_a_part_of_tlsdyno() {
    assert_eq!(said(&["--version"], 0), concat!("tlsdyno-lab ", env!("CARGO_PKG_VERSION"), "\n"));
    assert!(said(&["scoreboard", "-h"], 0).contains("Usage: tlsdyno scoreboard"));
    assert!(said(&["profile", "primitives", "-h"], 0).contains("Usage: tlsdyno profile primitives"));
    assert!(said(&["scoreboard"], 2).contains("<RECORD>"));
    assert!(said(&["scoreboard", "/no/such/file.json"], 3).contains("/no/such/file.json"));
}

#[test]
fn it_runs_files_of_its_own_kinds() {
    let file = said(&["run", "goldberg-1998-fig1", "--print-experiment"], 0);
    assert!(file.contains("[probe]") || file.contains("[[probe.site]]"), "{file}");
}

/// A recipe of a made-up stack whose second step kills the build, once.
fn recipe(place: &Path, sum: &str, value: &str) -> String {
    let text = format!(
        "title = 'A made-up stack'
minutes = 0.1
programs = {{ sh = 'dash' }}
steps = [
    'echo once >> ../trace; cp text {{prefix}}/text',
    'test -e ../killed || {{ touch ../killed; kill -9 $PPID; }}',
    'echo {{value}} >> {{prefix}}/text',
]
values = {{ value = '{value}' }}
[source]
version = '1'
sha256 = '{sum}'
upstream = 'file://{}/thing.tar.gz'
",
        place.display()
    );
    let path = place.join("made-up.toml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn stacks(place: &Path, arguments: &[&str]) -> (Output, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tlsdyno-lab"));
    program.arg("stacks").args(arguments).env("XDG_CACHE_HOME", place.join("cache")).stdin(Stdio::null());
    let output = program.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

#[test]
fn a_stack_is_built_of_the_right_source_once_and_goes_on_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    fs::create_dir(place.join("thing-1")).unwrap();
    fs::write(place.join("thing-1/text"), "made\n").unwrap();
    let shell = |line: &str| Command::new("sh").args(["-ec", line]).current_dir(place).output().unwrap().stdout;
    let sum = String::from_utf8(shell("tar czf thing.tar.gz thing-1; sha256sum thing.tar.gz")).unwrap();
    let sum = sum.split(' ').next().unwrap();
    let built = place.join("cache/tlsdyno/stacks/made-up");
    let made = || fs::read_to_string(built.join("installed/text")).unwrap();
    let traced = || fs::read_to_string(built.join("trace")).unwrap();

    let (output, said) = stacks(place, &["build", &recipe(place, &"0".repeat(64), "twice")]);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains(&format!("has sha256 {sum}, and the recipe says 000")), "{said}");
    assert!(!built.join("done").exists(), "nothing was built of it");

    let file = recipe(place, sum, "twice");
    let (output, said) = stacks(place, &["build", &file]);
    assert_eq!(output.status.signal(), Some(9), "{said}");
    assert!(said.starts_with("made/up: about 0.1 minutes of one CPU"), "{said}");
    let (output, said) = stacks(place, &["build", &file]);
    assert!(output.status.success() && !said.contains("step 1 of 3") && said.contains("step 3 of 3"), "{said}");
    assert_eq!((made().as_str(), traced().as_str()), ("made\ntwice\n", "once\n"));
    let (output, said) = stacks(place, &["build", &file]);
    assert!(output.status.success() && said == "made/up: built\n", "{said}");

    // Of another recipe nothing is done yet. A step that fails is told with what it said.
    let file = recipe(place, sum, "x; echo oh >&2; false");
    let (output, said) = stacks(place, &["build", &file]);
    assert!(output.status.signal() == Some(9) && said.contains("step 1 of 3"), "{said}");
    let (output, said) = stacks(place, &["build", &file]);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("made-up was not built: ") && said.ends_with("oh\n"), "{said}");
}

#[test]
fn stacks_that_are_unknown_or_lack_a_program_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let (output, said) = stacks(place, &["build", "nginx/libressl"]);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no stack is called nginx/libressl; see `tlsdyno stacks`"), "{said}");
    let file = recipe(place, "", "");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("sh = 'dash'", "no-such = 'no-such-package'")).unwrap();
    let (output, said) = stacks(place, &["build", &file]);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("made/up needs (Debian) `apt-get install no-such-package`"), "{said}");
    let (output, _) = stacks(place, &[]);
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(list.contains("nginx/aws-lc") && list.contains("not built (2.7 min)"), "{list}");
}
