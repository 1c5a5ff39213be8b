//! One connection: handshake, requests in order, one answer at a time.

use std::fs::File;
use std::io::Write;

use tlsdyno_wire::http::{Body, HttpFault, RequestHead, request_head};

use super::answer::{Answer, Status};
use super::date::HttpDate;
use super::docroot::{Content, Docroot};
use super::limits::{LINGER_NS, PIECES_PER_TURN, RECORD_BYTES, REQUEST_HEAD_BYTES_MAX};
use super::origin::{Exchange, Origin, Progress};
use super::pages::Pages;
use super::sending::Sending;
use super::transaction::Builder;
use super::transport::{Attempt, Transport};
use super::worker::Settings;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What all connections of a worker share: buffers for the moment of use, so that an idle connection holds none.
pub struct Shared<'d> {
    pub docroot: &'d Docroot,
    /// Where sessions are logged, if wanted.
    session_log: Option<File>,
    /// Builds pages, where these cost something.
    pub builder: Option<Builder>,
    /// The server behind, to which requests are passed on.
    pub origin: Option<Origin>,
    /// Who is asked for pages.
    pages: Option<Box<dyn Pages>>,
    pub driven: u32,
    /// Monotonic clock at the beginning of this turn.
    pub now_ns: u64,
    pub date: HttpDate,
    input: Vec<u8>,
    record: Box<[u8; RECORD_BYTES]>,
    file_piece: Box<[u8; RECORD_BYTES]>,
    path: Vec<u8>,
}

