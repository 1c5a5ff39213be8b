//! The stage × server matrix: runs it on every server and writes docs/STAGES.md.

use anyhow::{Context, Result, ensure};

use crate::tlsdyno::{Example, workspace};

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
    let output = Example::output("stage_matrix", &arguments.servers)?;
    ensure!(output.status.success(), "the matrix could not be made; its message is above");
    let path = workspace().join("docs/STAGES.md");
    std::fs::write(&path, output.stdout).with_context(|| format!("write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
