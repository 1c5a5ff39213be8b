//! The command line's top level. The subcommands of kinds of experiment are theirs; another one is a file in `cmd/`
//! with `Args` and `run`, and a line here. Those of satellites are in their programs.

use std::process::ExitCode;

use anyhow::Result;
use clap::Command;
use tlsdyno_base::help::with_helps;
use tlsdyno_base::program::{CORE, Program};
use tlsdyno_base::subcommand::{Subcommand, subcommand};

use crate::cmd::{self, help, other_tools};
use crate::kinds::KINDS;
use crate::satellites;

/// What tlsdyno is, for the help and the man page.
const ABOUT: &str = "A dynamometer for TLS web servers: what each part of TLS costs, and what each remedy would buy";

/// All subcommands, in the order of the help.
fn subcommands() -> Vec<Subcommand> {
    let others = [
        subcommand!("advise", tlsdyno_advise::command).with_short_help(
            &["config", "reading", "host", "trace", "hits_per_handshake", "rate", "time", "quick", "markdown"],
            "tlsdyno advise /etc/nginx/nginx.conf --rate 300 --hits-per-handshake 4",
        ),
        subcommand!("run", cmd::run).with_short_help(
            &["file", "list", "time", "quick", "server", "library", "cert", "on", "json", "report", "print_experiment"],
            "tlsdyno run remedies --server nginx --time 3m",
        ),
        subcommand!("completions", cmd::completions),
        subcommand!("doctor", cmd::doctor),
        subcommand!("list", cmd::list),
        subcommand!("man", cmd::man),
        subcommand!("report", cmd::report),
        subcommand!("serve", cmd::serve).with_short_help(
            &["docroot", "listen", "listen_plain", "certificate", "key", "cert", "tls", "transaction"],
            "tlsdyno serve --docroot . --listen 127.0.0.1:8443",
        ),
        subcommand!("supervise", cmd::supervise),
        subcommand!("trace", cmd::trace),
        subcommand!("worker", cmd::worker),
    ];
    KINDS.0.iter().flat_map(|kind| kind.commands()).chain(others).collect()
}

/// The program, whose list of all commands is made by `whole`.
fn program(whole: fn(Command) -> Command) -> Program {
    let (below, explain, hand_on) = (help::BELOW, other_tools::explain, satellites::hand_on);
    Program { file: CORE, subcommands: subcommands(), shared: Vec::new(), below, whole, explain, hand_on }
}

/// The list of all commands with those of satellites, or what these have below commands of the core.
fn with(command: Command, others: impl IntoIterator<Item = Command>) -> Command {
    let add = |command: Command, other: Command| {
        let other = with_helps(other);
        let name = other.get_name().to_owned();
        let put = |own: Command, below: &Command| own.mut_subcommand(below.get_name(), |_| below.clone());
        match command.find_subcommand(&name) {
            Some(_) => command.mut_subcommand(name, |own| other.get_subcommands().fold(own, put)),
            None => command.subcommand(other),
        }
    };
    help::overview(others.into_iter().fold(command.about(ABOUT), add))
}

/// The command line with all subcommands and their flags, for completions and the man page.
pub fn command() -> Result<Command> {
    Ok(with(program(|command| command).command(), satellites::described()?))
}

/// Runs tlsdyno to its end, or becomes a satellite.
pub fn main() -> ExitCode {
    program(|command| with(command, satellites::named())).main()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tlsdyno_base::subcommand::is_named;

    fn programs() -> Vec<Program> {
        vec![
            program(|command| command),
            tlsdyno_cryptoserver::program(),
            tlsdyno_dispatch::program(),
            tlsdyno_lab::program(),
            tlsdyno_probe::program(),
            tlsdyno_sizes::program(),
            tlsdyno_top::program(),
        ]
    }

    /// The command line with the commands of all, as clap parses it.
    pub fn command() -> Command {
        let others = || programs().into_iter().skip(1).flat_map(|one| one.commands().collect::<Vec<_>>());
        with(programs()[0].command(), others())
    }

    pub fn explained(error: clap::Error, words: &[String]) -> clap::Error {
        program(|command| command).explained(error, words)
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn short_help_has_the_flags_that_matter_and_an_example() {
        for (name, (flags, example)) in
            programs().iter().flat_map(|one| &one.subcommands).filter_map(|one| Some((one.name, one.short?)))
        {
            let mut whole = command();
            let of = whole.find_subcommand_mut(name).expect(name);
            for flag in flags {
                assert!(of.get_arguments().any(|arg| is_named(arg, flag)), "{name} has no {flag}");
            }
            let (short, long) = (of.render_help().to_string(), of.render_long_help().to_string());
            assert!(short.contains(example), "{short}");
            assert!(short.lines().count() < long.lines().count() / 2, "{short}");
            let words: Vec<&str> = example.split(' ').collect();
            let words = words.iter().map(|word| word.trim_matches('\''));
            let is_understood = command().try_get_matches_from(words).is_ok();
            assert!(is_understood || example.contains('\''), "{example}");
        }
    }

    /// The words of a line as a shell takes them apart, up to a comment, a pipe or a redirection.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for character in line.chars() {
            match (quote, character) {
                (None, '\'' | '"') => {
                    quote = Some(character);
                    word.get_or_insert_default();
                }
                (Some(open), _) if open == character => quote = None,
                (None, '#' | '|' | '>' | '&' | ';') if word.is_none() => return words,
                (None, ' ') => words.extend(word.take()),
                _ => word.get_or_insert_default().push(character),
            }
        }
        words.extend(word);
        words
    }

    #[test]
    fn command_lines_of_the_documents_are_understood() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
        let docs = docs.filter(|path| path.is_file());
        let (mut tried, mut refused) = (0, Vec::new());
        for file in docs.chain([root.join("README.md")]) {
            let text = std::fs::read_to_string(&file).unwrap().replace("\\\n", " ");
            // Every second part is between fences.
            let lines = text.split("\n```").skip(1).step_by(2).flat_map(str::lines);
            let lines = lines.map(|line| line.trim().trim_start_matches("$ "));
            // Dots stand for what everybody fills in.
            for line in lines.filter(|line| line.starts_with("tlsdyno ") && !line.contains('…')) {
                tried += 1;
                let asked_for = command().try_get_matches_from(words(line)).err().filter(clap::Error::use_stderr);
                refused.extend(asked_for.map(|error| format!("{}: {line}\n{error}", file.display())));
            }
        }
        assert!(tried > 50 && refused.is_empty(), "{tried} tried\n{}", refused.join("\n"));
    }
}
