//! One connection of an agent to a service: a state machine on a socket that never waits.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection};
use rustls_pki_types::ServerName;
use socket2::{Domain, Protocol, Socket, Type};

use crate::frame::{Answer, first};
use crate::identity::PROTOCOL;

/// The handshake must be done by then.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two tries: twice as long each time, and never so long that a service that is back is found too late.
const PAUSES: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(200));
/// After a silence, where another link answers: a machine that accepts connections may still answer nothing.
const PAUSES_AFTER_SILENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(16));

/// Where a service is, and how it proves that.
#[derive(Clone, Debug)]
pub struct Service {
    pub address: SocketAddr,
    /// The name in its certificate.
    pub name: ServerName<'static>,
    pub tls: Arc<ClientConfig>,
}

/// A connection to a service, or the pause before the next one.
pub struct Link {
    pub service: Service,
    open: Option<Open>,
    pause: Duration,
    pause_after_silence: Duration,
    retry_at: Instant,
    pub in_flight: u32,
    /// When the service last said something.
    pub heard: Instant,
    /// Why the last connection failed.
    pub fault: String,
}

struct Open {
    stream: TcpStream,
    tls: ClientConnection,
    input: Vec<u8>,
    output: Vec<u8>,
    began: Instant,
}

impl Link {
    pub fn new(service: Service) -> Link {
        let (pause, pause_after_silence) = (PAUSES.0, PAUSES_AFTER_SILENCE.0);
        let fault = format!("{} was not tried yet", service.address);
        let now = Instant::now();
        Link { service, open: None, pause, pause_after_silence, retry_at: now, in_flight: 0, heard: now, fault }
    }

    pub fn is_up(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !open.tls.is_handshaking())
    }

    /// The socket to wait for, of a connection that was just begun, if one is due.
    pub fn begin_if_due(&mut self, now: Instant) -> io::Result<Option<&TcpStream>> {
        if self.open.is_some() || now < self.retry_at {
            return Ok(None);
        }
        let Service { address, name, tls } = self.service.clone();
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                self.close(now, &error);
                return Ok(None);
            }
            _ => {}
        }
        let mut tls = ClientConnection::new(tls, name).map_err(io::Error::other)?;
        tls.set_buffer_limit(None);
        self.open = Some(Open { stream: socket.into(), tls, input: Vec::new(), output: Vec::new(), began: now });
        Ok(self.open.as_ref().map(|open| &open.stream))
    }

    /// Ends the connection; the next one is begun after a pause.
    pub fn close(&mut self, now: Instant, why: &dyn std::fmt::Display) {
        self.fault = format!("{}: {why}", self.service.address);
        self.open = None;
        self.in_flight = 0;
        self.retry_at = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSES.1);
    }

    /// Lets it rest longer: it answered nothing, and another one does.
    pub fn rest(&mut self, now: Instant) {
        self.retry_at = now + self.pause_after_silence;
        self.pause_after_silence = (self.pause_after_silence * 2).min(PAUSES_AFTER_SILENCE.1);
    }

    pub fn is_late(&self, now: Instant) -> bool {
        self.open.as_ref().is_some_and(|open| open.tls.is_handshaking() && now - open.began > PATIENCE)
    }

    /// Takes a request, to be sent with the next [`Link::pump`]: all of them in one record, as far as they fit.
    pub fn put(&mut self, frame: &[u8]) {
        if let Some(open) = &mut self.open {
            self.in_flight += 1;
            open.output.extend_from_slice(frame);
        }
    }

    /// Reads and writes as far as the socket allows, and hands over each answer.
    ///
    /// # Errors
    /// The connection is of no use any more: [`Link::close`] it.
    pub fn pump(&mut self, mut take: impl FnMut(&Answer)) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let was_handshaking = open.tls.is_handshaking();
        let mut answers = 0;
        let read = open.read(|answer| {
            answers += 1;
            take(answer);
        });
        self.in_flight = self.in_flight.saturating_sub(answers);
        if answers > 0 {
            // Only an answer proves a service: one that is full ends connections after their handshake.
            self.heard = Instant::now();
            (self.pause, self.pause_after_silence) = (PAUSES.0, PAUSES_AFTER_SILENCE.0);
        }
        // With an alert where something was not understood.
        let written = open.write();
        read.and(written)?;
        if was_handshaking && !open.tls.is_handshaking() {
            if open.tls.alpn_protocol() != Some(PROTOCOL) {
                return Err(io::Error::other("it is no cryptoserver"));
            }
            self.heard = Instant::now();
        }
        Ok(())
    }
}

impl Open {
    fn read(&mut self, mut take: impl FnMut(&Answer)) -> io::Result<()> {
        loop {
            match self.tls.read_tls(&mut self.stream) {
                Ok(0) => return Err(io::Error::other("it has closed the connection")),
                Ok(_) => {}
                Err(error) if is_for_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            let state = self.tls.process_new_packets().map_err(io::Error::other)?;
            let before = self.input.len();
            self.input.resize(before + state.plaintext_bytes_to_read(), 0);
            self.tls.reader().read_exact(&mut self.input[before..])?;
            let mut done = 0;
            while let Some((answer, bytes)) = first::<Answer>(&self.input[done..]).map_err(io::Error::other)? {
                take(&answer);
                done += bytes;
            }
            self.input.drain(..done);
        }
    }

    fn write(&mut self) -> io::Result<()> {
        // It is a buffer without a limit.
        self.tls.writer().write_all(&self.output)?;
        self.output.clear();
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if is_for_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether an error of a socket is none: nothing can be read or written yet, or it is not connected yet.
pub fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected | io::ErrorKind::Interrupted)
}
