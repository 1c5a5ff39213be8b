//! The fields of a log's line: words, and texts in quotation marks. The file depends on memchr alone, so that the
//! fuzzer can build it.

use memchr::{memchr, memchr2};

#[inline]
pub fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The next word and what follows it.
#[inline]
pub fn word(bytes: &[u8]) -> (&[u8], &[u8]) {
    let bytes = bytes.trim_ascii_start();
    let end = memchr2(b' ', b'\t', bytes).unwrap_or(bytes.len());
    bytes.split_at(end)
}

/// The next word or list of words with commas at their ends (`203.0.113.1, 10.0.0.7`), and what follows it.
#[inline]
pub fn listed(bytes: &[u8]) -> (&[u8], &[u8]) {
    let bytes = bytes.trim_ascii_start();
    let (first, mut rest) = word(bytes);
    let mut end = first.len();
    while bytes[..end].ends_with(b",") && !rest.is_empty() {
        rest = word(rest).1;
        end = bytes.len() - rest.len();
    }
    bytes.split_at(end)
}

/// The next field in quotation marks and what follows it. A mark inside is escaped by a backslash; since not every
/// writer escapes, a mark closes the field only if what follows it satisfies `follows`.
#[inline]
pub fn quoted(bytes: &[u8], follows: fn(&[u8]) -> bool) -> Option<(&[u8], &[u8])> {
    let inside = bytes.trim_ascii_start().strip_prefix(b"\"")?;
    let mut from = 0;
    while let Some(at) = memchr2(b'"', b'\\', &inside[from..]) {
        let at = from + at;
        if inside[at] == b'"' && follows(&inside[at + 1..]) {
            return Some((&inside[..at], &inside[at + 1..]));
        }
        // A backslash takes the next byte with it.
        from = (at + if inside[at] == b'\\' { 2 } else { 1 }).min(inside.len());
    }
    None
}

/// Whether the word ends here.
#[inline]
pub fn is_end(rest: &[u8]) -> bool {
    rest.first().is_none_or(|byte| is_blank(*byte))
}

/// The fields of a line from the left: words (lists with commas are one), texts in quotation marks without these, and
/// what stands in square brackets as one field with these.
pub fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = line;
    std::iter::from_fn(move || {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return None;
        }
        let (field, after) = quoted(rest, is_end).unwrap_or_else(|| bracketed(rest).unwrap_or_else(|| listed(rest)));
        rest = after;
        Some(field)
    })
}

/// A field in square brackets: up to the word in which they close.
fn bracketed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    if bytes.first() != Some(&b'[') {
        return None;
    }
    let close = memchr(b']', bytes)?;
    let end = bytes[close..].iter().position(|byte| is_blank(*byte)).map_or(bytes.len(), |blank| close + blank);
    Some(bytes.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_words_quotations_and_brackets() {
        let line = b"web-1  | 203.0.113.1, 10.0.0.7\t- [17/May/2015:10:05:03 +0000] \
            \"GET /a b \\\"c\\\" HTTP/1.1\" 200 \"\" \"x\" [::1]:80";
        let all: Vec<String> = fields(line).map(|field| String::from_utf8_lossy(field).into_owned()).collect();
        let expected = [
            "web-1",
            "|",
            "203.0.113.1, 10.0.0.7",
            "-",
            "[17/May/2015:10:05:03 +0000]",
            "GET /a b \\\"c\\\" HTTP/1.1",
            "200",
            "",
            "x",
            "[::1]:80",
        ];
        assert_eq!(all, expected);
    }
}
