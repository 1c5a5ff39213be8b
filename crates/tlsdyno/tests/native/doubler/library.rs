//! The shared library itself: nothing in it that could replace a component.

use std::path::Path;
use std::process::Command;

use tlsdyno::native::{Doubling, Injection};
use tlsdyno_tls::StageSet;

use crate::build;

/// What makes a no-op, or is peculiar to the provider: answers of constants, checksums, counters for random bytes, kept
/// keys, emulated hardware.
const OF_NO_OPS: [&str; 10] = [
    "fill_answer",
    "all_bytes_are",
    "fill_signature",
    "check_signature",
    "is_premaster_block",
    "kept_key",
    "next_counter_words",
    "step",
    "accelerator_operate",
    "burn_cpu",
];

/// Names of its functions and data, also of those that it does not export.
fn symbols(library: &Path) -> Vec<String> {
    let printed = build::run(Command::new("nm").args(["--defined-only"]).arg(library));
    let last = |line: &str| line.split(' ').next_back().unwrap_or_default().to_owned();
    // A compiler's copy for one caller: `step.part.0`.
    printed.lines().map(last).map(|name| name.split('.').next().unwrap_or_default().to_owned()).collect()
}

/// Source files that debug information names.
fn sources(library: &Path) -> Vec<String> {
    let printed = build::run(Command::new("readelf").args(["--debug-dump=info", "-W"]).arg(library));
    let names = printed.lines().filter(|line| line.contains("DW_AT_name") && line.ends_with(".c"));
    names.filter_map(|line| line.split_whitespace().next_back().map(str::to_owned)).collect()
}

#[test]
fn holds_no_code_of_a_no_op() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let doubling = Doubling::prepare(dirs[0].path()).unwrap();
    let provider = Injection::prepare(dirs[1].path(), StageSet::NONE).unwrap();
    let (doubles, replaces) = (symbols(doubling.library_path()), symbols(provider.library_path()));
    let has = |names: &[String], name: &str| names.iter().any(|one| one == name);
    assert!(has(&doubles, "pair_make") && has(&doubles, "scratch_wipe"), "its symbols are there to be read");
    for name in OF_NO_OPS {
        assert!(!has(&doubles, name), "{name}");
    }
    // The compiler builds some of them into their callers; what is left shows that the list is not made up.
    assert!(OF_NO_OPS.iter().filter(|name| has(&replaces, name)).count() >= 5, "{replaces:?}");
    let files = sources(doubling.library_path());
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        assert!(file.contains("native/doubler/") || file.contains("native/wrapping/"), "{file}");
    }
    assert!(sources(provider.library_path()).iter().any(|file| file.contains("native/provider/")));
}

#[test]
fn exports_one_symbol_and_brings_no_libcrypto() {
    let dir = tempfile::tempdir().unwrap();
    let doubling = Doubling::prepare(dir.path()).unwrap();
    let exported = build::run(Command::new("nm").args(["-D", "--defined-only"]).arg(doubling.library_path()));
    let names: Vec<&str> = exported.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(names, ["OSSL_provider_init"]);
    let dynamic = build::run(Command::new("readelf").args(["-d", "-W"]).arg(doubling.library_path()));
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(needed.iter().any(|line| line.contains("[libc.so")), "{dynamic}");
    assert!(!needed.iter().any(|line| line.contains("crypto") || line.contains("ssl")), "{needed:?}");
    assert!(dynamic.contains("NODELETE"), "threads and fork handlers may point into it after an unload: {dynamic}");
}
