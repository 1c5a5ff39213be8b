//! The shared library itself: the interposed names and no others, what it is linked with, and the layout of its area as
//! mirrored in Rust.

use std::fmt::Write;
use std::process::Command;

use tlsdyno::native::shim::layout;
use tlsdyno::native::{ShimInjection, ShimSettings};
use tlsdyno_tls::{StageSet, Version};

use crate::build;

fn idle(dir: &std::path::Path) -> ShimInjection {
    ShimInjection::prepare(dir, &ShimSettings::new(StageSet::NONE, Version::Tls13)).unwrap()
}

#[test]
fn exports_the_interposed_names() {
    let dir = tempfile::tempdir().unwrap();
    let symbols = build::run(Command::new("nm").args(["-D", "--defined-only"]).arg(idle(dir.path()).library_path()));
    let mut names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    names.sort_unstable();
    let expected = [
        "SSL_accept",
        "SSL_clear",
        "SSL_do_handshake",
        "SSL_free",
        "SSL_get_error",
        "SSL_get_rbio",
        "SSL_has_pending",
        "SSL_in_init",
        "SSL_is_init_finished",
        "SSL_new",
        "SSL_peek",
        "SSL_peek_ex",
        "SSL_pending",
        "SSL_read",
        "SSL_read_early_data",
        "SSL_read_ex",
        "SSL_shutdown",
        "SSL_write",
        "SSL_write_ex",
        "accept",
        "accept4",
        "recv",
    ];
    assert_eq!(names, expected);
}

#[test]
fn brings_libssl_and_stays_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let dynamic = build::run(Command::new("readelf").args(["-d", "-W"]).arg(idle(dir.path()).library_path()));
    assert!(dynamic.contains("[libssl.so.3]") && dynamic.contains("[libcrypto.so.3]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "threads and fork handlers may point into it after an unload: {dynamic}");
}

#[test]
fn layout_is_mirrored() {
    use layout::stamp;
    let program = build::test_program("cc", "shim_layout", "plain", &[]);
    let mut mirror = String::new();
    for (name, value) in [
        ("too_long_ns", layout::TOO_LONG_NS as usize),
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
        ("stages_off_at", layout::STAGES_OFF_AT),
        ("flags_at", layout::FLAGS_AT),
        ("suite_at", layout::SUITE_AT),
        ("version_at", layout::VERSION_AT),
        ("slots_claimed_at", layout::SLOTS_CLAIMED_AT),
        ("stamps_written_at", layout::STAMPS_WRITTEN_AT),
        ("full_script_at", layout::FULL_SCRIPT_AT),
        ("resumed_script_at", layout::RESUMED_SCRIPT_AT),
        ("ready_after_at", 4),
        ("flights_at", 8),
        ("flights", layout::FLIGHTS),
        ("modes_ignored_at", layout::MODES_IGNORED_AT),
        ("peer_count_at", layout::PEER_COUNT_AT),
        ("peers_at", layout::PEERS_AT),
        ("peer_size", layout::PEER_SIZE),
        ("peers", layout::PEERS),
        ("session_state_at", layout::SESSION_STATE_AT),
        ("session_size", layout::SESSION_SIZE),
        ("session_ready", layout::SESSION_READY as usize),
        ("slots_at", layout::SLOTS_AT),
        ("slots", layout::SLOTS),
        ("slot_counters", layout::SLOT_COUNTERS),
        ("stamps_at", layout::STAMPS_AT),
        ("stamps", layout::STAMPS),
        ("stamp_size", layout::STAMP_SIZE),
        ("steps", layout::STEPS),
        ("size", layout::SIZE),
        ("stamp number", stamp::NUMBER_AT),
        ("stamp start_ns", stamp::START_NS_AT),
        ("stamp end_ns", stamp::END_NS_AT),
        ("stamp bytes_received", stamp::BYTES_RECEIVED_AT),
        ("stamp bytes_sent", stamp::BYTES_SENT_AT),
        ("stamp pid", stamp::PID_AT),
        ("stamp kind", stamp::KIND_AT),
        ("stamp calls", stamp::CALLS_AT),
        ("stamp step_count", stamp::STEP_COUNT_AT),
        ("stamp cpu_ns", stamp::CPU_NS_AT),
        ("step_size", layout::STEP_SIZE),
        ("stamp steps", stamp::STEPS_AT),
    ] {
        writeln!(mirror, "{name} {value}").unwrap();
    }
    writeln!(mirror, "magic {}", String::from_utf8_lossy(&layout::MAGIC[..7])).unwrap();
    for stage in layout::STAGES {
        writeln!(mirror, "stage {stage}").unwrap();
    }
    for flag in layout::FLAGS {
        writeln!(mirror, "flag {flag}").unwrap();
    }
    for (index, counter) in layout::COUNTERS.iter().enumerate() {
        let word = if index < layout::KINDS { "kind" } else { "event" };
        writeln!(mirror, "{word} {counter}").unwrap();
    }
    assert_eq!(build::run(&mut Command::new(program)), mirror);
}
