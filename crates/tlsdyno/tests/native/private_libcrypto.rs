//! A program that loads libcrypto privately, as Python does: provider, doubler and profiler take that one, and of two
//! only the first.

use std::path::Path;
use std::process::Command;

use tlsdyno::native::{Clock, Doubling, Injection, Profiling, Unpacked};
use tlsdyno_tls::StageSet;

use crate::build;

/// What the program prints, and says besides, with this library.
fn run(program: &Path, library: &Unpacked, copy: Option<&Path>) -> (String, String) {
    let mut command = Command::new(program);
    let output = command.args(copy).envs(library.let_children_inherit().unwrap()).output().unwrap();
    let [printed, said] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}: {printed}{said}", output.status);
    (printed, said)
}

fn check(library: &Unpacked, name: &str) {
    // Nothing of libcrypto is called by its name, so that the linker leaves it out.
    let program = build::test_program("cc", "private_libcrypto", &["-Wl,--as-needed"]);
    assert_eq!(run(&program, library, None), ("first 1\n".to_owned(), String::new()), "{name}");
    let dir = tempfile::tempdir().unwrap();
    let (printed, said) = run(&program, library, Some(&dir.path().join("copy.so")));
    assert_eq!(printed, "first 1\nsecond 0\nfirst 1\n", "{name}: {said}");
    assert!(said.contains("copy.so is a second OpenSSL in this process"), "{name}: {said}");
}

#[test]
fn libraries_take_the_libcrypto_that_loads_them() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    check(&Injection::prepare(dirs[0].path(), StageSet::NONE).unwrap(), "provider");
    check(&Doubling::prepare(dirs[1].path()).unwrap(), "doubler");
    check(&Profiling::prepare(dirs[2].path(), Clock::Counter).unwrap(), "profiler");
}
