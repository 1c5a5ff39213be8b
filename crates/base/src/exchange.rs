//! One request over one connection with the lean client, blocking: what it was answered, and when.

mod answer;
mod reach;
mod reply;
mod turn;

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use tlsdyno_sys::{monotonic_ns, receive_stamped};
use tlsdyno_tls::{Client, Config, Entropy, Error, Handshake, Receiver, Session, Version};
use tlsdyno_wire::answer::AnswerFault;
use tlsdyno_wire::handshake;
use tlsdyno_wire::http::Response;
use tlsdyno_wire::opening::OpeningFault;

pub use answer::{Answer, Moment, Times, doing};
pub use reach::{Held, Reach};
pub use turn::Turn;

use reply::{Http2, Reply, place_of_http2};

/// How long connecting, the handshake and the answer may take, each. A mismatched pair of ends fails at once; only a
/// hanging server takes this long.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);
/// So much of a response is kept: its head, and what an error page says.
const KEPT_BYTES: usize = 256 * 1024;
/// How long a client that stays awake does so: where both ends share a CPU, the server waits for its end.
const AWAKE: Duration = Duration::from_millis(3);
/// A look does not wait.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Pauses between two looks for what came, a microsecond or two: another thread of the same core works faster in them.
const PAUSES: u32 = 40;
/// Sessions of one connection that are kept: a server may send tickets without end.
const SESSIONS_MAX: usize = 8;

/// Random bytes from OpenSSL.
struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        openssl::rand::rand_bytes(bytes).expect("the system's random generator works");
    }
}

