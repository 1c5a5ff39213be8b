//! What came of an exchange: the answer, when its parts were over, and what was done when.

use std::borrow::Cow;

use tlsdyno_sys::{monotonic_ns, thread_cpu_ns};
use tlsdyno_tls::{Handshake, Script, Session};

/// What a server answered to one request, and what TLS came to on the way.
#[derive(Debug, Default)]
pub struct Answer {
    /// The status of the HTTP response.
    pub status: u16,
    /// Bytes of the body that were received.
    pub body_bytes: u64,
    /// What TLS negotiated; `None` for plain HTTP.
    pub handshake: Option<Handshake>,
    /// The first sessions that the server offered for resumption.
    pub sessions: Vec<Session>,
    /// The server's certificates; empty where it resumed, and of plain HTTP.
    pub chain: Vec<Vec<u8>>,
    /// The response as it came, head and body; of a long one the beginning, of HTTP/2 a head with status and location.
    pub response: Vec<u8>,
    /// The flights of the handshake; `None` for plain HTTP.
    pub script: Option<Script>,
    /// Bytes received that were no data: with data in plain, those of the handshake.
    pub overhead_in: u64,
    /// The same for bytes sent.
    pub overhead_out: u64,
    /// When the parts of it were over.
    pub times: Times,
    /// The steps of the exchange in the order in which they ended.
    pub moments: Vec<Moment>,
}

impl Answer {
    /// The body, where the response is framed by its length.
    pub fn body(&self) -> &[u8] {
        let head = self.response.windows(4).position(|window| window == b"\r\n\r\n");
        head.map_or(&[], |at| &self.response[at + 4..])
    }

    /// A header of the response by its name.
    pub fn header(&self, name: &str) -> Option<String> {
        let head = self.response.split(|byte| *byte == b'\n').take_while(|line| !line.trim_ascii().is_empty());
        let mut values = head.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            line[..colon].eq_ignore_ascii_case(name.as_bytes()).then(|| line[colon + 1..].trim_ascii())
        });
        values.next().map(|value| String::from_utf8_lossy(value).into_owned())
    }

    /// Whether a session was resumed, be it by a real handshake or a skeleton.
    pub fn is_resumed(&self) -> bool {
        self.handshake.as_ref().is_some_and(|handshake| handshake.resumed.is_some())
    }
}

/// When the parts of an exchange were over, in nanoseconds of the monotonic clock. What arrived has the kernel's time
/// where the socket has arrivals stamped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The first flight left.
    pub hello_ns: u64,
    /// The first bytes of the server arrived.
    pub server_hello_ns: Option<u64>,
    /// The handshake was complete on this side.
    pub finished_ns: Option<u64>,
    /// The whole request was written to the socket.
    pub requested_ns: Option<u64>,
    /// The first bytes of the response arrived.
    pub first_byte_ns: Option<u64>,
    /// The last bytes of the response arrived.
    pub last_byte_ns: u64,
}

/// The end of something that a client did; it began where the moment before ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// What: a handshake message that was dealt with, by its name, or one of [`doing`]; of a client that is a program
    /// of its own, what that calls it.
    pub what: Cow<'static, str>,
    /// Monotonic clock, nanoseconds.
    pub at_ns: u64,
    /// CPU time of its thread, nanoseconds.
    pub cpu_ns: u64,
    /// Bytes: of the message, or that were read or sent.
    pub bytes: u64,
}

/// What moments are of besides messages.
pub mod doing {
    /// The moment from which the first part is counted.
    pub const BEGINNING: &str = "begin";
    /// The TCP connection was set up.
    pub const CONNECTING: &str = "connect";
    /// Making the first flight.
    pub const HELLO: &str = "ClientHello made";
    /// A write to the socket.
    pub const SENDING: &str = "send";
    /// Waiting for the server, and reading.
    pub const WAITING: &str = "wait and read";
    /// Making the request, and dealing with the response.
    pub const DATA: &str = "request and response";
}

impl Moment {
    pub(super) fn now(what: &'static str, bytes: usize) -> Moment {
        Moment { what: what.into(), at_ns: monotonic_ns(), cpu_ns: thread_cpu_ns(), bytes: bytes as u64 }
    }
}
