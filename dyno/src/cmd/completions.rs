//! `tlsdyno completions`: shell completions.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cmd::cli::Cli;
use crate::exit::Exit;

/// Print shell completions
///
/// For example `tlsdyno completions bash > ~/.local/share/bash-completion/completions/tlsdyno`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the completions on standard output.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tlsdyno", &mut script);
    super::print(script)?;
    Ok(Exit::Done)
}
