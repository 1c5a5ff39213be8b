//! Text that others wrote (files, peers, old records), made fit for a message: short, and harmless on a terminal. The
//! file depends on std alone, so that fuzz targets can build what uses it.

use std::borrow::Cow;

/// Most characters of a foreign text that a message quotes.
const QUOTED: usize = 80;
/// Characters of a line, and lines of a message, beyond which their middle is left out.
const LINE_CHARACTERS: usize = 1_000;
const MESSAGE_LINES: usize = 100;

/// The beginning of a foreign text for a message: control characters escaped, `…` where it goes on.
pub fn quoted(text: &str) -> String {
    escaped(&clipped(text.chars(), QUOTED), is_obeyed)
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
    let obeyed = |character: char| is_obeyed(character) && !matches!(character, '\n' | '\t');
    if text.contains(obeyed) { Cow::Owned(escaped(text, obeyed)) } else { Cow::Borrowed(text) }
}

/// A message that may quote foreign texts, with the middle of long lines and of many lines left out: its beginning says
/// what is wrong, its end what to do.
pub fn shortened(message: &str) -> Cow<'_, str> {
    let count = message.lines().count();
    if count <= MESSAGE_LINES && message.lines().all(|line| line.len() <= LINE_CHARACTERS) {
        return Cow::Borrowed(message);
    }
    let lines = message.lines().enumerate().filter_map(|(at, line)| {
        let (before, after) = (MESSAGE_LINES / 2, count.saturating_sub(MESSAGE_LINES / 2));
        match at {
            at if at < before || at >= after => Some(without_middle(line)),
            at if at == before => Some(format!("… ({} lines)", after - before)),
            _ => None,
        }
    });
    Cow::Owned(lines.collect::<Vec<_>>().join("\n"))
}

fn without_middle(line: &str) -> String {
    let count = line.chars().count();
    if count <= LINE_CHARACTERS {
        return line.to_owned();
    }
    let start: String = line.chars().take(LINE_CHARACTERS / 2).collect();
    let end: String = line.chars().skip(count - LINE_CHARACTERS / 2).collect();
    format!("{start}… ({} characters) …{end}", count - LINE_CHARACTERS)
}

/// JSON in which characters that a reader would obey are written as escapes: the same value.
pub fn harmless_json(json: &str) -> Cow<'_, str> {
    // Others than these stand between values only, and within texts the encoder has escaped them.
    let obeyed = |character: char| character >= '\u{7f}' && is_obeyed(character);
    if !json.contains(obeyed) {
        return Cow::Borrowed(json);
    }
    let escape = |character: char| match obeyed(character) {
        true => format!("\\u{:04x}", u32::from(character)),
        false => character.to_string(),
    };
    Cow::Owned(json.chars().map(escape).collect())
}

/// A terminal or browser obeys the character in place of showing it: control characters, and those that change the
/// direction or the line of what follows (Unicode Bidirectional Algorithm, section 2).
fn is_obeyed(character: char) -> bool {
    let turns =
        matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
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
        assert_eq!(quoted("a\u{202e}b\u{2066}c\u{200f}\u{61c}"), "a\\u{202e}b\\u{2066}c\\u{200f}\\u{61c}");
        assert_eq!(quoted(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(quoted(&"x".repeat(1_000_000)), "x".repeat(80) + "…");
    }

    #[test]
    fn messages_keep_their_beginning_and_their_end() {
        assert!(matches!(shortened("one\ntwo"), Cow::Borrowed(_)));
        let long = shortened(&format!("unknown `{}`; write another", "é".repeat(200_000))).into_owned();
        assert!(long.starts_with("unknown `é") && long.ends_with("é`; write another"), "{long}");
        assert!(long.contains("… (199025 characters) …") && long.chars().count() < 1_100, "{long}");
        let many = shortened(&"line\n".repeat(5_000)).into_owned();
        assert!(many.lines().count() == 101 && many.contains("\n… (4900 lines)\n"), "{many}");
    }

    #[test]
    fn json_is_the_same_value() {
        let json = serde_json::to_string("a\u{1b}\u{7f}\u{9b}\u{202e}é\"").unwrap();
        let harmless = harmless_json(&json);
        assert!(!harmless.contains(is_obeyed), "{harmless}");
        assert_eq!(serde_json::from_str::<String>(&harmless).unwrap(), "a\u{1b}\u{7f}\u{9b}\u{202e}é\"");
        assert!(matches!(harmless_json("{\n\t\"é\": 1}"), Cow::Borrowed(_)));
    }

    #[test]
    fn lines_stay_and_escapes_are_shown() {
        assert!(matches!(visible("two\n\tlines"), Cow::Borrowed(_)));
        assert_eq!(visible("שלום: a\u{202e}cod.exe\u{2028}"), "שלום: a\\u{202e}cod.exe\\u{2028}");
        assert_eq!(visible("a\n\u{1b}]0;title\u{7}b\r\u{7f}"), "a\n\\u{1b}]0;title\\u{7}b\\r\\u{7f}");
    }
}
