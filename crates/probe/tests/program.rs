//! The program by itself. What it does with others is tested with the core, in `crates/tlsdyno/tests`.

use std::process::{Command, Stdio};

/// Standard output, or standard error, of what ends with this code.
fn said(arguments: &[&str], code: i32) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tlsdyno-probe"));
    let output = program.args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = if code == 0 { &output.stdout } else { &output.stderr };
    let said = String::from_utf8_lossy(said).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}

#[test]
fn it_is_called_as_a_part_of_tlsdyno() {
    assert_eq!(said(&["--version"], 0), concat!("tlsdyno-probe ", env!("CARGO_PKG_VERSION"), "\n"));
    assert!(said(&["-h"], 0).contains("Usage: tlsdyno probe"));
    assert!(said(&["--help"], 0).contains("All about them: tlsdyno probe --help-all"));
    let refused = said(&["--no-such-flag"], 2);
    assert!(refused.contains("'--no-such-flag'") && !refused.contains("tip:"), "{refused}");
}

#[test]
fn faults_have_the_exit_codes_of_tlsdyno() {
    assert!(said(&["https://localhost:1/"], 2).starts_with("tlsdyno: say how often"));
    assert!(said(&["--config", "/no/such/file.toml"], 3).contains("/no/such/file.toml"));
    assert!(said(&["example", "config"], 0).contains("[[site]]"));
}
