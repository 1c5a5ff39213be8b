//! Compiles the provider (`native/provider`, C) into one shared library, which `src/native.rs` embeds.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Much is warned of: the library runs inside other people's servers.
const WARNINGS: [&str; 6] =
    ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wstrict-prototypes", "-Wmissing-prototypes"];

/// Set by `make test`: warnings are errors. Elsewhere a compiler that warns of more must not stop an installation.
const WARNINGS_ARE_ERRORS: &str = "TLSDYNO_WERROR";

fn main() {
    let native = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../native");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed={}", native.join("provider").display());
    println!("cargo::rerun-if-changed={}", native.join("record.h").display());
    println!("cargo::rerun-if-env-changed={WARNINGS_ARE_ERRORS}");
    build_provider(&native.join("provider"), &out.join("tlsdyno-provider.so"));
}

fn build_provider(sources: &Path, library: &Path) {
    let mut build = cc::Build::new();
    build
        .files(c_files(sources))
        .std("c11")
        .define("_GNU_SOURCE", None)
        // The same code in debug and release builds: it is what gets measured.
        .opt_level(2)
        .debug(true)
        .pic(true)
        .flag("-fvisibility=hidden")
        .flag("-pthread")
        .cargo_warnings(true);
    for warning in WARNINGS {
        build.flag(warning);
    }
    if env::var_os(WARNINGS_ARE_ERRORS).is_some() {
        build.flag("-Werror");
    }
    let objects = build.try_compile_intermediates().unwrap_or_else(|error| {
        panic!("the OpenSSL provider does not compile: {error}\nIt needs a C compiler and OpenSSL's headers; Debian: apt install gcc libssl-dev")
    });
    // Not linked with libcrypto: it takes that of the server that loads it, of whatever series (3.0, 3.5, 4.0); two in
    // one process crash. `nodelete`: threads and fork handlers may still point into it after it is unloaded.
    let mut link = build.get_compiler().to_command();
    link.arg("-shared").arg("-o").arg(library).args(&objects).args([
        "-pthread",
        &format!("-Wl,--version-script={}", sources.join("exports.map").display()),
        "-Wl,-z,nodelete,-z,relro,-z,now",
    ]);
    run(&mut link);
}

fn c_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    files.sort();
    files
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
