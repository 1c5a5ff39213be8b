//! The handshake of one connection as a bystander sees it, from both directions.

use std::cell::Cell;

use tlsdyno_wire::follow::{Follower, Met};
use tlsdyno_wire::handshake::{
    Body, CERTIFICATE, CLIENT_HELLO, CLIENT_KEY_EXCHANGE, SERVER_HELLO, SERVER_KEY_EXCHANGE,
};
use tlsdyno_wire::hello::{ClientHello, ServerHello, TLS13};
use tlsdyno_wire::{proxy_protocol, record};

use crate::offer::{Answer, Offer};
use crate::stream::{Next, Piece, Stream, distance};

/// Longest hello that is put together, bytes.
const LONGEST_HELLO: usize = 16 * 1024;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Client,
    Server,
}

impl End {
    pub fn other(self) -> End {
        match self {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }
}

/// What became of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Full,
    Resumed,
    RefusedByClient,
    LeftByClient,
    ClosedByServer,
    NoAnswer,
    Unfinished,
    WithoutHello,
    NotTls,
    Unreadable,
}

#[derive(Debug)]
struct Direction {
    stream: Stream,
    follower: Follower,
    /// Bytes are missing, and where the next record begins is not known.
    is_lost: bool,
    /// Where it ends.
    end: Option<u32>,
    changed_cipher: bool,
}

impl Direction {
    fn new(first: u32) -> Direction {
        let (stream, follower) = (Stream::new(first), Follower::default());
        Direction { stream, follower, is_lost: false, end: None, changed_cipher: false }
    }
}

/// A handshake that goes on.
#[derive(Debug)]
pub struct Handshake {
    /// By [`End`].
    directions: [Direction; 2],
    /// The client's first bytes, until it is known whether a header of the PROXY protocol comes first.
    beginning: Option<Vec<u8>>,
    pub offer: Option<Offer>,
    /// When the last hello was complete that has no answer yet, nanoseconds.
    asked_ns: Option<u64>,
    /// When the first byte of the answer passed, nanoseconds, and its sequence number.
    answer_begun: Option<(u64, u32)>,
    pub answer: Option<Answer>,
    pub is_retried: bool,
    /// A message passed that only full handshakes of TLS 1.2 have.
    is_full: Cell<bool>,
    server_alerted: bool,
    /// What the client had received when it sent its ChangeCipherSpec.
    changed_at: u32,
    /// Protected records of the client after the answer, none of which was its Finished for certain.
    other_records: u32,
    keeps_name: bool,
}

impl Handshake {
    /// `firsts`: sequence numbers of the first bytes of both ends. `keeps_name`: what server the client asks for.
    pub fn new(firsts: [u32; 2], keeps_name: bool) -> Handshake {
        Handshake {
            directions: firsts.map(Direction::new),
            beginning: Some(Vec::new()),
            offer: None,
            asked_ns: None,
            answer_begun: None,
            answer: None,
            is_retried: false,
            is_full: Cell::new(false),
            server_alerted: false,
            changed_at: 0,
            other_records: 0,
            keeps_name,
        }
    }

    /// Bytes that are held for it, beside itself.
    pub fn held_bytes(&self) -> usize {
        let kept = |follower: &Follower| follower.unfinished().map_or(0, |(_, body, _)| body.len());
        let of = |direction: &Direction| direction.stream.held_bytes() + kept(&direction.follower);
        self.directions.iter().map(of).sum::<usize>() + self.beginning.as_ref().map_or(0, Vec::len)
    }

    /// How many steps it has made.
    pub fn steps(&self) -> u8 {
        u8::from(self.offer.is_some()) + u8::from(self.is_retried) + u8::from(self.answer.is_some())
    }

    /// Nanoseconds from the complete hello to the first byte of its ServerHello.
    pub fn waited_ns(&self) -> Option<u64> {
        self.answer.as_ref()?;
        Some(self.answer_begun?.0.saturating_sub(self.asked_ns?))
    }

    /// Takes the payload of a segment, which may be empty. `end`: where its direction ends, if it says so.
    pub fn take(&mut self, from: End, piece: Piece<'_>, end: Option<u32>) -> Option<Outcome> {
        let now_ns = piece.time_ns;
        let other = self.direction(from.other());
        // The end of a direction is acknowledged like a byte.
        let end_of_other = other.end.filter(|end| distance(*end, piece.acknowledged) > 0);
        other.stream.note_received(end_of_other.unwrap_or(piece.acknowledged));
        let early = self.go_on(from.other(), now_ns);
        let direction = self.direction(from);
        direction.end = direction.end.or(end);
        let at_once = match direction.stream.put(piece) {
            Some(piece) if early.is_none() => self.read(from, &piece, now_ns),
            _ => early,
        };
        at_once.or_else(|| self.go_on(from, now_ns)).or_else(|| self.ended(from)).or_else(|| self.ended(from.other()))
    }

