//! Clients that receive at a rate: their connections stay busy until a line of that rate has carried the answer.

use super::Run;
use crate::load::rated::{Kept, Lines};
use crate::load::users::ConnectionId;

impl Run<'_> {
    /// The time that counts, from and until, in nanoseconds; nothing before the first connection.
    fn counted(&self) -> Option<[u64; 2]> {
        Some([self.start_ns()? + self.plan.lead_in_ns, self.deadline_ns()?])
    }

    /// Credits a client with its answer, and lets the connection wait until that is carried, if there is such a line.
    pub(super) fn is_carried_later(
        &mut self,
        id: ConnectionId,
        request: u32,
        began_ns: u64,
        body_bytes: u64,
        persists: bool,
    ) -> bool {
        let (now_ns, counted) = (self.now_ns, self.counted());
        let place = &mut self.places[id as usize];
        let (Some(lines), Some(connection)) = (&mut self.lines, &mut place.connection) else { return false };
        let until_ns = lines.carried_ns(began_ns, body_bytes).max(now_ns);
        if let Some(counted) = counted {
            lines.credit(connection.user, body_bytes, [began_ns, until_ns], counted);
        }
        let waits = until_ns > now_ns;
        if waits {
            connection.carried = Some((request, persists));
            lines.wait(until_ns, (id, place.number));
        }
        waits
    }

    /// The connections whose answers are carried go on; at the run's deadline all do.
    pub(super) fn finish_what_is_carried(&mut self) {
        let is_over = self.deadline_ns().is_some_and(|deadline_ns| self.now_ns >= deadline_ns);
        let due_ns = if is_over { u64::MAX } else { self.now_ns };
        while let Some((id, number)) = self.lines.as_mut().and_then(|lines| lines.take_due(due_ns)) {
            let place = &mut self.places[id as usize];
            let connection = place.connection.as_mut().filter(|_| place.number == number);
            let Some((request, persists)) = connection.and_then(|connection| connection.carried.take()) else {
                continue;
            };
            // Nobody was waited for.
            self.heard_ns = self.now_ns;
            self.users.finished(id, request, persists);
            self.carry_out();
            // One that the server has closed is watched again, to see its end.
            self.watch(id);
        }
    }

    /// Whether nothing but lines is waited for.
    pub(super) fn all_are_carried(&self) -> bool {
        let carrying = self.lines.as_ref().map_or(0, Lines::carrying_count);
        carrying > 0 && carrying >= self.plan.connections.total as usize
    }

    /// Whether the connection is one whose answer is being carried. Its end is seen when that is over.
    pub(super) fn ended_early(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.places[id as usize].connection.as_mut() else { return false };
        let Some((_, persists)) = &mut connection.carried else { return false };
        *persists = false;
        if connection.interest.take().is_some() {
            // It was added, so that it can be removed.
            let _ = self.reactor.remove(&connection.socket);
        }
        true
    }

    /// How many clients kept their rate, once the time is over.
    pub(super) fn kept(&self) -> Option<Kept> {
        let (lines, [since_ns, until_ns]) = (self.lines.as_ref()?, self.counted()?);
        Some(lines.kept(self.plan.connections.total, until_ns - since_ns))
    }
}