/// Why an exchange did not complete.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// TLS failed on our side or by the server's alert.
    #[error("TLS failed: {0}")]
    Tls(#[from] Error),
    /// Connecting, writing or reading failed in the kernel.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The server closed before its response was complete.
    #[error("the server closed the connection before its response was complete")]
    Closed,
    /// The response was not HTTP, or not what the server chose of it.
    #[error("the response is not HTTP: {0}")]
    Http(String),
    /// The server does not begin TLS as its protocol has it.
    #[error(transparent)]
    Opening(#[from] OpeningFault),
    /// The answer, not of HTTP, is not the one that was hoped for.
    #[error("the answer is not the expected one: {0}")]
    Answer(AnswerFault),
    /// Nothing was received or sent for this long.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
}

impl Failure {
    /// TLS itself failed: an alert, a record that makes no sense, or a connection that the server dropped in
    /// mid-exchange. A refused connection or a time-out says nothing about TLS.
    pub fn is_tls(&self) -> bool {
        match self {
            Failure::Tls(_) | Failure::Closed => true,
            Failure::Io(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
            Failure::Http(_) | Failure::Opening(_) | Failure::Answer(_) | Failure::Timeout(_) => false,
        }
    }
}

/// The current time in seconds since 1970 (UTC).
pub fn now_unix_s() -> u64 {
    clock_gettime(ClockId::Realtime).tv_sec as u64
}

/// Milliseconds of the clock that sessions are dated with.
fn now_ms() -> u64 {
    monotonic_ns() / 1_000_000
}

/// A whole GET, after which the server closes. `headers`: whole lines.
pub fn get(path: &str, headers: &str, host: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n").into_bytes()
}

/// Sends `request` (a whole GET) over one new connection and reads the response.
pub fn exchange(
    address: SocketAddr,
    tls: Option<&Arc<Config>>,
    session: Option<Session>,
    request: &[u8],
) -> Result<Answer, Failure> {
    exchange_within(TIME_LIMIT, address, tls, session, request)
}

/// As [`exchange`], and each stage may take so long.
pub fn exchange_within(
    limit: Duration,
    address: SocketAddr,
    tls: Option<&Arc<Config>>,
    session: Option<Session>,
    request: &[u8],
) -> Result<Answer, Failure> {
    Exchange::connect(address, limit)?.asking(tls, session, request, b"")?.whole()
}

/// A connection over which one request is sent, under way.
pub struct Exchange<'a> {
    stream: TcpStream,
    limit: Duration,
    client: Option<Client>,
    request: &'a [u8],
    /// Sent behind the request, past TLS.
    raw: &'a [u8],
    /// HTTP/2 is spoken without TLS too (RFC 9113 section 3.3).
    prior_knowledge: bool,
    /// The place of HTTP/2 among the protocols that were offered.
    http2_place: Option<u8>,
    received: Received,
    out: Vec<u8>,
    buffer: Vec<u8>,
    is_awake: bool,
    bytes_in: u64,
    bytes_out: u64,
    data_bytes_out: u64,
    times: Times,
    /// What was negotiated: an ended client knows it no more.
    handshake: Option<Handshake>,
}

impl<'a> Exchange<'a> {
    /// Connects TCP.
    pub fn connect(address: SocketAddr, limit: Duration) -> Result<Exchange<'a>, Failure> {
        let beginning = Moment::now(doing::BEGINNING, 0);
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_nodelay(true)?;
        let mut exchange = Exchange::over(stream, limit)?;
        exchange.received.moments.insert(0, beginning);
        Ok(exchange)
    }

    /// The same over a connection that there is.
    pub fn over(stream: TcpStream, limit: Duration) -> Result<Exchange<'a>, Failure> {
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Exchange {
            stream,
            limit,
            client: None,
            request: b"",
            raw: b"",
            prior_knowledge: false,
            http2_place: None,
            received: Received { moments: vec![Moment::now(doing::CONNECTING, 0)], ..Received::default() },
            out: Vec::with_capacity(4096),
            buffer: vec![0; 32 * 1024],
            is_awake: false,
            bytes_in: 0,
            bytes_out: 0,
            data_bytes_out: 0,
            times: Times::default(),
            handshake: None,
        })
    }

    /// Without TLS, speaks HTTP/2 to a server that is known to speak it.
    #[must_use]
    pub fn with_prior_knowledge(self, prior_knowledge: bool) -> Exchange<'a> {
        Exchange { prior_knowledge, ..self }
    }

    /// Waits for the server without sleeping. A server pays for waking up who sleeps, and the longer it let them sleep
    /// the more, because their CPU sleeps too.
    #[must_use]
    pub fn staying_awake(self) -> Exchange<'a> {
        Exchange { is_awake: true, ..self }
    }

    /// The next bytes from the server, into the buffer, and how long ago they came.
    fn next_bytes(&mut self) -> io::Result<(usize, Option<u64>)> {
        if self.is_awake {
            let until_ns = monotonic_ns() + AWAKE.as_nanos() as u64;
            while monotonic_ns() < until_ns {
                let mut waiting = [PollFd::new(&self.stream, PollFlags::IN)];
                if poll(&mut waiting, Some(&AT_ONCE))? > 0 {
                    break;
                }
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
            }
        }
        receive_stamped(&self.stream, &mut self.buffer)
    }

    /// Makes the first flight: a hello, with the request where that is possible, or the request in plain. `raw` goes
    /// behind the request, past TLS: a server that takes records for plain HTTP would wait for the end of the head that
    /// they seem to be.
    pub fn asking(
        mut self,
        tls: Option<&Arc<Config>>,
        session: Option<Session>,
        request: &'a [u8],
        raw: &'a [u8],
    ) -> Result<Exchange<'a>, Failure> {
        (self.request, self.raw) = (request, raw);
        self.hello(tls, session);
        self.request_if_possible()?;
        self.times.hello_ns = monotonic_ns();
        self.times.last_byte_ns = self.times.hello_ns;
        self.times.requested_ns = self.times.requested_ns.map(|_| self.times.hello_ns);
        Ok(self)
    }

    fn hello(&mut self, tls: Option<&Arc<Config>>, session: Option<Session>) {
        if let Some(config) = tls {
            self.http2_place = place_of_http2(config);
            self.received.undecided = self.http2_place.map(|_| Vec::new());
            self.client = Some(Client::new(config, session, &mut SystemEntropy, now_ms(), &mut self.out));
            self.received.moments.push(Moment::now(doing::HELLO, self.out.len()));
        }
    }

    /// Goes all the way.
    pub fn whole(mut self) -> Result<Answer, Failure> {
        self.answered()?;
        self.end()
    }

    /// Whether the handshake is complete on this side.
    pub fn is_finished(&self) -> bool {
        self.times.finished_ns.is_some()
    }

    /// Sends and receives until the response is complete. After a signal ([`ErrorKind::Interrupted`]) it can go on.
    pub fn answered(&mut self) -> Result<(), Failure> {
        loop {
            self.request_if_possible()?;
            self.send()?;
            if self.received.reply.is_complete() && self.times.requested_ns.is_some() {
                return Ok(());
            }
            let began_ns = self.times.finished_ns.unwrap_or(self.times.hello_ns);
            if monotonic_ns() > began_ns + self.limit.as_nanos() as u64 {
                return Err(Failure::Timeout(self.limit));
            }
            let (read, age_ns) = self.next_bytes().map_err(|error| self.late(error))?;
            let now_ns = monotonic_ns();
            if read == 0 {
                if let Some(client) = &mut self.client {
                    self.handshake = client.handshake().cloned();
                    client.end_of_input()?;
                }
                return self.ended();
            }
            // The stamp is of the wall clock, which may be set in between: nothing arrives before what was sent for it.
            let arrived_ns = now_ns.saturating_sub(age_ns.unwrap_or(0)).max(self.times.last_byte_ns);
            self.times.server_hello_ns.get_or_insert(arrived_ns);
            let before = self.received.data_bytes;
            self.receive(read)?;
            if self.received.data_bytes > before {
                self.times.first_byte_ns.get_or_insert(arrived_ns);
                self.times.last_byte_ns = arrived_ns;
            }
            if self.client.as_ref().is_some_and(Client::is_connected) {
                self.times.finished_ns.get_or_insert_with(monotonic_ns);
            }
            // Nothing comes behind close_notify, also where the server waits for ours before it closes.
            if self.client.as_ref().is_some_and(Client::peer_closed) {
                return self.ended();
            }
        }
    }

    /// The server sends no more: that is the end of a response that says no length. Its last byte came before.
    pub fn ended(&mut self) -> Result<(), Failure> {
        self.received.reply.end_of_input()
    }

    /// Where TLS 1.3 has given no ticket yet, waits so long for one.
    pub fn wait_for_ticket(&mut self, patience: Duration) {
        let Some(client) = &self.client else { return };
        let is_tls13 = client.handshake().is_some_and(|handshake| handshake.version == Version::Tls13);
        if is_tls13
            && self.received.sessions.is_empty()
            && !client.peer_closed()
            && self.stream.set_read_timeout(Some(patience)).is_ok()
            && let Ok((read @ 1.., _)) = receive_stamped(&self.stream, &mut self.buffer)
        {
            let _ = self.receive(read);
        }
    }

    /// Says farewell, and what came of it.
    pub fn end(mut self) -> Result<Answer, Failure> {
        let handshake = self.handshake.take().or_else(|| self.client.as_ref()?.handshake().cloned());
        if let Some(client) = &mut self.client {
            let words = self.received.reply.last_words();
            if !words.is_empty() && !client.peer_closed() {
                let _ = client.send(&words, &mut self.out);
            }
            client.close(&mut self.out);
            // The response is there: what becomes of the farewell is nobody's trouble.
            let _ = self.stream.write_all(&self.out);
        }
        let mut received = self.received;
        received.moments.push(Moment::now(doing::DATA, 0));
        let (status, body_bytes) = received.reply.result().ok_or(Failure::Closed)?;
        Ok(Answer {
            status,
            body_bytes,
            handshake,
            sessions: received.sessions,
            chain: received.chain,
            response: received.reply.head().unwrap_or(received.kept),
            script: self.client.as_ref().map(Client::script),
            overhead_in: self.bytes_in - received.data_bytes,
            overhead_out: self.bytes_out - self.data_bytes_out,
            times: self.times,
            moments: received.moments,
        })
    }

    fn request_if_possible(&mut self) -> Result<(), Failure> {
        let can_be_sent = match &self.client {
            // What the server chooses is known at the end of the handshake.
            Some(client) if self.received.undecided.is_some() => client.is_connected(),
            client => client.as_ref().is_none_or(|client| client.room() >= self.request.len()),
        };
        if self.times.requested_ns.is_some() || !can_be_sent {
            return Ok(());
        }
        self.received.decide(self.speaks_http2(), self.client.is_some(), self.request);
        if let Reply::Http2(_) = self.received.reply {
            self.send_frames()?;
        } else {
            self.send_data(self.request)?;
        }
        self.out.extend_from_slice(self.raw);
        self.data_bytes_out += self.raw.len() as u64;
        self.received.moments.push(Moment::now(doing::DATA, 0));
        self.times.requested_ns = Some(monotonic_ns());
        Ok(())
    }

    fn speaks_http2(&self) -> bool {
        match &self.client {
            None => self.prior_knowledge,
            Some(client) => {
                let chosen = client.handshake().and_then(|handshake| handshake.alpn);
                chosen.is_some() && chosen == self.http2_place
            }
        }
    }

    /// Makes the frames of HTTP/2 that wait part of the output.
    fn send_frames(&mut self) -> Result<(), Failure> {
        let Reply::Http2(http2) = &mut self.received.reply else { return Ok(()) };
        let frames = std::mem::take(&mut http2.frames);
        if frames.is_empty() { Ok(()) } else { self.send_data(&frames) }
    }

    fn send_data(&mut self, data: &[u8]) -> Result<(), Failure> {
        match &mut self.client {
            None => self.out.extend_from_slice(data),
            // The server speaks first.
            Some(_) if data.is_empty() => {}
            Some(client) => client.send(data, &mut self.out)?,
        }
        self.data_bytes_out += data.len() as u64;
        Ok(())
    }

    fn send(&mut self) -> Result<(), Failure> {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out).map_err(|error| self.late(error))?;
            self.received.moments.push(Moment::now(doing::SENDING, self.out.len()));
            self.bytes_out += self.out.len() as u64;
            self.out.clear();
        }
        Ok(())
    }

    fn late(&self, error: io::Error) -> Failure {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                self.received.reply.begun().map_or(Failure::Timeout(self.limit), Failure::Answer)
            }
            _ => Failure::Io(error),
        }
    }

    /// Deals with so many bytes of the buffer.
    fn receive(&mut self, read: usize) -> Result<(), Failure> {
        self.bytes_in += read as u64;
        // What comes once the handshake is over and the request has left is not of the handshake.
        let is_data = self.times.requested_ns.is_some() && self.client.as_ref().is_none_or(Client::is_connected);
        self.received.moments.push(Moment::now(if is_data { doing::DATA } else { doing::WAITING }, read));
        let bytes = &mut self.buffer[..read];
        match &mut self.client {
            None => self.received.plaintext(bytes),
            Some(client) => {
                let received = client.receive(bytes, now_ms(), &mut SystemEntropy, &mut self.out, &mut self.received);
                if let Err(error) = received {
                    // The alert is a courtesy; the error below is the result.
                    let _ = self.stream.write_all(&self.out);
                    return Err(error.into());
                }
            }
        }
        self.received.fault.take().map_or(Ok(()), Err)?;
        self.send_frames()
    }
}

