//! The OpenSSL provider that replaces TLS stages by no-ops: unpacked for one run, and its call counters.
//!
//! The library is compiled from `native/provider` by the build script and embedded here. For a run it is written, with
//! an `openssl.cnf`, into a private directory; a server that is started with [`Unpacked::handed`] then loads it. The
//! record area, which goes to the server as an open descriptor, is also the acknowledgement ([`super::area`]).

use std::path::Path;

use anyhow::Result;
use tlsdyno_tls::{Stage, StageSet};

use crate::area::{Head, mode_bits};
use crate::counts::Counts;
use crate::layout::provider as layout;
use crate::unpacked::{Library, Unpacked};

/// The provider, an ELF shared library.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tlsdyno-provider.so"));

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

/// The engines of an emulated accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engines {
    /// Operations at the same time, 1 to [`layout::ENGINES_MAX`].
    pub count: u32,
    /// Time of one operation in one engine, nanoseconds.
    pub operation_ns: u64,
}

/// Calls of replaced functions, and what emulated hardware did. An operation of two stages (one AEAD record) is counted
/// once for each of them that is off.
pub type Counters = Counts<u64, { layout::COUNTERS.len() }>;

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
    ///
    /// # Errors
    /// A file cannot be written; `dir` has a path that an `openssl.cnf` cannot hold.
    pub fn prepare(dir: &Path, stages: StageSet) -> Result<Injection> {
        Injection::with_hardware(dir, stages, Hardware::default())
    }

    /// As [`Injection::prepare`], with emulated hardware.
    ///
    /// # Errors
    /// As there.
    pub fn with_hardware(dir: &Path, stages: StageSet, hardware: Hardware) -> Result<Injection> {
        let mode = mode_bits(&Stage::PROVIDER, stages);
        let head = Head { magic: layout::MAGIC, abi_version: layout::ABI_VERSION, slots: layout::SLOTS, mode };
        let library =
            Library { name: "provider", image: LIBRARY, area_name: "tlsdyno-record", head, area_size: layout::SIZE };
        let mut unpacked = library.unpack(dir)?;
        unpacked.area.write(layout::BURN_NS_AT, &hardware.burn_ns.to_ne_bytes())?;
        let what = "TLS with parts replaced by no-ops, no security whatever. Useless once that tlsdyno has ended";
        unpacked.name_in_openssl_cnf("openssl.cnf", "tlsdyno", what, &settings(stages, hardware))?;
        Ok(Injection { unpacked, stages })
    }

    /// The stages that this injection may switch off; all of them are off until [`Injection::set_mode`] says otherwise.
    pub fn stages(&self) -> StageSet {
        self.stages
    }

    /// Switches the provider's stages in `off` off, and the others on, for whatever the servers begin from now on;
    /// stages of the shim are ignored. What is under way ends as it began (`docs/NOOP.md`, "Modes"). Takes a
    /// microsecond; every process of the servers sees it at once.
    ///
    /// # Errors
    /// A stage that is not one of [`Injection::stages`].
    pub fn set_mode(&self, off: StageSet) -> Result<()> {
        self.area.set_mode(&Stage::PROVIDER, self.stages, off.provider())
    }

    /// Lets each private-key operation burn so much CPU time from now on; never more than [`Hardware::burn_ns`].
    ///
    /// # Errors
    /// The area cannot be written.
    pub fn set_burn_ns(&self, burn_ns: u64) -> Result<()> {
        self.area.write(layout::BURN_NS_AT, &burn_ns.to_ne_bytes())
    }

    /// How often the servers read a mode with stages that they may not switch, and ignored those: 0, unless something
    /// else than [`Injection::set_mode`] writes it.
    ///
    /// # Errors
    /// The area cannot be read.
    pub fn modes_ignored(&self) -> Result<u32> {
        self.area.read_u32(layout::MODES_IGNORED_AT)
    }

    /// The calls of replaced functions so far, over all processes and threads of the servers.
    ///
    /// A stage counts only what it did as a no-op. So the difference between two flips is the mode's; a stage that was
    /// on and still counted had late work of an earlier mode.
    ///
    /// # Errors
    /// The record file cannot be read.
    pub fn counters(&self) -> Result<Counters> {
        let (claimed_at, counters) = (layout::SLOTS_CLAIMED_AT, layout::SLOT_COUNTERS);
        let totals = self.area.sum_slots(claimed_at, layout::SLOTS, layout::SLOTS_AT, counters)?;
        Ok(Counters::new(&layout::COUNTERS, |place| totals[place]))
    }
}

