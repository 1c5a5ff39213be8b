//! One connection of a round, with the times of its phases.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::OnceLock;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tlsdyno_base::exchange::{Answer, Exchange, Failure};
use tlsdyno_sys::{connect_round_trip_ns, monotonic_ns, stamp_arrivals};
use tlsdyno_tls::{Error, Handshake, Session};

use super::fault::{Cause, FaultKind};
use super::round::Visit;
use super::site::Site;

/// How long to wait for tickets that come after the answer. Most servers send them before it.
const TICKET_PATIENCE: Duration = Duration::from_millis(100);

pub struct Seen {
    pub visit: Visit,
    /// Address of this machine's end.
    pub local: Option<IpAddr>,
    pub handshake: Handshake,
    pub answer: Answer,
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
    let begun = Exchange::over(stream, site.timeout())
        .and_then(|exchange| exchange.asking(Some(&site.configs[usize::from(early)]), session, &site.request, b""));
    let mut exchange = begun.map_err(|failure| cause(failure, FaultKind::Local))?;
    let answered = loop {
        match exchange.answered() {
            Err(Failure::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
            // Many servers close without close_notify; the framing of HTTP tells whether anything is missing.
            Err(Failure::Tls(Error::Truncated)) => break exchange.ended(),
            answered => break answered,
        }
    };
    let late = if exchange.is_finished() { FaultKind::Timeout } else { FaultKind::HandshakeTimeout };
    answered.map_err(|failure| cause(failure, late))?;
    exchange.wait_for_ticket(TICKET_PATIENCE);
    let mut answer = exchange.end().map_err(|failure| cause(failure, late))?;
    let times = answer.times;
    let (Some(handshake), Some(finished_ns), Some(requested_ns)) =
        (answer.handshake.take(), times.finished_ns, times.requested_ns)
    else {
        return Err(cause(Failure::Closed, late));
    };
    let since = |ns: Option<u64>, began_ns: u64| ns.unwrap_or(times.last_byte_ns).saturating_sub(began_ns);
    let visit = Visit {
        tcp_ns,
        hello_ns: since(times.server_hello_ns, times.hello_ns),
        handshake_ns: finished_ns - times.hello_ns,
        first_byte_ns: since(times.first_byte_ns, requested_ns),
        whole_ns: times.last_byte_ns.saturating_sub(requested_ns),
    };
    Ok(Seen { visit, local, handshake, answer })
}

/// Why a round failed. `late`: what it is called when the time-out passed.
fn cause(failure: Failure, late: FaultKind) -> Cause {
    match failure {
        Failure::Tls(error) => error.into(),
        Failure::Io(error) => Cause::of_io(&error, late),
        Failure::Closed => Cause::new(FaultKind::Closed, "the server closed before its answer was complete"),
        // The robot speaks HTTP, but the client knows others.
        Failure::Http(_) | Failure::Opening(_) | Failure::Answer(_) => Cause::new(FaultKind::Http, failure.to_string()),
        Failure::Timeout(_) => Cause::new(late, "no answer in time"),
    }
}
