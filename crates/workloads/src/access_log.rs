//! One line of an access log: common or combined format, as Apache, nginx and their relatives write it, or HAProxy's
//! own (`option httplog`, `httpslog`), with syslog's words before it or without, or Squid's (`logformat squid`).
//!
//! ```text
//! client ident user [17/May/2015:10:05:03 +0000] "GET /path?query HTTP/1.1" 200 1234 "referer" "user agent" …
//! client:port [17/May/2015:10:05:03.655] front back/server 0/0/1/2/3 200 1234 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1"
//! 1431857103.655     23 client TCP_MISS/200 1234 GET https://site/path user HIER_DIRECT/192.0.2.1 text/html
//! ```
//!
//! Logs hold foreign bytes: nothing here assumes text, and what does not fit is a [`LineFault`], never a panic. Fields
//! are slices of the line; escapes (`\"`, `\x16`) are left as they are. `layout.rs` knows which word is the client. The
//! file depends on memchr, time and its neighbours `layout.rs`, `client.rs` and `fields.rs`, so that the fuzzer can
//! build it.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter, memrchr};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use super::client::{BYTE_ORDER_MARK, Client, Kind, of_word};
use super::fields::{is_blank, is_end, quoted, word};
use super::layout::{self, Found, Lack, Layout};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'line> {
    /// Address or name of the client, in the one form that all lines have for it.
    pub client: Cow<'line, [u8]>,
    pub found: Found<'line>,
    /// When the request came in, seconds since 1970 (UTC).
    pub time_s: i64,
    pub method: &'line str,
    /// Request target: path and query, absolute URI, or `*`. Not empty. May hold spaces and any other byte.
    pub target: &'line [u8],
    /// Status code, 100 to 599.
    pub status: u16,
    /// Bytes of the response body; `None` where the log has `-`.
    pub bytes: Option<u64>,
    /// User agent, if the line has one (combined format).
    pub user_agent: Option<&'line [u8]>,
}

impl Entry<'_> {
    /// The site that the request was for, in lower case without its port, where the line names one: by an absolute
    /// target, a tunnel's, or in the one word that stands before the client (`vhost_combined`).
    pub fn site(&self) -> Option<Cow<'_, [u8]>> {
        let absolute = [&b"http://"[..], b"https://"].iter().find_map(|scheme| self.target.strip_prefix(*scheme));
        let named = match &self.found {
            _ if self.method == "CONNECT" => self.target,
            Found::Words { before, .. } => absolute.unwrap_or(before.trim_ascii()),
            _ => absolute?,
        };
        let host = of_word(named.split(|byte| b"/?".contains(byte)).next()?)?;
        (host.kind == Kind::Name && host.text.contains(&b'.')).then_some(host.text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFault {
    Blank,
    /// JSON without what makes it a request.
    Json,
    TooLong,
    /// No `[time]` after the client.
    NoTime,
    /// A `-`, or nothing, where the client belongs.
    NoClient,
    /// What stands where the client belongs is neither an address nor the name of a host.
    NotAClient,
    /// What stands in the brackets is not `day/month/year:hour:minute:second zone`.
    BadTime,
    /// No request in quotation marks after the time.
    NoRequest,
    /// The quoted request is not `METHOD TARGET [VERSION]`, for example `-` after a time-out, or bytes of another
    /// protocol.
    NotHttp,
    /// No status of three digits, 100 to 599, after the request.
    BadStatus,
    /// What follows the status is neither a number of bytes nor `-`.
    BadSize,
    /// The number of bytes is larger than any object.
    HugeSize,
}

impl LineFault {
    fn from_lack(lack: Lack) -> LineFault {
        match lack {
            Lack::Unknown => LineFault::NoClient,
            Lack::OtherWords => LineFault::NotAClient,
        }
    }

    /// Its name in JSON, and what the line lacks, to stand after "lines".
    pub fn description(self) -> (&'static str, &'static str) {
        match self {
            LineFault::Blank => ("blank", "are blank"),
            LineFault::Json => (
                "json",
                "are JSON that names no time (time_iso8601, ts, StartUTC), request (or method and uri) or status \
                 by a name that is known",
            ),
            LineFault::TooLong => ("too_long", "are longer than 64 KB"),
            LineFault::NoTime => ("no_time", "have no time in square brackets after the client address"),
            LineFault::NoClient => ("no_client", "have no client, but - or nothing in its place"),
            LineFault::NotAClient => {
                ("not_a_client", "have neither an address nor the name of a host where the client belongs")
            }
            LineFault::BadTime => ("bad_time", "have a time that is not like 17/May/2015:10:05:03 +0000"),
            LineFault::NoRequest => ("no_request", "have no request in quotation marks after the time"),
            LineFault::NotHttp => ("not_http", "have a request that is not METHOD TARGET VERSION"),
            LineFault::BadStatus => ("bad_status", "have no status from 100 to 599 after the request"),
            LineFault::BadSize => ("bad_size", "have no number of bytes (or -) after the status"),
            LineFault::HugeSize => ("huge_size", "have more than 2^50 bytes after the status, which no object has"),
        }
    }
}

/// Remembers the last time stamp: most lines have that of the line before, and reading one costs as much as the rest of
/// the line.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    text: [u8; TIME_BYTES],
    time_s: i64,
}

