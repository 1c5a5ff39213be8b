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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMBINED: &[u8] = b"83.149.9.216 - - [17/May/2015:10:05:03 +0000] \"GET /a/b.png?x=1 HTTP/1.1\" 200 203023 \
        \"http://semicomplete.com/\" \"Mozilla/5.0 (Macintosh)\"";

    fn parsed(line: &str) -> Result<Entry<'_>, LineFault> {
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
                method: "GET",
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
    fn lines_of_haproxy_with_and_without_syslog() {
        let own = "10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- \
                   1/1/1/1/0 0/0 {1wt.eu} {} \"GET /index.html HTTP/1.1\"";
        let with = format!("Feb  6 12:14:14 localhost haproxy[14389]: {own} 0/0000000000000000/0/0/0 site/TLSv1.3/A");
        for line in [own, with.as_str()] {
            let entry = parsed(line).unwrap();
            assert_eq!((&*entry.client, entry.time_s), (&b"10.0.1.2"[..], 1_233_922_454));
            assert_eq!((entry.target, entry.status, entry.bytes), (&b"/index.html"[..], 200, Some(2750)));
        }
        let v6 = own.replace("10.0.1.2:", "2001:db8::1:");
        assert_eq!(*parsed(&v6).unwrap().client, *b"2001:db8::1");
        assert_eq!(parsed(&own.replace(" 200 ", " -1 ")), Err(LineFault::BadStatus));
        assert_eq!(parsed(&own.replace("GET /index.html HTTP/1.1", "<BADREQ>")), Err(LineFault::NotHttp));
        assert_eq!(parsed(&own.replace("10.0.1.2:33317", "unix:1")), Err(LineFault::NotAClient));
    }

    const SQUID: &str = "1431857103.655     23 198.51.100.7 TCP_MISS/200 1234 GET https://shop.example/a?b - \
                         HIER_DIRECT/192.0.2.1 text/html";

    #[test]
    fn lines_of_squid() {
        let entry = parsed(SQUID).unwrap();
        assert_eq!((&*entry.client, entry.time_s), (&b"198.51.100.7"[..], 1_431_857_103));
        assert_eq!((entry.method, entry.target), ("GET", &b"https://shop.example/a?b"[..]));
        assert_eq!((entry.status, entry.bytes, entry.user_agent), (200, Some(1234), None));
        assert_eq!(*parsed(&SQUID.replace("198.51.100.7", "2001:DB8::1")).unwrap().client, *b"2001:db8::1");
        let tunnel = SQUID.replace("GET https://shop.example/a?b", "CONNECT shop.example:443");
        assert_eq!(parsed(&tunnel).unwrap().method, "CONNECT");
        let cases = [
            (SQUID.replace("TCP_MISS/200", "NONE/000"), LineFault::BadStatus),
            (SQUID.replace("/200", ""), LineFault::BadStatus),
            (SQUID.replace("1234", "many"), LineFault::BadSize),
            (SQUID.replace("https://shop.example/a?b", "error:transaction-end-before-headers"), LineFault::NotHttp),
            (SQUID.replace("198.51.100.7", "-"), LineFault::NoClient),
            (SQUID.replace(".655", ""), LineFault::NoTime),
        ];
        for (line, fault) in cases {
            assert_eq!(parsed(&line), Err(fault), "{line}");
        }
        // A user by the field of the login, which a site may fill with a cookie's value.
        let layout = Layout { field: Some(layout::Field::Number(8)), ..Layout::default() };
        let line = SQUID.replace(" - ", " s=4711 ");
        let entry = parse_with(line.as_bytes(), &mut Clock::default(), &layout).unwrap();
        assert_eq!((&*entry.client, entry.found), (&b"s=4711"[..], Found::Asked));
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
            ("", LineFault::Blank),
            (" \t\r\n", LineFault::Blank),
            ("nonsense", LineFault::NoTime),
            ("1.2.3.4 - - [17/May/2015:10:05:03 +0000", LineFault::NoTime),
            (" [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5", LineFault::NoTime),
            (&good.replace("May", "Mai"), LineFault::BadTime),
            (&good.replace("17/", "32/"), LineFault::BadTime),
            (&good.replace("+0000", "0000"), LineFault::BadTime),
            (&good.replace('"', "'"), LineFault::NoRequest),
            (&good.replace("HTTP/1.1\"", "HTTP/1.1"), LineFault::NoRequest),
            (&with_request("-"), LineFault::NotHttp),
            (&with_request(""), LineFault::NotHttp),
            (&with_request(r"\x16\x03\x01\x00"), LineFault::NotHttp),
            (&with_request("GET HTTP/1.1"), LineFault::NotHttp),
            (&with_request("GET"), LineFault::NotHttp),
            (&good.replace("200", "000"), LineFault::BadStatus),
            (&good.replace("200", "2000"), LineFault::BadStatus),
            (&good.replace("200 5", ""), LineFault::BadStatus),
            (&good.replace("200 5", "200"), LineFault::BadSize),
            (&good.replace("200 5", "200 5k"), LineFault::BadSize),
            (&good.replace("200 5", "200 99999999999999999999"), LineFault::HugeSize),
            (&good.replace("200 5", "200 1000000000000000000"), LineFault::HugeSize),
            (&good.replace("200 5", "200 -5"), LineFault::BadSize),
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

        #[test]
        fn what_squid_wrote_is_read(
            seconds in 0_i64..4_000_000_000,
            millis in 0..1000,
            client in "[1-9]{1,2}\\.[1-9]\\.0\\.255|2001:db8::[1-9a-f]{1,4}",
            method in "[A-Z]{1,10}",
            target in "https?://[a-z]{1,9}/[!-~]{0,60}",
            status in 100_u16..600,
            bytes in 0..=MAX_BYTES,
        ) {
            let result = format!("TCP_HIT/{status} {bytes} {method} {target}");
            let line = format!("{seconds}.{millis:03} {bytes:6} {client} {result} - NONE/- -");
            let entry = parsed(&line).unwrap();
            prop_assert_eq!(&*entry.client, client.as_bytes());
            prop_assert_eq!((entry.time_s, entry.method, entry.target), (seconds, method.as_str(), target.as_bytes()));
            prop_assert_eq!((entry.status, entry.bytes), (status, Some(bytes)));
        }

        /// Real lines with a few bytes changed reach much deeper than random ones.
        #[test]
        fn damaged_lines_are_an_entry_or_a_fault(
            whole in proptest::sample::select(vec![COMBINED, SQUID.as_bytes()]),
            at in any::<proptest::sample::Index>(),
            byte in any::<u8>(),
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut line = whole.to_vec();
            line[at.index(whole.len())] = byte;
            line.truncate(cut.index(whole.len()).max(1));
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
            prop_assert_eq!(entry.method, method);
            prop_assert_eq!(entry.target, target.as_bytes());
            prop_assert_eq!((entry.status, entry.bytes), (status, bytes));
            prop_assert_eq!(entry.user_agent, Some(agent.as_bytes()));
        }
    }
}
