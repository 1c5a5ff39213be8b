//! The OpenSSL provider that computes TLS stages twice and keeps one result: unpacked for one run, its mode and its
//! call counters.
//!
//! The library is compiled from `native/doubler` by the build script and embedded here. It holds nothing that could
//! replace a component by a no-op, so that a server with it is as secure as one without, and any client may come.
//! Unlike the provider ([`super::provider`]) it goes on as the plain default provider when its owner ends, or is not
//! there. Its area is declared in `native/doubler_record.h` and mirrored here.

use std::fmt;
use std::ops::Sub;
use std::path::Path;

use anyhow::{Result, bail};
use tlsdyno_tls::{Stage, StageSet};

use super::area::{Head, mode_bits};
use super::unpacked::{Library, Unpacked};

/// The doubler, an ELF shared library.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tlsdyno-doubler.so"));

/// Mirror of `struct doubler_record` in `native/doubler_record.h`; integers are in the machine's byte order.
pub mod layout {
    use tlsdyno_tls::Stage;

    pub use crate::native::area::layout::*;

    /// First bytes of a doubler's area.
    pub const MAGIC: [u8; 8] = *b"TLSDYN2\0";
    /// Raised with every change of the layout.
    pub const ABI_VERSION: u32 = 1;
    /// Offset of the number of slots claimed so far, `u32`.
    pub const SLOTS_CLAIMED_AT: usize = 112;
    /// Offset of the number of times that a mode was read with bits that mean nothing, `u32`.
    pub const MODES_IGNORED_AT: usize = 116;
    /// Offset of the first slot.
    pub const SLOTS_AT: usize = 4096;
    /// Number of slots; each thread of the server counts in one.
    pub const SLOTS: usize = 512;
    /// `u64` counters in a slot of calls, and as many again of those that were doubled.
    pub const SLOT_COUNTERS: usize = 24;
    /// Size of the area in bytes.
    pub const SIZE: usize = SLOTS_AT + SLOTS * SLOT_COUNTERS * 2 * 8;
    /// Bit of the mode by which records are copied and not computed twice.
    pub const MODE_COPIES: u32 = 0x80;
    /// The counters in their order within a slot, by stage and name.
    pub const COUNTERS: [(Stage, &str); 19] = [
        (Stage::Authentication, "sign"),
        (Stage::Authentication, "rsa_decrypt"),
        (Stage::KeyAgreement, "key_generate"),
        (Stage::KeyAgreement, "key_derive"),
        (Stage::KeyAgreement, "key_decode"),
        (Stage::KeyAgreement, "key_validate"),
        (Stage::KeyAgreement, "encapsulate"),
        (Stage::KeyAgreement, "decapsulate"),
        (Stage::Cipher, "record_encrypt"),
        (Stage::Cipher, "record_decrypt"),
        (Stage::Cipher, "record_bytes"),
        (Stage::Cipher, "cbc_encrypt"),
        (Stage::Cipher, "cbc_decrypt"),
        (Stage::Cipher, "cbc_bytes"),
        (Stage::Mac, "record_hmac"),
        (Stage::Digest, "digest"),
        (Stage::Kdf, "kdf"),
        (Stage::Kdf, "handshake_hmac"),
        (Stage::Randomness, "generate"),
    ];
    /// What belongs to no stage, after the stages' counters: records copied only, contexts of which no half can be
    /// doubled, second computations that failed.
    pub const EVENTS: [&str; 3] = ["copies", "halves", "lost"];
}

/// What a server computes twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubled {
    /// The stages; an AEAD and stitched CBC only where both `cipher` and `mac` are among them.
    pub stages: StageSet,
    /// Records that are not doubled are copied as if they were: what doubling costs besides computing.
    pub copies: bool,
}

impl Doubled {
    /// Nothing: the default provider behind the doubler's tables.
    pub const NOTHING: Doubled = Doubled { stages: StageSet::NONE, copies: false };

    /// These stages.
    pub const fn stages(stages: StageSet) -> Doubled {
        Doubled { stages, copies: false }
    }
}

/// The doubler made ready for the servers of one run. Dropping it ends the doubling within a second, and leaves the
/// servers at their work; its files belong to the caller's directory.
#[derive(Debug)]
pub struct Doubling {
    pub(super) unpacked: Unpacked,
}

