//! From samples to shares with intervals.
//!
//! Samples that follow each other are alike: a busy second has the same handshakes. So their number counts for more
//! than it is worth. The time is divided into 16 to 31 equal blocks (10 where it is a second). The variance of a share
//! between blocks, as a ratio of two sums (Cochran, Sampling Techniques, 1977, section 6.3), by that of as many
//! independent samples is the design effect (Kish 1965), at least 1. The interval is that of Wilson (1927) for as many
//! samples as are left by it, with Student's t of the blocks in place of the normal quantile. So it holds near 0 and
//! 100 %, too.

use std::collections::VecDeque;
use std::time::Duration;

use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::distribution::{CONFIDENCE, student_t_two_sided};

use crate::classify::Place;
use crate::part::Part;

/// The time is kept in slices of this length at first, so that there are blocks enough after a second.
const SLICE: Duration = Duration::from_millis(100);
/// So many slices are kept; then each two become one.
const SLICES_MOST: usize = 1024;
/// Blocks that the slices are put together to, at least, once there are as many.
const BLOCKS: usize = 16;
/// With fewer blocks that have samples no interval is told.
pub const BLOCKS_LEAST: usize = 5;

/// Samples by what they belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    parts: [u64; Part::ALL.len()],
    server: u64,
    unknown: u64,
    lost: u64,
}

impl Counts {
    /// Counts a sample.
    pub fn add(&mut self, place: Place) {
        match place {
            Place::Tls(part) => self.parts[part as usize] += 1,
            Place::Server => self.server += 1,
            Place::Unknown => self.unknown += 1,
        }
    }

    /// Counts samples that found no room. They are in no share.
    pub fn add_lost(&mut self, count: u64) {
        self.lost += count;
    }

    /// Adds other samples.
    pub fn add_all(&mut self, other: &Counts) {
        for (own, other) in self.parts.iter_mut().zip(other.parts) {
            *own += other;
        }
        self.server += other.server;
        self.unknown += other.unknown;
        self.lost += other.lost;
    }

    /// Samples of a part of TLS.
    pub fn of(&self, part: Part) -> u64 {
        self.parts[part as usize]
    }

    /// Samples of all parts of TLS.
    pub fn tls(&self) -> u64 {
        self.parts.iter().sum()
    }

    /// Samples of what else the server does.
    pub fn server(&self) -> u64 {
        self.server
    }

    /// Samples whose stacks show no file.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Samples that found no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// All samples but those.
    pub fn total(&self) -> u64 {
        self.tls() + self.server + self.unknown
    }
}

/// Samples by time.
#[derive(Clone, Debug)]
pub struct Times {
    slice: Duration,
    slices: VecDeque<Counts>,
    /// Number of slices that are gone.
    gone: usize,
    /// Only so much time is kept; `None`: all.
    window: Option<Duration>,
}

impl Times {
    /// No samples yet, of a time that has just begun. `window`: what is older is forgotten.
    pub fn new(window: Option<Duration>) -> Times {
        Times { slice: SLICE, slices: VecDeque::new(), gone: 0, window }
    }

    /// The samples of a moment, which is so long after the beginning.
    pub fn at(&mut self, since_begin: Duration) -> &mut Counts {
        if self.window.is_none() && self.slices.len() > SLICES_MOST {
            self.slices = merged(self.slices.make_contiguous(), 2).into();
            self.slice *= 2;
        }
        let index = (since_begin.as_nanos() / self.slice.as_nanos()) as usize;
        let length = (index + 1).saturating_sub(self.gone).max(1);
        if length > self.slices.len() {
            self.slices.resize(length, Counts::default());
        }
        let most = self.window.map_or(usize::MAX, |window| (window.as_nanos() / self.slice.as_nanos()).max(1) as usize);
        while self.slices.len() > most {
            self.slices.pop_front();
            self.gone += 1;
        }
        self.slices.back_mut().expect("there is one slice at least")
    }

    /// What the samples come to.
    pub fn shares(&self) -> Shares {
        let slices: Vec<Counts> = self.slices.iter().copied().collect();
        let mut counts = Counts::default();
        slices.iter().for_each(|slice| counts.add_all(slice));
        Shares { counts, blocks: merged(&slices, (slices.len() / BLOCKS).max(1)) }
    }
}

/// The slices put together by so many; the last block may be shorter.
fn merged(slices: &[Counts], each: usize) -> Vec<Counts> {
    let block = |slices: &[Counts]| {
        let mut block = Counts::default();
        slices.iter().for_each(|slice| block.add_all(slice));
        block
    };
    slices.chunks(each).map(block).collect()
}

/// The samples of a time, and of blocks of it.
#[derive(Clone, Debug)]
pub struct Shares {
    /// All of them.
    pub counts: Counts,
    blocks: Vec<Counts>,
}

impl Shares {
    /// The share of TLS in the server's CPU time, percent.
    pub fn tls(&self) -> Estimate {
        self.share(Counts::tls)
    }

    /// The share of a part of TLS in the server's CPU time, percent.
    pub fn part(&self, part: Part) -> Estimate {
        self.of(&[part])
    }

    /// The share of these parts together, percent.
    pub fn of(&self, parts: &[Part]) -> Estimate {
        self.share(|counts| parts.iter().map(|part| counts.of(*part)).sum())
    }

    fn share(&self, hits: impl Fn(&Counts) -> u64) -> Estimate {
        let blocks: Vec<[f64; 2]> = self.blocks.iter().map(|one| [hits(one) as f64, one.total() as f64]).collect();
        share(&blocks).scaled(100.0)
    }
}

