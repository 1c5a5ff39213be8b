//! What to answer: a pure function of request head and docroot.

use std::io::Write;
use std::ops::Range;

use tlsdyno_wire::http::{Headers, RequestHead};

use super::date::HttpDate;
use super::docroot::{Docroot, Object};

pub const REFUSAL: &[u8] = b"tlsdyno: no such answer\n";

/// Status codes that the server uses (RFC 9110 section 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200
    Ok,
    /// 206
    PartialContent,
    /// 304
    NotModified,
    /// 400
    BadRequest,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 416
    RangeNotSatisfiable,
    /// 431
    HeadTooLarge,
    /// 501
    NotImplemented,
    /// 502
    BadGateway,
}

impl Status {
    const fn line(self) -> &'static [u8] {
        match self {
            Status::Ok => b"HTTP/1.1 200 OK\r\n",
            Status::PartialContent => b"HTTP/1.1 206 Partial Content\r\n",
            Status::NotModified => b"HTTP/1.1 304 Not Modified\r\n",
            Status::BadRequest => b"HTTP/1.1 400 Bad Request\r\n",
            Status::NotFound => b"HTTP/1.1 404 Not Found\r\n",
            Status::MethodNotAllowed => b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD, POST\r\n",
            Status::RangeNotSatisfiable => b"HTTP/1.1 416 Range Not Satisfiable\r\n",
            Status::HeadTooLarge => b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
            Status::NotImplemented => b"HTTP/1.1 501 Not Implemented\r\n",
            Status::BadGateway => b"HTTP/1.1 502 Bad Gateway\r\n",
        }
    }
}

/// An answer, decided but not yet written.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Status code of the answer.
    pub status: Status,
    /// The object it is about; `None`: a refusal without one.
    pub object: Option<&'a Object>,
    /// Which of the object's bytes (of [`REFUSAL`]'s, without object) the answer speaks of.
    pub first: u64,
    /// One past the last of them.
    pub end: u64,
    /// Whether the answer ends after its head.
    pub head_only: bool,
    /// Whether the connection stays open after the answer.
    pub persists: bool,
}

impl<'a> Answer<'a> {
    /// Decides the answer to a request.
    pub fn to(request: &RequestHead<'_>, docroot: &'a Docroot, scratch: &mut Vec<u8>) -> Answer<'a> {
        let head_only = request.method == b"HEAD";
        // A POST to a static object is answered with the object, as the logs that are replayed had it.
        if !head_only && request.method != b"GET" && request.method != b"POST" {
            return Answer::refusal(Status::MethodNotAllowed, request.persists);
        }
        let Some(object) = docroot.find(request.target, scratch) else {
            return Answer { head_only, ..Answer::refusal(Status::NotFound, request.persists) };
        };
        let (status, range) = select(&request.headers, object);
        let head_only = head_only || status == Status::NotModified;
        match status {
            Status::RangeNotSatisfiable => {
                Answer { object: Some(object), head_only, ..Answer::refusal(status, request.persists) }
            }
            _ => Answer {
                status,
                object: Some(object),
                first: range.start,
                end: range.end,
                head_only,
                persists: request.persists,
            },
        }
    }

    /// An answer without object.
    pub fn refusal(status: Status, persists: bool) -> Answer<'a> {
        Answer { status, object: None, first: 0, end: REFUSAL.len() as u64, head_only: false, persists }
    }

    /// Whether the body, if any is sent, is [`REFUSAL`] and not part of the object.
    pub fn is_refusal(&self) -> bool {
        self.object.is_none() || self.status == Status::RangeNotSatisfiable
    }

    /// Appends the head of the answer.
    pub fn write_head(&self, now: &HttpDate, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.status.line());
        out.extend_from_slice(b"Server: tlsdyno\r\nDate: ");
        out.extend_from_slice(now);
        out.extend_from_slice(b"\r\n");
        match self.object {
            Some(object) if !self.is_refusal() => out.extend_from_slice(&object.header_lines),
            _ => out.extend_from_slice(b"Content-Type: text/plain\r\n"),
        }
        // Writing into a vector cannot fail.
        match (self.status, self.object) {
            (Status::PartialContent, Some(object)) => {
                let _ = write!(out, "Content-Range: bytes {}-{}/{}\r\n", self.first, self.end - 1, object.bytes);
            }
            (Status::RangeNotSatisfiable, Some(object)) => {
                let _ = write!(out, "Content-Range: bytes */{}\r\n", object.bytes);
            }
            _ => {}
        }
        // On 304 the length is that of the object which is not sent (RFC 9110 section 8.6).
        out.extend_from_slice(b"Content-Length: ");
        write_decimal(self.end - self.first, out);
        out.extend_from_slice(if self.persists {
            b"\r\nConnection: keep-alive\r\n\r\n".as_slice()
        } else {
            b"\r\nConnection: close\r\n\r\n"
        });
    }
}

