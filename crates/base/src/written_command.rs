//! Flags of a subcommand as data: what one program says of its own for another's help, completions and man pages.

use clap::builder::{PossibleValue, PossibleValuesParser, ValueRange};
use clap::{Arg, ArgAction, ArgGroup, Command, ValueHint};
use serde::{Deserialize, Serialize};

/// A subcommand with those below it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    name: String,
    about: Option<String>,
    long_about: Option<String>,
    after_help: Option<String>,
    after_long_help: Option<String>,
    needs_subcommand: bool,
    args: Vec<Flag>,
    /// Of which one is required each.
    groups: Vec<(String, Vec<String>)>,
    subcommands: Vec<Written>,
}

/// A flag or a positional argument.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flag {
    id: String,
    short: Option<char>,
    long: Option<String>,
    aliases: Vec<String>,
    help: Option<String>,
    long_help: Option<String>,
    heading: Option<String>,
    takes: Takes,
    value_names: Vec<String>,
    /// Fewest and most.
    values: Option<(usize, usize)>,
    /// With the help of each.
    possible_values: Vec<(String, Option<String>)>,
    default_values: Vec<String>,
    hint: String,
    conflicts: Vec<String>,
    is_required: bool,
    is_last: bool,
    is_hidden: bool,
    is_hidden_in_short_help: bool,
    hides_default: bool,
    hides_possible_values: bool,
}

/// What follows a flag.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Takes {
    Nothing,
    Value,
    Values,
}

impl From<&Command> for Written {
    fn from(command: &Command) -> Written {
        let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string);
        let required = command.get_groups().filter(|group| group.is_required_set());
        Written {
            name: command.get_name().to_owned(),
            about: text(command.get_about()),
            long_about: text(command.get_long_about()),
            after_help: text(command.get_after_help()),
            after_long_help: text(command.get_after_long_help()),
            needs_subcommand: command.is_subcommand_required_set(),
            args: command.get_arguments().filter(is_told).map(|arg| Flag::new(command, arg)).collect(),
            groups: required.map(|group| (group.get_id().to_string(), names(group.get_args()))).collect(),
            subcommands: command.get_subcommands().map(Written::from).collect(),
        }
    }
}

impl Flag {
    fn new(command: &Command, arg: &Arg) -> Flag {
        let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string);
        let possible = arg.get_possible_values();
        let possible = possible.iter().filter(|value| !value.is_hide_set());
        let hides_values = arg.is_hide_possible_values_set();
        Flag {
            id: arg.get_id().to_string(),
            short: arg.get_short(),
            long: arg.get_long().map(str::to_owned),
            aliases: names(arg.get_visible_aliases().unwrap_or_default()),
            help: text(arg.get_help()),
            long_help: text(arg.get_long_help()),
            heading: arg.get_help_heading().map(str::to_owned),
            takes: match arg.get_action() {
                ArgAction::Set => Takes::Value,
                ArgAction::Append => Takes::Values,
                _ => Takes::Nothing,
            },
            value_names: names(arg.get_value_names().unwrap_or_default()),
            values: arg.get_num_args().map(|range| (range.min_values(), range.max_values())),
            possible_values: possible.map(|value| (value.get_name().to_owned(), text(value.get_help()))).collect(),
            default_values: arg.get_default_values().iter().map(|value| value.to_string_lossy().into()).collect(),
            hint: format!("{:?}", arg.get_value_hint()),
            conflicts: names(command.get_arg_conflicts_with(arg).into_iter().filter(is_told).map(Arg::get_id)),
            is_required: arg.is_required_set(),
            is_last: arg.is_last_set(),
            is_hidden: arg.is_hide_set(),
            is_hidden_in_short_help: arg.is_hide_short_help_set(),
            hides_default: arg.is_hide_default_value_set(),
            hides_possible_values: hides_values,
        }
    }
}

/// Every program adds the flags of its helps by itself.
fn is_told(arg: &&Arg) -> bool {
    !matches!(arg.get_action(), ArgAction::HelpShort | ArgAction::HelpLong)
}

fn names(all: impl IntoIterator<Item = impl ToString>) -> Vec<String> {
    all.into_iter().map(|name| name.to_string()).collect()
}

/// clap takes names that live as long as the program.
fn kept(name: String) -> &'static str {
    name.leak()
}

impl From<Written> for Command {
    fn from(written: Written) -> Command {
        let mut command = Command::new(kept(written.name))
            .subcommand_required(written.needs_subcommand)
            .args(written.args.into_iter().map(Arg::from))
            .subcommands(written.subcommands.into_iter().map(Command::from));
        for (id, args) in written.groups {
            command =
                command.group(ArgGroup::new(kept(id)).args(args.into_iter().map(kept)).required(true).multiple(true));
        }
        command = written.about.into_iter().fold(command, Command::about);
        command = written.long_about.into_iter().fold(command, Command::long_about);
        command = written.after_help.into_iter().fold(command, Command::after_help);
        written.after_long_help.into_iter().fold(command, Command::after_long_help)
    }
}

impl From<Flag> for Arg {
    fn from(flag: Flag) -> Arg {
        let mut arg = Arg::new(kept(flag.id))
            .action(match flag.takes {
                Takes::Nothing => ArgAction::SetTrue,
                Takes::Value => ArgAction::Set,
                Takes::Values => ArgAction::Append,
            })
            .visible_aliases(flag.aliases.into_iter().map(kept))
            .conflicts_with_all(flag.conflicts.into_iter().map(kept))
            .required(flag.is_required)
            .last(flag.is_last)
            .hide(flag.is_hidden)
            .hide_short_help(flag.is_hidden_in_short_help)
            .hide_default_value(flag.hides_default)
            .hide_possible_values(flag.hides_possible_values)
            .help_heading(flag.heading.map(kept));
        arg = flag.short.into_iter().fold(arg, Arg::short);
        arg = flag.long.map(kept).into_iter().fold(arg, Arg::long);
        arg = flag.help.into_iter().fold(arg, Arg::help);
        arg = flag.long_help.into_iter().fold(arg, Arg::long_help);
        if matches!(flag.takes, Takes::Nothing) {
            return arg;
        }
        if let Some((fewest, most)) = flag.values {
            arg = arg.num_args(ValueRange::new(fewest..=most));
        }
        if !flag.value_names.is_empty() {
            arg = arg.value_names(flag.value_names.into_iter().map(kept));
        }
        if !flag.possible_values.is_empty() {
            let value = |(name, help): (String, Option<String>)| {
                help.into_iter().fold(PossibleValue::new(kept(name)), PossibleValue::help)
            };
            arg = arg.value_parser(PossibleValuesParser::new(flag.possible_values.into_iter().map(value)));
        }
        arg = flag.hint.parse::<ValueHint>().into_iter().fold(arg, Arg::value_hint);
        arg.default_values(flag.default_values.into_iter().map(kept))
    }
}
