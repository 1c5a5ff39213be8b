//! The command line's top level. A subcommand is a file in `cmd/` with `Args` and `run`, and two lines here.

use clap::{Parser, Subcommand};

use crate::cmd;
use crate::exit::{self, Exit};

/// A dynamometer for TLS web servers: what each TLS component costs the real server, and what each remedy would buy.
#[derive(Debug, Parser)]
#[command(name = "tlsdyno", version, max_term_width = 110, after_help = exit::HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Ablate(Box<cmd::ablate::Args>),
    Run(cmd::run::Args),
    Cluster(Box<cmd::cluster::Args>),
    Array(Box<cmd::array::Args>),
    Reuse(Box<cmd::reuse::Args>),
    Load(Box<cmd::load::Args>),
    Compare(cmd::compare::Args),
    Completions(cmd::completions::Args),
    Dispatch(Box<cmd::dispatch::Args>),
    Doctor(cmd::doctor::Args),
    List(cmd::list::Args),
    Man(cmd::man::Args),
    Probe(Box<cmd::probe::Args>),
    Profile(Box<cmd::profile::Args>),
    Report(cmd::report::Args),
    Scoreboard(cmd::scoreboard::Args),
    Serve(cmd::serve::Args),
    Supervise(cmd::supervise::Args),
    Trace(cmd::trace::Args),
}

/// Parses the arguments and runs the subcommand. Wrong arguments end the process here, with [`Exit::Usage`].
pub fn run() -> anyhow::Result<Exit> {
    match Cli::parse().command {
        Command::Ablate(args) => cmd::ablate::run(&args),
        Command::Array(args) => cmd::array::run(&args),
        Command::Cluster(args) => cmd::cluster::run(&args),
        Command::Reuse(args) => cmd::reuse::run(&args),
        Command::Run(args) => cmd::run::run(&args),
        Command::Load(args) => cmd::load::run(&args),
        Command::Compare(args) => cmd::compare::run(&args),
        Command::Completions(args) => cmd::completions::run(&args),
        Command::Dispatch(args) => cmd::dispatch::run(&args),
        Command::Doctor(args) => cmd::doctor::run(&args),
        Command::List(args) => cmd::list::run(&args),
        Command::Man(args) => cmd::man::run(&args),
        Command::Probe(args) => cmd::probe::run(&args),
        Command::Profile(args) => cmd::profile::run(&args),
        Command::Report(args) => cmd::report::run(&args),
        Command::Scoreboard(args) => cmd::scoreboard::run(&args),
        Command::Serve(args) => cmd::serve::run(&args),
        Command::Supervise(args) => cmd::supervise::run(&args),
        Command::Trace(args) => cmd::trace::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
