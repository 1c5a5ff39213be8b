//! Header lines that decide the framing, for requests and responses alike.

use super::{Body, HttpFault, LINE_KEPT};

/// What the header lines so far say about framing and persistence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Framing {
    pub content_length: Option<u64>,
    pub transfer_encoding: bool,
    /// `chunked` is the last transfer coding.
    pub chunked: bool,
    pub close: bool,
    pub keep_alive: bool,
    /// The last header line mattered, so that folding it would change its meaning.
    last_mattered: bool,
}

impl Framing {
    /// Reads one header line without its line end. `cut`: only the first [`LINE_KEPT`] bytes of it are there.
    pub fn line(&mut self, line: &[u8], cut: bool) -> Result<(), HttpFault> {
        if matches!(line.first(), Some(b' ' | b'\t')) {
            // Obsolete line folding, RFC 9112 section 5.2: harmless where the header does not matter.
            return if self.last_mattered { Err(HttpFault::HeaderLine) } else { Ok(()) };
        }
        let (name, value) = split(line).ok_or(HttpFault::HeaderLine)?;
        self.last_mattered = self.header(name, value)?;
        if cut && self.last_mattered {
            return Err(HttpFault::HeadTooLong);
        }
        Ok(())
    }

    /// Reads one header; answers whether it matters for framing.
    fn header(&mut self, name: &[u8], value: &[u8]) -> Result<bool, HttpFault> {
        // Most headers are told apart by the length of their name alone.
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for token in tokens(value) {
                    self.close |= token.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                // A list of equal numbers counts as one number, RFC 9112 section 6.3 item 5.
                for token in tokens(value) {
                    let length = decimal(token).ok_or(HttpFault::ContentLength)?;
                    if self.content_length.is_some_and(|before| before != length) {
                        return Err(HttpFault::ContentLength);
                    }
                    self.content_length = Some(length);
                }
                if self.content_length.is_none() {
                    return Err(HttpFault::ContentLength);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.transfer_encoding = true;
                for token in tokens(value) {
                    self.chunked = token.eq_ignore_ascii_case(b"chunked");
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The body as far as headers decide it; `None`: they do not.
    pub fn body(&self) -> Option<Body> {
        match (self.transfer_encoding, self.content_length) {
            // Transfer-Encoding overrides Content-Length, RFC 9112 section 6.3 item 3.
            (true, _) if self.chunked => Some(Body::chunked()),
            (true, _) => None,
            (false, Some(length)) => Some(Body::Length(length)),
            (false, None) => None,
        }
    }

    /// Whether the connection may carry another message afterwards, RFC 9112 section 9.3.
    pub fn persists(&self, minor: u8) -> bool {
        // Transfer-Encoding in HTTP/1.0 is faulty framing: the connection ends, RFC 9112 section 6.1.
        !self.close && (minor >= 1 || (self.keep_alive && !self.transfer_encoding))
    }
}

/// Collects a line that arrives in pieces; keeps its first [`LINE_KEPT`] bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    kept: [u8; LINE_KEPT],
    bytes: u32,
}

impl Line {
    pub const EMPTY: Line = Line { kept: [0; LINE_KEPT], bytes: 0 };

    /// Takes the front of `input` up to the next line feed. Answers how much that was, and the line without its end and
    /// whether it was cut, or `None` when it is not complete yet.
    pub fn take<'a>(&'a mut self, input: &'a [u8]) -> (usize, Option<(&'a [u8], bool)>) {
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
            self.keep(input);
            return (input.len(), None);
        };
        if self.bytes == 0 {
            // The usual case: the whole line is there, and nothing is copied.
            let line = trim_end(&input[..end.min(LINE_KEPT)]);
            return (end + 1, Some((line, end > LINE_KEPT)));
        }
        self.keep(&input[..end]);
        let bytes = std::mem::take(&mut self.bytes) as usize;
        let line = trim_end(&self.kept[..bytes.min(LINE_KEPT)]);
        (end + 1, Some((line, bytes > LINE_KEPT)))
    }

    fn keep(&mut self, piece: &[u8]) {
        let from = (self.bytes as usize).min(LINE_KEPT);
        let copied = piece.len().min(LINE_KEPT - from);
        self.kept[from..from + copied].copy_from_slice(&piece[..copied]);
        self.bytes = self.bytes.saturating_add(piece.len() as u32);
    }
}

/// Name and value of a header line. A name is a token and ends at the colon, RFC 9112 section 5.1.
pub(super) fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let name = &line[..colon];
    if name.is_empty() || name.iter().any(|byte| matches!(byte, b' ' | b'\t')) {
        return None;
    }
    Some((name, line[colon + 1..].trim_ascii()))
}

/// A line without the carriage return before its line feed (RFC 9112 section 2.2 allows a bare line feed).
pub(super) fn trim_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

fn decimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, &byte| {
        let digit = (byte as char).to_digit(10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

pub(super) fn minor_version(version: &[u8]) -> Option<u8> {
    match version {
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9'] => Some(minor - b'0'),
        _ => None,
    }
}
