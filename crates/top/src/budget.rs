//! How much CPU time `top` uses itself: less is done where that is more than allowed.

use std::time::{Duration, Instant};

/// The use is judged of so much time, so that reading a new program is no reason for less.
const SPAN: Duration = Duration::from_secs(10);
/// Of as many samples, or clients, at least one is taken.
const MOST: u32 = 64;
/// With less than this part of what is allowed, more is done again: twice as much then stays within it.
const IDLE: f64 = 0.25;

/// What may be used, and how much less is done for it.
pub struct Budget {
    /// CPUs.
    allowed: f64,
    judged: Option<(Instant, [u64; 2])>,
    /// Of so many one is taken: samples, and clients.
    pub one_in: [u32; 2],
}

impl Budget {
    /// `percent`: of one CPU; `None`: as much as it takes.
    pub fn new(percent: Option<f64>) -> Budget {
        Budget { allowed: percent.map_or(f64::INFINITY, |percent| percent / 100.0), judged: None, one_in: [1; 2] }
    }

    /// Takes note of the CPU time used until now for samples and for packets, nanoseconds.
    pub fn note(&mut self, now: Instant, used_ns: [u64; 2]) {
        let (then, before_ns) = *self.judged.get_or_insert((now, used_ns));
        if now - then < SPAN {
            return;
        }
        self.judged = Some((now, used_ns));
        // A process that has ended takes its time with it.
        let used = [0, 1].map(|of| used_ns[of].saturating_sub(before_ns[of]));
        let share = used.iter().sum::<u64>() as f64 / (now - then).as_nanos() as f64;
        if share > self.allowed {
            let one_in = &mut self.one_in[usize::from(used[1] > used[0])];
            *one_in = (*one_in * 2).min(MOST);
        } else if share < self.allowed * IDLE {
            self.one_in = self.one_in.map(|one_in| (one_in / 2).max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_done_of_what_costs_more_and_again_more_when_it_is_quiet() {
        let (begin, ms) = (Instant::now(), 1_000_000);
        let mut budget = Budget::new(Some(1.0));
        let mut used = [0, 0];
        let mut spend = |second: u64, samples_ms: u64, packets_ms: u64| {
            used = [used[0] + samples_ms * ms, used[1] + packets_ms * ms];
            budget.note(begin + Duration::from_secs(second), used);
            budget.one_in
        };
        // What it takes to begin is not judged.
        assert_eq!(spend(0, 900, 900), [1, 1]);
        assert_eq!(spend(5, 900, 0), [1, 1], "it is not time yet");
        assert_eq!(spend(10, 0, 0), [2, 1]);
        assert_eq!(spend(20, 100, 200), [2, 2]);
        assert_eq!(spend(30, 50, 50), [2, 2], "just as much as allowed");
        assert_eq!(spend(40, 20, 4), [1, 1]);
        for number in 5..15 {
            spend(number * 10, 0, 500);
        }
        assert_eq!(spend(150, 0, 500), [1, MOST]);
        let mut free = Budget::new(None);
        free.note(begin, [0; 2]);
        free.note(begin + SPAN, [u64::MAX / 4; 2]);
        assert_eq!(free.one_in, [1, 1]);
    }
}
