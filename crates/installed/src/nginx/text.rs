//! Words of a configuration: bytes as text that can be written back byte for byte, and what nginx takes a word for.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Bytes that are no UTF-8 (Latin-1 in comments and texts) are these characters, which nobody assigns.
const BYTES_FROM: u32 = 0x0010_FF00;

/// The text of a file, whatever its encoding. [`bytes_of`] is its inverse.
pub fn text_of(bytes: &[u8]) -> String {
    let as_character = |byte: &u8| char::from_u32(BYTES_FROM + u32::from(*byte)).unwrap_or(char::REPLACEMENT_CHARACTER);
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match byte_of(character) {
                None => text.push(character),
                // The file has one of them itself: each of its bytes.
                Some(_) => text.extend(character.encode_utf8(&mut [0; 4]).as_bytes().iter().map(as_character)),
            }
        }
        text.extend(chunk.invalid().iter().map(as_character));
    }
    text
}

pub fn bytes_of(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match byte_of(character) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// The byte that a character stands for, where it is none of a text.
fn byte_of(character: char) -> Option<u8> {
    u32::from(character).checked_sub(BYTES_FROM).and_then(|byte| u8::try_from(byte).ok()).filter(|byte| *byte >= 0x80)
}

/// What nginx takes a word for: without its quotes, and with escapes undone (`ngx_conf_read_token`).
pub fn value(word: &str) -> Cow<'_, str> {
    let quoted = |quote: char| word.strip_prefix(quote).and_then(|word| word.strip_suffix(quote));
    let word = quoted('"').or_else(|| quoted('\'')).unwrap_or(word);
    if !word.contains('\\') {
        return Cow::Borrowed(word);
    }
    let mut value = String::with_capacity(word.len());
    let mut characters = word.chars().peekable();
    while let Some(character) = characters.next() {
        let escaped = match (character, characters.peek()) {
            ('\\', Some(next @ ('"' | '\'' | '\\'))) => Some(*next),
            ('\\', Some('t')) => Some('\t'),
            ('\\', Some('r')) => Some('\r'),
            ('\\', Some('n')) => Some('\n'),
            _ => None,
        };
        if escaped.is_some() {
            characters.next();
        }
        value.push(escaped.unwrap_or(character));
    }
    Cow::Owned(value)
}

/// The word that nginx takes for this value.
pub fn word_of(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:-".contains(&byte);
    if !value.is_empty() && value.bytes().all(is_plain) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

pub fn path_of(value: &str) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes_of(value)))
}

pub fn name_of(path: &Path) -> String {
    text_of(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_what_nginx_takes_words_for() {
        for (word, wanted) in [
            ("localhost", "localhost"),
            ("\"localhost\"", "localhost"),
            ("'a b'", "a b"),
            (r#""a\"b""#, "a\"b"),
            (r"a\ b", r"a\ b"),
            (r"\.php$", r"\.php$"),
            (r"'\\.php\t'", "\\.php\t"),
            ("\"", "\""),
            ("", ""),
        ] {
            assert_eq!(value(word), wanted, "{word}");
        }
    }

    proptest! {
        #[test]
        fn files_of_any_encoding_come_back_byte_for_byte(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(bytes_of(&text_of(&bytes)), bytes);
        }

        /// Also of texts with characters that stand for bytes here.
        #[test]
        fn texts_come_back(text in "[a\u{e4}\u{10ff00}\u{10ff80}\u{10ffff}]{0,8}") {
            prop_assert_eq!(bytes_of(&text_of(text.as_bytes())), text.into_bytes());
        }

        #[test]
        fn any_value_has_a_word(text in "[ab \"'\\\\tn\t${};#]{0,12}") {
            prop_assert_eq!(value(&word_of(&text)).into_owned(), text);
        }
    }
}
