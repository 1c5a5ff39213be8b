//! `tlsdyno man`: manual pages.

use std::path::PathBuf;

use anyhow::Context;

use crate::cmd::cli::command;
use crate::exit::Exit;

/// Print the manual page, or write one page per subcommand
///
/// For example `tlsdyno man | man -l -`, or `tlsdyno man --directory ~/.local/share/man/man1`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write tlsdyno.1, tlsdyno-load.1 and so on into this directory instead
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if let Some(directory) = &args.directory {
        clap_mangen::generate_to(command()?, directory)
            .with_context(|| format!("failed to write manual pages into {}", directory.display()))?;
    } else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command()?).render(&mut page)?;
        crate::output::print(page)?;
    }
    Ok(Exit::Done)
}
