//! What all loops remember: which backends hold what, under a 64-bit tag.
//!
//! A fixed array of sets of entries, each a few atomics, so that nobody ever waits. An entry is written word by word;
//! its first word is the tag mixed with all others, so that a reader who comes in between finds no entry instead of a
//! wrong one. Two writers of one entry at the same time may lose what one of them learned, or the entry: it is learned
//! again.
//!
//! A full set gives up the entry that expires first among those that are not confirmed. Where all are confirmed, a new
//! one is not stored: what has proved useful is not driven out by what nobody has met twice.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WAYS: usize = 8;

/// What is remembered under a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Slots that have shown to hold it, as a mask.
    pub accepted: u64,
    /// Slots that have shown not to.
    pub rejected: u64,
    /// Second at which this is forgotten; not 0.
    pub expires_s: u32,
    /// It was of use: met again after it was accepted.
    pub confirmed: bool,
    /// Times that every backend had rejected it.
    pub rounds: u8,
}

impl Known {
    fn meta(&self) -> u64 {
        u64::from(self.expires_s) | u64::from(self.confirmed) << 32 | u64::from(self.rounds) << 40
    }

    fn new(accepted: u64, rejected: u64, meta: u64) -> Known {
        let (expires_s, confirmed, rounds) = (meta as u32, meta >> 32 & 1 == 1, (meta >> 40) as u8);
        Known { accepted, rejected, expires_s, confirmed, rounds }
    }
}

/// Four words; `words[0]` is the tag mixed with the others.
#[derive(Debug, Default)]
struct Entry([AtomicU64; 4]);

impl Entry {
    /// The tag and what is known; an entry never used has expired at second 0.
    fn read(&self) -> (u64, Known) {
        let [mixed, accepted, rejected, meta] = [0, 1, 2, 3].map(|word: usize| self.0[word].load(Relaxed));
        (mixed ^ mix(accepted, rejected, meta), Known::new(accepted, rejected, meta))
    }

    fn write(&self, tag: u64, known: Known) {
        let meta = known.meta();
        let words = [tag ^ mix(known.accepted, known.rejected, meta), known.accepted, known.rejected, meta];
        self.0.iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
    }
}

/// Different for different words, also when two of them change places or differ in the same bit.
fn mix(accepted: u64, rejected: u64, meta: u64) -> u64 {
    let scatter = |word: u64, odd: u64| word.wrapping_mul(odd).rotate_left(29);
    scatter(accepted, 0x9e37_79b9_7f4a_7c15)
        ^ scatter(rejected, 0xc2b2_ae3d_27d4_eb4f)
        ^ scatter(meta, 0x1656_67b1_9e37_79f9)
}

/// A table of fixed size that maps tags to backends; the module says how.
#[derive(Debug)]
pub struct Table {
    sets: Box<[[Entry; WAYS]]>,
    /// Entries given up for others before their time.
    pub evicted: AtomicU64,
    /// New ones that found no place.
    pub refused: AtomicU64,
}

