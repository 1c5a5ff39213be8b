//! The client's state machine: bytes in, bytes out. Versions differ in [`crate::tls13`] and [`crate::tls12`]; the
//! ClientHello and the choice between them is in [`crate::offer`].

mod begin;
mod incoming;
mod state;

use std::sync::Arc;

use begin::{Early, begin};
use state::Ignored;
pub(crate) use state::{Context, State, unexpected};
use tlsdyno_wire::handshake::Joiner;
use tlsdyno_wire::record;

use crate::config::Config;
use crate::error::{Alert, Error};
use crate::records::Records;
use crate::script::{Flights, From, Script};
use crate::session::{Session, SessionKind};
use crate::skeleton;
use crate::suite::{Group, Suite, Version};

/// Where random bytes come from: client randoms, session ids, pre-master secrets. (Honest key pairs come from aws-lc-rs
/// itself.)
pub trait Entropy {
    /// Fills `bytes` with bytes that nobody can guess.
    fn fill(&mut self, bytes: &mut [u8]);
}

/// Who takes what [`Client::receive`] finds.
pub trait Receiver {
    /// Application data, in order. The slice lies in the buffer given to `receive` wherever possible.
    fn plaintext(&mut self, bytes: &[u8]);
    /// A session that later connections may resume, any number of times.
    fn session(&mut self, session: Session);
    /// Whether [`Receiver::session`] has a use for the sessions of this connection. Where it has none, the keys of TLS
    /// 1.3 tickets are not derived.
    fn wants_sessions(&self) -> bool {
        true
    }
    /// The chain that the server sent, its own certificate first, before anything of it is verified: for those who look
    /// at certificates that they do not trust.
    fn certificates(&mut self, _chain_der: &[&[u8]]) {}
    /// A handshake message of the server, of this type (RFC 8446 section 4) and with so many bytes with its header, was
    /// dealt with, and what it asks for is on its way. Who wants times reads a clock here: the client has none.
    fn message(&mut self, _kind: u8, _bytes: usize) {}
}

/// What became of data sent with the hello (RFC 9846 section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyData {
    /// The hello did not offer any.
    NotOffered,
    /// The server has not answered yet.
    Offered,
    /// The server did not take them; they were sent again after the handshake.
    Rejected,
    /// The server accepted them.
    Accepted,
}

/// What was negotiated, and what it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Negotiated protocol version.
    pub version: Version,
    /// Negotiated cipher suite.
    pub suite: Suite,
    /// Group of the key agreement; `None` with static RSA, and where TLS 1.2 resumed.
    pub group: Option<Group>,
    /// How the session was resumed; `None`: a full handshake.
    pub resumed: Option<SessionKind>,
    /// What kind of session the last ClientHello offered.
    pub offered: Option<SessionKind>,
    /// Early data. Fast resumption, which sends data with the hello too, has none.
    pub early_data: EarlyData,
    /// The server asked for a second ClientHello.
    pub hello_retry: bool,
    /// Records are encrypted first, then authenticated (RFC 7366); TLS 1.2 CBC suites only.
    pub encrypt_then_mac: bool,
    /// The TLS 1.2 master secret is bound to the transcript (RFC 7627). False in TLS 1.3, where the question does not
    /// arise.
    pub extended_master_secret: bool,
    /// The server asked for a client certificate; it got [`crate::Settings::client_certificate`], or an empty one.
    pub certificate_requested: bool,
    /// The server compressed its certificate (RFC 8879).
    pub certificate_compressed: bool,
    /// Index in [`crate::Settings::alpn`] of the protocol that the server chose.
    pub alpn: Option<u8>,
    /// Bytes received until the handshake was complete, records whole.
    pub bytes_in: u32,
    /// Bytes sent until the handshake was complete.
    pub bytes_out: u32,
}

/// One TLS connection, as a client. Holds no bytes but those of an incomplete record or message.
pub struct Client {
    config: Arc<Config>,
    records: Records,
    joiner: Joiner,
    state: State,
    summary: Handshake,
    flights: Flights,
    early: Option<Box<Early>>,
    ignored: Ignored,
    peer_closed: bool,
    closed: bool,
}

