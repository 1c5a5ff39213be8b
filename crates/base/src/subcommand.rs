//! Subcommands as data, so that the command line is a list of them.

use crate::exit::Exit;
use anyhow::Result;
use clap::{Arg, ArgMatches, Command};

/// A subcommand: its flags, and what runs it.
pub struct Subcommand {
    /// How it is called.
    pub name: &'static str,
    flags: fn(Command) -> Command,
    run: fn(&ArgMatches) -> Result<Exit>,
    /// The flags that `-h` shows and its example, if it does not show all.
    pub short: Option<(&'static [&'static str], &'static str)>,
}

impl Subcommand {
    /// The subcommand of that name. [`subcommand`] makes it of a module that has `Args` and `run`.
    pub const fn new(
        name: &'static str,
        flags: fn(Command) -> Command,
        run: fn(&ArgMatches) -> Result<Exit>,
    ) -> Subcommand {
        Subcommand { name, flags, run, short: None }
    }

    /// With so many flags that `-h` shows those that matter, and an example. `--help` shows all, a line each.
    pub const fn with_short_help(self, flags: &'static [&'static str], example: &'static str) -> Subcommand {
        Subcommand { short: Some((flags, example)), ..self }
    }

    /// As clap has it.
    pub fn command(&self) -> Command {
        let command = (self.flags)(Command::new(self.name));
        let Some((flags, example)) = self.short else { return command };
        let long = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let short = format!("Example:\n  {example}");
        let is_shown = |arg: &Arg| flags.iter().any(|flag| is_named(arg, flag));
        let command = command.mut_args(|arg| if is_shown(&arg) { arg } else { arg.hide_short_help(true) });
        command.after_help(short).after_long_help(long)
    }

    /// Runs it with the flags that were given.
    ///
    /// # Errors
    /// Those of the subcommand.
    pub fn run(&self, given: &ArgMatches) -> Result<Exit> {
        (self.run)(given)
    }
}

/// Whether an argument has this name, or is the flag of it (`machine_cpus`: `--machine-cpus`).
pub fn is_named(arg: &Arg, name: &str) -> bool {
    arg.get_id() == name || arg.get_long().is_some_and(|long| long.replace('-', "_") == name)
}

/// The subcommand of a module that has `Args` and `run(&Args)`, or of such a type and function.
#[macro_export]
macro_rules! subcommand {
    ($name:literal, $($module:ident)::+) => {
        $crate::subcommand::subcommand!($name, $($module)::+::Args, $($module)::+::run)
    };
    ($name:literal, $args:ty, $run:expr) => {
        $crate::subcommand::Subcommand::new($name, <$args as clap::Args>::augment_args, |given| {
            let args = <$args as clap::FromArgMatches>::from_arg_matches(given);
            ($run)(&args.unwrap_or_else(|error| error.exit()))
        })
    };
}
pub use subcommand;
