//! The OpenSSL provider that computes TLS stages twice and keeps one result: unpacked for one run, its mode and its
//! call counters.
//!
//! The library is compiled from `native/doubler` by the build script and embedded here. It holds nothing that could
//! replace a component by a no-op, so that a server with it is as secure as one without, and any client may come.
//! Unlike the provider ([`super::provider`]) it goes on as the plain default provider when its owner ends, or is not
//! there.

use std::fmt;
use std::ops::Sub;
use std::path::Path;

use anyhow::{Result, bail};
use tlsdyno_tls::{Stage, StageSet};

use crate::area::mode_bits;
use crate::counts::Counts;
use crate::layout::doubler as layout;
use crate::unpacked::{Library, Unpacked};

static LIBRARY: Library = Library {
    name: "doubler",
    image: include_bytes!(concat!(env!("OUT_DIR"), "/tlsdyno-doubler.so")),
    layout: &layout::AREA,
};

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
    pub fn prepare(dir: &Path) -> Result<Doubling> {
        let mut unpacked = LIBRARY.unpack(dir, 0)?;
        let what = "OpenSSL's default provider, parts of it computed twice while tlsdyno lives";
        unpacked.name_in_openssl_cnf("openssl-doubler.cnf", "tlsdyno-doubler", what)?;
        Ok(Doubling { unpacked })
    }

    /// Computes this twice in whatever the servers begin from now on. Connections and contexts that exist go on as they
    /// began (`docs/DOUBLING.md`). Takes a microsecond; every process of the servers sees it at once.
    pub fn set_mode(&self, doubled: Doubled) -> Result<()> {
        if let Some(stage) = doubled.stages.iter().find(|stage| !Stage::PROVIDER.contains(stage)) {
            bail!(
                "`{stage}` is no computation and cannot be doubled; of these stages it is possible: {}",
                StageSet::PROVIDER
            );
        }
        let copies = if doubled.copies { layout::MODE_COPIES } else { 0 };
        let mode = mode_bits(&Stage::PROVIDER, doubled.stages) | copies;
        self.area.write_u32(layout::MODE_AT, mode)
    }

    /// What the servers have done so far, over all their processes and threads.
    pub fn counters(&self) -> Result<DoublingCounters> {
        let totals = self.area.totals()?;
        let [calls, doubled] = [0, layout::SLOT_COUNTERS].map(|at| Counts::new(&layout::COUNTERS, &totals[at..]));
        Ok(DoublingCounters { calls, doubled })
    }
}

/// Calls of the functions that may be doubled, and how many of them were. Those of records in one pass belong to
/// `cipher`; `aead_bytes` and `cbc_bytes` are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoublingCounters {
    calls: Counts<{ layout::COUNTERS.len() }>,
    doubled: Counts<{ layout::COUNTERS.len() }>,
}

impl DoublingCounters {
    pub fn calls(&self, stage: Stage) -> u64 {
        self.calls.total(stage)
    }

    pub fn doubled(&self, stage: Stage) -> u64 {
        self.doubled.total(stage)
    }

    /// Calls under `name`, and those that were doubled; `None` if there is no such name.
    pub fn get(&self, name: &str) -> Option<[u64; 2]> {
        Some([self.calls.get(name)?, self.doubled.get(name)?])
    }

    /// What belongs to no stage, by name; 0 if there is no such counter.
    pub fn event(&self, name: &str) -> u64 {
        self.calls.get(name).unwrap_or(0)
    }

    /// Of each stage: stage, name, calls and those that were doubled.
    pub fn of_stages(&self) -> impl Iterator<Item = (Stage, &'static str, [u64; 2])> {
        let both = self.calls.of_stages().zip(self.doubled.of_stages());
        both.map(|((stage, name, calls), (.., doubled))| (stage, name, [calls, doubled]))
    }
}

impl Sub for DoublingCounters {
    type Output = DoublingCounters;

    fn sub(self, earlier: DoublingCounters) -> DoublingCounters {
        DoublingCounters { calls: self.calls - earlier.calls, doubled: self.doubled - earlier.doubled }
    }
}

impl fmt::Display for DoublingCounters {
    /// Those that are not zero, `name=calls/doubled`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both =
            self.calls.iter().zip(self.doubled.iter()).map(|((_, name, calls), (.., doubled))| (name, calls, doubled));
        let texts =
            both.filter(|(_, calls, doubled)| calls + doubled > 0).map(|(name, calls, doubled)| match doubled {
                0 => format!("{name}={calls}"),
                _ => format!("{name}={calls}/{doubled}"),
            });
        f.write_str(&texts.collect::<Vec<_>>().join(" "))
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
        assert_eq!(fs::read(doubling.area_path()).unwrap().len(), layout::AREA.size);
        assert_eq!(fs::read(doubling.library_path()).unwrap(), LIBRARY.image);
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
        doubling.area.write_u32(layout::SLOTS_CLAIMED_AT, layout::AREA.slots as u32 + 1).unwrap();
        for slot in [0, layout::AREA.slots - 1] {
            let at = layout::AREA.slots_at + slot * layout::AREA.slot_numbers * 8;
            doubling.area.write_u64(at, 3).unwrap();
            doubling.area.write_u64(at + layout::SLOT_COUNTERS * 8, 2).unwrap();
            doubling.area.write_u64(at + (layout::COUNTERS.len() - 1) * 8, 1).unwrap();
        }
        let difference = doubling.counters().unwrap() - before;
        assert_eq!(difference.get("sign"), Some([6, 4]));
        assert_eq!(difference.doubled(Stage::Authentication), 4);
        assert_eq!(difference.doubled(Stage::Kdf), 0);
        assert_eq!((difference.event("lost"), difference.event("copies")), (2, 0));
        assert_eq!(difference.to_string(), "sign=6/4 lost=2");
        assert_eq!(difference.get("no such counter"), None);
    }
}