/// What has come of the server.
struct Received {
    reply: Reply,
    /// What came before it is known what the server chose; `None`: it is known.
    undecided: Option<Vec<u8>>,
    kept: Vec<u8>,
    data_bytes: u64,
    fault: Option<Failure>,
    sessions: Vec<Session>,
    chain: Vec<Vec<u8>>,
    moments: Vec<Moment>,
}

impl Default for Received {
    fn default() -> Received {
        Received {
            reply: Reply::Http1(Box::new(Response::new(false))),
            undecided: None,
            kept: Vec::new(),
            data_bytes: 0,
            fault: None,
            sessions: Vec::new(),
            chain: Vec::new(),
            moments: Vec::new(),
        }
    }
}

impl Received {
    /// Makes the request in the protocol that was chosen, and reads what came before.
    fn decide(&mut self, http2: bool, over_tls: bool, request: &[u8]) {
        let early = self.undecided.take();
        if http2 && matches!(self.reply, Reply::Http1(_)) {
            self.reply = Http2::asking(over_tls, request);
        }
        early.iter().for_each(|bytes| self.read(bytes));
    }

    fn read(&mut self, bytes: &[u8]) {
        if let Err(fault) = self.reply.receive(bytes) {
            self.fault.get_or_insert(fault);
        }
    }
}

