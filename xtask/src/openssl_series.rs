//! `openssl-series`: builds other series of OpenSSL and runs the tests of provider and shim on each: the provider as it
//! was built on the system's headers, the shim's parts compiled anew, for it is bound to one libssl. Or it makes
//! prefixes with shared libraries, for `tlsdyno ablate --library`.

mod prefixes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tlsdyno::workspace;

/// The tests of provider, doubler and shim that do not need the system's own programs (nginx is linked with the
/// system's OpenSSL).
const TESTS: [&str; 7] = [
    "provider::stages::",
    "provider::vectors::",
    "::contexts_keep_the_mode_in_which_they_were_made",
    "provider::processes::",
    "provider::refusal::",
    "doubler::programs::",
    "shim::parts::",
];

/// What is built.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Instead of tests: build these series (3.0, 3.5) with shared libraries, for `tlsdyno ablate --library`, and print
    /// where they are
    #[arg(long, value_name = "SERIES", value_delimiter = ',')]
    prefixes: Vec<String>,
}

struct Series {
    name: String,
    version: String,
    source: PathBuf,
}

/// Builds what is not built yet under `target/openssl-series`, then tests; the first failure ends it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = workspace();
    let work = root.join("target/openssl-series");
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    if !arguments.prefixes.is_empty() {
        return prefixes::make(&arguments.prefixes, &work);
    }
    for series in find(root, &work)? {
        let prefix = build(&series, &work)?;
        share(&prefix)?;
        test(&series, root, &prefix)?;
    }
    Ok(())
}

/// Lets cargo download the sources and asks where they are.
fn find(root: &Path, work: &Path) -> Result<Vec<Series>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--locked", "--manifest-path"]);
    cargo.arg(root.join("xtask/openssl-series/Cargo.toml")).arg("--target-dir").arg(work.join("cargo"));
    let output = cargo.output().context("cargo")?;
    ensure!(output.status.success(), "{cargo:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)?
        .lines()
        .map(|line| {
            let mut fields = line.splitn(3, ' ');
            let mut next = || fields.next().map(str::to_owned).with_context(|| format!("not three fields: {line}"));
            Ok(Series { name: next()?, version: next()?, source: next()?.into() })
        })
        .collect()
}

/// Configures, compiles and installs one series; a second run finds it done.
fn build(series: &Series, work: &Path) -> Result<PathBuf> {
    let place = work.join(&series.name);
    let mut configure = Command::new("perl");
    configure.arg(series.source.join("Configure"));
    // The crate lacks the symbol lists that shared libraries are made from, so libcrypto stands inside OpenSSL's own
    // programs; they export its symbols, from which the provider takes what it needs as it would from a shared
    // libcrypto.
    configure.args(["no-shared", "no-legacy", "no-engine", "no-tests", "no-docs", "-Wl,--export-dynamic"]);
    // Out of the source tree, which is cargo's.
    install(&place, &series.version, |_| Ok(configure))
}

/// Installs OpenSSL of this version below `place`, unless that is done; answers its prefix. `configure` puts the
/// sources into a new directory, if they must be there, and answers how they are configured.
fn install(place: &Path, version: &str, configure: impl FnOnce(&Path) -> Result<Command>) -> Result<PathBuf> {
    let (tree, prefix) = (place.join("build"), place.join("installed"));
    let done = prefix.join("complete");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == version) {
        return Ok(prefix);
    }
    if tree.exists() {
        fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    fs::create_dir_all(&tree)?;
    println!("building OpenSSL {version} in {}", tree.display());
    let mut configure = configure(&tree)?;
    configure.arg(format!("--prefix={}", prefix.display())).arg("--libdir=lib").current_dir(&tree);
    step(&mut configure, "perl", &tree)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    step(Command::new("make").arg(format!("-j{jobs}")).arg("build_sw").current_dir(&tree), "make", &tree)?;
    step(Command::new("make").arg("install_sw").current_dir(&tree), "make", &tree)?;
    fs::write(&done, version).with_context(|| format!("cannot write {}", done.display()))?;
    Ok(prefix)
}

/// Makes shared libraries of the static ones, with every symbol, for programs into which libcrypto cannot be linked:
/// the shim's parts stand in front of libssl, which only the dynamic linker can bring about.
fn share(prefix: &Path) -> Result<()> {
    let directory = prefix.join("shared");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    for (name, needs) in [("crypto", &["-ldl", "-pthread"][..]), ("ssl", &["-lcrypto"])] {
        let mut link = Command::new("cc");
        link.args(["-shared", "-o"]).arg(directory.join(format!("lib{name}.so")));
        link.arg("-Wl,--whole-archive").arg(prefix.join(format!("lib/lib{name}.a"))).arg("-Wl,--no-whole-archive");
        link.arg(format!("-L{}", directory.display())).arg(format!("-Wl,-rpath,{}", directory.display())).args(needs);
        step(&mut link, "gcc", &directory)?;
    }
    Ok(())
}

/// One step of a build; what it prints is kept beside the tree.
fn step(command: &mut Command, package: &str, tree: &Path) -> Result<()> {
    let log = tree.with_extension("log");
    let file = fs::File::options().create(true).append(true).open(&log)?;
    let status = command
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .with_context(|| format!("cannot run {package}; Debian: apt install {package}"))?;
    ensure!(status.success(), "{command:?}: {status}; see {}", log.display());
    Ok(())
}

fn test(series: &Series, root: &Path, prefix: &Path) -> Result<()> {
    let version = Command::new(prefix.join("bin/openssl")).arg("version").output().context("the openssl just built")?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    ensure!(version.starts_with(&format!("OpenSSL {}.", series.name)), "not of series {}: {version}", series.name);
    println!("testing provider, doubler and shim on {}", version.trim_end());
    let status = Command::new(env!("CARGO"))
        .args(["test", "-p", "tlsdyno", "--test", "native", "--", "--include-ignored"])
        .args(TESTS)
        .env("TLSDYNO_OPENSSL_PREFIX", prefix)
        .current_dir(root)
        .status()
        .context("cargo")?;
    ensure!(status.success(), "tests of provider and shim fail on OpenSSL {} ({})", series.name, series.version);
    Ok(())
}
