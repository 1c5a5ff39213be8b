//! How far the monotonic clocks of two machines are apart: by the answer that came back soonest (Cristian 1989).

/// Answers that are kept. Clocks drift apart by up to 50 µs in a second, so that old ones are worth nothing.
const KEPT: usize = 16;

#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Round trip, how much its clock is ahead of ours, and when that was heard, nanoseconds; the oldest first.
    answers: Vec<(u64, i128, u64)>,
}

impl Clock {
    /// An answer came: asked and heard by our clock, answered by its, nanoseconds.
    pub fn note(&mut self, asked_ns: u64, answered_ns: u64, heard_ns: u64) {
        let trip_ns = heard_ns.saturating_sub(asked_ns);
        if self.answers.len() == KEPT {
            self.answers.remove(0);
        }
        let ahead_ns = i128::from(answered_ns) - i128::from(asked_ns) - i128::from(trip_ns / 2);
        self.answers.push((trip_ns, ahead_ns, heard_ns));
    }

    pub fn forget(&mut self) {
        self.answers.clear();
    }

    pub fn answers(&self) -> usize {
        self.answers.len()
    }

    pub fn answers_since(&self, since_ns: u64) -> usize {
        self.answers.iter().filter(|(.., heard_ns)| *heard_ns >= since_ns).count()
    }

    /// The shortest round trip, nanoseconds: half of it is the most that the clocks can be misjudged by.
    pub fn trip_ns(&self) -> u64 {
        self.best().0
    }

    /// Converts a time of our clock into one of the worker's.
    pub fn theirs(&self, ours_ns: u64) -> u64 {
        (i128::from(ours_ns) + self.best().1).clamp(0, u64::MAX.into()) as u64
    }

    /// Converts a time of the worker's clock into one of ours.
    pub fn ours(&self, theirs_ns: u64) -> u64 {
        (i128::from(theirs_ns) - self.best().1).clamp(0, u64::MAX.into()) as u64
    }

    fn best(&self) -> (u64, i128, u64) {
        self.answers.iter().copied().min().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soonest_answer_tells_how_far_clocks_are_apart() {
        let mut clock = Clock::default();
        // Ahead by a million; once the way back took long.
        clock.note(100, 1_000_110, 120);
        clock.note(200, 1_000_210, 900);
        assert_eq!((clock.trip_ns(), clock.theirs(500), clock.ours(1_000_500)), (20, 1_000_500, 500));
        // Behind by a million.
        let mut clock = Clock::default();
        clock.note(2_000_000, 1_000_040, 2_000_080);
        assert_eq!((clock.theirs(3_000_000), clock.ours(2_000_000)), (2_000_000, 3_000_000));
        (0..100).for_each(|at| clock.note(at, at, at + 5));
        assert_eq!((clock.answers(), clock.trip_ns()), (KEPT, 5));
        assert_eq!((clock.answers_since(100), clock.answers_since(104)), (5, 1));
    }
}
