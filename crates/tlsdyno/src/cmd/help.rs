//! The list of commands by what a person wants to do.

use std::fmt::Write as _;

use clap::Command;

use tlsdyno_base::help::{Below, clause};

/// Columns of what the list of commands says of each.
const ABOUT: usize = 84;
/// The flags that `-h` shows of commands below others, where all would be too many.
pub const BELOW: Below = &[
    ("import", &["workload", "users", "scale", "connections", "exclude", "output", "json"]),
    ("synth", &["workload", "users", "scale", "connections", "exclude", "output", "json"]),
    ("show", &["workload", "users", "exclude", "pages", "as_replayed", "json", "html"]),
];

/// Commands by what a person wants to do.
const GROUPS: [(&str, &[&str]); 6] = [
    ("What does TLS cost a server", &["ablate", "advise", "cost", "top", "profile", "run", "stacks"]),
    ("Load a server", &["load", "reuse", "compare", "trace", "serve"]),
    ("Several machines", &["cluster", "array", "plan", "worker"]),
    ("In production", &["dispatch", "cryptoserver", "probe"]),
    ("What was measured", &["list", "report", "scoreboard"]),
    ("This machine", &["doctor", "completions", "man"]),
];

/// The commands by what a person wants to do, as `tlsdyno -h` has them.
pub fn overview(command: Command) -> Command {
    let mut text = String::new();
    for (title, names) in GROUPS {
        writeln!(text, "{title}:").expect("a string takes it");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(|about| clause(&about.to_string(), ABOUT)).unwrap_or_default();
            writeln!(text, "  {name:<12} {about}").expect("a string takes it");
        }
    }
    command.help_template(format!(
        "{{about}}\n\nUsage: tlsdyno COMMAND …; tlsdyno COMMAND -h says how\n\n{text}\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use clap::Arg;
    use tlsdyno_base::help::{asked_for, flags};

    use super::*;
    use crate::cmd::cli::tests::command;

    /// Every visible command and those below it.
    fn all(command: &Command) -> Vec<&Command> {
        let below = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
        below.flat_map(|one| [vec![one], all(one)].concat()).collect()
    }

    #[test]
    fn helps_fit_on_a_screen_and_on_two_and_leave_nothing_out() {
        let mut whole = command();
        whole.build();
        let mut long = Vec::new();
        for of in all(&whole) {
            let name = of.get_bin_name().unwrap();
            let short = of.clone().render_help().to_string().lines().count();
            let text = flags(of.clone());
            let middle = text.lines().count();
            if short > 40 || middle > 104 {
                long.push(format!("{name}: -h {short} lines, --help {middle}"));
            }
            let shown = of.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long);
            let missing: Vec<&str> = shown.filter(|flag| !text.contains(&format!("--{flag}"))).collect();
            assert!(missing.is_empty(), "{name} --help lacks {missing:?}");
        }
        assert!(long.is_empty(), "at most 40 and 104:\n{}", long.join("\n"));
        assert!(command().render_help().to_string().lines().count() <= 40);
    }

    #[test]
    fn every_command_is_in_one_group() {
        let command = command();
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help");
        let mut visible: Vec<&str> = visible.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(visible, grouped);
    }

    #[test]
    fn the_middle_help_is_that_of_the_command_named() {
        let asked = |line: &str| asked_for(&line.split(' ').map(str::to_owned).collect::<Vec<_>>(), |_| command());
        assert!(asked("load -k --help").unwrap().contains("Usage: tlsdyno load"));
        assert!(asked("trace show --help").unwrap().contains("Usage: tlsdyno trace show"));
        assert!(asked("load -h").is_none() && asked("load --help-all").is_none() && asked("--help").is_none());
        assert!(asked("compare a -- --help").is_none());
    }
}
