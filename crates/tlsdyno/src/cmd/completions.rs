//! `tlsdyno completions`: shell completions.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::Shell;

use crate::cmd::cli::command;
use crate::exit::Exit;
use crate::kinds::files;

/// Print shell completions
///
/// For example `tlsdyno completions bash > ~/.local/share/bash-completion/completions/tlsdyno`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Arguments that name an experiment: of which command, and which of its arguments.
const EXPERIMENTS: [(&str, &str); 3] = [("run", "file"), ("cluster", "config"), ("array", "config")];

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    crate::output::answer(script(args.shell, command()?))
}

fn script(shell: Shell, command: Command) -> Vec<u8> {
    // Experiments that come with tlsdyno are known by name; a shell completes files where none of them fits.
    let names = PossibleValuesParser::new(files::EMBEDDED.iter().map(|(name, _)| *name));
    let known = |command: Command, (name, argument): (&'static str, &'static str)| {
        let with_names = names.clone();
        // A satellite that is not installed has no flags here.
        let named = |arg: Arg| if arg.get_id() == argument { arg.value_parser(with_names.clone()) } else { arg };
        command.mut_subcommand(name, |of| of.mut_args(named))
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut EXPERIMENTS.into_iter().fold(command, known), "tlsdyno", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::cli::tests::command;

    #[test]
    fn completions_know_experiments_and_servers() {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let text = String::from_utf8(script(shell, command())).unwrap();
            assert!(text.contains("coarfa-2006-fig7") && text.contains("apache-prefork"), "{shell}");
        }
    }
}
