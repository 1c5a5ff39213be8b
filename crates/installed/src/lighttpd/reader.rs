//! Reads what lighttpd prints of a configuration (`-p`): settings, and blocks under a condition. Sums, variables and
//! includes are done.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};

/// Maximum depth of conditions within conditions.
const BLOCKS_MAX: u32 = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// `name = value`, the value as it is written.
    Setting {
        name: String,
        value: String,
    },
    Block {
        head: String,
        inner: Vec<Item>,
    },
}

impl Item {
    pub(super) fn setting(name: &str, value: impl Into<String>) -> Item {
        Item::Setting { name: name.to_owned(), value: value.into() }
    }

    pub(super) fn is(&self, wanted: &str) -> bool {
        matches!(self, Item::Setting { name, .. } if name == wanted)
    }

    pub(super) fn value(&self) -> Option<String> {
        match self {
            Item::Setting { value, .. } => Some(value.clone()),
            Item::Block { .. } => None,
        }
    }

    pub(super) fn says(&self, wanted: &str) -> bool {
        matches!(self, Item::Setting { value, .. } if value == wanted)
    }

    pub(super) fn is_of_tls(&self) -> bool {
        matches!(self, Item::Setting { name, .. } if name.starts_with("ssl."))
    }

    pub(super) fn write(&self, text: &mut String, depth: usize) {
        let indent = "    ".repeat(depth);
        match self {
            Item::Setting { name, value } => {
                let _ = writeln!(text, "{indent}{name} = {value}");
            }
            Item::Block { head, inner } => {
                let _ = writeln!(text, "{indent}{head} {{");
                inner.iter().for_each(|item| item.write(text, depth + 1));
                let _ = writeln!(text, "{indent}}}");
            }
        }
    }
}

pub(super) fn all(items: &[Item]) -> Vec<&Item> {
    let mut all = Vec::new();
    for item in items {
        all.push(item);
        if let Item::Block { inner, .. } = item {
            all.extend(self::all(inner));
        }
    }
    all
}

pub(super) fn change_all(items: &mut Vec<Item>, change: &mut dyn FnMut(&mut Vec<Item>)) {
    change(items);
    for item in items {
        if let Item::Block { inner, .. } = item {
            change_all(inner, change);
        }
    }
}

pub(super) fn value_of(items: &[Item], wanted: &str) -> Option<String> {
    let value = |item: &Item| match item {
        Item::Setting { name, value } if name == wanted => Some(value.clone()),
        _ => None,
    };
    items.iter().rev().find_map(value)
}

/// The pairs `"key" => "text"` and `"key" => number` of a list, and of lists in it.
pub(super) fn pairs(value: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut key: Option<String> = None;
    let mut is_behind_arrow = false;
    let mut rest = value;
    while let Some(first) = rest.chars().next() {
        let token = token(rest);
        rest = &rest[token.len()..];
        match first {
            '=' => is_behind_arrow = true,
            '(' | ')' | ',' => (key, is_behind_arrow) = (None, false),
            _ if first.is_whitespace() => {}
            _ => match key.take().filter(|_| is_behind_arrow) {
                Some(name) => pairs.push((name, text_of(token))),
                None => (key, is_behind_arrow) = (Some(text_of(token)), false),
            },
        }
    }
    pairs
}

/// The first token of a text that is not empty.
fn token(text: &str) -> &str {
    let first = text.chars().next().map_or(0, char::len_utf8);
    let end = match text.as_bytes() {
        [b'"', ..] => end_of_quoted(text).unwrap_or(text.len()),
        [b'=', b'>', ..] => 2,
        [b'(' | b')' | b',' | b'=' | b' ' | b'\n' | b'\t' | b'\r', ..] => 1,
        _ => text.find(|c: char| "(),=\"".contains(c) || c.is_whitespace()).unwrap_or(text.len()).max(first),
    };
    &text[..end]
}

/// Where the quotes that a text begins with are closed, behind them.
fn end_of_quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn text_of(token: &str) -> String {
    let bare = token.strip_prefix('"').and_then(|token| token.strip_suffix('"'));
    bare.map_or_else(|| token.to_owned(), |text| text.replace("\\\"", "\""))
}

/// Reads what is printed.
pub(super) fn read(printed: &str) -> Result<Vec<Item>> {
    let mut rest = printed;
    let lines_left = |rest: &str| printed[..printed.len() - rest.len()].matches('\n').count() + 1;
    let items = items(&mut rest, 0).with_context(|| format!("line {}", lines_left(rest)))?;
    // All stands in one block `config`.
    match <[Item; 1]>::try_from(items) {
        Ok([Item::Block { head, inner }]) if head == "config" => Ok(inner),
        Ok(other) => Ok(other.into()),
        Err(items) => Ok(items),
    }
}

