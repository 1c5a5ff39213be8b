//! What comes from the server: cut into records, opened, joined to messages, and given to the state.

use tlsdyno_wire::{handshake, record};

use super::state::handle;
use super::{Client, Context, EarlyData, Entropy, Receiver, State};
use crate::error::{Alert, Error};
use crate::script::From;
use crate::suite::Version;

impl Client {
    pub(super) fn receive_records(
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

    fn count(&mut self, bytes_in: usize, bytes_out: usize) {
        self.flights.count(From::Server, bytes_in);
        self.flights.count(From::Client, bytes_out);
        let summary = &mut self.summary;
        summary.bytes_in = summary.bytes_in.saturating_add(bytes_in as u32);
        summary.bytes_out = summary.bytes_out.saturating_add(bytes_out as u32);
    }

    /// Whether the input, which is not empty, goes on with data in plain. In front of the first of them TLS 1.3 has
    /// tickets, whose records begin in another way than HTTP does (docs/NOOP.md, "marshalling"). One byte tells: of
    /// more, a part may have come.
    fn is_plain_from(&self, input: &[u8]) -> bool {
        match self.state {
            State::Plain => true,
            State::Open13(_) if self.config.is_plain() && !self.records.deframer.is_partial() => {
                input[0] != record::APPLICATION_DATA
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
            && !early.sent.is_empty()
        {
            if self.config.is_fast() && self.summary.resumed.is_none() {
                out.extend_from_slice(&early.sent);
            } else if self.summary.early_data == EarlyData::Rejected {
                self.records.send(record::APPLICATION_DATA, &early.sent, out);
            }
        }
        if self.config.is_plain() && matches!(self.state, State::Open12 { .. }) {
            self.state = State::Plain;
        }
    }

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
            let (kind, bytes) = (message.kind(), message.whole().len());
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
            receiver.message(kind, bytes);
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
            alert if self.summary.certificate_requested && self.config.settings().client_certificate.is_none() => {
                Err(Error::CertificateWanted(alert))
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

/// Whether a record of this type is protected, given that there are keys to open it with.
///
/// In TLS 1.3 the types tell: application_data is, change_cipher_spec is not, and a server that could not establish the
/// keys sends its alert in plain text. In TLS 1.2 everything after change_cipher_spec is.
fn is_protected(state: &State, content_type: u8) -> Result<bool, Error> {
    match (state, content_type) {
        (State::Tls12(_) | State::Open12 { .. } | State::Minimal(Version::Tls12), _) => Ok(true),
        (_, record::APPLICATION_DATA) => Ok(true),
        (State::Tls13(_), record::CHANGE_CIPHER_SPEC | record::ALERT) => Ok(false),
        _ => Err(Error::UnexpectedMessage { got: "an unprotected record", expected: "a protected record" }),
    }
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