    /// Nothing more will come: `by` has cut the connection, or time is over.
    pub fn close(&mut self, by: Option<End>, now_ns: u64) -> Outcome {
        for end in [End::Client, End::Server] {
            self.direction(end).stream.give_up_gaps();
            if let Some(outcome) = self.go_on(end, now_ns) {
                return outcome;
            }
        }
        self.unfinished(by)
    }

    fn direction(&mut self, of: End) -> &mut Direction {
        &mut self.directions[of as usize]
    }

    /// The outcome if this end has closed its direction, and all before that has been read.
    fn ended(&mut self, end: End) -> Option<Outcome> {
        let direction = self.direction(end);
        let is_over = direction.end.is_some_and(|at| direction.stream.has_reached(at));
        is_over.then(|| self.unfinished(Some(end)))
    }

    fn unfinished(&self, by: Option<End>) -> Outcome {
        // A HelloRetryRequest is an answer while the client has not asked again.
        let is_answered = self.answer.is_some() || (self.is_retried && self.asked_ns.is_none());
        match by {
            _ if self.offer.is_none() => Outcome::WithoutHello,
            _ if self.server_alerted => Outcome::ClosedByServer,
            // A Finished of unusual length, perhaps within a longer record, or data.
            _ if self.other_records > 0 => self.completed(),
            // The beginning of a ServerHello.
            _ if !is_answered && self.answer_begun.is_some() => Outcome::Unreadable,
            Some(End::Server) if is_answered || self.directions[End::Server as usize].end.is_some() => {
                Outcome::ClosedByServer
            }
            Some(End::Client) if is_answered => Outcome::LeftByClient,
            None if is_answered => Outcome::Unfinished,
            _ => Outcome::NoAnswer,
        }
    }

    fn completed(&self) -> Outcome {
        let is_resumed = self.answer.as_ref().is_some_and(|answer| match answer.version {
            TLS13 => answer.accepts_psk,
            _ => !self.is_full.get(),
        });
        if is_resumed { Outcome::Resumed } else { Outcome::Full }
    }

    /// Reads what has waited for earlier bytes of this end.
    fn go_on(&mut self, of: End, now_ns: u64) -> Option<Outcome> {
        while let Some(next) = self.direction(of).stream.take() {
            let outcome = match next {
                Next::Piece(piece) => self.read(of, &piece, now_ns),
                Next::Gap(bytes) => self.miss(of, bytes),
            };
            if outcome.is_some() {
                return outcome;
            }
        }
        None
    }

    fn miss(&mut self, of: End, bytes: u32) -> Option<Outcome> {
        let is_vital = if of == End::Client { self.asked_ns.is_none() } else { self.answer.is_none() };
        let direction = self.direction(of);
        if direction.follower.lose(bytes as usize) {
            return None;
        }
        direction.is_lost = true;
        match (of, direction.follower.unfinished()) {
            _ if !is_vital => None,
            (End::Server, Some((SERVER_HELLO, body, length))) => {
                let answer = Answer::of_beginning(body, length);
                self.answered(answer.map(Some))
            }
            _ => Some(Outcome::Unreadable),
        }
    }

    /// Reads bytes in their order.
    fn read(&mut self, from: End, piece: &Piece<'_>, now_ns: u64) -> Option<Outcome> {
        let direction = self.direction(from);
        if direction.is_lost {
            // A sender often begins a segment with a record.
            let header = piece.bytes.first_chunk().copied().unwrap_or_default();
            if record::Header::decode(header, tlsdyno_wire::limits::RECORD_TLS12).is_err() || header[2] > 4 {
                return None;
            }
            direction.follower = Follower::default();
            direction.is_lost = false;
        }
        if from == End::Server {
            let is_answer = self.answer.is_none() && self.asked_ns.is_some() && !piece.bytes.is_empty();
            if is_answer && self.answer_begun.is_none() {
                self.answer_begun = Some((piece.time_ns, piece.sequence));
            }
        } else if let Some(mut beginning) = self.beginning.take() {
            beginning.extend_from_slice(&piece.bytes);
            let header = proxy_protocol::header_length(&beginning).filter(|length| *length <= beginning.len());
            return match header.or((beginning.len() >= proxy_protocol::LONGEST).then_some(0)) {
                Some(length) => self.follow(from, &beginning[length..], piece.acknowledged, now_ns),
                None => {
                    self.beginning = Some(beginning);
                    None
                }
            };
        }
        self.follow(from, &piece.bytes, piece.acknowledged, now_ns)
    }

