//! The client's state machine: bytes in, bytes out. Versions differ in [`crate::tls13`] and [`crate::tls12`]; the ClientHello and
//! the choice between them is in [`crate::offer`].

use std::sync::Arc;

use tlsdyno_wire::handshake::{self, Joiner, Message};
use tlsdyno_wire::record;

use crate::config::Config;
use crate::error::{Alert, Error};
use crate::noop::Stage;
use crate::offer::Offer;
use crate::records::Records;
use crate::script::{Flights, From, Script};
use crate::session::{Session, SessionKind};
use crate::skeleton::Walk;
use crate::suite::{Group, Suite, Version};
use crate::{tls12, tls13};

/// Where random bytes come from: client randoms, session ids, pre-master secrets. (Honest key pairs come from aws-lc-rs itself.)
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
    /// The server took them.
    Accepted,
}

/// What was negotiated, and what it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Protocol version.
    pub version: Version,
    /// Cipher suite.
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
    /// The TLS 1.2 master secret is bound to the transcript (RFC 7627). False in TLS 1.3, where the question does not arise.
    pub extended_master_secret: bool,
    /// The server asked for a client certificate; it got [`crate::Settings::client_certificate`], or an empty one.
    pub certificate_requested: bool,
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

/// Early data under way.
struct Early {
    /// What was sent, in case the server does not take it.
    sent: Vec<u8>,
    /// How much more may be sent.
    room: usize,
}

/// Most early data of a connection: they are held until the server has taken them.
const EARLY_DATA_MAX: usize = 16 * 1024;

/// What the client waits for. Handshake states are boxed: they are large, and gone once the connection carries data.
pub(crate) enum State {
    /// ServerHello.
    Offer(Box<Offer>),
    /// The rest of a TLS 1.3 handshake.
    Tls13(Box<tls13::Handshaking>),
    /// The rest of a TLS 1.2 handshake.
    Tls12(Box<tls12::Handshaking>),
    /// TLS 1.3 application data.
    Open13(Box<tls13::Open>),
    /// TLS 1.2 application data.
    Open12 {
        /// One no_renegotiation was sent.
        renegotiation_refused: bool,
    },
    /// The rest of a skeleton handshake or fast resumption.
    Skeleton(Box<Walk>),
    /// Data in plain.
    Plain,
    /// Data protected with keys of zeros, without any handshake.
    Minimal(Version),
    /// Nothing: the connection has failed.
    Failed,
}

/// How many records and messages without meaning came during the handshake: a server must get on with it.
struct Ignored(u8);

impl Ignored {
    const MAX: u8 = 32;

    fn count(&mut self) -> Result<(), Error> {
        if self.0 == Ignored::MAX {
            return Err(Error::UnexpectedMessage {
                got: "the 33rd record without meaning",
                expected: "the rest of the handshake",
            });
        }
        self.0 += 1;
        Ok(())
    }
}

/// What a state works with while it handles a message.
pub(crate) struct Context<'a> {
    pub config: &'a Arc<Config>,
    pub records: &'a mut Records,
    pub summary: &'a mut Handshake,
    pub now_ms: u64,
    pub entropy: &'a mut dyn Entropy,
    pub out: &'a mut Vec<u8>,
    pub receiver: &'a mut dyn Receiver,
    /// The message ended its record and nothing is pending: keys may change now (RFC 9846 section 5.1).
    pub at_record_end: bool,
}

impl Context<'_> {
    /// A session of the server, for the receiver: unless a perfect cache replaces them all.
    pub fn keep(&mut self, session: Session) {
        if self.config.settings().universal.is_none() {
            self.receiver.session(session);
        }
    }

    /// Keys change after this message: no byte under the old ones may follow it in its record.
    pub fn require_record_end(&self) -> Result<(), Error> {
        if self.at_record_end {
            return Ok(());
        }
        Err(Error::UnexpectedMessage { got: "more data in the record", expected: "a key change" })
    }
}

