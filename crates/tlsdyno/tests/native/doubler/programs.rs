//! Programs of `native/tests` on the doubler: every operation across all modes, TLS over flips, threads and forks, the
//! owner's end, memory afterwards; plain, under sanitizers and under Valgrind.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use tlsdyno::native::{Doubled, Doubling, DoublingCounters};
use tlsdyno_tls::{Stage, StageSet};

use crate::build::{self, Build, plain_and_sanitized};
use crate::provider::tls::certificate;

/// Runs a program, with the area's descriptor in place of the argument `AREA`.
fn run(program: &mut Command, library: Option<&Path>, arguments: &[&str], doubled: Doubled) -> DoublingCounters {
    let dir = tempfile::tempdir().unwrap();
    let doubling = Doubling::prepare(dir.path()).unwrap();
    doubling.set_mode(doubled).unwrap();
    if let Some(library) = library {
        std::fs::copy(library, doubling.library_path()).unwrap();
    }
    let descriptor = doubling.handed().descriptors[0].to_string();
    program.args(arguments.iter().map(|argument| if *argument == "AREA" { &descriptor } else { *argument }));
    build::run(program.envs(doubling.let_children_inherit().unwrap()));
    doubling.counters().unwrap()
}

/// Everything was computed twice at times, and nothing failed.
fn check_all_doubled(counters: &DoublingCounters) {
    for stage in Stage::PROVIDER {
        assert!(counters.doubled(stage) > 0, "{stage}: {counters}");
    }
    assert_eq!(counters.event("lost"), 0, "{counters}");
    for (_, name, [calls, doubled]) in counters.of_stages() {
        assert!(doubled <= calls, "{name}: {counters}");
    }
}

fn every_result_is_right_in_and_across_all_modes(build: Build) {
    let (program, library) = build.of("doubler", "doubled", &[]);
    let counters = run(&mut Command::new(program), library.as_deref(), &["AREA", "every"], Doubled::NOTHING);
    check_all_doubled(&counters);
}

fn connections_survive_flips_in_mid_handshake(build: Build) {
    let (certificate, key) = certificate("rsa");
    let arguments = ["AREA", certificate.to_str().unwrap(), key.to_str().unwrap(), "doubled"];
    let (program, library) = build.of("doubler", "modes_tls", &["-Wl,--no-as-needed", "-lssl"]);
    let counters = run(&mut Command::new(program), library.as_deref(), &arguments, Doubled::NOTHING);
    check_all_doubled(&counters);
}

#[test]
fn leaves_no_second_copy_of_a_secret() {
    let program = build::test_program("cc", "doubled", &[]);
    let counters = run(&mut Command::new(program), None, &["AREA", "wiped"], Doubled::NOTHING);
    assert!(counters.doubled(Stage::Kdf) > 0, "{counters}");
}

fn threads_forks_and_several_contexts(build: Build) {
    let everything = Doubled::stages(StageSet::PROVIDER);
    for name in ["threads", "processes"] {
        let (program, library) = build.of("doubler", name, &[]);
        let counters = run(&mut Command::new(program), library.as_deref(), &[], everything);
        assert!(counters.doubled(Stage::Digest) >= 250, "{name}: {counters}");
        assert_eq!(counters.event("lost"), 0, "{name}: {counters}");
    }
}

/// In a process that has long been loaded: results go on being right, nothing is computed twice any more.
fn passes_through_once_that_the_heartbeat_stops(build: Build) {
    let (program, library) = build.of("doubler", "doubled", &[]);
    let dir = tempfile::tempdir().unwrap();
    let doubling = Doubling::prepare(dir.path()).unwrap();
    if let Some(library) = library {
        std::fs::copy(library, doubling.library_path()).unwrap();
    }
    let mut process = Command::new(program)
        .args([doubling.handed().descriptors[0].to_string().as_str(), "gone"])
        .envs(doubling.let_children_inherit().unwrap())
        .env("LSAN_OPTIONS", build::leak_check())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    drop(doubling);
    let mut said = String::new();
    process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(process.wait().unwrap().success() && line == "ready\n", "{line}{said}");
}

/// A configuration that was left behind: the server says so once, and serves with the default provider.
#[test]
fn a_configuration_without_its_area_serves_as_the_default_provider() {
    let dir = tempfile::tempdir().unwrap();
    let doubling = Doubling::prepare(dir.path()).unwrap();
    let environment = doubling.handed().environment;
    drop(doubling);
    let digest = || {
        let mut openssl = Command::new("openssl");
        openssl.args(["dgst", "-sha256"]).arg(std::env::current_exe().unwrap());
        openssl
    };
    let output = digest().envs(environment.clone()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("doubles nothing in this process"), "{said}");
    assert_eq!(output.stdout, digest().env_remove("OPENSSL_CONF").output().unwrap().stdout);
    let random = build::run(Command::new("openssl").args(["rand", "-hex", "16"]).envs(environment));
    assert_eq!(random.trim().len(), 32);
}

plain_and_sanitized!(
    every_result_is_right_in_and_across_all_modes,
    connections_survive_flips_in_mid_handshake,
    threads_forks_and_several_contexts,
    passes_through_once_that_the_heartbeat_stops,
);

mod long {
    use super::*;

    #[test]
    #[ignore = "under valgrind: make test-long"]
    fn under_valgrind() {
        let program = build::test_program("cc", "threads", &[]);
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        let counters = run(valgrind.arg(program), None, &[], Doubled::stages(StageSet::PROVIDER));
        assert!(counters.doubled(Stage::KeyAgreement) > 0 && counters.event("lost") == 0, "{counters}");
    }
}
