//! The lead-in of a run: at first all clients connect at once, which is no part of what the run is about. What counts
//! is what completes between the end of the lead-in and the deadline; what is under way at either end is as much.

use super::Run;
use crate::load::recorder::Recorder;

impl Run<'_> {
    /// When it will begin to count; nothing where there is no lead-in, or no more.
    pub(super) fn counts_at_ns(&self) -> Option<u64> {
        let is_ahead = self.plan.lead_in_ns > 0 && self.counting_since_ns.is_none();
        Some(self.start_ns().filter(|_| is_ahead)? + self.plan.lead_in_ns)
    }

    /// Begins to count when the lead-in is over, and ends when the run's time is.
    pub(super) fn count_after_lead_in(&mut self) {
        let (lead_in_ns, Some(start_ns)) = (self.plan.lead_in_ns, self.start_ns()) else { return };
        if lead_in_ns == 0 || self.counted.is_some() || self.now_ns < start_ns + lead_in_ns {
            return;
        }
        let Some(since_ns) = self.counting_since_ns else {
            self.recorder = Recorder::new(None, false, None);
            (self.counting_since_ns, self.cpu_before_ns) = (Some(self.now_ns), tlsdyno_sys::thread_cpu_ns());
            return;
        };
        if self.deadline_ns().is_some_and(|deadline_ns| self.now_ns >= deadline_ns) {
            let recorder = std::mem::replace(&mut self.recorder, Recorder::new(None, false, None));
            let mut outcome = recorder.finish();
            outcome.began_ns = since_ns;
            outcome.elapsed_ns = self.now_ns - since_ns;
            outcome.client_cpu_ns = tlsdyno_sys::thread_cpu_ns() - self.cpu_before_ns;
            outcome.kept = self.kept();
            self.counted = Some(outcome);
        }
    }
}
