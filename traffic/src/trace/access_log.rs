//! One line of an access log: common or combined format, as Apache, nginx and their relatives write it.
//!
//! ```text
//! client ident user [17/May/2015:10:05:03 +0000] "GET /path?query HTTP/1.1" 200 1234 "referer" "user agent" …
//! ```
//!
//! Logs hold foreign bytes: nothing here assumes text, and what does not fit is a [`Fault`], never a panic. Fields are
//! slices of the line; escapes (`\"`, `\x16`) are left as they are. `layout.rs` knows which
//! word is the client. The file depends on memchr and its neighbours `layout.rs`, `client.rs` and `fields.rs`, so that
//! the fuzzer can build it.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter, memrchr};
use tlsdyno_tls::named;

use super::client::BYTE_ORDER_MARK;
use super::fields::{is_blank, is_end, quoted, word};
use super::layout::{self, Found, Lack, Layout};

/// What one line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'line> {
    /// Address or name of the client, in the one form that all lines have for it.
    pub client: Cow<'line, [u8]>,
    /// Where in the line the client was found.
    pub found: Found<'line>,
    /// When the request came in, seconds since 1970 (UTC).
    pub time_s: i64,
    /// Request method.
    pub method: &'line [u8],
    /// Request target: path and query, absolute URI, or `*`. Not empty. May hold spaces and any other byte.
    pub target: &'line [u8],
    /// Status code, 100 to 599.
    pub status: u16,
    /// Bytes of the response body; `None` where the log has `-`.
    pub bytes: Option<u64>,
    /// User agent, if the line has one (combined format).
    pub user_agent: Option<&'line [u8]>,
}

named! {
    /// Why a line is not usable.
    pub enum Fault: "fault of a line" {
        /// Nothing but white space.
        Blank = "blank",
        /// Longer than the limit.
        TooLong = "too_long",
        /// No `[time]` after the client.
        NoTime = "no_time",
        /// A `-`, or nothing, where the client belongs.
        NoClient = "no_client",
        /// What stands where the client belongs is neither an address nor the name of a host.
        NotAClient = "not_a_client",
        /// What stands in the brackets is not `day/month/year:hour:minute:second zone`.
        BadTime = "bad_time",
        /// No request in quotation marks after the time.
        NoRequest = "no_request",
        /// The quoted request is not `METHOD TARGET [VERSION]`, for example `-` after a time-out, or bytes of another
        /// protocol.
        NotHttp = "not_http",
        /// No status of three digits, 100 to 599, after the request.
        BadStatus = "bad_status",
        /// What follows the status is neither a number of bytes nor `-`.
        BadSize = "bad_size",
        /// The number of bytes is larger than any object.
        HugeSize = "huge_size",
    }
}

