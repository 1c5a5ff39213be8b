//! Letting bytes pass, and showing them to whoever learns from them.

use std::os::fd::AsFd;

use super::{Loop, all, seconds};
use crate::dispatch::connection::{ConnectionPhase, Side};
use crate::dispatch::counters::LoopCounts;
use crate::dispatch::learn::{Lesson, Outcome, Student};
use crate::dispatch::limits::PATIENCE_NS;
use crate::dispatch::places::Id;
use crate::dispatch::relay::{FailedSide, Flow, Tools};
use crate::reactor::{Event, Interest};

impl Loop<'_> {
    pub(super) fn on_event(&mut self, event: Event) {
        let (id, side) = Id::from_token(event.token);
        let Some(connection) = self.places.get(id) else { return };
        let (incoming, outgoing) = match side {
            Side::Client => (&mut connection.up, &mut connection.down),
            Side::Backend => (&mut connection.down, &mut connection.up),
        };
        if event.readable {
            incoming.note_readable(event.peer_ended);
        }
        if event.writable {
            outgoing.note_writable();
        }
        if connection.phase == ConnectionPhase::Connecting && side == Side::Backend {
            return self.on_connected(id);
        }
        self.drive(id);
    }

    pub(super) fn drive(&mut self, id: Id) {
        let Some(connection) = self.places.get(id) else { return };
        match connection.phase {
            ConnectionPhase::Hello => return self.read_opening(id),
            ConnectionPhase::Connecting => return,
            ConnectionPhase::Relaying => {}
        }
        if self.now_ns.saturating_sub(connection.since_ns) >= PATIENCE_NS {
            connection.up.note_pause();
            connection.down.note_pause();
        }
        connection.since_ns = self.now_ns;
        let (up, down) = (self.pump(id, Side::Client), self.pump(id, Side::Backend));
        // A direction that failed may have ended the other one too.
        let Some(connection) = self.places.get(id) else { return };
        if connection.up.is_done() && connection.down.is_done() {
            return self.close(id);
        }
        if up == Some(Flow::Unfinished) || down == Some(Flow::Unfinished) || connection.is_ready() {
            self.unfinished.push(id);
        }
        if connection.waits_patiently() {
            self.await_patience(id);
        }
        self.tell_room(id);
    }

    /// Moves bytes that come from `side`. `None`: the connection is closed, or there was nothing to do.
    pub(super) fn pump(&mut self, id: Id, side: Side) -> Option<Flow> {
        let connection = self.places.get(id)?;
        let backend = connection.backend.as_ref()?.socket.descriptor.as_fd();
        let client = connection.client.descriptor.as_fd();
        let (direction, opposite, from, to) = match side {
            Side::Client => (&mut connection.up, &connection.down, client, backend),
            Side::Backend => (&mut connection.down, &connection.up, backend, client),
        };
        let last = opposite.is_done();
        let before = direction.bytes;
        let lesson = Lesson {
            memory: &self.shared.memory,
            slot: connection.backend.as_ref().map_or(0, |backend| backend.slot),
            all: all(&self.snapshot),
            now_s: seconds(self.now_ns),
            timeout_s: self.snapshot.settings.session_timeout_s,
        };
        let hello_bytes = self.snapshot.settings.limits.hello_bytes;
        let (student, counts) = (&mut connection.student, &self.counts.all);
        let mut watch = |bytes: &[u8]| watch(student, side, bytes, hello_bytes, &lesson, counts);
        let mut tools = Tools { buffer: &mut self.buffer, pipes: &mut self.pipes, watch: &mut watch, pipes_missing: 0 };
        let flow = direction.pump(from, to, last, &mut tools);
        self.counts.all.pipes_missing.add(tools.pipes_missing);
        let count = if side == Side::Client { &self.counts.all.bytes_up } else { &self.counts.all.bytes_down };
        count.add(direction.bytes - before);
        match flow {
            Ok(flow) => Some(flow),
            Err(FailedSide::Sender) => {
                connection.reset_by.get_or_insert(side);
                self.close(id);
                None
            }
            Err(FailedSide::Receiver) => {
                // What it still has to say is passed on; then the reset.
                direction.give_up(&mut self.pipes);
                let gone = if side == Side::Client { Side::Backend } else { Side::Client };
                connection.reset_by.get_or_insert(gone);
                let opposite = if side == Side::Client { &mut connection.down } else { &mut connection.up };
                opposite.note_readable(true);
                Some(Flow::Done)
            }
        }
    }

    /// Asks to be told when a receiver has room again, where one has none.
    pub(super) fn tell_room(&mut self, id: Id) {
        let Some(connection) = self.places.get(id) else { return };
        let Some(backend) = &mut connection.backend else { return };
        let both = [
            (&connection.up, &mut backend.socket, Side::Backend),
            (&connection.down, &mut connection.client, Side::Client),
        ];
        let mut failed = false;
        for (direction, receiver, side) in both {
            if direction.is_blocked() && !direction.is_done() && !receiver.tells_room {
                receiver.tells_room = true;
                failed |= self.reactor.modify(&receiver.descriptor, id.token(side), Interest::EdgeReadWrite).is_err();
            }
        }
        if failed {
            self.close(id);
        }
    }
}

/// Shows bytes that pass to whoever learns from them; whether that goes on.
fn watch(
    student: &mut Option<Box<Student>>,
    side: Side,
    bytes: &[u8],
    hello_bytes: usize,
    lesson: &Lesson,
    counts: &LoopCounts,
) -> bool {
    let Some(follows) = student else { return false };
    let outcome = match side {
        Side::Client => {
            follows.read_client(bytes, lesson.memory);
            None
        }
        Side::Backend => follows.read_server(bytes, hello_bytes, lesson),
    };
    let (offered, accepted) = match outcome {
        None | Some(Outcome::Fresh) => (0, 0),
        Some(Outcome::Accepted) => (1, 1),
        Some(Outcome::Rejected) => (1, 0),
    };
    counts.sessions_offered.add(offered);
    counts.sessions_accepted.add(accepted);
    counts.sessions_rejected.add(offered - accepted);
    counts.sessions_refused_by_holder.add((outcome == Some(Outcome::Rejected) && follows.sent_to_holder()).into());
    if follows.is_done() {
        *student = None;
    }
    student.is_some()
}
