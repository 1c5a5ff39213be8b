//! The program by itself. What it does with others is tested with the core, in `crates/tlsdyno/tests`.

use std::process::{Command, Stdio};

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
