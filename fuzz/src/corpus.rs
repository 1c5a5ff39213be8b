//! The inputs that are kept of each fuzz target, below `fuzz/corpus/`, where `cargo fuzz` begins with them: the tests
//! run them all.

use std::path::Path;

/// Runs each kept input of `target`. For tests of crates beside `fuzz/`.
///
/// # Panics
/// There is none, or `run` panics; the input is then named on standard error.
pub fn run_kept(target: &str, run: impl Fn(&[u8])) {
    // Crates that run these inputs in their tests stand at another depth.
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("fuzz/corpus"));
    let directory = above.find(|folder| folder.is_dir()).expect("the inputs are in the repository").join(target);
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
