//! The program by itself. What it does with others is tested with the core, in `crates/tlsdyno/tests`.

use std::process::{Command, Stdio};

/// Standard output, or standard error, of what ends with this code.
fn said(arguments: &[&str], code: i32) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tlsdyno-sizes"));
    let output = program.args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = if code == 0 { &output.stdout } else { &output.stderr };
    let said = String::from_utf8_lossy(said).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said
}

#[test]
fn it_is_called_as_a_part_of_tlsdyno() {
    assert_eq!(said(&["--version"], 0), concat!("tlsdyno-sizes ", env!("CARGO_PKG_VERSION"), "\n"));
    for command in ["cluster", "array", "plan"] {
        assert!(said(&[command, "-h"], 0).contains(&format!("Usage: tlsdyno {command}")));
        let refused = said(&[command, "--no-such-flag"], 2);
        assert!(refused.contains("'--no-such-flag'") && !refused.contains("tip:"), "{refused}");
    }
    assert!(said(&["scoreboard"], 2).contains("unrecognized subcommand"));
}

#[test]
fn it_runs_files_of_its_own_kinds() {
    let file = said(&["run", "apostolopoulos-2000-fig9", "--print-experiment"], 0);
    assert!(file.contains("[cluster]"), "{file}");
    assert!(said(&["run", "no-such-experiment"], 3).contains("--list"));
}
