//! When requests are meant to be sent: the schedule of an open loop. Pure: it is told the time, and does not depend on
//! how the server does. A server that stalls therefore meets all requests that fell due in the meantime, and their
//! latency counts from when they were meant to be sent (no coordinated omission: Tene, "How NOT to measure latency";
//! wrk2).

use super::plan::{Arrivals, Rate};
use super::share::Share;

#[derive(Debug)]
pub struct Pacer {
    rate: Rate,
    /// From the start, in nanoseconds; arrivals at or after it do not exist.
    length_ns: Option<u64>,
    start_ns: Option<u64>,
    /// The next arrival, from the start, in nanoseconds.
    next_ns: f64,
    drawn: u64,
    /// Which of the arrivals are its own.
    share: Share,
    random: Random,
}

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Uniform in (0, 1).
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 12) as f64 / (1u64 << 52) as f64 + f64::EPSILON
    }
}

impl Pacer {
    /// A schedule that starts when it is first asked. `length_ns`: it ends so long after. Of a part of a load it is
    /// every so-manieth arrival: all parts draw the same arrivals, so that together they have exactly these.
    pub fn new(rate: Rate, length_ns: Option<u64>, share: Share) -> Pacer {
        let random = Random::new(rate.seed);
        let mut pacer = Pacer { rate, length_ns, start_ns: None, next_ns: 0.0, drawn: 0, share, random };
        (0..=share.index).for_each(|_| pacer.draw());
        pacer
    }

    /// Takes the next arrival if it is due, and answers when it was.
    pub fn take_due(&mut self, now_ns: u64) -> Option<u64> {
        let next_ns = self.next_due_ns(now_ns)?;
        if next_ns > now_ns {
            return None;
        }
        (0..self.share.count).for_each(|_| self.draw());
        Some(next_ns)
    }

    /// When the next arrival is, or was; `None`: there are no more.
    pub fn next_due_ns(&mut self, now_ns: u64) -> Option<u64> {
        let start_ns = *self.start_ns.get_or_insert(now_ns);
        let next_ns = self.next_ns as u64;
        (self.length_ns.is_none_or(|length_ns| next_ns < length_ns)).then_some(start_ns + next_ns)
    }

    fn draw(&mut self) {
        let period_ns = 1e9 / self.rate.per_second;
        self.next_ns = match self.rate.arrivals {
            // A product, not a sum: rounding does not add up over a long run.
            Arrivals::Constant => self.drawn as f64 * period_ns,
            Arrivals::Poisson => self.next_ns - period_ns * self.random.uniform().ln(),
        };
        self.drawn += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(rate: Rate, length_ns: u64) -> Vec<u64> {
        let mut pacer = Pacer::new(rate, Some(length_ns), Share::default());
        assert_eq!(pacer.next_due_ns(1000).is_some(), length_ns > pacer.next_ns as u64);
        std::iter::from_fn(|| pacer.take_due(u64::MAX)).collect()
    }

    #[test]
    fn a_constant_rate_has_equal_steps_from_the_start_and_does_not_drift() {
        let rate = Rate { per_second: 3.0, arrivals: Arrivals::Constant, seed: 0 };
        let due = all(rate, 1_000_000_000_000);
        assert_eq!(due.len(), 3000);
        assert_eq!(due[..3], [1000, 333_334_333, 666_667_666]);
        assert_eq!(due[2997], 1000 + 999_000_000_000);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_scatter_of_their_kind() {
        let rate = Rate { per_second: 1000.0, arrivals: Arrivals::Poisson, seed: 7 };
        let due = all(rate, 50_000_000_000);
        assert!((49_000..51_000).contains(&due.len()), "{}", due.len());
        let gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((deviation / mean - 1.0).abs() < 0.03, "an exponential distribution: {mean} {deviation}");
        assert_eq!(due, all(rate, 50_000_000_000), "the same seed gives the same schedule");
        assert_ne!(due, all(Rate { seed: 8, ..rate }, 50_000_000_000));
    }

    #[test]
    fn the_parts_of_a_schedule_are_together_the_schedule() {
        for arrivals in Arrivals::ALL {
            let rate = Rate { per_second: 1000.0, arrivals, seed: 7 };
            let part = |index| {
                let mut pacer = Pacer::new(rate, Some(5_000_000_000), Share { index, count: 3 });
                pacer.next_due_ns(1000);
                std::iter::from_fn(move || pacer.take_due(u64::MAX))
            };
            let mut together: Vec<u64> = (0..3).flat_map(part).collect();
            together.sort_unstable();
            assert_eq!(together, all(rate, 5_000_000_000), "{arrivals:?}");
            assert!((1500..1800).contains(&part(2).count()));
        }
    }

    #[test]
    fn nothing_is_due_ahead_of_its_time_and_nothing_is_lost() {
        let rate = Rate { per_second: 10.0, arrivals: Arrivals::Constant, seed: 0 };
        let mut pacer = Pacer::new(rate, Some(1_000_000_000), Share::default());
        assert_eq!(pacer.take_due(5_000), Some(5_000));
        assert_eq!(pacer.take_due(100_004_999), None);
        assert_eq!(pacer.next_due_ns(100_004_999), Some(100_005_000));
        assert_eq!(pacer.take_due(100_005_000), Some(100_005_000));
        let late: Vec<u64> = std::iter::from_fn(|| pacer.take_due(9_000_000_000)).collect();
        assert_eq!(late, (2..10).map(|index| index * 100_000_000 + 5_000).collect::<Vec<_>>());
    }
}
