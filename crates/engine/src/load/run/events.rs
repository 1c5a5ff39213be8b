//! What happened to connections, told to the policy: input, the end of handshakes and responses, closes and failures.

use tlsdyno_tls::{Client, EarlyData, Effort, Receiver, SessionKind};
use tlsdyno_wire::http::Response;
use tlsdyno_wire::http2;

use super::Run;
use crate::load::connection::{Connection, ConnectionPhase, Exchange, Found, Http2Sink, Read, To};
use crate::load::limits::{READS_PER_EVENT_MAX, RESOURCE_PAUSE_NS};
use crate::load::lives::Life;
use crate::load::outcome::{ErrorKind, Phase};
use crate::load::redirect::{Asked, Hop};
use crate::load::users::{ActiveId, ConnectionId, Loss};
use crate::reactor::Event;

/// What a response was.
#[derive(Clone, Copy)]
pub(super) struct Answer<'a> {
    pub status: u16,
    pub body_bytes: u64,
    pub location: Option<&'a [u8]>,
}

impl Run<'_> {
    pub(super) fn on_event(&mut self, event: Event) {
        let (id, number) = (event.token as ConnectionId, (event.token >> 32) as u32);
        if self.is_current(id, number) && event.writable {
            self.on_writable(id);
            self.carry_out();
        }
        if self.is_current(id, number) && event.readable {
            self.on_readable(id, number, event.peer_ended);
            self.carry_out();
        }
    }

    /// Whether the place still holds that connection: handling one event may close it and give its place to another.
    pub(super) fn is_current(&self, id: ConnectionId, number: u32) -> bool {
        let place = &self.places[id as usize];
        place.connection.is_some() && place.number == number
    }

    pub(super) fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        self.places[id as usize].connection.as_mut().expect("who calls this knows that the connection is open")
    }

    fn on_writable(&mut self, id: ConnectionId) {
        let now_ns = self.now_ns;
        let connection = self.connection(id);
        connection.progress_ns = now_ns;
        if connection.phase == ConnectionPhase::Connecting {
            return self.connected(id);
        }
        // An error makes a socket writable, too: it is found, behind what is there to read, by reading.
        if connection.unsent.is_empty() {
            return;
        }
        let result = connection.send_unsent();
        self.heard_ns = now_ns;
        match result {
            Ok(sent) => {
                self.sent(id, sent);
                self.continue_body(id);
                self.flush();
            }
            Err(kind) => self.send_failed(id, kind),
        }
    }

    /// Nothing can be sent any more. A server may have answered before it had read everything (early data, a body that
    /// it refuses): only behind what it sent does the connection fail.
    pub(super) fn send_failed(&mut self, id: ConnectionId, kind: ErrorKind) {
        if kind != ErrorKind::Reset || self.connection(id).phase == ConnectionPhase::Connecting {
            return self.fail_or_repeat(id, kind);
        }
        self.connection(id).break_off(kind);
        self.watch(id);
    }

    fn on_readable(&mut self, id: ConnectionId, number: u32, peer_ended: bool) {
        for _ in 0..READS_PER_EVENT_MAX {
            let connection = self.places[id as usize].connection.as_mut().expect("the connection is current");
            match connection.read(&mut self.input) {
                Ok(Read::Bytes(bytes)) => {
                    // What keeps a client of HTTP/2 busy is no progress.
                    if connection.http2.is_none() {
                        connection.progress_ns = self.now_ns;
                    }
                    self.heard_ns = self.now_ns;
                    self.receive(id, bytes);
                    let more = bytes == self.input.len();
                    if !self.is_current(id, number) {
                        return;
                    }
                    // A short read has emptied the socket, and if the peer had ended the stream before, that was all.
                    match (more, peer_ended) {
                        (true, _) => continue,
                        (false, true) => return self.peer_ended(id),
                        (false, false) => return,
                    }
                }
                Ok(Read::Nothing) => return,
                Ok(Read::End) => return self.peer_ended(id),
                Err(kind) => return self.fail_or_repeat(id, kind),
            }
        }
    }

    fn receive(&mut self, id: ConnectionId, bytes: usize) {
        self.output_for(id);
        let connection = self.places[id as usize].connection.as_mut().expect("it was just read from");
        let Connection { tls, response, exchange, http2, .. } = connection;
        // An honest client makes keys of every ticket, as clients do.
        let wants_sessions = self.sessions.matter() || self.plan.target.effort() == Some(Effort::Honest);
        let to = match http2 {
            Some(http2) => {
                let (out, events) = (&mut self.frames, &mut self.http2_events);
                To::Http2(Http2Sink { http2, out, events, fault: None })
            }
            // A server may send its settings with the end of its handshake, before it is known what it chose.
            None if connection.phase == ConnectionPhase::Handshaking && self.plan.target.offers_http2() => {
                self.plain.clear();
                To::Undecided(&mut self.plain)
            }
            None => To::Http1(response, exchange),
        };
        let mut first_byte = false;
        let recorder = &mut self.recorder;
        let began = &mut |after_ns| {
            first_byte = true;
            recorder.latency(Phase::FirstByte, after_ns);
        };
        let (sessions, now_ns) = (&mut self.found_sessions, self.now_ns);
        let mut found = Found { to, sessions, wants_sessions, now_ns, began, excess: false, fault: None };
        let input = &mut self.input[..bytes];
        let result = match tls {
            Some(client) => {
                client.receive(input, self.now_ns / 1_000_000, &mut self.entropy, &mut self.out, &mut found)
            }
            None => {
                found.plaintext(input);
                Ok(())
            }
        };
        let bad = found.excess || found.fault.is_some();
        let http2_fault = if let To::Http2(sink) = found.to { sink.fault } else { None };
        self.take_sessions(id, first_byte);
        if let Err(error) = result {
            // What it did to requests of HTTP/2 before: they fail with the connection.
            self.http2_events.clear();
            self.frames.clear();
            self.recorder.tls_fault(error.to_string());
            self.send_last_words(id);
            self.fail(id, ErrorKind::Tls);
        } else if bad {
            self.fail(id, ErrorKind::Http);
        } else {
            self.after_receive(id, http2_fault);
        }
    }

    /// Keeps the sessions that just arrived. `first_byte`: so did the first of a response.
    fn take_sessions(&mut self, id: ConnectionId, first_byte: bool) {
        let connection = self.places[id as usize].connection.as_mut().expect("it was just read from");
        let user = connection.user;
        let any_answer = connection.exchanges().any(|exchange| exchange.first_byte_seen);
        let answered = any_answer || connection.exchanges().next().is_none();
        let has_answered = connection.served > 0 || any_answer;
        let mut more = false;
        for session in self.found_sessions.drain(..) {
            // Servers end the handshake first and put the session into their cache then: another connection could offer
            // it before.
            if session.kind() == SessionKind::Tls12Id && !has_answered {
                connection.unproven = Some(session);
                continue;
            }
            more = true;
            self.sessions.store(user, session);
        }
        if has_answered && let Some(session) = connection.unproven.take() {
            self.sessions.store(user, session);
        }
        // OpenSSL sends each of its TLS 1.3 tickets by itself, all before the first response: the user's other
        // connections open when all have come, or they would offer the first one several times.
        if answered && (more || first_byte) && self.sessions.holds(user) {
            self.users.session_arrived(id);
            self.users.end_of_alone();
        }
    }

    fn after_receive(&mut self, id: ConnectionId, http2_fault: Option<http2::Fault>) {
        let number = self.places[id as usize].number;
        let connection = self.connection(id);
        if connection.phase == ConnectionPhase::Handshaking && connection.tls.as_ref().is_some_and(Client::is_connected)
        {
            self.handshake_complete(id);
            if !self.plain.is_empty() && self.plan.target.offers_http2() {
                return self.receive_what_came_early(id);
            }
        }
        if self.connection(id).http2.is_some() && !self.after_frames(id, http2_fault) {
            return self.carry_out();
        }
        // Not "else": the answer to a request that travelled with the hello may come with the end of the handshake.
        let connection = self.connection(id);
        if connection.exchange.is_some() && connection.response.is_complete() {
            self.response_complete(id);
        }
        self.carry_out();
        if self.is_current(id, number) && self.connection(id).tls.as_ref().is_some_and(Client::peer_closed) {
            self.peer_ended(id);
        }
    }

    pub(super) fn handshake_complete(&mut self, id: ConnectionId) {
        let now_ns = tlsdyno_sys::monotonic_ns();
        let connection = self.places[id as usize].connection.as_mut().expect("its handshake just completed");
        connection.phase = ConnectionPhase::Open;
        let Some(handshake) = connection.tls.as_ref().and_then(Client::handshake) else {
            // A minimal set-up has no handshake, and nothing that others could wait for.
            return self.users.ready(id, true, 1);
        };
        let (offered, resumed) = (handshake.offered.is_some(), handshake.resumed.is_some());
        let counts = &mut self.recorder.handshakes;
        counts.resumed_intended += u64::from(connection.resumption_intended);
        counts.resumed_offered += u64::from(offered);
        counts.resumed_accepted += u64::from(resumed);
        counts.full += u64::from(!resumed);
        counts.early_offered += u64::from(handshake.early_data != EarlyData::NotOffered);
        counts.early_accepted += u64::from(handshake.early_data == EarlyData::Accepted);
        counts.retried_count += u64::from(handshake.hello_retry);
        let phase = if resumed { Phase::ResumedHandshake } else { Phase::FullHandshake };
        self.recorder.latency(phase, now_ns - connection.hello_ns);
        self.recorder.negotiated(handshake);
        let chosen = handshake.alpn;
        let (user, ready_early, held) = (connection.user, connection.ready_early, connection.held.take());
        if offered && !resumed {
            self.sessions.refused(user);
        }
        let room = self.begin_http2(id, chosen);
        if !ready_early {
            self.users.ready(id, self.widens(user), room);
        }
        if let Some((request, last)) = held {
            self.send_request(id, request, last);
        }
    }

    /// Whether a user's other connections need not wait for a session any longer.
    pub(super) fn widens(&self, user: ActiveId) -> bool {
        !self.sessions.matter() || self.sessions.holds(user)
    }

    fn response_complete(&mut self, id: ConnectionId) {
        let connection = self.places[id as usize].connection.as_mut().expect("its response is complete");
        let exchange = connection.exchange.take().expect("a response belongs to a request");
        let response = std::mem::replace(&mut connection.response, Response::new(false));
        let head = response.head().expect("a complete response has a head");
        // A server that answers before it has the whole request will not read the rest.
        let persists = head.persists && connection.is_all_sent();
        let answer = Answer { status: head.status, body_bytes: response.body_bytes(), location: response.location() };
        self.answered(id, &exchange, answer, persists);
    }

    /// A request was answered, in whichever protocol.
    pub(super) fn answered(&mut self, id: ConnectionId, exchange: &Exchange, answer: Answer, persists: bool) {
        let Answer { status, body_bytes, .. } = answer;
        self.connection(id).served += 1;
        self.recorder.body_bytes += body_bytes;
        self.recorder.status(status);
        self.storm.answered();
        self.last_response_ns = self.now_ns;
        let redirect_error = match self.redirect(id, exchange, answer) {
            Some(Ok(hop)) => return self.follow_redirect(id, exchange.request, persists, hop),
            Some(Err(kind)) => Some(kind),
            None => None,
        };
        if let Some(kind) = redirect_error {
            self.recorder.error(kind);
        } else if exchange.expect.status.is_some_and(|expected| expected != status) {
            self.recorder.error(ErrorKind::Status);
        } else if exchange.expect.body_bytes.is_some_and(|expected| expected != body_bytes) {
            self.recorder.error(ErrorKind::Length);
        } else {
            let since = |then_ns| self.now_ns.saturating_sub(then_ns);
            self.recorder.hit(since(exchange.began_ns), exchange.intended_ns.map(since));
        }
        if !self.is_carried_later(id, exchange.request, exchange.first_byte_ns, body_bytes, persists) {
            self.users.finished(id, exchange.request, persists);
        }
        self.users.end_of_alone();
    }

    /// What to do about a response that may be a redirect; see [`Redirects::next`](crate::load::Redirects::next).
    fn redirect(&self, id: ConnectionId, exchange: &Exchange, answer: Answer) -> Option<Result<Hop, ErrorKind>> {
        let rules = self.plan.redirects.as_ref()?;
        let workload = &self.plan.workload;
        let object = &workload.objects[workload.requests[exchange.request as usize].object as usize];
        let (hop, began_ns) = (self.users.hop(id, exchange.request), exchange.began_ns);
        rules.next(
            answer.status,
            answer.location,
            Asked { method: &object.method, target: &object.path, hop, began_ns },
        )
    }

    fn follow_redirect(&mut self, id: ConnectionId, request: u32, persists: bool, hop: Hop) {
        if self.users.redirected(id, request, persists, hop) {
            self.recorder.redirects_followed += 1;
        } else {
            self.recorder.redirects_unfinished += 1;
        }
        self.users.end_of_alone();
    }

    /// The server closed, by close_notify or end of stream.
    fn peer_ended(&mut self, id: ConnectionId) {
        let number = self.places[id as usize].number;
        if self.ended_early(id) {
            return;
        }
        let connection = self.connection(id);
        let kind = connection.broken.unwrap_or(ErrorKind::Closed);
        match connection.phase {
            ConnectionPhase::Closing => self.close_finished(id),
            ConnectionPhase::Connecting | ConnectionPhase::Handshaking => self.fail(id, kind),
            ConnectionPhase::Open if connection.exchanges().next().is_none() => self.close_finished(id),
            ConnectionPhase::Open if connection.http2.is_some() => self.fail_or_repeat(id, kind),
            ConnectionPhase::Open => {
                // Without close_notify nobody knows whether a body that lasts until the end is whole, RFC 9846 section
                // 6.1.
                let truncated = connection.tls.as_mut().is_some_and(|client| client.end_of_input().is_err());
                if truncated || connection.broken.is_some() || connection.response.end_of_input().is_err() {
                    return self.fail_or_repeat(id, kind);
                }
                self.response_complete(id);
                self.carry_out();
                if self.is_current(id, number) && !self.ended_early(id) {
                    self.close_finished(id);
                }
            }
        }
    }

    pub(super) fn fail_or_repeat(&mut self, id: ConnectionId, kind: ErrorKind) {
        if self.ended_early(id) {
            return;
        }
        let connection = self.connection(id);
        if connection.is_stale() {
            self.remove(id);
            self.users.lost(id, Loss::Stale);
        } else if connection.waits_for_server() && connection.phase != ConnectionPhase::Closing {
            self.fail(id, kind);
        } else {
            // A reset in place of the close that was expected, or that a server may do any time.
            self.close_finished(id);
        }
    }

    pub(super) fn fail(&mut self, id: ConnectionId, kind: ErrorKind) {
        let connection = self.remove(id);
        if connection.phase == ConnectionPhase::Handshaking {
            self.sessions.undo(connection.user, connection.session_given);
        }
        self.lose(id, kind);
    }

    pub(super) fn lose(&mut self, id: ConnectionId, kind: ErrorKind) {
        self.storm.failed(kind);
        let requests = if kind.is_local() {
            self.opening_paused_until_ns = Some(self.now_ns + RESOURCE_PAUSE_NS);
            self.users.lost(id, Loss::NoResources)
        } else {
            self.users.lost(id, Loss::Failed)
        };
        (0..requests.max(1)).for_each(|_| self.recorder.error(kind));
        self.users.end_of_alone();
    }

    /// Takes a connection out of the table; dropping it closes its socket, which ends its registration too.
    fn remove(&mut self, id: ConnectionId) -> Connection {
        if self.out_of == Some(id) {
            self.out.clear();
            self.out_of = None;
        }
        let connection = self.places[id as usize].connection.take().expect("a connection is removed once");
        if let Some(lives) = &mut self.recorder.lives {
            let handshake = connection.tls.as_ref().and_then(Client::handshake);
            lives.note(Life {
                client_number: connection.user,
                opened_ns: connection.opened_ns.saturating_sub(self.began_ns),
                closed_ns: self.now_ns.max(connection.opened_ns).saturating_sub(self.began_ns),
                resumed: handshake.map(|handshake| handshake.resumed.is_some()),
                served_count: connection.served,
            });
        }
        connection
    }

    pub(super) fn close_finished(&mut self, id: ConnectionId) {
        self.remove(id);
        // After giving up the policy is ahead of what was done: it may think that a request is under way here.
        if !self.gave_up {
            self.users.closed(id);
        }
    }
}
