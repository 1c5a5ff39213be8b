//! What the idle instrument adds to each server's instructions, counted by valgrind. The built-in server is not among
//! those that are counted: it asks the kernel's vDSO for the time, which valgrind hides.

mod count;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use count::{Count, configurations, count};
use tlsdyno::model::ServerName;
use tlsdyno::servers::launch::set_own_executable;

use crate::tlsdyno::build_optimised;

/// The user "nobody" of every distribution: who counts where root asks for it. Of root, workers would become another
/// user, and then be out of the reach of valgrind's commands.
const NOBODY: u32 = 65_534;

const SERVERS: [ServerName; 5] =
    [ServerName::Nginx, ServerName::Lighttpd, ServerName::Haproxy, ServerName::ApacheEvent, ServerName::ApachePrefork];

/// What is counted.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where callgrind's files stay
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
    /// Count at once, with this tlsdyno as the servers' supervisor: how this task starts itself as another user
    #[arg(long, value_name = "FILE", hide = true)]
    supervisor: Option<PathBuf>,
    /// All, if none is named
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
}

/// Builds tlsdyno, counts and prints the table.
///
/// # Errors
/// It cannot be built or run; valgrind or a server is not installed.
pub fn run(arguments: &Arguments) -> Result<()> {
    refuse_unknown(&arguments.servers)?;
    match &arguments.supervisor {
        Some(supervisor) => print_table(arguments, supervisor),
        None => run_as_plain_user(arguments),
    }
}

fn refuse_unknown(names: &[String]) -> Result<()> {
    let known = SERVERS.map(|server| server.name());
    for name in names {
        ensure!(
            known.contains(&name.as_str()),
            "no instructions are counted of {name}; of these they are: {}",
            known.join(", ")
        );
    }
    Ok(())
}

/// Starts this program again, so that no process that counts belongs to root.
fn run_as_plain_user(arguments: &Arguments) -> Result<()> {
    let tlsdyno = build_optimised()?;
    let is_root = fs::metadata("/proc/self").context("read who runs this")?.uid() == 0;
    // Copies, because the target directory need not be open to everybody.
    let place = tempfile::tempdir().context("make a directory")?;
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))?;
    let copy = |program: &Path, name: &str| {
        let to = place.path().join(name);
        fs::copy(program, &to).with_context(|| format!("copy {}", program.display())).map(|_| to)
    };
    let own = std::env::current_exe().context("find this program")?;
    let (tlsdyno, counter) = (copy(&tlsdyno, "tlsdyno")?, copy(&own, "xtask")?);
    let keep = arguments.keep.as_deref().map(|directory| prepare(directory, is_root)).transpose()?;
    let mut command = Command::new(counter);
    command.arg("instrument-instructions").arg("--supervisor").arg(tlsdyno).current_dir(place.path());
    if let Some(keep) = keep {
        command.arg("--keep").arg(keep);
    }
    command.args(&arguments.servers);
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    ensure!(command.status().context("run the count")?.success(), "nothing was counted; the message is above");
    Ok(())
}

fn print_table(arguments: &Arguments, supervisor: &Path) -> Result<()> {
    set_own_executable(supervisor);
    let names = &arguments.servers;
    let columns: Vec<String> = configurations().into_iter().map(|one| one.name).collect();
    println!("| server | {} |", columns.join(" | "));
    println!("|---|{}", "---:|".repeat(columns.len()));
    for server in SERVERS.into_iter().filter(|one| names.is_empty() || names.iter().any(|name| name == one.name())) {
        let mut say = |name: &str| eprintln!("{}: {name}", server.name());
        let counts = count(server, arguments.keep.as_deref(), &mut say)?;
        let cells: Vec<String> = counts.iter().map(|one| cell(one, &counts[0])).collect();
        println!("| {} | {} |", server.name(), cells.join(" | "));
    }
    Ok(())
}

/// Of the untouched server the count, of the others what they add, each with how well it repeats.
fn cell(count: &Count, as_is: &Count) -> String {
    if count == as_is {
        return format!("{:.0} ± {:.0}", count.mean(), count.spread());
    }
    let percent = |instructions: f64| 100.0 * instructions / as_is.mean();
    let (more, spread) = (count.mean() - as_is.mean(), count.spread() + as_is.spread());
    format!("{more:+.0} ({:+.2} ± {:.2} %)", percent(more), percent(spread))
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
