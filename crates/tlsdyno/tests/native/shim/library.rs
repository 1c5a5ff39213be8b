//! The shared library itself: the interposed names and no others, and what it is linked with.

use std::process::Command;

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