/// Lines of the provider's section of `openssl.cnf`.
fn settings(stages: StageSet, hardware: Hardware) -> String {
    let stages = if stages.is_empty() { "none".to_owned() } else { stages.to_string() };
    let mut text = format!("stages = {stages}\n");
    if let Some(engines) = hardware.accelerator {
        text.push_str(&format!(
            "accelerator_engines = {}\naccelerator_operation_ns = {}\n",
            engines.count, engines.operation_ns
        ));
    }
    if hardware.burn_ns > 0 {
        text.push_str(&format!("burn_ns = {}\n", hardware.burn_ns));
    }
    if hardware.burn_instructions > 0 {
        text.push_str(&format!("burn_instructions = {}\n", hardware.burn_instructions));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The `openssl.cnf` of a provider with these settings.
    fn configuration(stages: StageSet, hardware: Hardware) -> String {
        let dir = tempfile::tempdir().unwrap();
        let injection = Injection::with_hardware(dir.path(), stages, hardware).unwrap();
        let text = fs::read_to_string(dir.path().join("openssl.cnf")).unwrap();
        let (descriptor, run_id) = (injection.area.descriptor(), injection.area.run_id());
        assert!(text.contains(&format!("\ndescriptor = {descriptor}\nacknowledge = {run_id}\n")), "{text}");
        assert!(!text.contains("default"), "the default provider must not be a fallback");
        text
    }

    #[test]
    fn configuration_names_stages_and_hardware() {
        let stages = StageSet::NONE.with(Stage::Kdf).with(Stage::Cipher);
        assert!(configuration(stages, Hardware::default()).contains("\nstages = cipher,kdf\n"));
        let none = configuration(
            StageSet::NONE,
            Hardware { accelerator: Some(Engines { count: 2, operation_ns: 5 }), burn_ns: 7, burn_instructions: 9 },
        );
        assert!(none.contains("\nstages = none\n"));
        assert!(
            none.ends_with(
                "\naccelerator_engines = 2\naccelerator_operation_ns = 5\nburn_ns = 7\nburn_instructions = 9\n"
            ),
            "{none}"
        );
    }

    #[test]
    fn a_prepared_record_names_this_process_and_counts_nothing_yet() {
        let dir = tempfile::tempdir().unwrap();
        let injection = Injection::prepare(dir.path(), StageSet::PROVIDER).unwrap();
        let bytes = fs::read(injection.area_path()).unwrap();
        assert_eq!(bytes.len(), layout::SIZE);
        assert_eq!(bytes[layout::OWNER_PID_AT..][..8], u64::from(std::process::id()).to_ne_bytes());
        assert_eq!(injection.counters().unwrap().to_string(), "");
        assert_eq!(fs::read(injection.library_path()).unwrap(), LIBRARY);
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
        let all_claimed = (layout::SLOTS as u32 + 1).to_ne_bytes();
        injection.area.write(layout::SLOTS_CLAIMED_AT, &all_claimed).unwrap();
        for slot in [0, layout::SLOTS - 1] {
            let at = layout::SLOTS_AT + slot * layout::SLOT_COUNTERS * 8;
            injection.area.write(at, &3u64.to_ne_bytes()).unwrap();
        }
        let difference = injection.counters().unwrap() - before;
        assert_eq!(difference.get("sign"), Some(6));
        assert_eq!(difference.of(Stage::Authentication), 6);
        assert_eq!(difference.of(Stage::Kdf), 0);
        assert_eq!(difference.to_string(), "sign=6");
        assert_eq!(difference.get("no such counter"), None);
    }
}
