//! One connection through the dispatcher: a client, a backend, and a direction each way.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use tlsdyno_wire::http::TargetReader;
use tlsdyno_wire::session_keys::ClientReader;

use super::learn::Student;
use super::memory::Object;
use super::relay::Direction;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Backend,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// The client has not said enough to choose a backend.
    Hello,
    Connecting,
    Relaying,
}

/// A socket and what the reactor was asked to tell about it.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) descriptor: OwnedFd,
    /// Room for output is told too.
    pub(super) tells_room: bool,
    pub(super) watched: bool,
}

#[derive(Debug)]
pub(super) struct BackendSocket {
    pub(super) socket: Socket,
    pub(super) slot: u8,
}

/// Looks for what a backend is chosen by in what a client says first.
#[derive(Debug)]
pub(super) enum Opening {
    Hello(ClientReader),
    Request(TargetReader),
}

/// State of one connection. What it needs only for a while is on the heap, so that an idle one is small.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Socket,
    pub(super) client_address: SocketAddr,
    /// It is among those of its address.
    pub(super) counted: bool,
    /// It is among those whose patience ends.
    pub(super) awaited: bool,
    pub(super) backend: Option<BackendSocket>,
    pub(super) phase: ConnectionPhase,
    /// It went to the backend that is known to hold its session: nothing to remember about its address.
    pub(super) known: bool,
    /// Slots that could not be reached, as a mask.
    pub(super) tried: u64,
    /// Looks for the hello or the request, while it has come in part.
    pub(super) opening: Option<Box<Opening>>,
    /// What the client asks for first, where that decides.
    pub(super) object: Option<Object>,
    /// What the client offers, and follows what becomes of it; until that is known.
    pub(super) student: Option<Box<Student>>,
    /// From the client, to be sent once a backend is connected.
    pub(super) first_bytes: Vec<u8>,
    /// From the client to the backend.
    pub(super) up: Direction,
    /// From the backend to the client.
    pub(super) down: Direction,
    /// Who reset the connection, if anybody.
    pub(super) reset_by: Option<Side>,
    /// When this stage began, or something last happened in it.
    pub(super) since_ns: u64,
}

impl Connection {
    pub(super) fn new(client: OwnedFd, client_address: SocketAddr, now_ns: u64) -> Connection {
        Connection {
            client: Socket { descriptor: client, tells_room: false, watched: false },
            client_address,
            counted: false,
            awaited: false,
            backend: None,
            phase: ConnectionPhase::Hello,
            known: false,
            tried: 0,
            opening: None,
            object: None,
            student: None,
            first_bytes: Vec::new(),
            up: Direction::default(),
            down: Direction::default(),
            reset_by: None,
            since_ns: now_ns,
        }
    }

    /// Exactly one side has ended its direction.
    pub(super) fn is_half_closed(&self) -> bool {
        self.up.is_done() != self.down.is_done()
    }

    /// There may be input of which the kernel does not tell.
    pub(super) fn waits_patiently(&self) -> bool {
        self.up.waits_patiently() || self.down.waits_patiently()
    }

    /// Something could move without waiting.
    pub(super) fn is_ready(&self) -> bool {
        self.phase == ConnectionPhase::Relaying && (self.up.is_ready() || self.down.is_ready())
    }
}
