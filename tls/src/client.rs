//! The client's state machine: bytes in, bytes out. Versions differ in [`crate::tls13`] and [`crate::tls12`]; the ClientHello and
//! the choice between them is in [`crate::offer`].

use std::sync::Arc;

use tlsdyno_wire::handshake::{self, Joiner, Message};
use tlsdyno_wire::record;

use crate::config::Config;
use crate::error::{Alert, Error};
use crate::offer::Offer;
use crate::records::Records;
use crate::session::{Session, SessionKind};
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
    /// The server asked for a second ClientHello.
    pub hello_retry: bool,
    /// Records are encrypted first, then authenticated (RFC 7366); TLS 1.2 CBC suites only.
    pub encrypt_then_mac: bool,
    /// The TLS 1.2 master secret is bound to the transcript (RFC 7627). False in TLS 1.3, where the question does not arise.
    pub extended_master_secret: bool,
    /// The server asked for a client certificate (and got none).
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
    ignored: Ignored,
    peer_closed: bool,
    closed: bool,
}

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
    /// Keys change after this message: no byte under the old ones may follow it in its record.
    pub fn require_record_end(&self) -> Result<(), Error> {
        if self.at_record_end {
            return Ok(());
        }
        Err(Error::UnexpectedMessage { got: "more data in the record", expected: "a key change" })
    }
}

impl Client {
    /// A connection that begins now: appends its ClientHello to `out`. `session` is offered if this configuration can resume it.
    pub fn new(
        config: &Arc<Config>,
        session: Option<Session>,
        entropy: &mut impl Entropy,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Client {
        let before = out.len();
        let offer = Offer::new(config, session, entropy, now_ms, out);
        let suite = config.settings().suites[0];
        let summary = Handshake {
            version: suite.version(),
            suite,
            group: None,
            resumed: None,
            offered: offer.offered(),
            hello_retry: false,
            encrypt_then_mac: false,
            extended_master_secret: false,
            certificate_requested: false,
            alpn: None,
            bytes_in: 0,
            bytes_out: (out.len() - before) as u32,
        };
        Client {
            config: Arc::clone(config),
            records: Records::default(),
            joiner: Joiner::default(),
            state: State::Offer(Box::new(offer)),
            summary,
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

    /// Whether the handshake is complete from the client's view: data may be sent.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Open13(_) | State::Open12 { .. })
    }

    /// Appends `plain` as application data records to `out`.
    ///
    /// # Errors
    /// [`Error::NotConnected`] before the handshake is complete and after [`Client::close`].
    pub fn send(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        if !self.is_connected() || self.closed {
            return Err(Error::NotConnected);
        }
        if let State::Open13(open) = &mut self.state {
            open.renew_used_up_key(&self.config, &mut self.records, out);
        }
        if !plain.is_empty() {
            self.records.send(record::APPLICATION_DATA, plain, out);
        }
        Ok(())
    }

    /// Appends close_notify, once, unless the connection has failed. Receiving goes on.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if !self.closed && !matches!(self.state, State::Failed) {
            self.closed = true;
            self.records.send_alert(Alert::CLOSE_NOTIFY, out);
        }
    }

    /// Whether the server has sent close_notify: nothing more will come.
    pub fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// The server closed the TCP connection.
    ///
    /// # Errors
    /// [`Error::ClosedInHandshake`], or [`Error::Truncated`] where no close_notify came before: whether data is missing is then for
    /// the protocol above to tell.
    pub fn end_of_input(&mut self) -> Result<(), Error> {
        let connected = self.is_connected();
        let failed = matches!(std::mem::replace(&mut self.state, State::Failed), State::Failed);
        match (failed, self.peer_closed, connected) {
            (true, _, _) => Err(Error::Failed),
            (_, _, false) => Err(Error::ClosedInHandshake),
            (_, true, _) => Ok(()),
            (_, false, _) => Err(Error::Truncated),
        }
    }

    /// What was negotiated, once the handshake is complete.
    pub fn handshake(&self) -> Option<&Handshake> {
        self.is_connected().then_some(&self.summary)
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
            let limit = self.records.body_limit(self.version());
            let (record, after) = self.records.deframer.next(rest, limit)?;
            rest = after;
            let Some((header, mut body)) = record else {
                return Ok(());
            };
            if self.is_connected() {
                self.record(header, body.bytes(), now_ms, entropy, out, receiver)?;
                continue;
            }
            let before = out.len();
            self.record(header, body.bytes(), now_ms, entropy, out, receiver)?;
            let summary = &mut self.summary;
            summary.bytes_in = summary.bytes_in.saturating_add((record::HEADER + header.length()) as u32);
            summary.bytes_out = summary.bytes_out.saturating_add((out.len() - before) as u32);
        }
        Ok(())
    }

    /// The version, once the server has chosen it.
    fn version(&self) -> Option<Version> {
        match self.state {
            State::Tls13(_) | State::Open13(_) => Some(Version::Tls13),
            State::Tls12(_) | State::Open12 { .. } => Some(Version::Tls12),
            State::Offer(_) | State::Failed => None,
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
            State::Open13(_) | State::Open12 { .. } => "application data",
            State::Failed => "nothing",
        }
    }
}

/// Whether a record of this type is protected, given that there are keys to open it with.
///
/// In TLS 1.3 the types tell: application_data is, change_cipher_spec is not, and a server that could not establish the keys sends its
/// alert in plain text. In TLS 1.2 everything after change_cipher_spec is.
fn is_protected(state: &State, content_type: u8) -> Result<bool, Error> {
    match (state, content_type) {
        (State::Tls12(_) | State::Open12 { .. }, _) | (_, record::APPLICATION_DATA) => Ok(true),
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
        State::Failed => Err(Error::Failed),
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
