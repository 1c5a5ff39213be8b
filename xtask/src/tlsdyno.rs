//! The program that is tried, a load of it, and the examples that use it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tlsdyno::satellites::SATELLITES;

use crate::process::{self, Ending};

pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the workspace")
}

/// The program that the environment variable TLSDYNO names, or the one beside this program, built in the same profile.
pub fn built() -> Result<PathBuf> {
    let path = named().map_or_else(|| std::env::current_exe().map(|path| path.with_file_name("tlsdyno")), Ok)?;
    ensure!(path.is_file(), "{} is missing; run `make build` first", path.display());
    Ok(path)
}

/// The program of [`built`], brought up to date first if the variable TLSDYNO names none.
pub fn build() -> Result<PathBuf> {
    if named().is_none() {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        cargo_build(&["--quiet", "--profile", profile])?;
    }
    built()
}

fn named() -> Option<PathBuf> {
    std::env::var_os("TLSDYNO").map(PathBuf::from)
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace());
    cargo
}

fn cargo_build(arguments: &[&str]) -> Result<()> {
    let mut cargo = cargo();
    cargo.args(["build", "-p", "tlsdyno", "--bins"]).args(arguments);
    cargo.args(SATELLITES.iter().flat_map(|satellite| ["-p", satellite.file]));
    let status = cargo.status().context("failed to run cargo")?;
    ensure!(status.success(), "tlsdyno does not build");
    Ok(())
}

/// The program of tests in `crates/tlsdyno/tests/NAME`, brought up to date.
pub fn build_tests(name: &str) -> Result<PathBuf> {
    let mut cargo = cargo();
    cargo.args(["test", "-p", "tlsdyno", "--no-run", "--quiet", "--message-format=json"]);
    let output = cargo.args(["--test", name]).stderr(Stdio::inherit()).output().context("failed to run cargo")?;
    ensure!(output.status.success(), "the tests of tlsdyno do not build");
    let said = String::from_utf8_lossy(&output.stdout);
    let messages = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == name);
    let path = programs.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.with_context(|| format!("cargo built no tests `{name}`"))
}

pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// What an example of tlsdyno prints, whose first argument is the program. Both are built for debugging, and what cargo
/// and the example say on standard error is seen.
pub fn example(name: &str, arguments: &[String]) -> Result<Output> {
    cargo_build(&["--profile", "dev", "--example", name])?;
    let directory = target().join("debug");
    let path = directory.join("examples").join(name);
    let mut command = Command::new(&path);
    command.arg(directory.join("tlsdyno")).args(arguments).stderr(Stdio::inherit());
    command.output().with_context(|| format!("run {}", path.display()))
}

/// The JSON that a command of tlsdyno prints.
pub fn json(command: &mut Command) -> Result<Value> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {command:?}"))?;
    // 8: the numbers are not what was asked for, as where a dispatcher keeps no sessions. They say so.
    let (code, said) = (output.status.code(), String::from_utf8_lossy(&output.stderr));
    ensure!(matches!(code, Some(0 | 8)), "{command:?} ended with {}: {said}", output.status);
    // What stands apart from a table comes behind it.
    let first = serde_json::Deserializer::from_slice(&output.stdout).into_iter().next();
    first.with_context(|| format!("{command:?} printed no result"))?.with_context(|| format!("read {command:?}"))
}

/// A built-in server on one CPU that serves this directory, and its address.
pub fn serve(program: &Path, cpu: &str, docroot: &Path, arguments: &[&str]) -> Result<(Ending, String)> {
    let mut command = Command::new("taskset");
    command.args(["-c", cpu]).arg(program).args(["serve", "--print-address", "--docroot"]).arg(docroot);
    let (process, line) = process::first_line(command.args(arguments))?;
    let said: Value = serde_json::from_str(&line).with_context(|| format!("the server said `{line}`"))?;
    Ok((process, said["address"].as_str().context("it has an address")?.to_owned()))
}

/// A load of a server on this machine; it ends when this is dropped.
pub struct Load(Ending);

impl Load {
    /// Starts it on the server's port. What it has to say on standard error is seen at once.
    pub fn start(program: &Path, port: u16, arguments: &[&str]) -> Result<Load> {
        let child = Command::new(program)
            .args(["load", &format!("https://localhost:{port}/"), "--connect-to", &format!("127.0.0.1:{port}")])
            .args(["--insecure", "--json"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("failed to start the load")?;
        Ok(Load(Ending(child)))
    }

    pub fn process(&self) -> u32 {
        self.0.0.id()
    }

    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.0.0.try_wait()?)
    }

    /// Ends it as Ctrl-C does: it prints what it counted.
    pub fn interrupt(&self) -> Result<()> {
        let status = Command::new("kill").args(["-INT", &self.process().to_string()]).status()?;
        ensure!(status.success(), "the load had ended");
        Ok(())
    }

    /// What it printed when it ended.
    pub fn result(mut self) -> Result<Value> {
        let mut output = Vec::new();
        self.0.0.stdout.take().context("its output is piped")?.read_to_end(&mut output)?;
        self.0.0.wait()?;
        serde_json::from_slice(&output).context("the load printed no result")
    }
}