impl Client {
    /// A connection that begins now: appends its first flight to `out`. `session` is offered if this configuration can resume it.
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
            early_data: if early.is_some() { EarlyData::Offered } else { EarlyData::NotOffered },
            hello_retry: false,
            encrypt_then_mac: false,
            extended_master_secret: false,
            certificate_requested: false,
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
            ignored: Ignored(0),
            peer_closed: false,
            closed: false,
        }
    }

    /// Takes bytes from the server, cut in any way, and decrypts in place. Appends what is to be sent to `out`; on an error that is
    /// the alert, and the connection is finished. Bytes after close_notify are ignored (RFC 9846 section 6.1).
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

    /// Bytes of data that may be sent now: any number once connected and with fast resumption, some with the hello as early data.
    pub fn room(&self) -> usize {
        match &self.state {
            _ if self.closed => 0,
            State::Skeleton(walk) if walk.sends_at_once() => usize::MAX,
            _ if self.is_connected() => usize::MAX,
            _ => match (&self.early, self.summary.early_data) {
                (Some(early), EarlyData::Offered | EarlyData::Accepted) => early.room,
                _ => 0,
            },
        }
    }

    /// Appends `plain` as application data to `out`, in records where data are protected. Early data that the server does not take are
    /// sent again by themselves.
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
                self.records.send(record::APPLICATION_DATA, plain, out);
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
    /// [`Error::ClosedInHandshake`], or [`Error::Truncated`] where no close_notify came before though one was due: whether data is
    /// missing is then for the protocol above to tell.
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

    fn receive_records(
        &mut self,
        bytes: &mut [u8],
        now_ms: u64,
        entropy: &mut dyn Entropy,
        out: &mut Vec<u8>,
        receiver: &mut dyn Receiver,
    ) -> Result<(), Error> {
        let mut rest = bytes;
        while !rest.is_empty() && !self.peer_closed {
            if let State::Skeleton(_) = self.state {
                let used = self.walk(rest, now_ms, out, receiver)?;
                rest = &mut rest[used..];
                continue;
            }
            if self.is_plain_from(rest) {
                self.state = State::Plain;
                self.flights.end();
                receiver.plaintext(rest);
                return Ok(());
            }
            let limit = self.records.body_limit(self.version());
            let (record, after) = self.records.deframer.next(rest, limit)?;
            rest = after;
            let Some((header, mut body)) = record else {
                return Ok(());
            };
            let bytes = record::HEADER + header.length();
            if self.is_connected() {
                self.record(header, body.bytes(), now_ms, entropy, out, receiver)?;
                self.flights.count(From::Server, bytes);
                continue;
            }
            let before = out.len();
            self.record(header, body.bytes(), now_ms, entropy, out, receiver)?;
            self.count(bytes, out.len() - before);
            if self.is_connected() {
                self.complete(out, receiver);
            }
        }
        Ok(())
    }

    /// Counts bytes of the handshake.
    fn count(&mut self, bytes_in: usize, bytes_out: usize) {
        self.flights.count(From::Server, bytes_in);
        self.flights.count(From::Client, bytes_out);
        let summary = &mut self.summary;
        summary.bytes_in = summary.bytes_in.saturating_add(bytes_in as u32);
        summary.bytes_out = summary.bytes_out.saturating_add(bytes_out as u32);
    }

    /// Whether the input goes on with data in plain. In front of the first of them TLS 1.3 has tickets, whose records begin in another
    /// way than HTTP does (docs/NOOP.md, "marshalling").
    fn is_plain_from(&self, input: &[u8]) -> bool {
        const TICKET_RECORD: [u8; 3] = [record::APPLICATION_DATA, 3, 3];
        match self.state {
            State::Plain => true,
            State::Open13(_) if self.config.is_plain() && !self.records.deframer.is_partial() => {
                let told = input.len().min(TICKET_RECORD.len());
                input[..told] != TICKET_RECORD[..told]
            }
            _ => false,
        }
    }

    /// Goes on with a skeleton; answers how many bytes belong to it.
    fn walk(
        &mut self,
        bytes: &[u8],
        now_ms: u64,
        out: &mut Vec<u8>,
        receiver: &mut dyn Receiver,
    ) -> Result<usize, Error> {
        let State::Skeleton(walk) = &mut self.state else {
            return Ok(0);
        };
        let was_ready = walk.is_ready();
        let before = out.len();
        let used = walk.receive(bytes, out)?;
        let (is_ready, is_over) = (walk.is_ready(), walk.is_over());
        let (resumed, session) = (walk.resumes(), if is_over { walk.session(now_ms) } else { None });
        if was_ready {
            self.flights.count(From::Server, used);
        } else {
            self.count(used, out.len() - before);
        }
        if is_ready && !was_ready {
            self.summary.resumed = resumed;
            self.flights.ready();
        }
        if is_over {
            self.state = State::Plain;
            if let Some(session) = session {
                receiver.session(session);
            }
        }
        Ok(used)
    }

    /// A real handshake is complete: what was sent too early is sent again, and from here data may be plain.
    fn complete(&mut self, out: &mut Vec<u8>, receiver: &mut dyn Receiver) {
        self.flights.ready();
        if self.summary.resumed.is_none()
            && let Some(universal) = &self.config.settings().universal
        {
            receiver.session(universal.clone());
        }
        if let Some(early) = self.early.take()
            && self.summary.early_data == EarlyData::Rejected
            && !early.sent.is_empty()
        {
            self.records.send(record::APPLICATION_DATA, &early.sent, out);
        }
        if self.config.is_plain() && matches!(self.state, State::Open12 { .. }) {
            self.state = State::Plain;
        }
    }

    /// The version, once the server has chosen it.
    fn version(&self) -> Option<Version> {
        match self.state {
            State::Tls13(_) | State::Open13(_) => Some(Version::Tls13),
            State::Tls12(_) | State::Open12 { .. } => Some(Version::Tls12),
            State::Minimal(version) => Some(version),
            State::Offer(_) | State::Skeleton(_) | State::Plain | State::Failed => None,
        }
    }

    fn record(
        &mut self,
        header: record::Header,
        body: &mut [u8],
        now_ms: u64,
        entropy: &mut dyn Entropy,
        out: &mut Vec<u8>,
        receiver: &mut dyn Receiver,
    ) -> Result<(), Error> {
        let (protected, content_type, content) = match &mut self.records.opener {
            Some(opener) if is_protected(&self.state, header.content_type)? => {
                let (content_type, place) = opener.open(header.bytes, body)?;
                (true, content_type, &body[place])
            }
            _ => (false, header.content_type, &*body),
        };
        if self.joiner.is_partial() && content_type != record::HANDSHAKE && content_type != record::ALERT {
            // RFC 9846 section 5.1: nothing comes between the records of one message.
            return Err(Error::UnexpectedMessage {
                got: record_name(content_type),
                expected: "the rest of a handshake message",
            });
        }
        match content_type {
            record::APPLICATION_DATA if self.is_connected() => {
                self.flights.end();
                receiver.plaintext(content);
                Ok(())
            }
            record::HANDSHAKE => self.handshake_content(content, now_ms, entropy, out, receiver),
            record::ALERT => self.alert(content),
            // RFC 9846 section 5: a protected change_cipher_spec of TLS 1.3 is none.
            record::CHANGE_CIPHER_SPEC if !(protected && self.version() == Some(Version::Tls13)) => {
                self.change_cipher_spec(content)
            }
            _ => Err(Error::UnexpectedMessage { got: record_name(content_type), expected: self.expected() }),
        }
    }

    fn handshake_content(
        &mut self,
        content: &[u8],
        now_ms: u64,
        entropy: &mut dyn Entropy,
        out: &mut Vec<u8>,
        receiver: &mut dyn Receiver,
    ) -> Result<(), Error> {
        if content.is_empty() {
            // RFC 9846 section 5.1: no zero-length handshake fragments.
            return Err(Error::UnexpectedMessage { got: "an empty handshake record", expected: self.expected() });
        }
        let mut content = content;
        while !content.is_empty() {
            let Some(message) = self.joiner.next(&mut content)? else {
                return Ok(());
            };
            let mut context = Context {
                config: &self.config,
                records: &mut self.records,
                summary: &mut self.summary,
                now_ms,
                entropy,
                out,
                receiver,
                at_record_end: content.is_empty(),
            };
            if message.kind() == handshake::HELLO_REQUEST && matches!(self.state, State::Tls12(_)) {
                self.ignored.count()?;
            }
            let state = std::mem::replace(&mut self.state, State::Failed);
            self.state = handle(state, &message, &mut context)?;
        }
        Ok(())
    }

    fn alert(&mut self, content: &[u8]) -> Result<(), Error> {
        let &[level, code] = content else {
            return Err(Error::PeerMisbehaved {
                what: "an alert record has exactly two bytes",
                alert: Alert::DECODE_ERROR,
            });
        };
        match Alert(code) {
            Alert::CLOSE_NOTIFY if self.is_connected() => {
                self.peer_closed = true;
                Ok(())
            }
            // Only announces a close_notify (RFC 9846 section 6.1).
            Alert::USER_CANCELED => self.ignore(),
            // Warnings do not end a TLS 1.2 connection; TLS 1.3 has none (RFC 9846 section 6).
            alert if level == 1 && alert != Alert::CLOSE_NOTIFY && self.version() != Some(Version::Tls13) => {
                self.ignore()
            }
            alert => Err(Error::AlertReceived(alert)),
        }
    }

    fn change_cipher_spec(&mut self, content: &[u8]) -> Result<(), Error> {
        if content != [1] {
            return Err(Error::UnexpectedMessage { got: "an invalid change_cipher_spec", expected: self.expected() });
        }
        match &mut self.state {
            // For middleboxes only; to be dropped without further processing (RFC 9846 section 5).
            State::Tls13(_) => self.ignore(),
            State::Offer(_) if self.config.offers(Version::Tls13) => self.ignore(),
            State::Tls12(handshaking) => handshaking.change_cipher_spec(&mut self.records),
            _ => Err(Error::UnexpectedMessage { got: "change_cipher_spec", expected: self.expected() }),
        }
    }

    /// Lets a record pass that means nothing, a limited number of times before the handshake is complete.
    fn ignore(&mut self) -> Result<(), Error> {
        if self.is_connected() { Ok(()) } else { self.ignored.count() }
    }

    fn expected(&self) -> &'static str {
        match &self.state {
            State::Offer(_) => "ServerHello",
            State::Tls13(handshaking) => handshaking.expected(),
            State::Tls12(handshaking) => handshaking.expected(),
            State::Open13(_) | State::Open12 { .. } | State::Plain | State::Minimal(_) => "application data",
            State::Skeleton(_) => "a flight of a skeleton",
            State::Failed => "nothing",
        }
    }
}

