//! Values of flags that have names: help texts, completions and messages list them from where they are declared.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Args, Command, Id};
use tlsdyno_tls::names::{Named, UnknownName};

/// The parser of a flag whose value is one of `values`.
pub fn choice<T: Named>(values: impl IntoIterator<Item = T>) -> Choice<T> {
    Choice(values.into_iter().collect())
}

/// See [`choice`].
#[derive(Clone, Debug)]
pub struct Choice<T>(Vec<T>);

impl<T: Named> TypedValueParser for Choice<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, flag: Option<&Arg>, text: &OsStr) -> Result<T, clap::Error> {
        let values = self.0.clone();
        let parse = move |text: &str| {
            let names = || values.iter().map(|value| value.name()).collect::<Vec<_>>().join(", ");
            // Of all names those are told that are a choice of this flag.
            let value = text.parse::<T>().map_err(|error| UnknownName { known: names(), ..error }.to_string())?;
            if values.contains(&value) { Ok(value) } else { Err(format!("no choice here; choose from {}", names())) }
        };
        parse.parse_ref(command, flag, text)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|value| PossibleValue::new(value.name()).help(value.about()))))
    }
}

/// Parses `50%` or `50`.
pub fn percent(text: &str) -> Result<f64, String> {
    let value = number_of(text).filter(|value| (0.0..=100.0).contains(value));
    value.ok_or_else(|| format!("`{text}` is not a percentage between 0% and 100%"))
}

/// Parses `150%` or `150`.
pub fn positive_percent(text: &str) -> Result<f64, String> {
    let value = number_of(text).filter(|value| *value > 0.0 && value.is_finite());
    value.ok_or_else(|| format!("`{text}` is not a percentage above 0%"))
}

fn number_of(percent: &str) -> Option<f64> {
    percent.strip_suffix('%').unwrap_or(percent).trim().parse().ok()
}

/// A group of flags none of which is given: its defaults, written once.
///
/// # Panics
/// One of the flags must be given.
pub fn defaults_of<A: Args>() -> A {
    let given = A::augment_args(Command::new("")).try_get_matches_from([""]);
    given.and_then(|given| A::from_arg_matches(&given)).expect("each flag of the group has a default")
}

/// All flags of a group, for one that stands instead of them.
pub fn flags_of<A: Args>() -> Vec<Id> {
    A::augment_args(Command::new("")).get_arguments().map(|flag| flag.get_id().clone()).collect()
}
