//! `tlsdyno supervise`: the process between tlsdyno and a server. For tlsdyno's own use, so not shown in the help.

use std::path::PathBuf;

use crate::exit::{Exit, OrExit};
use crate::servers::supervisor;

/// Run a server that ends when standard input does (tlsdyno's own use)
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// Second stage: become the server, dying with the parent process
    #[arg(long, requires = "note", conflicts_with = "directory")]
    exec: bool,
    /// Directory to remove in the end
    #[arg(long, required_unless_present = "exec")]
    directory: Option<PathBuf>,
    /// Launch note of the server; without it only the directory is guarded
    note: Option<PathBuf>,
}

/// Runs one of the two stages.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    match (&args.directory, &args.note) {
        (None, Some(note)) => supervisor::become_server(note).or_exit(Exit::Server)?,
        (Some(directory), note) => supervisor::supervise(note.as_deref(), directory).or_exit(Exit::Server)?,
        (None, None) => unreachable!("clap asks for one of them"),
    }
    Ok(Exit::Done)
}
