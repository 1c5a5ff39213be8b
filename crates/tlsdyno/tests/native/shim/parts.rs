//! The shim's C parts over memory, under sanitizers and valgrind: filter BIO, plain data, scripts, records, sessions.

use std::path::{Path, PathBuf};
use std::process::Command;

use tlsdyno::model::CertificateKind;
use tlsdyno::native::{ShimCounters, ShimInjection, ShimSettings};
use tlsdyno::servers::{CertificateFiles, certificates};
use tlsdyno_tls::{Script, Stage, StageSet, Suite, Version};

use crate::build::{self, Build, plain_and_sanitized};

/// One program of `native/tests` with the shim compiled into it.
fn built(build: Build, name: &str) -> PathBuf {
    let sources = std::fs::read_dir(build::native().join("shim")).unwrap().map(|entry| entry.unwrap().path());
    let sources = sources.filter(|path| path.extension().is_some_and(|extension| extension == "c"));
    let mut all = vec!["-Wl,--no-as-needed".to_owned(), "-lssl".to_owned()];
    all.extend(sources.map(|path| path.display().to_string()));
    build.program(name, &all.iter().map(String::as_str).collect::<Vec<_>>())
}

fn scripts(settings: &mut ShimSettings) {
    settings.full_script = Some(Script { flights: vec![243, 1363, 80, 510], ready_after: 3 });
    settings.resumed_script = Some(Script { flights: vec![514, 241, 80], ready_after: 3 });
}

fn off(stages: &[Stage]) -> StageSet {
    stages.iter().copied().collect()
}

/// Runs a program, `arguments` first, with `settings`; the shim is in it, not preloaded.
fn run(mut command: Command, settings: &ShimSettings, files: &CertificateFiles) -> ShimCounters {
    let dir = tempfile::tempdir().unwrap();
    let injection = ShimInjection::prepare(dir.path(), settings).unwrap();
    let environment = injection.let_children_inherit().unwrap().into_iter().filter(|(name, _)| name != "LD_PRELOAD");
    build::run(command.arg(&files.chain).arg(&files.key).envs(environment));
    injection.counters().unwrap()
}

/// Every section of `shim_connection` with the settings it needs, and how its connections must have begun.
fn sections() -> Vec<(&'static str, ShimSettings, &'static str)> {
    let plain = ShimSettings::new(off(&[Stage::Marshalling]), Version::Tls13);
    let mut script = ShimSettings::new(off(&[Stage::Handshake, Stage::Marshalling]), Version::Tls13);
    scripts(&mut script);
    let mut fast = script.clone();
    fast.stages = fast.stages.with(Stage::RoundTrip);
    let stamped = ShimSettings { time_stamps: true, ..plain.clone() };
    let every = off(&[Stage::Marshalling, Stage::Handshake, Stage::RoundTrip, Stage::Setup]);
    let mut modes = ShimSettings { suite: Some(Suite::Tls13Aes128Gcm), ..ShimSettings::new(every, Version::Tls13) };
    scripts(&mut modes);
    let mut sections = vec![
        ("plain", plain, "full_handshakes"),
        ("plain", stamped, "full_handshakes"),
        ("script", script, "skeleton_resumed"),
        ("fast", fast, "skeleton_fast"),
        ("modes", modes.clone(), "full_handshakes"),
        ("modes", ShimSettings { time_stamps: true, ..modes }, "minimal"),
    ];
    for suite in [
        Suite::Tls13Aes128Gcm,
        Suite::Tls13ChaCha20,
        Suite::EcdheRsaAes256Gcm,
        Suite::EcdheRsaChaCha20,
        Suite::RsaAes128Sha,
        Suite::RsaAes256Sha256,
    ] {
        for encrypt_then_mac in [true, false] {
            let minimal = ShimSettings::new(off(&[Stage::Setup]), suite.version());
            let minimal = ShimSettings { suite: Some(suite), encrypt_then_mac, ..minimal };
            sections.push(("minimal", minimal, "minimal"));
        }
    }
    sections
}

fn universal(version: Version, tickets: bool) -> ShimSettings {
    let stages = off(&[Stage::SessionCache, Stage::Marshalling, Stage::RoundTrip]);
    let mut settings = ShimSettings { tickets, ..ShimSettings::new(stages, version) };
    scripts(&mut settings);
    settings
}

fn certificate(dir: &Path) -> CertificateFiles {
    certificates::create(CertificateKind::P256, dir).unwrap()
}

fn connections(build: Build) {
    let dir = tempfile::tempdir().unwrap();
    let files = certificate(dir.path());
    let program = built(build, "shim_connection");
    for (section, settings, kind) in sections() {
        let mut command = Command::new(&program);
        command.arg(section);
        let counters = run(command, &settings, &files);
        assert!(counters.get(kind) > Some(10), "{section}: {counters}");
    }
}

fn sessions(build: Build) {
    let dir = tempfile::tempdir().unwrap();
    let files = certificate(dir.path());
    let program = built(build, "shim_sessions");
    for (version, tickets) in [(Version::Tls12, false), (Version::Tls12, true), (Version::Tls13, false)] {
        let counters = run(Command::new(&program), &universal(version, tickets), &files);
        let get = |name| counters.get(name).unwrap();
        assert_eq!(get("resumed_handshakes"), 3, "{counters}");
        assert_eq!(get("universal_hits"), get("resumed_handshakes") + get("fast_resume"), "{counters}");
        assert!(get("universal_misses") > 0 && get("fast_resume") > 20, "{counters}");
    }
}

plain_and_sanitized!(connections, sessions);

mod long {
    use super::*;

    #[test]
    #[ignore = "under valgrind: make test-long"]
    fn sessions_and_records_under_valgrind() {
        let dir = tempfile::tempdir().unwrap();
        let files = certificate(dir.path());
        let valgrind = |program: &Path| {
            let mut command = Command::new("valgrind");
            command
                .args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"])
                .arg(program);
            command
        };
        let sessions = built(Build::Plain, "shim_sessions");
        run(valgrind(&sessions), &universal(Version::Tls13, false), &files);
        let connections = built(Build::Plain, "shim_connection");
        let (section, settings, _) = sections().remove(2);
        let mut command = valgrind(&connections);
        command.arg(section);
        run(command, &settings, &files);
    }
}
