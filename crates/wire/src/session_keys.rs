//! What a bystander can read of TLS sessions: which one a client offers, whether the server took it, and which one it
//! gives out.
//!
//! A session is known by the ID of TLS 1.2, or by the name of the key that protects a ticket: the first 16 bytes of a
//! stateless ticket of OpenSSL, BoringSSL and rustls (RFC 5077 section 4 recommends this form). A stateful TLS 1.3
//! server hands out random identities of 32 bytes, which name no key.

use std::cell::Cell;
use std::fmt;

use crate::codec::{DecodeError, Reader};
use crate::follow::{Follower, Met};
use crate::handshake::{self, Body};
use crate::hello::{self, ClientHello, ServerHello};
use crate::record::{self, FrameError};

/// Bytes of the name of a ticket key.
pub const KEY_NAME: usize = 16;

/// Tickets and identities of up to this many bytes are no protected session: a stateful server's identity has 32, an
/// external key's is shorter than any ticket.
pub const UNNAMED: usize = 32;

/// Most identities of one hello that are looked at. Clients offer one or two.
pub const IDENTITIES: usize = 4;

/// Most bytes of a ServerHello that are kept; a post-quantum key share takes 1,100.
const SERVER_HELLO_BYTES: usize = 8 * 1024;

/// Extension early_data (RFC 9846 section 4.2.10).
const EARLY_DATA: u16 = 42;
/// Extension encrypted_client_hello (RFC 9849 section 5).
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// A TLS 1.2 session ID, or the compatibility ID of TLS 1.3; may be empty.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionId {
    bytes: [u8; 32],
    length: u8,
}

impl SessionId {
    /// From at most 32 bytes; longer input is cut.
    pub fn new(id: &[u8]) -> SessionId {
        let mut bytes = [0; 32];
        let length = id.len().min(32);
        bytes[..length].copy_from_slice(&id[..length]);
        SessionId { bytes, length: length as u8 }
    }

    /// The bytes of the ID.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Whether the ID has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.bytes().escape_ascii())
    }
}

/// A ticket, as far as it can be told from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    start: [u8; KEY_NAME],
    /// Length in bytes.
    pub length: u16,
}

impl Ticket {
    fn new(length: usize, bytes: &[u8]) -> Ticket {
        let mut start = [0; KEY_NAME];
        let have = bytes.len().min(KEY_NAME);
        start[..have].copy_from_slice(&bytes[..have]);
        Ticket { start, length: length.min(usize::from(u16::MAX)) as u16 }
    }

    /// The name of the key that protects it, if it can have one.
    pub fn key_name(&self) -> Option<&[u8; KEY_NAME]> {
        (usize::from(self.length) > UNNAMED).then_some(&self.start)
    }
}

/// What a ClientHello says about sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionKeys {
    /// The session ID: of a TLS 1.2 session, made up beside a TLS 1.2 ticket, or for compatibility with TLS 1.3's
    /// middleboxes.
    pub session_id: SessionId,
    /// The TLS 1.2 ticket, if one is offered (and not only asked for).
    pub ticket: Option<Ticket>,
    identities: [Ticket; IDENTITIES],
    looked_at: u8,
    /// Identities in the hello, also those beyond [`IDENTITIES`].
    pub identities_offered: u16,
    /// TLS 1.3 is offered.
    pub tls13: bool,
    /// The client sends early data.
    pub early_data: bool,
    /// There are values without meaning (RFC 8701).
    pub grease: bool,
    /// There is an encrypted inner hello, or something that looks like it: the identities may be made up.
    pub encrypted_hello: bool,
}

impl SessionKeys {
    /// The TLS 1.3 identities, in order, at most [`IDENTITIES`].
    pub fn identities(&self) -> &[Ticket] {
        &self.identities[..usize::from(self.looked_at)]
    }

    /// Those of a TLS 1.3 hello that offers this one identity.
    pub fn with_identity(identity: &[u8]) -> SessionKeys {
        let identities =
            std::array::from_fn(|at| if at == 0 { Ticket::new(identity.len(), identity) } else { Ticket::default() });
        SessionKeys { identities, looked_at: 1, identities_offered: 1, tls13: true, ..SessionKeys::default() }
    }

