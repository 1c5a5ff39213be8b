//! Three helps of each command: `-h` has the flags that matter, `--help` all of them with a line each, `--help-all` all
//! that there is to say.

use clap::{Arg, ArgAction, Command};

/// Columns of a help, as far as the terminal has them.
const WIDTH: usize = 100;
/// Columns of what `--help` says of a flag.
const SAID: usize = 52;
/// Commands below others, and the flags of each that `-h` shows.
pub type Below = &'static [(&'static str, &'static [&'static str])];

/// A command where `-h` shows of those below it what is named here.
pub fn shortened(command: Command, below: Below) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let of_one = |command: Command, name| command.mut_subcommand(name, |one| shortened(one, below));
    let command = names.into_iter().fold(command, of_one);
    let Some((_, shown)) = below.iter().find(|(name, _)| *name == command.get_name()) else { return command };
    let is_shown = |arg: &Arg| shown.contains(&arg.get_id().as_str());
    command.mut_args(|arg| if is_shown(&arg) { arg } else { arg.hide_short_help(true) })
}

/// A command, and those below it, with the three flags.
pub fn with_helps(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_helps));
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
pub fn asked_for(arguments: &[String], parser: impl Fn(&[String]) -> Command) -> Option<String> {
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
pub fn flags(command: Command) -> String {
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
pub fn clause(text: &str, columns: usize) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_flag_ends_where_it_may() {
        assert_eq!(clause("Rates one after the other", SAID), "Rates one after the other");
        let long = "Open loop: so many requests a second, for example 500/s, each at its intended time";
        assert_eq!(clause(long, 58), "Open loop: so many requests a second, for example 500/s");
        assert!(clause(&"word ".repeat(30), SAID).ends_with("word …"));
    }
}
