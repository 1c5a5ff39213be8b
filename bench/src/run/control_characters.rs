//! Experiment files hold no control characters: names and questions of a file are printed on terminals and go into
//! tables.

use std::ops::Range;

use anyhow::{Result, bail};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::foreign::quoted;

/// A command line may have several lines.
const MAY_HAVE_LINES: &str = "command";

/// Refuses an experiment file in whose names and values control characters are hidden.
///
/// # Errors
/// The first of them, with its line and key; or it is no TOML.
pub fn refuse(text: &str) -> Result<()> {
    let table = DeTable::parse(text)?;
    match first_in_table(table.get_ref(), "") {
        None => Ok(()),
        Some(Found { key, value, span }) => bail!(
            "line {}: `{}` holds a control character: \"{}\"; write it without",
            text[..span.start].matches('\n').count() + 1,
            quoted(&key),
            quoted(&value)
        ),
    }
}

/// A text with a control character.
struct Found {
    key: String,
    value: String,
    span: Range<usize>,
}

fn first_in_table(table: &DeTable<'_>, path: &str) -> Option<Found> {
    table.iter().find_map(|(name, value)| {
        let key = if path.is_empty() { name.get_ref().to_string() } else { format!("{path}.{}", name.get_ref()) };
        if name.get_ref().contains(char::is_control) {
            return Some(Found { key: key.clone(), value: name.get_ref().to_string(), span: name.span() });
        }
        first_in_value(value, &key)
    })
}

fn first_in_value(value: &Spanned<DeValue<'_>>, key: &str) -> Option<Found> {
    match value.get_ref() {
        DeValue::String(text) => {
            let lines = key.rsplit('.').next() == Some(MAY_HAVE_LINES);
            let refused = |character: char| character.is_control() && !(lines && matches!(character, '\n' | '\t'));
            let found = || Found { key: key.to_owned(), value: text.to_string(), span: value.span() };
            text.contains(refused).then(found)
        }
        DeValue::Array(items) => items.iter().find_map(|item| first_in_value(item, key)),
        DeValue::Table(table) => first_in_table(table, key),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_found_wherever_they_hide() {
        let error = |text: &str| format!("{:#}", refuse(text).unwrap_err());
        let question = error("# comment\nquestion = \"q\\u001b[31m?\"\n");
        assert!(question.starts_with("line 2: `question` holds") && question.contains("q\\u{1b}[31m?"), "{question}");
        let name = "question = \"q?\"\n[[configuration]]\nname = \"as is\"\n[[configuration]]\nname = \"b\\u009b2J\"\n";
        assert!(error(name).starts_with("line 5: `configuration.name`"), "{}", error(name));
        let key = "[paper.hits_per_s]\n\"a\\u0007\" = [1.0]\n";
        assert!(error(key).starts_with("line 2: `paper.hits_per_s.a\\u{7}`"), "{}", error(key));
        assert!(error("question = \"\"\"two\nlines?\"\"\"\n").starts_with("line 1: `question`"));
        assert!(error("noop = [\"kdf\", \"mac\\r\"]\n").starts_with("line 1: `noop`"));
    }

    #[test]
    fn commands_may_have_lines_and_nothing_else_is_touched() {
        refuse("question = \"Größe?\"\n[server]\ncommand = \"\"\"nginx\n\t-g x\"\"\"\n").unwrap();
        assert!(refuse("[server]\ncommand = \"x\\u001b\"\n").is_err());
    }
}
