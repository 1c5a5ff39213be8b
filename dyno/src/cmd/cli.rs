//! The command line's top level. A subcommand is a file in `cmd/` with `Args` and `run`, and two lines here.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cmd;
use crate::cmd::other_tools;
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
    Worker(cmd::worker::Args),
}

/// What `-h` shows of subcommands with many flags: those that matter, and an example. `--help` shows all.
const SHORT: [(&str, &[&str], &str); 5] = [
    (
        "ablate",
        &["server", "server_config", "server_command", "paths", "trace", "cert", "time", "quick"],
        "tlsdyno ablate --server-config /etc/nginx/nginx.conf --quick",
    ),
    (
        "load",
        &["url", "connections", "duration", "rate", "reuse", "insecure", "against", "fail_if", "output"],
        "tlsdyno load https://localhost:8443/ -k -d 10s --reuse 80% --fail-if 'p99 > 50ms'",
    ),
    (
        "reuse",
        &["url", "by", "levels", "plain", "connections", "insecure", "duration", "json", "report"],
        "tlsdyno reuse https://localhost:8443/1k.bin -k --by hits --plain http://localhost:8080/1k.bin",
    ),
    (
        "cluster",
        &["config", "server", "backends", "backend_cpus", "policies", "reuse", "clients", "time", "quick"],
        "tlsdyno cluster --server nginx --backends 3 --quick",
    ),
    (
        "serve",
        &["docroot", "listen", "listen_plain", "certificate", "key", "cert", "tls", "transaction"],
        "tlsdyno serve --docroot . --listen 127.0.0.1:8443",
    ),
];

/// The command line with its two kinds of help.
pub fn command() -> clap::Command {
    SHORT.iter().fold(Cli::command(), |command, (name, flags, example)| {
        command.mut_subcommand(name, |of| {
            let long = of.get_after_help().map(ToString::to_string).unwrap_or_default();
            let short = format!("Example:\n  {example}\n\nAll flags and more examples: tlsdyno {name} --help");
            let is_shown = |arg: &clap::Arg| flags.contains(&arg.get_id().as_str());
            let of = of.mut_args(|arg| if is_shown(&arg) { arg } else { arg.hide_short_help(true) });
            of.after_help(short).after_long_help(long)
        })
    })
}

/// Parses the arguments and runs the subcommand. Wrong arguments end the process here, with [`Exit::Usage`].
pub fn run() -> anyhow::Result<Exit> {
    let matches = command().try_get_matches();
    let parsed = matches.and_then(|matches| Cli::from_arg_matches(&matches)).unwrap_or_else(|error| {
        let arguments: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into()).collect();
        other_tools::explained(error, command(), &arguments).exit()
    });
    match parsed.command {
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
        Command::Worker(args) => cmd::worker::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn short_help_has_the_flags_that_matter_and_an_example() {
        for (name, flags, example) in SHORT {
            let mut command = command();
            let of = command.find_subcommand_mut(name).expect(name);
            for flag in flags {
                assert!(of.get_arguments().any(|arg| arg.get_id() == flag), "{name} has no {flag}");
            }
            let (short, long) = (of.render_help().to_string(), of.render_long_help().to_string());
            assert!(short.contains(example), "{short}");
            assert!(short.lines().count() < 45 && short.lines().count() < long.lines().count() / 2, "{short}");
            let words: Vec<&str> = example.split(' ').collect();
            let is_understood = Cli::try_parse_from(words.iter().map(|word| word.trim_matches('\''))).is_ok();
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
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
        let (mut tried, mut refused) = (0, Vec::new());
        for file in docs.chain([root.join("README.md")]) {
            let text = std::fs::read_to_string(&file).unwrap().replace("\\\n", " ");
            // Every second part is between fences.
            let lines = text.split("\n```").skip(1).step_by(2).flat_map(str::lines);
            let lines = lines.map(|line| line.trim().trim_start_matches("$ "));
            // Dots stand for what everybody fills in.
            for line in lines.filter(|line| line.starts_with("tlsdyno ") && !line.contains('…')) {
                tried += 1;
                let asked_for = Cli::try_parse_from(words(line)).err().filter(clap::Error::use_stderr);
                refused.extend(asked_for.map(|error| format!("{}: {line}\n{error}", file.display())));
            }
        }
        assert!(tried > 50 && refused.is_empty(), "{tried} tried\n{}", refused.join("\n"));
    }
}
