//! Requests over HTTP/2: several at once on a connection, and what becomes of each of them.

use rustix::net::sockopt::set_tcp_nodelay;
use tlsdyno_wire::http2::{Client, Event, Fault, Request, Stream, StreamFault};

use super::Run;
use super::actions::put_body;
use super::events::Answer;
use crate::load::connection::{ConnectionPhase, Exchange, Http2};
use crate::load::limits::SEND_CHUNK_BYTES;
use crate::load::outcome::ErrorKind;
use crate::load::plan::HTTP2;
use crate::load::requests::Written;
use crate::load::users::ConnectionId;

impl Run<'_> {
    /// Begins HTTP/2 if the server chose it (index in what was offered), or without TLS. Answers how many requests the
    /// connection carries at once.
    pub(super) fn begin_http2(&mut self, id: ConnectionId, chosen: Option<u8>) -> u32 {
        let target = &self.plan.target;
        if !target.offers_http2() {
            return 1;
        }
        let is_chosen =
            |index: u8| target.tls.as_ref().is_some_and(|tls| tls.settings().alpn[usize::from(index)] == HTTP2);
        if target.tls.is_some() && !chosen.is_some_and(is_chosen) {
            self.recorder.http2.downgraded_count += 1;
            return 1;
        }
        self.recorder.http2.chosen_count += 1;
        let client = Client::begin(target.tls.is_some(), &mut self.frames);
        // What is sent while the server owes an acknowledgement would wait for that, which browsers do not do. Where it
        // cannot be set the connection is slower, and nothing else.
        let _ = set_tcp_nodelay(&self.connection(id).socket, true);
        let room = self.plan.streams.min(client.streams_max());
        self.connection(id).http2 = Some(Box::new(Http2 { client, room, repeated: 0 }));
        self.encrypt_frames(id);
        room
    }

    /// Reads what arrived with the end of the handshake, which has shown what the server chose.
    pub(super) fn receive_what_came_early(&mut self, id: ConnectionId) {
        let (now_ns, early) = (self.now_ns, std::mem::take(&mut self.plain));
        let (frames, events) = (&mut self.frames, &mut self.http2_events);
        let connection = self.places[id as usize].connection.as_mut().expect("its handshake just completed");
        let Some(http2) = &mut connection.http2 else { return self.fail(id, ErrorKind::Http) };
        let fault = http2.client.receive(&early, frames, events, |_| ()).err();
        connection.progress_ns = now_ns;
        self.plain = early;
        self.after_frames(id, fault);
        self.carry_out();
    }

    pub(super) fn send_on_stream(&mut self, id: ConnectionId, exchange: Exchange, written: Written) {
        let connection = self.places[id as usize].connection.as_mut().expect("it is to send something");
        let Some(http2) = &mut connection.http2 else { return };
        let Written { body_bytes, to_head, .. } = written;
        let request = Request { data: exchange, body_bytes, to_head, keeps_location: self.plan.redirects.is_some() };
        http2.client.request(&self.plain, request, &mut self.frames);
        let is_used_up = http2.client.is_going_away();
        self.encrypt_frames(id);
        self.send_stream_bodies(id);
        if is_used_up {
            self.users.going_away(id);
        }
    }

    /// Sends what the windows have room for of bodies, once everything before has left.
    pub(super) fn send_stream_bodies(&mut self, id: ConnectionId) {
        let connection = self.connection(id);
        let is_ready = connection.unsent.is_empty() && connection.broken.is_none();
        if !connection.http2.as_ref().is_some_and(|http2| is_ready && http2.client.has_body_to_send()) {
            return;
        }
        self.output_for(id);
        let plan = self.plan;
        let connection = self.places[id as usize].connection.as_mut().expect("it has something to send");
        let Some(http2) = &mut connection.http2 else { return };
        http2.client.send_body(SEND_CHUNK_BYTES, &mut self.frames, |left, piece, out| put_body(plan, left, piece, out));
        connection.progress_ns = self.now_ns;
        self.encrypt_frames(id);
    }

    /// Encrypts the frames that were made for the connection, whose output is being made.
    fn encrypt_frames(&mut self, id: ConnectionId) {
        if self.frames.is_empty() {
            return;
        }
        let connection = self.places[id as usize].connection.as_mut().expect("frames are of a connection");
        // Behind its close_notify a client has nothing to say.
        match &mut connection.tls {
            _ if connection.phase == ConnectionPhase::Closing => {}
            Some(client) => {
                client.send(&self.frames, &mut self.out).expect("frames are sent on connections that are ready");
            }
            None => self.out.extend_from_slice(&self.frames),
        }
        self.frames.clear();
    }

    /// Does what follows from the frames that a connection received. Answers whether it is still there.
    pub(super) fn after_frames(&mut self, id: ConnectionId, fault: Option<Fault>) -> bool {
        self.encrypt_frames(id);
        let (now_ns, streams) = (self.now_ns, self.plan.streams);
        let connection = self.connection(id);
        let Some(http2) = &mut connection.http2 else { return true };
        let room = streams.min(http2.client.streams_max());
        let changed = std::mem::replace(&mut http2.room, room) != room;
        let goes_away = http2.client.is_going_away();
        if http2.client.take_progress() {
            connection.progress_ns = now_ns;
        }
        let is_useless =
            goes_away && fault.is_none() && connection.served == 0 && connection.exchanges().next().is_none();
        if is_useless && self.http2_events.is_empty() {
            self.recorder.http2_fault("the server ends connections by GOAWAY before any request".to_owned());
            self.fail(id, ErrorKind::Http);
            return false;
        }
        // First, so that nothing further is sent there.
        if goes_away || fault.is_some() {
            self.users.going_away(id);
        } else if changed {
            self.users.set_room(id, room);
        }
        let mut events = std::mem::take(&mut self.http2_events);
        // Whether the server serves anything decides what becomes of requests that it did not look at.
        events.sort_by_key(|event| matches!(event, Event::Unprocessed(_)));
        for event in events.drain(..) {
            match event {
                Event::Complete(stream) => self.stream_complete(id, &stream),
                Event::Failed(stream, fault) => self.stream_failed(id, &stream.data, fault),
                Event::Unprocessed(stream) => self.unprocessed(id, &stream),
            }
        }
        self.http2_events = events;
        let Some(fault) = fault else {
            self.send_stream_bodies(id);
            return true;
        };
        self.recorder.http2_fault(fault.to_string());
        self.put_last_words(id, Some(fault));
        self.send_last_words(id);
        self.fail(id, ErrorKind::Http);
        false
    }

    /// Appends what the server is told when its connection ends, for this reason if there is one.
    pub(super) fn put_last_words(&mut self, id: ConnectionId, fault: Option<Fault>) {
        self.output_for(id);
        let connection = self.places[id as usize].connection.as_ref().expect("it is to be closed");
        if let Some(http2) = &connection.http2 {
            http2.client.close(fault, &mut self.frames);
            self.encrypt_frames(id);
        }
        let connection = self.places[id as usize].connection.as_mut().expect("it is to be closed");
        if let Some(client) = &mut connection.tls {
            client.close(&mut self.out);
        }
    }

    fn stream_complete(&mut self, id: ConnectionId, stream: &Stream<Exchange>) {
        let status = stream.status().expect("a complete response has a status");
        let answer = Answer { status, body_bytes: stream.body_bytes(), location: stream.location() };
        self.answered(id, &stream.data, answer, true);
    }

    fn stream_failed(&mut self, id: ConnectionId, exchange: &Exchange, fault: StreamFault) {
        let kind = match fault {
            StreamFault::Reset(_) => ErrorKind::StreamReset,
            StreamFault::Malformed => ErrorKind::Http,
        };
        self.recorder.http2_fault(fault.to_string());
        self.end_of_request(id, exchange, kind);
    }

    /// A request failed, and its connection goes on.
    fn end_of_request(&mut self, id: ConnectionId, exchange: &Exchange, kind: ErrorKind) {
        self.recorder.error(kind);
        self.storm.failed(kind);
        self.users.finished(id, exchange.request, true);
        self.users.end_of_alone();
    }

    /// The server did not look at a request: it is made again. A server that does so and serves nothing has refused it.
    fn unprocessed(&mut self, id: ConnectionId, stream: &Stream<Exchange>) {
        let (request, streams) = (stream.data.request, self.plan.streams);
        let connection = self.connection(id);
        let serves = connection.served > 0 || connection.exchanges().next().is_some();
        let served = connection.served;
        let Some(http2) = connection.http2.as_mut().filter(|http2| serves && http2.repeated < served + streams) else {
            self.recorder.http2_fault("the server refuses requests before it has served any".to_owned());
            return self.end_of_request(id, &stream.data, ErrorKind::StreamReset);
        };
        http2.repeated += 1;
        self.recorder.http2.repeated_count += 1;
        self.users.unprocessed(id, request);
    }

    /// Gives up requests that take longer than they may; others on their connections go on.
    pub(super) fn cancel_overdue_streams(&mut self, id: ConnectionId) {
        let (now_ns, timeouts) = (self.now_ns, self.plan.timeouts);
        let is_over = |exchange: &Exchange| exchange.overdue(&timeouts, now_ns).is_some();
        while self.connection(id).exchanges().any(is_over) {
            self.output_for(id);
            let connection = self.places[id as usize].connection.as_mut().expect("it is open");
            let Some(http2) = &mut connection.http2 else { return };
            let Some(stream) = http2.client.cancel(is_over, &mut self.frames) else { return };
            self.encrypt_frames(id);
            if let Some(kind) = stream.data.overdue(&timeouts, now_ns) {
                self.end_of_request(id, &stream.data, kind);
            }
        }
    }
}
