//! How the rounds of a subject go, and what the next one is expected to take.

use std::time::{Duration, Instant};

use tlsdyno_base::random::SplitMix64;

use super::Plan;

pub(super) struct Course {
    pub(super) plan: Plan,
    /// The configurations that have blocks.
    pub(super) blocks: Vec<usize>,
    pub(super) random: SplitMix64,
    /// Minimum number of rounds, if the subject does not keep to the bound.
    pub(super) least: u32,
    pub(super) began: Instant,
    /// Seconds per request in the slowest round of blocks.
    pub(super) slowest: Option<f64>,
    /// Total time of rounds outside of slices.
    pub(super) beside: Duration,
    /// Part of `beside` for starting servers.
    pub(super) starting: Duration,
    /// Part of `beside` for measuring blocks.
    pub(super) in_blocks: Duration,
}

/// Contents of a round, with their expected duration.
pub(super) struct Parts {
    pub(super) slices: Option<Duration>,
    pub(super) blocks: Option<Duration>,
}

impl Course {
    /// For a round with so many requests in a block, and the time left.
    pub(super) fn parts(&self, round: u32, requests: u64, now: Instant, left: Duration) -> Parts {
        let Plan { schedule, slices, .. } = &self.plan;
        let has_blocks = slices.is_none_or(|slices| slices.has_blocks(round, self.in_blocks, now - self.began));
        let planned = schedule.predicted(requests, self.slowest.unwrap_or(schedule.seconds_per_request));
        let [beside, starting] = [self.beside, self.starting].map(|all| all / round.max(1));
        Parts {
            slices: slices.map(|slices| slices.fitting(round, left, beside, starting)),
            blocks: has_blocks.then_some(planned),
        }
    }

    pub(super) fn blocks_took(&mut self, length: Duration, requests: u64) {
        self.in_blocks += length;
        let seconds = self.plan.schedule.seconds_per_request_of(length, requests);
        self.slowest = Some(self.slowest.map_or(seconds, |slowest| slowest.max(seconds)));
    }
}
