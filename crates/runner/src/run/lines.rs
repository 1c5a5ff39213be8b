//! Lines of memory that are walked through in a random order, to time what the caches hold.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tlsdyno_base::random::SplitMix64;

/// Size that fits into a first-level cache beside a process's other data.
pub const FIRST_LEVEL_BYTES: usize = 24 << 10;
/// Size of a cache line on most machines.
const LINE_BYTES: usize = 64;
const PLACES_PER_LINE: usize = LINE_BYTES / size_of::<u32>();

/// Each line contains the index of the next, so that loads are dependent, and no prefetcher foresees them.
#[derive(Debug)]
pub struct Lines(Vec<u32>);

impl Lines {
    pub fn of_bytes(bytes: usize) -> Lines {
        let places = bytes.max(LINE_BYTES) / size_of::<u32>();
        let mut order: Vec<usize> = (0..places).step_by(PLACES_PER_LINE).collect();
        SplitMix64::new(1).shuffle(&mut order);
        let mut memory = vec![0; places];
        for (line, next) in order.iter().zip(order.iter().cycle().skip(1)) {
            memory[*line] = *next as u32;
        }
        Lines(memory)
    }

    pub fn count(&self) -> u32 {
        (self.0.len() / PLACES_PER_LINE) as u32
    }

    /// The line that so many dependent loads lead to.
    pub fn after(&self, first: u32, loads: u32) -> u32 {
        black_box((0..loads).fold(first, |place, _| self.0[place as usize]))
    }

    /// Time of so many dependent loads, which always begin with the same line.
    pub fn time_of(&self, loads: u32) -> Duration {
        let began = Instant::now();
        self.after(0, loads);
        began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_goes_through_all_lines() {
        let lines = Lines::of_bytes(64 << 10);
        let mut place = 0;
        let mut walked = 0;
        loop {
            place = lines.0[place as usize];
            walked += 1;
            if place == 0 {
                break;
            }
        }
        assert_eq!((walked, lines.count()), (1024, 1024));
        assert_eq!(Lines::of_bytes(0).count(), 1);
    }
}
