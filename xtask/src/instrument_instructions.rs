//! What the idle instrument adds to each server's instructions, counted by valgrind.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::tlsdyno::Example;

/// The user "nobody" of every distribution: who counts where root asks for it. Of root, workers would become another user, and then be out
/// of the reach of valgrind's commands.
const NOBODY: u32 = 65_534;

/// What is counted.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where callgrind's files stay
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
    /// All, if none is named
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
}

/// Builds tlsdyno, counts and prints the table.
///
/// # Errors
/// It cannot be built or run; valgrind or a server is not installed.
pub fn run(arguments: &Arguments) -> Result<()> {
    let built = Example::build("instrument_instructions", true)?;
    let is_root = fs::metadata("/proc/self").context("read who runs this")?.uid() == 0;
    // Copies, because the target directory need not be open to everybody.
    let place = tempfile::tempdir().context("make a directory")?;
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))?;
    let copy = |program: &Path, name: &str| {
        let to = place.path().join(name);
        fs::copy(program, &to).with_context(|| format!("copy {}", program.display())).map(|_| to)
    };
    let (tlsdyno, counter) = (copy(&built.tlsdyno, "tlsdyno")?, copy(&built.path, "counter")?);
    let keep = arguments.keep.as_deref().map(|directory| prepare(directory, is_root)).transpose()?;
    let mut command = Command::new(counter);
    command
        .arg(tlsdyno)
        .arg(keep.as_deref().unwrap_or(Path::new("-")))
        .args(&arguments.servers)
        .current_dir(place.path());
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    ensure!(command.status().context("run the count")?.success(), "nothing was counted; the message is above");
    Ok(())
}

/// The directory where callgrind's files stay.
fn prepare(directory: &Path, is_root: bool) -> Result<PathBuf> {
    let context = || format!("make {}", directory.display());
    fs::create_dir_all(directory).with_context(context)?;
    if is_root {
        chown(directory, Some(NOBODY), Some(NOBODY)).with_context(context)?;
    }
    fs::canonicalize(directory).with_context(context)
}
