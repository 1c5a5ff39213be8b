//! One connection of a round, with the times of its phases.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tlsdyno_base::entropy::SystemEntropy;
use tlsdyno_engine::sys::{connect_round_trip_ns, monotonic_ns, receive_stamped, stamp_arrivals};
use tlsdyno_tls::{Client, Config, EarlyData, Handshake, Receiver, Session, Version};
use tlsdyno_wire::http::{self, Response};

use super::fault::{Cause, FaultKind};
use super::round::Visit;
use super::site::Site;

/// How much of an answer's head is kept for its `Server` header, in bytes.
const HEAD_KEPT: usize = 16 * 1024;
/// Sessions of one connection that are kept: a server may send tickets without end.
const SESSIONS_MAX: usize = 8;
/// How long to wait for tickets that come after the answer. Most servers send them before it.
const TICKET_PATIENCE: Duration = Duration::from_millis(100);

/// What a connection showed.
pub struct Seen {
    pub visit: Visit,
    /// This machine's end.
    pub local: Option<IpAddr>,
    pub handshake: Handshake,
    pub sessions: Vec<Session>,
    /// The server's certificates; empty where it resumed.
    pub chain: Vec<Vec<u8>>,
    pub status: u16,
    pub body_bytes: u64,
    /// The header `Server`.
    pub server: String,
}

#[derive(Default)]
struct Gathered {
    response: Option<Response>,
    head: Vec<u8>,
    began: bool,
    fault: Option<http::Fault>,
    sessions: Vec<Session>,
    chain: Vec<Vec<u8>>,
}

impl Gathered {
    fn response(&mut self) -> &mut Response {
        self.response.get_or_insert_with(|| Response::new(false))
    }

    fn is_complete(&self) -> bool {
        self.response.as_ref().is_some_and(Response::is_complete)
    }
}

impl Receiver for Gathered {
    fn plaintext(&mut self, bytes: &[u8]) {
        self.began |= !bytes.is_empty();
        let room = HEAD_KEPT.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if let Err(fault) = self.response().receive(bytes) {
            self.fault.get_or_insert(fault);
        }
    }

    fn session(&mut self, session: Session) {
        if self.sessions.len() < SESSIONS_MAX {
            self.sessions.push(session);
        }
    }

    fn certificates(&mut self, chain_der: &[&[u8]]) {
        self.chain = chain_der.iter().map(|der| der.to_vec()).collect();
    }
}

/// Has the kernel stamp packets from now on, as long as this program runs: it takes a moment to begin, and a change of
/// that would stop all CPUs for another in the middle of a round. Without it the times are those at which the program
/// got to see the packets.
pub fn stamp_packets() {
    static HOLDER: OnceLock<Option<UdpSocket>> = OnceLock::new();
    HOLDER.get_or_init(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        stamp_arrivals(&socket).ok().map(|()| socket)
    });
}

/// Connects TCP; answers how long that took, in nanoseconds: from SYN to SYN-ACK as the kernel has it, for how soon a
/// busy machine wakes up this program says nothing about the site. Where a packet was lost, until the program knew.
pub fn connect(site: &Site, address: SocketAddr) -> Result<(TcpStream, u64), Cause> {
    let local = |error: io::Error| Cause::new(FaultKind::Local, error.to_string());
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).map_err(local)?;
    if let Some(source) = site.options.source {
        socket.bind(&SocketAddr::new(source, 0).into()).map_err(local)?;
    }
    socket.set_tcp_nodelay(true).and_then(|()| stamp_arrivals(&socket)).map_err(local)?;
    let began_ns = monotonic_ns();
    let outcome = socket.connect_timeout(&address.into(), site.timeout());
    let elapsed_ns = monotonic_ns() - began_ns;
    outcome.map_err(|error| Cause::of_io(&error, FaultKind::ConnectTimeout))?;
    let tcp_ns = connect_round_trip_ns(&socket).map_or(elapsed_ns, |round_trip_ns| round_trip_ns.min(elapsed_ns));
    Ok((socket.into(), tcp_ns))
}

/// Connects, does the handshake and gets the page. `session` is offered; with `early` the request goes with the hello.
pub fn visit(site: &Site, address: SocketAddr, session: Option<Session>, early: bool) -> Result<Seen, Cause> {
    let (stream, tcp_ns) = connect(site, address)?;
    let local = stream.local_addr().ok().map(|local| local.ip());
    let mut walk = Walk::begin(stream, site, &site.configs[usize::from(early)], session)?;
    walk.handshake_and_answer(site)?;
    Ok(Seen { local, ..walk.end(tcp_ns)? })
}

