//! The little of HTTP that `tlsdyno probe serve` speaks: GET, one answer a connection.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tlsdyno_wire::http::{HEAD_BYTES_MAX, request_head, target_path};

use crate::servers::listening::is_loopback;

/// How long a client may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once.
const CONNECTIONS_MAX: usize = 32;
/// How often the flag is looked at.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// An answer.
pub struct Answer {
    pub status: u16,
    pub kind: &'static str,
    pub body: String,
}

/// What is asked for.
pub struct Query<'a> {
    /// The path, from `/` on.
    pub path: &'a str,
    /// Names and values of the query, decoded.
    pub values: Vec<(String, String)>,
}

impl Query<'_> {
    /// The value of that name, if it is there and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values
            .iter()
            .find(|(this, _)| this == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }
}

impl Answer {
    /// An answer that says what is wrong.
    pub fn plain(status: u16, text: impl Into<String>) -> Answer {
        Answer { status, kind: "text/plain; charset=utf-8", body: text.into() + "\n" }
    }
}

/// Answers until `stop` is set.
///
/// # Errors
/// The socket fails.
pub fn serve(listener: &TcpListener, stop: &AtomicBool, answer: &(dyn Fn(&Query<'_>) -> Answer + Sync)) -> Result<()> {
    listener.set_nonblocking(true).context("failed to prepare the socket")?;
    let open = &AtomicUsize::new(0);
    thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&NAP));
            if !matches!(ready, Ok(1..)) {
                continue;
            }
            let Ok((stream, peer)) = listener.accept() else { continue };
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            scope.spawn(move || {
                // Whoever goes away before the answer gets none.
                let _ = converse(stream, is_loopback(peer.ip()), answer);
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    Ok(())
}

fn converse(mut stream: TcpStream, is_local: bool, answer: &dyn Fn(&Query<'_>) -> Answer) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let (answer, has_body) = loop {
        match request_head(&bytes) {
            Ok(Some(head)) => {
                let host = head.headers.get("Host").unwrap_or_default();
                let has_body = head.method != b"HEAD";
                break match head.method {
                    b"GET" | b"HEAD" if is_local && !is_local_name(host) => {
                        (Answer::plain(421, "this server answers for its own machine's names only"), has_body)
                    }
                    b"GET" | b"HEAD" => (answer_of(head.target, answer), has_body),
                    _ => (Answer::plain(405, "only GET is understood"), true),
                };
            }
            Ok(None) if bytes.len() < HEAD_BYTES_MAX => {}
            _ => break (Answer::plain(400, "this is no HTTP request"), true),
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&buffer[..read]);
    };
    send(&mut stream, &answer, has_body)
}

fn answer_of(target: &[u8], answer: &dyn Fn(&Query<'_>) -> Answer) -> Answer {
    let path = target_path(target).and_then(|path| std::str::from_utf8(path).ok());
    let Some(path) = path else {
        return Answer::plain(400, "there is no such page");
    };
    let query = target.iter().position(|byte| *byte == b'?').map_or(&b""[..], |at| &target[at + 1..]);
    let pairs = query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    let pair = |pair: &[u8]| {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        (decoded(&pair[..at]), decoded(pair.get(at + 1..).unwrap_or_default()))
    };
    answer(&Query { path, values: pairs.map(pair).collect() })
}

/// A value of a query.
pub fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// `a%20b+c`, as forms send it.
fn decoded(text: &[u8]) -> String {
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((16 * high + low) as u8);
                at += 2;
            }
            (b'+', _, _) => bytes.push(b' '),
            (other, _, _) => bytes.push(other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A page elsewhere may have its name lead here, to read in a user's browser what is meant for this machine; then the
/// name is not ours.
fn is_local_name(host: &[u8]) -> bool {
    let host = std::str::from_utf8(host).unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.is_empty() || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn send(stream: &mut TcpStream, answer: &Answer, has_body: bool) -> io::Result<()> {
    let reason = match answer.status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        421 => "Misdirected Request",
        _ => "Service Unavailable",
    };
    let head = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
         img-src data:; frame-ancestors 'none'\r\n\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    );
    stream.write_all(head.as_bytes())?;
    if has_body {
        stream.write_all(answer.body.as_bytes())?;
    }
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_whatever_they_hold() {
        assert_eq!(decoded(b"a%20b+c%zz%4"), "a b c%zz%4");
        let seen = std::cell::RefCell::new(Vec::new());
        let answer = |query: &Query<'_>| {
            seen.borrow_mut().push((query.path.to_owned(), query.get("site").map(str::to_owned)));
            Answer::plain(200, "")
        };
        for target in [&b"/?site=https%3A%2F%2Fa%2F&from="[..], b"/metrics", b"*"] {
            answer_of(target, &answer);
        }
        assert_eq!(seen.into_inner(), [("/".to_owned(), Some("https://a/".to_owned())), ("/metrics".to_owned(), None)]);
    }

    proptest::proptest! {
        #[test]
        fn values_survive_a_query(text in ".*", bytes: Vec<u8>) {
            proptest::prop_assert_eq!(decoded(encoded(&text).as_bytes()), text);
            // Whatever comes, there is an answer.
            let target = [&b"/?"[..], &bytes].concat();
            answer_of(&target, &|query| Answer::plain(200, query.get("site").unwrap_or_default()));
        }
    }

    #[test]
    fn names_of_others_are_refused_on_loopback() {
        for host in ["localhost:9115", "127.0.0.1:9115", "[::1]:9115", "LOCALHOST", ""] {
            assert!(is_local_name(host.as_bytes()), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9115", "[x]:1"] {
            assert!(!is_local_name(host.as_bytes()), "{host}");
        }
    }
}