impl Table {
    /// For at least so many entries, 32 bytes each; rounded up to a power of two.
    pub fn new(entries: usize) -> Table {
        let sets = entries.div_ceil(WAYS).next_power_of_two();
        let sets = (0..sets).map(|_| Default::default()).collect();
        Table { sets, evicted: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    /// Maximum number of entries.
    pub fn capacity(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Entries that have not expired. Looks at all of them.
    pub fn live(&self, now_s: u32) -> usize {
        self.sets.iter().flatten().filter(|entry| entry.read().1.expires_s > now_s).count()
    }

    fn set(&self, tag: u64) -> &[Entry; WAYS] {
        // The low bits choose the set; the whole tag is compared.
        &self.sets[tag as usize & (self.sets.len() - 1)]
    }

    /// What is known and has not expired.
    pub fn get(&self, tag: u64, now_s: u32) -> Option<Known> {
        let mut entries = self.set(tag).iter().map(Entry::read);
        entries.find(|(found, known)| *found == tag && known.expires_s > now_s).map(|(_, known)| known)
    }

    /// Replaces what is known; `change` gets what was known so far. Whether it is stored.
    pub fn update(&self, tag: u64, now_s: u32, change: impl FnOnce(Option<Known>) -> Known) -> bool {
        let set = self.set(tag);
        let entries: [(u64, Known); WAYS] = std::array::from_fn(|way| set[way].read());
        let live = |known: &Known| known.expires_s > now_s;
        if let Some(way) = entries.iter().position(|(found, known)| *found == tag && live(known)) {
            set[way].write(tag, change(Some(entries[way].1)));
            return true;
        }
        let free = entries.iter().position(|(_, known)| !live(known));
        let victim = free.or_else(|| {
            let weak = (0..WAYS).filter(|&way| !entries[way].1.confirmed);
            weak.min_by_key(|&way| entries[way].1.expires_s)
        });
        let Some(way) = victim else {
            self.refused.fetch_add(1, Relaxed);
            return false;
        };
        if free.is_none() {
            self.evicted.fetch_add(1, Relaxed);
        }
        set[way].write(tag, change(None));
        true
    }

    /// Forgets what is known about some slots: another backend has got their number.
    pub fn forget_slots(&self, slots: u64) {
        for entry in self.sets.iter().flatten() {
            let (tag, known) = entry.read();
            if (known.accepted | known.rejected) & slots != 0 {
                entry.write(
                    tag,
                    Known { accepted: known.accepted & !slots, rejected: known.rejected & !slots, ..known },
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(slot: u8, expires_s: u32) -> Known {
        Known { accepted: 1 << slot, expires_s, ..Known::default() }
    }

    #[test]
    fn what_is_stored_is_found_until_it_expires() {
        let table = Table::new(64);
        assert_eq!(table.capacity(), 64);
        table.update(5, 10, |known| {
            assert_eq!(known, None);
            holds(3, 20)
        });
        assert_eq!((table.get(5, 19), table.get(5, 20), table.get(6, 10)), (Some(holds(3, 20)), None, None));
        let full = Known { accepted: u64::MAX, rejected: u64::MAX, expires_s: u32::MAX, confirmed: true, rounds: 255 };
        table.update(5, 19, |known| {
            assert_eq!(known, Some(holds(3, 20)));
            full
        });
        assert_eq!((table.get(5, 1000), table.live(1000)), (Some(full), 1));
    }

    #[test]
    fn a_full_set_gives_up_what_expires_first_and_never_what_is_confirmed() {
        let table = Table::new(WAYS);
        for tag in 0..WAYS as u64 {
            table.update(tag, 0, |_| Known { confirmed: tag < 6, ..holds(0, 100 - tag as u32) });
        }
        assert!(table.update(100, 0, |_| holds(1, 200)), "7 expires before 6");
        assert_eq!((table.get(7, 0), table.get(6, 0).is_some()), (None, true));
        assert!(table.update(101, 0, |_| Known { confirmed: true, ..holds(1, 200) }));
        assert!(table.update(100, 0, |_| Known { confirmed: true, ..holds(1, 200) }));
        assert!(!table.update(102, 0, |_| holds(1, 200)), "all are confirmed");
        assert_eq!((table.evicted.load(Relaxed), table.refused.load(Relaxed)), (2, 1));
        assert!(table.update(102, 95, |_| holds(1, 200)), "expired entries make place");
    }

    #[test]
    fn a_flood_does_not_drive_out_what_is_of_use() {
        let table = Table::new(4096);
        let tag = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        for number in 0..500 {
            table.update(tag(number), 0, |_| Known { confirmed: true, ..holds(1, 300) });
        }
        for number in 1000..200_000 {
            table.update(tag(number), 1, |_| Known { rejected: 1, expires_s: 301, ..Known::default() });
        }
        assert!((0..500).all(|number| table.get(tag(number), 299).is_some()));
        assert!(table.live(2) <= table.capacity());
    }

    #[test]
    fn slots_can_be_forgotten() {
        let table = Table::new(WAYS);
        table.update(1, 0, |_| Known { accepted: 0b110, rejected: 0b1001, expires_s: 9, ..Known::default() });
        table.forget_slots(0b1100);
        let left = table.get(1, 0).unwrap();
        assert_eq!((left.accepted, left.rejected), (0b10, 0b1));
    }

    #[test]
    fn readers_never_see_half_an_entry() {
        let table = Table::new(WAYS);
        std::thread::scope(|scope| {
            for writer in 0..2_u32 {
                let table = &table;
                scope.spawn(move || {
                    for number in 1..20_000_u32 {
                        let value = number * 2 + writer;
                        let (accepted, rejected) = (u64::from(value), u64::from(value) << 20);
                        table.update(7, 0, |_| Known { accepted, rejected, expires_s: value, ..Known::default() });
                    }
                });
            }
            for _ in 0..40_000 {
                if let Some(known) = table.get(7, 0) {
                    assert!(known.accepted == u64::from(known.expires_s) && known.rejected == known.accepted << 20);
                }
            }
        });
    }
}
