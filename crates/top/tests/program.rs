//! The program by itself. What it sees of servers is tested with the core, in `crates/tlsdyno/tests`.

use std::process::{Command, Stdio};

/// Standard output, or standard error, of what ends with this code.
fn said(arguments: &[&str], code: i32) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tlsdyno-top"));
    let output = program.args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = if code == 0 { &output.stdout } else { &output.stderr };
    let said = String::from_utf8_lossy(said).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}

#[test]
fn it_is_called_as_a_part_of_tlsdyno() {
    assert_eq!(said(&["--version"], 0), concat!("tlsdyno-top ", env!("CARGO_PKG_VERSION"), "\n"));
    assert!(said(&["-h"], 0).contains("Usage: tlsdyno top"));
    assert!(said(&["--no-such-flag"], 2).contains("'--no-such-flag'"));
    assert!(said(&["--once", "10ms"], 2).contains("a second at least"));
}
