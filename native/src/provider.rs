//! The OpenSSL provider that replaces TLS stages by no-ops: unpacked for one run, and its call counters.
//!
//! The library is compiled from `native/provider` by the build script and embedded here. For a run it is written, with
//! an `openssl.cnf`, into a private directory; a server that is started with [`Unpacked::handed`] then loads it. The
//! record area, which goes to the server as an open descriptor, is also the acknowledgement ([`super::area`]).

use std::path::Path;

use anyhow::{Result, ensure};
use tlsdyno_tls::{Stage, StageSet};

use crate::area::mode_bits;
use crate::counts::Counts;
use crate::layout::provider as layout;
use crate::unpacked::{Library, Unpacked};

static LIBRARY: Library = Library {
    name: "provider",
    image: include_bytes!(concat!(env!("OUT_DIR"), "/tlsdyno-provider.so")),
    layout: &layout::AREA,
};

/// What private-key operations (signatures, static-RSA decryption) cost besides their computation: emulated hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// They run in an accelerator; the stage `authentication` must be off.
    pub accelerator: Option<Engines>,
    /// CPU time that each burns in addition, nanoseconds, until [`Injection::set_burn_ns`] says less; 0: none.
    pub burn_ns: u64,
    /// Instructions that each executes in addition where it is computed; 0: none.
    pub burn_instructions: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engines {
    /// Operations at the same time, 1 to [`layout::ENGINES_MAX`].
    pub count: u32,
    /// Time of one operation in one engine, or of one batch of them, nanoseconds.
    pub operation_ns: u64,
    /// Operations that an engine does at once, 1 to [`layout::BATCH_MAX`].
    pub batch: u32,
    /// How long the first one of a batch waits for others, nanoseconds; 0: only while its engine works.
    pub gather_ns: u64,
}

impl Engines {
    /// Engines that do one operation at a time.
    pub const fn one_by_one(count: u32, operation_ns: u64) -> Engines {
        Engines { count, operation_ns, batch: 1, gather_ns: 0 }
    }

    /// In words, with the workers of its server.
    pub fn describe(self, workers: u32) -> String {
        let Engines { count, operation_ns, batch, gather_ns } = self;
        let us = operation_ns as f64 / 1e3;
        let rate = f64::from(count * batch) * 1e9 / operation_ns as f64;
        let gathered = match gather_ns {
            0 => String::new(),
            ns => format!(", gathered for {:.1} us", ns as f64 / 1e3),
        };
        let each = match batch {
            1 => "private-key operation".to_owned(),
            _ => format!("batch of up to {batch} private-key operations{gathered}"),
        };
        format!("accelerator: {count} x {us:.1} us for each {each} ({rate:.0} a second), {workers} workers")
    }
}

/// Calls of replaced functions, and what emulated hardware did. An operation of two stages (one AEAD record) is counted
/// once for each of them that is off.
pub type Counters = Counts<{ layout::COUNTERS.len() }>;

/// The provider made ready for the servers of one configuration of one run.
///
/// Servers of *different* configurations need different injections (each in its own directory): the counters and the
/// switched-off stages belong to one injection. Dropping it does not remove the files; the directory belongs to the
/// caller.
#[derive(Debug)]
pub struct Injection {
    pub(super) unpacked: Unpacked,
    stages: StageSet,
}

impl Injection {
    /// Writes library and `openssl.cnf` into `dir`, which must exist and be closed to others
    /// (`servers::run_directory::make_private`), and makes the record area. Only this user and the group of
    /// `dir` can read the files.
    pub fn prepare(dir: &Path, stages: StageSet) -> Result<Injection> {
        Injection::with_hardware(dir, stages, Hardware::default())
    }