impl Receiver for Received {
    fn message(&mut self, kind: u8, bytes: usize) {
        self.moments.push(Moment::now(handshake::name(kind), bytes));
    }

    fn certificates(&mut self, chain_der: &[&[u8]]) {
        self.chain = chain_der.iter().map(|der| der.to_vec()).collect();
    }

    fn plaintext(&mut self, bytes: &[u8]) {
        self.data_bytes += bytes.len() as u64;
        let room = KEPT_BYTES - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        match &mut self.undecided {
            Some(early) => early.extend_from_slice(bytes),
            None => self.read(bytes),
        }
    }

    fn session(&mut self, session: Session) {
        if self.sessions.len() < SESSIONS_MAX {
            self.sessions.push(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use tlsdyno_sys::stamp_arrivals;

    use super::*;

    #[test]
    fn only_failures_of_tls_count_as_such() {
        let io = |kind: ErrorKind| Failure::Io(kind.into());
        for tls in [Failure::Closed, io(ErrorKind::ConnectionReset), io(ErrorKind::BrokenPipe)] {
            assert!(tls.is_tls(), "{tls}");
        }
        for other in [Failure::Timeout(TIME_LIMIT), Failure::Http("x".to_owned()), io(ErrorKind::ConnectionRefused)] {
            assert!(!other.is_tls(), "{other}");
        }
    }

    #[test]
    fn headers_stand_in_the_head_only() {
        let server = |response: &[u8]| Answer { response: response.to_vec(), ..Answer::default() }.header("Server");
        let answer = b"HTTP/1.1 200 OK\r\nX: y\r\nserver:  nginx/1.22 \r\n\r\nServer: body\r\n";
        assert_eq!(server(answer).as_deref(), Some("nginx/1.22"));
        assert_eq!(server(b"HTTP/1.1 200 OK\r\n\r\nServer: body\r\n"), None);
    }

    /// Times are those of packets, however late the program looks.
    #[test]
    fn the_last_byte_came_before_the_program_read_it() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = || {
            let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
            stamp_arrivals(&client).unwrap();
            (client, server.accept().unwrap().0)
        };
        // The kernel begins to stamp packets some time after it was asked.
        let (stamped, mut other) = connected();
        while {
            other.write_all(b"x").unwrap();
            receive_stamped(&stamped, &mut [0; 9]).unwrap().1.is_none()
        } {}
        let (client, mut stream) = connected();
        let exchange = Exchange::over(client, TIME_LIMIT).unwrap();
        let mut exchange = exchange.asking(None, None, b"GET / HTTP/1.1\r\n\r\n", b"").unwrap();
        exchange.send().unwrap();
        assert!(stream.read(&mut [0; 99]).unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbody").unwrap();
        drop(stream);
        // On loopback what was written has arrived.
        let arrived_ns = monotonic_ns();
        exchange.answered().unwrap();
        let times = exchange.times;
        assert!(times.first_byte_ns.is_some_and(|ns| ns <= arrived_ns), "{times:?} {arrived_ns}");
        assert!((times.hello_ns..=arrived_ns).contains(&times.last_byte_ns), "{times:?} {arrived_ns}");
    }

    proptest::proptest! {
        /// Whatever a server sends, in whatever pieces, comes to the same.
        #[test]
        fn answers_do_not_depend_on_pieces(head in "(\\PC|[\r\n:]){0,300}", piece in 1usize..50) {
            let bytes = format!("HTTP/1.1 200 OK\r\nServer:{head}");
            let received = |piece: usize| {
                let mut received = Received::default();
                bytes.as_bytes().chunks(piece).for_each(|piece| received.plaintext(piece));
                (received.kept, received.data_bytes, received.fault.is_some())
            };
            proptest::prop_assert_eq!(received(piece), received(bytes.len()));
        }
    }
}
