//! Compiles the C test programs, and provider and doubler anew with sanitizers. A missing tool fails the test and
//! names the package.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Folder `native/` of the repository.
pub fn native() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../native")
}

/// Folder for what tests build.
pub fn out() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// Where the OpenSSL under test is installed, if it is not the system's.
pub fn openssl_prefix() -> Option<PathBuf> {
    std::env::var_os("TLSDYNO_OPENSSL_PREFIX").map(PathBuf::from)
}

/// What `command` compiles to, in a file of its own that nothing writes any more: tests that ask for the same, at the
/// same time too, run one file.
fn compiled(name: &str, mut command: Command) -> PathBuf {
    static FILES: Mutex<BTreeMap<String, Arc<OnceLock<PathBuf>>>> = Mutex::new(BTreeMap::new());
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let file = files.entry(format!("{command:?}")).or_default().clone();
    drop(files);
    let make = || {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = out().join(format!("{name}-{number}-{}", std::process::id()));
        run(command.arg("-o").arg(&path));
        path
    };
    file.get_or_init(make).clone()
}

/// Compiles `native/tests/NAME.c` against the libcrypto under test with `flags`.
pub fn test_program(compiler: &str, name: &str, flags: &[&str]) -> PathBuf {
    let mut command = Command::new(compiler);
    command
        .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion", "-Wno-deprecated-declarations"])
        .args(flags)
        .arg(native().join("tests").join(format!("{name}.c")));
    // The system's, or the shared libraries of another OpenSSL.
    if let Some(prefix) = openssl_prefix() {
        let prefix = prefix.display();
        command.args([format!("-I{prefix}/include"), format!("-L{prefix}/shared")]);
        command.arg(format!("-Wl,-rpath,{prefix}/shared"));
    }
    command.arg("-lcrypto");
    compiled(name.trim_start_matches("../"), command)
}

/// How a program of `native/tests` and the library that it loads are built.
#[derive(Clone, Copy)]
pub enum Build {
    Plain,
    /// Both with [`SANITIZERS`]: in `make test-long`.
    Sanitized,
}

impl Build {
    /// The program `name`.
    pub fn program(self, name: &str, flags: &[&str]) -> PathBuf {
        match self {
            Build::Plain => test_program("cc", name, flags),
            Build::Sanitized => test_program("clang", name, &[flags, SANITIZERS].concat()),
        }
    }

    /// The program `name`, and what takes the place of the library of `native/LIBRARY`.
    pub fn of(self, library: &str, name: &str, flags: &[&str]) -> (PathBuf, Option<PathBuf>) {
        let library = matches!(self, Build::Sanitized).then(|| sanitized_library(library));
        (self.program(name, flags), library)
    }
}

/// Tests of functions that take a [`Build`], with either.
macro_rules! plain_and_sanitized {
    ($($check:ident),+ $(,)?) => {
        mod plain {
            $(#[test]
            fn $check() {
                super::$check($crate::build::Build::Plain);
            })+
        }

        mod sanitized {
            $(#[test]
            #[ignore = "under sanitizers: make test-long"]
            fn $check() {
                super::$check($crate::build::Build::Sanitized);
            })+
        }
    };
}
pub(crate) use plain_and_sanitized;

/// Flags of address and undefined-behaviour sanitizer.
pub const SANITIZERS: &[&str] =
    &["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

/// The library of `native/NAME` compiled by clang with its warnings as errors, address and undefined-behaviour
/// sanitizer.
pub fn sanitized_library(name: &str) -> PathBuf {
    let sources = native().join(name);
    let folders = [&sources, &native().join("wrapping")].map(|folder| std::fs::read_dir(folder).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut command = Command::new("clang");
    command
        .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", "-shared"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion", "-Wstrict-prototypes"])
        .arg("-Wmissing-prototypes")
        .args(SANITIZERS)
        .arg(format!("-Wl,--version-script={}", sources.join("exports.map").display()))
        .arg("-Wl,-z,nodelete")
        .args(files.filter(|path| path.extension().is_some_and(|extension| extension == "c")));
    compiled(&format!("{name}.so"), command)
}

/// Of LSAN_OPTIONS: whether the leak check looks at thread-local variables. That of LLVM 14 may crash in those of
/// libraries that were loaded late; nothing is held there alone. Later ones must look, or they take for leaked the
/// blocks that glibc 2.41's loader allocates for these variables.
pub fn leak_check() -> &'static str {
    static OPTION: OnceLock<&str> = OnceLock::new();
    OPTION.get_or_init(|| if clang_version().is_some_and(|version| version > 14) { "use_tls=1" } else { "use_tls=0" })
}

/// The first part of it; `None` without clang.
fn clang_version() -> Option<u32> {
    let output = Command::new("clang").arg("-dumpversion").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').next()?.parse().ok()
}

/// Runs a command to its end and returns what it printed; fails the test with all output otherwise.
pub fn run(command: &mut Command) -> String {
    let output = command.env("LSAN_OPTIONS", leak_check()).output().unwrap_or_else(|error| {
        let program = Path::new(command.get_program()).to_string_lossy().into_owned();
        panic!("cannot run {program}: {error}; Debian: apt install {}", package_of(&program))
    });
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{printed}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    printed
}

/// The Debian package that holds a program the tests need.
pub fn package_of(program: &str) -> &str {
    match program {
        "cc" | "gcc" => "gcc libssl-dev",
        "nm" | "readelf" => "binutils",
        other => other,
    }
}