    fn follow(&mut self, from: End, mut input: &[u8], acknowledged: u32, now_ns: u64) -> Option<Outcome> {
        let (hello, of_full): (u8, &[u8]) = match from {
            End::Client => (CLIENT_HELLO, &[CLIENT_KEY_EXCHANGE]),
            End::Server => (SERVER_HELLO, &[CERTIFICATE, SERVER_KEY_EXCHANGE]),
        };
        loop {
            let (is_protected, is_full) = (self.is_protected(from), &self.is_full);
            let keep = |kind, length: usize| {
                is_full.set(is_full.get() || (of_full.contains(&kind) && !is_protected));
                (kind == hello && !is_protected).then_some(length.min(LONGEST_HELLO))
            };
            let follower = &mut self.directions[from as usize].follower;
            let outcome = match (from, follower.next(&mut input, keep)) {
                (_, Ok(None)) => return None,
                (End::Client, Ok(Some(Met::Message { body, .. }))) => {
                    let offer = ClientHello::decode(body).ok().map(|hello| Offer::of(&hello, self.keeps_name));
                    self.asked(offer, now_ns)
                }
                (End::Server, Ok(Some(Met::Message { body, .. }))) => {
                    let hello = ServerHello::decode(body).ok();
                    let answer = hello.map(|hello| (!hello.is_retry()).then(|| Answer::of(&hello)));
                    self.answered(answer)
                }
                (End::Client, Ok(Some(Met::Record(kind)))) => {
                    let length = follower.record_left();
                    self.client_record(kind, length, acknowledged)
                }
                (End::Server, Ok(Some(Met::Record(kind)))) => {
                    self.server_alerted |= kind == record::ALERT;
                    let is_change = kind == record::CHANGE_CIPHER_SPEC && self.answer.is_some();
                    self.direction(from).changed_cipher |= is_change;
                    self.completed_12()
                }
                (End::Client, Err(_)) if self.offer.is_none() => Some(Outcome::NotTls),
                (End::Server, Err(_)) if self.answer.is_none() => Some(Outcome::Unreadable),
                (_, Err(_)) => {
                    self.direction(from).is_lost = true;
                    return None;
                }
            };
            if outcome.is_some() {
                return outcome;
            }
        }
    }

    /// What follows a ChangeCipherSpec of TLS 1.2 is protected, also messages of the handshake.
    fn is_protected(&self, end: End) -> bool {
        let is_changed = self.directions[end as usize].changed_cipher;
        is_changed && self.answer.as_ref().is_some_and(|answer| answer.version != TLS13)
    }

    fn asked(&mut self, offer: Option<Offer>, now_ns: u64) -> Option<Outcome> {
        let Some(offer) = offer else {
            return Some(Outcome::Unreadable);
        };
        self.asked_ns = Some(now_ns);
        self.answer_begun = None;
        self.offer.get_or_insert(offer);
        None
    }

    /// A record of the client that is none of the handshake.
    fn client_record(&mut self, kind: u8, length: usize, acknowledged: u32) -> Option<Outcome> {
        let is_change = kind == record::CHANGE_CIPHER_SPEC;
        if is_change && !std::mem::replace(&mut self.direction(End::Client).changed_cipher, true) {
            self.changed_at = acknowledged;
        }
        let answer = self.answer.as_ref()?;
        match kind {
            record::ALERT if self.other_records == 0 => Some(Outcome::RefusedByClient),
            record::ALERT => Some(self.completed()),
            _ if answer.version != TLS13 && is_change => self.completed_12(),
            _ if answer.version != TLS13 => self.data_12(acknowledged),
            _ if is_change => None,
            _ => self.protected_13(length, acknowledged),
        }
    }

    /// Data of TLS 1.2. A client may send some before the server's ChangeCipherSpec (RFC 7918). If it has received more
    /// since its own, that was there too, though nobody saw it: behind a long ticket.
    fn data_12(&mut self, acknowledged: u32) -> Option<Outcome> {
        self.other_records += u32::from(self.is_protected(End::Client));
        (self.other_records > 0 && distance(self.changed_at, acknowledged) > 0).then(|| self.completed())
    }

    /// A protected record of TLS 1.3, which is complete at the client's Finished. That has one length for each suite.
    /// Where the first protected record has another (a client's certificate, perhaps with the Finished in the same
    /// record), the one after it completes the handshake, for the two are sent together.
    fn protected_13(&mut self, length: usize, acknowledged: u32) -> Option<Outcome> {
        let answer = self.answer.as_ref()?;
        // Early data that was sent before the answer came.
        if self.answer_begun.is_some_and(|(_, begun)| distance(begun, acknowledged) <= 0) {
            return None;
        }
        if length == answer.finished_bytes() {
            return Some(self.completed());
        }
        if length == answer.alert_bytes() {
            return Some(Outcome::RefusedByClient);
        }
        self.other_records += 1;
        let sends_early = self.offer.as_ref().is_some_and(|offer| offer.has_early_data) && !self.is_retried;
        (self.other_records > 1 && !sends_early).then(|| self.completed())
    }

    fn completed_12(&self) -> Option<Outcome> {
        let is_over = self.is_protected(End::Client) && self.is_protected(End::Server);
        is_over.then(|| self.completed())
    }

    /// `answer`: `None` where it cannot be read, and `Some(None)` for a HelloRetryRequest, which has the client send
    /// another hello.
    fn answered(&mut self, answer: Option<Option<Answer>>) -> Option<Outcome> {
        match answer {
            None => return Some(Outcome::Unreadable),
            Some(None) => {
                self.is_retried = true;
                self.asked_ns = None;
            }
            Some(answer) => self.answer = self.answer.take().or(answer),
        }
        None
    }
}
