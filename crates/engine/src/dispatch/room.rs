//! How many connections are open in all loops together, and which loop may have the next one, without locks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Places for connections, of which all loops take.
#[derive(Debug)]
#[repr(align(128))] // Written for each connection, beside what every turn of a loop reads.
pub(super) struct Room {
    taken: AtomicU32,
    /// Loops that found no place so far.
    asked: AtomicU64,
    /// By loop, how many had found none before it did; 0: it does not wait for one.
    turns: Box<[AtomicU64]>,
}

impl Room {
    pub(super) fn new(loops: usize) -> Room {
        let turns = (0..loops).map(|_| AtomicU64::new(0)).collect();
        Room { taken: AtomicU32::new(0), asked: AtomicU64::new(0), turns }
    }

    /// Takes a place of `most` for this loop; `false`: there is none, or others have waited longer for one. Without
    /// turns a loop whose connections end would give each place to a client of its own, and another's clients would
    /// wait for ever. Whoever waits has to ask again soon.
    pub(super) fn take(&self, number: usize, most: u32) -> bool {
        let own = self.turns[number].load(Relaxed);
        let comes_before = |turn: u64| turn != 0 && (own == 0 || turn < own);
        let others_first = self.turns.iter().any(|turn| comes_before(turn.load(Relaxed)));
        if !others_first && self.take_any(most) {
            self.leave_queue(number);
            return true;
        }
        if own == 0 {
            self.turns[number].store(self.asked.fetch_add(1, Relaxed) + 1, Relaxed);
        }
        false
    }

    /// Takes a place, whoever else waits for one.
    pub(super) fn take_any(&self, most: u32) -> bool {
        let is_there = self.taken.fetch_add(1, Relaxed) < most;
        if !is_there {
            self.give_back();
        }
        is_there
    }

    pub(super) fn give_back(&self) {
        self.taken.fetch_sub(1, Relaxed);
    }

    pub(super) fn is_waiting(&self, number: usize) -> bool {
        self.turns[number].load(Relaxed) != 0
    }

    /// This loop does not wait, or not any more.
    pub(super) fn leave_queue(&self, number: usize) {
        // Written only when it changes: the line stays shared.
        if self.is_waiting(number) {
            self.turns[number].store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loop_may_have_all_until_another_waits() {
        let room = Room::new(2);
        for _ in 0..4 {
            assert!(room.take(0, 4), "below the limit nobody waits, whichever loop it is");
        }
        assert!(!room.take(1, 4) && !room.take(0, 4), "full");
        room.give_back();
        assert!(!room.take(0, 4), "the other has waited longer");
        assert!(room.take(1, 4) && !room.take(1, 4));
        room.give_back();
        assert!(!room.take(1, 4), "now the first has");
        assert!(room.take(0, 4) && !room.take(0, 4));
        room.give_back();
        // Who comes next finds that its clients are gone.
        room.leave_queue(1);
        assert!(room.take(0, 4));
    }

    /// Loops that take and give back at random: never more than the limit, and each that wants a place gets one.
    #[test]
    fn no_loop_waits_for_ever() {
        let mut random = 1_u64;
        let mut below = |end: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % end
        };
        for loops in 1..6_usize {
            for most in [1, 2, 3, 5, 8] {
                let room = Room::new(loops);
                let (mut held, mut got) = (vec![0; loops], vec![0; loops]);
                for _ in 0..10_000 {
                    // The first loop is quick: it asks again as soon as one of its connections has ended.
                    let at = if below(4) > 0 { 0 } else { below(loops as u64) as usize };
                    if held[at] > 0 && below(2) == 0 {
                        room.give_back();
                        held[at] -= 1;
                    }
                    if room.take(at, most) {
                        held[at] += 1;
                        got[at] += 1;
                    }
                    let open: u32 = held.iter().sum();
                    assert!(open <= most && open == room.taken.load(Relaxed));
                }
                assert!(got.iter().all(|got| *got > 20), "{loops} loops, {most} places: {got:?}");
            }
        }
    }
}
