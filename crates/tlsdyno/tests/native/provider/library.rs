//! The shared library itself: one exported symbol, no libcrypto of its own.

use std::process::Command;

use tlsdyno::native::Injection;
use tlsdyno_tls::StageSet;

use crate::build;

#[test]
fn exports_one_symbol() {
    let dir = tempfile::tempdir().unwrap();
    let injection = Injection::prepare(dir.path(), StageSet::NONE).unwrap();
    let symbols = build::run(Command::new("nm").args(["-D", "--defined-only"]).arg(injection.library_path()));
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(names, ["OSSL_provider_init"]);
}

#[test]
fn brings_no_libcrypto_and_stays_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let injection = Injection::prepare(dir.path(), StageSet::NONE).unwrap();
    let dynamic = build::run(Command::new("readelf").args(["-d", "-W"]).arg(injection.library_path()));
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(needed.iter().any(|line| line.contains("[libc.so")), "{dynamic}");
    assert!(!needed.iter().any(|line| line.contains("crypto") || line.contains("ssl")), "{needed:?}");
    assert!(dynamic.contains("NODELETE"), "threads and fork handlers may point into it after an unload: {dynamic}");
}
