//! Until when preparing and measuring may go on. `--time` is a bound, whatever else the machine does meanwhile.

use std::time::{Duration, Instant};

use tlsdyno_record::model::Measure;

/// So long the first sweep or round may take where less was asked for: before it there is nothing to tell.
const FIRST_RESULT: Duration = Duration::from_secs(10);
/// The same as a multiple of a longer time.
const FIRST_RESULT_TIMES: f64 = 1.1;
/// So long servers are started and checked for a first look, which has no blocks.
const PREPARING_OF_A_FIRST_LOOK: Duration = Duration::from_secs(25);
/// The least of it for anything longer.
const PREPARING: Duration = Duration::from_secs(60);

/// The time of the machine, or of a test.
pub trait Clock {
    /// Now.
    fn now(&self) -> Instant;
}

/// The machine's.
#[derive(Clone, Copy, Debug)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// The time of measuring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) started: Instant,
    /// How long it may take.
    pub(super) time: Duration,
    /// A sweep or a round is complete.
    pub(super) has_result: bool,
}

impl Bound {
    pub(super) fn new(started: Instant, time: Duration) -> Bound {
        Bound { started, time, has_result: false }
    }

    /// When measuring ends, whatever is under way. Before the first result it has a little more time.
    pub(super) fn end(&self) -> Instant {
        let first = self.time.mul_f64(FIRST_RESULT_TIMES).max(FIRST_RESULT);
        self.started + if self.has_result { self.time } else { first }
    }

    /// What is left of the time that was asked for.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.time.saturating_sub(now - self.started)
    }
}

/// How long servers may be started and checked for an experiment: those that were not begun by then are left out.
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
