//! Emulated hardware: the accelerator's rate from its own arithmetic and counters, and CPU time that is burnt as asked.

use std::path::Path;
use std::process::Command;

use tlsdyno::native::{Counters, Engines, Hardware, Injection};
use tlsdyno_tls::{Stage, StageSet};

use crate::build;

/// What `private_key` reports, and the counters.
struct Outcome {
    elapsed_ns: u64,
    cpu_ns: u64,
    counters: Counters,
}

fn sign(program: &Path, library: Option<&Path>, stages: StageSet, hardware: Hardware, arguments: &[&str]) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let injection = Injection::with_hardware(dir.path(), stages, hardware).unwrap();
    if let Some(library) = library {
        std::fs::copy(library, injection.library_path()).unwrap();
    }
    let printed = build::run(Command::new(program).args(arguments).envs(injection.let_children_inherit().unwrap()));
    let (elapsed, cpu) = printed.trim().split_once(' ').unwrap();
    let counters = injection.counters().unwrap();
    Outcome { elapsed_ns: elapsed.parse().unwrap(), cpu_ns: cpu.parse().unwrap(), counters }
}

const AUTHENTICATION: StageSet = StageSet::NONE.with(Stage::Authentication);
/// Two engines of 3 ms.
const ACCELERATOR: Hardware =
    Hardware { accelerator: Some(Engines::one_by_one(2, 3_000_000)), burn_ns: 0, burn_instructions: 0 };

/// 2 processes of 2 threads make 5 signatures each: 20 operations in 2 engines of 3 ms cannot take less than 30 ms,
/// however they are spread, and each waits for at least its own 3 ms. How much longer they take is the machine's
/// affair.
fn check_accelerator(program: &Path, library: Option<&Path>, job: Option<&str>) {
    let arguments: Vec<&str> = ["2", "2", "5"].into_iter().chain(job).collect();
    let outcome = sign(program, library, AUTHENTICATION, ACCELERATOR, &arguments);
    let counters = outcome.counters;
    assert_eq!((counters.get("accelerated"), counters.get("sign")), (Some(20), Some(20)));
    assert_eq!(counters.get("accelerator_batches"), Some(20));
    assert_eq!(counters.get("accelerated_async"), Some(if job.is_some() { 20 } else { 0 }));
    assert!(counters.get("accelerator_wait_ns") >= Some(20 * 3_000_000), "{counters}");
    assert!(outcome.elapsed_ns >= 30_000_000, "{} ns: the engines overlap", outcome.elapsed_ns);
    assert_eq!(counters.get("burns"), Some(0));
}

#[test]
fn engines_leave_neither_gaps_nor_overlaps_in_virtual_time() {
    build::run(&mut Command::new(build::test_program("cc", "engines", &[])));
    let program = build::test_program("clang", "engines", crate::build::SANITIZERS);
    build::run(&mut Command::new(program));
}

#[test]
fn the_accelerator_is_shared_by_threads_and_processes() {
    let program = build::test_program("cc", "private_key", &[]);
    check_accelerator(&program, None, None);
    check_accelerator(&program, None, Some("job"));
}

#[test]
fn the_accelerator_under_sanitizers() {
    let program = build::test_program("clang", "private_key", crate::build::SANITIZERS);
    let library = crate::build::sanitized_library("provider");
    check_accelerator(&program, Some(&library), None);
    check_accelerator(&program, Some(&library), Some("job"));
}

/// Four that ask while the engine gathers are one batch: threads of several processes share it, and none of it takes
/// less than gathering and the batch do.
#[test]
fn the_accelerators_batches_are_shared_by_threads_and_processes() {
    let program = build::test_program("cc", "private_key", &[]);
    let batches = Engines { batch: 4, gather_ns: 30_000_000, ..Engines::one_by_one(1, 3_000_000) };
    let hardware = Hardware { accelerator: Some(batches), ..Hardware::default() };
    for job in [None, Some("job")] {
        let arguments: Vec<&str> = ["2", "4", "3"].into_iter().chain(job).collect();
        let outcome = sign(&program, None, AUTHENTICATION, hardware, &arguments);
        assert_eq!(outcome.counters.get("accelerated"), Some(24));
        let made = outcome.counters.get("accelerator_batches").unwrap();
        assert!((6..24).contains(&made), "{made} batches of four at most");
        assert!(outcome.elapsed_ns >= 3 * 33_000_000, "{} ns for three rounds", outcome.elapsed_ns);
    }
}

/// Signatures stay real, the time burnt is CPU time, and its mean is what was asked for.
#[test]
fn cpu_time_is_burnt_as_asked() {
    const SIGNATURES: u64 = 400;
    let program = build::test_program("cc", "private_key", &[]);
    for wanted_ns in [20_000, 100_000] {
        let hardware = Hardware { burn_ns: wanted_ns, accelerator: None, burn_instructions: 0 };
        let outcome = sign(&program, None, StageSet::NONE, hardware, &["1", "2", "200"]);
        let counters = outcome.counters;
        assert_eq!((counters.get("burns"), counters.total(Stage::Authentication)), (Some(SIGNATURES), 0));
        let burnt_ns = counters.get("burnt_ns").unwrap();
        let mean_ns = burnt_ns / SIGNATURES;
        // A reading of the clock may be interrupted, never the other way round.
        assert!(mean_ns >= wanted_ns * 95 / 100 && mean_ns < wanted_ns * 3 / 2, "{mean_ns} of {wanted_ns} ns");
        assert!(outcome.cpu_ns >= burnt_ns, "{} ns of CPU", outcome.cpu_ns);
    }
}
