//! The head of a request, for the built-in server; and its target alone, for a dispatcher that routes by it.

use super::head::{Framing, minor_version, split, trim_end};
use super::{Body, HEAD_BYTES_MAX, HttpFault};

/// The head of a request. Borrows from the buffer it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// Bytes of the buffer that the head takes; the body and further requests come behind.
    pub bytes: usize,
    /// The method, case-sensitive.
    pub method: &'a [u8],
    /// The request target as sent: usually path and query.
    pub target: &'a [u8],
    /// The client can send another request on the connection.
    pub persists: bool,
    /// The body that follows the head: [`Body::Length`] or [`Body::Chunked`].
    pub body: Body,
    /// The header lines.
    pub headers: Headers<'a>,
}

/// Header lines of a parsed head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    lines: &'a [u8],
}

impl<'a> Headers<'a> {
    /// The value of the first header with this name (any case), without blanks around it.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.iter().find(|(this, _)| this.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// Names and values in the order on the wire.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.lines.split(|&byte| byte == b'\n').filter_map(|line| split(trim_end(line)))
    }
}

/// Parses the head at the front of `buffer`. `None`: it is not complete yet; ask again with more bytes (of at most
/// [`HEAD_BYTES_MAX`], behind which a head is refused).
pub fn request_head(buffer: &[u8]) -> Result<Option<RequestHead<'_>>, HttpFault> {
    // A robust server ignores empty lines before the request line, RFC 9112 section 2.2.
    let blank = buffer.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let mut lines = Lines { buffer, at: blank };
    let Some(first) = lines.next_line()? else {
        return Ok(None);
    };
    let (method, target, minor) = request_line(first).ok_or(HttpFault::RequestLine)?;
    let headers_from = lines.at;
    let mut framing = Framing::default();
    loop {
        let headers_to = lines.at;
        match lines.next_line()? {
            None => return Ok(None),
            Some([]) => {
                return Ok(Some(RequestHead {
                    bytes: lines.at,
                    method,
                    target,
                    persists: framing.persists(minor),
                    body: request_body(&framing)?,
                    headers: Headers { lines: &buffer[headers_from..headers_to] },
                }));
            }
            Some(line) => framing.line(line, false)?,
        }
    }
}

/// Longest method that [`TargetReader`] waits for, in bytes: the longest registered one, `UPDATEREDIRECTREF` (RFC
/// 4437), has 17.
pub const METHOD_BYTES_MAX: usize = 32;

/// Finds the target of the first request as soon as its line has come, in whatever pieces. Looks at each byte once, but
/// for the method.
#[derive(Clone, Copy, Debug)]
pub struct TargetReader {
    bytes_max: usize,
    line: usize,
    /// No line ends before this.
    searched: usize,
}

impl TargetReader {
    /// For a line that ends within the first `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> TargetReader {
        TargetReader { bytes_max, line: 0, searched: 0 }
    }

    /// The target, once its line is complete. `buffer`: all that has come so far, of which earlier calls saw the
    /// beginning.
    ///
    /// # Errors
    /// It is no request line ([`HttpFault::RequestLine`]; what cannot become one is known by its first byte that no
    /// method has), or a longer one than allowed ([`HttpFault::HeadTooLong`]).
    pub fn read<'a>(&mut self, buffer: &'a [u8]) -> Result<Option<&'a [u8]>, HttpFault> {
        let kept = &buffer[..buffer.len().min(self.bytes_max)];
        if self.searched == self.line {
            // As in `request_head`.
            self.line += kept[self.line..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            self.searched = self.line;
        }
        let line = &kept[self.line..];
        match line.iter().take(METHOD_BYTES_MAX + 1).position(|&byte| !is_token(byte)) {
            Some(1..) if line.iter().find(|&&byte| !is_token(byte)) == Some(&b' ') => {}
            None if line.len() <= METHOD_BYTES_MAX => {}
            _ => return Err(HttpFault::RequestLine),
        }
        match kept[self.searched..].iter().position(|&byte| byte == b'\n') {
            Some(end) => {
                let (_, target, _) =
                    request_line(trim_end(&kept[self.line..self.searched + end])).ok_or(HttpFault::RequestLine)?;
                Ok(Some(target))
            }
            None if buffer.len() > self.bytes_max => Err(HttpFault::HeadTooLong),
            None => {
                self.searched = kept.len();
                Ok(None)
            }
        }
    }
}

/// A character of methods (tchar of RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The path of a request target (RFC 9112 section 3.2), without its query. `None`: it has none, as `*` and the target
/// of CONNECT.
pub fn target_path(target: &[u8]) -> Option<&[u8]> {
    let path = match target.strip_prefix(b"/") {
        Some(_) => target,
        None => {
            let scheme = target.windows(3).position(|part| part == b"://")?;
            let rest = &target[scheme + 3..];
            let authority = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
            &rest[authority..]
        }
    };
    match path.split(|&byte| byte == b'?').next() {
        None | Some([]) => Some(b"/"),
        path => path,
    }
}

/// A request without framing headers has no body; one whose end cannot be known is refused, RFC 9112 section 6.3 items
/// 4 and 7.
fn request_body(framing: &Framing) -> Result<Body, HttpFault> {
    match framing.body() {
        Some(body) => Ok(body),
        None if framing.transfer_encoding => Err(HttpFault::TransferEncoding),
        None => Ok(Body::Length(0)),
    }
}

struct Lines<'a> {
    buffer: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    fn next_line(&mut self) -> Result<Option<&'a [u8]>, HttpFault> {
        let rest = &self.buffer[self.at..];
        let line = rest.iter().position(|&byte| byte == b'\n');
        if self.at + line.unwrap_or(rest.len()) > HEAD_BYTES_MAX {
            return Err(HttpFault::HeadTooLong);
        }
        let Some(end) = line else {
            return Ok(None);
        };
        self.at += end + 1;
        Ok(Some(trim_end(&rest[..end])))
    }
}

/// Method, target and minor version of `METHOD target HTTP/1.x`, RFC 9112 section 3.
fn request_line(line: &[u8]) -> Option<(&[u8], &[u8], u8)> {
    let mut words = line.split(|&byte| byte == b' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() || method.is_empty() || target.is_empty() {
        return None;
    }
    Some((method, target, minor_version(version)?))
}