/// Appends the first flight that the configuration's stages ask for. Answers the state, what was offered, and room for early data.
fn begin(
    config: &Arc<Config>,
    session: Option<Session>,
    entropy: &mut dyn Entropy,
    now_ms: u64,
    records: &mut Records,
    out: &mut Vec<u8>,
) -> (State, Option<SessionKind>, Option<Box<Early>>) {
    let settings = config.settings();
    let off = |stage| settings.stages_off.contains(stage);
    if off(Stage::Setup) {
        let suite = settings.suites[0];
        records.begin_with_zero_keys(suite, settings.stages_off, settings.encrypt_then_mac);
        return (State::Minimal(suite.version()), None, None);
    }
    if off(Stage::Handshake) {
        let walk = Walk::begin(config, session.is_some(), off(Stage::RoundTrip), out);
        let offered = walk.resumes();
        return (State::Skeleton(Box::new(walk)), offered, None);
    }
    if off(Stage::RoundTrip)
        && config.resumed_script().is_some()
        && let Some(session) = &session
    {
        let walk = Walk::fast(config, session.clone(), entropy, out);
        return (State::Skeleton(Box::new(walk)), Some(session.kind()), None);
    }
    let offer = Offer::new(config, session, entropy, now_ms, out);
    let offered = offer.offered();
    let early = offer.early_data().map(|room| Box::new(Early { sent: Vec::new(), room: room.min(EARLY_DATA_MAX) }));
    if early.is_some() {
        records.sealer = offer.early_sealer(config);
    }
    (State::Offer(Box::new(offer)), offered, early)
}

