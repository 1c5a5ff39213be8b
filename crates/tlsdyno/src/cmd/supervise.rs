//! `tlsdyno supervise`: the process between tlsdyno and a server. For tlsdyno's own use, so not shown in the help.

use std::path::PathBuf;

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::servers::view::View;
use crate::servers::{pid_namespace, supervisor};

/// Run a server that ends when standard input does (tlsdyno's own use)
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// Second stage: become the server, dying with the parent process
    #[arg(long, requires_all = ["note", "parent"], conflicts_with = "directory")]
    exec: bool,
    /// Stage between: the first process of the server's PID namespace
    #[arg(long, requires_all = ["note", "parent"], conflicts_with_all = ["directory", "exec"])]
    first_process: bool,
    /// Get a server's view of the file system, with this directory for its own, and end
    #[arg(long, requires = "directory", conflicts_with_all = ["exec", "first_process", "note"])]
    try_view: bool,
    /// The view of a user's own command
    #[arg(long, requires = "try_view")]
    layered: bool,
    /// Process id of the parent with which this process must end
    #[arg(long)]
    parent: Option<u32>,
    /// Directory to remove in the end
    #[arg(long, required_unless_present_any = ["exec", "first_process"])]
    directory: Option<PathBuf>,
    /// Launch note of the server; without it only the directory is guarded
    note: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    match (&args.directory, &args.note, args.parent) {
        (Some(directory), ..) if args.try_view => {
            View { layered: args.layered, ..View::default() }.enter(directory).or_fault(Fault::Environment)?;
        }
        (Some(directory), note, _) => supervisor::supervise(note.as_deref(), directory).or_fault(Fault::Server)?,
        (None, Some(note), Some(parent)) if args.first_process => {
            let status = pid_namespace::run_first_process(note, parent).or_fault(Fault::Server)?;
            std::process::exit(status);
        }
        (None, Some(note), Some(parent)) => supervisor::become_server(note, parent).or_fault(Fault::Server)?,
        _ => unreachable!("clap asks for a directory, or for note and parent"),
    }
    Ok(Exit::Done)
}
