//! Bulk transfers are not woken up for each packet, as network cards do not interrupt for each: a low-water mark lets
//! input gather, and here is the clock that sees to it that what stays below the mark does not lie there for long.

use std::os::fd::AsFd;

use super::Loop;
use crate::dispatch::connection::Connection;
use crate::dispatch::limits::PATIENCE_NS;
use crate::dispatch::places::Id;

impl Loop<'_> {
    /// Looks after a connection that waits for much input, in case little comes.
    pub(super) fn await_patience(&mut self, id: Id) {
        let Some(connection) = self.places.get(id) else { return };
        self.patience_at_ns = self.patience_at_ns.min(connection.since_ns + PATIENCE_NS);
        if !std::mem::replace(&mut connection.awaited, true) {
            self.patient.push(id);
        }
    }

    /// Moves what little has come to those where nothing has happened for [`PATIENCE_NS`].
    pub(super) fn end_patience(&mut self) {
        self.patience_at_ns = u64::MAX;
        for id in std::mem::take(&mut self.patient) {
            let Some(connection) = self.places.get(id) else { continue };
            connection.awaited = false;
            if !connection.waits_patiently() {
                continue;
            }
            if self.now_ns < connection.since_ns + PATIENCE_NS {
                self.await_patience(id);
            } else {
                self.urge(id);
            }
        }
    }

    /// Moves what there is. Where there is nothing, the transfer is over, or too slow to be worth it.
    fn urge(&mut self, id: Id) {
        let Some(connection) = self.places.get(id) else { return };
        let bytes = |connection: &Connection| connection.up.bytes + connection.down.bytes;
        let before = bytes(connection);
        for direction in [&mut connection.up, &mut connection.down] {
            if direction.waits_patiently() {
                direction.note_readable(false);
            }
        }
        self.drive(id);
        let Some(connection) = self.places.get(id) else { return };
        let Some(backend) = &connection.backend else { return };
        if bytes(connection) == before {
            connection.up.end_patience(connection.client.descriptor.as_fd());
            connection.down.end_patience(backend.socket.descriptor.as_fd());
        }
    }
}