/// Whether a record of this type is protected, given that there are keys to open it with.
///
/// In TLS 1.3 the types tell: application_data is, change_cipher_spec is not, and a server that could not establish the keys sends its
/// alert in plain text. In TLS 1.2 everything after change_cipher_spec is.
fn is_protected(state: &State, content_type: u8) -> Result<bool, Error> {
    match (state, content_type) {
        (State::Tls12(_) | State::Open12 { .. } | State::Minimal(Version::Tls12), _) => Ok(true),
        (_, record::APPLICATION_DATA) => Ok(true),
        (State::Tls13(_), record::CHANGE_CIPHER_SPEC | record::ALERT) => Ok(false),
        _ => Err(Error::UnexpectedMessage { got: "an unprotected record", expected: "a protected record" }),
    }
}

fn handle(state: State, message: &Message<'_>, context: &mut Context<'_>) -> Result<State, Error> {
    match state {
        State::Offer(offer) => offer.handle(message, context),
        State::Tls13(handshaking) => handshaking.handle(message, context),
        State::Tls12(handshaking) => handshaking.handle(message, context),
        State::Open13(open) => open.handle(message, context),
        State::Open12 { renegotiation_refused } => tls12::handle_when_open(message, renegotiation_refused, context),
        State::Minimal(_) => Err(unexpected(message, "application data")),
        State::Skeleton(_) | State::Plain | State::Failed => Err(Error::Failed),
    }
}

/// The error of a message that has no place in this state.
pub(crate) fn unexpected(message: &Message<'_>, expected: &'static str) -> Error {
    Error::UnexpectedMessage { got: handshake::name(message.kind()), expected }
}

fn record_name(content_type: u8) -> &'static str {
    match content_type {
        record::CHANGE_CIPHER_SPEC => "change_cipher_spec",
        record::ALERT => "an alert",
        record::HANDSHAKE => "a handshake message",
        record::APPLICATION_DATA => "application data",
        _ => "a record of unknown type",
    }
}
