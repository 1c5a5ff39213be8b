//! Whether this system lets tlsdyno give servers a view of the file system of their own, and what is told of it.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

use super::launch::own_executable;
use super::view::View;

/// Whether this system lets tlsdyno give a server such a view, and if not, why.
pub fn allowed(layered: bool) -> Result<(), &'static str> {
    static ANSWERS: [OnceLock<Result<(), String>>; 2] = [OnceLock::new(), OnceLock::new()];
    let answer = ANSWERS[usize::from(layered)].get_or_init(|| attempt(layered).map_err(|error| format!("{error:#}")));
    answer.as_ref().copied().map_err(String::as_str)
}

fn attempt(layered: bool) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "only root can make a mount namespace");
    let directory = tempfile::tempdir().context("make a directory")?;
    let mut command = own_executable()?;
    command.args(["supervise", "--try-view"]).args(layered.then_some("--layered")).arg("--directory");
    let output = command.arg(directory.path()).stdin(Stdio::null()).output().context("try it")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim().trim_start_matches("error: ")
    );
    Ok(())
}

/// What holds a user's server back, in a sentence.
pub fn describe(view: Result<&View, &str>) -> String {
    match view {
        Err(why) => format!(
            "Nothing holds the server back: what it writes, it writes for real ({why}). As root it has a view of the \
             file system of its own"
        ),
        Ok(view) if view.layered => {
            format!("What the server writes goes to a layer that ends with it{}", except(&view.writable))
        }
        Ok(view) => {
            format!("The server can write nothing but its private directory{}", except(&view.writable))
        }
    }
}

fn except(writable: &[PathBuf]) -> String {
    let names = writable.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ");
    if names.is_empty() { names } else { format!(", but for {names}, which it writes for real") }
}