impl Fault {
    /// What the line lacks, to stand after "lines".
    pub fn text(self) -> &'static str {
        match self {
            Fault::Blank => "are blank",
            Fault::TooLong => "are longer than 64 KB",
            Fault::NoTime => "have no time in square brackets after the client address",
            Fault::NoClient => "have no client, but - or nothing in its place",
            Fault::NotAClient => "have neither an address nor the name of a host where the client belongs",
            Fault::BadTime => "have a time that is not like 17/May/2015:10:05:03 +0000",
            Fault::NoRequest => "have no request in quotation marks after the time",
            Fault::NotHttp => "have a request that is not METHOD TARGET VERSION",
            Fault::BadStatus => "have no status from 100 to 599 after the request",
            Fault::BadSize => "have no number of bytes (or -) after the status",
            Fault::HugeSize => "have more than 2^50 bytes after the status, which no object has",
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
///
/// # Errors
/// The first [`Fault`] from the left.
#[cfg(test)]
pub fn parse(line: &[u8]) -> Result<Entry<'_>, Fault> {
    parse_with(line, &mut Clock::default(), &Layout::default())
}

/// Parses one of many lines, without or with its line ending. `layout` says where their client stands.
///
/// # Errors
/// The first [`Fault`] from the left, but of the client last.
pub fn parse_with<'line>(line: &'line [u8], clock: &mut Clock, layout: &Layout) -> Result<Entry<'line>, Fault> {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii_end();
    if line.is_empty() {
        return Err(Fault::Blank);
    }
    let bracket = time_bracket(line).ok_or(Fault::NoTime)?;
    if line[..bracket].trim_ascii().is_empty() {
        return Err(Fault::NoTime);
    }
    let rest = &line[bracket + 2..];
    let close = memchr(b']', rest).ok_or(Fault::NoTime)?;
    let time_s = clock.read(&rest[..close]).ok_or(Fault::BadTime)?;
    let (request, rest) = quoted(&rest[close + 1..], is_status).ok_or(Fault::NoRequest)?;
    let (method, target) = split_request(request).ok_or(Fault::NotHttp)?;
    let (status, rest) = word(rest);
    let status = status_code(status).ok_or(Fault::BadStatus)?;
    let (bytes, rest) = word(rest);
    let bytes = size(bytes)?;
    let agent = quoted(rest, is_end).and_then(|(_referer, rest)| quoted(rest, is_end));
    let (user_agent, further) = agent.map_or((None, rest), |(agent, further)| (Some(agent), further));
    let (client, found) = layout::find(line, &line[..bracket], further, layout).map_err(|lack| match lack {
        Lack::Unknown => Fault::NoClient,
        Lack::OtherWords => Fault::NotAClient,
    })?;
    Ok(Entry { client, found, time_s, method, target, status, bytes, user_agent })
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
fn split_request(request: &[u8]) -> Option<(&[u8], &[u8])> {
    let (method, rest) = word(request);
    if method.is_empty() || method.len() > MAX_METHOD_BYTES || !method.iter().all(|byte| is_token(*byte)) {
        return None;
    }
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
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn status_code(bytes: &[u8]) -> Option<u16> {
    let [hundreds @ b'1'..=b'5', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] = bytes else {
        return None;
    };
    Some(u16::from(hundreds - b'0') * 100 + u16::from(tens - b'0') * 10 + u16::from(ones - b'0'))
}

/// 2^50 bytes: no object is larger.
const MAX_BYTES: u64 = 1 << 50;

fn size(bytes: &[u8]) -> Result<Option<u64>, Fault> {
    if bytes == b"-" {
        return Ok(None);
    }
    match number(bytes) {
        Some(number) if number <= MAX_BYTES => Ok(Some(number)),
        // Also of more digits than fit 64 bits.
        _ if !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit) => Err(Fault::HugeSize),
        _ => Err(Fault::BadSize),
    }
}