/// A connection under way.
struct Walk {
    stream: TcpStream,
    client: Client,
    gathered: Gathered,
    out: Vec<u8>,
    buffer: Vec<u8>,
    hello_ns: u64,
    server_hello_ns: Option<u64>,
    finished_ns: Option<u64>,
    requested_ns: Option<u64>,
    first_byte_ns: Option<u64>,
    last_byte_ns: u64,
    /// When the stage that goes on must be over.
    deadline_ns: u64,
    /// What was negotiated, kept beyond the end of the stream.
    handshake: Option<Handshake>,
}

impl Walk {
    fn begin(stream: TcpStream, site: &Site, config: &Arc<Config>, session: Option<Session>) -> Result<Walk, Cause> {
        let timeout = site.timeout();
        let set = stream.set_read_timeout(Some(timeout)).and_then(|()| stream.set_write_timeout(Some(timeout)));
        set.map_err(|error| Cause::new(FaultKind::Local, error.to_string()))?;
        let (mut out, buffer) = (Vec::with_capacity(4096), vec![0; 32 * 1024]);
        let mut client = Client::new(config, session, &mut SystemEntropy, now_ms(), &mut out);
        let goes_early = client.room() >= site.request.len();
        if goes_early {
            client.send(&site.request, &mut out)?;
        }
        let hello_ns = monotonic_ns();
        Ok(Walk {
            stream,
            client,
            gathered: Gathered::default(),
            out,
            buffer,
            hello_ns,
            server_hello_ns: None,
            finished_ns: None,
            requested_ns: goes_early.then_some(hello_ns),
            first_byte_ns: None,
            last_byte_ns: hello_ns,
            deadline_ns: hello_ns + timeout.as_nanos() as u64,
            handshake: None,
        })
    }

    fn handshake_and_answer(&mut self, site: &Site) -> Result<(), Cause> {
        // The hello is ready, and goes next.
        self.hello_ns = monotonic_ns();
        self.last_byte_ns = self.hello_ns;
        self.requested_ns = self.requested_ns.map(|_| self.hello_ns);
        loop {
            self.send(self.late())?;
            if self.gathered.is_complete() && self.finished_ns.is_some() {
                return Ok(());
            }
            let (read, age_ns) = self.read()?;
            let now_ns = monotonic_ns();
            if read == 0 {
                self.client.end_of_input().or_else(|error| match error {
                    // Many servers close without close_notify; the framing of HTTP tells whether anything is missing.
                    tlsdyno_tls::Error::Truncated => Ok(()),
                    error => Err(error),
                })?;
                return self.ended(now_ns);
            }
            // The stamp is of the wall clock, which may be set in between: nothing arrives before what was sent for it.
            let arrived_ns = now_ns.saturating_sub(age_ns.unwrap_or(0)).max(self.last_byte_ns);
            self.server_hello_ns.get_or_insert(arrived_ns);
            self.receive(read)?;
            if self.gathered.began {
                self.first_byte_ns.get_or_insert(arrived_ns);
                self.last_byte_ns = arrived_ns;
            }
            if self.client.is_connected() && self.finished_ns.is_none() {
                self.open(site)?;
            }
            if self.client.peer_closed() {
                // Nothing follows close_notify, even if the server waits for our end of the connection.
                return self.ended(arrived_ns);
            }
            if now_ns > self.deadline_ns {
                return Err(Cause::new(self.late(), "no answer in time"));
            }
        }
    }

    /// The server sends no more: that is the end of an answer that says no length.
    fn ended(&mut self, now_ns: u64) -> Result<(), Cause> {
        let closed = |_| Cause::new(FaultKind::Closed, "the server closed before its answer was complete");
        self.gathered.response().end_of_input().map_err(closed)?;
        self.last_byte_ns = now_ns;
        Ok(())
    }

    /// The handshake is complete: the request travels with our Finished.
    fn open(&mut self, site: &Site) -> Result<(), Cause> {
        let now_ns = monotonic_ns();
        self.finished_ns = Some(now_ns);
        self.handshake = self.client.handshake().cloned();
        self.deadline_ns = now_ns + site.timeout().as_nanos() as u64;
        if self.requested_ns.is_none() {
            self.client.send(&site.request, &mut self.out)?;
            self.requested_ns = Some(monotonic_ns());
        }
        Ok(())
    }

    fn late(&self) -> FaultKind {
        if self.finished_ns.is_some() { FaultKind::Timeout } else { FaultKind::HandshakeTimeout }
    }

