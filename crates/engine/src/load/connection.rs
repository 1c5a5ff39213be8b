//! One connection of the load engine: its socket, its TLS, the response it waits for and the bytes it could not send
//! yet.
//!
//! Connections are closed in the normal way, never by a reset, because that would spare the server work. Whoever closes
//! first keeps the port pair in TIME_WAIT: the server where the request said `Connection: close`, the client where a
//! kept connection is given up.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tlsdyno_tls::{Client, Receiver, Session};
use tlsdyno_wire::http::{HttpFault, Response};
use tlsdyno_wire::http2;

use super::limits::CONNECTION_STATE_BYTES_MAX;
use super::outcome::ErrorKind;
use super::plan::{Expect, Timeouts};
use super::users::ActiveId;
use crate::reactor::Interest;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPhase {
    Connecting,
    Handshaking,
    Open,
    /// The last response is complete; the server is to close.
    Closing,
}

#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Index into the workload's requests.
    pub request: u32,
    /// When it was to be sent, by the schedule of an open loop.
    pub intended_ns: Option<u64>,
    pub sent_ns: u64,
    /// When the user's request was sent first: before redirects that were followed.
    pub began_ns: u64,
    pub first_byte_seen: bool,
    pub first_byte_ns: u64,
    pub expect: Expect,
}

pub struct Connection {
    pub socket: OwnedFd,
    pub user: ActiveId,
    pub phase: ConnectionPhase,
    /// `None`: plain HTTP.
    pub tls: Option<Client>,
    pub response: Response,
    pub exchange: Option<Exchange>,
    /// `None`: HTTP/1.1, whose one request under way is `exchange`.
    pub http2: Option<Box<Http2>>,
    pub served: u32,
    /// Bytes that wait for room in the socket.
    pub unsent: Vec<u8>,
    /// Bytes of the request's body that were not made yet.
    pub body_left: u64,
    /// Why nothing can be sent any more. What the server sent before can still be read.
    pub broken: Option<ErrorKind>,
    /// What the reactor watches for; `None`: it does not yet.
    pub interest: Option<Interest>,
    /// Bytes were sent, and so TCP is connected.
    pub tcp_connected: bool,
    pub opened_ns: u64,
    pub hello_ns: u64,
    pub progress_ns: u64,
    /// The plan wants this connection to resume a session.
    pub resumption_intended: bool,
    /// It was given a session to offer.
    pub session_given: bool,
    /// A session that the server may not have put into its cache yet: it has once it answers.
    pub unproven: Option<Session>,
    /// It carries requests already, though its handshake goes on: they travel with the hello.
    pub ready_early: bool,
    /// The answer to this request is here, but a line of the client's rate has not carried it yet. Whether it can carry
    /// another request then.
    pub carried: Option<(u32, bool)>,
    /// A request that cannot travel with the hello, and whether it is the connection's last.
    pub held: Option<(u32, bool)>,
}

const _: () = assert!(size_of::<Connection>() <= CONNECTION_STATE_BYTES_MAX);

/// A connection on which the server chose HTTP/2.
pub struct Http2 {
    pub client: http2::Client<Exchange>,
    /// Requests that it carries at once, as the policy was told.
    pub room: u32,
    /// Requests that the server did not look at, and that were made again.
    pub repeated: u32,
}

/// Where what HTTP/2 makes of input goes.
pub struct Http2Sink<'a> {
    pub http2: &'a mut Http2,
    /// Frames to be sent.
    pub out: &'a mut Vec<u8>,
    pub events: &'a mut Vec<http2::Event<Exchange>>,
    pub fault: Option<http2::Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// So many bytes.
    Bytes(usize),
    Nothing,
    End,
}

/// What a piece of input held.
pub struct Found<'a> {
    pub to: To<'a>,
    pub sessions: &'a mut Vec<Session>,
    pub wants_sessions: bool,
    pub now_ns: u64,
    /// Responses began; how long after their requests the last of them did, nanoseconds.
    pub began: &'a mut dyn FnMut(u64),
    /// Bytes came that belong to no response.
    pub excess: bool,
    pub fault: Option<HttpFault>,
}

