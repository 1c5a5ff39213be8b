//! How many connections each client address has, in bounded memory and without locks.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// Counters of one row.
const COUNTERS: usize = 1 << 16;

/// Two rows of counters, each indexed by another hash of the address; an address has at most as many connections as the
/// smaller of its two. Addresses that share both counters with others count as more than they are, which with a hundred
/// thousand connections happens to one in some thousands.
#[derive(Debug)]
pub struct PerAddress {
    rows: [Box<[AtomicU16]>; 2],
    hasher: RandomState,
}

impl Default for PerAddress {
    fn default() -> PerAddress {
        let row = || (0..COUNTERS).map(|_| AtomicU16::new(0)).collect();
        PerAddress { rows: [row(), row()], hasher: RandomState::new() }
    }
}

impl PerAddress {
    fn counters(&self, address: IpAddr) -> [&AtomicU16; 2] {
        let hash = self.hasher.hash_one(address) as usize;
        [&self.rows[0][hash % COUNTERS], &self.rows[1][(hash >> 32) % COUNTERS]]
    }

    /// Counts one more; whether there were fewer than `most`.
    pub(super) fn enter(&self, address: IpAddr, most: u32) -> bool {
        let counts = self.counters(address).map(|counter| counter.fetch_add(1, Relaxed));
        u32::from(counts[0].min(counts[1])) < most
    }

    pub(super) fn leave(&self, address: IpAddr) {
        for counter in self.counters(address) {
            counter.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_count() {
        let counts = PerAddress::default();
        let [one, two] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
        assert_eq!([0; 3].map(|_| counts.enter(one, 2)), [true, true, false]);
        assert!(counts.enter(two, 2));
        (0..3).for_each(|_| counts.leave(one));
        assert!(counts.enter(one, 1));
    }
}
