//! `tlsdyno completions`: shell completions.

use clap::builder::PossibleValuesParser;
use clap_complete::Shell;

use crate::cmd::cli::command;
use crate::exit::Exit;
use crate::run::files;

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
    // Experiments that come with tlsdyno are known by name; a shell completes files where none of them fits.
    let names = PossibleValuesParser::new(files::EMBEDDED.iter().map(|(name, _)| *name));
    let mut command = command();
    for experiment in ["run", "cluster"] {
        let with_names = names.clone();
        command = command.mut_subcommand(experiment, |of| of.mut_arg("file", |arg| arg.value_parser(with_names)));
    }
    clap_complete::generate(args.shell, &mut command, "tlsdyno", &mut script);
    super::print(script)?;
    Ok(Exit::Done)
}
