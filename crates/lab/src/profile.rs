//! What stands below `tlsdyno profile`, a command of the core.

use anyhow::Result;
use tlsdyno_base::exit::Exit;

use crate::primitives::command;

/// Measure what single operations of a server's OpenSSL do
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum Action {
    /// Throughput of the primitives of a server's own OpenSSL by size of a call, beside that of `openssl speed`
    Primitives(Box<command::Args>),
}

pub fn run(args: &Args) -> Result<Exit> {
    let Action::Primitives(args) = &args.action;
    command::run(args)
}
