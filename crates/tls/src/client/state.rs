//! What a client waits for, and what a state has at hand while it handles a message.

use std::sync::Arc;

use tlsdyno_wire::handshake::{self, Message};

use super::{Entropy, Handshake, Receiver};
use crate::config::Config;
use crate::error::Error;
use crate::offer::Offer;
use crate::records::Records;
use crate::skeleton::Skeleton;
use crate::suite::Version;
use crate::{tls12, tls13};

/// What the client waits for. Handshake states are boxed: they are large, and gone once the connection carries data.
pub(crate) enum State {
    Offer(Box<Offer>),
    /// The rest of a TLS 1.3 handshake.
    Tls13(Box<tls13::Handshaking>),
    /// The rest of a TLS 1.2 handshake.
    Tls12(Box<tls12::Handshaking>),
    /// TLS 1.3 application data.
    Open13(Box<tls13::Open>),
    /// TLS 1.2 application data.
    Open12 {
        renegotiation_refused: bool,
    },
    /// The rest of a skeleton handshake.
    Skeleton(Box<Skeleton>),
    /// Data in plain.
    Plain,
    /// Data protected with keys of zeros, without any handshake.
    Minimal(Version),
    Failed,
}

/// How many records and messages without meaning came during the handshake: a server must get on with it.
pub(super) struct Ignored(u8);

impl Ignored {
    const MAX: u8 = 32;

    pub(super) fn new() -> Ignored {
        Ignored(0)
    }

    pub(super) fn count(&mut self) -> Result<(), Error> {
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
    /// Whether the server's sessions are for the receiver: it has a use for them, and no perfect cache replaces them
    /// all.
    pub fn keeps_sessions(&self) -> bool {
        self.config.settings().universal.is_none() && self.receiver.wants_sessions()
    }

    /// Keys change after this message: no byte under the old ones may follow it in its record.
    pub fn require_record_end(&self) -> Result<(), Error> {
        if self.at_record_end {
            return Ok(());
        }
        Err(Error::UnexpectedMessage { got: "more data in the record", expected: "a key change" })
    }
}

pub(super) fn handle(state: State, message: &Message<'_>, context: &mut Context<'_>) -> Result<State, Error> {
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
