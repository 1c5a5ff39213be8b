//! Passing requests on to a server behind: what makes the built-in server a proxy that ends TLS, with connections to
//! that server that are kept and used again whenever possible (the secure proxy of Mraz, Witting and Dantzig 2002).
//!
//! Requests with a body are refused: what is measured asks for pages.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use socket2::{Domain, Protocol, Type};
use tlsdyno_wire::http::{RequestHead, Response};

use super::limits::RECORD_BYTES;
use super::socket::Socket;

/// Tokens of sockets to the origin begin here, above those of listeners.
pub const FIRST_TOKEN: u64 = 1 << 33;

/// The header that is about nothing else.
const CONNECTION: &[u8] = b"connection";
/// Headers that are about one connection, and not passed on, beside those that `Connection` names (RFC 9110 section
/// 7.6.1); nor is `Expect`, as no request has a body.
const OF_ONE_CONNECTION: [&[u8]; 6] = [CONNECTION, b"keep-alive", b"proxy-connection", b"te", b"upgrade", b"expect"];

/// The sockets of a worker to the server behind.
#[derive(Debug)]
pub struct Origin {
    address: SocketAddr,
    epoll: OwnedFd,
    sockets: Vec<Option<Back>>,
    free: Vec<u32>,
    /// Open sockets that carry no request, the last used last.
    idle: Vec<u32>,
}

#[derive(Debug)]
struct Back {
    socket: Socket,
    /// The connection whose request it carries.
    client: Option<u32>,
    /// It has carried a request to its end before.
    is_used: bool,
}

/// A request that is with the origin.
#[derive(Debug)]
pub struct Exchange {
    back: u32,
    request: Vec<u8>,
    /// Bytes of it that have gone.
    sent: usize,
    response: Response,
    /// Bytes of the response that have come and are to go to the client; its head not before it is whole.
    pub pending: Vec<u8>,
    /// Bytes of them that have gone.
    pub gone: usize,
    /// The client can send another request afterwards.
    pub persists: bool,
    is_head_passed: bool,
    has_begun: bool,
    /// It may be made again where nothing was answered.
    is_repeatable: bool,
    /// What came was not the response to it alone: what the socket says next is nobody's answer.
    is_broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is something for the client in [`Exchange::pending`].
    Some,
    /// Nothing now; an event of the socket to the origin will tell when.
    Blocked,
    /// All has come, and nothing is left for the client.
    Complete,
    /// The origin cannot be reached, and the client has nothing of an answer yet.
    Unreachable,
    /// The origin broke off, or speaks no HTTP.
    Broken,
}

impl Origin {
    /// The server at `address`, whose sockets `epoll` watches.
    pub fn new(address: SocketAddr, epoll: OwnedFd) -> Origin {
        Origin { address, epoll, sockets: Vec::new(), free: Vec::new(), idle: Vec::new() }
    }

    /// Takes a request of the connection `client`. `None`: there is no way to the origin.
    pub fn begin(&mut self, request: &RequestHead<'_>, client: u32) -> Option<Exchange> {
        let back = match self.idle.pop() {
            Some(back) => {
                self.sockets[back as usize].as_mut()?.client = Some(client);
                back
            }
            None => self.connect(client).ok()?,
        };
        Some(Exchange {
            back,
            request: passed_on(request),
            sent: 0,
            response: Response::new(request.method == b"HEAD"),
            pending: Vec::new(),
            gone: 0,
            persists: request.persists,
            is_head_passed: false,
            has_begun: false,
            is_repeatable: matches!(request.method, b"GET" | b"HEAD"),
            is_broken: false,
        })
    }

