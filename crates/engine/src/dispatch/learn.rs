//! What becomes of the session that a client offered: read in what the server lets everybody see, and remembered.

use tlsdyno_wire::hello::{TLS12, TLS13};
use tlsdyno_wire::session_keys::{ClientReader, ServerReader, ServerSays, SessionId};

use super::memory::{Memory, Name, Offer};
use super::route::{Reason, Route};

/// What a handshake came to, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No session was offered.
    Fresh,
    /// The backend accepted the offered session.
    Accepted,
    /// It was not.
    Rejected,
}

/// Where and when something is learned.
#[derive(Clone, Copy, Debug)]
pub struct Lesson<'a> {
    /// The tables in which it is remembered.
    pub memory: &'a Memory,
    /// Slot of the backend.
    pub slot: u8,
    /// All backends there are, as a mask.
    pub all: u64,
    /// The current time of the dispatcher's clock, seconds.
    pub now_s: u32,
    /// For how many seconds it is remembered.
    pub timeout_s: u32,
}

/// Follows the handshake of one connection.
#[derive(Debug)]
pub struct Student {
    offer: Offer,
    /// Rejections and acceptances of names are remembered.
    learn: bool,
    /// The backend is known to hold the session.
    sent_to_holder: bool,
    server: ServerReader,
    /// Reads the second hello, after a HelloRetryRequest.
    second: Option<ClientReader>,
    /// Given out by the server, to be remembered once it has checked the client's Finished: until then anybody can
    /// make it give out IDs.
    issued_id: Option<SessionId>,
    issued_name: Option<Name>,
}

impl Student {
    /// For a connection whose client offers this.
    pub fn new(offer: Offer) -> Student {
        Student {
            offer,
            learn: true,
            sent_to_holder: false,
            server: ServerReader::default(),
            second: None,
            issued_id: None,
            issued_name: None,
        }
    }

    /// The sessions that the client offers.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Where the connection is sent, and whether keys of the offered tickets are to be learned.
    pub fn set_route(&mut self, route: &Route) {
        self.learn = route.learn;
        self.sent_to_holder = route.reason == Reason::Known;
    }

    /// The backend is known to hold the session: a rejection is its own decision.
    pub fn sent_to_holder(&self) -> bool {
        self.sent_to_holder
    }

    /// Whether the rest of the handshake can teach nothing more.
    pub fn is_done(&self) -> bool {
        self.server.is_done()
    }

    /// Takes bytes from the client; only those after a HelloRetryRequest matter.
    pub fn read_client(&mut self, bytes: &[u8], memory: &Memory) {
        let Some(reader) = &mut self.second else { return };
        match reader.read(bytes) {
            Ok(None) => {}
            Ok(Some(keys)) => {
                // The server's answer counts the identities of this hello.
                self.offer = memory.offer(&keys);
                self.second = None;
            }
            Err(_) => {
                self.offer = Offer::default();
                self.second = None;
            }
        }
    }

    /// Takes bytes from the server. Answers what the handshake came to, once.
    pub fn read_server(&mut self, bytes: &[u8], hello_bytes_max: usize, lesson: &Lesson) -> Option<Outcome> {
        let mut said = [None; 4];
        let mut count = 0;
        self.server.read(bytes, |says| {
            if let Some(place) = said.get_mut(count) {
                *place = Some(says);
                count += 1;
            }
        });
        let mut outcome = None;
        for says in said.into_iter().flatten() {
            outcome = self.hear(says, hello_bytes_max, lesson).or(outcome);
        }
        outcome
    }

    /// Takes what the server says, where there are no bytes that say it. Answers what the handshake came to, once.
    pub fn hear(&mut self, says: ServerSays, hello_bytes_max: usize, lesson: &Lesson) -> Option<Outcome> {
        match says {
            ServerSays::Retry => self.second = Some(ClientReader::second(hello_bytes_max)),
            ServerSays::Hello { version: TLS13, identity, .. } => return Some(self.tls13(identity, lesson)),
            ServerSays::Hello { version, session_id, .. } if version <= TLS12 => {
                return Some(self.tls12(session_id, lesson));
            }
            ServerSays::Hello { .. } | ServerSays::Nothing => {}
            ServerSays::Ticket(ticket) => self.issued_name = lesson.memory.name(&ticket),
            ServerSays::Encrypts => self.remember_issued(lesson),
        }
        None
    }

    fn tls13(&mut self, identity: Option<u16>, lesson: &Lesson) -> Outcome {
        match identity {
            Some(index) => {
                if let Some(name) = self.offer.identity(index).filter(|_| self.learn) {
                    lesson.memory.name_accepted(name, lesson.slot, lesson.now_s, lesson.timeout_s);
                }
                Outcome::Accepted
            }
            None if self.offer.identities_offered() > 0 => {
                let names = self.offer.identity_names().filter(|_| self.learn);
                names.for_each(|name| self.rejected(name, lesson));
                Outcome::Rejected
            }
            None => Outcome::Fresh,
        }
    }

    /// A TLS 1.2 server resumes by echoing the client's ID (RFC 5246 section 7.4.1.3, RFC 5077 section 3.4).
    fn tls12(&mut self, session_id: SessionId, lesson: &Lesson) -> Outcome {
        if !session_id.is_empty() && session_id == self.offer.session_id() {
            if let Some(name) = self.offer.ticket_name() {
                lesson.memory.name_accepted(name, lesson.slot, lesson.now_s, lesson.timeout_s);
            }
            return Outcome::Accepted;
        }
        self.issued_id = (!session_id.is_empty()).then_some(session_id);
        if let Some(name) = self.offer.ticket_name().filter(|_| self.learn) {
            self.rejected(name, lesson);
        }
        if self.offer.offers_tls12_session() { Outcome::Rejected } else { Outcome::Fresh }
    }

    fn rejected(&self, name: Name, lesson: &Lesson) {
        lesson.memory.name_rejected(name, lesson.slot, lesson.all, lesson.now_s, lesson.timeout_s);
    }

    fn remember_issued(&mut self, lesson: &Lesson) {
        if let Some(id) = self.issued_id.take() {
            lesson.memory.id_issued(id, lesson.slot, lesson.now_s, lesson.timeout_s);
        }
        if let Some(name) = self.issued_name.take() {
            lesson.memory.name_accepted(name, lesson.slot, lesson.now_s, lesson.timeout_s);
        }
    }
}