/// `17/May/2015:10:05:03 +0000`.
const TIME_BYTES: usize = 26;

impl Clock {
    fn read(&mut self, text: &[u8]) -> Option<i64> {
        if *text != self.text {
            self.time_s = time(text)?;
            // Only a text of the right length can have been read.
            self.text.copy_from_slice(text);
        }
        Some(self.time_s)
    }
}

/// Parses one line, without or with its line ending.
#[cfg(test)]
pub fn parse(line: &[u8]) -> Result<Entry<'_>, LineFault> {
    parse_with(line, &mut Clock::default(), &Layout::default())
}

/// Parses one of many lines, without or with its line ending. `layout` says where their client stands.
pub fn parse_with<'line>(line: &'line [u8], clock: &mut Clock, layout: &Layout) -> Result<Entry<'line>, LineFault> {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii_end();
    if line.is_empty() {
        return Err(LineFault::Blank);
    }
    if line.starts_with(b"{") && line.ends_with(b"}") {
        return Err(LineFault::Json);
    }
    let bracket = time_bracket(line);
    // Another program's may begin with a decimal, too.
    if let Some(time_s) = squid_time(line).filter(|_| bracket.is_none()) {
        return of_squid(time_s, line, layout);
    }
    let bracket = bracket.ok_or(LineFault::NoTime)?;
    if line[..bracket].trim_ascii().is_empty() {
        return Err(LineFault::NoTime);
    }
    let rest = &line[bracket + 2..];
    let close = memchr(b']', rest).ok_or(LineFault::NoTime)?;
    if is_of_haproxy(&rest[..close]) {
        return of_haproxy(&line[..bracket], rest.split_at(close), clock);
    }
    let time_s = clock.read(&rest[..close]).ok_or(LineFault::BadTime)?;
    let (request, rest) = quoted(&rest[close + 1..], is_status).ok_or(LineFault::NoRequest)?;
    let (method, target) = split_request(request).ok_or(LineFault::NotHttp)?;
    let (status, rest) = word(rest);
    let status = status_code(status).ok_or(LineFault::BadStatus)?;
    let (bytes, rest) = word(rest);
    let bytes = size(bytes)?;
    let agent = quoted(rest, is_end).and_then(|(_referer, rest)| quoted(rest, is_end));
    let (user_agent, further) = agent.map_or((None, rest), |(agent, further)| (Some(agent), further));
    let (client, found) = layout::find(line, &line[..bracket], further, layout).map_err(LineFault::from_lack)?;
    Ok(Entry { client, found, time_s, method, target, status, bytes, user_agent })
}

/// Seconds and milliseconds without a zone.
fn is_of_haproxy(time: &[u8]) -> bool {
    time.len() == HAPROXY_TIME_BYTES && time[SECOND_BYTES] == b'.'
}

/// `17/May/2015:10:05:03`, and with `.655`.
const SECOND_BYTES: usize = 20;
const HAPROXY_TIME_BYTES: usize = 24;

/// Of what stands before the time, the time, and what stands behind it. Its time is that of its place, taken for UTC:
/// only differences count.
fn of_haproxy<'line>(
    before: &'line [u8],
    (time, rest): (&'line [u8], &'line [u8]),
    clock: &mut Clock,
) -> Result<Entry<'line>, LineFault> {
    let time = [&time[..SECOND_BYTES], b" +0000"].concat();
    let time_s = clock.read(&time).ok_or(LineFault::BadTime)?;
    let (_front, rest) = word(&rest[1..]);
    let (_server, rest) = word(rest);
    let (_timers, rest) = word(rest);
    let (status, rest) = word(rest);
    let (bytes, rest) = word(rest);
    // It escapes marks in what it captures of headers.
    let begins = memchr(b'"', rest).ok_or(LineFault::NoRequest)? + 1;
    let length = memchr(b'"', &rest[begins..]).ok_or(LineFault::NoRequest)?;
    let (method, target) = split_request(&rest[begins..begins + length]).ok_or(LineFault::NotHttp)?;
    let status = status_code(status).ok_or(LineFault::BadStatus)?;
    let bytes = size(bytes)?;
    let word = before.trim_ascii_end().rsplit(|byte| is_blank(*byte)).next().unwrap_or_default();
    let port = memrchr(b':', word).ok_or(LineFault::NotAClient)?;
    let client = of_word(&word[..port]).filter(Client::is_address).ok_or(LineFault::NotAClient)?.text;
    let found = Found::Words { before: b"", another: false };
    Ok(Entry { client, found, time_s, method, target, status, bytes, user_agent: None })
}

/// The seconds since 1970 at the beginning of a line of Squid's, which has milliseconds behind a dot.
fn squid_time(line: &[u8]) -> Option<i64> {
    let time = word(line).0;
    let seconds = time.len().checked_sub(4).filter(|dot| time[*dot] == b'.' && (1..=11).contains(dot))?;
    number(&time[seconds + 1..])?;
    i64::try_from(number(&time[..seconds])?).ok()
}

