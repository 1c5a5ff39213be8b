//! The inputs that are kept of each fuzz target, below `fuzz/corpus/`, where `cargo fuzz` begins with them: the tests
//! run them all.

use std::path::Path;

/// Runs each kept input of `target`. For tests of crates beside `fuzz/`.
///
/// # Panics
/// There is none, or `run` panics; the input is then named on standard error.
pub fn run_kept(target: &str, run: impl Fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut kept = 0;
    for entry in entries {
        let path = entry.expect("a readable directory").path();
        eprintln!("{}", path.display());
        run(&std::fs::read(&path).expect("a readable file"));
        kept += 1;
    }
    assert!(kept > 0, "{} holds no input", directory.display());
}