    /// Reads them out of a hello.
    ///
    /// # Errors
    /// The extensions that matter are malformed.
    pub fn from_hello(hello: &ClientHello) -> Result<SessionKeys, DecodeError> {
        let mut keys = SessionKeys {
            session_id: SessionId::new(hello.session_id),
            tls13: hello.offers_version(hello::TLS13)?,
            grease: hello.suites.chunks_exact(2).any(|suite| is_grease(u16::from_be_bytes([suite[0], suite[1]]))),
            ..SessionKeys::default()
        };
        for (kind, body) in hello.extensions.iter() {
            match kind {
                hello::SESSION_TICKET if !body.is_empty() => keys.ticket = Some(Ticket::new(body.len(), body)),
                EARLY_DATA => keys.early_data = true,
                ENCRYPTED_CLIENT_HELLO => keys.encrypted_hello = true,
                kind => keys.grease |= is_grease(kind),
            }
        }
        if let Some(psks) = hello.pre_shared_keys()? {
            for (identity, _) in psks.identities() {
                if let Some(place) = keys.identities.get_mut(usize::from(keys.identities_offered)) {
                    *place = Ticket::new(identity.len(), identity);
                    keys.looked_at += 1;
                }
                keys.identities_offered = keys.identities_offered.saturating_add(1);
            }
        }
        Ok(keys)
    }
}

/// RFC 8701 section 2: 0x0a0a, 0x1a1a, …, 0xfafa.
fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

/// Why bytes are not a hello that can be understood. They may still mean something to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// These are no TLS records.
    Records(FrameError),
    /// TLS, but no hello where there must be one.
    NoHello,
    /// The hello is longer than the limit.
    Oversized {
        /// Length of the hello, bytes.
        length: usize,
    },
    /// The hello does not follow the grammar.
    Malformed(DecodeError),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Records(error) => error.fmt(f),
            Unreadable::NoHello => write!(f, "TLS without a hello"),
            Unreadable::Oversized { length } => write!(f, "a hello of {length} bytes"),
            Unreadable::Malformed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unreadable {}

/// Finds a ClientHello in bytes that come in any pieces, over any number of records. Holds at most the hello.
#[derive(Debug)]
pub struct ClientReader {
    follower: Follower,
    hello_bytes_max: usize,
    second: bool,
}

impl ClientReader {
    /// For the first hello of a connection, of at most so many bytes.
    pub fn new(hello_bytes_max: usize) -> ClientReader {
        ClientReader { follower: Follower::default(), hello_bytes_max, second: false }
    }

    /// For the hello that answers a HelloRetryRequest. Early data and the compatibility record may come before it (RFC
    /// 9846 sections 4.2.10 and D.4).
    pub fn second(hello_bytes_max: usize) -> ClientReader {
        ClientReader { second: true, ..ClientReader::new(hello_bytes_max) }
    }

    /// Takes the next bytes. `None`: the hello is not whole yet. Bytes after the hello are not looked at.
    ///
    /// # Errors
    /// [`Unreadable`]; more bytes will not change it.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<Option<SessionKeys>, Unreadable> {
        let most = self.hello_bytes_max;
        // Told as soon as its header is there: the body of what is no hello, or too long, is not waited for.
        let refused = Cell::new(None);
        let keep = |kind, length| {
            let wanted = kind == handshake::CLIENT_HELLO && length <= most;
            // The first one counts: those after it are seen only if they happen to come in the same piece.
            if !wanted && refused.get().is_none() {
                refused.set(Some((kind, length)));
            }
            wanted.then_some(length)
        };
        loop {
            let met = self.follower.next(&mut bytes, keep);
            match refused.get() {
                Some((handshake::CLIENT_HELLO, length)) => return Err(Unreadable::Oversized { length }),
                Some(_) => return Err(Unreadable::NoHello),
                None => {}
            }
            match met.map_err(Unreadable::Records)? {
                None => return Ok(None),
                Some(Met::Message { body, .. }) => {
                    let hello = ClientHello::decode(body).map_err(Unreadable::Malformed)?;
                    return SessionKeys::from_hello(&hello).map(Some).map_err(Unreadable::Malformed);
                }
                Some(Met::Record(record::CHANGE_CIPHER_SPEC | record::APPLICATION_DATA)) if self.second => {}
                Some(Met::Record(_)) => return Err(Unreadable::NoHello),
            }
        }
    }
}

