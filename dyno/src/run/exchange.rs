//! One blocking request over one connection, with the lean client: what the preflight asks its questions with.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tlsdyno_engine::load::{Expect, Object, Workload};
use tlsdyno_tls::{Client, Config, Handshake, Receiver, Script, Session};
use tlsdyno_wire::handshake;
use tlsdyno_wire::http::Response;

use crate::entropy::SystemEntropy;

/// How long one exchange may take. A mismatched pair of ends fails at once; only a hanging server takes this long.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// The same for a server that may run under valgrind, where everything takes some fifty times as long.
pub const TIME_LIMIT_COUNTED: Duration = Duration::from_secs(60);

/// A completed exchange.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Length of the body received.
    pub body_bytes: u64,
    /// What TLS negotiated; `None` for plain HTTP.
    pub handshake: Option<Handshake>,
    /// Sessions that the server offered for resumption.
    pub sessions: Vec<Session>,
    /// The server's certificates; empty where it resumed, and of plain HTTP.
    pub chain: Vec<Vec<u8>>,
    /// The response as it came, head and body.
    pub response: Vec<u8>,
    /// The flights of the handshake; `None` for plain HTTP.
    pub script: Option<Script>,
    /// Bytes received that were no data: with data in plain, those of the handshake.
    pub overhead_in: u64,
    /// The same for bytes sent.
    pub overhead_out: u64,
    /// What was done when.
    pub moments: Vec<Moment>,
}

/// The end of something that the client did; it began where the moment before ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// What: a handshake message that was dealt with, by its name, or one of [`doing`].
    pub what: &'static str,
    /// Monotonic clock, nanoseconds.
    pub at_ns: u64,
    /// CPU time of this thread, nanoseconds.
    pub cpu_ns: u64,
    /// Bytes: of the message, or that were read or sent.
    pub bytes: u64,
}

/// What moments are of besides messages.
pub mod doing {
    /// Nothing yet.
    pub const BEGINNING: &str = "begin";
    /// Connecting.
    pub const CONNECTING: &str = "connect";
    /// Making the first flight.
    pub const HELLO: &str = "ClientHello made";
    /// Writing to the socket.
    pub const SENDING: &str = "send";
    /// Waiting for the server, and reading.
    pub const WAITING: &str = "wait and read";
    /// Making the request, and dealing with the response.
    pub const DATA: &str = "request and response";
}

impl Moment {
    fn now(what: &'static str, bytes: usize) -> Moment {
        let ns = |clock| {
            let now = clock_gettime(clock);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        Moment { what, at_ns: ns(ClockId::Monotonic), cpu_ns: ns(ClockId::ThreadCPUTime), bytes: bytes as u64 }
    }
}

impl Answer {
    /// The body, where the response is framed by its length.
    pub fn body(&self) -> &[u8] {
        let head = self.response.windows(4).position(|window| window == b"\r\n\r\n");
        head.map_or(&[], |at| &self.response[at + 4..])
    }

    /// A header of the response by its name.
    pub fn header(&self, name: &str) -> Option<String> {
        let head = String::from_utf8_lossy(&self.response);
        let lines = head.split("\r\n\r\n").next().unwrap_or_default().lines();
        let mut values = lines.filter_map(|line| line.split_once(':'));
        values.find(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    }

    /// Whether a session was resumed, be it by a real handshake or a skeleton.
    pub fn is_resumed(&self) -> bool {
        self.handshake.as_ref().is_some_and(|handshake| handshake.resumed.is_some())
    }
}

/// Why an exchange did not complete.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// TLS failed on our side or by the server's alert.
    #[error("TLS failed: {0}")]
    Tls(#[from] tlsdyno_tls::Error),
    /// The connection failed.
    #[error("connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// The server closed before its response was complete.
    #[error("the server closed the connection before its response was complete")]
    Closed,
    /// The response was not HTTP.
    #[error("the response is not HTTP: {0}")]
    Http(String),
    /// Nothing happened for too long.
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
            Failure::Http(_) | Failure::Timeout(_) => false,
        }
    }
}