    fn send(&mut self, late: FaultKind) -> Result<(), Cause> {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out).map_err(|error| Cause::of_io(&error, late))?;
            self.out.clear();
        }
        Ok(())
    }

    /// Bytes that came, and how long ago they did, in nanoseconds, where the kernel says.
    fn read(&mut self) -> Result<(usize, Option<u64>), Cause> {
        loop {
            match receive_stamped(&self.stream, &mut self.buffer) {
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Cause::of_io(&error, self.late())),
            }
        }
    }

    fn receive(&mut self, read: usize) -> Result<(), Cause> {
        let bytes = &mut self.buffer[..read];
        let received = self.client.receive(bytes, now_ms(), &mut SystemEntropy, &mut self.out, &mut self.gathered);
        if let Err(error) = received {
            // The alert is a courtesy; the error is the result.
            let _ = self.stream.write_all(&self.out);
            return Err(error.into());
        }
        match self.gathered.fault {
            Some(fault) => Err(Cause::new(FaultKind::Http, format!("the answer is not HTTP/1: {fault}"))),
            None => Ok(()),
        }
    }

    /// What the connection showed, once the clock has stopped.
    fn end(mut self, tcp_ns: u64) -> Result<Seen, Cause> {
        self.wait_for_tickets();
        self.client.close(&mut self.out);
        // The page is there: what becomes of the farewell is nobody's trouble.
        let _ = self.stream.write_all(&self.out);
        let closed = || Cause::new(FaultKind::Closed, "the server closed before its answer was complete");
        let handshake = self.handshake.ok_or_else(closed)?;
        let response = self.gathered.response.as_ref().ok_or_else(closed)?;
        let (finished_ns, requested_ns) = self.finished_ns.zip(self.requested_ns).ok_or_else(closed)?;
        let since = |ns: Option<u64>, began_ns: u64| ns.unwrap_or(self.last_byte_ns).saturating_sub(began_ns);
        let visit = Visit {
            tcp_ns,
            hello_ns: since(self.server_hello_ns, self.hello_ns),
            handshake_ns: finished_ns - self.hello_ns,
            first_byte_ns: since(self.first_byte_ns, requested_ns),
            whole_ns: self.last_byte_ns.saturating_sub(requested_ns),
        };
        Ok(Seen {
            visit,
            local: None,
            handshake,
            status: response.head().map_or(0, |head| head.status),
            body_bytes: response.body_bytes(),
            server: server_header(&self.gathered.head),
            sessions: self.gathered.sessions,
            chain: self.gathered.chain,
        })
    }

    fn wait_for_tickets(&mut self) {
        let is_tls13 = self.client.handshake().is_some_and(|handshake| handshake.version == Version::Tls13);
        if !is_tls13 || !self.gathered.sessions.is_empty() || self.client.peer_closed() {
            return;
        }
        if self.stream.set_read_timeout(Some(TICKET_PATIENCE)).is_ok()
            && let Ok(read @ 1..) = self.stream.read(&mut self.buffer)
        {
            let _ = self.receive(read);
        }
    }
}

/// Milliseconds of the clock that sessions are dated with.
pub fn now_ms() -> u64 {
    monotonic_ns() / 1_000_000
}

/// Whether early data were taken.
pub fn is_early_accepted(handshake: &Handshake) -> bool {
    handshake.early_data == EarlyData::Accepted
}

/// The header `Server` of an answer; empty without one.
fn server_header(answer: &[u8]) -> String {
    let head = answer.split(|byte| *byte == b'\n').take_while(|line| !line.trim_ascii().is_empty());
    let values = head.filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon].eq_ignore_ascii_case(b"server").then(|| line[colon + 1..].trim_ascii())
    });
    values.map(|value| String::from_utf8_lossy(value).chars().take(80).collect()).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_names_itself_in_the_head_only() {
        let answer = b"HTTP/1.1 200 OK\r\nX: y\r\nserver:  nginx/1.22 \r\n\r\nServer: body\r\n";
        assert_eq!(server_header(answer), "nginx/1.22");
        assert_eq!(server_header(b"HTTP/1.1 200 OK\r\n\r\nServer: body\r\n"), "");
        let long = [b"A: b\r\nServer: ".as_slice(), &[b'x'; 500]].concat();
        assert_eq!(server_header(&long).len(), 80);
    }

    proptest::proptest! {
        /// Whatever a server sends, in whatever pieces: one name, of bounded length.
        #[test]
        fn names_are_bounded_and_do_not_depend_on_pieces(head in "(\\PC|[\r\n:]){0,300}", piece in 1usize..50) {
            let bytes = format!("HTTP/1.1 200 OK\r\nServer:{head}");
            let gathered = |piece: usize| {
                let mut gathered = Gathered::default();
                bytes.as_bytes().chunks(piece).for_each(|piece| gathered.plaintext(piece));
                (server_header(&gathered.head), gathered.fault.is_some())
            };
            let name = gathered(piece);
            proptest::prop_assert!(name.0.chars().count() <= 80);
            proptest::prop_assert_eq!(name, gathered(bytes.len()));
        }
    }
}