fn items(rest: &mut &str, depth: u32) -> Result<Vec<Item>> {
    ensure!(depth < BLOCKS_MAX, "conditions are nested too deep");
    let mut items = Vec::new();
    loop {
        *rest = rest.trim_start();
        if rest.is_empty() {
            ensure!(depth == 0, "a block is not closed");
            return Ok(items);
        }
        if rest.starts_with('#') {
            *rest = rest.split_once('\n').map_or("", |(_, behind)| behind);
            continue;
        }
        if let Some(behind) = rest.strip_prefix('}') {
            ensure!(depth > 0, "a }} stands where none belongs");
            *rest = behind;
            return Ok(items);
        }
        let line = rest.lines().next().unwrap_or_default();
        if let Some(head) = line.trim_end().strip_suffix('{').filter(|head| !is_setting(head)) {
            *rest = &rest[line.len()..];
            items.push(Item::Block { head: head.trim().to_owned(), inner: self::items(rest, depth + 1)? });
            continue;
        }
        let Some((name, _)) = line.split_once('=').filter(|_| is_setting(line)) else {
            bail!("`{line}` is no setting");
        };
        *rest = rest[name.len() + 1..].trim_start();
        let value = value(rest)?;
        items.push(Item::Setting { name: name.trim().to_owned(), value });
    }
}

/// Whether a line begins with a name and a sign of equality.
fn is_setting(line: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let rest = line.trim_start_matches(is_of_name);
    rest.len() < line.len()
        && rest.trim_start().strip_prefix('=').is_some_and(|rest| !rest.starts_with(['=', '~', '^', '$']))
}

/// A value up to the end of its line, or of its list.
fn value(rest: &mut &str) -> Result<String> {
    let whole = *rest;
    let mut depth = 0_i32;
    while let Some(first) = rest.chars().next() {
        if depth <= 0 && (first == '\n' || first == '}') {
            break;
        }
        let token = token(rest);
        ensure!(first != '"' || end_of_quoted(rest).is_some(), "a quote is not closed");
        depth += i32::from(first == '(') - i32::from(first == ')');
        *rest = &rest[token.len()..];
    }
    ensure!(depth == 0, "a list is not closed");
    let value = whole[..whole.len() - rest.len()].trim();
    ensure!(!value.is_empty(), "a value is missing");
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let printed = "config {\n    var.PID = 1\n    a.b = (\n        \"x\" => \"1 ) }\",\n\
            \x20       \"y\" => (\n \"z\" => 2,\n),\n    )\n\n\
            $SERVER[\"socket\"] == \":443\" {\n        # block 1\n        ssl.engine = \"enable\"\n\
            \x20   } # end of $SERVER\n\
            else $HTTP[\"host\"] =~ \"^a\\.b{2}\" {\n # block 2\n x = \"a\\\"b\"\n } # end\n}\n";
        let items = read(printed).unwrap();
        assert_eq!(items.len(), 4);
        assert_eq!(pairs(&value_of(&items, "a.b").unwrap()), [("x".into(), "1 ) }".into()), ("z".into(), "2".into())]);
        assert!(matches!(&items[3], Item::Block { head, .. } if head == "else $HTTP[\"host\"] =~ \"^a\\.b{2}\""));
        assert_eq!(all(&items).len(), 6);
        for (text, said) in [
            ("a = (", "not closed"),
            ("x {", "not closed"),
            ("}", "belongs"),
            ("a = \"", "quote"),
            ("a = \"\\\"", "quote"),
            ("a", "no setting"),
        ] {
            assert!(format!("{:#}", read(text).unwrap_err()).contains(said), "{text}");
        }
    }

    proptest! {
        /// Whatever is printed: it is read or refused, and what is read means the same when it is written.
        #[test]
        fn what_is_read_survives_being_written(text in "(a = |b\\.c=|\\(|\\)|\"|\\\\|=>|,|\n|x|#| |c \\{\n\
            |\\}){0,14}") {
            if let Ok(read) = read(&text) {
                let mut written = "config {\n".to_owned();
                read.iter().for_each(|item| item.write(&mut written, 0));
                let values = read.iter().filter_map(|item| match item {
                    Item::Setting { value, .. } => Some(value),
                    Item::Block { .. } => None,
                });
                values.for_each(|value| drop(pairs(value)));
                prop_assert_eq!(super::read(&(written + "}\n")).unwrap(), read);
            }
        }
    }
}
