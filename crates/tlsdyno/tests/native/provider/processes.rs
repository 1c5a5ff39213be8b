//! The provider under threads, forks and several library contexts; the same under sanitizers, valgrind and another
//! allocator.

use std::path::{Path, PathBuf};
use std::process::Command;

use tlsdyno::native::{Counters, Injection};
use tlsdyno_tls::{Stage, StageSet};

use crate::build;

/// A program of `native/tests` that needs an injection with everything off.
struct Program {
    name: &'static str,
    /// Whether it left the counters as its work demands.
    counted: fn(&Counters) -> bool,
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "threads",
        // 8 threads × 50 rounds × 2 groups.
        counted: |counters| counters.get("key_derive") == Some(800) && counters.get("digest") == Some(400),
    },
    Program {
        name: "processes",
        // Parent and 4 children draw 50 words each; the thread beside them digests an unknown number of times.
        counted: |counters| counters.total(Stage::Randomness) >= 250 && counters.get("digest") >= Some(250),
    },
    Program { name: "contexts", counted: |counters| counters.get("key_derive") == Some(6) },
];

/// Runs one program with everything off; `library` takes the provider's place where given.
fn run(name: &str, program: &Path, library: Option<&Path>, wrap: impl Fn(&Path) -> Command) -> Counters {
    let dir = tempfile::tempdir().unwrap();
    let other_dir = tempfile::tempdir().unwrap();
    let injection = Injection::prepare(dir.path(), StageSet::PROVIDER).unwrap();
    let _other = Injection::prepare(other_dir.path(), StageSet::NONE.with(Stage::Kdf)).unwrap();
    if let Some(library) = library {
        std::fs::copy(library, injection.library_path()).unwrap();
    }
    let mut command = wrap(program);
    if name == "contexts" {
        command.args([dir.path().join("openssl.cnf"), same_library(&injection, other_dir.path())]);
    }
    build::run(command.envs(injection.let_children_inherit().unwrap()));
    injection.counters().unwrap()
}

/// The other configuration, naming the library of `injection`: one process has one state, whichever configuration names
/// it.
fn same_library(injection: &Injection, other_dir: &Path) -> PathBuf {
    let configuration = other_dir.join("openssl.cnf");
    let text = std::fs::read_to_string(&configuration).unwrap();
    let lines = text.lines().map(|line| match line.starts_with("module = ") {
        true => format!("module = {}\n", injection.library_path().display()),
        false => format!("{line}\n"),
    });
    std::fs::write(&configuration, lines.collect::<String>()).unwrap();
    configuration
}

fn check_all(compiler: &str, flags: &[&str], library: Option<&Path>, wrap: impl Fn(&Path) -> Command) {
    for Program { name, counted } in PROGRAMS {
        let program = build::test_program(compiler, name, flags);
        let counters = run(name, &program, library, &wrap);
        assert!(counted(&counters), "{name}: {counters}");
    }
}

#[test]
fn threads_forks_and_contexts() {
    check_all("cc", &[], None, |program| Command::new(program));
}

#[test]
fn under_jemalloc() {
    let libraries = build::run(Command::new("/sbin/ldconfig").arg("-p"));
    let jemalloc = libraries
        .lines()
        .find(|line| line.contains("libjemalloc.so.2"))
        .and_then(|line| line.split(" => ").nth(1))
        .expect("libjemalloc.so.2 is not installed; Debian: apt install libjemalloc2")
        .to_owned();
    check_all("cc", &[], None, |program| {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", &jemalloc);
        command
    });
}

mod long {
    use super::*;
    use crate::build::{SANITIZERS, sanitized_library};

    #[test]
    #[ignore = "under sanitizers: make test-long"]
    fn under_address_and_undefined_behaviour_sanitizers() {
        let library = sanitized_library("provider");
        check_all("clang", SANITIZERS, Some(&library), |program| Command::new(program));
        load_unload_and_load_again(&library);
        let program = build::test_program("clang", "vectors", SANITIZERS);
        for (section, off) in [
            ("aead", "cipher"),
            ("aead", "mac"),
            ("aead", "cipher,mac"),
            ("cbc", "cipher"),
            ("cbc", "mac"),
            ("cbc", "cipher,mac"),
            ("digest", "digest"),
            ("kdf", "kdf"),
            ("signature", "authentication"),
            ("exchange", "key_agreement"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let injection = Injection::prepare(dir.path(), crate::provider::vectors::stages(off)).unwrap();
            std::fs::copy(&library, injection.library_path()).unwrap();
            build::run(Command::new(&program).args([section, off]).envs(injection.let_children_inherit().unwrap()));
        }
    }

    /// Records too short to be any, and garbage of every length.
    #[test]
    #[ignore = "under sanitizers: make test-long"]
    fn garbage_records_under_sanitizers() {
        let library = sanitized_library("provider");
        let program = build::test_program("clang", "garbage", SANITIZERS);
        for off in ["cipher", "mac", "cipher,mac"] {
            let dir = tempfile::tempdir().unwrap();
            let injection = Injection::prepare(dir.path(), crate::provider::vectors::stages(off)).unwrap();
            std::fs::copy(&library, injection.library_path()).unwrap();
            build::run(Command::new(&program).envs(injection.let_children_inherit().unwrap()));
        }
    }

    /// The provider's state outlives its unloading; nothing in it may be libcrypto's.
    fn load_unload_and_load_again(library: &Path) {
        let program = build::test_program("clang", "load", SANITIZERS);
        let dir = tempfile::tempdir().unwrap();
        let injection = Injection::prepare(dir.path(), StageSet::PROVIDER).unwrap();
        std::fs::copy(library, injection.library_path()).unwrap();
        injection.let_children_inherit().unwrap();
        let on_demand = dir.path().join("on-demand.cnf");
        let text = std::fs::read_to_string(dir.path().join("openssl.cnf")).unwrap();
        std::fs::write(&on_demand, text.replace("activate = 1\n", "")).unwrap();
        assert_eq!(build::run(Command::new(program).arg(&on_demand).env_remove("OPENSSL_CONF")), "");
    }

    #[test]
    #[ignore = "under valgrind: make test-long"]
    fn under_valgrind() {
        let program = build::test_program("cc", "vectors", &[]);
        for (section, off) in
            [("aead", "cipher,mac"), ("cbc", "cipher,mac"), ("digest", "digest"), ("exchange", "key_agreement")]
        {
            let dir = tempfile::tempdir().unwrap();
            let injection = Injection::prepare(dir.path(), crate::provider::vectors::stages(off)).unwrap();
            build::run(
                Command::new("valgrind")
                    .args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"])
                    .arg(&program)
                    .args([section, off])
                    .envs(injection.let_children_inherit().unwrap()),
            );
        }
    }
}