    /// Goes on with an exchange of which the client has all that came so far.
    pub fn go_on(&mut self, exchange: &mut Exchange, input: &mut [u8]) -> Progress {
        loop {
            if exchange.response.is_complete() {
                return Progress::Complete;
            }
            let Some(back) = self.sockets.get_mut(exchange.back as usize).and_then(Option::as_mut) else {
                return Progress::Broken;
            };
            let moved = match exchange.request.get(exchange.sent..).filter(|left| !left.is_empty()) {
                Some(left) => back.socket.write(left).map(|bytes| exchange.sent += bytes).map(|()| None),
                None => back.socket.read(&mut input[..RECORD_BYTES]).map(Some),
            };
            match moved {
                Ok(None) => {}
                Ok(Some(0)) if exchange.response.end_of_input().is_ok() => return Progress::Complete,
                Ok(Some(bytes)) if bytes > 0 => match exchange.take(&input[..bytes]) {
                    Ok(()) if exchange.is_head_passed => return Progress::Some,
                    // A head goes whole.
                    Ok(()) => {}
                    Err(()) => return Progress::Broken,
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Blocked,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A kept socket may have been closed by the origin when the request was on its way; nothing was
                // answered, so that one that changes nothing can be made again (RFC 9112 section 9.3.1).
                Ok(Some(_)) | Err(_) if back.is_used && exchange.is_repeatable && !exchange.has_begun => {
                    let Some(client) = back.client else { return Progress::Broken };
                    self.drop_socket(exchange.back);
                    match self.connect(client) {
                        Ok(back) => (exchange.back, exchange.sent) = (back, 0),
                        Err(_) => return Progress::Unreachable,
                    }
                }
                Ok(Some(_)) | Err(_) if !exchange.is_head_passed => return Progress::Unreachable,
                Ok(Some(_)) | Err(_) => return Progress::Broken,
            }
        }
    }

    /// Ends an exchange: its socket is kept for another if its response ended so.
    pub fn end(&mut self, exchange: &Exchange) {
        let persists = exchange.response.head().is_some_and(|head| head.persists);
        let may_be_kept = persists && exchange.response.is_complete() && !exchange.is_broken;
        match self.sockets.get_mut(exchange.back as usize).and_then(Option::as_mut) {
            Some(back) if may_be_kept => {
                (back.client, back.is_used) = (None, true);
                self.idle.push(exchange.back);
            }
            _ => self.drop_socket(exchange.back),
        }
    }

    /// Takes note of an event of a socket. Answers the connection that it concerns; an idle one that says anything is
    /// closed.
    pub fn note(&mut self, back: u32, flags: EventFlags) -> Option<u32> {
        let socket = self.sockets.get_mut(back as usize)?.as_mut()?;
        let has_ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if has_ended || flags.contains(EventFlags::IN) {
            socket.socket.note_readable(has_ended);
            if socket.client.is_none() {
                self.idle.retain(|other| *other != back);
                self.drop_socket(back);
                return None;
            }
        }
        self.sockets[back as usize].as_ref()?.client
    }

    fn connect(&mut self, client: u32) -> io::Result<u32> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = socket2::Socket::new(Domain::for_address(self.address), kind, Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&self.address.into()) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                return Err(error);
            }
            _ => {}
        }
        let socket = Socket::new(TcpStream::from(socket));
        let place = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(None);
            (self.sockets.len() - 1) as u32
        });
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let token = EventData::new_u64(FIRST_TOKEN + u64::from(place));
        if let Err(error) = epoll::add(&self.epoll, &socket, token, interest) {
            self.free.push(place);
            return Err(error.into());
        }
        self.sockets[place as usize] = Some(Back { socket, client: Some(client), is_used: false });
        Ok(place)
    }

    /// Closes a socket; the kernel takes its descriptor out of the epoll set.
    fn drop_socket(&mut self, back: u32) {
        if self.sockets.get_mut(back as usize).and_then(Option::take).is_some() {
            self.free.push(back);
        }
    }
}

impl Exchange {
    /// Takes bytes of the response. The error says that they are none.
    fn take(&mut self, input: &[u8]) -> Result<(), ()> {
        self.has_begun = true;
        self.is_broken = true;
        let used = self.response.receive(input).map_err(drop)?;
        // More than was asked for: whose it is cannot be known.
        if used < input.len() {
            return Err(());
        }
        self.is_broken = false;
        self.pending.extend_from_slice(input);
        if self.response.head().is_some() && !self.is_head_passed {
            // A body that ends with the connection ends the client's too.
            self.persists &= !self.response.ends_with_connection();
            self.pending = with_own_connection(&self.pending, self.persists).ok_or(())?;
            self.is_head_passed = true;
        }
        Ok(())
    }
}

