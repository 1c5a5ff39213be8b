//! Values that no experiment file may hold: control characters, because names and questions of a file are printed on
//! terminals and go into tables, and numbers that are none or beyond all that is measured.

use std::ops::Range;

use tlsdyno_base::foreign::quoted;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys whose values may have several lines.
const MAY_HAVE_LINES: [&str; 3] = ["command", "configuration", "text"];

/// Largest number that a file may have.
const NUMBER_MOST: f64 = 1e15;
/// Prefix of the keys of a paper's numbers, where `nan` means illegible.
const ILLEGIBLE: &str = "paper.";

/// Place of the first refused value, and the message. `path`: key of the table; empty: the whole file.
pub(super) fn refused(table: &DeTable<'_>, path: &str) -> Option<(Range<usize>, String)> {
    table.iter().find_map(|(name, value)| {
        let key = if path.is_empty() { name.get_ref().to_string() } else { format!("{path}.{}", name.get_ref()) };
        in_text(name.get_ref(), name.span(), &key, "").or_else(|| in_value(value, &key))
    })
}

fn in_value(value: &Spanned<DeValue<'_>>, key: &str) -> Option<(Range<usize>, String)> {
    match value.get_ref() {
        DeValue::String(text) => {
            let may_have_lines = key.rsplit('.').next().is_some_and(|last| MAY_HAVE_LINES.contains(&last));
            in_text(text, value.span(), key, if may_have_lines { "\n\t" } else { "" })
        }
        DeValue::Array(items) => items.iter().find_map(|item| in_value(item, key)),
        DeValue::Table(table) => refused(table, key),
        DeValue::Float(number) if !key.starts_with(ILLEGIBLE) => {
            let is_usable = number.as_str().parse::<f64>().is_ok_and(|number| number.abs() <= NUMBER_MOST);
            let said = || format!("`{}` is {number}; write a number up to {NUMBER_MOST:e}", quoted(key));
            (!is_usable).then(|| (value.span(), said()))
        }
        _ => None,
    }
}

fn in_text(text: &str, span: Range<usize>, key: &str, allowed: &str) -> Option<(Range<usize>, String)> {
    let is_refused = |character: char| character.is_control() && !allowed.contains(character);
    let said = || format!("`{}` holds a control character: \"{}\"; write it without", quoted(key), quoted(text));
    text.contains(is_refused).then(|| (span, said()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_found_wherever_they_hide() {
        let error = |text: &str| {
            let (span, said) = refused(DeTable::parse(text).unwrap().get_ref(), "").unwrap();
            format!("line {}: {said}", text[..span.start].matches('\n').count() + 1)
        };
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
    fn numbers_are_numbers() {
        let said = |text: &str| refused(DeTable::parse(text).unwrap().get_ref(), "").map(|(_, said)| said);
        for wrong in ["nan", "-nan", "inf", "1e16"] {
            let said = said(&format!("[measure]\ntime_s = {wrong}\n")).unwrap();
            assert!(said.starts_with("`measure.time_s` is"), "{said}");
        }
        assert_eq!(said("[measure]\ntime_s = 1e3\n[paper.hits_per_s]\na = [120.0, nan]\n"), None);
    }

    #[test]
    fn commands_may_have_lines_and_nothing_else_is_touched() {
        let found = |text: &str| refused(DeTable::parse(text).unwrap().get_ref(), "").is_some();
        assert!(!found("question = \"Größe?\"\n[server]\ncommand = \"\"\"nginx\n\t-g x\"\"\"\n"));
        assert!(found("[server]\ncommand = \"x\\u001b\"\n"));
    }
}
