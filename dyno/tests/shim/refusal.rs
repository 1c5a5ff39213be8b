//! Without the acknowledgement of a running tlsdyno the shim ends the process that it is loaded into, at once, and says why.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use tlsdyno::native::shim::layout;
use tlsdyno::native::{ShimInjection, ShimSettings};
use tlsdyno_tls::{StageSet, Version};

/// `true` with the shim preloaded.
fn load(injection: &ShimInjection, edit: impl Fn(&mut Command)) -> Output {
    let mut command = Command::new("true");
    command.envs(injection.environment());
    edit(&mut command);
    command.output().unwrap()
}

/// Spoils a good injection and demands that the shim then refuses for the `reason`.
fn expect_refusal(reason: &str, spoil: impl Fn(&Path), edit: impl Fn(&mut Command)) {
    let dir = tempfile::tempdir().unwrap();
    let injection = ShimInjection::prepare(dir.path(), &ShimSettings::new(StageSet::NONE, Version::Tls13)).unwrap();
    let good = load(&injection, |_| {});
    assert!(good.status.success() && good.stderr.is_empty(), "it loads before it is spoiled: {good:?}");
    spoil(&dir.path().join("shim-area"));
    let refused = load(&injection, edit);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(78), "{printed}");
    assert!(printed.contains("tlsdyno shim: refuses") && printed.contains(reason), "{printed}");
}

fn expect_spoiled(reason: &str, at: usize, bytes: &[u8]) {
    let spoil =
        |area: &Path| fs::File::options().write(true).open(area).unwrap().write_all_at(bytes, at as u64).unwrap();
    expect_refusal(reason, spoil, |_| {});
}

#[test]
fn refuses_without_acknowledgement() {
    let keep = |_: &Path| {};
    expect_refusal("is missing", keep, |command| {
        command.env_remove("TLSDYNO_SHIM");
    });
    expect_refusal("is missing", keep, |command| {
        command.env_remove("TLSDYNO_SHIM_ACKNOWLEDGE");
    });
    expect_refusal("belongs to another run", keep, |command| {
        command.env("TLSDYNO_SHIM_ACKNOWLEDGE", "0");
    });
    expect_refusal("absolute path", keep, |command| {
        command.env("TLSDYNO_SHIM", "shim-area");
    });
    expect_refusal("cannot be mapped", |area| fs::remove_file(area).unwrap(), |_| {});
}

#[test]
fn refuses_when_the_owner_has_ended() {
    let mut ended = Command::new("true").spawn().unwrap();
    let pid = u64::from(ended.id());
    ended.wait().unwrap();
    expect_spoiled("has ended", layout::OWNER_PID_AT, &pid.to_ne_bytes());
    // The number lives (this process), but it is not the process that made the area.
    expect_spoiled("has ended", layout::OWNER_START_TICKS_AT, &1u64.to_ne_bytes());
}

#[test]
fn refuses_what_is_no_area_of_this_version() {
    expect_spoiled("is no area", 0, b"OTHER");
    expect_spoiled("another version", layout::ABI_VERSION_AT, &99u32.to_ne_bytes());
    expect_spoiled("another version", layout::SLOT_COUNT_AT, &1u32.to_ne_bytes());
    expect_spoiled("another run", layout::RUN_ID_AT, &[b'x'; layout::RUN_ID_SIZE]);
    let shorten = |area: &Path| fs::File::options().write(true).open(area).unwrap().set_len(5000).unwrap();
    expect_refusal("is no area", shorten, |_| {});
}
