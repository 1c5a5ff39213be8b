//! Three helps of each command: `-h` has the flags that matter, `--help` all of them with a line each, `--help-all` all
//! that there is to say. And the list of commands by what a person wants to do.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

/// Columns of a help, as far as the terminal has them.
const WIDTH: usize = 100;
/// Columns of what `--help` says of a flag.
const SAID: usize = 52;
/// Columns of what the list of commands says of each.
const ABOUT: usize = 84;
/// The flags that `-h` shows of commands below others, where all would be too many.
const SHORT: [(&str, &[&str]); 4] = [
    ("import", &["workload", "users", "scale", "connections", "exclude", "output", "json"]),
    ("primitives", &["server", "server_command", "sizes", "algorithms", "legacy", "time", "quick", "json"]),
    ("synth", &["workload", "users", "scale", "connections", "exclude", "output", "json"]),
    ("show", &["workload", "users", "exclude", "pages", "as_replayed", "json", "html"]),
];

/// Commands by what a person wants to do.
const GROUPS: [(&str, &[&str]); 7] = [
    ("What does TLS cost a server", &["ablate", "advise", "cost", "profile", "run"]),
    ("Load a server", &["load", "reuse", "compare", "trace", "serve"]),
    ("Several machines", &["cluster", "array", "plan", "worker"]),
    ("In production", &["dispatch", "cryptoserver"]),
    ("Watch sites", &["probe"]),
    ("What was measured", &["list", "report", "scoreboard"]),
    ("This machine", &["doctor", "completions", "man"]),
];

/// A command, and those below it, with the three flags.
pub fn with_helps(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_helps));
    let short = SHORT.iter().find(|(name, _)| *name == command.get_name()).map(|(_, shown)| *shown);
    let is_shown = |arg: &Arg| short.is_none_or(|shown| shown.contains(&arg.get_id().as_str()));
    let command = command.mut_args(|arg| if is_shown(&arg) { arg } else { arg.hide_short_help(true) });
    let flag = |name: &'static str, action, says: &'static str| {
        Arg::new(name).action(action).help(says).display_order(999).help_heading(None)
    };
    command.disable_help_flag(true).args([
        flag("help", ArgAction::HelpShort, "The flags that matter most").short('h'),
        flag("help_flags", ArgAction::HelpLong, "All flags, a line each").long("help"),
        flag("help_all", ArgAction::HelpLong, "All there is to say of each flag").long("help-all"),
    ])
}

/// What `tlsdyno COMMAND --help` prints, if that is asked for: all flags, a line each. clap knows two helps only.
pub fn asked_for(arguments: &[String], parser: fn(&[String]) -> Command) -> Option<String> {
    let words = || arguments.iter().take_while(|word| *word != "--");
    if !words().any(|word| word == "--help") {
        return None;
    }
    let mut command = parser(arguments);
    command.build();
    let mut of = &command;
    for word in words() {
        of = of.find_subcommand(word).unwrap_or(of);
    }
    (of.get_name() != command.get_name()).then(|| flags(of.clone()))
}

/// All flags of a command that was built, a line each.
fn flags(command: Command) -> String {
    let name = command.get_bin_name().unwrap_or_default().to_owned();
    let line = |arg: Arg| {
        let said = arg.get_help().map(|help| clause(&help.to_string(), SAID)).unwrap_or_default();
        let is_hidden = arg.is_hide_set() || arg.is_positional() || arg.get_id().as_str().starts_with("help");
        arg.help(said).hide(is_hidden).hide_short_help(false).hide_default_value(true).hide_possible_values(true)
    };
    let command = command.mut_args(line).term_width(WIDTH).after_help(format!("All about them: {name} --help-all"));
    let text = command.clone().render_help().to_string();
    // Headings stand out without a blank line before them.
    text.replace("\n\n", "\n")
}

/// The beginning of a text that fits into so many columns, up to a comma, bracket or the like where there is one.
fn clause(text: &str, columns: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= columns {
        return text;
    }
    let end = text.char_indices().nth(columns).map_or(text.len(), |(at, _)| at);
    let stops = [". ", "; ", ": ", ", ", " (", " ["];
    let stop = stops.iter().filter_map(|stop| text[..end].rfind(stop)).max().filter(|at| *at > columns / 3);
    match stop.or_else(|| text[..end].rfind(' ')) {
        Some(at) if stop.is_some() => text[..at].to_owned(),
        Some(at) => format!("{} …", &text[..at]),
        None => text,
    }
}

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
    use super::*;
    use crate::cmd::cli::command;

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
            if short > 40 || middle > 101 {
                long.push(format!("{name}: -h {short} lines, --help {middle}"));
            }
            let shown = of.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long);
            let missing: Vec<&str> = shown.filter(|flag| !text.contains(&format!("--{flag}"))).collect();
            assert!(missing.is_empty(), "{name} --help lacks {missing:?}");
        }
        assert!(long.is_empty(), "at most 40 and 101:\n{}", long.join("\n"));
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

    #[test]
    fn what_is_said_of_a_flag_ends_where_it_may() {
        assert_eq!(clause("Rates one after the other", SAID), "Rates one after the other");
        let long = "Open loop: so many requests a second, for example 500/s, each at its intended time";
        assert_eq!(clause(long, 58), "Open loop: so many requests a second, for example 500/s");
        assert!(clause(&"word ".repeat(30), SAID).ends_with("word …"));
    }
}