    /// As [`Injection::prepare`], with emulated hardware.
    pub fn with_hardware(dir: &Path, stages: StageSet, hardware: Hardware) -> Result<Injection> {
        let Hardware { accelerator, burn_ns, burn_instructions } = hardware;
        if let Some(Engines { count, operation_ns, batch, .. }) = accelerator {
            // Private-key operations of an accelerator cost the server's CPU nothing, so the stage is off at both ends.
            ensure!(stages.contains(Stage::Authentication), "an accelerator needs the stage authentication off");
            let fits = (1..=layout::ENGINES_MAX).contains(&(count as usize)) && operation_ns > 0;
            ensure!(fits, "an accelerator has 1 to {} engines that take some time", layout::ENGINES_MAX);
            let fits = (1..=layout::BATCH_MAX).contains(&(batch as usize));
            ensure!(fits, "an accelerator's batches have 1 to {} operations", layout::BATCH_MAX);
        }
        let mode = mode_bits(&Stage::PROVIDER, stages);
        let mut unpacked = LIBRARY.unpack(dir, mode)?;
        let engines = accelerator.unwrap_or(Engines::one_by_one(0, 0));
        unpacked.area.write_u32(layout::MAY_BE_OFF_AT, mode)?;
        unpacked.area.write_u32(layout::ACCELERATOR_ENGINES_AT, engines.count)?;
        unpacked.area.write_u32(layout::ACCELERATOR_BATCH_AT, engines.batch)?;
        unpacked.area.write_u64(layout::ACCELERATOR_OPERATION_NS_AT, engines.operation_ns)?;
        unpacked.area.write_u64(layout::ACCELERATOR_GATHER_NS_AT, engines.gather_ns)?;
        unpacked.area.write_u64(layout::BURN_NS_MOST_AT, burn_ns)?;
        unpacked.area.write_u64(layout::BURN_INSTRUCTIONS_AT, u64::from(burn_instructions))?;
        unpacked.area.write_u64(layout::BURN_NS_AT, burn_ns)?;
        let what = "TLS with parts replaced by no-ops, no security whatever. Useless once that tlsdyno has ended";
        unpacked.name_in_openssl_cnf("openssl.cnf", "tlsdyno", what)?;
        Ok(Injection { unpacked, stages })
    }

    /// The stages that this injection may switch off; all of them are off until [`Injection::set_mode`] says otherwise.
    pub fn stages(&self) -> StageSet {
        self.stages
    }

    /// Switches the provider's stages in `off` off, and the others on, for whatever the servers begin from now on;
    /// stages of the shim are ignored. What is under way ends as it began (`docs/NOOP.md`, "Modes"). Takes a
    /// microsecond; every process of the servers sees it at once.
    pub fn set_mode(&self, off: StageSet) -> Result<()> {
        self.area.set_mode(&Stage::PROVIDER, self.stages, off.provider())
    }

    /// Lets each private-key operation burn so much CPU time from now on; never more than [`Hardware::burn_ns`].
    pub fn set_burn_ns(&self, burn_ns: u64) -> Result<()> {
        self.area.write_u64(layout::BURN_NS_AT, burn_ns)
    }

    /// The calls of replaced functions so far, over all processes and threads of the servers.
    ///
    /// A stage counts only what it did as a no-op. So the difference between two flips is the mode's; a stage that was
    /// on and still counted had late work of an earlier mode.
    pub fn counters(&self) -> Result<Counters> {
        Ok(Counters::new(&layout::COUNTERS, &self.area.totals()?))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_area_has_stages_and_hardware_and_the_configuration_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let stages = StageSet::NONE.with(Stage::Authentication).with(Stage::Cipher);
        let accelerator = Some(Engines { batch: 4, gather_ns: 3, ..Engines::one_by_one(2, 5) });
        let hardware = Hardware { accelerator, burn_ns: 7, burn_instructions: 9 };
        let injection = Injection::with_hardware(dir.path(), stages, hardware).unwrap();
        let text = fs::read_to_string(dir.path().join("openssl.cnf")).unwrap();
        let (descriptor, run_id) = (injection.area.descriptor(), injection.area.run_id());
        assert!(text.ends_with(&format!("\ndescriptor = {descriptor}\nacknowledge = {run_id}\n")), "{text}");
        assert!(!text.contains("default"), "the default provider must not be a fallback");
        let at = [layout::MAY_BE_OFF_AT, layout::ACCELERATOR_ENGINES_AT, layout::ACCELERATOR_BATCH_AT];
        assert_eq!(at.map(|at| injection.area.read_u32(at).unwrap()), [0b101, 2, 4]);
        let accelerator_at = [layout::ACCELERATOR_OPERATION_NS_AT, layout::ACCELERATOR_GATHER_NS_AT];
        assert_eq!(accelerator_at.map(|at| injection.area.read_u64(at).unwrap()), [5, 3]);
        let burning_at = [layout::BURN_NS_MOST_AT, layout::BURN_INSTRUCTIONS_AT];
        assert_eq!(burning_at.map(|at| injection.area.read_u64(at).unwrap()), [7, 9]);
    }

