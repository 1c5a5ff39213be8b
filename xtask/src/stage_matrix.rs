//! The stage × server matrix: runs it on every server and writes docs/STAGES.md.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// What the matrix has.
#[derive(clap::Args)]
pub struct Arguments {
    /// All, if none is named
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
}

/// Builds tlsdyno, makes the matrix and writes the table.
///
/// # Errors
/// It cannot be built or run; a server is not installed.
pub fn run(arguments: &Arguments) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has no directory")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .current_dir(root)
        .args(["build", "-p", "tlsdyno", "--bins", "--example", "stage_matrix"])
        .status()
        .context("run cargo")?;
    ensure!(built.success(), "tlsdyno cannot be built");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let debug = target.join("debug");
    let output = Command::new(debug.join("examples/stage_matrix"))
        .arg(debug.join("tlsdyno"))
        .args(&arguments.servers)
        .stderr(Stdio::inherit())
        .output()
        .context("run the matrix")?;
    ensure!(output.status.success(), "the matrix could not be made; its message is above");
    let path = root.join("docs/STAGES.md");
    std::fs::write(&path, output.stdout).with_context(|| format!("write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
