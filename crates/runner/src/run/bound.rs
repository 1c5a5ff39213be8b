//! Until when preparing and measuring may go on. `--time` is a bound, whatever else the machine does meanwhile.

use std::time::{Duration, Instant};

use tlsdyno_record::model::Measure;

/// Time for the first sweep or round where less was asked for: before it there are no results.
const FIRST_RESULT: Duration = Duration::from_secs(10);
/// `FIRST_RESULT` as a multiple of a longer measuring time.
const FIRST_RESULT_TIMES: f64 = 1.1;
/// Maximum time to start and check servers for a first look, which has no blocks.
const PREPARING_OF_A_FIRST_LOOK: Duration = Duration::from_secs(25);
/// Minimum of the time to start and check servers, for anything longer.
const PREPARING: Duration = Duration::from_secs(60);

pub trait Clock {
    fn now(&self) -> Instant;
}

#[derive(Clone, Copy, Debug)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// Limit of the measuring time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) started: Instant,
    /// Requested measuring time.
    pub(super) time: Duration,
    /// A sweep or a round is complete.
    pub(super) has_result: bool,
}

impl Bound {
    pub(super) fn new(started: Instant, time: Duration) -> Bound {
        Bound { started, time, has_result: false }
    }

    /// End of measuring, even within a slice. Later before the first result.
    pub(super) fn end(&self) -> Instant {
        let first = self.time.mul_f64(FIRST_RESULT_TIMES).max(FIRST_RESULT);
        self.started + if self.has_result { self.time } else { first }
    }

    /// Rest of the requested time.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.time.saturating_sub(now - self.started)
    }
}

/// Maximum time to start and check servers: those that were not begun by then are left out.
pub(super) fn preparing_most(measure: &Measure) -> Duration {
    match measure.blocks {
        false => PREPARING_OF_A_FIRST_LOOK,
        true => PREPARING.max(Duration::from_secs_f64(measure.time_s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_result_has_a_little_more_time_and_nothing_else_has() {
        let started = Instant::now();
        for (time_s, first_s) in [(2, 10.0), (20, 22.0), (60, 66.0)] {
            let mut bound = Bound::new(started, Duration::from_secs(time_s));
            assert_eq!(bound.end() - started, Duration::from_secs_f64(first_s));
            bound.has_result = true;
            assert_eq!(bound.end() - started, Duration::from_secs(time_s));
            assert_eq!(bound.left(started + Duration::from_secs(time_s + 5)), Duration::ZERO);
        }
    }
}