    #[test]
    fn accelerators_that_make_no_sense_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |stages, count, operation_ns| {
            let hardware =
                Hardware { accelerator: Some(Engines::one_by_one(count, operation_ns)), ..Hardware::default() };
            Injection::with_hardware(dir.path(), stages, hardware).unwrap_err().to_string()
        };
        assert!(refused(StageSet::NONE, 1, 5).contains("authentication off"));
        for (count, operation_ns) in [(0, 5), (65, 5), (1, 0)] {
            assert!(refused(StageSet::PROVIDER, count, operation_ns).contains("1 to 64 engines"));
        }
    }

    #[test]
    fn a_prepared_record_names_this_process_and_counts_nothing_yet() {
        let dir = tempfile::tempdir().unwrap();
        let injection = Injection::prepare(dir.path(), StageSet::PROVIDER).unwrap();
        let bytes = fs::read(injection.area_path()).unwrap();
        assert_eq!(bytes.len(), layout::AREA.size);
        assert_eq!(bytes[layout::OWNER_PID_AT..][..8], u64::from(std::process::id()).to_ne_bytes());
        assert_eq!(injection.counters().unwrap().to_string(), "");
        assert_eq!(fs::read(injection.library_path()).unwrap(), LIBRARY.image);
    }

    #[test]
    fn a_mode_is_chosen_from_the_stages_of_the_injection() {
        let dir = tempfile::tempdir().unwrap();
        let stages = StageSet::NONE.with(Stage::KeyAgreement).with(Stage::Kdf);
        let injection = Injection::prepare(dir.path(), stages).unwrap();
        let mode = || injection.area.read_u32(layout::MODE_AT).unwrap();
        assert_eq!(mode(), 0b10_0010, "all of them to begin with");
        injection.set_mode(StageSet::NONE.with(Stage::Kdf).with(Stage::Setup)).unwrap();
        assert_eq!(mode(), 0b10_0000, "the shim's stages are not the provider's");
        let error = injection.set_mode(StageSet::NONE.with(Stage::Cipher)).unwrap_err().to_string();
        assert!(error.contains("`cipher`") && error.contains("key_agreement,kdf"), "{error}");
        assert_eq!(mode(), 0b10_0000);
        injection.set_mode(StageSet::NONE).unwrap();
        assert_eq!(mode(), 0);
    }

    #[test]
    fn counters_are_summed_over_slots_and_subtracted() {
        let dir = tempfile::tempdir().unwrap();
        let injection = Injection::prepare(dir.path(), StageSet::PROVIDER).unwrap();
        let before = injection.counters().unwrap();
        injection.area.write_u32(layout::SLOTS_CLAIMED_AT, layout::AREA.slots as u32 + 1).unwrap();
        for slot in [0, layout::AREA.slots - 1] {
            let at = layout::AREA.slots_at + slot * layout::AREA.slot_numbers * 8;
            injection.area.write_u64(at, 3).unwrap();
        }
        let difference = injection.counters().unwrap() - before;
        assert_eq!(difference.get("sign"), Some(6));
        assert_eq!(difference.total(Stage::Authentication), 6);
        assert_eq!(difference.total(Stage::Kdf), 0);
        assert_eq!(difference.to_string(), "sign=6");
        assert_eq!(difference.get("no such counter"), None);
    }
}