struct Gathered {
    response: Response,
    bytes: Vec<u8>,
    fault: Option<String>,
    sessions: Vec<Session>,
    chain: Vec<Vec<u8>>,
    moments: Vec<Moment>,
}

impl Receiver for Gathered {
    fn message(&mut self, kind: u8, bytes: usize) {
        self.moments.push(Moment::now(handshake::name(kind), bytes));
    }

    fn certificates(&mut self, chain_der: &[&[u8]]) {
        self.chain = chain_der.iter().map(|der| der.to_vec()).collect();
    }

    fn plaintext(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if let Err(fault) = self.response.receive(bytes) {
            self.fault.get_or_insert(fault.to_string());
        }
    }

    fn session(&mut self, session: Session) {
        self.sessions.push(session);
    }
}

/// Milliseconds since the epoch, the time that sessions are dated with.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// A whole GET of an object of the workload, of one that answers with status 200 if there is one, and what it must be
/// answered with, to try a server with.
pub fn plain_get(workload: &Workload, host: &str) -> (Vec<u8>, Expect) {
    let objects = || workload.objects.iter().filter(|object| object.method == "GET");
    let answers = |object: &&Object| matches!(object.expect.status, Some(200) | None);
    // Headers may make it a request for a part, or none for what is known already.
    let bare = objects().filter(|object| object.headers.is_empty()).find(answers);
    let object = bare.or_else(|| objects().filter(|object| object.expect.body_bytes.is_none()).find(answers));
    match object.or_else(|| objects().next()) {
        Some(object) => (get(&object.path, &object.headers, host), object.expect),
        None => (get("/", "", host), Expect::default()),
    }
}

/// A whole GET, after which the server closes.
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
    exchange_with(address, tls, session, request, b"", TIME_LIMIT)
}

/// As [`exchange`], and may take so long.
pub fn exchange_within(
    limit: Duration,
    address: SocketAddr,
    tls: Option<&Arc<Config>>,
    session: Option<Session>,
    request: &[u8],
) -> Result<Answer, Failure> {
    exchange_with(address, tls, session, request, b"", limit)
}

/// As [`exchange`], and sends `raw` behind the request, past TLS: a server that takes records for plain HTTP would wait
/// for the end of the head that they seem to be.
pub fn exchange_past(
    address: SocketAddr,
    tls: Option<&Arc<Config>>,
    session: Option<Session>,
    request: &[u8],
    raw: &[u8],
) -> Result<Answer, Failure> {
    exchange_with(address, tls, session, request, raw, TIME_LIMIT)
}

