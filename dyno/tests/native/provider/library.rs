//! The shared library itself: one exported symbol, no libcrypto of its own, the layout of its record as mirrored in
//! Rust.

use std::fmt::Write;
use std::process::Command;

use tlsdyno::native::{Injection, layout};
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

#[test]
fn layout_is_mirrored() {
    let program = build::test_program("cc", "layout", "plain", &[]);
    let mut mirror = String::new();
    for (name, value) in [
        ("abi_version", layout::ABI_VERSION as usize),
        ("abi_version_at", layout::ABI_VERSION_AT),
        ("slot_count_at", layout::SLOT_COUNT_AT),
        ("owner_pid_at", layout::OWNER_PID_AT),
        ("owner_start_ticks_at", layout::OWNER_START_TICKS_AT),
        ("run_id_at", layout::RUN_ID_AT),
        ("heartbeat_ns_at", layout::HEARTBEAT_NS_AT),
        ("owner_user_at", layout::OWNER_USER_AT),
        ("mode_at", layout::MODE_AT),
        ("run_id_size", layout::RUN_ID_SIZE),
        ("slots_claimed_at", layout::SLOTS_CLAIMED_AT),
        ("modes_ignored_at", layout::MODES_IGNORED_AT),
        ("engine_busy_until_ns_at", layout::ENGINE_BUSY_UNTIL_NS_AT),
        ("engines_max", layout::ENGINES_MAX),
        ("slots_at", layout::SLOTS_AT),
        ("slots", layout::SLOTS),
        ("slot_counters", layout::SLOT_COUNTERS),
        ("size", layout::SIZE),
    ] {
        writeln!(mirror, "{name} {value}").unwrap();
    }
    writeln!(mirror, "magic {}", String::from_utf8_lossy(&layout::MAGIC[..7])).unwrap();
    for (stage, name) in layout::COUNTERS {
        writeln!(mirror, "counter {} {name}", stage.name().to_uppercase()).unwrap();
    }
    for name in layout::HARDWARE_COUNTERS {
        writeln!(mirror, "hardware counter {name}").unwrap();
    }
    assert_eq!(build::run(&mut Command::new(program)), mirror);
}
