//! The mode word: contexts and connections keep the mode in which they began, new ones have that of the moment; also in
//! workers that were forked before, and in a real nginx.

use std::path::Path;
use std::process::Command;

use tlsdyno::native::Injection;
use tlsdyno_tls::{Stage, StageSet};

use super::nginx::Nginx;
use super::tls::{Series, certificate, request};
use super::vectors::stages;
use crate::build::{self, Build, plain_and_sanitized};

/// Runs a program of `native/tests` on a provider that may switch `may_be_off`, with the area's descriptor as its first
/// argument. Answers how often a mode was read with bits to be ignored.
fn run(program: &Path, library: Option<&Path>, may_be_off: StageSet, arguments: &[&str]) -> u32 {
    let dir = tempfile::tempdir().unwrap();
    let injection = Injection::prepare(dir.path(), may_be_off).unwrap();
    if let Some(library) = library {
        std::fs::copy(library, injection.library_path()).unwrap();
    }
    let descriptor = injection.handed().descriptors[0].to_string();
    let mut command = Command::new(program);
    build::run(command.arg(descriptor).args(arguments).envs(injection.let_children_inherit().unwrap()));
    injection.modes_ignored().unwrap()
}

fn contexts_keep_the_mode_in_which_they_were_made(build: Build) {
    let (program, library) = build.of("provider", "modes", &[]);
    assert_eq!(run(&program, library.as_deref(), StageSet::PROVIDER, &["every"]), 0);
}

fn a_mode_switches_nothing_that_the_run_did_not_acknowledge(build: Build) {
    let (program, library) = build.of("provider", "modes", &[]);
    assert!(run(&program, library.as_deref(), stages("digest"), &["outside"]) > 0);
}

fn connections_survive_flips(build: Build) {
    let (certificate, key) = certificate("rsa");
    let files = [certificate.to_str().unwrap(), key.to_str().unwrap()];
    let (program, library) = build.of("provider", "modes_tls", &["-Wl,--no-as-needed", "-lssl"]);
    assert_eq!(run(&program, library.as_deref(), StageSet::PROVIDER, &files), 0);
}

plain_and_sanitized!(
    contexts_keep_the_mode_in_which_they_were_made,
    a_mode_switches_nothing_that_the_run_did_not_acknowledge,
    connections_survive_flips,
);

/// What a mode is to clients that expect it, and to those that expect another: the same workers all the time.
#[test]
fn nginx_takes_every_mode_in_the_same_workers() {
    const MODES: [&str; 5] = [
        "authentication,key_agreement,cipher,mac,digest,kdf",
        "authentication",
        "key_agreement,cipher",
        "none",
        "mac,kdf",
    ];
    let dirs: Vec<_> = MODES.iter().map(|_| tempfile::tempdir().unwrap()).collect();
    let clients: Vec<_> =
        MODES.iter().zip(&dirs).map(|(mode, dir)| Injection::prepare(dir.path(), stages(mode)).unwrap()).collect();
    let dir = tempfile::tempdir().unwrap();
    let server = Injection::prepare(dir.path(), StageSet::PROVIDER).unwrap();
    let nginx = Nginx::start(dir.path(), &server);
    let workers = nginx.workers();

    // Each mode twice, and so after every other one.
    for round in 0..2 {
        for (index, mode) in MODES.into_iter().enumerate() {
            server.set_mode(stages(mode)).unwrap();
            let before = server.counters().unwrap();
            for version in ["-tls1_2", "-tls1_3"] {
                for (expects, client) in clients.iter().enumerate() {
                    let answer = request(Series::System, &nginx.address, Some(client), &[version]);
                    let context = format!("round {round}, {mode}, client of {}: {}", MODES[expects], answer.0);
                    assert_eq!(answer.is_complete(), expects == index, "{context}");
                }
            }
            let counters = server.counters().unwrap() - before;
            for stage in Stage::PROVIDER {
                assert_eq!(counters.total(stage) > 0, stages(mode).contains(stage), "{stage} in {mode}: {counters}");
            }
        }
    }
    assert_eq!((nginx.workers(), server.modes_ignored().unwrap()), (workers, 0));
}
