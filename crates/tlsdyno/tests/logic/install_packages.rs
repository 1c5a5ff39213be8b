//! `scripts/install-packages` with an apt-get, and all else that it calls, of the test's own.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// Installs what `build` needs, by an apt-get that complains in so many calls before it does what it is told.
fn installed(place: &Path, complaint: &str, complaints: u32) -> (Output, String) {
    let write = |name: &str, text: &str| {
        fs::write(place.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    let at = place.display();
    for name in ["cargo", "chmod", "rm", "sleep", "tee"] {
        write(name, "");
    }
    write("id", "echo 0");
    write(
        "apt-get",
        &format!(
            "echo x >> {at}/calls
             n=0; while read -r _; do n=$((n + 1)); done < {at}/calls
             [ $n -gt {complaints} ] || {{ echo '{complaint}' >&2; exit 100; }}
             echo \"$@\" >> {at}/done"
        ),
    );
    symlink("/usr/bin/env", place.join("env")).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install-packages");
    let output = Command::new("/bin/sh").args([script, "build"]).env_clear().env("PATH", place).output().unwrap();
    (output, fs::read_to_string(place.join("done")).unwrap_or_default())
}

#[test]
fn another_holder_of_apts_lock_is_waited_for_with_one_word() {
    let place = tempfile::tempdir().unwrap();
    let lock = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 9 (unattended-upgr)";
    let (output, done) = installed(place.path(), lock, 3);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(done.starts_with("-q update\n-q install -y --no-install-recommends gcc "), "{done}");
    assert!(said.matches("waiting").count() == 1 && said.contains("process 9"), "{said}");
}

#[test]
fn what_else_apt_complains_of_is_told_at_once() {
    let place = tempfile::tempdir().unwrap();
    let (output, done) = installed(place.path(), "E: Unable to fetch some archives", 1);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(100) && done.is_empty(), "{said}{done}");
    assert!(said.contains("Unable to fetch") && !said.contains("waiting"), "{said}");
}
