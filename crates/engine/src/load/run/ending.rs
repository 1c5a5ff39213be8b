//! The end of a run by time: when nothing new is begun any more, and when what is still under way is cut.

use super::Run;
use crate::load::outcome::{ErrorKind, Outcome};
use crate::load::plan::{Pacing, Until};

impl Run<'_> {
    /// From when time counts. A closed loop begins with its first connection, a schedule by itself: its first arrival
    /// may be late, or never come. Loops that count behind a lead-in do so from the moment that was named to all.
    pub(super) fn start_ns(&self) -> Option<u64> {
        match self.plan.pacing {
            Pacing::Closed if self.plan.lead_in_ns > 0 => self.named_ns.or(self.first_connect_ns),
            Pacing::Closed | Pacing::Pauses(_) => self.first_connect_ns,
            Pacing::Open(_) | Pacing::Recorded(_) => Some(self.began_ns),
        }
    }

    /// From then on nothing is begun.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        match self.plan.until {
            Until::Elapsed(elapsed_ns) => Some(self.start_ns().unwrap_or(self.now_ns).saturating_add(elapsed_ns)),
            Until::Laps(_) | Until::ConnectionsMade(_) | Until::Requests(_) => None,
        }
    }

    /// Then what is still under way is cut. No byte puts this off: a server that sends one now and then would have its
    /// run last for ever.
    pub(super) fn cut_ns(&self) -> Option<u64> {
        Some(self.deadline_ns()?.saturating_add(self.plan.connections.timeout_ns))
    }

    pub(super) fn cut_off(&mut self) {
        // A server that was silent for so long timed out as at any other time.
        self.end_what_timed_out();
        let requests = self.users.cut_off();
        (0..requests).for_each(|_| self.recorder.error(ErrorKind::Cut));
        self.was_cut = requests > 0;
    }

    /// When the measurement ended: the time after that is no part of it.
    pub(super) fn ended_ns(&self) -> u64 {
        // Without the deadline, the rest of the time, in which nothing was complete, would be left out. The grace is:
        // nothing was begun in it.
        let deadline_ns = self.deadline_ns().filter(|_| self.was_cut).unwrap_or(0);
        match deadline_ns.max(self.last_response_ns) {
            0 => tlsdyno_sys::monotonic_ns(),
            ended_ns => ended_ns,
        }
    }
}

/// Leaves out the slices after the end of a run that was cut: nothing was begun in them, and what was under way was
/// not complete either.
pub(super) fn drop_slices_after_the_end(outcome: &mut Outcome) {
    let mut began_ns = 0;
    outcome.slices.retain(|slice| {
        let is_in_time = began_ns < outcome.elapsed_ns;
        began_ns += slice.elapsed_ns;
        is_in_time
    });
    outcome.slice_latencies.truncate(outcome.slices.len());
}
