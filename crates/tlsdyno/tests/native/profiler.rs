//! The profiler: no code of a no-op in it, every result right while calls
//! are timed, in threads and forks, and no trouble when its owner is gone.

use std::path::Path;
use std::process::Command;

use tlsdyno::native::layout::profiler as layout;
use tlsdyno::native::{ClassCount, Clock, ProfileCounts, Profiling};
use tlsdyno_tls::Stage;

use crate::build::{self, Build, plain_and_sanitized};

#[test]
fn exports_one_symbol_and_is_made_of_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let profiling = Profiling::prepare(dir.path(), Clock::Thread).unwrap();
    let exported = build::run(Command::new("nm").args(["-D", "--defined-only"]).arg(profiling.library_path()));
    let names: Vec<&str> = exported.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(names, ["OSSL_provider_init"]);
    let dynamic = build::run(Command::new("readelf").args(["-d", "-W"]).arg(profiling.library_path()));
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.iter().any(|line| line.contains("crypto") || line.contains("ssl")), "{needed:?}");
    assert!(dynamic.contains("NODELETE"), "threads and fork handlers may point into it after an unload: {dynamic}");
    let printed = build::run(Command::new("readelf").args(["--debug-dump=info", "-W"]).arg(profiling.library_path()));
    let files: Vec<&str> = printed.lines().filter(|line| line.contains("DW_AT_name") && line.ends_with(".c")).collect();
    assert!(files.len() > 5, "{files:?}");
    for file in files {
        assert!(file.contains("native/profiler/") || file.contains("native/wrapping/"), "{file}");
    }
}

/// Runs a program with the profiler, or that library in its place.
fn run(program: &mut Command, library: Option<&Path>, clock: Clock, timed: bool) -> ProfileCounts {
    let dir = tempfile::tempdir().unwrap();
    let profiling = Profiling::prepare(dir.path(), clock).unwrap();
    run_with(&profiling, program, library, timed).0
}

/// The same, and what the program printed.
fn run_with(
    profiling: &Profiling,
    program: &mut Command,
    library: Option<&Path>,
    timed: bool,
) -> (ProfileCounts, String) {
    profiling.set_timed(timed).unwrap();
    if let Some(library) = library {
        std::fs::copy(library, profiling.library_path()).unwrap();
    }
    let printed = build::run(program.envs(profiling.let_children_inherit().unwrap()));
    let used = profiling.trampolines().unwrap().iter().flatten().count();
    assert!((200..layout::TRAMPOLINES).contains(&used), "{used} trampolines, of which there must be enough");
    (profiling.counts().unwrap(), printed)
}

/// The number behind a word.
fn number(printed: &str, word: &str) -> u64 {
    let line = printed.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{word}: {printed}")).parse().unwrap()
}

fn class(counts: &ProfileCounts, name: &str) -> ClassCount {
    counts.iter().find(|(_, class, _)| *class == name).map_or(ClassCount::default(), |(.., count)| count)
}

/// What the programs do (`native/tests/work.h`) was counted and timed. On a busy machine the clock's own time, which is
/// taken off, may leave nothing of short calls.
fn check(counts: &ProfileCounts, what: &str) {
    for stage in [Stage::Digest, Stage::Cipher, Stage::Randomness] {
        let is_timed = counts.iter().any(|(of, _, count)| of == stage && count.timed_count > 0);
        assert!(is_timed, "{what}: {stage}: {counts:?}");
    }
    check_long(counts, what);
}

/// The same where only key agreement is long against a reading of the clock, which is taken off.
fn check_long(counts: &ProfileCounts, what: &str) {
    assert!(counts.ns_of(Stage::KeyAgreement) > 0.0, "{what}: {counts:?}");
    assert!(["cipher", "generate"].into_iter().all(|name| class(counts, name).timed_count > 0), "{what}: {counts:?}");
    for (_, name, count) in counts.iter() {
        let is_short =
            layout::CLASSES.iter().zip(layout::IS_SHORT).any(|((_, class), is_short)| *class == name && is_short);
        assert!(count.timed_count <= count.calls, "{what}: {name} {count:?}");
        assert!(!is_short || count.calls < 1_000 || count.timed_count * 8 < count.calls, "{what}: {name} {count:?}");
    }
}