/// Conditions and ranges, in the order of RFC 9110 section 13.2.2.
fn select(headers: &Headers<'_>, object: &Object) -> (Status, Range<u64>) {
    let whole = 0..object.bytes;
    let (mut none_match, mut modified_since, mut range, mut if_range) = (None, None, None, None);
    for (name, value) in headers.iter() {
        // Told apart by length first: most requests carry none of them.
        match name.len() {
            13 if name.eq_ignore_ascii_case(b"If-None-Match") => none_match = Some(value),
            17 if name.eq_ignore_ascii_case(b"If-Modified-Since") => modified_since = Some(value),
            5 if name.eq_ignore_ascii_case(b"Range") => range = Some(value),
            8 if name.eq_ignore_ascii_case(b"If-Range") => if_range = Some(value),
            _ => {}
        }
    }
    let not_modified = match (none_match, modified_since) {
        (Some(tags), _) => matches_tag(tags, &object.etag),
        // Exactly the date we gave, like nginx's `if_modified_since exact`.
        (None, Some(date)) => date == object.last_modified,
        (None, None) => false,
    };
    if not_modified {
        return (Status::NotModified, whole);
    }
    let still_valid = if_range.is_none_or(|value| value == &*object.etag || value == object.last_modified);
    match range.filter(|_| still_valid).and_then(|value| single_range(value, object.bytes)) {
        None => (Status::Ok, whole),
        Some(range) if range.is_empty() => (Status::RangeNotSatisfiable, whole),
        Some(range) => (Status::PartialContent, range),
    }
}

/// Weak comparison with a list of tags (RFC 9110 section 13.1.2).
fn matches_tag(list: &[u8], etag: &[u8]) -> bool {
    list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).any(|tag| {
        let tag = tag.strip_prefix(b"W/").unwrap_or(tag);
        tag == b"*" || tag == etag
    })
}

/// `bytes=a-b`, `bytes=a-`, `bytes=-n` (RFC 9110 section 14.1.2). `None`: ignore the header (another unit, several
/// ranges, nonsense); empty: well-formed, but outside the object.
fn single_range(value: &[u8], bytes: u64) -> Option<Range<u64>> {
    let range = value.strip_prefix(b"bytes=")?.trim_ascii();
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&range[..dash], &range[dash + 1..]);
    if first.is_empty() {
        let suffix = parse_decimal(last)?;
        return Some(bytes.saturating_sub(suffix)..bytes);
    }
    let first = parse_decimal(first)?;
    let last = if last.is_empty() { u64::MAX } else { parse_decimal(last)? };
    if last < first {
        return None;
    }
    Some(first.min(bytes)..last.saturating_add(1).min(bytes))
}

fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0')))
}

fn write_decimal(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_follow_the_rfc() {
        for (value, expected) in [
            ("bytes=0-0", Some(0..1)),
            ("bytes=0-", Some(0..10)),
            ("bytes=2-5", Some(2..6)),
            ("bytes=2-99", Some(2..10)),
            ("bytes=-3", Some(7..10)),
            ("bytes=-99", Some(0..10)),
            ("bytes=-0", Some(10..10)),
            ("bytes=10-", Some(10..10)),
            ("bytes=99-100", Some(10..10)),
            ("bytes=5-2", None),
            ("bytes=0-1,3-4", None),
            ("bytes=a-b", None),
            ("bytes=-", None),
            ("lines=0-1", None),
            ("bytes=99999999999999999999-", None),
        ] {
            assert_eq!(single_range(value.as_bytes(), 10), expected, "{value}");
        }
    }

    #[test]
    fn tags_are_compared_weakly() {
        assert!(matches_tag(b"\"a\", W/\"b\"", b"\"b\""));
        assert!(matches_tag(b"*", b"\"b\""));
        assert!(!matches_tag(b"\"a\"", b"\"b\""));
    }

    proptest! {
        #[test]
        fn decimals_round_trip(value: u64) {
            let mut out = Vec::new();
            write_decimal(value, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }

        #[test]
        fn ranges_stay_inside(value in "bytes=[0-9]{0,20}-[0-9]{0,20}", bytes in 0u64..1000) {
            if let Some(range) = single_range(value.as_bytes(), bytes) {
                prop_assert!(range.start <= range.end && range.end <= bytes);
            }
        }
    }
}