/// A decimal number of at least one digit that fits 64 bits.
fn number(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0_u64, |number, byte| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// Seconds since 1970 of `17/May/2015:10:05:03 +0000`.
fn time(bytes: &[u8]) -> Option<i64> {
    let bytes: &[u8; 26] = bytes.try_into().ok()?;
    let separators = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':'), (20, b' ')];
    if separators.iter().any(|(at, byte)| bytes[*at] != *byte) {
        return None;
    }
    let field = |from: usize, to: usize, most: i64| {
        number(&bytes[from..to]).map(|number| number as i64).filter(|number| *number <= most)
    };
    let month = MONTHS.iter().position(|name| bytes[3..6] == **name)? as i64 + 1;
    let (day, year) = (field(0, 2, 31).filter(|day| *day > 0)?, field(7, 11, 9999)?);
    // A leap second is written as 60.
    let (hour, minute, second) = (field(12, 14, 23)?, field(15, 17, 59)?, field(18, 20, 60)?);
    let zone = field(22, 24, 23)? * 3600 + field(24, 26, 59)? * 60;
    let east = match bytes[21] {
        b'+' => zone,
        b'-' => -zone,
        _ => return None,
    };
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - east)
}

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Days from 1 January 1970 in the Gregorian calendar. Years are counted from March, so that the leap day is their
/// last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let months_from_march = (month + 9) % 12;
    let day_of_year = (153 * months_from_march + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 days lie between 1 March of year 0 and 1 January 1970.
    365 * year + leap_days + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMBINED: &[u8] = b"83.149.9.216 - - [17/May/2015:10:05:03 +0000] \"GET /a/b.png?x=1 HTTP/1.1\" 200 203023 \
        \"http://semicomplete.com/\" \"Mozilla/5.0 (Macintosh)\"";

    fn parsed(line: &str) -> Result<Entry<'_>, Fault> {
        parse(line.as_bytes())
    }

    fn with_request(request: &str) -> String {
        format!("1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"{request}\" 200 5")
    }

    #[test]
    fn a_combined_line() {
        assert_eq!(
            parse(COMBINED),
            Ok(Entry {
                client: Cow::Borrowed(b"83.149.9.216"),
                found: Found::Words { before: b"", another: false },
                time_s: 1_431_857_103,
                method: b"GET",
                target: b"/a/b.png?x=1",
                status: 200,
                bytes: Some(203_023),
                user_agent: Some(b"Mozilla/5.0 (Macintosh)"),
            })
        );
    }

    #[test]
    fn a_common_line_has_no_user_agent_and_may_lack_a_size() {
        let entry = parsed("host.example - frank [10/Oct/2000:13:55:36 -0700] \"HEAD /x HTTP/1.0\" 304 -\r\n").unwrap();
        assert_eq!((&*entry.client, entry.time_s), (&b"host.example"[..], 971_211_336));
        assert_eq!((entry.status, entry.bytes, entry.user_agent), (304, None, None));
    }

    #[test]
    fn further_fields_are_ignored() {
        let line = format!("{} 0.003 \"more\"", String::from_utf8_lossy(COMBINED));
        assert_eq!(parsed(&line).unwrap(), parse(COMBINED).unwrap());
    }

    #[test]
    fn a_user_name_with_spaces_and_a_virtual_host_are_told_apart() {
        let user = parsed("1.2.3.4 - John Q Public [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5").unwrap();
        assert_eq!(*user.client, *b"1.2.3.4");
        let v6 = parsed("2001:db8::1 - a b [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5").unwrap();
        assert_eq!(*v6.client, *b"2001:db8::1");
        let vhost =
            parsed("www.example.org:443 192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5").unwrap();
        assert_eq!(*vhost.client, *b"192.0.2.1");
    }

    #[test]
    fn targets_of_broken_and_odd_clients() {
        let cases: [(&str, &str); 8] = [
            ("GET /a b HTTP/1.1", "/a b"),
            ("GET /only", "/only"),
            ("GET http://x/y HTTP/1.1", "http://x/y"),
            ("OPTIONS * HTTP/1.0", "*"),
            (r#"GET /say\"hi\" HTTP/1.1"#, r#"/say\"hi\""#),
            (r"GET /caf\xc3\xa9 HTTP/1.1", r"/caf\xc3\xa9"),
            (r#"GET /"quoted" HTTP/1.1"#, "/\"quoted\""),
            (r"GET /back\\ HTTP/2.0", r"/back\\"),
        ];
        for (request, target) in cases {
            let line = with_request(request);
            assert_eq!(parsed(&line).map(|entry| entry.target), Ok(target.as_bytes()), "{request}");
        }
        let raw = b"1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"GET /\xff\xfe HTTP/1.1\" 200 5";
        assert_eq!(parse(raw).unwrap().target, b"/\xff\xfe");
    }

    #[test]
    fn each_fault_is_named() {
        let good = with_request("GET / HTTP/1.1");
        assert!(parsed(&good).is_ok());
        let cases = [
            ("", Fault::Blank),
            (" \t\r\n", Fault::Blank),
            ("nonsense", Fault::NoTime),
            ("1.2.3.4 - - [17/May/2015:10:05:03 +0000", Fault::NoTime),
            (" [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5", Fault::NoTime),
            (&good.replace("May", "Mai"), Fault::BadTime),
            (&good.replace("17/", "32/"), Fault::BadTime),
            (&good.replace("+0000", "0000"), Fault::BadTime),
            (&good.replace('"', "'"), Fault::NoRequest),
            (&good.replace("HTTP/1.1\"", "HTTP/1.1"), Fault::NoRequest),
            (&with_request("-"), Fault::NotHttp),
            (&with_request(""), Fault::NotHttp),
            (&with_request(r"\x16\x03\x01\x00"), Fault::NotHttp),
            (&with_request("GET HTTP/1.1"), Fault::NotHttp),
            (&with_request("GET"), Fault::NotHttp),
            (&good.replace("200", "000"), Fault::BadStatus),
            (&good.replace("200", "2000"), Fault::BadStatus),
            (&good.replace("200 5", ""), Fault::BadStatus),
            (&good.replace("200 5", "200"), Fault::BadSize),
            (&good.replace("200 5", "200 5k"), Fault::BadSize),
            (&good.replace("200 5", "200 99999999999999999999"), Fault::HugeSize),
            (&good.replace("200 5", "200 1000000000000000000"), Fault::HugeSize),
            (&good.replace("200 5", "200 -5"), Fault::BadSize),
        ];
        for (line, fault) in cases {
            assert_eq!(parsed(line), Err(fault), "{line}");
        }
    }

    #[test]
    fn times_agree_with_a_calendar() {
        let format = time::macros::format_description!(
            "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
        );
        // Every 1,000,003 seconds passes all months, leap days and hours.
        for step in 0..5_000 {
            let seconds = -1_000_000_000 + step * 1_000_003;
            let date = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap();
            assert_eq!(super::time(date.format(&format).unwrap().as_bytes()), Some(seconds), "{date}");
        }
        assert_eq!(super::time(b"01/Jan/1970:01:30:00 +0130"), Some(0));
        assert_eq!(super::time(b"31/Dec/2016:23:59:60 +0000"), Some(1_483_228_800));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_entry_or_a_fault(line in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&line);
        }

        /// Real lines with a few bytes changed reach much deeper than random ones.
        #[test]
        fn damaged_lines_are_an_entry_or_a_fault(
            at in 0..COMBINED.len(),
            byte in any::<u8>(),
            cut in 0..COMBINED.len(),
        ) {
            let mut line = COMBINED.to_vec();
            line[at] = byte;
            line.truncate(cut.max(1));
            if let Ok(entry) = parse(&line) {
                prop_assert!(!entry.client.is_empty() && !entry.target.is_empty() && !entry.method.is_empty());
                prop_assert!((100..600).contains(&entry.status));
            }
        }

        #[test]
        fn what_was_written_is_read(
            client in "[1-9]{1,2}\\.[1-9]\\.0\\.255|[a-z][a-z0-9-]{0,9}(\\.[a-z]{2,5}){0,2}",
            seconds in 0_i64..4_000_000_000,
            method in "[A-Z]{1,10}",
            target in "/[!#-\\[\\]-~]{0,60}",
            status in 100_u16..600,
            bytes in proptest::option::of(0..=MAX_BYTES),
            agent in "[ !#-\\[\\]-~]{0,40}",
        ) {
            let format = time::macros::format_description!(
                "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000"
            );
            let date = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap().format(&format).unwrap();
            let size = bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
            let request = format!("{method} {target} HTTP/1.1");
            let line = format!("{client} - - [{date}] \"{request}\" {status} {size} \"-\" \"{agent}\"");
            let entry = parsed(&line).unwrap();
            prop_assert_eq!(&*entry.client, client.as_bytes());
            prop_assert_eq!(entry.time_s, seconds);
            prop_assert_eq!(entry.method, method.as_bytes());
            prop_assert_eq!(entry.target, target.as_bytes());
            prop_assert_eq!((entry.status, entry.bytes), (status, bytes));
            prop_assert_eq!(entry.user_agent, Some(agent.as_bytes()));
        }
    }
}