fn threads_and_forks_are_timed_each_by_itself(build: Build) {
    for name in ["threads", "processes"] {
        let (program, library) = build.of("profiler", name, &[]);
        let counts = run(&mut Command::new(program), library.as_deref(), Clock::best(), true);
        check(&counts, name);
        // In each of 50 rounds of 8 threads two keys of two kinds, of which two derive: no update was lost.
        let generated = class(&counts, "key_generate").calls;
        assert!(name != "threads" || generated == 50 * 8 * 4, "{generated}");
    }
}

/// A slot goes from a thread that ends to one that begins, with what it holds; where there are too many at once, they
/// share one.
fn no_call_is_lost_however_many_threads_there_are(build: Build) {
    let (program, library) = build.of("profiler", "ends", &[]);
    let dir = tempfile::tempdir().unwrap();
    let profiling = Profiling::prepare(dir.path(), Clock::best()).unwrap();
    let (counts, printed) = run_with(&profiling, &mut Command::new(program), library.as_deref(), true);
    let generated = class(&counts, "key_generate");
    assert_eq!(generated.calls, number(&printed, "keys"));
    // Those that other work interrupted are not timed.
    assert!(generated.timed_count > 0, "{generated:?}");
}

#[test]
fn the_clock_of_the_thread_does_where_there_is_no_other() {
    let program = build::test_program("cc", "threads", &[]);
    let counts = run(&mut Command::new(program), None, Clock::Thread, true);
    // To read this clock takes longer than a digest of some bytes, so that nothing may be left of its time.
    assert!(class(&counts, "digest").timed_count > 0, "{counts:?}");
    check_long(&counts, "thread clock");
}

#[test]
fn nothing_is_counted_unless_it_is_wanted() {
    let program = build::test_program("cc", "threads", &[]);
    assert_eq!(run(&mut Command::new(program), None, Clock::Counter, false), ProfileCounts::default());
}

#[test]
fn without_an_area_it_is_the_default_provider() {
    let program = build::test_program("cc", "threads", &[]);
    let dir = tempfile::tempdir().unwrap();
    let profiling = Profiling::prepare(dir.path(), Clock::Counter).unwrap();
    let environment = profiling.handed().environment;
    // The descriptor is closed on execution, as in a server that somebody else starts with this configuration.
    let output = Command::new(program).envs(environment).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("times nothing in this process"), "{said}");
}

plain_and_sanitized!(threads_and_forks_are_timed_each_by_itself, no_call_is_lost_however_many_threads_there_are,);

mod long {
    use super::*;

    /// What else runs on the processor meanwhile is in no time, though the processor's counter goes on.
    #[test]
    #[ignore = "wants a processor without other work: make test-long"]
    fn interruptions_are_in_no_time() {
        let program = build::test_program("cc", "preempted", &[]);
        let dir = tempfile::tempdir().unwrap();
        let profiling = Profiling::prepare(dir.path(), Clock::Counter).unwrap();
        let cpu = *tlsdyno::affinity::allowed().last().unwrap();
        let (counts, printed) = run_with(&profiling, Command::new(program).arg(cpu.to_string()), None, true);
        let (sign, cpu_ns) = (class(&counts, "sign"), number(&printed, "signed_ns") as f64);
        eprintln!("{sign:?} within {cpu_ns} ns of CPU time, {} interrupted", profiling.interrupted().unwrap());
        assert_eq!(sign.calls, 300);
        if profiling.sees_interruptions().unwrap() == Some(false) {
            eprintln!("this kernel or C library does not tell of interruptions: nothing was compared");
            return;
        }
        assert!(profiling.interrupted().unwrap() > 5 && sign.timed_count > 50, "{sign:?}");
        let part = sign.all_ns() / cpu_ns;
        assert!((0.7..1.1).contains(&part), "{part}: {sign:?} within {cpu_ns} ns of CPU time");
    }

    #[test]
    #[ignore = "under valgrind: make test-long"]
    fn under_valgrind() {
        let program = build::test_program("cc", "threads", &[]);
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        check(&run(valgrind.arg(program), None, Clock::Counter, true), "valgrind");
    }
}