impl Doubling {
    /// Writes library and `openssl.cnf` into `dir`, which must exist and be closed to others, and makes the area.
    /// Nothing is doubled until [`Doubling::set_mode`] says so.
    ///
    /// # Errors
    /// A file cannot be written; `dir` has a path that an `openssl.cnf` cannot hold.
    pub fn prepare(dir: &Path) -> Result<Doubling> {
        let head = Head { magic: layout::MAGIC, abi_version: layout::ABI_VERSION, slots: layout::SLOTS, mode: 0 };
        let library =
            Library { name: "doubler", image: LIBRARY, area_name: "tlsdyno-doubling", head, area_size: layout::SIZE };
        let mut unpacked = library.unpack(dir)?;
        let what = "OpenSSL's default provider, parts of it computed twice while tlsdyno lives";
        unpacked.name_in_openssl_cnf("openssl-doubler.cnf", "tlsdyno-doubler", what, "")?;
        Ok(Doubling { unpacked })
    }

    /// Computes this twice in whatever the servers begin from now on. Connections and contexts that exist go on as they
    /// began (`docs/DOUBLING.md`). Takes a microsecond; every process of the servers sees it at once.
    ///
    /// # Errors
    /// A stage above the primitives, which no second computation can reach.
    pub fn set_mode(&self, doubled: Doubled) -> Result<()> {
        if let Some(stage) = doubled.stages.iter().find(|stage| !Stage::PROVIDER.contains(stage)) {
            bail!(
                "`{stage}` is no computation and cannot be doubled; of these stages it is possible: {}",
                StageSet::PROVIDER
            );
        }
        let copies = if doubled.copies { layout::MODE_COPIES } else { 0 };
        let mode = mode_bits(Stage::PROVIDER, doubled.stages) | copies;
        self.area.write(layout::MODE_AT, &mode.to_ne_bytes())
    }

    /// How often the servers read a mode with bits that mean nothing: 0, unless something else than
    /// [`Doubling::set_mode`] writes it.
    ///
    /// # Errors
    /// The area cannot be read.
    pub fn modes_ignored(&self) -> Result<u32> {
        self.area.read_u32(layout::MODES_IGNORED_AT)
    }

    /// What the servers have done so far, over all their processes and threads.
    ///
    /// # Errors
    /// The area cannot be read.
    pub fn counters(&self) -> Result<DoublingCounters> {
        let (claimed_at, counters) = (layout::SLOTS_CLAIMED_AT, 2 * layout::SLOT_COUNTERS);
        let totals = self.area.sum_slots(claimed_at, layout::SLOTS, layout::SLOTS_AT, counters)?;
        let (calls, doubled) = totals.split_at(layout::SLOT_COUNTERS);
        let mut counters = DoublingCounters::default();
        counters.calls.copy_from_slice(&calls[..layout::COUNTERS.len()]);
        counters.events.copy_from_slice(&calls[layout::COUNTERS.len()..][..layout::EVENTS.len()]);
        counters.doubled.copy_from_slice(&doubled[..layout::COUNTERS.len()]);
        Ok(counters)
    }
}

/// Calls of the functions that may be doubled, and how many of them were. Subtract two snapshots to get what happened
/// between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoublingCounters {
    calls: [u64; layout::COUNTERS.len()],
    doubled: [u64; layout::COUNTERS.len()],
    events: [u64; layout::EVENTS.len()],
}

impl DoublingCounters {
    /// Calls counted under `name` (see [`layout::COUNTERS`]), and those of them that were doubled; `None` if there is
    /// no such counter. `record_bytes` and `cbc_bytes` are bytes.
    pub fn get(&self, name: &str) -> Option<(u64, u64)> {
        self.iter().find(|(_, candidate, ..)| *candidate == name).map(|(_, _, calls, doubled)| (calls, doubled))
    }

    /// Calls of a stage that were doubled. Those of records in one pass belong to `cipher` here.
    pub fn doubled(&self, stage: Stage) -> u64 {
        self.iter().filter(|(of, ..)| *of == stage).map(|(.., doubled)| doubled).sum()
    }

    /// What belongs to no stage, by name (see [`layout::EVENTS`]); 0 if there is no such counter.
    pub fn event(&self, name: &str) -> u64 {
        let found = layout::EVENTS.iter().position(|candidate| *candidate == name);
        found.map_or(0, |index| self.events[index])
    }

    /// Every counter of a stage: stage, name, calls, calls that were doubled.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, &'static str, u64, u64)> + '_ {
        let numbers = self.calls.iter().zip(&self.doubled);
        layout::COUNTERS.iter().zip(numbers).map(|(&(stage, name), (calls, doubled))| (stage, name, *calls, *doubled))
    }
}