/// The share of hits in all samples, from blocks of both.
fn share(blocks: &[[f64; 2]]) -> Estimate {
    let blocks: Vec<[f64; 2]> = blocks.iter().copied().filter(|[_, all]| *all > 0.0).collect();
    let [hits, all] = blocks.iter().fold([0.0, 0.0], |[hits, all], one| [hits + one[0], all + one[1]]);
    let value = hits / all;
    let count = blocks.len() as f64;
    if blocks.len() < BLOCKS_LEAST {
        return Estimate::without_interval(value);
    }
    let squares: f64 = blocks.iter().map(|[hits, all]| (hits - value * all).powi(2)).sum();
    let between = count / (count - 1.0) * squares / (all * all);
    let independent = value * (1.0 - value) / all;
    let design_effect = if independent > 0.0 { (between / independent).max(1.0) } else { 1.0 };
    let [low, high] = wilson(value, all / design_effect, student_t_two_sided(CONFIDENCE, count - 1.0));
    Estimate { value, low, high }
}

/// Wilson's interval of a share of `count` independent samples; `quantile`: of the distribution of its error.
fn wilson(share: f64, count: f64, quantile: f64) -> [f64; 2] {
    let square = quantile * quantile / count;
    let middle = (share + square / 2.0) / (1.0 + square);
    let half = quantile / (1.0 + square) * (share * (1.0 - share) / count + square / (4.0 * count)).sqrt();
    [(middle - half).clamp(0.0, share), (middle + half).clamp(share, 1.0)]
}

#[cfg(test)]
mod tests {
    use tlsdyno_base::random::SplitMix64;

    use super::*;

    /// Golden values: the two roots of Wilson's quadratic equation, by Python.
    #[test]
    fn wilson_agrees_with_golden_values() {
        for (share, count, expected) in
            [(0.53, 100.0, [0.432_888_570, 0.624_891_820]), (0.0, 20.0, [0.0, 0.161_125_158])]
        {
            let got = wilson(share, count, 1.959_963_984_540_054);
            let is_close = |at: usize| (got[at] - expected[at]).abs() < 1e-8;
            assert!(is_close(0) && is_close(1), "{got:?} {expected:?}");
        }
    }

    #[test]
    fn without_blocks_enough_no_interval_is_told() {
        let [few, enough] = [4, 5].map(|count| share(&vec![[5.0, 10.0]; count]));
        assert!(few.value == 0.5 && !few.has_interval() && enough.has_interval());
        assert!(!share(&[]).is_known() && !share(&[[0.0, 0.0]; 20]).is_known());
        let none = share(&[[0.0, 10.0]; 20]);
        assert!(none.low == 0.0 && none.high > 0.01, "what was not seen may be there: {none:?}");
    }

    /// Blocks whose true shares differ, as those of a server whose handshakes come in bursts: the interval holds the
    /// mean share in 19 of 20 cases, one of as many independent samples in fewer.
    #[test]
    fn the_interval_holds_for_samples_that_are_alike() {
        let mut random = SplitMix64::new(7);
        let mut held = [0, 0];
        const CASES: usize = 2_000;
        for _ in 0..CASES {
            let blocks: Vec<[f64; 2]> = (0..20)
                .map(|_| {
                    let share = if random.below(2) == 0 { 0.3 } else { 0.7 };
                    let hits = (0..50).filter(|_| (random.below(1_000_000) as f64) < share * 1e6).count();
                    [hits as f64, 50.0]
                })
                .collect();
            let got = share(&blocks);
            held[0] += usize::from(got.low <= 0.5 && 0.5 <= got.high);
            let [low, high] = wilson(got.value, 1_000.0, 1.96);
            held[1] += usize::from(low <= 0.5 && 0.5 <= high);
        }
        let part = held.map(|held| held as f64 / CASES as f64);
        assert!((0.93..0.98).contains(&part[0]) && part[1] < 0.75, "{part:?}");
    }

    #[test]
    fn a_long_time_is_kept_in_longer_slices_and_a_window_forgets() {
        let all = |times: &Times| times.shares().counts.total();
        let mut times = Times::new(None);
        for tenth in 0..5_000 {
            times.at(Duration::from_millis(100 * tenth)).add(Place::Tls(Part::Signature));
        }
        assert_eq!((all(&times), times.shares().counts.of(Part::Signature)), (5_000, 5_000));
        assert!(times.slices.len() <= SLICES_MOST + 1 && times.shares().blocks.len() >= BLOCKS);
        let mut times = Times::new(Some(Duration::from_secs(60)));
        for tenth in 0..5_000 {
            times.at(Duration::from_millis(100 * tenth)).add(Place::Server);
        }
        assert_eq!(all(&times), 600);
        let mut gap = Times::new(Some(Duration::from_secs(1)));
        gap.at(Duration::ZERO).add(Place::Unknown);
        gap.at(Duration::from_secs(3_600)).add(Place::Unknown);
        assert_eq!(all(&gap), 1);
    }

    #[test]
    fn parts_are_the_whole() {
        let mut times = Times::new(None);
        for (at, part) in Part::ALL.into_iter().cycle().take(600).enumerate() {
            times.at(Duration::from_millis(10 * at as u64)).add(Place::Tls(part));
            times.at(Duration::from_millis(10 * at as u64)).add(Place::Server);
        }
        let shares = times.shares();
        let sum: f64 = Part::ALL.iter().map(|part| shares.part(*part).value).sum();
        assert!((sum - shares.tls().value).abs() < 1e-9 && (shares.tls().value - 50.0).abs() < 1e-9);
        assert!(shares.tls().has_interval());
    }
}
