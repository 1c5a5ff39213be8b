//! Text that others wrote (files, peers, old records), made fit for a message: short, and harmless on a terminal. The
//! file depends on std alone, so that fuzz targets can build what uses it.

use std::borrow::Cow;

/// Most characters of a foreign text that a message quotes.
const QUOTED: usize = 80;

/// The beginning of a foreign text for a message: control characters escaped, `…` where it goes on.
pub fn quoted(text: &str) -> String {
    escaped(&clipped(text.chars(), QUOTED), char::is_control)
}

/// At most so many characters, then `…`.
pub fn clipped(mut characters: impl Iterator<Item = char>, most: usize) -> String {
    let mut text: String = characters.by_ref().take(most).collect();
    if characters.next().is_some() {
        text.push('…');
    }
    text
}

/// A foreign text as it is, but with control characters escaped, so that a terminal prints them in place of obeying
/// them. Lines and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    let obeyed = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    if text.contains(obeyed) { Cow::Owned(escaped(text, obeyed)) } else { Cow::Borrowed(text) }
}

fn escaped(text: &str, which: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if which(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_are_short_and_harmless() {
        assert_eq!(quoted("plain – text"), "plain – text");
        assert_eq!(quoted("red \u{1b}[31m\n\u{9b}2J"), "red \\u{1b}[31m\\n\\u{9b}2J");
        assert_eq!(quoted(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(quoted(&"x".repeat(1_000_000)), "x".repeat(80) + "…");
    }

    #[test]
    fn lines_stay_and_escapes_are_shown() {
        assert!(matches!(visible("two\n\tlines"), Cow::Borrowed(_)));
        assert_eq!(visible("a\n\u{1b}]0;title\u{7}b\r\u{7f}"), "a\n\\u{1b}]0;title\\u{7}b\\r\\u{7f}");
    }
}