/// What a server lets a bystander see of its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerSays {
    /// A ServerHello.
    Hello {
        /// Code point of the chosen version.
        version: u16,
        /// The session's ID (TLS 1.2), or the echo of the client's (TLS 1.3).
        session_id: SessionId,
        /// The index of the identity that it accepted.
        identity: Option<u16>,
    },
    /// A HelloRetryRequest: another ClientHello and another ServerHello follow.
    Retry,
    /// A TLS 1.2 ticket.
    Ticket(Ticket),
    /// TLS 1.2: it turns to encryption, having checked the client's Finished unless it resumes.
    Encrypts,
    /// It speaks no TLS, or gave up: nothing more will be seen.
    Nothing,
}

/// Reads a server's side in any pieces. Holds at most one ServerHello.
#[derive(Debug, Default)]
pub struct ServerReader {
    follower: Follower,
    /// After a HelloRetryRequest comes the compatibility record, which means nothing.
    retried: bool,
    done: bool,
}

impl ServerReader {
    /// Nothing more will be seen: the rest is encrypted or no TLS.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Takes the next bytes and tells what they say, in order.
    pub fn read(&mut self, mut bytes: &[u8], mut tell: impl FnMut(ServerSays)) {
        while !self.done {
            let Some(says) = self.step(&mut bytes) else { return };
            let tls13 = matches!(says, ServerSays::Hello { version: hello::TLS13, .. });
            self.retried |= says == ServerSays::Retry;
            self.done = tls13 || matches!(says, ServerSays::Encrypts | ServerSays::Nothing);
            tell(says);
        }
    }

    fn step(&mut self, bytes: &mut &[u8]) -> Option<ServerSays> {
        let keep = |kind, length| match kind {
            handshake::SERVER_HELLO if length <= SERVER_HELLO_BYTES => Some(length),
            // Lifetime, length of the ticket, name of its key.
            handshake::NEW_SESSION_TICKET => Some(4 + 2 + KEY_NAME),
            _ => None,
        };
        loop {
            return match self.follower.next(bytes, keep) {
                Ok(None) => None,
                Ok(Some(Met::Message { kind: handshake::SERVER_HELLO, body, .. })) => Some(server_hello(body)),
                Ok(Some(Met::Message { body, .. })) => match ticket(body) {
                    Some(ticket) => Some(ServerSays::Ticket(ticket)),
                    None => continue,
                },
                Ok(Some(Met::Record(record::CHANGE_CIPHER_SPEC))) if self.retried => continue,
                Ok(Some(Met::Record(record::CHANGE_CIPHER_SPEC))) => Some(ServerSays::Encrypts),
                Ok(Some(Met::Record(_))) | Err(_) => Some(ServerSays::Nothing),
            };
        }
    }
}

fn server_hello(body: &[u8]) -> ServerSays {
    let Ok(hello) = ServerHello::decode(body) else { return ServerSays::Nothing };
    if hello.is_retry() {
        return ServerSays::Retry;
    }
    match (hello.chosen_version(), hello.selected_psk()) {
        (Ok(version), Ok(identity)) => {
            ServerSays::Hello { version, session_id: SessionId::new(hello.session_id), identity }
        }
        _ => ServerSays::Nothing,
    }
}

/// The beginning of a NewSessionTicket of TLS 1.2 (RFC 5077 section 3.3). An empty ticket is none.
fn ticket(body: &[u8]) -> Option<Ticket> {
    let mut reader = Reader::new("NewSessionTicket", body);
    reader.u32().ok()?;
    let length = usize::from(reader.u16().ok()?);
    (length > 0).then(|| Ticket::new(length, reader.rest()))
}
