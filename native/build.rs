//! Compiles the provider (`provider`, C), the doubler (`doubler`), the profiler (`profiler`), the provider of remote
//! keys (`cryptoserver`) and the shim (`shim`) into a shared library each, what measures primitives (`primitives`) and
//! the stock client (`stock_client`) into programs, which `src` embeds. Batched RSA (`batch_rsa`) is linked with `src`.
//! The C headers say what the memory that they share with tlsdyno looks like (`layout.c`).

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Much is warned of: they run inside other people's servers.
const WARNINGS: [&str; 6] =
    ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wstrict-prototypes", "-Wmissing-prototypes"];

/// OpenSSL's series whose functions the C code calls, as its headers write a version: the oldest that a server may
/// have. Newer headers then do not warn of what is deprecated since, whose replacements the oldest series lacks.
const OPENSSL_API: &str = "30000";

fn main() {
    let native = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for source in [
        "batch_rsa",
        "clock.h",
        "cryptoserver",
        "doubler",
        "doubler_record.h",
        "layout.c",
        "owner.h",
        "primitives",
        "profiler",
        "profiler_record.h",
        "provider",
        "record.h",
        "shim",
        "shim_record.h",
        "stages.h",
        "stock_client",
        "wrapping",
    ] {
        println!("cargo::rerun-if-changed={}", native.join(source).display());
    }
    // Not linked with libcrypto: they look up that of the server that loads them, of whatever series (3.0, 3.5, 4.0);
    // two in one process crash. `defs`: no name of it is left for the loader to find, which might find none, or another
    // one. `nodelete`: threads and fork handlers may still point into them after they are unloaded.
    let wrapping = ["-Wl,-z,nodelete,-z,relro,-z,now,-z,defs", "-ldl"];
    // Linked with libssl: servers that load it late (Apache, lighttpd) then find the shim in front of it.
    let shim = ["-Wl,-z,nodelete,-z,relro,-z,now", "-Wl,--no-as-needed", "-lssl", "-lcrypto", "-ldl"];
    let client = ["-lssl", "-lcrypto", "-Wl,-z,now"];
    let (native, out) = (&native, &out);
    // All other crates wait for these. What four libraries have in common is compiled once.
    std::thread::scope(|scope| {
        let common = scope.spawn(|| compile(&native.join("wrapping")));
        let own = ["provider", "doubler", "profiler", "cryptoserver"];
        let own = own.map(|name| (name, scope.spawn(move || compile(&native.join(name)))));
        scope.spawn(|| library("shim", native, &compile(&native.join("shim")), &shim));
        // Linked with neither: it opens those that it is told.
        scope.spawn(|| program(&native.join("primitives"), &out.join("tlsdyno-primitives"), &["-ldl", "-Wl,-z,now"]));
        scope.spawn(|| program(&native.join("stock_client"), &out.join("tlsdyno-stock-client"), &client));
        write_layout(&native.join("layout.c"), &out.join("layout.rs"));
        // After all others, so that what is missing is named: linked into this program.
        prepared(&native.join("batch_rsa")).compile("tlsdyno_batch_rsa");
        let common = common.join().expect("it compiles");
        for (name, own) in own {
            library(name, native, &[own.join().expect("it compiles"), common.clone()].concat(), &wrapping);
        }
    });
}

/// Writes what a C program prints; it runs here, whatever machine the rest is compiled for.
fn write_layout(source: &Path, printed: &Path) {
    let program = printed.with_extension("program");
    let host = env::var("HOST").expect("cargo sets it");
    let mut compile = cc::Build::new().target(&host).get_compiler().to_command();
    run(compile.args(["-std=c11", "-D_GNU_SOURCE"]).arg(source).arg("-o").arg(&program));
    let output = Command::new(&program).output().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    assert!(output.status.success(), "{}: {}", program.display(), output.status);
    std::fs::write(printed, output.stdout).expect("the output directory can be written");
}

/// Of these objects; the folder of its name says what it exports.
fn library(name: &str, native: &Path, objects: &[PathBuf], link_arguments: &[&str]) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut link = cc::Build::new().get_compiler().to_command();
    link.arg("-shared").arg("-o").arg(out.join(format!("tlsdyno-{name}.so"))).args(objects);
    let exports = native.join(name).join("exports.map");
    link.args(["-pthread", &format!("-Wl,--version-script={}", exports.display())]);
    run(link.args(link_arguments));
}

/// A program of the C files in this folder.
fn program(folder: &Path, program: &Path, link_arguments: &[&str]) {
    let objects = compile(folder);
    let mut link = cc::Build::new().get_compiler().to_command();
    run(link.arg("-o").arg(program).args(&objects).args(link_arguments));
}

/// The objects of the C files in this folder.
fn compile(folder: &Path) -> Vec<PathBuf> {
    prepared(folder).try_compile_intermediates().unwrap_or_else(|error| {
        panic!(
            "{} does not compile: {error}\nIt needs a C compiler and OpenSSL's headers; Debian: apt install gcc \
             libssl-dev",
            folder.display()
        )
    })
}

/// Ready to compile the C files in this folder.
fn prepared(folder: &Path) -> cc::Build {
    let is_debug = env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    let mut build = cc::Build::new();
    build
        .files(files_ending(folder, "c"))
        .std("c11")
        .define("_GNU_SOURCE", None)
        .define("OPENSSL_API_COMPAT", OPENSSL_API)
        // The same code in debug and release builds: it is what gets measured.
        .opt_level(2)
        // For who looks into a server with a debugger. The program carries these files: packages need no such weight.
        .debug(is_debug)
        .pic(true)
        .flag("-fvisibility=hidden")
        .flag("-pthread")
        .cargo_warnings(true);
    for warning in WARNINGS {
        build.flag(warning);
    }
    // A compiler that warns of more must not stop an installation, which is a release.
    if is_debug {
        build.flag("-Werror");
    }
    build
}

fn files_ending(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == end))
        .collect();
    files.sort();
    files
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