/// Of a line whose first word is that time. Its bytes are those of the whole answer, with the head. A tunnel (CONNECT)
/// has a host for a target.
fn of_squid<'line>(time_s: i64, line: &'line [u8], layout: &Layout) -> Result<Entry<'line>, LineFault> {
    let (_time, rest) = word(line);
    let (_elapsed, rest) = word(rest);
    let before = line.len() - rest.trim_ascii_start().len();
    let (_client, rest) = word(rest);
    let client_ends = line.len() - rest.len();
    let (result, rest) = word(rest);
    let (bytes, rest) = word(rest);
    let (method, rest) = word(rest);
    let (target, _) = word(rest);
    let status = memrchr(b'/', result).map_or(&b""[..], |slash| &result[slash + 1..]);
    let status = status_code(status).ok_or(LineFault::BadStatus)?;
    let bytes = size(bytes)?;
    // Both are one word each here.
    let method = method_of(method).ok_or(LineFault::NotHttp)?;
    if target.is_empty() || [&b"-"[..], b"error:", b"HTTP/"].iter().any(|none| target.starts_with(none)) {
        return Err(LineFault::NotHttp);
    }
    let (client, found) = layout::find(line, &line[before..client_ends], b"", layout).map_err(LineFault::from_lack)?;
    Ok(Entry { client, found, time_s, method, target, status, bytes, user_agent: None })
}

/// Where the blank before the time's bracket is: the first that holds as many bytes as a time and is followed by a
/// quotation mark, for what stands before the client may hold brackets too; else the first.
fn time_bracket(line: &[u8]) -> Option<usize> {
    let mut brackets = memchr_iter(b'[', line).filter(|at| *at > 0 && is_blank(line[at - 1]));
    let is_time = |at: &usize| {
        let rest = &line[at + 1..];
        rest.get(TIME_BYTES) == Some(&b']') && rest[TIME_BYTES + 1..].trim_ascii_start().starts_with(b"\"")
    };
    let first = brackets.next()?;
    if is_time(&first) {
        return Some(first - 1);
    }
    Some(brackets.find(is_time).unwrap_or(first) - 1)
}

/// The end of the line or a space and what may be a status.
fn is_status(rest: &[u8]) -> bool {
    is_end(rest) && rest.get(1).is_none_or(|byte| byte.is_ascii_digit() || *byte == b'-')
}

/// Method and target of `METHOD TARGET VERSION` or (HTTP/0.9) `METHOD TARGET`. Broken clients send spaces in the
/// target.
fn split_request(request: &[u8]) -> Option<(&str, &[u8])> {
    let (method, rest) = word(request);
    let method = method_of(method)?;
    let rest = rest.trim_ascii();
    let version = memrchr(b' ', rest)
        .map_or(rest.len(), |space| if rest[space + 1..].starts_with(b"HTTP/") { space } else { rest.len() });
    let target = rest[..version].trim_ascii_end();
    (!target.is_empty() && !target.starts_with(b"HTTP/")).then_some((method, target))
}

/// The longest registered method has 17 characters (UPDATEREDIRECTREF).
const MAX_METHOD_BYTES: usize = 24;

/// RFC 9110 section 5.6.2: what a method may consist of. (The rarer marks that a token may hold are in no known
/// method.)
fn method_of(word: &[u8]) -> Option<&str> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_method = (1..=MAX_METHOD_BYTES).contains(&word.len()) && word.iter().all(is_token);
    std::str::from_utf8(word).ok().filter(|_| is_method)
}

fn status_code(bytes: &[u8]) -> Option<u16> {
    let [hundreds @ b'1'..=b'5', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] = bytes else {
        return None;
    };
    Some(u16::from(hundreds - b'0') * 100 + u16::from(tens - b'0') * 10 + u16::from(ones - b'0'))
}

/// 2^50 bytes: no object is larger.
const MAX_BYTES: u64 = 1 << 50;

fn size(bytes: &[u8]) -> Result<Option<u64>, LineFault> {
    if bytes == b"-" {
        return Ok(None);
    }
    match number(bytes) {
        Some(number) if number <= MAX_BYTES => Ok(Some(number)),
        // Also of more digits than fit 64 bits.
        _ if !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit) => Err(LineFault::HugeSize),
        _ => Err(LineFault::BadSize),
    }
}

/// A decimal number of at least one digit that fits 64 bits.
fn number(bytes: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(bytes).ok().filter(|text| !text.starts_with('+'))?;
    digits.parse().ok()
}

/// As Apache and nginx write a time.
const TIME: &[BorrowedFormatItem<'_>] = format_description!(
    "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
);

/// Seconds since 1970 of `17/May/2015:10:05:03 +0000`.
fn time(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == TIME_BYTES)?;
    // A leap second is written as 60.
    let (text, leap_s) = match text.get(17..20) {
        Some(":60") => (Cow::Owned(format!("{}:59{}", &text[..17], &text[20..])), 1),
        _ => (Cow::Borrowed(text), 0),
    };
    Some(OffsetDateTime::parse(&text, TIME).ok()?.unix_timestamp() + leap_s)
}

#[cfg(test)]
mod tests;