impl<'d> Shared<'d> {
    /// Empty buffers, clock at zero.
    pub fn new(docroot: &'d Docroot, settings: Settings) -> Shared<'d> {
        Shared {
            docroot,
            session_log: settings.session_log,
            builder: settings.transaction.map(Builder::new),
            origin: None,
            pages: settings.pages,
            driven: 0,
            now_ns: 0,
            date: super::date::http_date(0),
            input: vec![0; RECORD_BYTES],
            record: Box::new([0; RECORD_BYTES]),
            file_piece: Box::new([0; RECORD_BYTES]),
            path: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Wait {
        /// It has output that does not go.
        for_output: bool,
    },
    /// Another turn, after the others had theirs.
    Again,
    /// To be driven when its page is done.
    Page {
        done_ns: u64,
    },
    Close,
}

pub struct Connection<'d> {
    /// How its bytes travel.
    pub transport: Transport,
    /// Monotonic clock when it last made progress.
    pub progress_ns: u64,
    phase: Phase<'d>,
    /// Input that was read but not used: an incomplete head, or further requests.
    pending: Vec<u8>,
    /// There is something in `pending` that was not looked at yet.
    unseen: bool,
    /// Head of the answer being sent.
    head: Vec<u8>,
    requests: u64,
    /// When the page that is built will be done was told.
    is_told: bool,
}

enum Phase<'d> {
    Handshake,
    Head,
    /// A request body is read and dropped; then the answer is sent.
    Body(Body, Answer<'d>),
    /// `100 Continue` is sent; so many bytes of it have gone.
    Continue(usize, Body, Answer<'d>),
    /// A page is built; then it is sent.
    Build {
        done_ns: u64,
        sending: Sending<'d>,
    },
    Send(Sending<'d>),
    Origin(Box<Exchange>),
    /// All is said; the handshake is completed before the connection is closed, where that did not happen yet.
    Goodbye {
        linger: bool,
    },
    /// A refused client may still be sending: closing now could destroy the refusal on its way (RFC 9112 section 9.6).
    Linger {
        until_ns: u64,
    },
}

impl<'d> Connection<'d> {
    pub fn new(transport: Transport, now_ns: u64) -> Connection<'d> {
        let phase = match transport {
            Transport::Plain(_) => Phase::Head,
            Transport::Tls { .. } => Phase::Handshake,
        };
        Connection {
            transport,
            progress_ns: now_ns,
            phase,
            pending: Vec::new(),
            unseen: false,
            head: Vec::new(),
            requests: 0,
            is_told: false,
        }
    }

    /// Does what can be done now.
    pub fn drive(&mut self, shared: &mut Shared<'d>) -> Wish {
        let mut pieces = 0;
        loop {
            let wish = match &self.phase {
                Phase::Handshake => self.shake_hands(),
                Phase::Head | Phase::Body(..) => self.receive(shared),
                Phase::Continue(..) => self.send_continue(shared),
                Phase::Build { .. } => self.await_page(shared.now_ns),
                Phase::Send(_) => {
                    pieces += 1;
                    if pieces > PIECES_PER_TURN {
                        return Wish::Again;
                    }
                    self.send(shared)
                }
                Phase::Origin(_) => {
                    pieces += 1;
                    if pieces > PIECES_PER_TURN {
                        return Wish::Again;
                    }
                    self.relay(shared)
                }
                Phase::Goodbye { .. } => self.end(shared),
                Phase::Linger { until_ns } if shared.now_ns >= *until_ns => Some(Wish::Close),
                Phase::Linger { .. } => self.drain(shared),
            };
            match wish {
                None => self.progress_ns = shared.now_ns,
                Some(wish) => return wish,
            }
        }
    }

    /// Whether a lingering connection has lingered long enough.
    pub fn has_lingered(&self, now_ns: u64) -> bool {
        matches!(self.phase, Phase::Linger { until_ns } if now_ns >= until_ns)
    }

    /// What follows from an attempt: `Ok(bytes)`, or the wish to return with.
    fn outcome(&mut self, attempt: Attempt) -> Result<usize, Wish> {
        match attempt {
            Attempt::Moved(bytes) => Ok(bytes),
            Attempt::Blocked { on_output } => Err(Wish::Wait { for_output: on_output }),
            Attempt::Ended => {
                self.transport.say_goodbye();
                Err(Wish::Close)
            }
            Attempt::Broken => Err(Wish::Close),
        }
    }

    fn shake_hands(&mut self) -> Option<Wish> {
        let attempt = self.transport.handshake();
        match self.outcome(attempt) {
            Ok(_) => {
                self.phase = Phase::Head;
                None
            }
            Err(wish) => Some(wish),
        }
    }

    fn receive(&mut self, shared: &mut Shared<'d>) -> Option<Wish> {
        if std::mem::take(&mut self.unseen) {
            let pending = std::mem::take(&mut self.pending);
            let used = self.consume(&pending, shared);
            self.pending = pending;
            self.pending.drain(..used);
            return None;
        }
        let attempt = self.transport.read(&mut shared.input);
        let bytes = match self.outcome(attempt) {
            Ok(bytes) => bytes,
            Err(wish) => return Some(wish),
        };
        if self.pending.is_empty() {
            // The usual case: the request came in one piece, nothing is copied.
            let input = std::mem::take(&mut shared.input);
            let used = self.consume(&input[..bytes], shared);
            self.pending.extend_from_slice(&input[used..bytes]);
            shared.input = input;
        } else {
            self.pending.extend_from_slice(&shared.input[..bytes]);
            self.unseen = true;
        }
        None
    }

    /// Uses input until an answer is due or nothing more can be made of it; answers how much was used.
    fn consume(&mut self, input: &[u8], shared: &mut Shared<'d>) -> usize {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            match &mut self.phase {
                Phase::Head => match request_head(rest) {
                    Ok(Some(request)) if request.bytes <= REQUEST_HEAD_BYTES_MAX && shared.origin.is_some() => {
                        used += request.bytes;
                        self.pass_on(&request, shared);
                    }
                    Ok(Some(request)) if request.bytes <= REQUEST_HEAD_BYTES_MAX => {
                        let answer = Answer::to(&request, shared.docroot, &mut shared.path);
                        used += request.bytes;
                        let expects = !request.body.is_complete() && rest.len() == request.bytes;
                        let asks = || {
                            request
                                .headers
                                .get("Expect")
                                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
                        };
                        self.phase = if expects && asks() {
                            Phase::Continue(0, request.body, answer)
                        } else {
                            Phase::Body(request.body, answer)
                        };
                    }
                    Ok(None) if rest.len() < REQUEST_HEAD_BYTES_MAX => return used,
                    Ok(_) | Err(HttpFault::HeadTooLong) => self.refuse(Status::HeadTooLarge, shared),
                    Err(_) => self.refuse(Status::BadRequest, shared),
                },
                Phase::Body(body, answer) => {
                    let answer = *answer;
                    match body.advance(rest) {
                        Ok(advance) => used += advance.consumed,
                        Err(_) => {
                            self.refuse(Status::BadRequest, shared);
                            continue;
                        }
                    }
                    if !body.is_complete() {
                        return used;
                    }
                    self.answer(answer, shared);
                }
                _ => {
                    self.unseen = used < input.len();
                    return used;
                }
            }
        }
    }

    fn answer(&mut self, answer: Answer<'d>, shared: &mut Shared<'d>) {
        let mut answer = answer;
        let (mut file, mut page) = (None, None);
        if let (Some(object), false, false) = (answer.object, answer.head_only, answer.is_refusal()) {
            match &object.content {
                Content::Memory(_) => {}
                Content::File(path) => match File::open(path) {
                    Ok(opened) => file = Some(opened),
                    // Removed since the start.
                    Err(_) => answer = Answer::refusal(Status::NotFound, answer.persists),
                },
                Content::Page(path) => {
                    page = shared.pages.as_mut().and_then(|pages| pages.body(path));
                    // Of another length than at the start it is not what the head promises.
                    page = page.filter(|body| body.len() as u64 == object.bytes);
                    if page.is_none() {
                        answer = Answer::refusal(Status::BadGateway, answer.persists);
                    }
                }
            }
        }
        answer.write_head(&shared.date, &mut self.head);
        self.requests += 1;
        self.log_session(shared);
        let sending = Sending { answer, file, page, sent: 0, linger: false };
        // A refusal is no page.
        self.phase = match &mut shared.builder {
            Some(builder) if !answer.is_refusal() => Phase::Build { done_ns: builder.build(), sending },
            _ => Phase::Send(sending),
        };
        self.is_told = false;
    }

    fn pass_on(&mut self, request: &RequestHead<'_>, shared: &mut Shared<'d>) {
        if !request.body.is_complete() {
            return self.refuse(Status::NotImplemented, shared);
        }
        let begun = shared.origin.as_mut().and_then(|origin| origin.begin(request, shared.driven));
        let Some(exchange) = begun else { return self.refuse(Status::BadGateway, shared) };
        self.requests += 1;
        self.log_session(shared);
        self.phase = Phase::Origin(Box::new(exchange));
    }

    /// Passes what comes from the server behind on to the client.
    fn relay(&mut self, shared: &mut Shared<'d>) -> Option<Wish> {
        let (Phase::Origin(exchange), Some(origin)) = (&mut self.phase, &mut shared.origin) else {
            return None;
        };
        if exchange.gone < exchange.pending.len() {
            let attempt = self.transport.write(&exchange.pending[exchange.gone..], &[], &mut shared.record);
            if let Attempt::Moved(bytes) = attempt {
                exchange.gone += bytes;
                return None;
            }
            return self.outcome(attempt).err();
        }
        exchange.pending.clear();
        exchange.gone = 0;
        match origin.go_on(exchange, &mut shared.input) {
            Progress::Some => None,
            Progress::Blocked => Some(Wish::Wait { for_output: false }),
            Progress::Complete => {
                origin.end(exchange);
                self.phase = if exchange.persists { Phase::Head } else { Phase::Goodbye { linger: false } };
                None
            }
            Progress::Unreachable => {
                origin.end(exchange);
                // The request was counted when it was passed on.
                self.send_refusal(Status::BadGateway, shared);
                None
            }
            Progress::Broken => Some(Wish::Close),
        }
    }

    /// Lets go of what others hold for a connection that is closed.
    pub fn leave(&self, shared: &mut Shared<'d>) {
        if let (Phase::Origin(exchange), Some(origin)) = (&self.phase, &mut shared.origin) {
            origin.end(exchange);
        }
    }

    /// Sends the page when it is done. Until then its time is told once.
    fn await_page(&mut self, now_ns: u64) -> Option<Wish> {
        match std::mem::replace(&mut self.phase, Phase::Head) {
            Phase::Build { done_ns, sending } if done_ns <= now_ns => {
                self.phase = Phase::Send(sending);
                None
            }
            Phase::Build { done_ns, sending } => {
                self.phase = Phase::Build { done_ns, sending };
                let told = std::mem::replace(&mut self.is_told, true);
                Some(if told { Wish::Wait { for_output: false } } else { Wish::Page { done_ns } })
            }
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Begins to send a refusal, after which the connection is closed: what follows cannot be understood.
    fn refuse(&mut self, status: Status, shared: &mut Shared<'d>) {
        self.requests += 1;
        self.log_session(shared);
        self.send_refusal(status, shared);
    }

    fn send_refusal(&mut self, status: Status, shared: &mut Shared<'d>) {
        let answer = Answer::refusal(status, false);
        answer.write_head(&shared.date, &mut self.head);
        self.phase = Phase::Send(Sending { answer, file: None, page: None, sent: 0, linger: true });
    }

    fn send_continue(&mut self, shared: &mut Shared<'d>) -> Option<Wish> {
        let Phase::Continue(sent, body, answer) = self.phase else {
            return None;
        };
        let attempt = self.transport.write(&CONTINUE[sent..], &[], &mut shared.record);
        match self.outcome(attempt) {
            Ok(bytes) if sent + bytes < CONTINUE.len() => self.phase = Phase::Continue(sent + bytes, body, answer),
            Ok(_) => self.phase = Phase::Body(body, answer),
            Err(wish) => return Some(wish),
        }
        None
    }

    fn send(&mut self, shared: &mut Shared<'d>) -> Option<Wish> {
        let Phase::Send(sending) = &self.phase else {
            return None;
        };
        let head_bytes = self.head.len() as u64;
        let head = &self.head[sending.sent.min(head_bytes) as usize..];
        let from = sending.sent.saturating_sub(head_bytes);
        let Some(body) = sending.body(from, &mut shared.file_piece) else {
            // The file became shorter or unreadable: what was promised cannot be sent.
            return Some(Wish::Close);
        };
        let attempt = self.transport.write(head, body, &mut shared.record);
        let bytes = match self.outcome(attempt) {
            Ok(bytes) => bytes as u64,
            Err(wish) => return Some(wish),
        };
        let Phase::Send(sending) = &mut self.phase else {
            return None;
        };
        sending.sent += bytes;
        if sending.sent < head_bytes + sending.body_bytes() {
            return None;
        }
        let (persists, linger) = (sending.answer.persists, sending.linger);
        self.phase = if persists { Phase::Head } else { Phase::Goodbye { linger } };
        None
    }

    fn end(&mut self, shared: &mut Shared<'d>) -> Option<Wish> {
        let Phase::Goodbye { linger } = self.phase else {
            return None;
        };
        let now_ns = shared.now_ns;
        let attempt = self.transport.complete(&mut shared.input);
        if let Err(wish) = self.outcome(attempt) {
            return Some(wish);
        }
        self.transport.say_goodbye();
        if !linger {
            return Some(Wish::Close);
        }
        self.phase = Phase::Linger { until_ns: now_ns + LINGER_NS };
        self.pending = Vec::new();
        self.transport.socket().end_sending().err().map(|_| Wish::Close)
    }

    /// Reads and drops what a refused client still sends.
    fn drain(&mut self, shared: &mut Shared<'d>) -> Option<Wish> {
        // Below TLS: it is not looked at, so it need not be decrypted.
        use std::io::Read;
        match self.transport.socket_mut().read(&mut shared.input) {
            Ok(1..) => None,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Some(Wish::Wait { for_output: false }),
            Ok(0) | Err(_) => Some(Wish::Close),
        }
    }

    /// One line per request, as the drivers' nginx configuration writes it.
    fn log_session(&self, shared: &mut Shared<'d>) {
        let Some(log) = &mut shared.session_log else {
            return;
        };
        let line = match &self.transport {
            Transport::Plain(_) => format!("- - - {}\n", self.requests),
            Transport::Tls { stream, .. } => {
                let ssl = stream.ssl();
                let reused = if ssl.session_reused() { "r" } else { "." };
                let cipher = ssl.current_cipher().map_or("-", |cipher| cipher.name());
                format!("{reused} {} {cipher} {}\n", ssl.version_str(), self.requests)
            }
        };
        // A full disk shows as missing lines, which whoever reads the log counts.
        let _ = log.write_all(line.as_bytes());
    }
}