impl Sub for DoublingCounters {
    type Output = DoublingCounters;

    /// What happened after `earlier`. Counters only grow, so this is never negative for snapshots in order.
    fn sub(self, earlier: DoublingCounters) -> DoublingCounters {
        let mut difference = self;
        let now = difference.calls.iter_mut().chain(&mut difference.doubled).chain(&mut difference.events);
        let before = earlier.calls.into_iter().chain(earlier.doubled).chain(earlier.events);
        for (number, before) in now.zip(before) {
            *number = number.saturating_sub(before);
        }
        difference
    }
}

impl fmt::Display for DoublingCounters {
    /// The counters that are not zero, `name=calls/doubled` and `event=number`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (_, name, calls, doubled) in self.iter().filter(|(_, _, calls, _)| *calls > 0) {
            write!(f, "{separator}{name}={calls}/{doubled}")?;
            separator = " ";
        }
        for (name, number) in layout::EVENTS.iter().zip(self.events).filter(|(_, number)| *number > 0) {
            write!(f, "{separator}{name}={number}")?;
            separator = " ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn doubling() -> (tempfile::TempDir, Doubling) {
        let dir = tempfile::tempdir().unwrap();
        let doubling = Doubling::prepare(dir.path()).unwrap();
        (dir, doubling)
    }

    #[test]
    fn the_configuration_names_the_doubler_and_no_stages() {
        let (dir, doubling) = doubling();
        let text = fs::read_to_string(dir.path().join("openssl-doubler.cnf")).unwrap();
        assert!(text.contains(&format!("\ndescriptor = {}\n", doubling.area.descriptor())), "{text}");
        assert!(text.contains("/tlsdyno-doubler.so\n") && !text.contains("stages"), "{text}");
        assert_eq!(fs::read(doubling.area_path()).unwrap().len(), layout::SIZE);
        assert_eq!(fs::read(doubling.library_path()).unwrap(), LIBRARY);
    }

    #[test]
    fn a_mode_is_of_stages_that_are_computed() {
        let (_dir, doubling) = doubling();
        let mode = || doubling.area.read_u32(layout::MODE_AT).unwrap();
        assert_eq!(mode(), 0, "nothing to begin with");
        doubling.set_mode(Doubled::stages(StageSet::NONE.with(Stage::Kdf).with(Stage::KeyAgreement))).unwrap();
        assert_eq!(mode(), 0b10_0010);
        doubling.set_mode(Doubled { copies: true, ..Doubled::NOTHING }).unwrap();
        assert_eq!(mode(), layout::MODE_COPIES);
        let error = doubling.set_mode(Doubled::stages(StageSet::NONE.with(Stage::Setup))).unwrap_err().to_string();
        assert!(error.contains("`setup`") && error.contains("authentication"), "{error}");
        assert_eq!(mode(), layout::MODE_COPIES);
        doubling.set_mode(Doubled::NOTHING).unwrap();
        assert_eq!(mode(), 0);
    }

    #[test]
    fn counters_are_summed_over_slots_and_subtracted() {
        let (_dir, doubling) = doubling();
        let before = doubling.counters().unwrap();
        let all_claimed = (layout::SLOTS as u32 + 1).to_ne_bytes();
        doubling.area.write(layout::SLOTS_CLAIMED_AT, &all_claimed).unwrap();
        for slot in [0, layout::SLOTS - 1] {
            let at = layout::SLOTS_AT + slot * layout::SLOT_COUNTERS * 2 * 8;
            doubling.area.write(at, &3u64.to_ne_bytes()).unwrap();
            doubling.area.write(at + layout::SLOT_COUNTERS * 8, &2u64.to_ne_bytes()).unwrap();
            let lost_at = at + (layout::COUNTERS.len() + 2) * 8;
            doubling.area.write(lost_at, &1u64.to_ne_bytes()).unwrap();
        }
        let difference = doubling.counters().unwrap() - before;
        assert_eq!(difference.get("sign"), Some((6, 4)));
        assert_eq!(difference.doubled(Stage::Authentication), 4);
        assert_eq!(difference.doubled(Stage::Kdf), 0);
        assert_eq!((difference.event("lost"), difference.event("copies")), (2, 0));
        assert_eq!(difference.to_string(), "sign=6/4 lost=2");
        assert_eq!(difference.get("no such counter"), None);
    }
}