impl Client {
    /// A connection that begins now: appends its first flight to `out`. `session` is offered if this configuration can
    /// resume it.
    pub fn new(
        config: &Arc<Config>,
        session: Option<Session>,
        entropy: &mut impl Entropy,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Client {
        let before = out.len();
        let mut records = Records::default();
        let (state, offered, early) = begin(config, session, entropy, now_ms, &mut records, out);
        let early_data = early.is_some() && !config.is_fast();
        let bytes_out = out.len() - before;
        let mut flights = Flights::default();
        flights.count(From::Client, bytes_out);
        let suite = config.settings().suites[0];
        let summary = Handshake {
            version: suite.version(),
            suite,
            group: None,
            resumed: None,
            offered,
            early_data: if early_data { EarlyData::Offered } else { EarlyData::NotOffered },
            hello_retry: false,
            encrypt_then_mac: false,
            extended_master_secret: false,
            certificate_requested: false,
            certificate_compressed: false,
            alpn: None,
            bytes_in: 0,
            bytes_out: bytes_out as u32,
        };
        Client {
            config: Arc::clone(config),
            records,
            joiner: Joiner::default(),
            state,
            summary,
            flights,
            early,
            ignored: Ignored::new(),
            peer_closed: false,
            closed: false,
        }
    }

    /// Takes bytes from the server, cut in any way, and decrypts in place. Appends what is to be sent to `out`; on an
    /// error that is the alert, and the connection is finished. Bytes after close_notify are ignored (RFC 9846
    /// section 6.1).
    pub fn receive(
        &mut self,
        bytes: &mut [u8],
        now_ms: u64,
        entropy: &mut impl Entropy,
        out: &mut Vec<u8>,
        receiver: &mut impl Receiver,
    ) -> Result<(), Error> {
        if matches!(self.state, State::Failed) {
            return Err(Error::Failed);
        }
        let result = self.receive_records(bytes, now_ms, entropy, out, receiver);
        if let Err(error) = &result {
            self.state = State::Failed;
            if let Some(alert) = error.alert()
                && !self.closed
            {
                self.records.send_alert(alert, out);
            }
        }
        result
    }

    /// Whether the handshake is complete from the client's view: any amount of data may be sent.
    pub fn is_connected(&self) -> bool {
        match &self.state {
            State::Open13(_) | State::Open12 { .. } | State::Plain | State::Minimal(_) => true,
            State::Skeleton(walk) => walk.is_ready(),
            State::Offer(_) | State::Tls13(_) | State::Tls12(_) | State::Failed => false,
        }
    }

    /// Bytes of data that may be sent now: any number once connected and with fast resumption, some with the hello as
    /// early data.
    pub fn room(&self) -> usize {
        match &self.state {
            _ if self.closed => 0,
            State::Skeleton(walk) if walk.sends_at_once() => usize::MAX,
            _ if self.is_connected() => usize::MAX,
            // Once: a server that resumes takes the header of one record away.
            _ if self.config.is_fast() => match &self.early {
                Some(early) if early.sent.is_empty() => early.room,
                _ => 0,
            },
            _ => match (&self.early, self.summary.early_data) {
                (Some(early), EarlyData::Offered | EarlyData::Accepted) => early.room,
                _ => 0,
            },
        }
    }

    /// Appends `plain` as application data to `out`, in records where data are protected. Early data that the server
    /// does not take are sent again by themselves.
    ///
    /// # Errors
    /// [`Error::NotConnected`] where there is no [`Client::room`] for them.
    pub fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let room = self.room();
        if room == 0 || plain.len() > room {
            return Err(Error::NotConnected);
        }
        if plain.is_empty() {
            return Ok(());
        }
        match &mut self.state {
            State::Plain | State::Skeleton(_) => out.extend_from_slice(plain),
            State::Open13(_) | State::Open12 { .. } if self.config.is_plain() => out.extend_from_slice(plain),
            State::Open13(open) => {
                open.renew_used_up_key(&self.config, &mut self.records, out);
                self.records.send(record::APPLICATION_DATA, plain, out);
            }
            _ => {
                if let Some(early) = &mut self.early {
                    early.room -= plain.len();
                    early.sent.extend_from_slice(plain);
                }
                if self.config.is_fast() {
                    put_with_hello(plain, out);
                } else {
                    self.records.send(record::APPLICATION_DATA, plain, out);
                }
            }
        }
        Ok(())
    }

    /// Appends close_notify, once, unless the connection has failed or its end is that of TCP. Receiving goes on.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if !self.closed && !matches!(self.state, State::Failed) {
            self.closed = true;
            if !self.ends_with_tcp() {
                self.records.send_alert(Alert::CLOSE_NOTIFY, out);
            }
        }
    }

    /// Whether the server has sent close_notify: nothing more will come.
    pub fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Whether neither end sends close_notify on this connection: data in plain, and minimal set-up.
    fn ends_with_tcp(&self) -> bool {
        match self.state {
            State::Plain | State::Minimal(_) | State::Skeleton(_) => true,
            State::Open13(_) | State::Open12 { .. } => self.config.is_plain(),
            _ => false,
        }
    }

    /// The server closed the TCP connection.
    ///
    /// # Errors
    /// [`Error::ClosedInHandshake`], or [`Error::Truncated`] where no close_notify came before though one was due:
    /// whether data is missing is then for the protocol above to tell.
    pub fn end_of_input(&mut self) -> Result<(), Error> {
        let (connected, ends_with_tcp) = (self.is_connected(), self.ends_with_tcp());
        let failed = matches!(std::mem::replace(&mut self.state, State::Failed), State::Failed);
        match (failed, self.peer_closed || ends_with_tcp, connected) {
            (true, _, _) => Err(Error::Failed),
            (_, _, false) => Err(Error::ClosedInHandshake),
            (_, true, _) => Ok(()),
            (_, false, _) => Err(Error::Truncated),
        }
    }

    /// What was negotiated, once the handshake is complete. `None` for a minimal set-up, which negotiates nothing.
    pub fn handshake(&self) -> Option<&Handshake> {
        let negotiates = !matches!(self.state, State::Minimal(_));
        (negotiates && self.is_connected()).then_some(&self.summary)
    }

    /// The flights of the handshake, those with tickets included that came before the first data of the server.
    pub fn script(&self) -> Script {
        self.flights.script()
    }
}

/// Appends the request of a fast resumption as a record that no TLS has: a server that does not resume skips it
/// (docs/NOOP.md, "round_trip").
fn put_with_hello(plain: &[u8], out: &mut Vec<u8>) {
    let [high, low] = (plain.len() as u16).to_be_bytes();
    out.extend_from_slice(&[skeleton::MARK, 3, 3, high, low]);
    out.extend_from_slice(plain);
}
