//! The command line's top level. The subcommands of kinds of experiment are theirs; another one is a file in `cmd/`
//! with `Args` and `run`, and a line here.

use clap::Command;

use crate::cmd::{self, help, other_tools};
use crate::exit::{self, Exit};
use crate::kinds::KINDS;
use crate::kinds::subcommand::{Subcommand, subcommand};

/// What tlsdyno is, for the help and the man page.
const ABOUT: &str = "A dynamometer for TLS web servers: what each TLS component costs the real server, and what each \
                     remedy would buy";

/// All subcommands, in the order of the help.
fn subcommands() -> Vec<Subcommand> {
    let others = [
        subcommand!("advise", tlsdyno_advise::command).with_short_help(
            &["config", "reading", "host", "trace", "hits_per_handshake", "rate", "time", "quick", "markdown"],
            "tlsdyno advise /etc/nginx/nginx.conf --rate 300 --hits-per-handshake 4",
        ),
        subcommand!("run", cmd::run).with_short_help(
            &["file", "list", "time", "server", "library", "cert", "on", "json", "report", "print_experiment"],
            "tlsdyno run remedies --server nginx --time 3m",
        ),
        subcommand!("completions", cmd::completions),
        subcommand!("cryptoserver", tlsdyno_cryptoserver::command).with_short_help(
            &["keys", "listen", "cert", "cert_key", "client_ca", "allow_decryption", "rate", "max_connections"],
            "tlsdyno cryptoserver --key site.key --cert keys.pem --cert-key keys.key --client-ca agents.pem",
        ),
        subcommand!("dispatch", cmd::dispatch).with_short_help(
            &["config", "listen", "backends", "policy", "session_timeout", "drain_time", "control", "check"],
            "tlsdyno dispatch --listen 127.0.0.1:8443 --backend 127.0.0.1:9001 --backend 127.0.0.1:9002",
        ),
        subcommand!("doctor", cmd::doctor),
        subcommand!("list", cmd::list),
        subcommand!("man", cmd::man),
        subcommand!("plan", tlsdyno_plan::command).with_short_help(
            &["from", "rate", "reuse", "requests_per_connection", "servers", "proxies", "policy", "json", "markdown"],
            "tlsdyno plan --from last --rate 2000 --reuse 70",
        ),
        subcommand!("probe", cmd::probe).with_short_help(
            &["url", "i_may_probe", "config", "once", "every", "store", "tls", "json", "nagios"],
            "tlsdyno probe https://localhost:8443/ --once",
        ),
        subcommand!("report", cmd::report),
        subcommand!("scoreboard", cmd::scoreboard),
        subcommand!("serve", cmd::serve).with_short_help(
            &["docroot", "listen", "listen_plain", "certificate", "key", "cert", "tls", "transaction"],
            "tlsdyno serve --docroot . --listen 127.0.0.1:8443",
        ),
        subcommand!("supervise", cmd::supervise),
        subcommand!("trace", cmd::trace),
        subcommand!("worker", cmd::worker),
    ];
    KINDS.iter().flat_map(|kind| kind.commands()).chain(others).collect()
}

/// The command line with all subcommands, for helps, completions and the man page.
pub fn command() -> Command {
    help::overview(of(&subcommands()))
}

/// The command line with these subcommands.
fn of(subcommands: &[Subcommand]) -> Command {
    let command = Command::new("tlsdyno")
        .about(ABOUT)
        .version(env!("CARGO_PKG_VERSION"))
        .max_term_width(110)
        .after_long_help(exit::HELP)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(subcommands.iter().map(Subcommand::command));
    help::with_helps(command)
}

/// The command line that these arguments are parsed with. The flags of all commands would take ten times as long, and
/// each server under test is started by several processes of ours.
fn parser(arguments: &[String]) -> Command {
    let named = subcommands().into_iter().find(|one| arguments.first().is_some_and(|name| name == one.name));
    named.map_or_else(command, |one| of(&[one]))
}

/// Parses the arguments and runs the subcommand. Wrong arguments end the process here, with [`Exit::Usage`].
pub fn run() -> anyhow::Result<Exit> {
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into()).collect();
    if let Some(text) = help::asked_for(&arguments, parser) {
        return crate::output::answer(text);
    }
    let given = parser(&arguments)
        .try_get_matches()
        .unwrap_or_else(|error| other_tools::explained(error, command(), &arguments).exit());
    let (name, given) = given.subcommand().expect("clap refuses a command line without one");
    let asked = subcommands().into_iter().find(|one| one.name == name);
    asked.expect("clap refuses what is none of them").run(given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::subcommand::is_named;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn short_help_has_the_flags_that_matter_and_an_example() {
        for (name, (flags, example)) in subcommands().iter().filter_map(|one| Some((one.name, one.short?))) {
            let mut command = command();
            let of = command.find_subcommand_mut(name).expect(name);
            for flag in flags {
                assert!(of.get_arguments().any(|arg| is_named(arg, flag)), "{name} has no {flag}");
            }
            let (short, long) = (of.render_help().to_string(), of.render_long_help().to_string());
            assert!(short.contains(example), "{short}");
            assert!(short.lines().count() < long.lines().count() / 2, "{short}");
            let words: Vec<&str> = example.split(' ').collect();
            let words = words.iter().map(|word| word.trim_matches('\''));
            let is_understood = self::command().try_get_matches_from(words).is_ok();
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
