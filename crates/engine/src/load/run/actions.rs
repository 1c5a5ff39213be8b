//! What the policy wants done, carried out over sockets: connections are opened and closed, requests encrypted and
//! sent.

use tlsdyno_tls::{Client, Effort};
use tlsdyno_wire::http::Response;

use super::{ConnectionSlot, Run};
use crate::load::connection::{Connection, ConnectionPhase, Exchange};
use crate::load::limits::SEND_CHUNK_BYTES;
use crate::load::outcome::{ErrorKind, Phase};
use crate::load::plan::Plan;
use crate::load::requests;
use crate::load::users::{Action, ActiveId, ConnectionId, Loss};

impl Run<'_> {
    /// Carries out all that the policy wants done, and sends what that wrote.
    pub(super) fn carry_out(&mut self) {
        self.users.pace(self.now_ns);
        loop {
            while let Some(action) = self.users.next_action() {
                // A server that refuses at once would keep this loop busy for ever.
                if self.has_given_up() {
                    self.gave_up = true;
                    return;
                }
                if !self.is_deferred(&action) {
                    self.act(action);
                }
            }
            self.flush();
            if !self.users.has_actions() {
                return;
            }
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Open { connection, user } => self.open(connection, user),
            Action::Send { connection, request, last } => self.send_request(connection, request, last),
            Action::Close { connection, server_first } => self.close(connection, server_first),
            Action::Forget { user } => self.sessions.forget(user),
        }
    }

    fn open(&mut self, id: ConnectionId, user: ActiveId) {
        if self.opening_paused_until_ns.is_some() {
            // Decided before the system refused another one: it would refuse this one too.
            self.users.lost(id, Loss::NoResources);
            return;
        }
        let now_ns = tlsdyno_sys::monotonic_ns();
        self.first_connect_ns.get_or_insert(now_ns);
        while self.places.len() <= id as usize {
            self.places.push(ConnectionSlot::default());
        }
        let route = &self.plan.route;
        let turn = if route.source_of_client { u64::from(user) } else { self.recorder.connections };
        // 15 instead of 17 segments for a full TLS 1.3 handshake and an answer: only where the client need not behave
        // like others.
        let joined = self.plan.target.effort() == Some(Effort::Floor);
        let server = route.server(self.plan.target.address, user, self.recorder.connections);
        match route.connect(&server, turn, joined) {
            Ok(socket) => {
                let place = &mut self.places[id as usize];
                place.number = place.number.wrapping_add(1);
                place.connection = Some(Connection::open(socket, user, now_ns));
                self.recorder.connections += 1;
            }
            Err(kind) => return self.lose(id, kind),
        }
        if self.loopback {
            self.connected(id);
            self.flush();
        }
        self.watch(id);
    }

    /// TCP is connected or, on loopback, is by the time the first bytes are sent.
    pub(super) fn connected(&mut self, id: ConnectionId) {
        self.output_for(id);
        let Some(config) = &self.plan.target.tls else {
            self.connection(id).phase = ConnectionPhase::Open;
            let room = self.begin_http2(id, None);
            return self.users.ready(id, true, room);
        };
        let now_ms = self.now_ns / 1_000_000;
        let connection = self.places[id as usize].connection.as_mut().expect("it just connected");
        let decision = self.sessions.decide(connection.user, |session| session.is_usable(now_ms));
        connection.resumption_intended = decision.intended;
        connection.session_given = decision.session.is_some();
        connection.tls = Some(Client::new(config, decision.session, &mut self.entropy, now_ms, &mut self.out));
        connection.phase = ConnectionPhase::Handshaking;
        let client = connection.tls.as_ref().expect("it was just made");
        if client.is_connected() {
            self.handshake_complete(id);
        } else if client.room() > 0 {
            self.send_with_hello(id);
        }
    }

    /// Sends the connection's first request in one write with the hello.
    fn send_with_hello(&mut self, id: ConnectionId) {
        let connection = self.connection(id);
        connection.ready_early = true;
        let user = connection.user;
        self.users.ready(id, self.widens(user), 1);
        if let Some((request, last)) = self.users.take_send(id) {
            self.send_request(id, request, last);
        }
    }

    pub(super) fn send_request(&mut self, id: ConnectionId, request: u32, last: bool) {
        self.output_for(id);
        let object = self.plan.workload.requests[request as usize].object;
        self.plain.clear();
        let number = self.plan.numbered.then(|| self.plan.workload.order[request as usize]);
        let hop = self.users.hop(id, request);
        let began_ns = hop.map(|hop| hop.began_ns);
        let written = match hop {
            Some(hop) => {
                let object = &self.plan.workload.objects[object as usize];
                requests::write_redirected(object, &self.plan.target.host, hop, last, &mut self.plain)
            }
            None => self.requests.write(object, last, number, &mut self.plain),
        };
        let (intended_ns, expect) = (self.users.intended_ns(id, request), written.expect);
        let now_ns = tlsdyno_sys::monotonic_ns();
        let connection = self.places[id as usize].connection.as_mut().expect("it is to send something");
        if connection.tls.as_ref().is_some_and(|client| !fits(client.room(), self.plain.len(), written.body_bytes)) {
            connection.held = Some((request, last));
            return;
        }
        let began_ns = began_ns.unwrap_or(now_ns);
        let (sent_ns, first_byte_seen, first_byte_ns) = (now_ns, false, 0);
        let exchange = Exchange { request, intended_ns, sent_ns, began_ns, first_byte_seen, first_byte_ns, expect };
        connection.progress_ns = now_ns;
        if connection.http2.is_some() {
            return self.send_on_stream(id, exchange, written);
        }
        connection.response = Response::new(written.to_head).keeping_location(self.plan.redirects.is_some());
        connection.exchange = Some(exchange);
        connection.body_left = written.body_bytes;
        self.encrypt_with_body(id);
    }

    /// Appends the next piece of the body to what is in `plain`, and that to the output.
    fn encrypt_with_body(&mut self, id: ConnectionId) {
        let connection = self.places[id as usize].connection.as_mut().expect("it has something to send");
        let room = SEND_CHUNK_BYTES.saturating_sub(self.plain.len()) as u64;
        let piece = connection.body_left.min(room);
        put_body(self.plan, connection.body_left, piece as usize, &mut self.plain);
        connection.body_left -= piece;
        match &mut connection.tls {
            Some(client) => {
                client.send(&self.plain, &mut self.out).expect("requests are sent on connections that are ready")
            }
            None => self.out.extend_from_slice(&self.plain),
        }
    }

    fn close(&mut self, id: ConnectionId, server_first: bool) {
        let now_ns = self.now_ns;
        let connection = self.connection(id);
        if server_first && connection.is_all_sent() && connection.http2.is_none() {
            connection.phase = ConnectionPhase::Closing;
            connection.progress_ns = now_ns;
            return;
        }
        self.output_for(id);
        let connection = self.places[id as usize].connection.as_mut().expect("it is to be closed");
        if connection.phase == ConnectionPhase::Handshaking {
            self.sessions.undo(connection.user, connection.session_given);
        }
        // Without TLS nothing but its end tells a server that the client has done.
        let is_told = connection.http2.is_some() && connection.tls.is_some();
        self.put_last_words(id, None);
        self.send_last_words(id);
        if server_first && is_told && !self.leaves_open {
            // Told so, most servers close first, and keep the port pair in TIME_WAIT.
            let connection = self.connection(id);
            (connection.phase, connection.progress_ns) = (ConnectionPhase::Closing, now_ns);
        } else {
            self.close_finished(id);
        }
    }

    /// Sends an alert, if there is one. Nobody depends on its arrival.
    pub(super) fn send_last_words(&mut self, id: ConnectionId) {
        let connection = self.places[id as usize].connection.as_mut().expect("it is to be closed");
        if self.out_of == Some(id) && !self.out.is_empty() {
            let _ = connection.send(&self.out);
            self.out.clear();
        }
    }

    /// From now on `out` belongs to this connection.
    pub(super) fn output_for(&mut self, id: ConnectionId) {
        if self.out_of != Some(id) {
            self.flush();
            self.out_of = Some(id);
        }
    }

    /// Sends what is in `out`, and of a request body as much as the socket takes.
    pub(super) fn flush(&mut self) {
        while let Some(id) = self.out_of.take() {
            if self.out.is_empty() {
                return;
            }
            let connection =
                self.places[id as usize].connection.as_mut().expect("output belongs to an open connection");
            let result = connection.send(&self.out);
            self.out.clear();
            match result {
                Ok(sent) => {
                    self.sent(id, sent);
                    self.continue_body(id);
                }
                Err(kind) => self.send_failed(id, kind),
            }
        }
    }

    /// Makes the next piece of a request body once everything before it has left.
    pub(super) fn continue_body(&mut self, id: ConnectionId) {
        let unfinished = |connection: &Connection| {
            connection.unsent.is_empty() && connection.body_left > 0 && connection.broken.is_none()
        };
        if self.places[id as usize].connection.as_ref().is_some_and(|connection| connection.http2.is_some()) {
            self.send_stream_bodies(id);
        } else if self.places[id as usize].connection.as_ref().is_some_and(unfinished) {
            self.plain.clear();
            self.out_of = Some(id);
            self.encrypt_with_body(id);
        }
    }

    pub(super) fn sent(&mut self, id: ConnectionId, bytes: usize) {
        let connection = self.places[id as usize].connection.as_mut().expect("it just sent something");
        if bytes > 0 && !std::mem::replace(&mut connection.tcp_connected, true) {
            let now_ns = tlsdyno_sys::monotonic_ns();
            connection.hello_ns = now_ns;
            self.recorder.latency(Phase::TcpConnect, now_ns - connection.opened_ns);
        }
        if connection.interest.is_some() {
            self.watch(id);
        }
    }

    pub(super) fn watch(&mut self, id: ConnectionId) {
        let place = &mut self.places[id as usize];
        let Some(connection) = &mut place.connection else {
            return;
        };
        let wanted = connection.wanted_interest();
        let token = u64::from(place.number) << 32 | u64::from(id);
        let result = match connection.interest {
            Some(interest) if interest == wanted => return,
            Some(_) => self.reactor.modify(&connection.socket, token, wanted),
            None => self.reactor.add(&connection.socket, token, wanted),
        };
        connection.interest = Some(wanted);
        if result.is_err() {
            self.fail(id, ErrorKind::Resources);
        }
    }
}

/// Appends a piece of a request's body of which so many bytes are left.
pub(super) fn put_body(plan: &Plan, left: u64, piece: usize, out: &mut Vec<u8>) {
    match plan.body.as_deref() {
        // The end of the content is the end of the body.
        Some(content) if !content.is_empty() => {
            let from = content.len() - (left as usize).min(content.len());
            out.extend_from_slice(&content[from..from + piece]);
        }
        _ => out.resize(out.len() + piece, b'0'),
    }
}

/// Whether a request may be sent now. Room is limited for early data, which may be replayed (RFC 9846 section 2.3):
/// only a request without a body travels so, and only whole.
fn fits(room: usize, head_bytes: usize, body_bytes: u64) -> bool {
    room == usize::MAX || head_bytes <= room && body_bytes == 0
}