/// Where plain text goes.
pub enum To<'a> {
    Http1(&'a mut Response, &'a mut Option<Exchange>),
    Http2(Http2Sink<'a>),
    /// Nobody knows yet what the server will choose.
    Undecided(&'a mut Vec<u8>),
}

impl Exchange {
    /// The first byte of its response is here. Answers how long that took, nanoseconds.
    fn begin(&mut self, now_ns: u64) -> u64 {
        (self.first_byte_seen, self.first_byte_ns) = (true, now_ns);
        now_ns.saturating_sub(self.sent_ns)
    }
}

impl Receiver for Found<'_> {
    fn plaintext(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.fault.is_some() {
            return;
        }
        let (now_ns, began) = (self.now_ns, &mut self.began);
        match &mut self.to {
            To::Undecided(held) => held.extend_from_slice(bytes),
            To::Http1(_, None) => self.excess = true,
            To::Http1(response, Some(exchange)) => {
                if !exchange.first_byte_seen {
                    began(exchange.begin(now_ns));
                }
                match response.receive(bytes) {
                    Ok(taken) => self.excess |= taken < bytes.len(),
                    Err(fault) => self.fault = Some(fault),
                }
            }
            To::Http2(sink) if sink.fault.is_none() => {
                let begins = |exchange: &mut Exchange| began(exchange.begin(now_ns));
                sink.fault = sink.http2.client.receive(bytes, sink.out, sink.events, begins).err();
            }
            To::Http2(_) => {}
        }
    }

    fn session(&mut self, session: Session) {
        self.sessions.push(session);
    }

    fn wants_sessions(&self) -> bool {
        self.wants_sessions
    }
}

impl Connection {
    /// A connection on a socket that begins to connect.
    pub fn open(socket: OwnedFd, user: ActiveId, now_ns: u64) -> Connection {
        Connection {
            socket,
            user,
            phase: ConnectionPhase::Connecting,
            tls: None,
            response: Response::new(false),
            exchange: None,
            http2: None,
            served: 0,
            unsent: Vec::new(),
            body_left: 0,
            broken: None,
            interest: None,
            tcp_connected: false,
            opened_ns: now_ns,
            hello_ns: now_ns,
            progress_ns: now_ns,
            resumption_intended: false,
            session_given: false,
            unproven: None,
            ready_early: false,
            carried: None,
            held: None,
        }
    }

    /// Reads once.
    pub fn read(&self, buffer: &mut [u8]) -> Result<Read, ErrorKind> {
        loop {
            match rustix::net::recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((_, 0)) => return Ok(Read::End),
                Ok((_, bytes)) => return Ok(Read::Bytes(bytes)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Read::Nothing),
                Err(Errno::TIMEDOUT) => return Err(self.timeout_kind()),
                Err(error) => return Err(kind_of(error)),
            }
        }
    }

    /// Sends what it can of `bytes`, behind what was kept before; keeps what it cannot send. Answers how much went out:
    /// nothing, and nothing is kept, where it is broken.
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        if self.broken.is_some() {
            return Ok(0);
        }
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return Ok(0);
        }
        let sent = self.send_once(bytes)?;
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(sent)
    }

    /// Sends what it can of what was kept. Answers how much went out.
    pub fn send_unsent(&mut self) -> Result<usize, ErrorKind> {
        let sent = self.send_once(&self.unsent)?;
        self.unsent.drain(..sent);
        if self.unsent.is_empty() {
            // Rare and then over: the memory is given back.
            self.unsent = Vec::new();
        }
        Ok(sent)
    }

    fn send_once(&self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        loop {
            match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(error) => return Err(kind_of(error)),
            }
        }
    }

    /// Gives up what is left to send.
    pub fn break_off(&mut self, kind: ErrorKind) {
        self.broken = Some(kind);
        self.unsent = Vec::new();
        self.body_left = 0;
    }

    /// Whether everything of the current request is on its way.
    pub fn is_all_sent(&self) -> bool {
        self.broken.is_none() && self.unsent.is_empty() && self.body_left == 0
    }

    /// The requests under way.
    pub fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        let streams = self.http2.iter().flat_map(|http2| http2.client.streams());
        self.exchange.iter().chain(streams.map(|stream| &stream.data))
    }

    /// Whether the server closed a kept connection before it can have seen the requests: such requests are made again.
    /// Under HTTP/2 it says by GOAWAY what it saw, if it says anything.
    pub fn is_stale(&self) -> bool {
        let told = self.http2.as_ref().is_some_and(|http2| http2.client.is_going_away());
        let mut exchanges = self.exchanges().peekable();
        self.served > 0 && !told && exchanges.peek().is_some() && exchanges.all(|exchange| !exchange.first_byte_seen)
    }

    /// What the reactor should watch for.
    pub fn wanted_interest(&self) -> Interest {
        if self.phase == ConnectionPhase::Connecting || !self.unsent.is_empty() {
            Interest::ReadWrite
        } else {
            Interest::Read
        }
    }

    /// What it is called when the time-out passes now.
    pub fn timeout_kind(&self) -> ErrorKind {
        match self.phase {
            _ if !self.tcp_connected => ErrorKind::ConnectTimeout,
            ConnectionPhase::Connecting => ErrorKind::ConnectTimeout,
            ConnectionPhase::Handshaking => ErrorKind::HandshakeTimeout,
            ConnectionPhase::Open | ConnectionPhase::Closing => ErrorKind::Timeout,
        }
    }

    /// The phase before the first request that has taken longer than it may, if there is one.
    pub fn overdue(&self, timeouts: &Timeouts, now_ns: u64) -> Option<ErrorKind> {
        let is_over = |limit_ns: Option<u64>, since_ns: u64| {
            limit_ns.is_some_and(|limit_ns| now_ns.saturating_sub(since_ns) >= limit_ns)
        };
        if !self.tcp_connected {
            return is_over(timeouts.connect_ns, self.opened_ns).then_some(ErrorKind::ConnectTimeout);
        }
        if self.phase == ConnectionPhase::Handshaking && is_over(timeouts.handshake_ns, self.hello_ns) {
            return Some(ErrorKind::HandshakeTimeout);
        }
        None
    }

    /// Whether it waits for the server, so that a time-out applies.
    pub fn waits_for_server(&self) -> bool {
        self.phase != ConnectionPhase::Open || self.exchanges().next().is_some()
    }
}