fn passed_on(request: &RequestHead<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(request.bytes + 16);
    for part in [request.method, b" ", request.target, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(part);
    }
    let connection = request.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(CONNECTION));
    let named: Vec<&[u8]> = connection.flat_map(|(_, value)| items(value)).collect();
    for (name, value) in request.headers.iter().filter(|(name, _)| !is_of_one_connection(name, &named)) {
        for part in [name, b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"\r\n");
    out
}

fn is_of_one_connection(name: &[u8], named: &[&[u8]]) -> bool {
    OF_ONE_CONNECTION.iter().chain(named).any(|other| name.eq_ignore_ascii_case(other))
}

fn items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// A response's bytes, with what its head says of the connection in our words; interim responses before it are left
/// out, for they help nobody whose request is whole. `None`: its head does not end.
fn with_own_connection(bytes: &[u8], persists: bool) -> Option<Vec<u8>> {
    let mut rest = bytes;
    let (lines, body) = loop {
        let (lines, behind) = head_lines(rest)?;
        let status = lines.first().and_then(|line| line.split(|&byte| byte == b' ').nth(1));
        if status.is_none_or(|status| status.first() != Some(&b'1')) {
            break (lines, behind);
        }
        rest = behind;
    };
    let named: Vec<&[u8]> = lines.iter().filter_map(|line| connection_value(line)).flat_map(items).collect();
    let mut out = Vec::with_capacity(bytes.len() + 24);
    for line in &lines {
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        if !is_of_one_connection(name, &named) {
            out.extend_from_slice(line);
        }
    }
    out.extend_from_slice(if persists { b"Connection: keep-alive\r\n\r\n" } else { b"Connection: close\r\n\r\n" });
    out.extend_from_slice(body);
    Some(out)
}

/// What a line says if it is the header `Connection`.
fn connection_value(line: &[u8]) -> Option<&[u8]> {
    let (name, value) = line.split_at_checked(CONNECTION.len())?;
    value.strip_prefix(b":").filter(|_| name.eq_ignore_ascii_case(CONNECTION))
}

/// The lines of a head with their ends, and what stands behind the empty one. A line of blanks is not empty, as for
/// [`Response`].
fn head_lines(bytes: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let (mut lines, mut rest) = (Vec::new(), bytes);
    loop {
        let (line, behind) = rest.split_at(rest.iter().position(|&byte| byte == b'\n')? + 1);
        if matches!(line, b"\n" | b"\r\n") {
            return Some((lines, behind));
        }
        lines.push(line);
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_wire::http::request_head;

    use super::*;

    #[test]
    fn what_is_about_one_connection_stays_there() {
        let text = b"GET /a?b HTTP/1.0\r\nHost: x\r\nConnection: close\r\nX-Y:  z \r\nKeep-Alive: 5\r\n\r\nmore";
        let request = request_head(text).unwrap().unwrap();
        assert_eq!(passed_on(&request), b"GET /a?b HTTP/1.1\r\nHost: x\r\nX-Y: z\r\n\r\n");
        let response = b"HTTP/1.1 200 OK\r\nconnection: keep-alive\r\nContent-Length: 2\r\n\r\nab";
        let with = |persists| String::from_utf8(with_own_connection(response, persists).unwrap()).unwrap();
        assert_eq!(with(true), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nab");
        assert_eq!(with(false), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab");
        assert_eq!(with_own_connection(b"HTTP/1.1 200 OK\r\n", true), None);
        let early =
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 None\r\nConnection: X-Y\r\nX-Y: 1\r\n\r\n";
        assert_eq!(with_own_connection(early, false).unwrap(), b"HTTP/1.1 204 None\r\nConnection: close\r\n\r\n");
        let blank = b"HTTP/1.1 200 OK\r\nX: a\r\n \r\nContent-Length: 0\r\n\r\n";
        let passed = with_own_connection(blank, true).unwrap();
        assert_eq!(passed.windows(4).filter(|end| end == b"\r\n\r\n").count(), 1);
    }
}