fn exchange_with(
    address: SocketAddr,
    tls: Option<&Arc<Config>>,
    session: Option<Session>,
    request: &[u8],
    raw: &[u8],
    limit: Duration,
) -> Result<Answer, Failure> {
    let deadline = Instant::now() + limit;
    let beginning = Moment::now(doing::BEGINNING, 0);
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_nodelay(true)?;
    let mut gathered = Gathered {
        response: Response::new(false),
        bytes: Vec::new(),
        fault: None,
        sessions: Vec::new(),
        chain: Vec::new(),
        moments: vec![beginning, Moment::now(doing::CONNECTING, 0)],
    };
    let mut out = Vec::new();
    let mut client = tls.map(|config| Client::new(config, session, &mut SystemEntropy, now_ms(), &mut out));
    gathered.moments.extend(client.is_some().then(|| Moment::now(doing::HELLO, out.len())));
    let (mut requested, mut is_data) = (false, false);
    let (mut bytes_in, mut bytes_out) = (0, 0);
    let mut buffer = vec![0; 32 * 1024];
    let mut handshake = None;
    loop {
        if !requested {
            // With the hello, where that is possible.
            requested = send_request(client.as_mut(), request, &mut out)?;
            if requested {
                out.extend_from_slice(raw);
                gathered.moments.push(Moment::now(doing::DATA, 0));
            }
        }
        stream.write_all(&out)?;
        gathered.moments.extend((!out.is_empty()).then(|| Moment::now(doing::SENDING, out.len())));
        bytes_out += out.len() as u64;
        out.clear();
        if gathered.response.is_complete() && requested {
            break;
        }
        if Instant::now() > deadline {
            return Err(Failure::Timeout(limit));
        }
        let read = match stream.read(&mut buffer) {
            Ok(0) => 0,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(Failure::Timeout(limit));
            }
            Err(error) => return Err(error.into()),
        };
        if read == 0 {
            if let Some(client) = &mut client {
                // An ended client knows no handshake any more.
                handshake = client.handshake().cloned();
                client.end_of_input()?;
            }
            gathered.response.end_of_input().map_err(|_| Failure::Closed)?;
            break;
        }
        bytes_in += read as u64;
        // What comes once the handshake is over and the request has left is not of the handshake.
        is_data |= requested && client.as_ref().is_none_or(Client::is_connected);
        gathered.moments.push(Moment::now(if is_data { doing::DATA } else { doing::WAITING }, read));
        match &mut client {
            None => gathered.plaintext(&buffer[..read]),
            Some(client) => {
                let received =
                    client.receive(&mut buffer[..read], now_ms(), &mut SystemEntropy, &mut out, &mut gathered);
                if let Err(error) = received {
                    // The alert is a courtesy; the error below is the result.
                    let _ = stream.write_all(&out);
                    return Err(error.into());
                }
            }
        }
        if let Some(fault) = gathered.fault {
            return Err(Failure::Http(fault));
        }
        // Nothing comes behind close_notify, also where the server waits for ours before it closes.
        if client.as_ref().is_some_and(Client::peer_closed) {
            gathered.response.end_of_input().map_err(|_| Failure::Closed)?;
            break;
        }
    }
    let handshake = handshake.or_else(|| client.as_ref()?.handshake().cloned());
    if let Some(client) = &mut client {
        client.close(&mut out);
        let _ = stream.write_all(&out);
    }
    gathered.moments.push(Moment::now(doing::DATA, 0));
    let head = gathered.response.head().ok_or(Failure::Closed)?;
    let data_in = gathered.bytes.len() as u64;
    Ok(Answer {
        status: head.status,
        body_bytes: gathered.response.body_bytes(),
        handshake,
        sessions: gathered.sessions,
        chain: gathered.chain,
        response: gathered.bytes,
        script: client.as_ref().map(Client::script),
        overhead_in: bytes_in - data_in,
        overhead_out: bytes_out - (request.len() + raw.len()) as u64,
        moments: gathered.moments,
    })
}

/// Sends the request if it can be sent now; whether it was.
fn send_request(client: Option<&mut Client>, request: &[u8], out: &mut Vec<u8>) -> Result<bool, Failure> {
    match client {
        None => out.extend_from_slice(request),
        Some(client) if client.room() >= request.len() => client.send(request, out)?,
        Some(_) => return Ok(false),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_tried_with_a_page_if_there_is_one() {
        let object = |path: &str, status| Object {
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: "X: y\r\n".to_owned(),
            body_bytes: 0,
            expect: Expect { status: Some(status), body_bytes: None },
        };
        let tried = |objects: Vec<Object>| {
            let (request, expect) = plain_get(&Workload { objects, ..Workload::default() }, "a");
            (String::from_utf8(request).unwrap().lines().next().unwrap().to_owned(), expect.status)
        };
        let redirect = || object("/old", 301);
        assert_eq!(tried(vec![redirect()]), ("GET /old HTTP/1.1".to_owned(), Some(301)));
        assert_eq!(tried(vec![redirect(), object("/new", 200)]), ("GET /new HTTP/1.1".to_owned(), Some(200)));
        assert_eq!(tried(Vec::new()), ("GET / HTTP/1.1".to_owned(), None));
    }

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
}