impl Exchange {
    /// The limit that it has taken longer than, if there is one.
    pub fn overdue(&self, timeouts: &Timeouts, now_ns: u64) -> Option<ErrorKind> {
        let is_over =
            |limit_ns: Option<u64>| limit_ns.is_some_and(|limit_ns| now_ns.saturating_sub(self.sent_ns) >= limit_ns);
        if !self.first_byte_seen && is_over(timeouts.first_byte_ns) {
            return Some(ErrorKind::FirstByteTimeout);
        }
        is_over(timeouts.total_ns).then_some(ErrorKind::TotalTimeout)
    }
}

/// The kind of error that the run counts for an error of the system.
pub fn kind_of(error: Errno) -> ErrorKind {
    match error {
        Errno::CONNREFUSED => ErrorKind::Refused,
        Errno::TIMEDOUT => ErrorKind::ConnectTimeout,
        // `connect` answers AGAIN too when no port is free.
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE | Errno::AGAIN => ErrorKind::Ports,
        Errno::MFILE | Errno::NFILE => ErrorKind::Descriptors,
        Errno::NOBUFS | Errno::NOMEM => ErrorKind::Resources,
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::PERM => ErrorKind::Unreachable,
        _ => ErrorKind::Reset,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// When a connection is overdue that makes progress five times a second, and which phase then is.
    fn overdue(connection: &mut Connection, timeouts: &Timeouts) -> Option<(u64, ErrorKind)> {
        (0..=100).map(|fifth| fifth * SECOND / 5).find_map(|now_ns| {
            connection.progress_ns = now_ns;
            let of_exchange = || connection.exchange?.overdue(timeouts, now_ns);
            Some((now_ns, connection.overdue(timeouts, now_ns).or_else(of_exchange)?))
        })
    }

    #[test]
    fn progress_puts_no_limit_of_a_phase_off() {
        let (socket, _peer) = UnixStream::pair().unwrap();
        let mut connection = Connection::open(socket.into(), 0, 0);
        let [connect, handshake, first_byte, total] = [2, 3, 5, 7].map(|seconds| Some(seconds * SECOND));
        let timeouts =
            Timeouts { connect_ns: connect, handshake_ns: handshake, first_byte_ns: first_byte, total_ns: total };
        assert_eq!(overdue(&mut connection, &timeouts), Some((2 * SECOND, ErrorKind::ConnectTimeout)));
        connection.tcp_connected = true;
        connection.phase = ConnectionPhase::Handshaking;
        assert_eq!(overdue(&mut connection, &timeouts), Some((3 * SECOND, ErrorKind::HandshakeTimeout)));
        connection.phase = ConnectionPhase::Open;
        assert_eq!(overdue(&mut connection, &timeouts), None, "nothing is asked");
        let expect = Expect::default();
        let exchange = Exchange {
            request: 0,
            intended_ns: None,
            sent_ns: 0,
            began_ns: 0,
            first_byte_seen: false,
            first_byte_ns: 0,
            expect,
        };
        connection.exchange = Some(exchange);
        assert_eq!(overdue(&mut connection, &timeouts), Some((5 * SECOND, ErrorKind::FirstByteTimeout)));
        connection.exchange = Some(Exchange { first_byte_seen: true, ..exchange });
        assert_eq!(overdue(&mut connection, &timeouts), Some((7 * SECOND, ErrorKind::TotalTimeout)));
        assert_eq!(overdue(&mut connection, &Timeouts::default()), None);
    }
}
